//! The columns of a file or stream as it has them, and the dictionaries in them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use arrow::ipc;
use arrow::ipc::convert::fb_to_schema;

use super::{Taken, check_field, malformed};
use crate::FormatError;

/// What a schema says.
#[derive(Debug)]
pub(super) struct Held {
    pub schema: SchemaRef,
    /// For each column the ids of the dictionaries in it, in the order in which types are walked.
    ids: Vec<Vec<i64>>,
    /// The type of each dictionary's values.
    values: HashMap<i64, DataType>,
}

impl Held {
    /// Reads a schema.
    ///
    /// # Errors
    /// What is wrong with it, or which column is of a type that is not taken.
    pub fn of(schema: ipc::Schema<'_>) -> Result<Self, FormatError> {
        if schema.endianness() != ipc::Endianness::Little {
            return Err(malformed("big-endian columns are not taken"));
        }
        let fields = schema.fields().ok_or_else(|| malformed("its schema has no list of columns"))?;
        let mut ids = Vec::with_capacity(fields.len());
        for field in fields {
            let wrong = |why: String| malformed(format!("column '{}': {why}", field.name().unwrap_or_default()));
            check_field(field, Taken::Files).map_err(wrong)?;
            let mut of_column = Vec::new();
            ids_in(field, &mut of_column);
            ids.push(of_column);
        }
        let schema = Arc::new(fb_to_schema(schema));
        let mut values = HashMap::new();
        for (field, ids) in schema.fields().iter().zip(&ids) {
            let wrong = |why: &str| malformed(format!("column '{}': {why}", field.name()));
            values_in(field.data_type(), &mut ids.iter(), &mut values).map_err(wrong)?;
        }
        Ok(Held { schema, ids, values })
    }

    /// The ids of the dictionaries in a column, in the order in which its type is walked.
    pub fn ids(&self, column: usize) -> &[i64] {
        &self.ids[column]
    }

    /// The type of a dictionary's values, if a column has such a dictionary.
    pub fn values(&self, id: i64) -> Option<&DataType> {
        self.values.get(&id)
    }
}

/// Notes the ids of a field's dictionaries; within one there is no other.
fn ids_in(field: ipc::Field<'_>, ids: &mut Vec<i64>) {
    match field.dictionary() {
        Some(dictionary) => ids.push(dictionary.id()),
        None => field.children().into_iter().flatten().for_each(|child| ids_in(child, ids)),
    }
}

/// Notes what the dictionaries of a type hold, whose ids come in the same order.
fn values_in(data_type: &DataType, ids: &mut std::slice::Iter<'_, i64>, values: &mut HashMap<i64, DataType>) -> Result<(), &'static str> {
    match data_type {
        DataType::Dictionary(_, value) => {
            let id = ids.next().ok_or("a dictionary without an id")?;
            match values.insert(*id, value.as_ref().clone()) {
                Some(other) if other != **value => Err("its dictionary has values of another type for another column"),
                _ => Ok(()),
            }
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            values_in(item.data_type(), ids, values)
        }
        DataType::Struct(fields) => fields.iter().try_for_each(|field| values_in(field.data_type(), ids, values)),
        _ => Ok(()),
    }
}
