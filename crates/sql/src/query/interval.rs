//! INTERVAL literals: their length, and the form in which DataFusion reads them.

use sqlparser::ast::{DateTimeField, Expr, Interval, UnaryOperator, Value, ValueWithSpan};

/// The parts of an interval from the greatest to the least: name and milliseconds.
const PARTS: &[(&str, i64)] = &[("DAY", 86_400_000), ("HOUR", 3_600_000), ("MINUTE", 60_000), ("SECOND", 1000)];

/// What an interval is long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// A fixed time.
    Millis(i64),
    /// YEAR and MONTH.
    Months(i64),
}

/// The length in milliseconds of an INTERVAL literal, perhaps with a minus sign in front.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub(crate) fn interval_ms(expr: &Expr) -> Result<i64, String> {
    match expr {
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => interval_ms(expr).map(|ms| -ms),
        Expr::Nested(expr) => interval_ms(expr),
        Expr::Interval(interval) => match length(interval)? {
            Length::Millis(ms) => Ok(ms),
            Length::Months(_) => Err("months and years have no fixed length; give days".into()),
        },
        other => Err(format!("{other} is not an INTERVAL literal")),
    }
}

/// The length of an interval.
///
/// # Errors
/// What is wrong with it, as a sentence.
pub(crate) fn length(interval: &Interval) -> Result<Length, String> {
    let (negative, text) = literal(&interval.value)?;
    let unit = interval.leading_field.as_ref().map(singular).ok_or("the unit of the interval is missing")?;
    let text = text.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (!negative, rest.trim_start()),
        None => (negative, text.strip_prefix('+').unwrap_or(text)),
    };
    let sign = if negative { -1 } else { 1 };
    if let Some(last) = interval.last_field.as_ref().map(singular) {
        return Ok(match (unit.as_str(), last.as_str()) {
            ("YEAR", "MONTH") => {
                let (years, months) = text.split_once('-').ok_or_else(|| format!("'{text}' is not written years-months"))?;
                Length::Months(sign * (whole(years)? * 12 + whole(months)?))
            }
            _ => Length::Millis(sign * composite(text, &unit, &last)?),
        });
    }
    Ok(match unit.as_str() {
        "YEAR" => Length::Months(sign * whole(text)? * 12),
        "QUARTER" => Length::Months(sign * whole(text)? * 3),
        "MONTH" => Length::Months(sign * whole(text)?),
        "WEEK" => Length::Millis(sign * decimal(text, 7 * 86_400_000)?),
        "MILLISECOND" => Length::Millis(sign * whole(text)?),
        other => match PARTS.iter().find(|(name, _)| *name == other) {
            Some((_, ms)) => Length::Millis(sign * decimal(text, *ms)?),
            None => return Err(format!("{other} is not a unit of an interval")),
        },
    })
}

/// The interval as DataFusion reads it: with one unit and no precision.
///
/// # Errors
/// As [`length`].
pub(crate) fn plain(interval: &Interval) -> Result<Interval, String> {
    let length = length(interval)?;
    let simple = interval.last_field.is_none() && !matches!(interval.leading_field.as_ref().map(singular).as_deref(), Some("QUARTER"));
    if simple {
        // Days stay days: a DATE plus a day is a DATE.
        return Ok(Interval { leading_precision: None, fractional_seconds_precision: None, ..interval.clone() });
    }
    let (value, unit) = match length {
        Length::Millis(ms) => (ms, DateTimeField::Millisecond),
        Length::Months(months) => (months, DateTimeField::Month),
    };
    let value = Value::SingleQuotedString(value.to_string()).with_empty_span();
    Ok(Interval {
        value: Box::new(Expr::Value(value)),
        leading_field: Some(unit),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}

fn singular(field: &DateTimeField) -> String {
    let name = match field {
        DateTimeField::Week(_) => "WEEK".to_string(),
        other => other.to_string().to_ascii_uppercase(),
    };
    name.strip_suffix('S').map(str::to_string).unwrap_or(name)
}

/// Sign and text of the value.
fn literal(value: &Expr) -> Result<(bool, &str), String> {
    match value {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text) | Value::Number(text, _), .. }) => Ok((false, text)),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => literal(expr).map(|(negative, text)| (!negative, text)),
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => literal(expr),
        other => Err(format!("{other} is not a literal; write INTERVAL '5' SECOND")),
    }
}

fn whole(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))
}

/// A number with at most nine digits behind the point, times the milliseconds of its unit.
fn decimal(text: &str, unit_ms: i64) -> Result<i64, String> {
    let bad = || format!("'{text}' is not a number");
    let (integer, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) || (integer.is_empty() && fraction.is_empty()) {
        return Err(bad());
    }
    let integer: i64 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| bad())? };
    let digits: i64 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| bad())? };
    let part = i128::from(digits) * i128::from(unit_ms) / 10i128.pow(fraction.len() as u32);
    let ms = i128::from(integer) * i128::from(unit_ms) + part;
    i64::try_from(ms).map_err(|_| format!("'{text}' is too long an interval"))
}

/// `'1 02:03:04.5' DAY TO SECOND`, `'1:30' MINUTE TO SECOND`.
fn composite(text: &str, first: &str, last: &str) -> Result<i64, String> {
    let position = |unit: &str| PARTS.iter().position(|(name, _)| *name == unit);
    let (Some(from), Some(to)) = (position(first), position(last)) else { return Err(format!("there is no interval {first} TO {last}")) };
    if from >= to {
        return Err(format!("there is no interval {first} TO {last}"));
    }
    let mut pieces: Vec<&str> = Vec::new();
    match (from, text.split_once(' ')) {
        (0, Some((days, rest))) => {
            pieces.push(days);
            pieces.extend(rest.trim().split(':'));
        }
        (0, None) => return Err(format!("'{text}' is not written days hours:minutes:seconds")),
        _ => pieces.extend(text.split(':')),
    }
    if pieces.len() != to - from + 1 {
        return Err(format!("'{text}' does not have the {} parts of {first} TO {last}", to - from + 1));
    }
    pieces.iter().zip(&PARTS[from..=to]).try_fold(0i64, |sum, (piece, (name, ms))| {
        let part =
            if *name == "SECOND" { decimal(piece, *ms)? } else { whole(piece)?.checked_mul(*ms).ok_or("the interval is too long")? };
        sum.checked_add(part).ok_or_else(|| "the interval is too long".to_string())
    })
}

#[cfg(test)]
mod tests;
