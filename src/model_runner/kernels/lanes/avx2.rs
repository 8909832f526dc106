//! Pairs of 256-bit registers: the integer products and half precision by hand, all else as the compiler sees fit.
//!
//! With and without AVX-VNNI, which has the integer product in one instruction.
#![expect(unsafe_code, reason = "vector intrinsics")]

use std::arch::x86_64::*;

use super::{LANES, Lanes, Portable};

/// Sixteen lanes as arrays that fill two registers.
#[derive(Debug, Clone, Copy)]
pub struct Registers256<const VNNI: bool>;

/// What every x86 machine of the last ten years has.
pub type Avx2 = Registers256<false>;

/// What the small cores of today have instead of AVX-512.
pub type AvxVnni = Registers256<true>;

type Floats = [f32; LANES];
type Ints = [__m256i; 2];

/// Runs register-only intrinsics.
macro_rules! registers {
    ($intrinsic:expr) => {
        // SAFETY: these operations run inside of `vectorise`, which has checked that the machine has avx2, fma and f16c,
        // and avxvnni where `VNNI` says so; that is all that the intrinsics require, and none of them touches memory.
        unsafe { $intrinsic }
    };
}

/// Pairs of products are summed as `i16` first: 2 * 127 * 128 fits, 2 * 255 * 128 would not.
#[inline(always)]
fn dot_pairs(bytes: __m256i, word: i32) -> __m256i {
    registers!(_mm256_madd_epi16(_mm256_maddubs_epi16(bytes, _mm256_set1_epi32(word)), _mm256_set1_epi16(1)))
}

#[inline(always)]
fn dot_vnni(sum: Ints, bytes: [__m256i; 2], word: i32) -> Ints {
    let word = registers!(_mm256_set1_epi32(word));
    [0, 1].map(|half| registers!(_mm256_dpbusd_avx_epi32(sum[half], bytes[half], word)))
}

#[inline(always)]
fn low(bytes: __m256i) -> __m256i {
    registers!(_mm256_and_si256(bytes, _mm256_set1_epi8(0x0f)))
}

#[inline(always)]
fn high(bytes: __m256i) -> __m256i {
    low(registers!(_mm256_srli_epi16::<4>(bytes)))
}

impl<const VNNI: bool> Lanes for Registers256<VNNI> {
    type Floats = Floats;
    type Ints = Ints;
    type Bytes = [__m256i; 2];

    #[inline]
    fn is_supported() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!VNNI || is_x86_feature_detected!("avxvnni"))
    }
    #[inline]
    fn vectorise<R>(work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn plain<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        #[target_feature(enable = "avx2,fma,f16c,avxvnni")]
        fn vnni<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        assert!(Self::is_supported(), "AVX2 kernels (with VNNI: {VNNI}) on a machine without");
        // SAFETY: the machine has the features.
        unsafe { if VNNI { vnni(work) } else { plain(work) } }
    }
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
            // SAFETY: `from` covers the 16 bytes that are read and `to` the 32 bytes that are written, unaligned; f16c
            // as above.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))) };
        }
        floats
    }
    #[inline(always)]
    fn narrow(values: Floats) -> [u16; LANES] {
        let mut halves = [0; LANES];
        for (to, from) in halves.as_chunks_mut::<8>().0.iter_mut().zip(values.as_chunks::<8>().0) {
            // SAFETY: `from` covers the 32 bytes that are read and `to` the 16 bytes that are written, unaligned; f16c as
            // above.
            unsafe {
                let register = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
                _mm_storeu_si128(to.as_mut_ptr().cast(), register);
            }
        }
        halves
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
    fn set_fifth<const BIT: u32>(nibbles: [__m256i; 2], fifth: [__m256i; 2]) -> [__m256i; 2] {
        // Shifts cross the border between two bytes; what comes across is cut off.
        let shift = |half| {
            if BIT < 4 {
                registers!(_mm256_sll_epi16(half, _mm_cvtsi32_si128(4 - BIT.cast_signed())))
            } else {
                registers!(_mm256_srl_epi16(half, _mm_cvtsi32_si128(BIT.cast_signed() - 4)))
            }
        };
        [0, 1].map(|half| {
            let bit = registers!(_mm256_and_si256(shift(fifth[half]), _mm256_set1_epi8(0x10)));
            registers!(_mm256_or_si256(nibbles[half], bit))
        })
    }
    #[inline(always)]
    fn dot_small(sum: Ints, bytes: [__m256i; 2], word: i32) -> Ints {
        if VNNI {
            return dot_vnni(sum, bytes, word);
        }
        Self::add_ints(sum, bytes.map(|half| dot_pairs(half, word)))
    }
    #[inline(always)]
    fn dot_bytes(sum: Ints, bytes: [__m256i; 2], word: i32) -> Ints {
        if VNNI {
            return dot_vnni(sum, bytes, word);
        }
        let sixteens = bytes.map(|half| registers!(_mm256_slli_epi32::<4>(dot_pairs(high(half), word))));
        Self::add_ints(Self::dot_small(sum, Self::low_nibbles(bytes), word), sixteens)
    }
    #[inline(always)]
    fn load_ints(values: &[i32; LANES]) -> Ints {
        // SAFETY: the reference covers the two times 32 bytes that are read; no alignment is required.
        unsafe { [_mm256_loadu_si256(values.as_ptr().cast()), _mm256_loadu_si256(values[8..].as_ptr().cast())] }
    }
    #[inline(always)]
    fn store_bytes(bytes: [__m256i; 2], to: &mut [u8; 4 * LANES]) {
        for (to, from) in to.as_chunks_mut::<32>().0.iter_mut().zip(bytes) {
            // SAFETY: `to` covers the 32 bytes that are written; no alignment is required.
            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), from) };
        }
    }
}
