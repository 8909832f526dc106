//! Tests of `pack`.

use candle_core::Tensor;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::lanes::with_every_backend;
use super::super::{Activations, Columns, Lanes, Team};
use super::fill::{Fill, head_width};
use super::*;

/// Not a whole number of tiles.
const ROWS: usize = 21;
const WIDTH: usize = 256;

fn matrix(dtype: GgmlDType, seed: u64) -> QTensor {
    let mut random = StdRng::seed_from_u64(seed);
    let weights: Vec<f32> = (0..ROWS * WIDTH).map(|_| random.random_range(-1.0..1.0)).collect();
    let tensor = Tensor::from_vec(weights, (ROWS, WIDTH), &Device::Cpu).expect("the shape fits");
    QTensor::quantize(&tensor, dtype).expect("a known format")
}

fn pack(tensors: &[&QTensor]) -> Result<PackedLinear> {
    PackedLinear::pack(&tensors.iter().map(|tensor| Part { tensor, fills: Fills::NONE }).collect::<Vec<_>>())
}

/// The largest difference between our rows and candle's.
fn error(packed: &PackedLinear, first: usize, tensor: &QTensor) -> f32 {
    let expected = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_vec2::<f32>()).expect("a matrix");
    let mut row = vec![0.0; WIDTH];
    let mut largest = 0.0f32;
    for (index, expected) in expected.iter().enumerate() {
        packed.row(first + index, &mut row);
        largest = row.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(largest, f32::max);
    }
    largest
}

#[test]
fn formats_that_have_tiles_go_over_exactly() {
    use GgmlDType::{BF16, F16, F32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    for dtype in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, F16, BF16, F32] {
        let tensor = matrix(dtype, 1);
        let packed = pack(&[&tensor]).expect("a matrix");
        assert_eq!((packed.inputs(), packed.outputs()), (WIDTH, ROWS));
        // The same numbers, added up in another order of roundings.
        assert!(error(&packed, 0, &tensor) < 1e-6, "{dtype:?}: {}", error(&packed, 0, &tensor));
    }
}

#[test]
fn scales_of_the_k_formats_are_rounded_to_half_precision() {
    for (dtype, bits) in [(GgmlDType::Q4K, 5), (GgmlDType::Q5K, 6)] {
        let tensor = matrix(dtype, 2);
        let packed = pack(&[&tensor]).expect("a matrix");
        // Half a unit in the last of eleven bits, of a product below 2 and a minimum below 1.
        assert!(error(&packed, 0, &tensor) < 3.0 / 2048.0, "{dtype:?}: {}", error(&packed, 0, &tensor));
        assert_eq!(packed.bytes(), bits * WIDTH * ROWS.next_multiple_of(LANES) / 8);
    }
}

#[test]
fn other_formats_are_rounded_to_eight_bits() {
    for dtype in [GgmlDType::Q2K, GgmlDType::Q3K, GgmlDType::Q6K] {
        let tensor = matrix(dtype, 2);
        let packed = pack(&[&tensor]).expect("a matrix");
        // Half a step of the largest weight that there is, and the rounding of the step itself to half precision.
        assert!(error(&packed, 0, &tensor) < 0.6 * 1.1 / 127.0, "{dtype:?}: {}", error(&packed, 0, &tensor));
    }
}

#[test]
fn floats_can_be_packed_without_a_file() {
    let tensor = matrix(GgmlDType::F32, 7);
    let weights = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.flatten_all()?.to_vec1()).expect("floats");
    let pack = |floats| PackedLinear::pack_floats(weights.clone(), WIDTH, Fills::NONE, floats).expect("whole rows");
    assert!(error(&pack(FloatWeights::Keep), 0, &tensor) == 0.0);
    assert!(error(&pack(FloatWeights::Round), 0, &tensor) < 0.6 / 127.0);
    assert!(PackedLinear::pack_floats(weights[1..].to_vec(), WIDTH, Fills::NONE, FloatWeights::Keep).is_err());
    assert!(PackedLinear::pack_floats(vec![0.0; 33], 33, Fills::NONE, FloatWeights::Keep).is_err());
}

#[test]
fn stacked_matrices_keep_their_order() {
    for (lower, bytes) in [(GgmlDType::Q4_1, 320), (GgmlDType::Q5_1, 384), (GgmlDType::Q8_0, 576)] {
        let (a, b) = (matrix(GgmlDType::Q4_0, 3), matrix(lower, 4));
        let packed = pack(&[&a, &b]).expect("equal widths");
        assert!(error(&packed, 0, &a) < 1e-6);
        assert!(error(&packed, ROWS, &b) < 1e-6);
        assert_eq!(packed.bytes(), bytes * WIDTH / BLOCK * (2 * ROWS).div_ceil(LANES));
    }
}

/// Floats beside few bits are rounded; floats beside other floats are not.
#[test]
fn stacked_matrices_of_different_kinds_share_a_format() {
    let [float, half, quants] = [GgmlDType::F32, GgmlDType::F16, GgmlDType::Q4_0].map(|dtype| matrix(dtype, 5));
    for (parts, allowed) in [
        ([&float, &half], 1e-6),
        ([&half, &float], 1e-6),
        ([&quants, &float], 0.6 / 127.0),
        ([&half, &quants], 0.6 / 127.0),
    ] {
        let packed = pack(&parts).expect("equal widths");
        assert!(error(&packed, 0, parts[0]) < allowed && error(&packed, ROWS, parts[1]) < allowed);
    }
}

#[test]
fn what_is_no_matrix_is_refused() {
    let vector = Tensor::zeros(64, candle_core::DType::F32, &Device::Cpu).expect("a small tensor");
    let narrow = Tensor::zeros((4, 48), candle_core::DType::F32, &Device::Cpu).expect("a small tensor");
    for tensor in [vector, narrow] {
        let tensor = QTensor::quantize(&tensor, GgmlDType::F32).expect("no rounding");
        assert!(pack(&[&tensor]).is_err());
    }
    assert!(pack(&[]).is_err());
}

/// Into heads of 7 rows each; then one part of all columns, whole blocks of them, and some that end inside of a block.
const FILLED: [Fills; 4] = [
    Fills { rows: Fill { of: 7, to: 16 }, columns: Fill::NONE },
    Fills { rows: Fill { of: 21, to: 32 }, columns: Fill { of: 256, to: 288 } },
    Fills { rows: Fill { of: 7, to: 7 }, columns: Fill { of: 64, to: 96 } },
    Fills { rows: Fill { of: 3, to: 16 }, columns: Fill { of: 8, to: 16 } },
];

/// Row after row, each weight put where it belongs.
fn naive(tensor: &QTensor, Fills { rows, columns }: Fills) -> Vec<Vec<f32>> {
    let weights = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_vec2::<f32>()).expect("a matrix");
    let mut filled = vec![vec![0.0; WIDTH / columns.of * columns.to]; ROWS / rows.of * rows.to];
    for (row, weights) in weights.iter().enumerate() {
        for (column, weight) in weights.iter().enumerate() {
            filled[row / rows.of * rows.to + row % rows.of][column / columns.of * columns.to + column % columns.of] =
                *weight;
        }
    }
    filled
}

fn zeros_are_where_nothing_is<L: Lanes>() {
    use GgmlDType::{BF16, F16, F32, Q4_0, Q4K, Q5_1, Q6K, Q8_0};
    for (dtype, fills) in [F32, F16, BF16, Q8_0, Q5_1, Q4_0, Q4K, Q6K].into_iter().zip(FILLED.into_iter().cycle()) {
        let tensor = matrix(dtype, 8);
        let expected = naive(&tensor, fills);
        let packed = PackedLinear::pack(&[Part { tensor: &tensor, fills }]).expect("whole parts");
        assert_eq!((packed.outputs(), packed.inputs()), (expected.len(), expected[0].len()));
        // Where nothing counts, the input is anything.
        let (team, rows) = (Team::new(2), 3);
        let (mut x, mut out) = (Activations::default(), Columns::default());
        let value = |row: usize, column: usize| ((row * 31 + column * 17) % 23) as f32 / 11.0 - 1.0;
        x.fill::<L>(&team, packed.input_shape(rows), 0, |block, first, out| {
            for (row, out) in out.iter_mut().enumerate() {
                *out = std::array::from_fn(|lane| value(first + row, block * BLOCK + lane));
            }
        });
        packed.forward::<L>(&team, &x, &mut out);
        let mut weights = vec![0.0; packed.inputs()];
        for (output, expected) in expected.iter().enumerate() {
            packed.row(output, &mut weights);
            for (weight, expected) in weights.iter().zip(expected) {
                assert!((weight - expected).abs() < 0.6 / 127.0, "{dtype:?}, {fills:?}: {weight}, not {expected}");
                assert!(*expected != 0.0 || weight.abs() < 1e-6, "{dtype:?}, {fills:?}: {weight} where nothing is");
            }
            for row in 0..rows {
                let exact: f32 = expected.iter().enumerate().map(|(column, weight)| value(row, column) * weight).sum();
                let got = out.tile(output / LANES)[row][output % LANES];
                assert!(
                    (got - exact).abs() < 0.2,
                    "{dtype:?}, {fills:?}, row {row}, output {output}: {got}, not {exact}"
                );
            }
        }
    }
}

#[test]
fn filled_up_on_every_backend() {
    with_every_backend!(zeros_are_where_nothing_is);
}

/// Of floats nothing is rounded, and of blocks only those into which zeros come.
#[test]
fn only_what_is_cut_is_rounded() {
    for (dtype, fills, bytes) in [
        (GgmlDType::Q4_0, FILLED[0], 20),
        (GgmlDType::Q4_0, FILLED[1], 20),
        (GgmlDType::Q4_0, FILLED[2], 20),
        (GgmlDType::Q4_0, FILLED[3], 36),
        (GgmlDType::F16, FILLED[3], 64),
    ] {
        let tensor = matrix(dtype, 9);
        let packed = PackedLinear::pack(&[Part { tensor: &tensor, fills }]).expect("whole parts");
        assert_eq!(packed.bytes(), bytes * packed.inputs() / BLOCK * packed.outputs().next_multiple_of(LANES));
        let (expected, mut weights) = (naive(&tensor, fills), vec![0.0; packed.inputs()]);
        let is_rounded = fills == FILLED[3] && dtype == GgmlDType::Q4_0;
        for (row, expected) in expected.iter().enumerate() {
            packed.row(row, &mut weights);
            let error = weights.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(error < if is_rounded { 0.6 / 127.0 } else { 1e-6 }, "{dtype:?}, {fills:?}: {error}");
        }
    }
}

#[test]
fn what_has_no_such_parts_is_refused() {
    let tensor = matrix(GgmlDType::F32, 10);
    let whole = Fill::to_blocks(WIDTH);
    for (rows, columns) in [
        (Fill { of: 5, to: 16 }, whole),
        (Fill { of: 0, to: 16 }, whole),
        (Fill { of: 7, to: 6 }, whole),
        (Fill::NONE, Fill { of: 48, to: 64 }),
        (Fill::NONE, Fill { of: 64, to: 65 }),
    ] {
        let fills = Fills { rows, columns };
        assert!(PackedLinear::pack(&[Part { tensor: &tensor, fills }]).is_err(), "{fills:?}");
    }
}

#[test]
fn heads_are_as_wide_as_they_must_be() {
    for (heads, dim, want) in
        [(4, 64, 64), (3, 12, 32), (4, 12, 16), (1, 16, 32), (3, 80, 96), (2, 80, 80), (2, 33, 48)]
    {
        assert_eq!(head_width(heads, dim), want, "{heads} heads of {dim}");
    }
}
