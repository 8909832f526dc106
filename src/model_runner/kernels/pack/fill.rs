//! Zeros that fill a matrix up to the widths that the kernels need, so that a model of any width can be packed.
//!
//! They are put in once, when a model is loaded. A row of zeros gives a column of zeros, and a column of zeros takes
//! nothing from its input, so no product learns of them.

use half::{bf16, f16};

use super::super::{BLOCK, LANES};
use super::Weights;
use super::blocks::Block;

/// One side of a matrix: after each `of` of its rows or columns come zeros up to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// Length of a part, as a file has it.
    pub of: usize,
    /// Length of a part with the zeros behind it.
    pub to: usize,
}

/// Both sides of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fills {
    /// Of rows.
    pub rows: Fill,
    /// Of the columns of each row.
    pub columns: Fill,
}

/// Width of a head in memory, at least `head_dim`: whole lanes for attention, and of all heads together whole blocks for
/// the product behind it.
#[must_use]
pub fn head_width(head_count: usize, head_dim: usize) -> usize {
    let width = head_dim.next_multiple_of(LANES);
    if (head_count * width).is_multiple_of(BLOCK) { width } else { width.next_multiple_of(BLOCK) }
}

impl Fill {
    /// Nothing is filled in.
    pub const NONE: Self = Self { of: 1, to: 1 };

    /// One part of `of`, filled up to whole blocks.
    #[must_use]
    pub fn to_blocks(of: usize) -> Self {
        Self { of, to: of.next_multiple_of(BLOCK) }
    }

    /// A vector of whole parts with its zeros.
    #[must_use]
    pub fn vector(self, values: Vec<f32>) -> Vec<f32> {
        let width = values.len();
        filled(values, width, Fills { rows: Fill::NONE, columns: self }, 0.0)
    }

    /// How long a side of `len` becomes.
    ///
    /// # Errors
    /// It does not consist of whole parts; in words that follow the name of the tensor.
    pub(super) fn filled(self, len: usize) -> Result<usize, String> {
        if self.of == 0 || self.to < self.of || !len.is_multiple_of(self.of) {
            return Err(format!("{len} rows or columns are not parts of {} to be filled up to {}", self.of, self.to));
        }
        Ok(len / self.of * self.to)
    }

    fn is_none(self) -> bool {
        self.of == self.to
    }

    /// The same in blocks; `None`: zeros come into the middle of one.
    fn in_blocks(self) -> Option<Self> {
        let Self { of, to } = self;
        if self.is_none() {
            return Some(Self::NONE);
        }
        let is_whole = of.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
        is_whole.then_some(Self { of: of / BLOCK, to: to / BLOCK })
    }
}

impl Fills {
    /// Nothing is filled in.
    pub const NONE: Self = Self { rows: Fill::NONE, columns: Fill::NONE };
}

impl Weights {
    /// Rows of `width` with their zeros: in the same format, but as floats where zeros come into the middle of a block.
    pub(super) fn filled(self, width: usize, fills: Fills) -> Self {
        if fills.rows.is_none() && fills.columns.is_none() {
            return self;
        }
        match self {
            Self::F16(weights) => Self::F16(filled(weights, width, fills, f16::ZERO)),
            Self::BF16(weights) => Self::BF16(filled(weights, width, fills, bf16::ZERO)),
            Self::F32(weights) => Self::F32(filled(weights, width, fills, 0.0)),
            Self::Quants(bits, blocks) => match fills.columns.in_blocks() {
                Some(columns) => {
                    Self::Quants(bits, filled(blocks, width / BLOCK, Fills { columns, ..fills }, Block::ZERO))
                }
                None => Self::F32(Self::Quants(bits, blocks).into_f32()).filled(width, fills),
            },
        }
    }
}

/// Rows of `width` with `zero` filled in; they are not touched if there is nothing to fill.
fn filled<T: Copy>(values: Vec<T>, width: usize, Fills { rows, columns }: Fills, zero: T) -> Vec<T> {
    if (rows.is_none() && columns.is_none()) || values.is_empty() {
        return values;
    }
    let filled_width = width / columns.of * columns.to;
    let mut out = Vec::with_capacity(values.len() / (rows.of * width) * rows.to * filled_width);
    for part in values.chunks(rows.of * width) {
        let end = out.len() + rows.to * filled_width;
        for row in part.chunks(width) {
            for part in row.chunks(columns.of) {
                let end = out.len() + columns.to;
                out.extend_from_slice(part);
                out.resize(end, zero);
            }
        }
        out.resize(end, zero);
    }
    out
}
