//! A batch as rows: which token each is, where it stands, and which of them share a sequence.

use super::super::attention::{GROUP_ROWS, Group};
use super::super::{ForwardError, PAGE_SIZE, PageId, SequenceSlice};
use crate::io_struct::TokenId;

/// All tokens of a batch, sequence after sequence.
pub(super) struct Batch<'a> {
    slices: &'a [SequenceSlice<'a>],
    pub(super) rows: &'a [Row],
    /// The rows sorted by the page that they are written to.
    pub(super) by_page: &'a [usize],
    /// Rows whose logits are wanted, in order.
    pub(super) wanted: &'a [usize],
}

/// Where batches are laid out; kept from pass to pass, so that its memory is.
#[derive(Default)]
pub(super) struct Layout {
    rows: Vec<Row>,
    by_page: Vec<usize>,
    wanted: Vec<usize>,
}

/// One token of a batch.
pub(super) struct Row {
    pub(super) token: TokenId,
    /// In its sequence.
    pub(super) position: usize,
    /// Where its key and value go.
    pub(super) page: PageId,
}

/// What a batch must not exceed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) vocab_size: usize,
    pub(super) context_length: usize,
    pub(super) pages: usize,
}

impl<'a> Batch<'a> {
    /// Neighbouring rows of one sequence, for attention.
    pub(super) fn groups(&self) -> impl Iterator<Item = Group<'a>> + Clone + Send + use<'a> {
        let mut next_row = 0;
        self.slices.iter().flat_map(move |slice| {
            let first_row = next_row;
            next_row += slice.tokens.len();
            slice.tokens.chunks(GROUP_ROWS).zip((0..).step_by(GROUP_ROWS)).map(move |(tokens, place)| Group {
                first_row: first_row + place,
                rows: tokens.len(),
                start: slice.start + place,
                pages: slice.pages,
            })
        })
    }
}

impl Layout {
    /// Lays a batch out; refuses what would read or write outside of the model's tables.
    pub(super) fn lay_out<'a>(
        &'a mut self,
        slices: &'a [SequenceSlice<'a>],
        limits: Limits,
    ) -> Result<Batch<'a>, ForwardError> {
        let Self { rows, by_page, wanted } = self;
        rows.clear();
        wanted.clear();
        for (index, slice) in slices.iter().enumerate() {
            let refuse = |message: String| ForwardError::Batch(format!("sequence {index}: {message}"));
            limits.check(slice).map_err(refuse)?;
            rows.extend(slice.tokens.iter().zip(slice.start..).map(|(token, position)| Row {
                token: *token,
                position,
                page: slice.pages[position / PAGE_SIZE],
            }));
            wanted.extend(slice.wants_logits.then(|| rows.len() - 1));
        }
        by_page.clear();
        by_page.extend(0..rows.len());
        by_page.sort_unstable_by_key(|row| (rows[*row].page, *row));
        Ok(Batch { slices, rows, by_page, wanted })
    }
}

impl Limits {
    fn check(self, slice: &SequenceSlice<'_>) -> Result<(), String> {
        let Self { vocab_size, context_length, pages } = self;
        let end = slice.start.saturating_add(slice.tokens.len());
        if slice.tokens.is_empty() {
            return Err("no tokens".to_owned());
        }
        if end > context_length {
            return Err(format!("{end} tokens, the context length is {context_length}"));
        }
        if let Some(token) = slice.tokens.iter().find(|token| token.index() >= vocab_size) {
            return Err(format!("token {token} is not below the vocabulary size {vocab_size}"));
        }
        let needed = end.div_ceil(PAGE_SIZE);
        let Some(used) = slice.pages.get(..needed) else {
            return Err(format!("{end} tokens need {needed} pages, {} are given", slice.pages.len()));
        };
        match used.iter().find(|page| page.0 as usize >= pages) {
            Some(page) => Err(format!("page {} is not in the pool of {pages}", page.0)),
            None => Ok(()),
        }
    }
}
