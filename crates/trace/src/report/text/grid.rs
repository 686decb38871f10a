//! Columns that line up, and names that are shortened where the page ends.

use std::io::{self, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// A table. The last column may be long and gives way where the page is narrow.
#[derive(Debug)]
pub(super) struct Grid {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

/// The room that the last column keeps, however narrow the page is.
const LAST_WIDTH_MIN: usize = 20;

const INDENT: usize = 2;
const GAP: usize = 2;

impl Grid {
    pub(super) fn new(heads: &[&str], sides: &[Side]) -> Self {
        debug_assert_eq!(heads.len(), sides.len());
        let heads = heads.iter().map(|head| (*head).to_owned()).collect();
        Self { sides: sides.to_vec(), rows: vec![heads] }
    }

    pub(super) fn row<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.rows.push(cells.into_iter().map(str::to_owned).collect());
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    pub(super) fn write(&self, to: &mut impl Write, width: usize) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.sides.len()).map(|index| self.width_of(index)).collect();
        let last = widths.len().saturating_sub(1);
        let taken: usize = widths.iter().take(last).map(|width| width + GAP).sum();
        let room = width.saturating_sub(INDENT + taken).max(LAST_WIDTH_MIN);
        for row in &self.rows {
            let mut line = " ".repeat(INDENT);
            for (index, cell) in row.iter().enumerate() {
                let wide = widths[index];
                match self.sides[index] {
                    _ if index == last => line.push_str(&shortened(cell, room)),
                    Side::Left => line.push_str(&format!("{cell:<wide$}")),
                    Side::Right => line.push_str(&format!("{cell:>wide$}")),
                }
                line.push_str(&" ".repeat(GAP));
            }
            writeln!(to, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Leaves out the middle of a text that is too long: its begin tells the call, its end the place.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let tail = kept / 2;
    let head: String = text.chars().take(kept - tail).collect();
    let end: String = text.chars().skip(length - tail).collect();
    format!("{head}…{end}")
}

/// Breaks a text at spaces, but not before a percent sign; what follows the first line is indented
/// by three more.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let indent = text.len() - text.trim_start().len();
    let hanging = " ".repeat(indent + 3);
    let mut lines = Vec::new();
    let mut line = " ".repeat(indent);
    let mut empty = true;
    let kept = text.replace(" %", "\u{a0}%");
    for word in kept.split(' ').filter(|word| !word.is_empty()) {
        let needed = line.chars().count() + usize::from(!empty) + word.chars().count();
        if !empty && needed > width {
            lines.push(std::mem::replace(&mut line, hanging.clone()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line);
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_last_shrinks() {
        let mut grid =
            Grid::new(&["count", "name", "where"], &[Side::Right, Side::Left, Side::Left]);
        grid.row(["1,234", "a", "short"]);
        grid.row(["7", "µs", "a_function_with_a_name_too_long (file.c:12)"]);
        let mut bytes = Vec::new();
        grid.write(&mut bytes, 36).unwrap();
        let expected = "  count  name  where\n  1,234  a     short\n      7  µs    \
                        a_function…file.c:12)\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn text_is_broken_at_spaces() {
        assert_eq!(wrapped("one two three", 8), ["one two", "   three"]);
        assert_eq!(wrapped("  → one two", 8), ["  → one", "     two"]);
        assert_eq!(wrapped("unbreakable", 4), ["unbreakable"]);
        assert_eq!(wrapped("idle 78 %", 7), ["idle", "   78 %"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
