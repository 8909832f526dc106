//! Pairs of 256-bit registers: the integer products and half precision by hand, all else as the compiler sees fit.
#![expect(unsafe_code, reason = "vector intrinsics")]

use std::arch::x86_64::*;

use super::{LANES, Lanes, Portable};

/// Sixteen lanes as arrays that fill two registers.
#[derive(Debug, Clone, Copy)]
pub struct Avx2;

type Floats = [f32; LANES];
type Ints = [__m256i; 2];

/// Runs register-only intrinsics.
macro_rules! registers {
    ($intrinsic:expr) => {
        // SAFETY: this module is compiled only if the target has avx2, fma and f16c, which is all that these
        // intrinsics require; none of them touches memory.
        unsafe { $intrinsic }
    };
}

/// Pairs of products are summed as `i16` first: 2 * 15 * 128 fits, 2 * 255 * 128 would not.
#[inline(always)]
fn dot_small(bytes: __m256i, word: i32) -> __m256i {
    registers!(_mm256_madd_epi16(_mm256_maddubs_epi16(bytes, _mm256_set1_epi32(word)), _mm256_set1_epi16(1)))
}

#[inline(always)]
fn low(bytes: __m256i) -> __m256i {
    registers!(_mm256_and_si256(bytes, _mm256_set1_epi8(0x0f)))
}

#[inline(always)]
fn high(bytes: __m256i) -> __m256i {
    low(registers!(_mm256_srli_epi16::<4>(bytes)))
}

impl Lanes for Avx2 {
    type Floats = Floats;
    type Ints = Ints;
    type Bytes = [__m256i; 2];

    #[inline(always)]
    fn splat(value: f32) -> Floats {
        Portable::splat(value)
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
        let mut floats = [0.0; LANES];
        for (to, from) in floats.as_chunks_mut::<8>().0.iter_mut().zip(halves.as_chunks::<8>().0) {
            // SAFETY: `from` covers the 16 bytes that are read and `to` the 32 bytes that are written, unaligned; the
            // target has f16c.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        floats
    }
    #[inline(always)]
    fn narrow(values: Floats) -> [u16; LANES] {
        Portable::narrow(values)
    }
    #[inline(always)]
    fn add(a: Floats, b: Floats) -> Floats {
        Portable::add(a, b)
    }
    #[inline(always)]
    fn sub(a: Floats, b: Floats) -> Floats {
        Portable::sub(a, b)
    }
    #[inline(always)]
    fn mul(a: Floats, b: Floats) -> Floats {
        Portable::mul(a, b)
    }
    #[inline(always)]
    fn div(a: Floats, b: Floats) -> Floats {
        Portable::div(a, b)
    }
    #[inline(always)]
    fn mul_add(a: Floats, b: Floats, c: Floats) -> Floats {
        Portable::mul_add(a, b, c)
    }
    #[inline(always)]
    fn max(a: Floats, b: Floats) -> Floats {
        Portable::max(a, b)
    }
    #[inline(always)]
    fn abs(a: Floats) -> Floats {
        Portable::abs(a)
    }
    #[inline(always)]
    fn round(a: Floats) -> Floats {
        Portable::round(a)
    }
    #[inline(always)]
    fn exp2(n: Floats) -> Floats {
        Portable::exp2(n)
    }
    #[inline(always)]
    fn keep_first(a: Floats, count: usize, fill: Floats) -> Floats {
        Portable::keep_first(a, count, fill)
    }
    #[inline(always)]
    fn round_to_i8(values: Floats) -> [i8; LANES] {
        Portable::round_to_i8(values)
    }
    #[inline(always)]
    fn no_ints() -> Ints {
        [registers!(_mm256_setzero_si256()); 2]
    }
    #[inline(always)]
    fn add_ints(a: Ints, b: Ints) -> Ints {
        [registers!(_mm256_add_epi32(a[0], b[0])), registers!(_mm256_add_epi32(a[1], b[1]))]
    }
    #[inline(always)]
    fn to_floats(a: Ints) -> Floats {
        let mut floats = [0.0; LANES];
        for (to, from) in floats.as_chunks_mut::<8>().0.iter_mut().zip(a) {
            // SAFETY: `to` covers the 32 bytes that are written; no alignment is required.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtepi32_ps(from)) };
        }
        floats
    }
    #[inline(always)]
    fn load_bytes(bytes: &[u8; 4 * LANES]) -> [__m256i; 2] {
        // SAFETY: the reference covers the two times 32 bytes that are read; no alignment is required.
        unsafe { [_mm256_loadu_si256(bytes.as_ptr().cast()), _mm256_loadu_si256(bytes[32..].as_ptr().cast())] }
    }
    #[inline(always)]
    fn low_nibbles(bytes: [__m256i; 2]) -> [__m256i; 2] {
        bytes.map(low)
    }
    #[inline(always)]
    fn high_nibbles(bytes: [__m256i; 2]) -> [__m256i; 2] {
        bytes.map(high)
    }
    #[inline(always)]
    fn dot_nibbles(sum: Ints, bytes: [__m256i; 2], word: i32) -> Ints {
        Self::add_ints(sum, bytes.map(|half| dot_small(half, word)))
    }
    #[inline(always)]
    fn dot_bytes(sum: Ints, bytes: [__m256i; 2], word: i32) -> Ints {
        let sixteens = bytes.map(|half| registers!(_mm256_slli_epi32::<4>(dot_small(high(half), word))));
        Self::add_ints(Self::dot_nibbles(sum, Self::low_nibbles(bytes), word), sixteens)
    }
}
