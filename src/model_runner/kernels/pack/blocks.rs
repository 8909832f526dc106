//! Thirty-two weights as they stand in a GGUF file.

use half::f16;

use super::super::BLOCK;

/// Blocks of 32 in a block of the K formats.
const SUB_BLOCKS: usize = 8;

/// Thirty-two weights of one row: `scale * quants[i] + min`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Block {
    pub(super) quants: [u8; BLOCK],
    pub(super) scale: f16,
    pub(super) min: f16,
}

fn half_at(bytes: &[u8], at: usize) -> f16 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Low bits are the first sixteen weights, high bits the others.
fn nibbles(bytes: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| if i < 16 { bytes[i] & 0x0f } else { bytes[i - 16] >> 4 })
}

/// Adds a fifth bit from a mask of 32.
fn five_bits(quants: [u8; BLOCK], mask: &[u8]) -> [u8; BLOCK] {
    std::array::from_fn(|i| quants[i] | (mask[i / 8] >> (i % 8) & 1) << 4)
}

/// A minimum of `-steps * scale`: a power of two, so exact.
fn offset(scale: f16, steps: f32) -> f16 {
    f16::from_f32(-steps * scale.to_f32())
}

/// Scale and minimum of a sub-block, 6 bits each, out of the twelve bytes that hold all eight.
fn six_bits(packed: &[u8], sub_block: usize) -> [u8; 2] {
    let low = sub_block % 4;
    let [a, b, c] = [packed[low], packed[low + 4], packed[low + 8]];
    if sub_block < 4 { [a & 63, b & 63] } else { [c & 0x0f | a >> 6 << 4, c >> 4 | b >> 6 << 4] }
}

impl Block {
    /// Nothing but zeros, in every format.
    pub(super) const ZERO: Self = Self { quants: [0; BLOCK], scale: f16::ZERO, min: f16::ZERO };

    pub(super) fn from_q4_0(bytes: &[u8; 18]) -> Self {
        let scale = half_at(bytes, 0);
        Self { quants: nibbles(&bytes[2..]), scale, min: offset(scale, 8.0) }
    }

    pub(super) fn from_q4_1(bytes: &[u8; 20]) -> Self {
        Self { quants: nibbles(&bytes[4..]), scale: half_at(bytes, 0), min: half_at(bytes, 2) }
    }

    pub(super) fn from_q5_0(bytes: &[u8; 22]) -> Self {
        let scale = half_at(bytes, 0);
        Self { quants: five_bits(nibbles(&bytes[6..]), &bytes[2..6]), scale, min: offset(scale, 16.0) }
    }

    pub(super) fn from_q5_1(bytes: &[u8; 24]) -> Self {
        let quants = five_bits(nibbles(&bytes[8..]), &bytes[4..8]);
        Self { quants, scale: half_at(bytes, 0), min: half_at(bytes, 2) }
    }

    pub(super) fn from_q8_0(bytes: &[u8; 34]) -> Self {
        let scale = half_at(bytes, 0);
        let quants = std::array::from_fn(|i| bytes[2 + i] ^ 0x80);
        Self { quants, scale, min: offset(scale, 128.0) }
    }

    /// Two halves, twelve bytes of scales and minima, then 128 bytes of nibbles: of 32 bytes each, the low bits are one
    /// sub-block and the high bits the next.
    pub(super) fn from_q4_k(bytes: &[u8; 144]) -> [Self; SUB_BLOCKS] {
        let (scales, quants) = (&bytes[4..16], &bytes[16..]);
        std::array::from_fn(|sub_block| Self {
            quants: std::array::from_fn(|i| quants[sub_block / 2 * BLOCK + i] >> (sub_block % 2 * 4) & 0x0f),
            ..Self::sub_block(bytes, scales, sub_block)
        })
    }

    /// As Q4_K, with 32 bytes of fifth bits in between: bit `b` of byte `i` belongs to weight `i` of sub-block `b`.
    pub(super) fn from_q5_k(bytes: &[u8; 176]) -> [Self; SUB_BLOCKS] {
        let (scales, fifth, quants) = (&bytes[4..16], &bytes[16..48], &bytes[48..]);
        std::array::from_fn(|sub_block| Self {
            quants: std::array::from_fn(|i| {
                let nibble = quants[sub_block / 2 * BLOCK + i] >> (sub_block % 2 * 4) & 0x0f;
                nibble | (fifth[i] >> sub_block & 1) << 4
            }),
            ..Self::sub_block(bytes, scales, sub_block)
        })
    }

    /// Scale and minimum of a sub-block of the K formats.
    fn sub_block(bytes: &[u8], scales: &[u8], sub_block: usize) -> Self {
        let [scale, min] = six_bits(scales, sub_block);
        let product = |of: f16, steps: u8| f16::from_f32(of.to_f32() * f32::from(steps));
        let (scale, min) = (product(half_at(bytes, 0), scale), product(half_at(bytes, 2), min));
        Self { quants: [0; BLOCK], scale, min: -min }
    }

    /// Rounds weights of any format to 8 bits.
    pub(super) fn round(weights: &[f32; BLOCK]) -> Self {
        let largest = weights.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
        let scale = f16::from_f32(largest / 127.0);
        let step = scale.to_f32();
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        let quants = weights.map(|weight| ((weight * inverse).round().clamp(-127.0, 127.0) + 128.0) as u8);
        Self { quants, scale, min: offset(scale, 128.0) }
    }

    /// The weights.
    pub(super) fn floats(&self) -> [f32; BLOCK] {
        let (scale, min) = (self.scale.to_f32(), self.min.to_f32());
        self.quants.map(|quant| scale.mul_add(f32::from(quant), min))
    }
}
