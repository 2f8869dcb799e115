//! Which character divides the fields of a CSV sample.
//!
//! Each candidate is tried. It scores by how regularly it divides records into many fields, times the share of fields that
//! look like values of some kind then: the pattern and type scores of G. J. J. van den Burg, A. Nazábal and C. Sutton,
//! "Wrangling messy CSV files by detecting row and type patterns", 2019, without their search over quotes. What makes values
//! of fields is [`super::Candidates`]' question.

use super::csv::{Cell, Dialect, Records};

/// Characters that may stand between fields, the likeliest first.
pub(super) const DELIMITERS: [u8; 5] = [b',', b';', b'\t', b'|', b':'];
/// How many records decide.
const RECORDS: usize = 1000;
/// What records of one field count, where another candidate finds none either.
const ONE_FIELD: f64 = 1e-3;
/// What a colon counts: it stands in many a text that it does not divide.
const COLON: f64 = 0.5;

/// The delimiter that is likeliest; a comma if none divides anything. The one in `dialect` does not matter.
pub(super) fn sniff(sample: &[u8], complete: bool, dialect: Dialect) -> u8 {
    let mut best = (DELIMITERS[0], 0.0);
    for delimiter in DELIMITERS {
        let records: Vec<_> = Records::new(sample, complete, Dialect { delimiter, ..dialect }).take(RECORDS).collect();
        let weight = match delimiter {
            b':' if mostly_clocks(&records) => continue,
            b':' => COLON,
            _ => 1.0,
        };
        let score = pattern(&records) * typed(&records, delimiter) * weight;
        if score > best.1 {
            best = (delimiter, score);
        }
    }
    best.0
}

/// The number of fields that most records have; none if there are no records. Of several the larger.
pub(super) fn usual_width(records: &[Vec<Cell>]) -> Option<usize> {
    widths(records).into_iter().max_by_key(|(width, count)| (*count, *width)).map(|(width, _)| width)
}

/// The numbers of fields that there are, and how many records have each.
fn widths(records: &[Vec<Cell>]) -> Vec<(usize, usize)> {
    let mut all: Vec<usize> = records.iter().map(Vec::len).collect();
    all.sort_unstable();
    all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len())).collect()
}

/// The more fields and the fewer kinds of records, the more.
fn pattern(records: &[Vec<Cell>]) -> f64 {
    let widths = widths(records);
    let one = |(width, count): &(usize, usize)| *count as f64 * ((*width as f64 - 1.0).max(ONE_FIELD) / *width as f64);
    widths.iter().map(one).sum::<f64>() / widths.len().max(1) as f64
}

/// The share of fields that look like values.
fn typed(records: &[Vec<Cell>], delimiter: u8) -> f64 {
    let (mut all, mut good) = (0, 0);
    for cell in records.iter().flatten() {
        all += 1;
        good += usize::from(is_value(cell, delimiter));
    }
    if all == 0 { 0.0 } else { (good as f64 / all as f64).max(ONE_FIELD) }
}

/// Whether a field looks like a number, a date, a word or a sentence, and not like several fields.
fn is_value(cell: &Cell, delimiter: u8) -> bool {
    let text = cell.text.trim_ascii();
    if cell.quoted || text.is_empty() {
        return true;
    }
    // Also with a decimal comma.
    let number = |b: &u8| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b',' | b'e' | b'E' | b'%');
    if text.iter().all(number) && text.iter().any(u8::is_ascii_digit) {
        return true;
    }
    let stray = |(at, b): (usize, &u8)| match b {
        // In a sentence a blank follows.
        b',' => text.get(at + 1).is_some_and(|next| *next != b' '),
        // Of a quoted field that was cut.
        b'"' => true,
        b':' => false,
        other => *other != delimiter && DELIMITERS.contains(other),
    };
    !text.iter().enumerate().any(stray)
}

/// Whether the colons of most records that have some are those of times, addresses (`http://`) or paths (`C:\`).
fn mostly_clocks(records: &[Vec<Cell>]) -> bool {
    let divided = records.iter().filter(|record| record.len() > 1);
    let (mut all, mut clocks) = (0, 0);
    for record in divided {
        all += 1;
        clocks += usize::from(record.windows(2).all(|pair| is_inside(&pair[0].text, &pair[1].text)));
    }
    clocks * 2 > all
}

/// Whether a colon between these belongs to a value.
fn is_inside(before: &[u8], behind: &[u8]) -> bool {
    let clock = match behind {
        [b'0'..=b'5', b'0'..=b'9', rest @ ..] => {
            before.last().is_some_and(u8::is_ascii_digit) && !rest.first().is_some_and(u8::is_ascii_digit)
        }
        _ => false,
    };
    clock || behind.starts_with(b"//") || behind.starts_with(b"\\")
}
