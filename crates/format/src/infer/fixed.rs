//! The columns of a sample of fixed-width text, whose places are known. Where columns begin cannot be told from looking.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};

use super::{Candidates, unique_names};
use crate::FormatError;
use crate::csv::Header;
use crate::fixed::{FixedOptions, entries};

/// The columns at the places that the options say, named there, by the header line or `columnN`; `sample` is the beginning
/// of the file in UTF-8, or all of it if it is `complete`.
///
/// # Errors
/// The option `fixed.widths` is wrong; the sample is not UTF-8 or has no whole line.
pub fn infer_fixed(sample: &[u8], complete: bool, options: &FixedOptions) -> Result<SchemaRef, FormatError> {
    let entries = entries(&options.widths)?;
    let sample = sample.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(sample);
    let whole = if complete { sample.len() } else { memchr::memrchr(b'\n', sample).map_or(0, |n| n + 1) };
    let text = std::str::from_utf8(&sample[..whole]).map_err(|e| {
        FormatError::data(format!("byte {} is not UTF-8; if the text is in another encoding, say it by 'fixed.encoding'", e.valid_up_to()))
    })?;
    let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_none() {
        return Err(FormatError::data("cannot tell the columns: the sample does not hold one whole line"));
    }
    let cells = |line: &str| -> Vec<String> {
        let characters: Vec<char> = line.chars().collect();
        let cell = |start: usize, end: usize| characters[start.min(characters.len())..end.min(characters.len())].iter().collect::<String>();
        entries.iter().map(|(_, place)| cell(place.start, place.end).trim().to_string()).collect()
    };
    let header = if options.header == Header::No { None } else { lines.next().map(&cells) };
    let mut types = vec![Candidates::NEW; entries.len()];
    let null = options.null_literal.as_deref().map(str::trim);
    for line in lines {
        for (cell, candidates) in cells(line).iter().zip(&mut types) {
            if !cell.is_empty() && Some(cell.as_str()) != null {
                candidates.see(cell.as_bytes());
            }
        }
    }
    let names = entries.iter().enumerate().map(|(at, (name, _))| match (name, &header) {
        (Some(name), _) => name.to_string(),
        (None, Some(header)) => header[at].clone(),
        (None, None) => format!("column{at}"),
    });
    let fields = unique_names(names).into_iter().zip(types).map(|(name, kind)| Field::new(name, kind.data_type(), true));
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{OptionSet, RawOptions};
    use crate::types::type_name;

    #[test]
    fn names_and_types() {
        for (pairs, sample, expect) in [
            (&[("fixed.widths", "3,4,*")][..], "  1 2.5x\n 17    \n", "column0 BIGINT, column1 DOUBLE, column2 STRING"),
            (&[("fixed.widths", "day:3-12,n:1")], "7 2024-01-02\n\n8 2024-02-29\n", "day DATE, n BIGINT"),
            (&[("fixed.widths", "2,3"), ("fixed.header", "true")], "a n  \näö 12\nb  NA", "a STRING, n STRING"),
            (
                &[("fixed.widths", "2,3"), ("fixed.header", "skip"), ("fixed.null-literal", "NA")],
                "a n  \näö 12\nb  NA",
                "a STRING, n BIGINT",
            ),
        ] {
            let mut raw = RawOptions::new("t", pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())));
            let schema = infer_fixed(sample.as_bytes(), true, &FixedOptions::take(&mut raw).unwrap()).unwrap();
            let columns: Vec<_> = schema.fields().iter().map(|f| format!("{} {}", f.name(), type_name(f.data_type()))).collect();
            assert_eq!(columns.join(", "), expect, "{sample:?}");
        }
        let mut raw = RawOptions::new("t", [("fixed.widths".to_string(), "3".to_string())]);
        let options = FixedOptions::take(&mut raw).unwrap();
        assert!(infer_fixed(b"ab", false, &options).unwrap_err().to_string().contains("one whole line"));
        assert!(infer_fixed(b"\xe4b\n", false, &options).unwrap_err().to_string().contains("byte 0 is not UTF-8"));
    }
}
