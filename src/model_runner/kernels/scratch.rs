//! Floats that a thread needs for a moment: their memory is kept, so that no layer takes any from the system.

use std::cell::Cell;

/// Calls `work` with `len` floats, of any value.
pub fn with_floats<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local!(static FLOATS: Cell<Vec<f32>> = const { Cell::new(Vec::new()) });
    let mut floats = FLOATS.take();
    if floats.len() < len {
        floats.resize(len, 0.0);
    }
    let result = work(&mut floats[..len]);
    FLOATS.set(floats);
    result
}
