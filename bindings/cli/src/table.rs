//! Aligned columns for people.

/// Rows under a header, as wide as their widest cell, two blanks between columns, no blanks at a line's end.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    /// A table without a header: names on the left, values on the right.
    pub(crate) fn plain() -> Self {
        Self { rows: Vec::new() }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default())
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let line: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            text.push_str(line.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "SIZE"]);
        table.row(["überlang".to_owned(), "1 B".to_owned()]);
        table.row(["a".to_owned(), String::new()]);
        assert_eq!(table.render(), "NAME      SIZE\nüberlang  1 B\na\n");
    }
}
