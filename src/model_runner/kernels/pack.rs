//! From the block formats of GGUF files to tiles.
//!
//! The formats with 32 weights to a block (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0) go over exactly. All others are unpacked and
//! rounded to 8 bits a weight like Q8_0, which is what their product with int8 activations can tell apart anyway.
//! Layouts: `ggml-common.h` of ggml.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Error, Result};
use half::f16;

use super::packed::{ByteTile, NibbleTile, PackedLinear, Tiles};
use super::{BLOCK, LANES};

/// Thirty-two weights of one row: `scale * quants[i] + min`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    quants: [u8; BLOCK],
    scale: f16,
    min: f16,
}

/// One tensor as blocks, row after row.
struct Source {
    blocks: Vec<Block>,
    outputs: usize,
    inputs: usize,
}

impl PackedLinear {
    /// Packs matrices of the same width on top of each other. Four bits a weight if all of them have no more.
    ///
    /// # Errors
    /// A tensor is not a matrix, its width is not that of the first or no multiple of 32.
    pub fn pack(parts: &[&QTensor]) -> Result<Self> {
        let is_nibbles = parts.iter().all(|part| matches!(part.dtype(), GgmlDType::Q4_0 | GgmlDType::Q4_1));
        let sources = parts.iter().map(|part| unpack(part)).collect::<Result<Vec<_>>>()?;
        let inputs = sources.first().map_or(0, |source| source.inputs);
        if inputs == 0 || sources.iter().any(|source| source.inputs != inputs) {
            return Err(Error::Msg("matrices of different width cannot be stacked".to_owned()));
        }
        let outputs = sources.iter().map(|source| source.outputs).sum();
        let blocks: Vec<&[Block]> = sources.iter().flat_map(|s| s.blocks.chunks_exact(inputs / BLOCK)).collect();
        let tiles = if is_nibbles {
            Tiles::Nibbles(tiles(&blocks, NibbleTile::EMPTY, NibbleTile::set))
        } else {
            Tiles::Bytes(tiles(&blocks, ByteTile::EMPTY, ByteTile::set))
        };
        Ok(Self { inputs, outputs, tiles })
    }
}

/// Transposes rows of blocks into tiles.
fn tiles<T: Copy>(rows: &[&[Block]], empty: T, set: impl Fn(&mut T, usize, &Block)) -> Vec<T> {
    let blocks = rows.first().map_or(0, |row| row.len());
    let mut tiles = Vec::with_capacity(rows.len().div_ceil(LANES) * blocks);
    for rows in rows.chunks(LANES) {
        for block in 0..blocks {
            let mut tile = empty;
            for (lane, row) in rows.iter().enumerate() {
                set(&mut tile, lane, &row[block]);
            }
            tiles.push(tile);
        }
    }
    tiles
}

impl NibbleTile {
    const EMPTY: Self = Self { planes: [[0; 4 * LANES]; 4], scale: [0; LANES], min: [0; LANES] };

    fn set(&mut self, lane: usize, block: &Block) {
        for (byte, (low, high)) in block.quants[..16].iter().zip(&block.quants[16..]).enumerate() {
            self.planes[byte / 4][4 * lane + byte % 4] = low | high << 4;
        }
        self.scale[lane] = block.scale.to_bits();
        self.min[lane] = block.min.to_bits();
    }
}

impl ByteTile {
    const EMPTY: Self = Self { planes: [[0; 4 * LANES]; 8], scale: [0; LANES], min: [0; LANES] };

    fn set(&mut self, lane: usize, block: &Block) {
        for (byte, quant) in block.quants.iter().enumerate() {
            self.planes[byte / 4][4 * lane + byte % 4] = *quant;
        }
        self.scale[lane] = block.scale.to_bits();
        self.min[lane] = block.min.to_bits();
    }
}

fn unpack(tensor: &QTensor) -> Result<Source> {
    let (outputs, inputs) = tensor.shape().dims2()?;
    if inputs % BLOCK != 0 {
        return Err(Error::Msg(format!("rows of {inputs} weights: not a multiple of {BLOCK}")));
    }
    let data = tensor.data()?;
    let blocks = match tensor.dtype() {
        GgmlDType::Q4_0 => data.as_chunks().0.iter().map(Block::from_q4_0).collect(),
        GgmlDType::Q4_1 => data.as_chunks().0.iter().map(Block::from_q4_1).collect(),
        GgmlDType::Q5_0 => data.as_chunks().0.iter().map(Block::from_q5_0).collect(),
        GgmlDType::Q5_1 => data.as_chunks().0.iter().map(Block::from_q5_1).collect(),
        GgmlDType::Q8_0 => data.as_chunks().0.iter().map(Block::from_q8_0).collect(),
        _ => {
            let weights = tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
            weights.as_chunks().0.iter().map(Block::round).collect()
        }
    };
    Ok(Source { blocks, outputs, inputs })
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

impl Block {
    fn from_q4_0(bytes: &[u8; 18]) -> Self {
        let scale = half_at(bytes, 0);
        Self { quants: nibbles(&bytes[2..]), scale, min: offset(scale, 8.0) }
    }

    fn from_q4_1(bytes: &[u8; 20]) -> Self {
        Self { quants: nibbles(&bytes[4..]), scale: half_at(bytes, 0), min: half_at(bytes, 2) }
    }

    fn from_q5_0(bytes: &[u8; 22]) -> Self {
        let scale = half_at(bytes, 0);
        Self { quants: five_bits(nibbles(&bytes[6..]), &bytes[2..6]), scale, min: offset(scale, 16.0) }
    }

    fn from_q5_1(bytes: &[u8; 24]) -> Self {
        let quants = five_bits(nibbles(&bytes[8..]), &bytes[4..8]);
        Self { quants, scale: half_at(bytes, 0), min: half_at(bytes, 2) }
    }

    fn from_q8_0(bytes: &[u8; 34]) -> Self {
        let scale = half_at(bytes, 0);
        let quants = std::array::from_fn(|i| bytes[2 + i] ^ 0x80);
        Self { quants, scale, min: offset(scale, 128.0) }
    }

    /// Rounds weights of any format to 8 bits.
    fn round(weights: &[f32; BLOCK]) -> Self {
        let largest = weights.iter().fold(0.0f32, |largest, weight| largest.max(weight.abs()));
        let scale = f16::from_f32(largest / 127.0);
        let step = scale.to_f32();
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        let quants = weights.map(|weight| ((weight * inverse).round().clamp(-127.0, 127.0) + 128.0) as u8);
        Self { quants, scale, min: offset(scale, 128.0) }
    }
}

#[cfg(test)]
mod tests;
