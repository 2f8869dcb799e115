//! Blocks as text, for tests: a line a row, `+I 1 abc NULL`, the kind left out for inserts.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::{Block, RowKind};

/// Writes a block as lines `KIND value value …`; `NULL` stands for a null.
pub fn format(block: &Block) -> String {
    let options = FormatOptions::new().with_null("NULL");
    let columns: Vec<_> = block
        .batch
        .columns()
        .iter()
        .map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("every type of a block has a text form"))
        .collect();
    let mut out = String::new();
    for row in 0..block.rows() {
        out.push_str(block.kind(row).short());
        for column in &columns {
            out.push(' ');
            out.push_str(&column.value(row).to_string());
        }
        out.push('\n');
    }
    out
}

/// Reads lines of values separated by blanks; the kind in front may be left out (`+I`).
///
/// # Panics
/// If a line has not as many values as the schema has fields, or a value is not of its type.
#[track_caller]
pub fn parse(schema: &SchemaRef, text: &str) -> Block {
    let mut kinds = Vec::new();
    let mut columns: Vec<Vec<Option<String>>> = vec![Vec::new(); schema.fields().len()];
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let kind = RowKind::from_short(words[0]);
        if kind.is_some() {
            words.remove(0);
        }
        kinds.push(kind.unwrap_or(RowKind::Insert));
        assert_eq!(words.len(), columns.len(), "values in line {line:?}");
        for (column, word) in columns.iter_mut().zip(words) {
            column.push((word != "NULL").then(|| word.to_string()));
        }
    }
    let arrays: Vec<ArrayRef> = columns
        .into_iter()
        .zip(schema.fields())
        .map(|(values, field)| {
            cast(&(Arc::new(StringArray::from(values)) as ArrayRef), field.data_type()).expect("values of the column's type")
        })
        .collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).expect("columns of the schema");
    if kinds.iter().all(|k| *k == RowKind::Insert) { Block::inserts(batch, 0) } else { Block::changelog(batch, kinds.into(), 0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("n", DataType::Int64, true)]))
    }

    #[test]
    fn text_round_trips() {
        let block = parse(&schema(), "a 1\n-U a 1\n+U a NULL\n-D b 3");
        assert_eq!(format(&block), "+I a 1\n-U a 1\n+U a NULL\n-D b 3\n");
    }

    #[test]
    fn slices_and_concatenation_keep_kinds() {
        let block = parse(&schema(), "a 1\n-D b 3\n+U c 4");
        let again = Block::concat(&schema(), &[block.slice(0, 1), block.slice(1, 2)]).unwrap();
        assert_eq!(format(&again), format(&block));
    }
}
