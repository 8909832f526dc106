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
fn formats_of_32_go_over_exactly() {
    for dtype in [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q5_1, GgmlDType::Q8_0] {
        let tensor = matrix(dtype, 1);
        let packed = PackedLinear::pack(&[&tensor]).expect("a matrix");
        assert_eq!((packed.inputs(), packed.outputs()), (WIDTH, ROWS));
        // The same numbers, added up in another order of roundings.
        assert!(error(&packed, 0, &tensor) < 1e-6, "{dtype:?}: {}", error(&packed, 0, &tensor));
    }
}

#[test]
fn other_formats_are_rounded_to_eight_bits() {
    for dtype in [GgmlDType::F32, GgmlDType::F16, GgmlDType::BF16, GgmlDType::Q4K, GgmlDType::Q6K] {
        let tensor = matrix(dtype, 2);
        let packed = PackedLinear::pack(&[&tensor]).expect("a matrix");
        // Half a step of the largest weight that there is, and the rounding of the step itself to half precision.
        assert!(error(&packed, 0, &tensor) < 0.6 * 1.1 / 127.0, "{dtype:?}: {}", error(&packed, 0, &tensor));
    }
}

#[test]
fn stacked_matrices_keep_their_order() {
    for (lower, bytes) in [(GgmlDType::Q4_1, 320), (GgmlDType::Q5_1, 576)] {
        let (a, b) = (matrix(GgmlDType::Q4_0, 3), matrix(lower, 4));
        let packed = PackedLinear::pack(&[&a, &b]).expect("equal widths");
        assert!(error(&packed, 0, &a) < 1e-6);
        assert!(error(&packed, ROWS, &b) < 1e-6);
        assert_eq!(packed.bytes(), bytes * WIDTH / BLOCK * (2 * ROWS).div_ceil(LANES));
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
