//! The elementwise kernels against their portable version.

use super::super::activations::Form;
use super::super::lanes::with_every_backend;
use super::super::{BLOCK, Portable};
use super::*;

fn lanes<L: Lanes>(value: L::Floats) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    L::store(value, &mut lanes);
    lanes
}

fn exp_is_e_to_the_x<L: Lanes>() {
    for step in -8700..8800i16 {
        let x = f32::from(step) / 100.0;
        let [got, ..] = lanes::<L>(exp::<L>(L::splat(x)));
        let exact = f64::from(x).exp();
        assert!(((f64::from(got) - exact) / exact).abs() < 2e-7, "e^{x} is {exact}, not {got}");
        assert_eq!(got.to_bits(), lanes::<Portable>(exp::<Portable>([x; LANES]))[0].to_bits(), "e^{x}");
    }
    assert_eq!(lanes::<L>(exp::<L>(L::splat(0.0)))[0], 1.0);
    assert!(lanes::<L>(exp::<L>(L::splat(f32::NEG_INFINITY)))[0] < 1e-37);
    assert!(lanes::<L>(exp::<L>(L::splat(1e9)))[0].is_finite());
}

#[test]
fn exp_on_every_backend() {
    fn check<L: Lanes>() {
        L::vectorise(exp_is_e_to_the_x::<L>);
    }
    with_every_backend!(check);
}

#[test]
fn silu_gates() {
    for (gate, up) in [(0.0, 3.0), (2.5, -1.5), (-4.0, 2.0), (60.0, 1.0), (-300.0, 1.0)] {
        let [got, ..] = lanes::<Portable>(silu_gate::<Portable>([gate; LANES], [up; LANES]));
        let exact = f64::from(gate) / (1.0 + f64::from(-gate).exp()) * f64::from(up);
        assert!((f64::from(got) - exact).abs() <= 1e-6 * exact.abs() + 1e-30, "{gate}, {up}: {got}, not {exact}");
    }
}

/// Rows of 64 columns, of which some count: the norm of each, computed naively, as floats and by the way through bytes.
fn norm_is_taken_row_by_row<L: Lanes>(counted: usize) {
    let (rows, columns, eps) = (19, 64, 1e-5);
    let or_zero = |column: usize, value: f32| if column < counted { value } else { 0.0 };
    let value = |row: usize, column: usize| or_zero(column, ((row * 31 + column * 17) % 23) as f32 - 11.0);
    let weight: Vec<f32> = (0..columns).map(|column| or_zero(column, 0.5 + column as f32 / 64.0)).collect();
    let mut x = Columns::default();
    x.reshape(rows, columns);
    for (tile, values) in x.tiles_mut().chunks_exact_mut(rows).enumerate() {
        for (row, values) in values.iter_mut().enumerate() {
            *values = std::array::from_fn(|lane| value(row, tile * LANES + lane));
        }
    }
    let [floats, bytes] = [Form::Float, Form::Int8].map(|form| {
        let mut out = Activations::default();
        let norm = RmsNorm { weight: &weight, columns: counted, eps };
        rms_norm::<L>(&Team::new(2), &x, norm, Shape { rows, columns, form }, &mut out);
        out
    });
    for row in 0..rows {
        let mean = (0..columns).map(|column| value(row, column).powi(2)).sum::<f32>() / counted as f32;
        for block in 0..columns / BLOCK {
            let ([floats], [quant]) = (floats.floats::<1>(block, row), bytes.quants::<1>(block, row));
            let bytes = quant.words.iter().flat_map(|word| word.to_le_bytes()).map(u8::cast_signed);
            for ((byte, float), column) in bytes.zip(floats).zip(block * BLOCK..) {
                let exact = value(row, column) / (mean + eps).sqrt() * weight[column];
                let got = f32::from(byte) * quant.scale;
                assert!((float - exact).abs() <= 1e-5, "row {row}, column {column}: {float}, not {exact}");
                assert!((got - exact).abs() <= 0.51 * quant.scale, "row {row}, column {column}: {got}, not {exact}");
            }
        }
    }
}

#[test]
fn norm_on_every_backend() {
    fn check<L: Lanes>() {
        [64, 63, 48, 41, 33].into_iter().for_each(norm_is_taken_row_by_row::<L>);
    }
    with_every_backend!(check);
}
