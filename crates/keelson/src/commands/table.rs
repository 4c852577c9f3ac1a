//! Columns that are aligned.

use super::paint::{Paint, Tone};

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A text that means something.
    pub fn of(text: impl Into<String>, tone: Tone) -> Cell {
        Cell { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::of(text, Tone::Plain)
    }
}

/// A table with or without a heading.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
    indent: usize,
}

impl Table {
    /// One with this heading.
    pub fn headed<const N: usize>(heading: [&str; N]) -> Table {
        let heading = heading.map(|text| Cell::of(text, Tone::Strong));
        Table { rows: vec![heading.to_vec()], indent: 0 }
    }

    /// One that begins so many columns from the left.
    pub fn indented(indent: usize) -> Table {
        Table { rows: Vec::new(), indent }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.to_vec());
    }

    /// As text, a line a row. Columns that are empty all the way down are left out.
    pub fn text(&self, paint: Paint) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(self.indent);
            let mut gap = 0;
            for (cell, width) in row.iter().zip(&widths).filter(|(_, width)| **width > 0) {
                if cell.text.is_empty() {
                    gap += width + 2;
                    continue;
                }
                line += &" ".repeat(gap);
                line += &paint.tone(cell.tone, &cell.text);
                gap = width - cell.text.chars().count() + 2;
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_empty_ones_are_left_out() {
        let mut table = Table::headed(["NAME", "", "AGE"]);
        table.row(["orders".into(), "".into(), "3d".into()]);
        table.row(["a".into(), "".into(), Cell::of("1h", Tone::Good)]);
        table.row(["x".into(), "".into(), "".into()]);
        assert_eq!(table.text(Paint::OFF), "NAME    AGE\norders  3d\na       1h\nx\n");
    }
}
