//! What a forward pass gives: a row of logits for each sequence that wanted one, and how high they go.

use super::kernels::peaks::{PEAK_COLUMNS, largest, peaks};
use crate::io_struct::TokenId;

/// Logits that are looked at together.
const WIDTH: usize = 16;

/// Logits of the sequences that wanted them, in batch order: one row of `vocab_size` each. An embedding model's rows are
/// the embeddings, at whose peaks nobody looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Logits {
    /// Row after row.
    pub values: Vec<f32>,
    /// Row after row, the largest of each [`PEAK_COLUMNS`] neighbours.
    pub peaks: Vec<f32>,
    /// Width of a row.
    pub vocab_size: usize,
}

/// Logits of one sequence.
#[derive(Debug, Clone, Copy)]
pub struct LogitsRow<'a> {
    values: &'a [f32],
    peaks: &'a [f32],
}

impl Logits {
    /// Rows of `vocab_size` each, for a runner that has not looked for the peaks on its way.
    #[must_use]
    pub fn new(values: Vec<f32>, vocab_size: usize) -> Self {
        let peaks = values.chunks_exact(vocab_size).flat_map(peaks).collect();
        Self { values, peaks, vocab_size }
    }

    /// Makes room for so many rows; what was in them means nothing afterwards.
    pub fn reshape(&mut self, rows: usize, vocab_size: usize) {
        self.vocab_size = vocab_size;
        self.values.resize(rows * vocab_size, 0.0);
        self.peaks.resize(rows * vocab_size.div_ceil(PEAK_COLUMNS), 0.0);
    }

    /// The rows, in batch order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.vocab_size)
    }

    /// The rows with their peaks, in batch order.
    pub fn peaked_rows(&self) -> impl Iterator<Item = LogitsRow<'_>> {
        let peaks = self.peaks.chunks_exact(self.vocab_size.div_ceil(PEAK_COLUMNS));
        self.rows().zip(peaks).map(|(values, peaks)| LogitsRow { values, peaks })
    }
}

impl<'a> LogitsRow<'a> {
    /// `values` with `room` for their peaks.
    pub fn new(values: &'a [f32], room: &'a mut Vec<f32>) -> Self {
        room.clear();
        room.extend(peaks(values));
        Self { values, peaks: room }
    }

    /// All of them, by the ids of their tokens.
    #[must_use]
    pub fn values(self) -> &'a [f32] {
        self.values
    }

    /// The largest; never a NaN.
    #[must_use]
    pub fn largest(self) -> f32 {
        largest(self.peaks)
    }

    /// The first of the largest.
    #[must_use]
    pub fn argmax(self) -> TokenId {
        let largest = self.largest();
        let peak = self.peaks.iter().position(|peak| *peak == largest).unwrap_or_default();
        let neighbours = self.values.iter().skip(peak * PEAK_COLUMNS);
        let place = neighbours.clone().position(|logit| *logit == largest).unwrap_or_default();
        TokenId((peak * PEAK_COLUMNS + place) as u32)
    }

    /// A logit that at least `count` reach, and few more unless they are neighbours; `None`: there are too few peaks to
    /// tell.
    #[must_use]
    pub fn floor(self, count: usize) -> Option<f32> {
        let place = count.checked_sub(1).filter(|place| *place < self.peaks.len())?;
        let mut peaks = self.peaks.to_vec();
        let (_, floor, _) = peaks.select_nth_unstable_by(place, |a, b| b.total_cmp(a));
        Some(*floor)
    }

    /// The tokens whose logits are at least `floor`, in order of their ids.
    #[must_use]
    pub fn at_least(self, floor: f32) -> Vec<(TokenId, f32)> {
        let mut found = Vec::new();
        let groups = self.values.chunks(PEAK_COLUMNS).zip((0..).step_by(PEAK_COLUMNS)).zip(self.peaks);
        for ((group, first), _) in groups.filter(|(_, peak)| **peak >= floor) {
            for (some, first) in group.chunks(WIDTH).zip((first..).step_by(WIDTH)) {
                // All at once first: there are few that are high enough.
                if some.iter().fold(false, |any, logit| any | (*logit >= floor)) {
                    let tokens = (first..).map(TokenId).zip(some.iter().copied());
                    found.extend(tokens.filter(|(_, logit)| *logit >= floor));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_row<R>(values: &[f32], look: impl FnOnce(LogitsRow<'_>) -> R) -> R {
        look(LogitsRow::new(values, &mut Vec::new()))
    }

    #[test]
    fn the_largest_wherever_it_is() {
        for len in [1, 15, 16, 17, 63, 64, 65, 200] {
            for place in 0..len {
                let mut logits = vec![-1.0; len];
                (logits[0], logits[len - 1]) = (f32::NAN, f32::NEG_INFINITY);
                logits[place] = 2.0;
                with_row(&logits, |row| {
                    assert_eq!((row.argmax(), row.largest()), (TokenId(place as u32), 2.0));
                    assert_eq!(row.at_least(2.0), [(TokenId(place as u32), 2.0)]);
                });
            }
        }
        for nowhere_else in [3.0, f32::NAN] {
            with_row(&[nowhere_else; 140], |row| assert_eq!(row.argmax(), TokenId(0), "the first of many"));
        }
    }

    #[test]
    fn a_floor_is_reached_by_as_many_as_asked_for() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32).collect();
        with_row(&logits, |row| {
            for count in 1..=16 {
                let found = row.at_least(row.floor(count).unwrap()).len();
                assert!((count..4 * count + 20).contains(&found), "{found} for {count}");
            }
            assert_eq!((row.floor(0), row.floor(17)), (None, None), "there are 16 peaks");
        });
        assert_eq!(with_row(&[2.0; 200], |row| row.floor(3)), Some(2.0));
        assert_eq!(with_row(&[f32::NAN; 200], |row| row.floor(1)), Some(f32::NEG_INFINITY));
    }

    #[test]
    fn each_row_has_its_own_peaks() {
        let values: Vec<f32> = (0..3 * 70).map(|place| (place % 70) as f32 + 100.0 * (place / 70) as f32).collect();
        let logits = Logits::new(values, 70);
        assert_eq!(logits.peaks, [63.0, 69.0, 163.0, 169.0, 263.0, 269.0]);
        assert_eq!(logits.peaked_rows().map(LogitsRow::largest).collect::<Vec<_>>(), [69.0, 169.0, 269.0]);
    }
}
