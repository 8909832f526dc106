//! A batch as rows: which token each is, where it stands, and which of them share a sequence.

use super::super::attention::{GROUP_ROWS, Group};
use super::super::{ForwardError, PAGE_SIZE, PageId, SequenceSlice};
use crate::io_struct::TokenId;

/// All tokens of a batch, sequence after sequence.
pub(super) struct Batch<'a> {
    pub(super) rows: Vec<Row>,
    /// The rows sorted by the page that they are written to.
    pub(super) by_page: Vec<usize>,
    /// Neighbouring rows of one sequence, for attention.
    pub(super) groups: Vec<Group<'a>>,
    /// Rows whose logits are wanted, in order.
    pub(super) wanted: Vec<usize>,
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
    /// Lays the batch out; refuses what would read or write outside of the model's tables.
    pub(super) fn new(slices: &[SequenceSlice<'a>], limits: Limits) -> Result<Self, ForwardError> {
        let tokens = slices.iter().map(|slice| slice.tokens.len()).sum::<usize>();
        let mut batch = Self {
            rows: Vec::with_capacity(tokens),
            by_page: Vec::new(),
            groups: Vec::with_capacity(slices.len() + tokens / GROUP_ROWS),
            wanted: Vec::with_capacity(slices.len()),
        };
        for (index, slice) in slices.iter().enumerate() {
            let refuse = |message: String| ForwardError::Batch(format!("sequence {index}: {message}"));
            limits.check(slice).map_err(refuse)?;
            batch.push(slice);
        }
        batch.by_page = (0..batch.rows.len()).collect();
        batch.by_page.sort_by_key(|row| batch.rows[*row].page);
        Ok(batch)
    }

    fn push(&mut self, slice: &SequenceSlice<'a>) {
        for (chunk, tokens) in slice.tokens.chunks(GROUP_ROWS).enumerate() {
            let start = slice.start + chunk * GROUP_ROWS;
            let first_row = self.rows.len();
            self.groups.push(Group { first_row, rows: tokens.len(), start, pages: slice.pages });
            self.rows.extend(tokens.iter().zip(start..).map(|(token, position)| Row {
                token: *token,
                position,
                page: slice.pages[position / PAGE_SIZE],
            }));
        }
        if slice.wants_logits {
            self.wanted.push(self.rows.len() - 1);
        }
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
