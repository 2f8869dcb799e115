//! Results as a table for people, and as CSV: every run, or what the table says.

use crate::{Combination, Measured};

/// A figure of a run.
type Figure = fn(&Measured) -> f64;

const FIGURES: [(&str, Figure); 9] = [
    ("elapsed_s", |m| m.elapsed_s),
    ("user_s", |m| m.user_s),
    ("sys_s", |m| m.sys_s),
    ("cpu_s", |m| m.user_s + m.sys_s),
    ("rows_per_s", |m| m.rows_per_s),
    ("p50_ms", |m| m.latency_ms.p50),
    ("p99_ms", |m| m.latency_ms.p99),
    ("p999_ms", |m| m.latency_ms.p999),
    ("peak_mb", |m| m.peak_memory_bytes as f64 / 1_048_576.0),
];

/// Median of the runs' values of a figure; the mean of the middle two for an even number.
pub(crate) fn median(runs: &[Measured], figure: impl Fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(figure).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2}M", value / 1e6),
        v if v >= 1e4 => format!("{:.0}k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The least and the greatest of the runs' values of a figure.
fn range(runs: &[Measured], figure: Figure) -> (f64, f64) {
    runs.iter().map(figure).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// A table for people: the medians of each combination, and below them, if there are several runs, their ranges.
pub(crate) fn text(keys: &[&str], combinations: &[Combination]) -> String {
    let mut head: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
    head.extend(FIGURES.iter().map(|(name, _)| name.to_string()));
    let mut rows = vec![head];
    for combination in combinations {
        let mut row = combination.values.clone();
        row.extend(FIGURES.iter().map(|(_, figure)| short(median(&combination.runs, *figure))));
        rows.push(row);
        if combination.runs.len() > 1 {
            let mut row = vec![String::new(); keys.len()];
            row.extend(FIGURES.iter().map(|(_, figure)| {
                let (low, high) = range(&combination.runs, *figure);
                format!("{}–{}", short(low), short(high))
            }));
            rows.push(row);
        }
    }
    let widths: Vec<usize> = (0..rows[0].len()).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{}{cell}", " ".repeat(width - cell.chars().count()))).collect();
        out += &cells.join("  ");
        out.push('\n');
    }
    out
}

/// Every run as a line.
pub(crate) fn csv(keys: &[&str], combinations: &[Combination]) -> String {
    let mut out = String::new();
    let mut head: Vec<&str> = keys.to_vec();
    head.push("run");
    head.extend(FIGURES.iter().map(|(name, _)| *name));
    out += &(head.join(",") + "\n");
    for combination in combinations {
        for (number, run) in combination.runs.iter().enumerate() {
            let mut cells = combination.values.clone();
            cells.push((number + 1).to_string());
            cells.extend(FIGURES.iter().map(|(_, figure)| format!("{:.6}", figure(run))));
            out += &(cells.join(",") + "\n");
        }
    }
    out
}

/// A line a combination: median, least and greatest value of every figure.
pub(crate) fn summary(keys: &[&str], combinations: &[Combination]) -> String {
    let mut head: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
    head.extend(FIGURES.iter().flat_map(|(name, _)| [name.to_string(), format!("{name}_min"), format!("{name}_max")]));
    let mut out = head.join(",") + "\n";
    for combination in combinations {
        let mut cells = combination.values.clone();
        for (_, figure) in FIGURES {
            let (low, high) = range(&combination.runs, figure);
            cells.extend([median(&combination.runs, figure), low, high].map(|value| format!("{value:.6}")));
        }
        out += &(cells.join(",") + "\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, expect) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), expect);
        }
    }

    fn combination(value: &str, elapsed_s: &[f64]) -> Combination {
        Combination { values: vec![value.into()], runs: elapsed_s.iter().map(|s| Measured::of(*s)).collect() }
    }

    #[test]
    fn medians_are_those_in_the_middle() {
        let runs = combination("7", &[3.0, 1.0, 2.0]).runs;
        assert_eq!(median(&runs, |m| m.elapsed_s), 2.0);
        assert_eq!(median(&runs[..2], |m| m.elapsed_s), 2.0);
        assert!(median(&[], |m| m.elapsed_s).is_nan());
    }

    #[test]
    fn tables_show_medians_and_ranges() {
        let table = text(&["block.size"], &[combination("7", &[4.0, 1.0, 2.0]), combination("auto", &[1.0])]);
        let lines: Vec<&str> = table.lines().collect();
        let width = lines[0].chars().count();
        assert!(lines.iter().all(|line| line.chars().count() == width), "columns are aligned to the right:\n{table}");
        let cells = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
        let names = ["block.size", "elapsed_s", "user_s", "sys_s", "cpu_s", "rows_per_s", "p50_ms", "p99_ms", "p999_ms", "peak_mb"];
        assert_eq!(cells(0), names);
        assert_eq!(cells(1), ["7", "2.00", "1.00", "0.500", "1.50", "1.00M", "20.00", "40.00", "60.00", "200"]);
        let ranges =
            ["1.00–4.00", "0.500–2.00", "0.250–1.00", "0.750–3.00", "500k–2.00M", "10.00–40.00", "20.00–80.00", "30.00–120", "100–400"];
        assert_eq!(cells(2), ranges);
        assert_eq!(cells(3)[..3], ["auto", "1.00", "0.500"], "one run has no range");
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn files_have_every_run_and_every_range() {
        let combinations = [combination("7", &[4.0, 1.0, 2.0]), combination("auto", &[1.0])];
        let runs = csv(&["block.size"], &combinations);
        let lines: Vec<&str> = runs.lines().collect();
        assert!(lines[0].starts_with("block.size,run,elapsed_s,user_s,"), "{runs}");
        assert!(lines[2].starts_with("7,2,1.000000,0.500000,"), "{runs}");
        assert!(lines[4].starts_with("auto,1,1.000000,") && lines.len() == 5, "{runs}");
        let summary = summary(&["block.size"], &combinations);
        let lines: Vec<&str> = summary.lines().collect();
        assert!(lines[0].starts_with("block.size,elapsed_s,elapsed_s_min,elapsed_s_max,user_s,"), "{summary}");
        assert!(lines[1].starts_with("7,2.000000,1.000000,4.000000,1.000000,"), "{summary}");
        assert!(lines[2].starts_with("auto,1.000000,1.000000,1.000000,") && lines.len() == 3, "{summary}");
        assert!(lines.iter().all(|line| line.split(',').count() == 1 + 3 * FIGURES.len()), "{summary}");
    }
}
