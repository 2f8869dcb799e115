//! Results as a table and as CSV.

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

/// A table for people: median, and the range of the elapsed time.
pub(crate) fn text(keys: &[&str], combinations: &[Combination]) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut head: Vec<String> = keys.iter().map(|k| k.to_string()).collect();
    head.extend(FIGURES.iter().map(|(name, _)| name.to_string()));
    head.push("elapsed range".into());
    rows.push(head);
    for combination in combinations {
        let mut row = combination.values.clone();
        row.extend(FIGURES.iter().map(|(_, figure)| short(median(&combination.runs, *figure))));
        let elapsed = combination.runs.iter().map(|r| r.elapsed_s);
        let (low, high) = elapsed.fold((f64::MAX, f64::MIN), |(l, h), e| (l.min(e), h.max(e)));
        row.push(format!("{}–{}", short(low), short(high)));
        rows.push(row);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::LatencyMs;

    fn measured(elapsed_s: f64) -> Measured {
        let latency_ms = LatencyMs { p50: 1.0, p99: 2.0, p999: 3.0 };
        Measured { elapsed_s, user_s: 1.0, sys_s: 0.5, rows_per_s: 2e6, rows_in: 0, rows_out: 0, peak_memory_bytes: 1 << 20, latency_ms }
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, expect) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(number), expect);
        }
    }

    #[test]
    fn tables_show_medians() {
        let runs = vec![measured(3.0), measured(1.0), measured(2.0)];
        assert_eq!(median(&runs, |m| m.elapsed_s), 2.0);
        assert_eq!(median(&runs[..2], |m| m.elapsed_s), 2.0);
        let combinations = [Combination { values: vec!["7".into()], runs }];
        let table = text(&["block.size"], &combinations);
        assert!(table.lines().nth(1).unwrap().contains("1.00–3.00"), "{table}");
        assert_eq!(csv(&["block.size"], &combinations).lines().count(), 4);
    }
}
