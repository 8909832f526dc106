//! Memory on its way before it is needed.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "an intrinsic"))]

/// Bytes that the memory system moves at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for `memory` to be brought near. The processor foresees neighbours by itself, but not across the borders of its
/// pages, and pages of a KV pool lie anywhere.
#[inline(always)]
pub fn prefetch<T>(memory: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of_val(memory)).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint; it reads nothing, and the address lies inside of `memory`.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(memory.as_ptr().cast::<i8>().add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = memory;
}
