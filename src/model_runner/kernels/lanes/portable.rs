//! Plain arrays: runs anywhere, and is what the other backends are tested against.

use std::array::from_fn;

use half::f16;

use super::{LANES, Lanes};

/// Sixteen lanes as an array.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

type Floats = [f32; LANES];

#[inline(always)]
fn zip(a: Floats, b: Floats, op: impl Fn(f32, f32) -> f32) -> Floats {
    from_fn(|lane| op(a[lane], b[lane]))
}

impl Lanes for Portable {
    type Floats = Floats;
    type Ints = [i32; LANES];
    type Bytes = [u8; 4 * LANES];

    fn is_supported() -> bool {
        true
    }
    #[inline(always)]
    fn vectorise<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
    #[inline(always)]
    fn splat(value: f32) -> Floats {
        [value; LANES]
    }
    #[inline(always)]
    fn load(values: &[f32; LANES]) -> Floats {
        *values
    }
    #[inline(always)]
    fn store(values: Floats, to: &mut [f32; LANES]) {
        *to = values;
    }
    #[inline(always)]
    fn widen(halves: &[u16; LANES]) -> Floats {
        halves.map(|bits| f16::from_bits(bits).to_f32())
    }
    #[inline(always)]
    fn narrow(values: Floats) -> [u16; LANES] {
        values.map(|value| f16::from_f32(value).to_bits())
    }
    #[inline(always)]
    fn add(a: Floats, b: Floats) -> Floats {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(a: Floats, b: Floats) -> Floats {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(a: Floats, b: Floats) -> Floats {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(a: Floats, b: Floats) -> Floats {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats {
        from_fn(|lane| a[lane].mul_add(b[lane], c[lane]))
    }
    #[inline(always)]
    fn max(a: Floats, b: Floats) -> Floats {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn abs(a: Floats) -> Floats {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn round(a: Floats) -> Floats {
        a.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn exp2(n: Floats) -> Floats {
        n.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    fn keep_first(a: Floats, count: usize, fill: Floats) -> Floats {
        from_fn(|lane| if lane < count { a[lane] } else { fill[lane] })
    }
    #[inline(always)]
    fn round_to_i8(values: Floats) -> [i8; LANES] {
        values.map(|value| value.round_ties_even() as i8)
    }
    #[inline(always)]
    fn no_ints() -> [i32; LANES] {
        [0; LANES]
    }
    #[inline(always)]
    fn add_ints(a: [i32; LANES], b: [i32; LANES]) -> [i32; LANES] {
        from_fn(|lane| a[lane] + b[lane])
    }
    #[inline(always)]
    fn to_floats(a: [i32; LANES]) -> Floats {
        a.map(|value| value as f32)
    }
    #[inline(always)]
    fn load_bytes(bytes: &[u8; 4 * LANES]) -> [u8; 4 * LANES] {
        *bytes
    }
    #[inline(always)]
    fn low_nibbles(bytes: [u8; 4 * LANES]) -> [u8; 4 * LANES] {
        bytes.map(|byte| byte & 0x0f)
    }
    #[inline(always)]
    fn high_nibbles(bytes: [u8; 4 * LANES]) -> [u8; 4 * LANES] {
        bytes.map(|byte| byte >> 4)
    }
    #[inline(always)]
    fn set_fifth<const BIT: u32>(nibbles: [u8; 4 * LANES], fifth: [u8; 4 * LANES]) -> [u8; 4 * LANES] {
        from_fn(|byte| nibbles[byte] | (fifth[byte] >> BIT & 1) << 4)
    }
    #[inline(always)]
    fn dot_small(sum: [i32; LANES], bytes: [u8; 4 * LANES], word: i32) -> [i32; LANES] {
        Self::dot_bytes(sum, bytes, word)
    }
    #[inline(always)]
    fn dot_bytes(sum: [i32; LANES], bytes: [u8; 4 * LANES], word: i32) -> [i32; LANES] {
        let word = word.to_le_bytes().map(|byte| i32::from(byte.cast_signed()));
        from_fn(|lane| {
            let products = (0..4).map(|byte| i32::from(bytes[4 * lane + byte]) * word[byte]);
            sum[lane] + products.sum::<i32>()
        })
    }
    #[inline(always)]
    fn load_ints(values: &[i32; LANES]) -> [i32; LANES] {
        *values
    }
    #[inline(always)]
    fn store_bytes(bytes: [u8; 4 * LANES], to: &mut [u8; 4 * LANES]) {
        *to = bytes;
    }
}
