//! Sixteen rows by 32 columns of a weight matrix, in the formats that have a kernel.
#![expect(unsafe_code, reason = "tiles are plain bytes")]

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use super::activations::QuantBlock;
use super::sixteens::add_sixteens;
use super::{Activations, BLOCK, LANES, Lanes};

/// Output columns of sixteen rows, one row a token.
pub(super) type Accumulators<L, const M: usize> = [<L as Lanes>::Floats; M];

/// How far ahead of their use tiles are asked for, by the first rows that meet them. Memory is some hundred nanoseconds away.
pub(super) const TILES_AHEAD: usize = 8;

/// A tile of any format.
pub(super) trait Tile: Pod + Send + Sync {
    /// Adds the product of these tiles, a whole row of them, to as many rows from `first` on as a matrix unit takes, which is
    /// none where there is no unit for them; returns how many.
    #[inline(always)]
    fn add_in_unit<L: Lanes>(_: &[Self], _: &Activations, _: usize, _: &mut [[f32; LANES]]) -> usize {
        0
    }
    /// Adds its product with 32 columns of `M` rows of `x`. The order of all roundings is the same for every `M`.
    fn add_product<L: Lanes, const M: usize>(
        &self,
        x: &Activations,
        block: usize,
        row: usize,
        sums: &mut Accumulators<L, M>,
    );
    /// One weight.
    fn weight(&self, row: usize, column: usize) -> f32;
}

/// 4 bit weights, `scale * q + min` with `q` in 0..=15. Byte `4 r + i` of plane `j` has column `4 j + i` of row `r` in its
/// low bits and column `16 + 4 j + i` in its high bits: a plane meets one word of activations in every lane.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct NibbleTile {
    pub(super) planes: [[u8; 4 * LANES]; 4],
    pub(super) scale: [u16; LANES],
    pub(super) min: [u16; LANES],
}

/// 5 bit weights, `q` in 0..=31: a nibble tile, and bit `j` of byte `4 r + i` of `fifth` is the highest bit of column
/// `4 j + i` of row `r`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct FiveTile {
    pub(super) planes: [[u8; 4 * LANES]; 4],
    pub(super) fifth: [u8; 4 * LANES],
    pub(super) scale: [u16; LANES],
    pub(super) min: [u16; LANES],
}

/// 8 bit weights, `q` in 0..=255. Byte `4 r + i` of plane `j` is column `4 j + i` of row `r`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct ByteTile {
    pub(super) planes: [[u8; 4 * LANES]; 8],
    pub(super) scale: [u16; LANES],
    pub(super) min: [u16; LANES],
}

/// Weights as floats: column after column, sixteen rows each.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct FloatTile<E> {
    pub(super) columns: [[E; LANES]; BLOCK],
}

/// Says of tiles that they are plain bytes, whose sizes leave no gaps.
macro_rules! plain {
    ($($tile:ty: $size:expr),*) => { $(
        const _: () = assert!(size_of::<$tile>() == $size);
        // SAFETY: its fields are arrays of plain numbers, and there is nothing beside them: the size is theirs.
        unsafe impl Zeroable for $tile {}
        // SAFETY: as above.
        unsafe impl Pod for $tile {}
    )* };
}

plain!(
    NibbleTile: (16 + 4) * LANES,
    FiveTile: (20 + 4) * LANES,
    ByteTile: (32 + 4) * LANES,
    FloatTile<f16>: 2 * BLOCK * LANES,
    FloatTile<bf16>: 2 * BLOCK * LANES,
    FloatTile<f32>: 4 * BLOCK * LANES
);

/// What the tiles of few bits have in common.
pub(super) trait QuantTile: Pod + Send + Sync {
    /// The planes, ordered as the words of an activation block.
    fn planes<L: Lanes>(&self) -> [L::Bytes; BLOCK / 4];
    /// The dot product for this range of `q`.
    fn dot<L: Lanes>(sum: L::Ints, plane: L::Bytes, word: i32) -> L::Ints;
    /// Scales and minima of the rows.
    fn scale_and_min(&self) -> [&[u16; LANES]; 2];
    /// `q` of one weight.
    fn quant(&self, row: usize, column: usize) -> u8;
}

/// `sum += (q · a) * (scale * scale_a)`, then `sum += min * sum_a`.
#[inline(always)]
pub(super) fn add_scaled<L: Lanes>(
    sum: L::Floats,
    dot: L::Ints,
    x: &QuantBlock,
    scale: L::Floats,
    min: L::Floats,
) -> L::Floats {
    let sum = L::mul_add(L::to_floats(dot), L::mul(scale, L::splat(x.scale)), sum);
    L::mul_add(min, L::splat(x.sum), sum)
}

impl<T: QuantTile> Tile for T {
    #[inline(always)]
    fn add_in_unit<L: Lanes>(tiles: &[T], x: &Activations, first: usize, out: &mut [[f32; LANES]]) -> usize {
        if L::HAS_MATRIX_UNIT { add_sixteens::<L, T>(tiles, x, first, out) } else { 0 }
    }

    #[inline(always)]
    fn add_product<L: Lanes, const M: usize>(
        &self,
        x: &Activations,
        block: usize,
        row: usize,
        sums: &mut Accumulators<L, M>,
    ) {
        let planes = self.planes::<L>();
        let [scale, min] = self.scale_and_min().map(L::widen);
        let x: &[QuantBlock; M] = x.quants(block, row);
        for (sum, x) in sums.iter_mut().zip(x) {
            let mut dots = [L::no_ints(); 2];
            for (word, plane) in planes.iter().enumerate() {
                dots[word % 2] = T::dot::<L>(dots[word % 2], *plane, x.words[word]);
            }
            *sum = add_scaled::<L>(*sum, L::add_ints(dots[0], dots[1]), x, scale, min);
        }
    }

    fn weight(&self, row: usize, column: usize) -> f32 {
        let [scale, min] = self.scale_and_min().map(|halves| f16::from_bits(halves[row]).to_f32());
        scale.mul_add(f32::from(self.quant(row, column)), min)
    }
}

impl QuantTile for NibbleTile {
    #[inline(always)]
    fn planes<L: Lanes>(&self) -> [L::Bytes; BLOCK / 4] {
        nibble_planes::<L>(&self.planes)
    }
    #[inline(always)]
    fn dot<L: Lanes>(sum: L::Ints, plane: L::Bytes, word: i32) -> L::Ints {
        L::dot_small(sum, plane, word)
    }
    #[inline(always)]
    fn scale_and_min(&self) -> [&[u16; LANES]; 2] {
        [&self.scale, &self.min]
    }
    fn quant(&self, row: usize, column: usize) -> u8 {
        nibble(&self.planes, row, column)
    }
}

impl QuantTile for FiveTile {
    #[inline(always)]
    fn planes<L: Lanes>(&self) -> [L::Bytes; BLOCK / 4] {
        let [a, b, c, d, e, f, g, h] = nibble_planes::<L>(&self.planes);
        let fifth = L::load_bytes(&self.fifth);
        [
            L::set_fifth::<0>(a, fifth),
            L::set_fifth::<1>(b, fifth),
            L::set_fifth::<2>(c, fifth),
            L::set_fifth::<3>(d, fifth),
            L::set_fifth::<4>(e, fifth),
            L::set_fifth::<5>(f, fifth),
            L::set_fifth::<6>(g, fifth),
            L::set_fifth::<7>(h, fifth),
        ]
    }
    #[inline(always)]
    fn dot<L: Lanes>(sum: L::Ints, plane: L::Bytes, word: i32) -> L::Ints {
        L::dot_small(sum, plane, word)
    }
    #[inline(always)]
    fn scale_and_min(&self) -> [&[u16; LANES]; 2] {
        [&self.scale, &self.min]
    }
    fn quant(&self, row: usize, column: usize) -> u8 {
        let fifth = self.fifth[4 * row + column % 4] >> (column / 4) & 1;
        nibble(&self.planes, row, column) | fifth << 4
    }
}

impl QuantTile for ByteTile {
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

/// Four planes with two columns in a byte as eight with one.
#[inline(always)]
fn nibble_planes<L: Lanes>(planes: &[[u8; 4 * LANES]; 4]) -> [L::Bytes; BLOCK / 4] {
    let [a, b, c, d] = planes;
    let (a, b, c, d) = (L::load_bytes(a), L::load_bytes(b), L::load_bytes(c), L::load_bytes(d));
    let [low, high] = [L::low_nibbles, L::high_nibbles];
    [low(a), low(b), low(c), low(d), high(a), high(b), high(c), high(d)]
}

fn nibble(planes: &[[u8; 4 * LANES]; 4], row: usize, column: usize) -> u8 {
    let byte = planes[column % 16 / 4][4 * row + column % 4];
    if column < 16 { byte & 0x0f } else { byte >> 4 }
}

/// A float of some width.
pub(super) trait Element: Pod + Send + Sync {
    /// In single precision.
    fn widen<L: Lanes>(values: &[Self; LANES]) -> L::Floats;
    /// In single precision.
    fn to_f32(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn widen<L: Lanes>(values: &[Self; LANES]) -> L::Floats {
        L::load(values)
    }
    fn to_f32(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen<L: Lanes>(values: &[Self; LANES]) -> L::Floats {
        L::widen(&values.map(f16::to_bits))
    }
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
}

/// The upper half of a single precision float.
impl Element for bf16 {
    #[inline(always)]
    fn widen<L: Lanes>(values: &[Self; LANES]) -> L::Floats {
        L::load(&values.map(|value| f32::from_bits(u32::from(value.to_bits()) << 16)))
    }
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
}

impl<E: Element> Tile for FloatTile<E>
where
    Self: Pod,
{
    #[inline(always)]
    fn add_product<L: Lanes, const M: usize>(
        &self,
        x: &Activations,
        block: usize,
        row: usize,
        sums: &mut Accumulators<L, M>,
    ) {
        let x = x.floats::<M>(block, row);
        for (column, weights) in self.columns.iter().enumerate() {
            let weights = E::widen::<L>(weights);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = L::mul_add(weights, L::splat(x[column]), *sum);
            }
        }
    }

    fn weight(&self, row: usize, column: usize) -> f32 {
        self.columns[column][row].to_f32()
    }
}
