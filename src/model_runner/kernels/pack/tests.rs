//! Tests of `pack`.

use candle_core::Tensor;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

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
        let packed = PackedLinear::pack(&[&tensor]).expect("a matrix");
        assert_eq!((packed.inputs(), packed.outputs()), (WIDTH, ROWS));
        // The same numbers, added up in another order of roundings.
        assert!(error(&packed, 0, &tensor) < 1e-6, "{dtype:?}: {}", error(&packed, 0, &tensor));
    }
}

#[test]
fn scales_of_the_k_formats_are_rounded_to_half_precision() {
    for (dtype, bits) in [(GgmlDType::Q4K, 5), (GgmlDType::Q5K, 6)] {
        let tensor = matrix(dtype, 2);
        let packed = PackedLinear::pack(&[&tensor]).expect("a matrix");
        // Half a unit in the last of eleven bits, of a product below 2 and a minimum below 1.
        assert!(error(&packed, 0, &tensor) < 3.0 / 2048.0, "{dtype:?}: {}", error(&packed, 0, &tensor));
        assert_eq!(packed.bytes(), bits * WIDTH * ROWS.next_multiple_of(LANES) / 8);
    }
}

#[test]
fn other_formats_are_rounded_to_eight_bits() {
    for dtype in [GgmlDType::Q2K, GgmlDType::Q3K, GgmlDType::Q6K] {
        let tensor = matrix(dtype, 2);
        let packed = PackedLinear::pack(&[&tensor]).expect("a matrix");
        // Half a step of the largest weight that there is, and the rounding of the step itself to half precision.
        assert!(error(&packed, 0, &tensor) < 0.6 * 1.1 / 127.0, "{dtype:?}: {}", error(&packed, 0, &tensor));
    }
}

#[test]
fn floats_can_be_packed_without_a_file() {
    let tensor = matrix(GgmlDType::F32, 7);
    let weights = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.flatten_all()?.to_vec1()).expect("floats");
    let pack = |floats| PackedLinear::pack_floats(weights.clone(), WIDTH, floats).expect("whole rows");
    assert!(error(&pack(FloatWeights::Keep), 0, &tensor) == 0.0);
    assert!(error(&pack(FloatWeights::Round), 0, &tensor) < 0.6 / 127.0);
    assert!(PackedLinear::pack_floats(weights[1..].to_vec(), WIDTH, FloatWeights::Keep).is_err());
    assert!(PackedLinear::pack_floats(vec![0.0; 33], 33, FloatWeights::Keep).is_err());
}

#[test]
fn stacked_matrices_keep_their_order() {
    for (lower, bytes) in [(GgmlDType::Q4_1, 320), (GgmlDType::Q5_1, 384), (GgmlDType::Q8_0, 576)] {
        let (a, b) = (matrix(GgmlDType::Q4_0, 3), matrix(lower, 4));
        let packed = PackedLinear::pack(&[&a, &b]).expect("equal widths");
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
        let packed = PackedLinear::pack(&parts).expect("equal widths");
        assert!(error(&packed, 0, parts[0]) < allowed && error(&packed, ROWS, parts[1]) < allowed);
    }
}

#[test]
fn what_is_no_matrix_is_refused() {
    let vector = Tensor::zeros(64, candle_core::DType::F32, &Device::Cpu).expect("a small tensor");
    let narrow = Tensor::zeros((4, 48), candle_core::DType::F32, &Device::Cpu).expect("a small tensor");
    for tensor in [vector, narrow] {
        let tensor = QTensor::quantize(&tensor, GgmlDType::F32).expect("no rounding");
        assert!(PackedLinear::pack(&[&tensor]).is_err());
    }
    assert!(PackedLinear::pack(&[]).is_err());
}
