//! Memory on its way before it is needed.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "an intrinsic"))]

/// Bytes that the memory system moves at once.
pub const LINE: usize = 64;

/// Asks for `memory` to be brought near. The processor foresees neighbours by itself, but not across the borders of its
/// pages, and pages of a KV pool lie anywhere.
#[inline(always)]
pub fn prefetch<T>(memory: &[T]) {
    lines(memory.as_ptr().cast(), size_of_val(memory));
}

/// Asks for what lies `distance` places behind `item`, whatever that is: at the end of a row of items it is what begins
/// there, which is often what comes next.
#[inline(always)]
pub fn prefetch_ahead<T>(item: &T, distance: usize) {
    lines(std::ptr::from_ref(item).wrapping_add(distance).cast(), size_of::<T>());
}

#[inline(always)]
fn lines(from: *const i8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..len).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint; it reads nothing and takes any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, len);
}
