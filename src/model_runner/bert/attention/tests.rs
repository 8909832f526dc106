//! Attention in both directions against the definition.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::model_runner::kernels::Portable;
use crate::model_runner::kernels::lanes::with_every_backend;

/// Scores are scaled by the dimensions that count, which are not all columns.
const SHAPE: Attention = Attention { heads: 3, width: 32, head_dim: 27 };

fn values(columns: &Columns, row: usize, column: usize, width: usize) -> Vec<f32> {
    let mut values = vec![0.0; width];
    columns.gather(row, column, &mut values);
    values
}

/// One row of one head, in double precision.
fn naive(qkv: &Columns, bias: &[f32], sequence: Sequence, row: usize, head: usize) -> Vec<f64> {
    let width = SHAPE.heads * SHAPE.width;
    let part = |part: usize, row: usize| -> Vec<f64> {
        let column = part * width + head * SHAPE.width;
        let biased = values(qkv, row, column, SHAPE.width).into_iter().zip(&bias[column..]);
        biased.map(|(value, bias)| f64::from(value) + f64::from(*bias)).collect()
    };
    let query = part(0, row);
    let score = |key: usize| -> f64 { part(1, key).iter().zip(&query).map(|(key, query)| key * query).sum() };
    let weights: Vec<f64> = sequence.range().map(|key| (score(key) / (SHAPE.head_dim as f64).sqrt()).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut blended = vec![0.0; SHAPE.width];
    for (key, weight) in sequence.range().zip(weights) {
        for (to, value) in blended.iter_mut().zip(part(2, key)) {
            *to += weight / sum * value;
        }
    }
    blended
}

fn attended<L: Lanes>(team: &Team, sequences: &[Sequence], qkv: &Columns, bias: &[f32]) -> Columns {
    let mut out = Columns::default();
    attend::<L>(team, SHAPE, sequences, (qkv, bias), &mut out);
    out
}

fn check<L: Lanes>() {
    let mut random = StdRng::seed_from_u64(3);
    let width = SHAPE.heads * SHAPE.width;
    let mut sequences = Vec::new();
    let mut rows = 0;
    for len in [1, 2, 7, 8, 9, 15, 16, 17, 40, 1] {
        sequences.push(Sequence { first_row: rows, rows: len });
        rows += len;
    }
    let mut qkv = Columns::default();
    qkv.reshape(rows, 3 * width);
    qkv.tiles_mut().as_flattened_mut().iter_mut().for_each(|value| *value = random.random_range(-3.0..3.0));
    let bias: Vec<f32> = (0..3 * width).map(|_| random.random_range(-1.0..1.0)).collect();
    let out = attended::<L>(&Team::new(2), &sequences, &qkv, &bias);
    for sequence in &sequences {
        for row in sequence.range() {
            for head in 0..SHAPE.heads {
                let got = values(&out, row, head * SHAPE.width, SHAPE.width);
                for (got, exact) in got.into_iter().zip(naive(&qkv, &bias, *sequence, row, head)) {
                    assert!((f64::from(got) - exact).abs() < 2e-5, "row {row}, head {head}: {got}, not {exact}");
                }
            }
        }
    }
    let portable = attended::<Portable>(&Team::new(1), &sequences, &qkv, &bias);
    for row in 0..rows {
        let bits = |columns: &Columns| values(columns, row, 0, width).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(&out), bits(&portable), "row {row}");
    }
}

#[test]
fn each_token_sees_its_own_text_and_all_of_it() {
    with_every_backend!(check);
}

/// Scores far apart: the largest takes all, and nothing overflows.
fn check_extremes<L: Lanes>() {
    let mut qkv = Columns::default();
    let width = SHAPE.heads * SHAPE.width;
    qkv.reshape(20, 3 * width);
    let tiles = 3 * width / LANES;
    for tile in 0..tiles {
        for row in 0..20 {
            let value = if tile < 2 * tiles / 3 { row as f32 * 100.0 } else { row as f32 };
            qkv.tiles_mut()[tile * 20 + row] = [value; LANES];
        }
    }
    let sequence = [Sequence { first_row: 0, rows: 20 }];
    let out = attended::<L>(&Team::new(1), &sequence, &qkv, &vec![0.0; 3 * width]);
    for row in 1..20 {
        assert_eq!(values(&out, row, 0, 16), vec![19.0; 16], "row {row}");
    }
}

#[test]
fn extreme_scores() {
    with_every_backend!(check_extremes);
}
