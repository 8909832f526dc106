//! A matrix that lies row after row, for threads of which each writes some of its columns.
#![expect(unsafe_code, reason = "columns of neighbouring rows alternate in memory, which slices cannot say")]

use std::marker::PhantomData;
use std::slice::from_raw_parts_mut;

/// Some neighbouring columns of all rows of a matrix.
pub(super) struct Panel<'a, T> {
    /// The first column in the first row.
    start: *mut T,
    rows: usize,
    /// From row to row.
    stride: usize,
    columns: usize,
    matrix: PhantomData<&'a mut [T]>,
}

// SAFETY: a panel is a mutable borrow of places that no other panel has.
unsafe impl<T: Send> Send for Panel<'_, T> {}

/// All panels of a matrix whose rows are `width` long, each of so many columns, the last one of what is left.
pub(super) fn panels<T>(matrix: &mut [T], width: usize, columns: usize) -> impl Iterator<Item = Panel<'_, T>> {
    let rows = matrix.len() / width;
    // Without rows there is no place where a panel could begin.
    let left = if rows == 0 { 0 } else { width };
    let mut rest = Panel { start: matrix.as_mut_ptr(), rows, stride: width, columns: left, matrix: PhantomData };
    std::iter::from_fn(move || rest.split_off(columns))
}

impl<'a, T> Panel<'a, T> {
    /// Its first columns, which it has no longer.
    fn split_off(&mut self, columns: usize) -> Option<Panel<'a, T>> {
        let columns = columns.min(self.columns);
        let first = Panel { columns, ..*self };
        self.columns -= columns;
        // SAFETY: so many columns are left in the first row, or none, and this is where it ends.
        self.start = unsafe { self.start.add(columns) };
        (columns > 0).then_some(first)
    }
}

impl<T> Panel<'_, T> {
    /// How many it has.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Its part of one row.
    pub(super) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row lies inside of the matrix, and its columns from `start` on are this panel's alone: what was split off
        // begins behind them. The matrix stays borrowed as long as the panel lives, and the panel as long as the row.
        unsafe { from_raw_parts_mut(self.start.add(row * self.stride), self.columns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_belongs_to_one_panel() {
        for (rows, width, columns) in [(3, 10, 4), (1, 1, 1), (2, 8, 8), (2, 8, 9), (4, 6, 2), (0, 5, 2)] {
            let mut matrix = vec![0; rows * width];
            for (number, mut panel) in panels(&mut matrix, width, columns).enumerate() {
                assert_eq!(panel.columns(), columns.min(width - number * columns));
                for row in 0..rows {
                    let first = number * columns;
                    panel.row(row).iter_mut().enumerate().for_each(|(at, place)| *place += 100 * row + first + at);
                }
            }
            let expected: Vec<_> = (0..rows * width).map(|place| 100 * (place / width) + place % width).collect();
            assert_eq!(matrix, expected, "{rows} rows of {width}, {columns} a panel");
        }
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn a_row_that_is_not_there_is_refused() {
        let mut matrix = [0; 6];
        panels(&mut matrix, 3, 2).for_each(|mut panel| panel.row(2)[0] = 1);
    }
}
