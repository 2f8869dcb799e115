//! Which columns of a table stand in the key of a message and which in its value.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use tidemill_connect::ConnectError;
use tidemill_format::message::MessageFormat;
use tidemill_format::options::RawOptions;

use crate::options::FieldsInclude;
use crate::registry;

/// A part of a message: its format and its columns.
#[derive(Clone)]
pub struct Part {
    /// How it is written.
    pub format: MessageFormat,
    /// Indices of its columns among the table's.
    pub columns: Vec<usize>,
    /// Its columns by the names that they have in the message.
    pub schema: SchemaRef,
}

/// Key and value of the messages of a table.
#[derive(Clone)]
pub struct Layout {
    /// The key, if it is written and read.
    pub key: Option<Part>,
    /// The value.
    pub value: Part,
}

/// What the options say of keys.
pub struct KeyOptions<'a> {
    /// The columns, by name.
    pub fields: Vec<String>,
    /// What their names begin with in the table only.
    pub prefix: &'a str,
    /// Whether the value has them, too.
    pub include: FieldsInclude,
    /// Whether there must be a key (`upsert-kafka`).
    pub required: bool,
}

impl Layout {
    /// The layout of a table with these physical columns; takes the options of the formats off `raw`.
    ///
    /// # Errors
    /// A format that is missing, unknown or cannot have a column's type; key columns that are not there.
    pub fn take(schema: &SchemaRef, keys: &KeyOptions<'_>, topic: &str, raw: &mut RawOptions) -> Result<Self, ConnectError> {
        let owner = raw.owner().to_string();
        let wrong = |why: String| ConnectError::new(format!("{owner}: {why}"));
        let key_format = MessageFormat::take(raw, "key.")?;
        let value_format = match (MessageFormat::take(raw, "value.")?, MessageFormat::take(raw, "")?) {
            (Some(_), Some(_)) => return Err(wrong("options 'format' and 'value.format' mean the same: give one of them".into())),
            (Some(format), None) | (None, Some(format)) => format,
            (None, None) if keys.required => return Err(wrong("option 'value.format' is required".into())),
            (None, None) => return Err(wrong("option 'format' is required".into())),
        };
        if keys.required && key_format.is_none() {
            return Err(wrong("option 'key.format' is required".into()));
        }
        if key_format.is_some() == keys.fields.is_empty() {
            return Err(wrong("options 'key.format' and 'key.fields' need each other".into()));
        }
        if !keys.prefix.is_empty() && keys.include == FieldsInclude::All {
            return Err(wrong("option 'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY'".into()));
        }
        let mut columns = Vec::new();
        for name in &keys.fields {
            let Ok(index) = schema.index_of(name) else {
                let names: Vec<_> = schema.fields().iter().map(|f| f.name().as_str()).collect();
                return Err(wrong(format!("option 'key.fields': there is no column '{name}'; there are: {}", names.join(", "))));
            };
            if !name.starts_with(keys.prefix) {
                return Err(wrong(format!("column '{name}' of the key does not begin with 'key.fields-prefix' = '{}'", keys.prefix)));
            }
            if !columns.contains(&index) {
                columns.push(index);
            }
        }
        let in_value = |i: &usize| keys.include == FieldsInclude::All || !columns.contains(i);
        let value = (0..schema.fields().len()).filter(in_value).collect();
        let value = part(schema, value, "", value_format, &format!("{topic}-value"), &owner)?;
        let key = match key_format {
            Some(format) if format.changelog() => {
                return Err(wrong(format!("option 'key.format' = '{}': keys are not changes", format.name())));
            }
            Some(format) => Some(part(schema, columns, keys.prefix, format, &format!("{topic}-key"), &owner)?),
            None => None,
        };
        if keys.required && value.format.changelog() {
            return Err(wrong(format!(
                "option 'value.format' = '{}': the messages of 'upsert-kafka' are rows, not changes; use 'connector' = 'kafka'",
                value.format.name()
            )));
        }
        Ok(Layout { key, value })
    }

    /// The same over a table's columns among which those of this layout have these indices.
    pub fn over(mut self, indices: &[usize]) -> Self {
        for part in self.key.iter_mut().chain([&mut self.value]) {
            part.columns.iter_mut().for_each(|column| *column = indices[*column]);
        }
        self
    }

    /// Checks that everything can be read; what a registry knows is not asked for before the job runs.
    ///
    /// # Errors
    /// A column type that a format cannot read.
    pub fn check_readable(&self) -> Result<(), ConnectError> {
        for part in self.key.iter().chain([&self.value]).filter(|p| p.format.registry_options().is_none()) {
            part.format.decoder(&part.schema, &[])?;
        }
        Ok(())
    }

    /// Checks that everything can be written; as [`Layout::check_readable`].
    ///
    /// # Errors
    /// A column type that a format cannot write.
    pub fn check_writable(&self) -> Result<(), ConnectError> {
        for part in self.key.iter().chain([&self.value]).filter(|p| p.format.registry_options().is_none()) {
            part.format.encoder(&part.schema)?;
        }
        Ok(())
    }
}

fn part(
    schema: &SchemaRef,
    columns: Vec<usize>,
    prefix: &str,
    mut format: MessageFormat,
    subject: &str,
    owner: &str,
) -> Result<Part, ConnectError> {
    registry::attach(&mut format, subject, owner)?;
    let fields: Vec<Field> = columns
        .iter()
        .map(|i| {
            let field = schema.field(*i);
            field.clone().with_name(field.name().strip_prefix(prefix).unwrap_or(field.name()))
        })
        .collect();
    Ok(Part { format, columns, schema: Arc::new(Schema::new(fields)) })
}

#[cfg(test)]
mod tests;
