//! The product of weights of few bits with sixteen rows at a time, for machines with a unit that multiplies matrices.
//!
//! The unit does the whole numbers of one block, 16 columns of 16 rows; scales and minima are then the same floats in the
//! same order as elsewhere, so that a row's result does not depend on how many came with it.

use std::cell::Cell;

use super::lanes::Planes;
use super::prefetch::prefetch_ahead;
use super::tiles::{QuantTile, TILES_AHEAD, add_scaled};
use super::{Activations, LANES, Lanes};

/// What the unit writes: dot products of sixteen rows, row after row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Dots([[i32; LANES]; LANES]);

/// A block's weights, a byte each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Unpacked(Planes);

impl Unpacked {
    const NOTHING: Self = Self([[0; 4 * LANES]; 8]);
}

/// Adds sixteen columns of the product to as many rows from `first` on as come in sixteens; returns how many.
#[inline(never)]
pub(super) fn add_sixteens<L: Lanes, T: QuantTile>(
    tiles: &[T],
    x: &Activations,
    first: usize,
    out: &mut [[f32; LANES]],
) -> usize {
    let sixteens = out.as_chunks_mut().0;
    if !sixteens.is_empty() {
        with_unpacked(tiles.len(), |unpacked| {
            L::vectorise(
                #[inline(always)]
                || {
                    L::prepare_matrix_unit();
                    unpack::<L, T>(tiles, first == 0, unpacked);
                    for (sixteen, out) in sixteens.iter_mut().enumerate() {
                        add_sixteen::<L, T>(tiles, unpacked, x, first + sixteen * LANES, out);
                    }
                },
            );
        });
    }
    sixteens.len() * LANES
}

/// `ahead`: the tiles are met for the first time, and asked for before.
#[inline(always)]
fn unpack<L: Lanes, T: QuantTile>(tiles: &[T], ahead: bool, unpacked: &mut [Unpacked]) {
    for (tile, Unpacked(planes)) in tiles.iter().zip(unpacked) {
        if ahead {
            prefetch_ahead(tile, TILES_AHEAD);
        }
        for (plane, to) in tile.planes::<L>().into_iter().zip(planes) {
            L::store_bytes(plane, to);
        }
    }
}

/// The unit works on a block while the floats of the one before are added.
#[inline(always)]
fn add_sixteen<L: Lanes, T: QuantTile>(
    tiles: &[T],
    unpacked: &[Unpacked],
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]; LANES],
) {
    let mut dots = [Dots([[0; LANES]; LANES]); 2];
    let mut sums = [L::splat(0.0); LANES];
    if let Some(Unpacked(planes)) = unpacked.first() {
        L::dot_block(x.quants(0, row), planes, &mut dots[0].0);
    }
    for (block, tile) in tiles.iter().enumerate() {
        if let Some(Unpacked(planes)) = unpacked.get(block + 1) {
            L::dot_block(x.quants(block + 1, row), planes, &mut dots[(block + 1) % 2].0);
        }
        let [scale, min] = tile.scale_and_min().map(L::widen);
        let Dots(dots) = &dots[block % 2];
        for ((sum, x), dots) in sums.iter_mut().zip(x.quants::<LANES>(block, row)).zip(dots) {
            *sum = add_scaled::<L>(*sum, L::load_ints(dots), x, scale, min);
        }
    }
    for (sum, out) in sums.iter().zip(out) {
        L::store(L::add(L::load(out), *sum), out);
    }
}

/// Calls `work` with room for so many blocks, of any value, which the thread keeps.
fn with_unpacked(blocks: usize, work: impl FnOnce(&mut [Unpacked])) {
    thread_local!(static UNPACKED: Cell<Vec<Unpacked>> = const { Cell::new(Vec::new()) });
    let mut unpacked = UNPACKED.take();
    if unpacked.len() < blocks {
        unpacked.resize(blocks, Unpacked::NOTHING);
    }
    work(&mut unpacked[..blocks]);
    UNPACKED.set(unpacked);
}
