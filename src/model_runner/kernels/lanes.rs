//! Sixteen numbers at a time: the one interface between the kernels and the instruction set.

pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
#[cfg(target_arch = "x86_64")]
mod amx;

pub use portable::Portable;

use super::activations::QuantBlock;
use super::{BLOCK, LANES};

/// Sixty-four `u8` for each four of 32 columns, from the first on: four neighbours of each of sixteen rows of weights.
pub type Planes = [[u8; 4 * LANES]; BLOCK / 4];

/// A backend. All backends give bitwise the same results.
///
/// Code that names these operations is generic, marked `#[inline(always)]` down to the last helper, and runs inside of
/// [`vectorise`](Self::vectorise): only there is it compiled for the instructions that the backend stands for.
pub trait Lanes: Copy + Send + Sync + 'static {
    /// Sixteen `f32`.
    type Floats: Copy;
    /// Sixteen `i32`.
    type Ints: Copy;
    /// Sixty-four `u8`: four neighbours for each lane.
    type Bytes: Copy;

    /// This machine has the instructions.
    fn is_supported() -> bool;
    /// Runs `work`, compiled for the instructions of this backend; panics on a machine that lacks them.
    ///
    /// `work` is to be an `#[inline(always)]` closure.
    fn vectorise<R>(work: impl FnOnce() -> R) -> R;

    /// The same number in every lane.
    fn splat(value: f32) -> Self::Floats;
    /// From memory.
    fn load(values: &[f32; LANES]) -> Self::Floats;
    /// To memory.
    fn store(values: Self::Floats, to: &mut [f32; LANES]);
    /// Half precision to single.
    fn widen(halves: &[u16; LANES]) -> Self::Floats;
    /// Single precision to half, nearest, ties to even.
    fn narrow(values: Self::Floats) -> [u16; LANES];
    /// `a + b`.
    fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a - b`.
    fn sub(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`.
    fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a / b`.
    fn div(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The larger of each pair; `b` where one of them is not a number.
    fn max(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Without sign.
    fn abs(a: Self::Floats) -> Self::Floats;
    /// Nearest integer, ties to even, as a float.
    fn round(a: Self::Floats) -> Self::Floats;
    /// `2^n` for integral `n` in `-126..=127`.
    fn exp2(n: Self::Floats) -> Self::Floats;
    /// Lanes below `count` from `a`, the others from `fill`.
    fn keep_first(a: Self::Floats, count: usize, fill: Self::Floats) -> Self::Floats;

    /// Nearest integers, ties to even; `values` lie in `-128..=127`.
    fn round_to_i8(values: Self::Floats) -> [i8; LANES];
    /// Zero in every lane.
    fn no_ints() -> Self::Ints;
    /// Lane by lane sum.
    fn add_ints(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// As floats.
    fn to_floats(a: Self::Ints) -> Self::Floats;

    /// From memory.
    fn load_bytes(bytes: &[u8; 4 * LANES]) -> Self::Bytes;
    /// The low four bits of each byte.
    fn low_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// The high four bits of each byte.
    fn high_nibbles(bytes: Self::Bytes) -> Self::Bytes;
    /// Bit `BIT` of each byte of `fifth` as bit 4 of the bytes of `nibbles`, which have none there.
    fn set_fifth<const BIT: u32>(nibbles: Self::Bytes, fifth: Self::Bytes) -> Self::Bytes;
    /// Adds to each lane the dot product of its four bytes, each below 128, and the four signed bytes of `word`.
    fn dot_small(sum: Self::Ints, bytes: Self::Bytes, word: i32) -> Self::Ints;
    /// Adds to each lane the dot product of its four bytes, of any value, and the four signed bytes of `word`.
    fn dot_bytes(sum: Self::Ints, bytes: Self::Bytes, word: i32) -> Self::Ints;
    /// From memory.
    fn load_ints(values: &[i32; LANES]) -> Self::Ints;
    /// To memory.
    fn store_bytes(bytes: Self::Bytes, to: &mut [u8; 4 * LANES]);

    /// The machine has a unit that multiplies matrices of bytes: [`dot_block`](Self::dot_block) is faster than
    /// [`dot_bytes`](Self::dot_bytes).
    const HAS_MATRIX_UNIT: bool = false;

    /// Makes the unit ready for [`dot_block`](Self::dot_block), on this thread and for good.
    #[inline(always)]
    fn prepare_matrix_unit() {}

    /// Dot products of 32 columns: of sixteen rows of activations, each with those of sixteen rows of weights.
    #[inline(always)]
    fn dot_block(rows: &[QuantBlock; LANES], planes: &Planes, dots: &mut [[i32; LANES]; LANES]) {
        dot_block_by_definition(rows, planes, dots);
    }

    /// The sum of the lanes: halves are added to each other until one number is left.
    #[inline(always)]
    fn sum(a: Self::Floats) -> f32 {
        fold::<Self>(a, |a, b| a + b)
    }

    /// The largest lane.
    #[inline(always)]
    fn largest(a: Self::Floats) -> f32 {
        fold::<Self>(a, |a, b| if a > b { a } else { b })
    }
}

/// [`Lanes::dot_block`] without a unit.
fn dot_block_by_definition(rows: &[QuantBlock; LANES], planes: &Planes, dots: &mut [[i32; LANES]; LANES]) {
    for (row, dots) in rows.iter().zip(dots) {
        *dots = [0; LANES];
        for (word, plane) in row.words.iter().zip(planes) {
            let word = word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
            for (dot, bytes) in dots.iter_mut().zip(plane.as_chunks::<4>().0) {
                *dot += bytes.iter().zip(word).map(|(byte, word)| i32::from(*byte) * word).sum::<i32>();
            }
        }
    }
}

#[inline(always)]
fn fold<L: Lanes>(a: L::Floats, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    L::store(a, &mut lanes);
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Calls a generic test with every backend that this machine has.
#[cfg(test)]
macro_rules! with_every_backend {
    ($test:ident) => {
        $test::<$crate::model_runner::kernels::Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            use $crate::model_runner::kernels::lanes::{Lanes, avx2, avx512};
            if avx2::Avx2::is_supported() {
                $test::<avx2::Avx2>();
            }
            if avx2::AvxVnni::is_supported() {
                $test::<avx2::AvxVnni>();
            }
            if avx512::Avx512::is_supported() {
                $test::<avx512::Avx512>();
            }
            if avx512::Amx::is_supported() {
                $test::<avx512::Amx>();
            }
        }
    };
}
#[cfg(test)]
pub(crate) use with_every_backend;

#[cfg(test)]
mod tests;
