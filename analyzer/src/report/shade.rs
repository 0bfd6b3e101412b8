//! Cells of a map as characters.

use crate::passes::map::Run;

/// What the characters mean.
pub const LEGEND: &str = "█ all in use, ▓ more than 2/3, ▒ more than 1/3, ░ less, · free";

/// The character of a cell.
pub fn shade(used_bytes: u64, cell_bytes: u64) -> char {
    let thirds = u128::from(used_bytes) * 3;
    match u128::from(cell_bytes) {
        _ if used_bytes == 0 => '·',
        cell if thirds >= 3 * cell => '█',
        cell if thirds > 2 * cell => '▓',
        cell if thirds > cell => '▒',
        _ => '░',
    }
}

/// A row of cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of its first cell.
    pub first_cell: u64,
    /// Its cells.
    pub cells: String,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Rows of the same look that follow and are not drawn.
    pub folded: u64,
}

/// Cuts runs into rows of `width` cells; equal neighbours are folded, and rows beyond `most` are left out (their number
/// is returned).
pub fn rows(runs: &[Run], cell_bytes: u64, width: u64, most: usize) -> (Vec<Row>, u64) {
    let mut rows: Vec<Row> = Vec::new();
    let mut left_out = 0u64;
    let mut runs = runs.iter().copied().filter(|run| run.cells > 0).peekable();
    let (mut cell, mut rest) = (0u64, runs.next());
    while let Some(run) = rest {
        // A run of many whole rows is one row and a count.
        if run.cells >= 2 * width {
            let whole = run.cells / width;
            let row = row_of(cell, &[(width, run.used_bytes)], cell_bytes);
            add(&mut rows, row, whole, most, &mut left_out);
            cell = cell.saturating_add(whole * width);
            let left = run.cells - whole * width;
            rest = if left > 0 { Some(Run { cells: left, ..run }) } else { runs.next() };
            continue;
        }
        let mut pieces = Vec::new();
        let mut room = width;
        while let Some(run) = rest {
            let taken = run.cells.min(room);
            pieces.push((taken, run.used_bytes));
            room -= taken;
            rest = if run.cells > taken { Some(Run { cells: run.cells - taken, ..run }) } else { runs.next() };
            if room == 0 {
                break;
            }
        }
        add(&mut rows, row_of(cell, &pieces, cell_bytes), 1, most, &mut left_out);
        cell = cell.saturating_add(width);
    }
    (rows, left_out)
}

fn row_of(first_cell: u64, pieces: &[(u64, u64)], cell_bytes: u64) -> Row {
    let cells = pieces.iter().flat_map(|(cells, used)| (0..*cells).map(|_| shade(*used, cell_bytes))).collect();
    let used = pieces.iter().fold(0u64, |sum, (cells, used)| sum.saturating_add(cells.saturating_mul(*used)));
    Row { first_cell, cells, used_bytes: used, folded: 0 }
}

fn add(rows: &mut Vec<Row>, row: Row, times: u64, most: usize, left_out: &mut u64) {
    if let Some(last) = rows.last_mut()
        && *left_out == 0
        && last.cells == row.cells
        && last.used_bytes == row.used_bytes
    {
        last.folded = last.folded.saturating_add(times);
    } else if rows.len() < most {
        rows.push(Row { folded: times - 1, ..row });
    } else {
        *left_out = left_out.saturating_add(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_follow_the_share() {
        let shades: String = [0, 1, 33, 34, 66, 67, 99, 100].map(|used| shade(used, 100)).iter().collect();
        assert_eq!(shades, "·░░▒▒▓▓█");
    }

    #[test]
    fn rows_are_cut_folded_and_counted() {
        let run = |cells, used_bytes| Run { cells, used_bytes };
        let (rows, left_out) = rows(&[run(3, 10), run(1, 5), run(100, 10), run(2, 0)], 10, 4, 2);
        let drawn: Vec<(&str, u64)> = rows.iter().map(|row| (row.cells.as_str(), row.folded)).collect();
        assert_eq!(drawn, [("███▒", 0), ("████", 24)]);
        assert_eq!((rows[1].first_cell, left_out), (4, 1));
    }

    #[test]
    fn absurd_runs_take_no_time() {
        let run = Run { cells: u64::MAX, used_bytes: u64::MAX };
        assert!(rows(&[run, run], 4096, 64, 3).0.len() <= 3);
    }
}
