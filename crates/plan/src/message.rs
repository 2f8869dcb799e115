//! What DataFusion and Arrow say when something cannot be planned or computed, in the words of this
//! dialect: without the kinds of error stacked in front, with Flink's names of types, and with what to
//! do about the common ones. Every message of theirs that a user sees comes through here.

use arrow::error::ArrowError;
use datafusion_common::DataFusionError;

/// What an error says.
pub fn of(error: &DataFusionError) -> String {
    match error {
        // These say in which rule or function it happened, which helps nobody but their makers.
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => of(inner),
        DataFusionError::Shared(inner) => of(inner),
        DataFusionError::Collection(errors) => errors.first().map_or_else(|| plain(&error.message()), of),
        DataFusionError::ArrowError(inner, _) => of_arrow(inner),
        DataFusionError::External(inner) => match (inner.downcast_ref::<DataFusionError>(), inner.downcast_ref::<ArrowError>()) {
            (Some(inner), _) => of(inner),
            (_, Some(inner)) => of_arrow(inner),
            // One of ours that came through DataFusion: its text is complete.
            _ => inner.to_string(),
        },
        other => plain(&other.message()),
    }
}

/// What an error of Arrow says.
pub fn of_arrow(error: &ArrowError) -> String {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast_ref::<DataFusionError>() {
            Some(inner) => of(inner),
            None => inner.to_string(),
        },
        other => plain(&other.to_string()),
    }
}

/// The kinds of error that are put in front of messages.
const KINDS: &[&str] = &[
    "Arrow error: ",
    "Cast error: ",
    "Parser error: ",
    "Compute error: ",
    "Invalid argument error: ",
    "Arithmetic overflow: ",
    "Not yet implemented: ",
    "External error: ",
    "External: ",
    "Error during planning: ",
    "Execution error: ",
    "Schema error: ",
    "Internal error: ",
    "This feature is not implemented: ",
    "Resources exhausted: ",
];

/// What stands behind the message of an error: a trace, or whom to tell of it.
const TAILS: &[&str] =
    &[DataFusionError::BACK_TRACE_SEP, ".\nThis issue was likely caused by a bug", "\nThis issue was likely caused by a bug"];

/// A message without its kinds and its tail, in our words where it is a common one.
pub fn plain(text: &str) -> String {
    let mut text = TAILS.iter().fold(text, |text, tail| text.split(tail).next().unwrap_or(text)).trim();
    while let Some(rest) = KINDS.iter().find_map(|kind| text.strip_prefix(kind)) {
        text = rest;
    }
    rephrase(text).unwrap_or_else(|| flink_types(text))
}

/// How to have wider numbers.
const WIDER: &str = "CAST to a wider type first, such as DECIMAL(38, 0) or DOUBLE";

fn rephrase(text: &str) -> Option<String> {
    let between = |before: &str, after: &str| text.split_once(before).and_then(|(_, rest)| rest.split_once(after)).map(|(found, _)| found);
    if text.eq_ignore_ascii_case("divide by zero error") || text.eq_ignore_ascii_case("divide by zero") {
        return Some("division by zero; x / NULLIF(y, 0) gives NULL instead".into());
    }
    if let Some(operation) = text.strip_prefix("Overflow happened on: ") {
        return Some(format!("the result of {operation} does not fit its type; {WIDER}"));
    }
    if let Some(value) = between("overflow on abs(", ")") {
        return Some(format!("ABS({value}) does not fit its type; {WIDER}"));
    }
    if let Some((value, to)) = between("Cannot cast string '", "' to value of ").zip(between("' to value of ", " type")) {
        return Some(format!("cannot cast '{value}' to {}; TRY_CAST gives NULL instead", flink_types(to)));
    }
    if let Some((value, to)) = text.strip_prefix("Can't cast value ").and_then(|rest| rest.split_once(" to type ")) {
        return Some(format!("{value} does not fit {}", flink_types(to)));
    }
    if let Some((to, value)) = text.strip_prefix("Cannot cast to ").and_then(|rest| rest.split_once(". Overflowing on ")) {
        return Some(format!("a value of the digits {value} does not fit {}", flink_types(to)));
    }
    if let Some((value, rest)) = text.split_once(" is too large to store in a Decimal") {
        let most = rest.split_once("Max is ").map_or("", |(_, most)| most);
        return Some(format!("{value} does not fit its DECIMAL, the largest is {most}; CAST to one with more digits"));
    }
    if text == "Scalar subquery returned more than one row" {
        return Some("a subquery that stands for a value gave more than one row; LIMIT 1, or MAX(…), chooses one".into());
    }
    if text == "unnest() can only be applied to array, struct and null" || text == "unnest() does not support null yet" {
        return Some("UNNEST takes an ARRAY or a ROW".into());
    }
    if text.starts_with("LATERAL syntax is not supported for FULL OUTER and RIGHT") {
        return Some("a RIGHT or FULL JOIN knows no columns of its left side in its right one; write LEFT JOIN or CROSS JOIN".into());
    }
    if let Some((columns, rest)) = text.strip_prefix("Source table contains ").and_then(|rest| rest.split_once(" columns but only "))
        && let Some(names) = rest.strip_suffix(" names given as column alias")
    {
        let s = |count: &str| if count == "1" { "" } else { "s" };
        return Some(format!("{names} name{} for a table of {columns} column{}", s(names), s(columns)));
    }
    text.strip_prefix("Physical plan does not support logical expression ").map(|expression| {
        let what = match expression.split(['(', ' ']).next().unwrap_or_default() {
            "InSubquery" => "IN (SELECT …)",
            "Exists" => "EXISTS (SELECT …)",
            "ScalarSubquery" => "a subquery as a value",
            _ => "an expression of this kind",
        };
        format!("{what} cannot be computed at this place; write it as a JOIN")
    })
}

/// A text with Flink's names for Arrow's types.
pub fn flink_types(text: &str) -> String {
    const NAMES: &[(&str, &str)] = &[
        ("Boolean", "BOOLEAN"),
        ("Utf8View", "STRING"),
        ("Utf8", "STRING"),
        ("Binary", "BYTES"),
        ("Int8", "TINYINT"),
        ("Int16", "SMALLINT"),
        ("Int32", "INT"),
        ("Int64", "BIGINT"),
        ("Float32", "FLOAT"),
        ("Float64", "DOUBLE"),
        ("Date32", "DATE"),
        ("Time32", "TIME"),
        ("Decimal128", "DECIMAL"),
    ];
    const WITH_PARAMETERS: &[(&str, &str)] =
        &[("Timestamp(ms, \"UTC\")", "TIMESTAMP_LTZ(3)"), ("Timestamp(ms)", "TIMESTAMP(3)"), ("Interval(MonthDayNano)", "INTERVAL")];
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        for (arrow, flink) in WITH_PARAMETERS {
            if let Some(behind) = rest.strip_prefix(arrow) {
                out.push_str(flink);
                rest = behind;
            }
        }
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(word);
        match NAMES.iter().find(|(arrow, _)| *arrow == head) {
            Some((_, flink)) => out.push_str(flink),
            None => out.push_str(head),
        }
        let mut chars = tail.chars();
        out.extend(chars.next());
        rest = chars.as_str();
    }
    out
}

#[cfg(test)]
mod tests;
