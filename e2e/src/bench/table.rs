//! The table of figures.

use std::fmt;

/// Rows of figures, each with its goal and the closest peer's figure.
#[derive(Default)]
pub(super) struct Table(Vec<[String; 4]>);

impl Table {
    /// Adds a row. Unknown cells are empty.
    pub(super) fn row(&mut self, what: &str, figure: String, goal: &str, peer: &str) {
        self.0.push([what.to_owned(), figure, goal.to_owned(), peer.to_owned()]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["what", "figure", "goal", "closest peer"].map(str::to_owned);
        let width = |column: usize| {
            self.0.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths = [width(0), width(1), width(2), width(3)];
        let line = |f: &mut fmt::Formatter<'_>, row: &[String; 4]| {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
                .collect();
            writeln!(f, "| {} |", cells.join(" | "))
        };
        line(f, &head)?;
        line(f, &widths.map(|width| "-".repeat(width)))?;
        self.0.iter().try_for_each(|row| line(f, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::default();
        table.row("apply → Ready", "9.9 s".to_owned(), "", "50 s");
        let expected = "\
| what          | figure | goal | closest peer |
| ------------- | ------ | ---- | ------------ |
| apply → Ready | 9.9 s  |      | 50 s         |
";
        assert_eq!(table.to_string(), expected);
    }
}
