//! LayerNorm over the columns of each row.

use super::{Columns, LANES, Lanes, Team};

/// Rows whose mean and variance one thread computes in one go.
const NORM_ROWS: usize = 16;

/// Mean and inverse deviation of a row.
type Moments = (f32, f32);

/// A norm over the columns of a row.
#[derive(Debug, Clone, Copy)]
pub struct LayerNorm<'a> {
    /// One number for each column; 0 for those that only fill the row up.
    pub weight: &'a [f32],
    /// The same.
    pub bias: &'a [f32],
    /// How many columns count; those behind them are 0, and stay it.
    pub columns: usize,
    /// Added to the variance.
    pub eps: f32,
}

/// `x = (y - mean(y)) / sqrt(var(y) + eps) * weight + bias` with `y = x + before`, for each row.
///
/// `before` has one number for each column of `x`.
pub fn layer_norm<L: Lanes>(team: &Team, before: &[f32], norm: LayerNorm<'_>, x: &mut Columns) {
    let rows = x.rows();
    let [before, weight, bias] = [before, norm.weight, norm.bias].map(|values| values.as_chunks::<LANES>().0);
    let columns = weight.len() * LANES;
    let mut moments = vec![(0.0, 0.0); rows];
    team.for_each(2 * rows * columns / LANES, moments.chunks_mut(NORM_ROWS).enumerate(), |(chunk, moments)| {
        L::vectorise(
            #[inline(always)]
            || {
                for (row, moments) in moments.iter_mut().enumerate() {
                    *moments = moments_of::<L>(x, before, chunk * NORM_ROWS + row, norm);
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

/// Column tiles are summed up in order, then the lanes: no sum depends on the batch. Columns that only fill the row up add
/// nothing to the mean, and are left out of the variance.
#[inline(always)]
fn moments_of<L: Lanes>(x: &Columns, before: &[[f32; LANES]], row: usize, norm: LayerNorm<'_>) -> Moments {
    let (columns, whole, rest) = (norm.columns as f32, norm.columns / LANES, norm.columns % LANES);
    let mut sum = L::splat(0.0);
    for (tile, before) in before.iter().enumerate() {
        sum = L::add(sum, L::add(L::load(&x.tile(tile)[row]), L::load(before)));
    }
    let mean = L::sum(sum) / columns;
    let mut squares = L::splat(0.0);
    let centred = |tile: usize, before: &[f32; LANES]| {
        L::sub(L::add(L::load(&x.tile(tile)[row]), L::load(before)), L::splat(mean))
    };
    for (tile, before) in before[..whole].iter().enumerate() {
        let centred = centred(tile, before);
        squares = L::mul_add(centred, centred, squares);
    }
    if rest > 0 {
        let centred = L::keep_first(centred(whole, &before[whole]), rest, L::splat(0.0));
        squares = L::mul_add(centred, centred, squares);
    }
    (mean, 1.0 / (L::sum(squares) / columns + norm.eps).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::lanes::with_every_backend;
    use super::super::{BLOCK, Portable};
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
        let width = columns.next_multiple_of(BLOCK);
        let or_zero = |column: usize, value: f32| if column < columns { value } else { 0.0 };
        let row_of = |scale: f32| (0..width).map(|c| or_zero(c, scale * (c % 7) as f32 - 1.0)).collect::<Vec<f32>>();
        let (before, weight, bias) = (row_of(0.25), row_of(0.5), row_of(-0.125));
        let norm = LayerNorm { weight: &weight, bias: &bias, columns, eps };
        let rows_of = |backend: fn(&Team, &[f32], LayerNorm<'_>, &mut Columns), threads| {
            let mut x = filled(rows, width, |row, column| or_zero(column, value(row, column)));
            backend(&Team::new(threads), &before, norm, &mut x);
            x
        };
        let (got, portable) = (rows_of(layer_norm::<L>, 2), rows_of(layer_norm::<Portable>, 1));
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
        for tile in 0..width / LANES {
            let is_zero = |column: usize| got.tile(tile).iter().all(|lanes| lanes[column % LANES] == 0.0);
            assert!((tile * LANES..(tile + 1) * LANES).filter(|column| *column >= columns).all(is_zero), "tile {tile}");
            assert_eq!(got.tile(tile).as_flattened(), portable.tile(tile).as_flattened(), "tile {tile}");
        }
    }

    fn check_all<L: Lanes>() {
        check::<L>(19, 64, 1e-12, |row, column| ((row * 31 + column * 17) % 23) as f32 - 11.0);
        check::<L>(1, 32, 1e-5, |_, column| 1000.0 + column as f32);
        check::<L>(3, 32, 1e-3, |_, _| 5.0);
        for columns in [63, 50, 48, 33, 7] {
            check::<L>(5, columns, 1e-12, |row, column| 3.0 + ((row * 31 + column * 17) % 23) as f32);
        }
    }

    #[test]
    fn each_row_is_normed_for_itself() {
        with_every_backend!(check_all);
    }
}
