//! From the block formats of GGUF files to tiles.
//!
//! Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and floats go over exactly, Q4_K and Q5_K with their scales rounded to half precision.
//! All others are unpacked and rounded to 8 bits a weight like Q8_0, which is what their product with int8 activations
//! can tell apart anyway. Layouts: `ggml-common.h` of ggml.

mod blocks;
pub mod fill;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Error, Result};
use half::{bf16, f16};
use rayon::prelude::*;

use super::packed::{PackedLinear, Tiles};
use super::tiles::{ByteTile, Element, FiveTile, FloatTile, NibbleTile, Tile};
use super::{BLOCK, LANES};
use blocks::Block;
use fill::Fills;

/// How many bits a weight needs; the most that a stacked matrix needs are what all its parts get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    Four,
    Five,
    Eight,
}

/// One tensor, row after row.
enum Weights {
    Quants(Width, Vec<Block>),
    F16(Vec<f16>),
    BF16(Vec<bf16>),
    F32(Vec<f32>),
}

/// One tensor of a stacked matrix.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// As the file has it.
    pub tensor: &'a QTensor,
    /// What is filled in.
    pub fills: Fills,
}

/// What becomes of float weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatWeights {
    /// They stay what they are, and their input is not quantised either.
    Keep,
    /// They are rounded to 8 bits.
    Round,
}

impl PackedLinear {
    /// Packs matrices of the same width on top of each other, with zeros filled in. They share one format: floats if all
    /// are floats, otherwise as few bits as will do for all. Weights of few bits are rounded to 8 bits where zeros come
    /// into the middle of a block.
    ///
    /// # Errors
    /// A tensor is not a matrix, it does not consist of the parts that are to be filled up, or its width is then not that
    /// of the first or no multiple of 32.
    pub fn pack(parts: &[Part<'_>]) -> Result<Self> {
        let shapes = parts.iter().map(Part::filled_shape).collect::<Result<Vec<_>>>()?;
        let inputs = shapes.first().map_or(0, |[_, inputs]| *inputs);
        if shapes.iter().any(|[_, width]| *width != inputs) {
            return Err(Error::Msg("matrices of different width cannot be stacked".to_owned()));
        }
        check_width(inputs)?;
        let weights = parts.iter().map(unpack).collect::<Result<Vec<_>>>()?;
        Ok(Self { inputs, outputs: shapes.iter().map(|[rows, _]| rows).sum(), tiles: stack(weights, inputs) })
    }

    /// Packs a matrix of floats, row after row of `inputs`, with zeros filled in.
    ///
    /// # Errors
    /// `weights` are not whole rows, they do not consist of the parts that are to be filled up, or a row is then no
    /// multiple of 32.
    pub fn pack_floats(weights: Vec<f32>, inputs: usize, fills: Fills, floats: FloatWeights) -> Result<Self> {
        if inputs == 0 || !weights.len().is_multiple_of(inputs) {
            return Err(Error::Msg(format!("{} weights are not whole rows of {inputs}", weights.len())));
        }
        let [outputs, width] = filled_shape([weights.len() / inputs, inputs], fills)?;
        check_width(width)?;
        let weights = Weights::F32(weights).filled(inputs, fills);
        let weights = match floats {
            FloatWeights::Keep => weights,
            FloatWeights::Round => weights.rounded(),
        };
        Ok(Self { inputs: width, outputs, tiles: stack(vec![weights], width) })
    }
}

impl Part<'_> {
    /// Rows and columns with what is filled in.
    fn filled_shape(&self) -> Result<[usize; 2]> {
        let (rows, columns) = self.tensor.shape().dims2()?;
        filled_shape([rows, columns], self.fills)
    }
}

fn filled_shape([rows, columns]: [usize; 2], fills: Fills) -> Result<[usize; 2]> {
    let shape = fills.rows.filled(rows).and_then(|rows| Ok([rows, fills.columns.filled(columns)?]));
    shape.map_err(Error::Msg)
}

fn check_width(inputs: usize) -> Result<()> {
    if inputs == 0 || !inputs.is_multiple_of(BLOCK) {
        return Err(Error::Msg(format!("rows of {inputs} weights: not a multiple of {BLOCK}")));
    }
    Ok(())
}

/// The weights of a tensor with what is filled in.
fn unpack(part: &Part<'_>) -> Result<Weights> {
    let (_, width) = part.tensor.shape().dims2()?;
    let weights = read(part.tensor)?.filled(width, part.fills);
    match part.tensor.dtype() {
        GgmlDType::F16 | GgmlDType::BF16 | GgmlDType::F32 => Ok(weights),
        _ => Ok(weights.rounded()),
    }
}

/// The weights of a tensor, in its own format if there are tiles of it, otherwise as floats.
fn read(tensor: &QTensor) -> Result<Weights> {
    let data = tensor.data()?;
    let quants = |width, blocks| Ok(Weights::Quants(width, blocks));
    match tensor.dtype() {
        GgmlDType::Q4_0 => quants(Width::Four, data.as_chunks().0.par_iter().map(Block::from_q4_0).collect()),
        GgmlDType::Q4_1 => quants(Width::Four, data.as_chunks().0.par_iter().map(Block::from_q4_1).collect()),
        GgmlDType::Q4K => quants(Width::Four, data.as_chunks().0.par_iter().flat_map_iter(Block::from_q4_k).collect()),
        GgmlDType::Q5_0 => quants(Width::Five, data.as_chunks().0.par_iter().map(Block::from_q5_0).collect()),
        GgmlDType::Q5_1 => quants(Width::Five, data.as_chunks().0.par_iter().map(Block::from_q5_1).collect()),
        GgmlDType::Q5K => quants(Width::Five, data.as_chunks().0.par_iter().flat_map_iter(Block::from_q5_k).collect()),
        GgmlDType::Q8_0 => quants(Width::Eight, data.as_chunks().0.par_iter().map(Block::from_q8_0).collect()),
        GgmlDType::F16 => Ok(Weights::F16(data.as_chunks().0.iter().copied().map(f16::from_le_bytes).collect())),
        GgmlDType::BF16 => Ok(Weights::BF16(data.as_chunks().0.iter().copied().map(bf16::from_le_bytes).collect())),
        GgmlDType::F32 => Ok(Weights::F32(data.as_chunks().0.iter().copied().map(f32::from_le_bytes).collect())),
        _ => Ok(Weights::F32(tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1()?)),
    }
}

/// Tiles of the one format that does for all parts.
fn stack(parts: Vec<Weights>, inputs: usize) -> Tiles {
    let parts = match as_one_kind(parts) {
        Kind::F16(rows) => return Tiles::F16(float_tiles(&rows, inputs).into()),
        Kind::BF16(rows) => return Tiles::BF16(float_tiles(&rows, inputs).into()),
        Kind::F32(rows) => return Tiles::F32(float_tiles(&rows, inputs).into()),
        Kind::Quants(width, blocks) => (width, blocks),
    };
    let (width, blocks) = parts;
    match width {
        Width::Four => Tiles::Nibbles(tiles(&blocks, inputs / BLOCK, NibbleTile::EMPTY, NibbleTile::set).into()),
        Width::Five => Tiles::Fives(tiles(&blocks, inputs / BLOCK, FiveTile::EMPTY, FiveTile::set).into()),
        Width::Eight => Tiles::Bytes(tiles(&blocks, inputs / BLOCK, ByteTile::EMPTY, ByteTile::set).into()),
    }
}

/// All parts together, in one format.
type Kind = Weights;

fn as_one_kind(parts: Vec<Weights>) -> Kind {
    let mut parts = parts.into_iter();
    let first = parts.next().unwrap_or(Weights::F32(Vec::new()));
    parts.fold(first, Weights::and)
}

impl Weights {
    /// Both, one below the other.
    fn and(self, below: Self) -> Self {
        match (self, below) {
            (Self::F16(above), Self::F16(below)) => Self::F16([above, below].concat()),
            (Self::BF16(above), Self::BF16(below)) => Self::BF16([above, below].concat()),
            (Self::Quants(a, above), Self::Quants(b, below)) => Self::Quants(a.max(b), [above, below].concat()),
            (above @ Self::Quants(..), below) => above.and(below.rounded()),
            (above, below @ Self::Quants(..)) => above.rounded().and(below),
            (above, below) => Self::F32([above.into_f32(), below.into_f32()].concat()),
        }
    }

    /// As floats; only of floats.
    fn into_f32(self) -> Vec<f32> {
        match self {
            Self::F16(weights) => weights.into_iter().map(f16::to_f32).collect(),
            Self::BF16(weights) => weights.into_iter().map(bf16::to_f32).collect(),
            Self::F32(weights) => weights,
            Self::Quants(_, blocks) => blocks.iter().flat_map(Block::floats).collect(),
        }
    }

    /// Eight bits a weight.
    fn rounded(self) -> Self {
        match self {
            quants @ Self::Quants(..) => quants,
            floats => {
                let floats = floats.into_f32();
                Self::Quants(Width::Eight, floats.as_chunks().0.iter().map(Block::round).collect())
            }
        }
    }
}

/// Transposes rows of blocks into tiles.
fn tiles<T: Tile>(blocks: &[Block], width: usize, empty: T, set: impl Fn(&mut T, usize, &Block) + Sync) -> Vec<T> {
    let stripes = blocks.par_chunks(LANES * width).map(|rows| {
        let tile = |block| {
            let mut tile = empty;
            for (lane, row) in rows.chunks_exact(width).enumerate() {
                set(&mut tile, lane, &row[block]);
            }
            tile
        };
        (0..width).map(tile).collect::<Vec<_>>()
    });
    stripes.collect::<Vec<_>>().concat()
}

/// Transposes rows of floats into tiles.
fn float_tiles<E: Element + Default>(weights: &[E], width: usize) -> Vec<FloatTile<E>> {
    let rows: Vec<&[[E; BLOCK]]> = weights.chunks_exact(width).map(|row| row.as_chunks().0).collect();
    let mut tiles = Vec::with_capacity(rows.len().div_ceil(LANES) * width / BLOCK);
    for rows in rows.chunks(LANES) {
        for block in 0..width / BLOCK {
            let mut tile = FloatTile { columns: [[E::default(); LANES]; BLOCK] };
            for (lane, row) in rows.iter().enumerate() {
                tile.columns.iter_mut().zip(row[block]).for_each(|(column, weight)| column[lane] = weight);
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

impl FiveTile {
    const EMPTY: Self = Self { planes: [[0; 4 * LANES]; 4], fifth: [0; 4 * LANES], scale: [0; LANES], min: [0; LANES] };

    fn set(&mut self, lane: usize, block: &Block) {
        for (byte, (low, high)) in block.quants[..16].iter().zip(&block.quants[16..]).enumerate() {
            self.planes[byte / 4][4 * lane + byte % 4] = low & 0x0f | high << 4;
        }
        for (column, quant) in block.quants.iter().enumerate() {
            self.fifth[4 * lane + column % 4] |= (quant >> 4) << (column / 4);
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

#[cfg(test)]
mod tests;
