//! How high neighbouring numbers go, noted on the way: what makes a long row quick to search.

/// Neighbours that have one peak, the largest of them.
pub const PEAK_COLUMNS: usize = 64;

/// Numbers that are looked at together.
const WIDTH: usize = 16;

/// The peaks of a row; the last is perhaps that of fewer neighbours.
pub fn peaks(row: &[f32]) -> impl Iterator<Item = f32> {
    row.chunks(PEAK_COLUMNS).map(largest)
}

/// The largest number; never a NaN.
#[must_use]
pub fn largest(values: &[f32]) -> f32 {
    let (groups, rest) = values.as_chunks::<WIDTH>();
    let mut largest = [f32::NEG_INFINITY; WIDTH];
    for group in groups {
        for (largest, value) in largest.iter_mut().zip(group) {
            *largest = if *value > *largest { *value } else { *largest };
        }
    }
    largest.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a })
}
