//! What happens to a token between two matrix products: norm, gate, and the way back to bytes.

use super::activations::Shape;
use super::scratch::with_floats;
use super::{Activations, Columns, LANES, Lanes, Team};

/// Rows whose norms one thread computes in one go.
const NORM_ROWS: usize = 16;

/// A norm over the columns of a row.
#[derive(Debug, Clone, Copy)]
pub struct RmsNorm<'a> {
    /// One number for each column; 0 for those that only fill the row up.
    pub weight: &'a [f32],
    /// How many columns count; those behind them are 0, and stay it.
    pub columns: usize,
    /// Added to the mean square.
    pub eps: f32,
}

/// `x / rms(x) * weight` with `rms(x) = sqrt(mean(x²) + eps)` for each row, as the next product wants it.
///
/// `shape` is what [`PackedLinear::input_shape`] says.
///
/// [`PackedLinear::input_shape`]: super::PackedLinear::input_shape
pub fn rms_norm<L: Lanes>(team: &Team, x: &Columns, norm: RmsNorm<'_>, shape: Shape, out: &mut Activations) {
    let weight = norm.weight.as_chunks::<LANES>().0;
    with_floats(x.rows(), |inverse| {
        write_inverse_rms::<L>(team, x, norm, inverse);
        out.fill::<L>(
            team,
            shape,
            4 * x.rows() * weight.len() * LANES,
            #[inline(always)]
            |block, first, out| {
                for half in 0..2 {
                    let tile = 2 * block + half;
                    let (x, weight) = (&x.tile(tile)[first..], L::load(&weight[tile]));
                    for (row, out) in out.iter_mut().enumerate() {
                        let normed = L::mul(L::mul(L::load(&x[row]), L::splat(inverse[first + row])), weight);
                        L::store(normed, &mut out.as_chunks_mut::<LANES>().0[half]);
                    }
                }
            },
        );
    });
}

/// `1 / rms(x)` of each row.
fn write_inverse_rms<L: Lanes>(team: &Team, x: &Columns, norm: RmsNorm<'_>, inverse: &mut [f32]) {
    let tiles = norm.weight.len() / LANES;
    let cost = inverse.len() * tiles * LANES;
    team.for_each(cost, inverse.chunks_mut(NORM_ROWS).enumerate(), |(chunk, inverse)| {
        L::vectorise(
            #[inline(always)]
            || {
                for (row, inverse) in inverse.iter_mut().enumerate() {
                    *inverse = inverse_rms::<L>(x, chunk * NORM_ROWS + row, norm);
                }
            },
        );
    });
}

/// Column tiles are summed up in order, then the lanes: no sum depends on the batch.
#[inline(always)]
fn inverse_rms<L: Lanes>(x: &Columns, row: usize, norm: RmsNorm<'_>) -> f32 {
    let mut squares = L::splat(0.0);
    for tile in 0..norm.weight.len() / LANES {
        let x = L::load(&x.tile(tile)[row]);
        squares = L::mul_add(x, x, squares);
    }
    1.0 / (L::sum(squares) / norm.columns as f32 + norm.eps).sqrt()
}

/// `gate * sigmoid(gate) * up`, the SiLU gate of a feed-forward layer.
#[inline(always)]
pub fn silu_gate<L: Lanes>(gate: L::Floats, up: L::Floats) -> L::Floats {
    let one = L::splat(1.0);
    let decay = exp::<L>(L::sub(L::splat(0.0), gate));
    L::mul(L::div(gate, L::add(one, decay)), up)
}

/// `e^x` for each lane, relative error below 2e-7; `x` is taken as between -87 and 88, and `e^0` is exactly 1.
///
/// The argument is split into `n ln 2 + r` with |r| ≤ ln 2 / 2, ln 2 itself into a part with few bits and the rest so
/// that the subtraction is exact (Cody and Waite), and `e^r` is its Taylor polynomial of degree 7.
#[inline(always)]
pub fn exp<L: Lanes>(x: L::Floats) -> L::Floats {
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const TAYLOR: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
    let x = L::max(x, L::splat(-87.0));
    let x = L::sub(L::splat(0.0), L::max(L::sub(L::splat(0.0), x), L::splat(-88.0)));
    let n = L::round(L::mul(x, L::splat(std::f32::consts::LOG2_E)));
    let r = L::mul_add(n, L::splat(-LN_2_HIGH), x);
    let r = L::mul_add(n, L::splat(-LN_2_LOW), r);
    let mut poly = L::splat(TAYLOR[0]);
    for coefficient in &TAYLOR[1..] {
        poly = L::mul_add(poly, r, L::splat(*coefficient));
    }
    let tail = L::mul_add(poly, L::mul(r, r), r);
    L::mul(L::add(L::splat(1.0), tail), L::exp2(n))
}

#[cfg(test)]
mod tests;
