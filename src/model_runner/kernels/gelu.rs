//! GELU, as `x Φ(x)` with the normal distribution itself and not with the usual tanh in its place.

use super::elementwise::exp;
use super::{Columns, LANES, Lanes, Team};

/// `x = gelu(x + bias)` for each row; `bias` has one number for each column.
pub fn gelu<L: Lanes>(team: &Team, bias: &[f32], x: &mut Columns) {
    let rows = x.rows().max(1);
    let tiles = x.tiles_mut();
    team.for_each(20 * tiles.len(), tiles.chunks_mut(rows).zip(bias.as_chunks::<LANES>().0), |(x, bias)| {
        let bias = L::load(bias);
        for x in x {
            L::store(gelu_of::<L>(L::add(L::load(x), bias)), x);
        }
    });
}

/// `x / 2 + |x| / 2 · erf(|x| / √2)`: the same as `x Φ(x)`, and nothing asks for the sign.
///
/// `erf` is formula 7.1.26 of Abramowitz and Stegun, absolute error below 1.5e-7: a polynomial in `t = 1 / (1 + p z)`
/// times `e^(-z²)`.
#[inline(always)]
pub fn gelu_of<L: Lanes>(x: L::Floats) -> L::Floats {
    const P: f32 = 0.327_591_1;
    const A: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_73, 0.254_829_6];
    let z = L::mul(L::abs(x), L::splat(std::f32::consts::FRAC_1_SQRT_2));
    let one = L::splat(1.0);
    let t = L::div(one, L::mul_add(z, L::splat(P), one));
    let mut poly = L::splat(A[0]);
    for coefficient in &A[1..] {
        poly = L::mul_add(poly, t, L::splat(*coefficient));
    }
    let decay = exp::<L>(L::mul(L::sub(L::splat(0.0), z), z));
    let erf = L::sub(one, L::mul(L::mul(poly, t), decay));
    let half = L::splat(0.5);
    L::mul(half, L::mul_add(L::abs(x), erf, x))
}

#[cfg(test)]
mod tests {
    use super::super::{Native, Portable};
    use super::*;

    /// `Φ(x)` as a sum: the series of the integral, in double precision.
    fn exact(x: f64) -> f64 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-17 {
            n += 1.0;
            term *= -x * x / (2.0 * n);
            sum += term / (2.0 * n + 1.0);
        }
        x * (0.5 + sum / std::f64::consts::TAU.sqrt())
    }

    #[test]
    fn gelu_is_x_times_the_normal_distribution() {
        for step in -500..=500i16 {
            let x = f32::from(step) / 100.0;
            let mut got = [0.0; LANES];
            Native::store(gelu_of::<Native>(Native::splat(x)), &mut got);
            assert!((f64::from(got[0]) - exact(x.into())).abs() < 1e-6, "{x}: {}, not {}", got[0], exact(x.into()));
            assert_eq!(got[0].to_bits(), gelu_of::<Portable>([x; LANES])[0].to_bits(), "{x}");
        }
        for (x, want) in [(-40.0, 0.0), (40.0, 40.0), (-1e30, 0.0), (1e30, 1e30), (0.0, 0.0)] {
            let mut got = [0.0; LANES];
            Native::store(gelu_of::<Native>(Native::splat(x)), &mut got);
            assert!((got[0] - want).abs() <= 1e-6 * want, "{x}: {}", got[0]);
        }
    }

    #[test]
    fn the_bias_is_that_of_the_column() {
        let mut x = Columns::default();
        x.reshape(3, 2 * LANES);
        x.tiles_mut().fill([1.0; LANES]);
        let bias: Vec<f32> = (0..2 * LANES).map(|column| column as f32 / 8.0 - 2.0).collect();
        gelu::<Native>(&Team::new(2), &bias, &mut x);
        for (column, bias) in bias.iter().enumerate() {
            for row in x.tile(column / LANES) {
                assert!((f64::from(row[column % LANES]) - exact(1.0 + f64::from(*bias))).abs() < 1e-6, "{column}");
            }
        }
    }
}
