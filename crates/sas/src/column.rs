//! Columns as a file describes them, and how a reader wants them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::{Kind, SasError};

/// A column of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, as the file writes it.
    pub name: String,
    /// What it says about itself in a few words; often empty.
    pub label: String,
    /// The name of its format (`DATE`, `DOLLAR`, `$CHAR`), without width; often empty.
    pub format: String,
    /// Width and decimals of the format; 0 if it has none.
    pub width: u16,
    /// See [`Column::width`].
    pub decimals: u16,
    /// What its values are.
    pub kind: Kind,
    /// Where its value begins in a row, bytes.
    pub(crate) offset: usize,
    /// Length of its value, bytes.
    pub(crate) length: usize,
}

impl Column {
    /// The column as a field: every value may be missing. The label and the whole format (`DATE9.`) are its
    /// metadata `label` and `format`, where there are any.
    pub fn field(&self) -> FieldRef {
        let mut metadata = HashMap::new();
        if !self.label.is_empty() {
            metadata.insert("label".to_string(), self.label.clone());
        }
        if !self.format.is_empty() {
            let width = if self.width > 0 { self.width.to_string() } else { String::new() };
            let decimals = if self.decimals > 0 { self.decimals.to_string() } else { String::new() };
            metadata.insert("format".to_string(), format!("{}{width}.{decimals}", self.format));
        }
        Arc::new(Field::new(&self.name, self.kind.data_type(), true).with_metadata(metadata))
    }

    /// Checks that a row of `row_bytes` bytes has the column's value in it.
    fn check(&self, row_bytes: usize) -> Result<(), SasError> {
        let Column { name, offset, length, .. } = self;
        if self.kind != Kind::Text && !(1..=8).contains(length) {
            return Err(SasError::data(format!("column '{name}' has numbers of {length} bytes; there are such of 3 to 8")));
        }
        match offset.checked_add(*length) {
            Some(end) if end <= row_bytes => Ok(()),
            _ => Err(SasError::data(format!(
                "column '{name}' has {length} bytes from byte {offset} of a row on, but a row has {row_bytes} bytes"
            ))),
        }
    }
}

/// Checks that a row of `row_bytes` bytes has the values of all columns in it, one beside the other: values that lay over
/// each other could be made to take up any amount of memory.
pub(crate) fn check(columns: &[Column], row_bytes: usize) -> Result<(), SasError> {
    columns.iter().try_for_each(|column| column.check(row_bytes))?;
    let all = columns.iter().map(|column| column.length).fold(0, usize::saturating_add);
    if all > row_bytes {
        return Err(SasError::data(format!("the columns have {all} bytes together, but a row has {row_bytes}")));
    }
    Ok(())
}

/// The schema of a file's columns.
pub(crate) fn schema(columns: &[Column]) -> SchemaRef {
    Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>()))
}

/// As what a column is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum As {
    /// In the type that the file's schema has; missing values are NULL.
    #[default]
    Natural,
    /// Dates and times as the numbers that they are in the file: DOUBLE; missing values are NULL.
    Number,
    /// As STRING; a missing number is not NULL but the text that SAS has for it: `.`, `._`, `.A` to `.Z`.
    Text,
}

/// A column that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its place among the file's columns.
    pub column: usize,
    /// As what.
    pub form: As,
}

impl Wanted {
    /// All columns of a file with so many, as they are.
    pub fn all(columns: usize) -> Vec<Wanted> {
        (0..columns).map(|column| Wanted { column, form: As::Natural }).collect()
    }

    /// The field of what comes out.
    pub(crate) fn field(&self, columns: &[Column]) -> Result<FieldRef, SasError> {
        let Some(column) = columns.get(self.column) else {
            return Err(SasError::data(format!("column {} was asked for, of {}", self.column, columns.len())));
        };
        let field = column.field();
        let data_type = match (self.form, column.kind) {
            (As::Natural, _) | (_, Kind::Text) => return Ok(field),
            (As::Number, _) => DataType::Float64,
            (As::Text, _) => DataType::Utf8,
        };
        Ok(Arc::new(field.as_ref().clone().with_data_type(data_type)))
    }
}
