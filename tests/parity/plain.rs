//! A llama as the paper has it: one token after the other, no cache, no batch, double precision.

use candle_core::Device;

use crate::tiny::{EPS, LAYERS, ROPE_BASE, Sizes, Tiny};

/// Rows of weights.
type Matrix = Vec<Vec<f64>>;

/// Logits of the last of `tokens`.
pub(crate) fn logits(model: &Tiny, tokens: &[u32]) -> Vec<f32> {
    let embedding = matrix(model, "token_embd");
    let mut rows: Vec<Vec<f64>> = tokens.iter().map(|token| embedding[*token as usize].clone()).collect();
    for layer in 0..LAYERS {
        let name = |part: &str| format!("blk.{layer}.{part}");
        attention(model, &name, &mut rows);
        let [gate, up, down] = ["ffn_gate", "ffn_up", "ffn_down"].map(|part| matrix(model, &name(part)));
        for row in &mut rows {
            let normed = norm(row, &vector(model, &name("ffn_norm")));
            let gated = product(&gate, &normed).into_iter().zip(product(&up, &normed));
            add(row, &product(&down, &gated.map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect::<Vec<_>>()));
        }
    }
    let last = norm(&rows[rows.len() - 1], &vector(model, "output_norm"));
    product(&embedding, &last).into_iter().map(|logit| logit as f32).collect()
}

fn attention(model: &Tiny, name: &dyn Fn(&str) -> String, rows: &mut [Vec<f64>]) {
    let Sizes { heads, kv_heads, key_dim, value_dim, rope_dim, .. } = model.sizes;
    let [query, key, value, output] =
        ["attn_q", "attn_k", "attn_v", "attn_output"].map(|part| matrix(model, &name(part)));
    let weight = vector(model, &name("attn_norm"));
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (position, row) in rows.iter_mut().enumerate() {
        let normed = norm(row, &weight);
        let rotated = |of: &Matrix| rotate(product(of, &normed), position, key_dim, rope_dim);
        let queries = rotated(&query);
        keys.push(rotated(&key));
        values.push(product(&value, &normed));
        let mut attended = vec![0.0; heads * value_dim];
        for (head, attended) in attended.chunks_exact_mut(value_dim).enumerate() {
            let (query, kv_head) = (&queries[head * key_dim..][..key_dim], head / (heads / kv_heads));
            let scores = keys.iter().map(|key| dot(query, &key[kv_head * key_dim..][..key_dim]));
            let weights: Vec<f64> = scores.map(|score| (score / (key_dim as f64).sqrt()).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (weight, value) in weights.iter().zip(&values) {
                let value = value[kv_head * value_dim..][..value_dim].iter();
                attended.iter_mut().zip(value).for_each(|(to, value)| *to += weight / sum * value);
            }
        }
        add(row, &product(&output, &attended));
    }
}

/// The leading dimensions of each head, in pairs of neighbours.
fn rotate(mut heads: Vec<f64>, position: usize, key_dim: usize, rope_dim: usize) -> Vec<f64> {
    for head in heads.chunks_exact_mut(key_dim) {
        for (pair, [a, b]) in head[..rope_dim].as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let turn = position as f64 / f64::from(ROPE_BASE).powf(2.0 * pair as f64 / rope_dim as f64);
            let (sin, cos) = turn.sin_cos();
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
    heads
}

fn norm(row: &[f64], weight: &[f64]) -> Vec<f64> {
    let rms = (dot(row, row) / row.len() as f64 + f64::from(EPS)).sqrt();
    row.iter().zip(weight).map(|(x, weight)| x / rms * weight).collect()
}

fn product(matrix: &Matrix, x: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| dot(row, x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], what: &[f64]) {
    to.iter_mut().zip(what).for_each(|(to, what)| *to += what);
}

fn matrix(model: &Tiny, name: &str) -> Matrix {
    let tensor = model.tensors[&format!("{name}.weight")].dequantize(&Device::Cpu);
    let rows = tensor.and_then(|tensor| tensor.to_vec2::<f32>()).expect("a matrix");
    rows.into_iter().map(|row| row.into_iter().map(f64::from).collect()).collect()
}

fn vector(model: &Tiny, name: &str) -> Vec<f64> {
    let tensor = model.tensors[&format!("{name}.weight")].dequantize(&Device::Cpu);
    tensor.and_then(|tensor| tensor.to_vec1::<f32>()).expect("a vector").into_iter().map(f64::from).collect()
}
