//! From the values of a text's tokens to its one vector.

use super::attention::Sequence;
use super::config::{Pooling, PoolingMode};
use crate::model_runner::kernels::{Columns, LANES, Lanes};

impl Pooling {
    /// The vector of one text out of the leading columns of `x`, as many as `out` has places.
    pub(super) fn pool<L: Lanes>(self, x: &Columns, sequence: Sequence, out: &mut [f32]) {
        L::vectorise(
            #[inline(always)]
            || self.pool_tiles::<L>(x, sequence, out),
        );
        if self.normalise {
            let length = out.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
            let inverse = 1.0 / length.max(1e-12);
            out.iter_mut().for_each(|value| *value = (f64::from(*value) * inverse) as f32);
        }
    }

    #[inline(always)]
    fn pool_tiles<L: Lanes>(self, x: &Columns, sequence: Sequence, out: &mut [f32]) {
        let rows = sequence.range();
        let count = sequence.rows as f32;
        for (tile, out) in out.chunks_mut(LANES).enumerate() {
            let rows = &x.tile(tile)[rows.clone()];
            let (mut sum, mut largest) = (L::splat(0.0), L::splat(f32::NEG_INFINITY));
            for row in rows {
                let row = L::load(row);
                (sum, largest) = (L::add(sum, row), L::max(row, largest));
            }
            let pooled = match self.mode {
                PoolingMode::Mean => L::mul(sum, L::splat(1.0 / count)),
                PoolingMode::MeanSqrtLen => L::mul(sum, L::splat(1.0 / count.sqrt())),
                PoolingMode::Cls => L::load(&rows[0]),
                PoolingMode::Max => largest,
            };
            let mut lanes = [0.0; LANES];
            L::store(pooled, &mut lanes);
            out.copy_from_slice(&lanes[..out.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model_runner::kernels::lanes::with_every_backend;

    fn check_modes<L: Lanes>() {
        let mut x = Columns::default();
        x.reshape(4, 2 * LANES);
        // The first column, and one behind the last that is asked for.
        for (index, values) in x.tiles_mut().iter_mut().enumerate() {
            let is_set = |lane| index / 4 * 5 == lane;
            *values = std::array::from_fn(|lane| if is_set(lane) { [9.0, 3.0, -1.0, 4.0][index % 4] } else { 0.0 });
        }
        let sequence = Sequence { first_row: 1, rows: 3 };
        let check = |mode, normalise, want: f32| {
            let mut out = [7.0; LANES + 5];
            Pooling { mode, normalise }.pool::<L>(&x, sequence, &mut out);
            assert!((out[0] - want).abs() < 1e-6 && out[1..] == [0.0; LANES + 4], "{mode:?}: {out:?}");
        };
        check(PoolingMode::Mean, false, 2.0);
        check(PoolingMode::Cls, false, 3.0);
        check(PoolingMode::Max, false, 4.0);
        check(PoolingMode::MeanSqrtLen, false, 6.0 / 3f32.sqrt());
        check(PoolingMode::Max, true, 1.0);
    }

    #[test]
    fn modes() {
        with_every_backend!(check_modes);
    }
}
