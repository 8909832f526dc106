//! Floats that a thread needs for a moment: their memory is kept, so that no layer takes any from the system.

use std::cell::RefCell;

/// Calls `work` with `len` floats, of any value. It may call this too.
#[inline(always)]
pub fn with_floats<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local!(static KEPT: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) });
    let mut floats = KEPT.with_borrow_mut(Vec::pop).unwrap_or_default();
    if floats.len() < len {
        floats.resize(len, 0.0);
    }
    let result = work(&mut floats[..len]);
    KEPT.with_borrow_mut(|kept| kept.push(floats));
    result
}
