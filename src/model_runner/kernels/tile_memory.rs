//! Where tiles lie: as they were packed, or all of a model's in one piece.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "a function of the C library"))]

use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::Pod;
use memmap2::{Advice, MmapMut};

use super::PackedLinear;

/// Tiles that do not change any more.
#[derive(Debug)]
pub(super) enum TileMemory<T> {
    /// As they were packed.
    Own(Vec<T>),
    /// These bytes of memory that many matrices share.
    Part(Arc<MmapMut>, Range<usize>),
}

impl<T: Pod> Deref for TileMemory<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        match self {
            Self::Own(tiles) => tiles,
            Self::Part(memory, bytes) => bytemuck::cast_slice(&memory[bytes.clone()]),
        }
    }
}

impl<T> From<Vec<T>> for TileMemory<T> {
    fn from(tiles: Vec<T>) -> Self {
        Self::Own(tiles)
    }
}

impl<T: Pod> TileMemory<T> {
    /// Copies the tiles to `to` and frees the place where they were.
    pub(super) fn move_to(&mut self, to: &mut [u8]) {
        to.copy_from_slice(bytemuck::cast_slice(self));
        *self = Self::Own(Vec::new());
    }
}

/// Moves the tiles of all matrices, in this order, into one piece of memory, in huge pages where the system has them: a
/// step reads every weight once, and would miss the translation cache at each page of 4 KiB. Where the system has no such
/// piece to give they stay where they are.
pub fn gather(matrices: &mut [&mut PackedLinear]) {
    let total: usize = matrices.iter().map(|matrix| matrix.bytes()).sum();
    let Ok(mut memory) = MmapMut::map_anon(total.max(1)) else { return };
    // Only a hint: kernels without huge pages refuse it.
    let _ = memory.advise(Advice::HugePage);
    let mut end = 0;
    let mut parts = Vec::with_capacity(matrices.len());
    for matrix in matrices.iter_mut() {
        let start = end;
        end += matrix.bytes();
        matrix.move_to(&mut memory[start..end]);
        parts.push(start..end);
    }
    let memory = Arc::new(memory);
    for (matrix, part) in matrices.iter_mut().zip(parts) {
        matrix.share(&memory, part);
    }
    give_back_freed();
}

/// Gives what has been freed back to the system: the allocator keeps it, and a model is as large as all that comes after.
fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointers, and locks the allocator's memory while it looks through it.
    unsafe {
        libc::malloc_trim(0);
    }
}
