//! LayerNorm over the columns of each row.

use super::{Columns, LANES, Lanes, Team};

/// Rows whose mean and variance one thread computes in one go.
const NORM_ROWS: usize = 16;

/// Mean and inverse deviation of a row.
type Moments = (f32, f32);

/// `x = (y - mean(y)) / sqrt(var(y) + eps) * weight + bias` with `y = x + before`, for each row.
///
/// `before`, `weight` and `bias` have one number for each column of `x`.
pub fn layer_norm<L: Lanes>(team: &Team, before: &[f32], [weight, bias]: [&[f32]; 2], eps: f32, x: &mut Columns) {
    let rows = x.rows();
    let [before, weight, bias] = [before, weight, bias].map(|values| values.as_chunks::<LANES>().0);
    let columns = weight.len() * LANES;
    let mut moments = vec![(0.0, 0.0); rows];
    team.for_each(2 * rows * columns / LANES, moments.chunks_mut(NORM_ROWS).enumerate(), |(chunk, moments)| {
        L::vectorise(
            #[inline(always)]
            || {
                for (row, moments) in moments.iter_mut().enumerate() {
                    *moments = moments_of::<L>(x, before, chunk * NORM_ROWS + row, eps);
                }
            },
        );
    });
    let tiles = x.tiles_mut().chunks_mut(rows.max(1)).enumerate();
    team.for_each(2 * rows * columns / LANES, tiles, |(tile, x)| {
        L::vectorise(
            #[inline(always)]
            || {
                let (before, weight, bias) = (L::load(&before[tile]), L::load(&weight[tile]), L::load(&bias[tile]));
                for (x, (mean, inverse)) in x.iter_mut().zip(&moments) {
                    let centred = L::sub(L::add(L::load(x), before), L::splat(*mean));
                    L::store(L::mul_add(L::mul(centred, L::splat(*inverse)), weight, bias), x);
                }
            },
        );
    });
}

/// Column tiles are summed up in order, then the lanes: no sum depends on the batch.
#[inline(always)]
fn moments_of<L: Lanes>(x: &Columns, before: &[[f32; LANES]], row: usize, eps: f32) -> Moments {
    let columns = (before.len() * LANES) as f32;
    let mut sum = L::splat(0.0);
    for (tile, before) in before.iter().enumerate() {
        sum = L::add(sum, L::add(L::load(&x.tile(tile)[row]), L::load(before)));
    }
    let mean = L::sum(sum) / columns;
    let mut squares = L::splat(0.0);
    for (tile, before) in before.iter().enumerate() {
        let centred = L::sub(L::add(L::load(&x.tile(tile)[row]), L::load(before)), L::splat(mean));
        squares = L::mul_add(centred, centred, squares);
    }
    (mean, 1.0 / (L::sum(squares) / columns + eps).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::Portable;
    use super::super::lanes::with_every_backend;
    use super::*;

    fn filled(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f32) -> Columns {
        let mut x = Columns::default();
        x.reshape(rows, columns);
        for (index, values) in x.tiles_mut().iter_mut().enumerate() {
            *values = std::array::from_fn(|lane| value(index % rows, index / rows * LANES + lane));
        }
        x
    }

    fn check<L: Lanes>(rows: usize, columns: usize, eps: f32, value: impl Fn(usize, usize) -> f32) {
        let row_of = |scale: f32| (0..columns).map(|column| scale * (column % 7) as f32 - 1.0).collect::<Vec<f32>>();
        let (before, weight, bias) = (row_of(0.25), row_of(0.5), row_of(-0.125));
        let mut got = filled(rows, columns, &value);
        layer_norm::<L>(&Team::new(2), &before, [&weight, &bias], eps, &mut got);
        for row in 0..rows {
            let y: Vec<f64> = (0..columns).map(|c| f64::from(value(row, c)) + f64::from(before[c])).collect();
            let mean = y.iter().sum::<f64>() / columns as f64;
            let variance = y.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / columns as f64;
            for (column, y) in y.iter().enumerate() {
                let normed = (y - mean) / (variance + f64::from(eps)).sqrt();
                let exact = normed * f64::from(weight[column]) + f64::from(bias[column]);
                let got = got.tile(column / LANES)[row][column % LANES];
                assert!((f64::from(got) - exact).abs() < 1e-4, "row {row}, column {column}: {got}, not {exact}");
            }
        }
        let mut portable = filled(rows, columns, &value);
        layer_norm::<Portable>(&Team::new(1), &before, [&weight, &bias], eps, &mut portable);
        for tile in 0..columns / LANES {
            assert_eq!(got.tile(tile).as_flattened(), portable.tile(tile).as_flattened(), "tile {tile}");
        }
    }

    fn check_all<L: Lanes>() {
        check::<L>(19, 64, 1e-12, |row, column| ((row * 31 + column * 17) % 23) as f32 - 11.0);
        check::<L>(1, 32, 1e-5, |_, column| 1000.0 + column as f32);
        check::<L>(3, 32, 1e-3, |_, _| 5.0);
    }

    #[test]
    fn each_row_is_normed_for_itself() {
        with_every_backend!(check_all);
    }
}
