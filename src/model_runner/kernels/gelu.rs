//! GELU, as `x Φ(x)` with the normal distribution itself and not with the usual tanh in its place.

use super::activations::Shape;
use super::elementwise::exp;
use super::scratch::with_floats;
use super::{Activations, Form, LANES, Lanes, PackedLinear, Team};

/// `out = gelu(x Wᵀ + bias)`: the first half of a feed-forward layer in one go, so that its wide result is never written
/// out before it is in the form that the second half wants.
///
/// `bias` has one number for each row of `W`, a multiple of 32.
pub fn gelu_product<L: Lanes>(
    team: &Team,
    weights: &PackedLinear,
    bias: &[f32],
    x: &Activations,
    form: Form,
    out: &mut Activations,
) {
    let shape = Shape { rows: x.rows(), columns: weights.outputs(), form };
    let bias = bias.as_chunks::<LANES>().0;
    out.fill::<L>(
        team,
        shape,
        shape.rows * weights.inputs() * weights.outputs() / LANES,
        #[inline(always)]
        |block, first, out| {
            with_floats(
                out.len() * LANES,
                #[inline(always)]
                |sums| {
                    let sums = sums.as_chunks_mut().0;
                    for half in 0..2 {
                        sums.fill([0.0; LANES]);
                        let stripe = 2 * block + half;
                        weights.add_stripe::<L>(stripe, x, first, sums);
                        let bias = L::load(&bias[stripe]);
                        for (out, sum) in out.iter_mut().zip(sums.iter()) {
                            let out = &mut out.as_chunks_mut::<LANES>().0[half];
                            L::store(gelu::<L>(L::add(L::load(sum), bias)), out);
                        }
                    }
                },
            );
        },
    );
}

/// `x / 2 + |x| / 2 · erf(|x| / √2)`: the same as `x Φ(x)`, and nothing asks for the sign.
///
/// `erf` is formula 7.1.26 of Abramowitz and Stegun, absolute error below 1.5e-7: a polynomial in `t = 1 / (1 + p z)`
/// times `e^(-z²)`.
#[inline(always)]
pub fn gelu<L: Lanes>(x: L::Floats) -> L::Floats {
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
    use super::super::Columns;
    use super::super::activations::copy;
    use super::super::lanes::with_every_backend;
    use super::super::pack::FloatWeights;
    use super::super::pack::fill::Fills;
    use super::super::{BLOCK, Portable};
    use super::*;

    /// `x Φ(x)`, `Φ` by the series of its integral, in double precision.
    fn exact(x: f64) -> f64 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-17 {
            n += 1.0;
            term *= -x * x / (2.0 * n);
            sum += term / (2.0 * n + 1.0);
        }
        x * (0.5 + sum / std::f64::consts::TAU.sqrt())
    }

    fn one<L: Lanes>(x: f32) -> f32 {
        let mut lanes = [0.0; LANES];
        L::vectorise(|| L::store(gelu::<L>(L::splat(x)), &mut lanes));
        lanes[0]
    }

    fn check<L: Lanes>() {
        for step in -500..=500i16 {
            let x = f32::from(step) / 100.0;
            let got = one::<L>(x);
            assert!((f64::from(got) - exact(x.into())).abs() < 1e-6, "{x}: {got}, not {}", exact(x.into()));
            assert_eq!(got.to_bits(), one::<Portable>(x).to_bits(), "{x}");
        }
        for (x, want) in [(-40.0, 0.0), (40.0, 40.0), (-1e30, 0.0), (1e30, 1e30), (0.0, 0.0)] {
            assert!((one::<L>(x) - want).abs() <= 1e-6 * want, "{x}: {}", one::<L>(x));
        }
    }

    #[test]
    fn gelu_is_x_times_the_normal_distribution() {
        with_every_backend!(check);
    }

    /// The product with a matrix that has 1 once in each row: what comes out is the column, with the row's bias.
    fn check_product<L: Lanes>() {
        let (rows, width, team) = (11, 2 * BLOCK, Team::new(2));
        let mut x = Columns::default();
        x.reshape(rows, width);
        for (index, values) in x.tiles_mut().iter_mut().enumerate() {
            *values =
                std::array::from_fn(|lane| (index % rows) as f32 / 4.0 - (index / rows * LANES + lane) as f32 / 32.0);
        }
        let weights = (0..width * width).map(|at| f32::from(u8::from(at / width == width - 1 - at % width))).collect();
        let weights = PackedLinear::pack_floats(weights, width, Fills::NONE, FloatWeights::Keep).unwrap();
        let bias: Vec<f32> = (0..width).map(|output| output as f32 / 64.0 - 0.5).collect();
        let (mut input, mut out) = (Activations::default(), Activations::default());
        copy::<L>(&team, &x, weights.input_shape(rows), &mut input);
        gelu_product::<L>(&team, &weights, &bias, &input, Form::Float, &mut out);
        for row in 0..rows {
            for (output, bias) in bias.iter().enumerate() {
                let input = row as f32 / 4.0 - (width - 1 - output) as f32 / 32.0;
                let [block] = out.floats::<1>(output / BLOCK, row);
                let want = exact(f64::from(input + bias));
                assert!((f64::from(block[output % BLOCK]) - want).abs() < 1e-6, "row {row}, output {output}");
            }
        }
    }

    #[test]
    fn the_bias_is_that_of_the_row_of_weights() {
        with_every_backend!(check_product);
    }
}
