//! Schemas from samples: what the columns of a CSV, fixed-width or JSON file are, for queries that name a
//! file without declaring a table. How CSV is written (delimiter, quote, header, comments) is found in [`csv`].
//!
//! A type is chosen that holds every value of the sample: BOOLEAN, BIGINT, DOUBLE, DATE,
//! TIMESTAMP(6), else STRING. What lives here reads samples only; nothing here decodes data.

mod csv;
mod delimiter;
mod encoding;
mod fixed;
mod json;

pub use csv::{CsvKnown, CsvSniff, infer_csv, infer_csv_as};
pub use encoding::sample_text;
pub use fixed::infer_fixed;
pub use json::{infer_json, json_form};

use std::collections::HashSet;

use arrow::datatypes::{DataType, TimeUnit};
use tidemill_block::value;

/// The types that all values seen so far have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidates {
    set: u8,
    /// Whether any value was seen that is not null.
    any: bool,
    /// A whole number was seen that BIGINT cannot hold, and a DOUBLE only roughly.
    wide: bool,
    /// A number with a fraction or an exponent was seen.
    fraction: bool,
}

const BOOLEAN: u8 = 1;
const BIGINT: u8 = 2;
const DOUBLE: u8 = 4;
const DATE: u8 = 8;
const TIMESTAMP: u8 = 16;

impl Candidates {
    const NEW: Candidates = Candidates { set: BOOLEAN | BIGINT | DOUBLE | DATE | TIMESTAMP, any: false, wide: false, fraction: false };

    /// Counts a value given as bare text.
    fn see(&mut self, text: &[u8]) {
        self.any = true;
        let mut fits = 0;
        match text {
            b"NaN" | b"nan" | b"Infinity" | b"-Infinity" => fits |= DOUBLE,
            [b'-' | b'+' | b'.' | b'0'..=b'9', ..] => {
                if let Some(number) = Number::of(text) {
                    fits |= DOUBLE | if number == Number::Whole { BIGINT } else { 0 };
                    self.wide |= number == Number::Wide;
                    self.fraction |= number == Number::Fraction;
                } else if value::parse_date(text).is_some() {
                    fits |= DATE | TIMESTAMP;
                } else if value::parse_timestamp(text, TimeUnit::Microsecond).is_some() {
                    fits |= TIMESTAMP;
                }
            }
            _ if text.eq_ignore_ascii_case(b"true") || text.eq_ignore_ascii_case(b"false") => fits |= BOOLEAN,
            _ => {}
        }
        self.set &= fits;
    }

    fn merge(&mut self, other: Candidates) {
        self.set &= other.set;
        self.any |= other.any;
        self.wide |= other.wide;
        self.fraction |= other.fraction;
    }

    /// The type that holds every value seen.
    fn data_type(self) -> DataType {
        match self.set {
            _ if !self.any => DataType::Utf8,
            s if s & BOOLEAN > 0 => DataType::Boolean,
            s if s & BIGINT > 0 => DataType::Int64,
            // Long numbers without any fraction are keys: a DOUBLE would make different ones equal.
            s if s & DOUBLE > 0 && self.wide && !self.fraction => DataType::Utf8,
            s if s & DOUBLE > 0 => DataType::Float64,
            s if s & DATE > 0 => DataType::Date32,
            s if s & TIMESTAMP > 0 => DataType::Timestamp(TimeUnit::Microsecond, None),
            _ => DataType::Utf8,
        }
    }
}

#[derive(PartialEq)]
enum Number {
    Whole,
    Wide,
    Fraction,
}

impl Number {
    /// What kind of number the text is. `007` is none: it is a key, and its zeros matter.
    fn of(text: &[u8]) -> Option<Number> {
        let digits = match text {
            [b'-' | b'+', rest @ ..] => rest,
            rest => rest,
        };
        if matches!(digits, [b'0', b'0'..=b'9', ..]) || !matches!(digits.last()?, b'0'..=b'9' | b'.') {
            return None;
        }
        if digits.iter().all(u8::is_ascii_digit) {
            let whole = std::str::from_utf8(text).ok()?.parse::<i64>().is_ok();
            return Some(if whole { Number::Whole } else { Number::Wide });
        }
        (matches!(digits[0], b'.' | b'0'..=b'9') && fast_float2::parse::<f64, _>(text).is_ok()).then_some(Number::Fraction)
    }
}

/// The names as they are, but an empty one becomes `columnN` and one that was there before gets a
/// number behind it: `a`, `a_1`, `a_2`.
pub(crate) fn unique_names(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let names: Vec<String> = names.into_iter().enumerate().map(|(i, n)| if n.is_empty() { format!("column{i}") } else { n }).collect();
    let mut given: HashSet<String> = names.iter().cloned().collect();
    let mut seen = HashSet::new();
    names
        .into_iter()
        .map(|name| {
            if seen.insert(name.clone()) {
                return name;
            }
            let other = (1..).map(|n| format!("{name}_{n}")).find(|n| !given.contains(n)).expect("some number is free");
            given.insert(other.clone());
            other
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_type_that_holds_all() {
        #[track_caller]
        fn check(values: &[&str], expect: DataType) {
            let mut candidates = Candidates::NEW;
            values.iter().for_each(|v| candidates.see(v.as_bytes()));
            assert_eq!(candidates.data_type(), expect, "{values:?}");
        }
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        check(&[], DataType::Utf8);
        check(&["true", "FALSE"], DataType::Boolean);
        check(&["1", "-2", "+3", "0"], DataType::Int64);
        check(&["1", "2.5"], DataType::Float64);
        check(&["1e3", ".5", "-7.", "NaN", "-Infinity"], DataType::Float64);
        check(&["1", "x"], DataType::Utf8);
        check(&["007"], DataType::Utf8);
        check(&["0.5", "0"], DataType::Float64);
        check(&["12345678901234567890"], DataType::Utf8);
        check(&["12345678901234567890", "0.5"], DataType::Float64);
        check(&["2024-02-29"], DataType::Date32);
        check(&["2024-02-30"], DataType::Utf8);
        check(&["2024-02-29", "2024-02-29 10:00:00.5"], timestamp.clone());
        check(&["2024-02-29T10:00:00Z"], timestamp);
        check(&["true", "1"], DataType::Utf8);
        check(&["-", "+"], DataType::Utf8);
    }

    #[test]
    fn names_become_unique() {
        let names = unique_names(["a", "", "a", "a_1", "a"].map(String::from));
        assert_eq!(names, ["a", "column1", "a_2", "a_1", "a_3"]);
    }
}
