//! Weight matrices in tiles of 16 rows by 32 columns, and their product with quantised activations.

use half::f16;

use super::activations::QuantBlock;
use super::elementwise::silu_gate;
use super::{Activations, BLOCK, Columns, LANES, Lanes, Team};

/// Rows of activations that a tile serves while it is in registers.
const TILE_ROWS: usize = 8;

/// Output columns of sixteen rows, one row a token.
type Accumulators<L, const M: usize> = [<L as Lanes>::Floats; M];

/// A weight matrix `W` of `outputs` rows and `inputs` columns: `y = W x`.
///
/// A weight is `scale * q + min`, scale and min of 32 neighbours in a row being shared and of half precision.
#[derive(Debug)]
pub struct PackedLinear {
    /// Columns of `W`, a multiple of 32.
    pub(super) inputs: usize,
    /// Rows of `W`; the last tile is filled up with zeros.
    pub(super) outputs: usize,
    pub(super) tiles: Tiles,
}

/// All tiles of a matrix: for each 16 rows, block after block.
#[derive(Debug)]
pub(super) enum Tiles {
    /// `q` in 0..=15.
    Nibbles(Vec<NibbleTile>),
    /// `q` in 0..=255.
    Bytes(Vec<ByteTile>),
}

/// Sixteen rows by 32 columns of 4 bit weights. Byte `4 r + i` of plane `j` has column `4 j + i` of row `r` in its low
/// bits and column `16 + 4 j + i` in its high bits: a plane meets one word of activations in every lane.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct NibbleTile {
    pub(super) planes: [[u8; 4 * LANES]; 4],
    pub(super) scale: [u16; LANES],
    pub(super) min: [u16; LANES],
}

/// Sixteen rows by 32 columns of 8 bit weights. Byte `4 r + i` of plane `j` is column `4 j + i` of row `r`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct ByteTile {
    pub(super) planes: [[u8; 4 * LANES]; 8],
    pub(super) scale: [u16; LANES],
    pub(super) min: [u16; LANES],
}

/// What the two kinds of tiles have in common.
trait Tile: Sync {
    /// The planes, ordered as the words of an activation block.
    fn planes<L: Lanes>(&self) -> [L::Bytes; BLOCK / 4];
    /// The dot product for this range of `q`.
    fn dot<L: Lanes>(sum: L::Ints, plane: L::Bytes, word: i32) -> L::Ints;
    /// Scales and minima of the rows.
    fn scale_and_min(&self) -> [&[u16; LANES]; 2];
    /// `q` of one weight.
    fn quant(&self, row: usize, column: usize) -> u8;
}

impl Tile for NibbleTile {
    #[inline(always)]
    fn planes<L: Lanes>(&self) -> [L::Bytes; BLOCK / 4] {
        let [a, b, c, d] = &self.planes;
        let (a, b, c, d) = (L::load_bytes(a), L::load_bytes(b), L::load_bytes(c), L::load_bytes(d));
        let [low, high] = [L::low_nibbles, L::high_nibbles];
        [low(a), low(b), low(c), low(d), high(a), high(b), high(c), high(d)]
    }
    #[inline(always)]
    fn dot<L: Lanes>(sum: L::Ints, plane: L::Bytes, word: i32) -> L::Ints {
        L::dot_nibbles(sum, plane, word)
    }
    #[inline(always)]
    fn scale_and_min(&self) -> [&[u16; LANES]; 2] {
        [&self.scale, &self.min]
    }
    fn quant(&self, row: usize, column: usize) -> u8 {
        let byte = self.planes[column % 16 / 4][4 * row + column % 4];
        if column < 16 { byte & 0x0f } else { byte >> 4 }
    }
}

impl Tile for ByteTile {
    #[inline(always)]
    fn planes<L: Lanes>(&self) -> [L::Bytes; BLOCK / 4] {
        let load = L::load_bytes;
        let [a, b, c, d, e, f, g, h] = &self.planes;
        [load(a), load(b), load(c), load(d), load(e), load(f), load(g), load(h)]
    }
    #[inline(always)]
    fn dot<L: Lanes>(sum: L::Ints, plane: L::Bytes, word: i32) -> L::Ints {
        L::dot_bytes(sum, plane, word)
    }
    #[inline(always)]
    fn scale_and_min(&self) -> [&[u16; LANES]; 2] {
        [&self.scale, &self.min]
    }
    fn quant(&self, row: usize, column: usize) -> u8 {
        self.planes[column / 4][4 * row + column % 4]
    }
}

impl PackedLinear {
    /// Columns of `W`.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows of `W`.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.tiles {
            Tiles::Nibbles(tiles) => size_of_val(tiles.as_slice()),
            Tiles::Bytes(tiles) => size_of_val(tiles.as_slice()),
        }
    }

    /// `out = x Wᵀ`, the columns of `out` rounded up to a multiple of 16.
    pub fn forward<L: Lanes>(&self, team: &Team, x: &Activations, out: &mut Columns) {
        out.reshape(x.rows(), self.padded_outputs());
        self.run::<L>(team, x, out.tiles_mut(), |out| out.fill([0.0; LANES]));
    }

    /// `out += x Wᵀ`.
    pub fn add_to<L: Lanes>(&self, team: &Team, x: &Activations, out: &mut Columns) {
        self.run::<L>(team, x, out.tiles_mut(), |_| ());
    }

    /// One row of `W`, as floats.
    ///
    /// `out` has `inputs` places.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        match &self.tiles {
            Tiles::Nibbles(tiles) => weight_row(self.stripe(tiles, row / LANES), row % LANES, out),
            Tiles::Bytes(tiles) => weight_row(self.stripe(tiles, row / LANES), row % LANES, out),
        }
    }

    fn padded_outputs(&self) -> usize {
        self.outputs.next_multiple_of(LANES)
    }

    /// The tiles of 16 rows of `W`.
    #[inline(always)]
    fn stripe<'a, T>(&self, tiles: &'a [T], stripe: usize) -> &'a [T] {
        let blocks = self.inputs / BLOCK;
        &tiles[stripe * blocks..][..blocks]
    }

    fn run<L: Lanes>(
        &self,
        team: &Team,
        x: &Activations,
        out: &mut [[f32; LANES]],
        prepare: impl Fn(&mut [[f32; LANES]]) + Sync,
    ) {
        let rows = x.rows();
        let stripes = team.share(self.padded_outputs() / LANES);
        let cost = rows * self.inputs * self.outputs / LANES;
        team.for_each(cost, out.chunks_mut(stripes * rows).enumerate(), |(share, out)| {
            for (stripe, out) in out.chunks_mut(rows).enumerate() {
                prepare(out);
                self.add_stripe::<L>(share * stripes + stripe, x, 0, out);
            }
        });
    }

    /// Adds 16 columns of the product, for `out.len()` rows from `first` on.
    #[inline(always)]
    fn add_stripe<L: Lanes>(&self, stripe: usize, x: &Activations, first: usize, out: &mut [[f32; LANES]]) {
        match &self.tiles {
            Tiles::Nibbles(tiles) => add_product::<L, _>(self.stripe(tiles, stripe), x, first, out),
            Tiles::Bytes(tiles) => add_product::<L, _>(self.stripe(tiles, stripe), x, first, out),
        }
    }
}

/// `out = silu(x Gᵀ) * (x Uᵀ)`, quantised: the first half of a feed-forward layer in one go, so that its wide result
/// is never written out in floats.
///
/// `gate` and `up` have the same shape, their outputs a multiple of 32.
pub fn gated<L: Lanes>(team: &Team, gate: &PackedLinear, up: &PackedLinear, x: &Activations, out: &mut Activations) {
    let rows = x.rows();
    out.reshape(rows, gate.outputs);
    let blocks = team.share(gate.outputs / BLOCK);
    let cost = 2 * rows * gate.inputs * gate.outputs / LANES;
    team.for_each(cost, out.blocks_mut().chunks_mut(blocks * rows).enumerate(), |(share, out)| {
        for (block, out) in out.chunks_mut(rows).enumerate() {
            for (chunk, out) in out.chunks_mut(TILE_ROWS).enumerate() {
                gate_rows::<L>(gate, up, share * blocks + block, x, chunk * TILE_ROWS, out);
            }
        }
    });
}

#[inline(always)]
fn gate_rows<L: Lanes>(
    gate: &PackedLinear,
    up: &PackedLinear,
    block: usize,
    x: &Activations,
    first: usize,
    out: &mut [QuantBlock],
) {
    let product = |matrix: &PackedLinear, stripe| {
        let mut sums = [[0.0; LANES]; TILE_ROWS];
        matrix.add_stripe::<L>(stripe, x, first, &mut sums[..out.len()]);
        sums
    };
    let gates = [product(gate, 2 * block), product(gate, 2 * block + 1)];
    let ups = [product(up, 2 * block), product(up, 2 * block + 1)];
    for (row, out) in out.iter_mut().enumerate() {
        let half = |half: usize| silu_gate::<L>(L::load(&gates[half][row]), L::load(&ups[half][row]));
        *out = QuantBlock::quantise::<L>(half(0), half(1));
    }
}

#[inline(always)]
fn add_product<L: Lanes, T: Tile>(tiles: &[T], x: &Activations, first: usize, out: &mut [[f32; LANES]]) {
    for (chunk, out) in out.chunks_mut(TILE_ROWS).enumerate() {
        let row = first + chunk * TILE_ROWS;
        match out.len() {
            1 => store::<L, 1>(product::<L, T, 1>(tiles, x, row), out),
            2 => store::<L, 2>(product::<L, T, 2>(tiles, x, row), out),
            3 => store::<L, 3>(product::<L, T, 3>(tiles, x, row), out),
            4 => store::<L, 4>(product::<L, T, 4>(tiles, x, row), out),
            5 => store::<L, 5>(product::<L, T, 5>(tiles, x, row), out),
            6 => store::<L, 6>(product::<L, T, 6>(tiles, x, row), out),
            7 => store::<L, 7>(product::<L, T, 7>(tiles, x, row), out),
            _ => store::<L, 8>(product::<L, T, 8>(tiles, x, row), out),
        }
    }
}

#[inline(always)]
fn store<L: Lanes, const M: usize>(sums: Accumulators<L, M>, out: &mut [[f32; LANES]]) {
    for (sum, out) in sums.iter().zip(out) {
        L::store(L::add(L::load(out), *sum), out);
    }
}

/// Sixteen columns of `M` rows. Blocks are added in order whatever `M` is, so a row's result does not depend on it:
/// `sum += (q · a) * (scale * scale_a)`, then `sum += min * sum_a`.
#[inline(never)]
fn product<L: Lanes, T: Tile, const M: usize>(tiles: &[T], x: &Activations, row: usize) -> Accumulators<L, M> {
    let mut sums = [L::splat(0.0); M];
    for (block, tile) in tiles.iter().enumerate() {
        let planes = tile.planes::<L>();
        let [scale, min] = tile.scale_and_min();
        let (scale, min) = (L::widen(scale), L::widen(min));
        for (sum, x) in sums.iter_mut().zip(x.block::<M>(block, row)) {
            let mut dots = [L::no_ints(); 2];
            for (word, plane) in planes.iter().enumerate() {
                dots[word % 2] = T::dot::<L>(dots[word % 2], *plane, x.words[word]);
            }
            let dot = L::to_floats(L::add_ints(dots[0], dots[1]));
            *sum = L::mul_add(dot, L::mul(scale, L::splat(x.scale)), *sum);
            *sum = L::mul_add(min, L::splat(x.sum), *sum);
        }
    }
    sums
}

fn weight_row<T: Tile>(tiles: &[T], row: usize, out: &mut [f32]) {
    for (tile, out) in tiles.iter().zip(out.chunks_exact_mut(BLOCK)) {
        let [scale, min] = tile.scale_and_min().map(|halves| f16::from_bits(halves[row]).to_f32());
        for (column, out) in out.iter_mut().enumerate() {
            *out = scale.mul_add(f32::from(tile.quant(row, column)), min);
        }
    }
}

#[cfg(test)]
mod tests;
