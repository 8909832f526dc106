//! One 512-bit register: AVX-512 with VNNI, with and without the matrix unit AMX.
#![expect(unsafe_code, reason = "vector intrinsics")]

use std::arch::x86_64::*;

use super::super::activations::QuantBlock;
use super::{LANES, Lanes, Planes, amx, dot_block_by_definition};

/// Sixteen lanes as one register.
#[derive(Debug, Clone, Copy)]
pub struct Registers512<const AMX: bool>;

/// Servers of the last years.
pub type Avx512 = Registers512<false>;

/// Xeons since the fourth generation (Sapphire Rapids).
pub type Amx = Registers512<true>;

/// Runs register-only intrinsics.
macro_rules! registers {
    ($intrinsic:expr) => {
        // SAFETY: these operations run inside of `vectorise`, which has checked that the machine has avx512f, bw, vl and
        // vnni; that is all that the intrinsics require, and none of them touches memory.
        unsafe { $intrinsic }
    };
}

impl<const AMX: bool> Lanes for Registers512<AMX> {
    type Floats = __m512;
    type Ints = __m512i;
    type Bytes = __m512i;

    #[inline]
    fn is_supported() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && (!AMX || amx::is_supported())
    }
    #[inline]
    fn vectorise<R>(work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
        fn compiled<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        assert!(Self::is_supported(), "AVX-512 kernels (with AMX: {AMX}) on a machine without");
        // SAFETY: the machine has the features.
        unsafe { compiled(work) }
    }
    #[inline(always)]
    fn splat(value: f32) -> __m512 {
        registers!(_mm512_set1_ps(value))
    }
    #[inline(always)]
    fn load(values: &[f32; LANES]) -> __m512 {
        // SAFETY: the reference covers the 64 bytes that are read; no alignment is required.
        unsafe { _mm512_loadu_ps(values.as_ptr()) }
    }
    #[inline(always)]
    fn store(values: __m512, to: &mut [f32; LANES]) {
        // SAFETY: the reference covers the 64 bytes that are written; no alignment is required.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), values) }
    }
    #[inline(always)]
    fn widen(halves: &[u16; LANES]) -> __m512 {
        // SAFETY: the reference covers the 32 bytes that are read; no alignment is required.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast())) }
    }
    #[inline(always)]
    fn narrow(values: __m512) -> [u16; LANES] {
        let mut halves = [0; LANES];
        // SAFETY: `halves` covers the 32 bytes that are written; no alignment is required.
        unsafe {
            let register = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
            _mm256_storeu_si256(halves.as_mut_ptr().cast(), register);
        }
        halves
    }
    #[inline(always)]
    fn add(a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        registers!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(a: __m512, b: __m512) -> __m512 {
        registers!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn abs(a: __m512) -> __m512 {
        registers!(_mm512_abs_ps(a))
    }
    #[inline(always)]
    fn round(a: __m512) -> __m512 {
        registers!(_mm512_roundscale_ps::<_MM_FROUND_TO_NEAREST_INT>(a))
    }
    #[inline(always)]
    fn exp2(n: __m512) -> __m512 {
        registers!(_mm512_scalef_ps(_mm512_set1_ps(1.0), n))
    }
    #[inline(always)]
    fn keep_first(a: __m512, count: usize, fill: __m512) -> __m512 {
        let mask = if count < LANES { (1u16 << count) - 1 } else { u16::MAX };
        registers!(_mm512_mask_mov_ps(fill, mask, a))
    }
    #[inline(always)]
    fn round_to_i8(values: __m512) -> [i8; LANES] {
        let mut bytes = [0; LANES];
        // SAFETY: `bytes` covers the 16 bytes that are written; no alignment is required.
        unsafe {
            let register = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(values));
            _mm_storeu_si128(bytes.as_mut_ptr().cast(), register);
        }
        bytes
    }
    #[inline(always)]
    fn no_ints() -> __m512i {
        registers!(_mm512_setzero_si512())
    }
    #[inline(always)]
    fn add_ints(a: __m512i, b: __m512i) -> __m512i {
        registers!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn to_floats(a: __m512i) -> __m512 {
        registers!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn load_bytes(bytes: &[u8; 4 * LANES]) -> __m512i {
        // SAFETY: the reference covers the 64 bytes that are read; no alignment is required.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }
    #[inline(always)]
    fn low_nibbles(bytes: __m512i) -> __m512i {
        registers!(_mm512_and_si512(bytes, _mm512_set1_epi8(0x0f)))
    }
    #[inline(always)]
    fn high_nibbles(bytes: __m512i) -> __m512i {
        registers!(_mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(0x0f)))
    }
    #[inline(always)]
    fn set_fifth<const BIT: u32>(nibbles: __m512i, fifth: __m512i) -> __m512i {
        // Shifts cross the border between two bytes; what comes across is cut off.
        let shifted = if BIT < 4 {
            registers!(_mm512_sll_epi16(fifth, _mm_cvtsi32_si128(4 - BIT.cast_signed())))
        } else {
            registers!(_mm512_srl_epi16(fifth, _mm_cvtsi32_si128(BIT.cast_signed() - 4)))
        };
        let bit = registers!(_mm512_and_si512(shifted, _mm512_set1_epi8(0x10)));
        registers!(_mm512_or_si512(nibbles, bit))
    }
    #[inline(always)]
    fn dot_small(sum: __m512i, bytes: __m512i, word: i32) -> __m512i {
        Self::dot_bytes(sum, bytes, word)
    }
    #[inline(always)]
    fn dot_bytes(sum: __m512i, bytes: __m512i, word: i32) -> __m512i {
        registers!(_mm512_dpbusd_epi32(sum, bytes, _mm512_set1_epi32(word)))
    }
    #[inline(always)]
    fn load_ints(values: &[i32; LANES]) -> __m512i {
        // SAFETY: the reference covers the 64 bytes that are read; no alignment is required.
        unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store_bytes(bytes: __m512i, to: &mut [u8; 4 * LANES]) {
        // SAFETY: the reference covers the 64 bytes that are written; no alignment is required.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes) }
    }

    const HAS_MATRIX_UNIT: bool = AMX;

    #[inline(always)]
    fn prepare_matrix_unit() {
        if AMX {
            amx::prepare();
        }
    }
    #[inline(always)]
    fn dot_block(rows: &[QuantBlock; LANES], planes: &Planes, dots: &mut [[i32; LANES]; LANES]) {
        if AMX {
            amx::dot_block(rows, planes, dots);
        } else {
            dot_block_by_definition(rows, planes, dots);
        }
    }
}
