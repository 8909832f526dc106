//! Matrix products of every format on every backend.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::Portable;
use super::super::activations::QuantBlock;
use super::super::elementwise::silu_gate;
use super::super::lanes::with_every_backend;
use super::super::pack::FloatWeights;
use super::super::pack::fill::Fills;
use super::*;

const INPUTS: usize = 96;
const OUTPUTS: usize = 64;

fn halves(random: &mut StdRng, from: f32, to: f32) -> [u16; LANES] {
    std::array::from_fn(|_| f16::from_f32(random.random_range(from..to)).to_bits())
}

fn planes<const N: usize>(random: &mut StdRng) -> [[u8; 4 * LANES]; N] {
    std::array::from_fn(|_| std::array::from_fn(|_| random.random()))
}

fn float_tile<E>(random: &mut StdRng, convert: fn(f32) -> E) -> FloatTile<E> {
    FloatTile { columns: std::array::from_fn(|_| std::array::from_fn(|_| convert(random.random_range(-1.0..1.0)))) }
}

/// One matrix of each format, of any bits that a file may hold.
fn matrices(seed: u64) -> Vec<PackedLinear> {
    let random = &mut StdRng::seed_from_u64(seed);
    let scales = |random: &mut StdRng| (halves(random, 0.001, 0.1), halves(random, -1.0, 0.1));
    let nibbles = |random: &mut StdRng| {
        let (scale, min) = scales(random);
        NibbleTile { planes: planes(random), scale, min }
    };
    let fives = |random: &mut StdRng| {
        let ((scale, min), [fifth]) = (scales(random), planes(random));
        FiveTile { planes: planes(random), fifth, scale, min }
    };
    let bytes = |random: &mut StdRng| {
        let (scale, min) = scales(random);
        ByteTile { planes: planes(random), scale, min }
    };
    let count = INPUTS / BLOCK * OUTPUTS / LANES;
    let tiles = [
        Tiles::Nibbles((0..count).map(|_| nibbles(random)).collect::<Vec<_>>().into()),
        Tiles::Fives((0..count).map(|_| fives(random)).collect::<Vec<_>>().into()),
        Tiles::Bytes((0..count).map(|_| bytes(random)).collect::<Vec<_>>().into()),
        Tiles::F16((0..count).map(|_| float_tile(random, f16::from_f32)).collect::<Vec<_>>().into()),
        Tiles::BF16((0..count).map(|_| float_tile(random, bf16::from_f32)).collect::<Vec<_>>().into()),
        Tiles::F32((0..count).map(|_| float_tile(random, |value| value)).collect::<Vec<_>>().into()),
    ];
    tiles.into_iter().map(|tiles| PackedLinear { inputs: INPUTS, outputs: OUTPUTS, tiles }).collect()
}

/// Different numbers in each row; a row's depend on its number alone.
fn activations(rows: Range<usize>, form: Form) -> Activations {
    let mut x = Activations::default();
    let shape = Shape { rows: rows.len(), columns: INPUTS, form };
    x.fill::<Portable>(&Team::new(1), shape, 0, |block, first, out| {
        for (row, out) in out.iter_mut().enumerate() {
            let mut random = StdRng::seed_from_u64((block * 1000 + rows.start + first + row) as u64);
            *out = std::array::from_fn(|_| random.random_range(-3.0..3.0));
        }
    });
    x
}

/// What one row stands for.
fn floats(x: &Activations, row: usize) -> Vec<f64> {
    let of_block = |block: usize| match x.form() {
        Form::Float => x.floats::<1>(block, row)[0].map(f64::from).to_vec(),
        Form::Int8 => {
            let [QuantBlock { words, scale, .. }] = x.quants(block, row);
            let bytes = words.iter().flat_map(|word| word.to_le_bytes()).map(u8::cast_signed);
            bytes.map(|byte| f64::from(byte) * f64::from(*scale)).collect()
        }
    };
    (0..INPUTS / BLOCK).flat_map(of_block).collect()
}

fn bits(columns: &Columns) -> Vec<[u32; LANES]> {
    let tiles = 0..OUTPUTS / LANES;
    tiles.flat_map(|tile| columns.tile(tile).iter().map(|lanes| lanes.map(f32::to_bits))).collect()
}

fn a_product_is_the_sum_of_its_products<L: Lanes>() {
    for matrix in matrices(3) {
        let (x, mut out) = (activations(0..11, matrix.form()), Columns::default());
        matrix.forward::<L>(&Team::new(2), &x, &mut out);
        let mut weights = vec![0.0; INPUTS];
        for output in 0..OUTPUTS {
            matrix.row(output, &mut weights);
            for row in 0..x.rows() {
                let products = floats(&x, row).into_iter().zip(&weights).map(|(x, weight)| x * f64::from(*weight));
                let (exact, size) =
                    products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()));
                let got = f64::from(out.tile(output / LANES)[row][output % LANES]);
                assert!((got - exact).abs() < 1e-5 * size, "({row}, {output}): {got}, not {exact}");
            }
        }
    }
}

#[test]
fn products_on_every_backend() {
    with_every_backend!(a_product_is_the_sum_of_its_products);
}

/// Backends, batch sizes, threads and what was in the output before make no difference to a single bit.
fn a_row_depends_on_nothing_else<L: Lanes>() {
    for matrix in matrices(4) {
        let [mut expected, mut got] = [Columns::default(), Columns::default()];
        matrix.forward::<Portable>(&Team::new(1), &activations(0..53, matrix.form()), &mut expected);
        matrix.forward::<L>(&Team::new(3), &activations(0..53, matrix.form()), &mut got);
        assert_eq!(bits(&got), bits(&expected));
        for rows in (1..=9).chain([15, 16, 17, 33]) {
            matrix.forward::<L>(&Team::new(2), &activations(5..5 + rows, matrix.form()), &mut got);
            for tile in 0..OUTPUTS / LANES {
                assert_eq!(got.tile(tile), &expected.tile(tile)[5..5 + rows], "{rows} rows");
            }
        }
    }
}

#[test]
fn rows_on_every_backend() {
    with_every_backend!(a_row_depends_on_nothing_else);
}

/// More outputs than one thread's share, no multiple of anything, and all below the zeros that the last tile is filled with.
fn rows_are_columns_with_their_peaks<L: Lanes>() {
    let (outputs, rows) = (1003, 43);
    let weights = (0..outputs * INPUTS).map(|at| -1.0 - ((at * 7919) % 1009) as f32 / 64.0).collect();
    let matrix = PackedLinear::pack_floats(weights, INPUTS, Fills::NONE, FloatWeights::Round).unwrap();
    let mut x = Activations::default();
    x.fill::<L>(&Team::new(1), matrix.input_shape(rows), 0, |block, first, out| {
        for (row, out) in out.iter_mut().enumerate() {
            *out = std::array::from_fn(|column| 1.0 + ((block + column) * (first + row) % 13) as f32);
        }
    });
    let mut columns = Columns::default();
    matrix.forward::<L>(&Team::new(1), &x, &mut columns);
    for threads in [1, 3] {
        let (mut out, mut peaks) =
            (vec![f32::NAN; rows * outputs], vec![f32::NAN; rows * outputs.div_ceil(PEAK_COLUMNS)]);
        matrix.forward_rows::<L>(&Team::new(threads), &x, &mut out, &mut peaks);
        for (row, (values, peaks)) in out.chunks(outputs).zip(peaks.chunks(outputs.div_ceil(PEAK_COLUMNS))).enumerate()
        {
            let want: Vec<f32> = (0..outputs).map(|output| columns.tile(output / LANES)[row][output % LANES]).collect();
            assert_eq!(values, want, "row {row}");
            assert!(want.iter().all(|value| *value < 0.0));
            assert_eq!(peaks, peaks_of(&want).collect::<Vec<_>>(), "row {row}");
        }
    }
}

#[test]
fn peaks_on_every_backend() {
    with_every_backend!(rows_are_columns_with_their_peaks);
}

#[test]
fn add_to_adds() {
    for matrix in matrices(5) {
        let (x, mut plain, mut sum) = (activations(0..3, matrix.form()), Columns::default(), Columns::default());
        matrix.forward::<Portable>(&Team::new(1), &x, &mut plain);
        sum.reshape(3, OUTPUTS);
        sum.tiles_mut().fill([2.5; LANES]);
        matrix.add_to::<Portable>(&Team::new(1), &x, &mut sum);
        for tile in 0..OUTPUTS / LANES {
            let expected: Vec<_> = plain.tile(tile).iter().map(|lanes| lanes.map(|lane| 2.5 + lane)).collect();
            assert_eq!(sum.tile(tile), expected);
        }
    }
}

fn gated_is_both_products_and_the_gate<L: Lanes>() {
    for (gate_up, form) in matrices(6).into_iter().flat_map(|matrix| {
        let again = matrices(6).into_iter().find(|other| other.bytes() == matrix.bytes());
        [(Some(matrix), Form::Int8), (again, Form::Float)]
    }) {
        let gate_up = gate_up.expect("the same matrix");
        let (x, team, mut out) = (activations(0..53, gate_up.form()), Team::new(2), Activations::default());
        gated::<L>(&team, &gate_up, &x, form, &mut out);
        let mut both = Columns::default();
        gate_up.forward::<Portable>(&team, &x, &mut both);
        let ups = OUTPUTS / 2 / LANES;
        for (block, row) in (0..OUTPUTS / 2 / BLOCK).flat_map(|block| (0..x.rows()).map(move |row| (block, row))) {
            let half =
                |half| silu_gate::<Portable>(both.tile(2 * block + half)[row], both.tile(ups + 2 * block + half)[row]);
            let mut expected = [0.0; BLOCK];
            expected[..LANES].copy_from_slice(&half(0));
            expected[LANES..].copy_from_slice(&half(1));
            match form {
                Form::Float => assert_eq!(out.floats::<1>(block, row), &[expected]),
                Form::Int8 => {
                    assert_eq!(out.quants::<1>(block, row), &[QuantBlock::quantise::<Portable>(&expected)]);
                }
            }
        }
    }
}

#[test]
fn gates_on_every_backend() {
    with_every_backend!(gated_is_both_products_and_the_gate);
}

#[test]
#[should_panic(expected = "activations are held as the weights want them")]
fn activations_of_the_other_form_are_refused() {
    let matrix = &matrices(7)[0];
    matrix.forward::<Portable>(&Team::new(1), &activations(0..1, Form::Float), &mut Columns::default());
}
