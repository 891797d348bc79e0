//! The table of who does what, as the README has it.

use std::fmt::Write as _;

/// How it was: what is told, and why, where that is not as usual.
pub(crate) struct Cell<'a> {
    pub(crate) told: String,
    pub(crate) why: Option<&'a str>,
}

/// One scenario: its title, the standard, and the cells; none where it was not as expected.
pub(crate) struct Row<'a> {
    pub(crate) title: &'a str,
    pub(crate) standard: &'a str,
    pub(crate) cells: Vec<Option<Cell<'a>>>,
}

/// A scenario a row, a program with its version a column, and below it why what is not as usual is so.
pub(crate) fn table(columns: &[(&str, &str)], scenarios: Vec<Row<'_>>) -> String {
    let mut notes: Vec<&str> = Vec::new();
    let mut number = |why| {
        // The same reason is told once.
        let known = notes.iter().position(|note| *note == why);
        known.map_or_else(
            || {
                notes.push(why);
                notes.len()
            },
            |known| known + 1,
        )
    };
    let mut rows = vec![vec![String::new(), "ends as".to_owned()], vec![String::new(); 2]];
    rows[0].extend(columns.iter().map(|(title, _)| (*title).to_owned()));
    rows[1].extend(columns.iter().map(|(_, version)| (*version).to_owned()));
    for Row { title, standard, cells } in scenarios {
        let mut row = vec![title.to_owned(), standard.to_owned()];
        row.extend(cells.into_iter().map(|cell| match cell {
            Some(Cell { told, why: Some(why) }) => format!("{told} ({})", number(why)),
            Some(Cell { told, why: None }) => told,
            None => "✗".to_owned(),
        }));
        rows.push(row);
    }
    let widths: Vec<_> = (0..columns.len() + 2)
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    let mut table = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (told, width) in row.iter().zip(&widths) {
            let _ = write!(table, "| {told:<width$} ");
        }
        table.push_str("|\n");
        if at == 0 {
            for width in &widths {
                let _ = write!(table, "|{}", "-".repeat(width + 2));
            }
            table.push_str("|\n");
        }
    }
    for (at, note) in notes.iter().enumerate() {
        let _ = write!(table, "\n({}) {note}{}", at + 1, if at + 1 < notes.len() { "\\" } else { "\n" });
    }
    table
}
