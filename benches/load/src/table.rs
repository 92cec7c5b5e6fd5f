//! Tables in Markdown with aligned columns: the first column to the left, the others to the right.

/// Prints a table with a heading.
pub(crate) fn print(heading: &str, columns: &[&str], rows: &[Vec<String>]) {
    println!("\n{heading}\n");
    let mut widths: Vec<usize> = columns.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }

    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).enumerate();
        let padded = cells.map(|(index, (cell, &width))| match index {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
    };
    println!("{}", line(&columns.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>()));
    let rules = widths.iter().enumerate().map(|(index, &width)| match index {
        0 => "-".repeat(width),
        _ => format!("{}:", "-".repeat(width.saturating_sub(1))),
    });
    println!("{}", line(&rules.collect::<Vec<_>>()));
    for row in rows {
        println!("{}", line(row));
    }
}

/// The median; NaN without values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_owned();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}
