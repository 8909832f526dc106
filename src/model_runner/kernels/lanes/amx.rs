//! AMX: a matrix of sixteen rows by 32 signed bytes times one of 32 unsigned bytes by sixteen columns, in one instruction.
//!
//! The tile registers are named in assembly, since the language has no stable intrinsics for them. What they do is in
//! Intel's Architecture Instruction Set Extensions Programming Reference, chapter 3.
#![expect(unsafe_code, reason = "instructions and system calls without a safe form")]

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::super::activations::QuantBlock;
use super::super::{BLOCK, LANES};
use super::Planes;

/// Leaf 7 of `cpuid`, in `edx`.
const AMX_TILE: u32 = 1 << 24;
const AMX_INT8: u32 = 1 << 25;

/// Shapes of the tile registers, as `ldtilecfg` reads them.
#[derive(PartialEq)]
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    /// Bytes of a row.
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Register 0: dot products. 1: activations. 2: weights.
static CONFIG: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    (rows[0], row_bytes[0]) = (LANES as u8, 4 * LANES as u16);
    (rows[1], row_bytes[1]) = (LANES as u8, BLOCK as u16);
    (rows[2], row_bytes[2]) = (BLOCK as u8 / 4, 4 * LANES as u16);
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// The machine has AMX for bytes, and the system lets this process use it.
pub(super) fn is_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        let [basic, features] = [__cpuid_count(0, 0), __cpuid_count(7, 0)];
        basic.eax >= 7 && features.edx & AMX_TILE != 0 && features.edx & AMX_INT8 != 0 && ask_for_tiles()
    })
}

/// Asks the system for room for the tiles in the state of this process's threads.
#[cfg(target_os = "linux")]
fn ask_for_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask_for_tiles() -> bool {
    false
}

/// Gives the tile registers their shapes, unless they have them: that takes ten times as long as to ask. Others on this
/// thread, such as candle, may have given them shapes of their own.
#[inline(always)]
pub(super) fn prepare() {
    let mut now = MaybeUninit::<Config>::uninit();
    // SAFETY: as much as a `Config` is written, whose fields take any bits, and AMX is there: this is called inside of
    // `vectorise`.
    let now = unsafe {
        asm!("sttilecfg [{}]", in(reg) now.as_mut_ptr(), options(nostack, preserves_flags));
        now.assume_init()
    };
    if now != CONFIG {
        // SAFETY: as above, of what is read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, preserves_flags, readonly)) };
    }
}

/// As [`Lanes::dot_block`](super::Lanes::dot_block), after [`prepare`].
#[inline(always)]
pub(super) fn dot_block(rows: &[QuantBlock; LANES], planes: &Planes, dots: &mut [[i32; LANES]; LANES]) {
    // SAFETY: sixteen times 32 bytes are read at the distance of two blocks, eight times 64 bytes one after the other, and
    // sixteen times 64 bytes are written: what the references cover. The registers have these shapes since `prepare`.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tileloadd tmm1, [{rows} + {row} * 1]",
            "tileloadd tmm2, [{planes} + {line} * 1]",
            "tdpbsud tmm0, tmm1, tmm2",
            "tilestored [{dots} + {line} * 1], tmm0",
            rows = in(reg) rows.as_ptr(),
            row = in(reg) size_of::<QuantBlock>(),
            planes = in(reg) planes.as_ptr(),
            dots = in(reg) dots.as_mut_ptr(),
            line = in(reg) 4 * LANES,
            out("tmm0") _, out("tmm1") _, out("tmm2") _,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a library does that multiplies with tiles of its own.
    #[test]
    fn shapes_of_others_are_replaced() {
        if !is_supported() {
            return;
        }
        let foreign = Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let foreign = Config { row_bytes: CONFIG.row_bytes.map(|bytes| bytes / 2), rows: CONFIG.rows, ..foreign };
        // SAFETY: the machine has AMX, and as much as a `Config` is read.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const foreign, options(nostack, preserves_flags, readonly)) };
        prepare();
        let row = QuantBlock { words: [0x0101_0101; 8], ..QuantBlock::default() };
        let mut dots = [[0; LANES]; LANES];
        dot_block(&[row; LANES], &[[1; 4 * LANES]; 8], &mut dots);
        assert_eq!(dots, [[32; LANES]; LANES]);
    }
}
