//! Weight matrices in tiles of 16 rows by 32 columns, and their product with activations.

use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};
use memmap2::MmapMut;

use super::activations::{CHUNK_ROWS, Form, Shape};
use super::elementwise::silu_gate;
use super::panels::{Panel, panels};
use super::peaks::{PEAK_COLUMNS, peaks as peaks_of};
use super::prefetch::prefetch_ahead;
use super::scratch::with_floats;
use super::tile_memory::TileMemory;
use super::tiles::{Accumulators, ByteTile, FiveTile, FloatTile, NibbleTile, TILES_AHEAD, Tile};
use super::{Activations, BLOCK, Columns, LANES, Lanes, Team};

/// A weight matrix `W` of `outputs` rows and `inputs` columns: `y = W x`.
///
/// Made by [`pack`](Self::pack). A weight of few bits is `scale * q + min`, scale and min of 32 neighbours in a row being
/// shared and of half precision.
#[derive(Debug)]
pub struct PackedLinear {
    /// Columns of `W`, a multiple of 32.
    pub(super) inputs: usize,
    /// Rows of `W`; the last tile is filled up with zeros.
    pub(super) outputs: usize,
    pub(super) tiles: Tiles,
}

/// All tiles of a matrix: for each 16 rows, block after block.
#[derive(Debug)]
pub(super) enum Tiles {
    Nibbles(TileMemory<NibbleTile>),
    Fives(TileMemory<FiveTile>),
    Bytes(TileMemory<ByteTile>),
    F16(TileMemory<FloatTile<f16>>),
    BF16(TileMemory<FloatTile<bf16>>),
    F32(TileMemory<FloatTile<f32>>),
}

/// Rows that are worked out together, while a piece of the weights is in registers.
const REGISTER_ROWS: usize = 8;

/// So few rows are done with a tile so fast that the processor's own look-ahead gets it sooner than it could be asked for.
const FEW_ROWS: usize = 4;

/// Stripes that stay in the cache while all rows meet them, if the result goes to rows: each row is written in pieces of
/// some length then. Whole groups of [`PEAK_COLUMNS`].
const STRIPES_IN_CACHE: usize = 16;
const _: () = assert!((STRIPES_IN_CACHE * LANES).is_multiple_of(PEAK_COLUMNS), "a peak belongs to one part");

/// Does the same with the tiles of whatever format.
macro_rules! with_tiles {
    ($all:expr, $tiles:ident => $do:expr) => {
        match $all {
            Tiles::Nibbles($tiles) => $do,
            Tiles::Fives($tiles) => $do,
            Tiles::Bytes($tiles) => $do,
            Tiles::F16($tiles) => $do,
            Tiles::BF16($tiles) => $do,
            Tiles::F32($tiles) => $do,
        }
    };
}

impl PackedLinear {
    /// Columns of `W`.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows of `W`.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        with_tiles!(&self.tiles, tiles => size_of_val(&tiles[..]))
    }

    /// How its input is to be held.
    #[must_use]
    pub fn form(&self) -> Form {
        match &self.tiles {
            Tiles::Nibbles(_) | Tiles::Fives(_) | Tiles::Bytes(_) => Form::Int8,
            Tiles::F16(_) | Tiles::BF16(_) | Tiles::F32(_) => Form::Float,
        }
    }

    /// Size and form of its input for so many tokens.
    #[must_use]
    pub fn input_shape(&self, rows: usize) -> Shape {
        Shape { rows, columns: self.inputs, form: self.form() }
    }

    /// `out = x Wᵀ`, the columns of `out` rounded up to a multiple of 16.
    pub fn forward<L: Lanes>(&self, team: &Team, x: &Activations, out: &mut Columns) {
        out.reshape(x.rows(), self.padded_outputs());
        self.run::<L>(team, x, out.tiles_mut(), |out| out.fill([0.0; LANES]));
    }

    /// `out += x Wᵀ`.
    pub fn add_to<L: Lanes>(&self, team: &Team, x: &Activations, out: &mut Columns) {
        self.run::<L>(team, x, out.tiles_mut(), |_| ());
    }

    /// `out = x Wᵀ`, row after row of `outputs` floats, and the peaks of each row ([`peaks`](super::peaks)).
    pub fn forward_rows<L: Lanes>(&self, team: &Team, x: &Activations, out: &mut [f32], peaks: &mut [f32]) {
        let cost = self.cost(x.rows());
        let stripes = team.share(self.padded_outputs() / LANES, cost).next_multiple_of(STRIPES_IN_CACHE);
        let columns = stripes * LANES;
        let peaks = panels(peaks, self.outputs.div_ceil(PEAK_COLUMNS), columns / PEAK_COLUMNS);
        let shares = panels(out, self.outputs, columns).zip(peaks).enumerate();
        team.for_each(cost, shares, |(share, (out, peaks))| {
            self.write_share::<L>(x, share * stripes, out, peaks);
        });
    }

    /// The columns of the product from stripe `first` on, and their peaks.
    fn write_share<L: Lanes>(&self, x: &Activations, first: usize, mut out: Panel<'_, f32>, mut peaks: Panel<'_, f32>) {
        let stripes = out.columns().div_ceil(LANES);
        for part in (0..stripes).step_by(STRIPES_IN_CACHE) {
            for first_row in (0..x.rows()).step_by(CHUNK_ROWS) {
                let rows = first_row..x.rows().min(first_row + CHUNK_ROWS);
                for stripe in part..stripes.min(part + STRIPES_IN_CACHE) {
                    with_floats(rows.len() * LANES, |sums| {
                        let sums = sums.as_chunks_mut().0;
                        sums.fill([0.0; LANES]);
                        self.add_stripe::<L>(first + stripe, x, first_row, sums);
                        for (row, sums) in rows.clone().zip(sums) {
                            write_columns(&mut out.row(row)[stripe * LANES..], sums);
                        }
                    });
                }
                for row in rows {
                    write_peaks(&out.row(row)[part * LANES..], &mut peaks.row(row)[part * LANES / PEAK_COLUMNS..]);
                }
            }
        }
    }

    /// One row of `W`, as floats.
    ///
    /// `out` has `inputs` places.
    pub fn row(&self, row: usize, out: &mut [f32]) {
        with_tiles!(&self.tiles, tiles => weight_row(self.stripe(tiles, row / LANES), row % LANES, out));
    }

    /// Copies the tiles to `to` and frees the place where they were; [`share`](Self::share) comes next.
    pub(super) fn move_to(&mut self, to: &mut [u8]) {
        with_tiles!(&mut self.tiles, tiles => tiles.move_to(to));
    }

    /// Its tiles are these bytes of `memory` from now on.
    pub(super) fn share(&mut self, memory: &Arc<MmapMut>, part: Range<usize>) {
        with_tiles!(&mut self.tiles, tiles => *tiles = TileMemory::Part(Arc::clone(memory), part));
    }

    fn padded_outputs(&self) -> usize {
        self.outputs.next_multiple_of(LANES)
    }

    /// Steps of the product with so many rows.
    fn cost(&self, rows: usize) -> usize {
        rows * self.inputs * self.outputs / LANES
    }

    /// The tiles of 16 rows of `W`.
    #[inline(always)]
    fn stripe<'a, T>(&self, tiles: &'a [T], stripe: usize) -> &'a [T] {
        let blocks = self.inputs / BLOCK;
        &tiles[stripe * blocks..][..blocks]
    }

    fn run<L: Lanes>(
        &self,
        team: &Team,
        x: &Activations,
        out: &mut [[f32; LANES]],
        prepare: impl Fn(&mut [[f32; LANES]]) + Sync,
    ) {
        let rows = x.rows();
        let cost = self.cost(rows);
        let stripes = team.share(self.padded_outputs() / LANES, cost);
        team.for_each(cost, out.chunks_mut(stripes * rows).enumerate(), |(share, out)| {
            for (stripe, out) in out.chunks_mut(rows).enumerate() {
                prepare(out);
                self.add_stripe::<L>(share * stripes + stripe, x, 0, out);
            }
        });
    }

    /// Adds 16 columns of the product, for `out.len()` rows from `first` on.
    pub(super) fn add_stripe<L: Lanes>(&self, stripe: usize, x: &Activations, first: usize, out: &mut [[f32; LANES]]) {
        assert_eq!(x.form(), self.form(), "activations are held as the weights want them");
        with_tiles!(&self.tiles, tiles => add_product::<L, _>(self.stripe(tiles, stripe), x, first, out));
    }
}

/// `out = silu(x Gᵀ) * (x Uᵀ)`: the first half of a feed-forward layer in one go, so that its wide result is never
/// written out before it is in the form that the second half wants.
///
/// `gate_up` has the rows of `G` and then those of `U`, of each a multiple of 32.
pub fn gated<L: Lanes>(team: &Team, gate_up: &PackedLinear, x: &Activations, form: Form, out: &mut Activations) {
    let (rows, columns) = (x.rows(), gate_up.outputs / 2);
    let shape = Shape { rows, columns, form };
    out.fill::<L>(
        team,
        shape,
        gate_up.cost(rows),
        #[inline(always)]
        |block, first, out| {
            with_floats(
                4 * out.len() * LANES,
                #[inline(always)]
                |sums| {
                    let sums = sums.as_chunks_mut().0;
                    sums.fill([0.0; LANES]);
                    let (gate, up) = (2 * block, columns / LANES + 2 * block);
                    for (stripe, sums) in [gate, gate + 1, up, up + 1].into_iter().zip(sums.chunks_mut(out.len())) {
                        gate_up.add_stripe::<L>(stripe, x, first, sums);
                    }
                    let (gates, ups) = sums.split_at(2 * out.len());
                    for half in 0..2 {
                        let (gates, ups) = (&gates[half * out.len()..], &ups[half * out.len()..]);
                        for ((out, gate), up) in out.iter_mut().zip(gates).zip(ups) {
                            let out = &mut out.as_chunks_mut::<LANES>().0[half];
                            L::store(silu_gate::<L>(L::load(gate), L::load(up)), out);
                        }
                    }
                },
            );
        },
    );
}

/// Writes up to sixteen columns, as many as there are.
fn write_columns(to: &mut [f32], values: &[f32; LANES]) {
    let len = to.len().min(LANES);
    to[..len].copy_from_slice(&values[..len]);
}

/// Writes the peaks of the stripes that are in the cache.
fn write_peaks(columns: &[f32], peaks: &mut [f32]) {
    let columns = &columns[..columns.len().min(STRIPES_IN_CACHE * LANES)];
    peaks.iter_mut().zip(peaks_of(columns)).for_each(|(to, peak)| *to = peak);
}

fn add_product<L: Lanes, T: Tile>(tiles: &[T], x: &Activations, first: usize, out: &mut [[f32; LANES]]) {
    let done = T::add_in_unit::<L>(tiles, x, first, out);
    for (chunk, out) in out[done..].chunks_mut(REGISTER_ROWS).enumerate() {
        let row = first + done + chunk * REGISTER_ROWS;
        let ahead = if row == 0 && out.len() > FEW_ROWS { TILES_AHEAD } else { 0 };
        match out.len() {
            1 => add_rows::<L, T, 1>(tiles, ahead, x, row, out),
            2 => add_rows::<L, T, 2>(tiles, ahead, x, row, out),
            3 => add_rows::<L, T, 3>(tiles, ahead, x, row, out),
            4 => add_rows::<L, T, 4>(tiles, ahead, x, row, out),
            5 => add_rows::<L, T, 5>(tiles, ahead, x, row, out),
            6 => add_rows::<L, T, 6>(tiles, ahead, x, row, out),
            7 => add_rows::<L, T, 7>(tiles, ahead, x, row, out),
            _ => add_rows::<L, T, 8>(tiles, ahead, x, row, out),
        }
    }
}

/// Sixteen columns of `M` rows; tiles so far `ahead` are asked for meanwhile. Blocks are added in order whatever `M` is, so
/// a row's result does not depend on it.
#[inline(never)]
fn add_rows<L: Lanes, T: Tile, const M: usize>(
    tiles: &[T],
    ahead: usize,
    x: &Activations,
    row: usize,
    out: &mut [[f32; LANES]],
) {
    L::vectorise(
        #[inline(always)]
        || {
            let mut sums: Accumulators<L, M> = [L::splat(0.0); M];
            for (block, tile) in tiles.iter().enumerate() {
                if ahead > 0 {
                    prefetch_ahead(tile, ahead);
                }
                tile.add_product::<L, M>(x, block, row, &mut sums);
            }
            for (sum, out) in sums.iter().zip(out) {
                L::store(L::add(L::load(out), *sum), out);
            }
        },
    );
}

fn weight_row<T: Tile>(tiles: &[T], row: usize, out: &mut [f32]) {
    for (tile, out) in tiles.iter().zip(out.chunks_exact_mut(BLOCK)) {
        for (column, out) in out.iter_mut().enumerate() {
            *out = tile.weight(row, column);
        }
    }
}

#[cfg(test)]
mod tests;
