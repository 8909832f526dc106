//! What flows between the layers: columns of floats out of a matrix product, blocks of 32 columns into it.

use std::array::from_fn;

use super::scratch::with_floats;
use super::{BLOCK, LANES, Lanes, Team};

/// Rows that are worked out together, while a piece of the weights is in the first cache.
pub(super) const CHUNK_ROWS: usize = 32;

/// A matrix of `rows` tokens, stored by tiles of 16 columns: tile after tile, in each tile row after row. So the threads
/// that compute different tiles write into different slices.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    rows: usize,
    values: Vec<[f32; LANES]>,
}

impl Columns {
    /// Changes the shape; what was in it means nothing afterwards.
    ///
    /// `columns` is a multiple of 16.
    pub fn reshape(&mut self, rows: usize, columns: usize) {
        self.rows = rows;
        self.values.resize(rows * columns / LANES, [0.0; LANES]);
    }

    /// Tokens.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Sixteen columns of every row.
    #[inline(always)]
    #[must_use]
    pub fn tile(&self, tile: usize) -> &[[f32; LANES]] {
        &self.values[tile * self.rows..][..self.rows]
    }

    /// Tile after tile.
    pub fn tiles_mut(&mut self) -> &mut [[f32; LANES]] {
        &mut self.values
    }

    /// Copies `to.len()` columns of `row` from `column` on, both multiples of 16.
    #[inline(always)]
    pub fn gather(&self, row: usize, column: usize, to: &mut [f32]) {
        let first = column / LANES;
        for (tile, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            *to = self.values[(first + tile) * self.rows + row];
        }
    }
}

/// How the input of a matrix product is held; the weights decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// Signed bytes with a scale for each 32 of them: for weights of few bits.
    #[default]
    Int8,
    /// As they are: for weights that are floats themselves.
    Float,
}

/// Thirty-two columns of one token as signed bytes: `x[i] = scale * q[i]`, `q` in -127..=127.
///
/// Rows are quantised each for itself, so a token's bytes do not depend on its neighbours in the batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct QuantBlock {
    /// The bytes, four to a word, lowest first.
    pub words: [i32; BLOCK / 4],
    /// Worth of one step.
    pub scale: f32,
    /// `scale * (q[0] + .. + q[31])`: what a weight's minimum is multiplied by.
    pub sum: f32,
}

impl QuantBlock {
    /// Quantises 32 numbers.
    #[inline(always)]
    #[must_use]
    pub fn quantise<L: Lanes>(values: &[f32; BLOCK]) -> Self {
        let [low, high] = halves::<L>(values);
        let largest = L::largest(L::max(L::abs(low), L::abs(high)));
        let inverse = L::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
        let [low, high] = [L::round(L::mul(low, inverse)), L::round(L::mul(high, inverse))];
        let [low_words, high_words] = [words::<L>(low), words::<L>(high)];
        let scale = largest / 127.0;
        // Whole numbers: their sum is exact.
        let total = L::sum(L::add(low, high));
        Self {
            words: from_fn(|word| if word < 4 { low_words[word] } else { high_words[word - 4] }),
            scale,
            sum: scale * total,
        }
    }
}

/// Sixteen whole numbers as bytes, four to a word.
#[inline(always)]
fn words<L: Lanes>(values: L::Floats) -> [i32; LANES / 4] {
    let bytes = L::round_to_i8(values);
    let bytes = bytes.as_chunks::<4>().0;
    from_fn(|word| i32::from_le_bytes(bytes[word].map(i8::cast_unsigned)))
}

/// The two registers of a block.
#[inline(always)]
pub fn halves<L: Lanes>(values: &[f32; BLOCK]) -> [L::Floats; 2] {
    let halves = values.as_chunks::<LANES>().0;
    [L::load(&halves[0]), L::load(&halves[1])]
}

/// Writes the two registers of a block.
#[inline(always)]
pub fn store_halves<L: Lanes>(halves: [L::Floats; 2], to: &mut [f32; BLOCK]) {
    for (half, to) in halves.into_iter().zip(to.as_chunks_mut::<LANES>().0) {
        L::store(half, to);
    }
}

/// A matrix of `rows` tokens, stored by blocks of 32 columns: block after block, in each block row after row, which is
/// the order in which a matrix product reads them.
#[derive(Debug, Clone, Default)]
pub struct Activations {
    rows: usize,
    form: Form,
    quants: Vec<QuantBlock>,
    floats: Vec<[f32; BLOCK]>,
}

/// Size and form of activations that are to be filled in.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Tokens.
    pub rows: usize,
    /// A multiple of 32.
    pub columns: usize,
    /// What the next product wants.
    pub form: Form,
}

impl Activations {
    /// Tokens.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How they are held.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// Thirty-two columns of `M` rows from `row` on, as bytes.
    #[inline(always)]
    pub fn quants<const M: usize>(&self, block: usize, row: usize) -> &[QuantBlock; M] {
        let start = block * self.rows + row;
        self.quants[start..].first_chunk().expect("a tile's rows lie inside of the matrix")
    }

    /// Thirty-two columns of `M` rows from `row` on, as floats.
    #[inline(always)]
    pub fn floats<const M: usize>(&self, block: usize, row: usize) -> &[[f32; BLOCK]; M] {
        let start = block * self.rows + row;
        self.floats[start..].first_chunk().expect("a tile's rows lie inside of the matrix")
    }

    /// Fills the matrix in, whatever its form: `values(block, row, to)` writes the 32 columns of `block` for the rows from
    /// `row` on, as many as `to` has. `cost` as for [`Team::for_each`].
    pub fn fill<L: Lanes>(
        &mut self,
        team: &Team,
        shape: Shape,
        cost: usize,
        values: impl Fn(usize, usize, &mut [[f32; BLOCK]]) + Sync,
    ) {
        let Shape { rows, columns, form } = shape;
        let len = rows * columns / BLOCK;
        let blocks = team.share(columns / BLOCK, cost);
        (self.rows, self.form) = (rows, form);
        let Self { quants, floats, .. } = self;
        match form {
            Form::Int8 => {
                quants.resize(len, QuantBlock::default());
                let shares = quants.chunks_mut((blocks * rows).max(1)).enumerate();
                team.for_each(cost, shares, |(share, out)| {
                    L::vectorise(
                        #[inline(always)]
                        || quantise_share::<L>(share * blocks, rows, out, &values),
                    );
                });
            }
            Form::Float => {
                floats.resize(len, [0.0; BLOCK]);
                let shares = floats.chunks_mut((blocks * rows).max(1)).enumerate();
                team.for_each(cost, shares, |(share, out)| {
                    L::vectorise(
                        #[inline(always)]
                        || store_share(share * blocks, rows, out, &values),
                    );
                });
            }
        }
    }
}

#[inline(always)]
fn quantise_share<L: Lanes>(
    first: usize,
    rows: usize,
    out: &mut [QuantBlock],
    values: &impl Fn(usize, usize, &mut [[f32; BLOCK]]),
) {
    with_floats(
        rows.min(CHUNK_ROWS) * BLOCK,
        #[inline(always)]
        |floats| {
            let floats = floats.as_chunks_mut().0;
            for (block, out) in out.chunks_mut(rows).enumerate() {
                for (chunk, out) in out.chunks_mut(CHUNK_ROWS).enumerate() {
                    let floats = &mut floats[..out.len()];
                    values(first + block, chunk * CHUNK_ROWS, floats);
                    for (out, floats) in out.iter_mut().zip(floats) {
                        *out = QuantBlock::quantise::<L>(floats);
                    }
                }
            }
        },
    );
}

#[inline(always)]
fn store_share(
    first: usize,
    rows: usize,
    out: &mut [[f32; BLOCK]],
    values: &impl Fn(usize, usize, &mut [[f32; BLOCK]]),
) {
    for (block, out) in out.chunks_mut(rows).enumerate() {
        for (chunk, out) in out.chunks_mut(CHUNK_ROWS).enumerate() {
            values(first + block, chunk * CHUNK_ROWS, out);
        }
    }
}

/// The first columns of `x`, as the next product wants them.
pub fn copy<L: Lanes>(team: &Team, x: &Columns, shape: Shape, out: &mut Activations) {
    out.fill::<L>(
        team,
        shape,
        shape.rows * shape.columns / 4,
        #[inline(always)]
        |block, first, out| {
            for half in 0..2 {
                let tile = &x.tile(2 * block + half)[first..];
                for (out, values) in out.iter_mut().zip(tile) {
                    out.as_chunks_mut::<LANES>().0[half] = *values;
                }
            }
        },
    );
}
