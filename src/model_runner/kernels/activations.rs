//! What flows between the layers: columns of floats out of a matrix product, blocks of bytes into it.

use super::{BLOCK, LANES, Lanes, Team};

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
    #[must_use]
    pub fn tile(&self, tile: usize) -> &[[f32; LANES]] {
        &self.values[tile * self.rows..][..self.rows]
    }

    /// Tile after tile.
    pub fn tiles_mut(&mut self) -> &mut [[f32; LANES]] {
        &mut self.values
    }

    /// Copies `to.len()` columns of `row` from `column` on, both multiples of 16.
    pub fn gather(&self, row: usize, column: usize, to: &mut [f32]) {
        let first = column / LANES;
        for (tile, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            *to = self.values[(first + tile) * self.rows + row];
        }
    }
}

/// Thirty-two columns of one token as signed bytes: `x[i] = scale * q[i]`, `q` in -127..=127.
///
/// Rows are quantised each for itself, so a token's bytes do not depend on its neighbours in the batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QuantBlock {
    /// The bytes, four to a word, lowest first.
    pub words: [i32; BLOCK / 4],
    /// Worth of one step.
    pub scale: f32,
    /// `scale * (q[0] + .. + q[31])`: what a weight's minimum is multiplied by.
    pub sum: f32,
}

impl QuantBlock {
    /// Quantises two times sixteen numbers.
    #[inline(always)]
    #[must_use]
    pub fn quantise<L: Lanes>(low: L::Floats, high: L::Floats) -> Self {
        let largest = L::largest(L::max(L::abs(low), L::abs(high)));
        let inverse = L::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
        let mut bytes = [0i8; BLOCK];
        bytes[..LANES].copy_from_slice(&L::round_to_i8(L::mul(low, inverse)));
        bytes[LANES..].copy_from_slice(&L::round_to_i8(L::mul(high, inverse)));
        let mut words = [0; BLOCK / 4];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = i32::from_le_bytes(bytes.map(i8::cast_unsigned));
        }
        let scale = largest / 127.0;
        let total: i32 = bytes.iter().map(|byte| i32::from(*byte)).sum();
        Self { words, scale, sum: scale * total as f32 }
    }
}

/// A matrix of `rows` tokens as bytes, stored by blocks of 32 columns: block after block, in each block row after row,
/// which is the order in which a matrix product reads them.
#[derive(Debug, Clone, Default)]
pub struct Activations {
    rows: usize,
    blocks: Vec<QuantBlock>,
}

impl Activations {
    /// Changes the shape; what was in it means nothing afterwards.
    ///
    /// `columns` is a multiple of 32.
    pub fn reshape(&mut self, rows: usize, columns: usize) {
        self.rows = rows;
        self.blocks.resize(rows * columns / BLOCK, QuantBlock::default());
    }

    /// Tokens.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Thirty-two columns of `M` rows from `row` on.
    #[inline(always)]
    pub fn block<const M: usize>(&self, block: usize, row: usize) -> &[QuantBlock; M] {
        let start = block * self.rows + row;
        self.blocks[start..].first_chunk().expect("a tile's rows lie inside of the matrix")
    }

    /// Block after block.
    pub fn blocks_mut(&mut self) -> &mut [QuantBlock] {
        &mut self.blocks
    }
}

/// The first `columns` of `x`, a multiple of 32, as bytes.
pub fn quantise<L: Lanes>(team: &Team, x: &Columns, columns: usize, out: &mut Activations) {
    let rows = x.rows();
    out.reshape(rows, columns);
    team.for_each(rows * columns / 4, out.blocks.chunks_mut(rows.max(1)).enumerate(), |(block, out)| {
        let [low, high] = [2 * block, 2 * block + 1].map(|tile| x.tile(tile));
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            *out = QuantBlock::quantise::<L>(L::load(low), L::load(high));
        }
    });
}
