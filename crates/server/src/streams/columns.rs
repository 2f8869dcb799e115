//! From the columns that a publisher sends to those of the stream: by name, in any order, with the casts
//! that change how a value is kept and not which value it is.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int8Type, Schema, SchemaRef};
use arrow::util::display::FormatOptions;
use tidemill_format::types::type_name;
use tidemill_hub::{ROW_KIND, Refusal};

use crate::error::ApiError;

/// Overflow is an error and not a NULL.
const STRICT: CastOptions<'static> = CastOptions { safe: false, format_options: FormatOptions::new() };

/// Rows for which a column of NULLs is kept at most: those of messages of the usual size.
const NULLS_KEPT: usize = 8192;

/// How the columns of a stream are made of those of a publisher.
#[derive(Debug)]
pub(crate) struct ColumnMap {
    target: SchemaRef,
    columns: Vec<Made>,
    /// The publisher's column of row kinds, which must all be `+I`.
    kinds: Option<usize>,
}

/// Why rows do not fit.
#[derive(Debug)]
pub(crate) struct Misfit {
    /// Which row and column, and why.
    pub why: String,
    /// What it counts for.
    pub refusal: Refusal,
}

impl From<Misfit> for ApiError {
    fn from(misfit: Misfit) -> ApiError {
        ApiError::bad_request(misfit.why).because(misfit.refusal)
    }
}

/// How one column is made.
#[derive(Debug)]
enum Made {
    /// The publisher's column with this index.
    Same(usize),
    /// Cast to the stream's type.
    Cast(usize),
    /// All NULL: the publisher does not have it, or has it without a type. Messages share the longest there was.
    Null(Option<ArrayRef>),
}

impl ColumnMap {
    /// For rows of `source` on their way into a stream of `target`.
    ///
    /// # Errors
    /// Lists both schemas, and says which column does not fit.
    pub fn new(source: &Schema, target: SchemaRef) -> Result<Self, Misfit> {
        match Self::find(source, &target) {
            Ok((columns, kinds)) => Ok(ColumnMap { target, columns, kinds }),
            Err(why) => {
                let why = format!("{why}; sent: ({}); the stream has: ({})", listed(source), listed(&target));
                Err(Misfit { why, refusal: Refusal::Schema })
            }
        }
    }

    fn find(source: &Schema, target: &Schema) -> Result<(Vec<Made>, Option<usize>), String> {
        let mut used = vec![false; source.fields().len()];
        let mut columns = Vec::with_capacity(target.fields().len());
        for field in target.fields() {
            let mut named = source.fields().iter().enumerate().filter(|(_, f)| f.name() == field.name());
            columns.push(match (named.next(), named.next()) {
                (Some(_), Some(_)) => return Err(format!("column '{}' stands there twice", field.name())),
                (None, _) if field.is_nullable() => Made::Null(None),
                (None, _) => return Err(format!("column '{}' is missing and cannot be NULL", field.name())),
                (Some((index, sent)), None) => {
                    used[index] = true;
                    if *sent.data_type() == DataType::Null {
                        Made::Null(None)
                    } else if sent.data_type() == field.data_type() {
                        Made::Same(index)
                    } else if keeps_values(sent.data_type(), field.data_type()) {
                        Made::Cast(index)
                    } else {
                        let (from, to) = (type_name(sent.data_type()), type_name(field.data_type()));
                        return Err(format!("column '{}' is {from}, the stream wants {to}", field.name()));
                    }
                }
            });
        }
        if !target.fields().is_empty() && columns.iter().all(|c| matches!(c, Made::Null(_))) {
            return Err("none of the stream's columns is there".to_string());
        }
        let mut kinds = None;
        for (index, field) in source.fields().iter().enumerate().filter(|(i, _)| !used[*i]) {
            if field.name() == ROW_KIND && *field.data_type() == DataType::Int8 {
                kinds = Some(index);
            } else {
                return Err(format!("the stream has no column '{}'", field.name()));
            }
        }
        Ok((columns, kinds))
    }

    /// What [`ColumnMap::apply`] gives.
    pub fn target(&self) -> &SchemaRef {
        &self.target
    }

    /// How many columns are made up of NULLs, one after the other in memory.
    pub fn nulls(&self) -> usize {
        self.columns.iter().filter(|c| matches!(c, Made::Null(_))).count()
    }

    /// The rows with the stream's columns. `before` rows stood before these: in messages rows are counted
    /// from 1.
    ///
    /// # Errors
    /// NULL where the stream has none, a row that is not `+I`, a value beyond the range of its type.
    pub fn apply(&mut self, batch: &RecordBatch, before: u64) -> Result<RecordBatch, Misfit> {
        let rows = batch.num_rows();
        let misfit = |refusal, why| Misfit { why, refusal };
        if let Some(kinds) = self.kinds {
            let kinds = batch.column(kinds).as_primitive::<Int8Type>();
            if let Some(row) = (0..rows).find(|row| kinds.is_null(*row) || kinds.value(*row) != 0) {
                let row = before + row as u64 + 1;
                let unless = "unless the table has 'stream.changes'";
                let why = format!("row {row}: a publisher can only insert rows, column '{ROW_KIND}' must be 0 (+I), {unless}");
                return Err(misfit(Refusal::Schema, why));
            }
        }
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for (made, field) in self.columns.iter_mut().zip(self.target.fields()) {
            let column = match made {
                Made::Same(index) => batch.column(*index).clone(),
                Made::Cast(index) => cast_with_options(batch.column(*index), field.data_type(), &STRICT).map_err(|e| {
                    misfit(Refusal::Malformed, format!("column '{}': {}", field.name(), tidemill_plan::message::of_arrow(&e)))
                })?,
                Made::Null(kept) => nulls(kept, field.data_type(), rows),
            };
            if !field.is_nullable() && column.null_count() > 0 {
                let row = before + (0..rows).find(|row| column.is_null(*row)).unwrap_or(0) as u64 + 1;
                let why = format!("row {row}: column '{}' is NULL, and the stream has it NOT NULL", field.name());
                return Err(misfit(Refusal::Null, why));
            }
            columns.push(column);
        }
        RecordBatch::try_new_with_options(self.target.clone(), columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
            .map_err(|e| misfit(Refusal::Malformed, tidemill_plan::message::of_arrow(&e)))
    }
}

/// A column of NULLs.
fn nulls(kept: &mut Option<ArrayRef>, data_type: &DataType, rows: usize) -> ArrayRef {
    if let Some(column) = kept
        && column.len() >= rows
    {
        return column.slice(0, rows);
    }
    let column = new_null_array(data_type, rows);
    if rows <= NULLS_KEPT {
        *kept = Some(column.clone());
    }
    column
}

/// Whether a cast leaves every value what it is, or says that it cannot.
fn keeps_values(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        _ if from == to => true,
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | LargeUtf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView, Binary | LargeBinary | BinaryView) => true,
        (Timestamp(_, a), Timestamp(_, b)) => a.is_some() == b.is_some(),
        (Time32(_) | Time64(_), Time32(_) | Time64(_)) => true,
        (Date32 | Date64, Date32 | Date64) => true,
        (List(a) | LargeList(a), List(b) | LargeList(b)) => keeps_values(a.data_type(), b.data_type()),
        (Struct(a), Struct(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name() == b.name() && keeps_values(a.data_type(), b.data_type()))
        }
        // What the entries, keys and values are called is the writer's matter.
        (Map(a, _), Map(b, _)) => match (a.data_type(), b.data_type()) {
            (Struct(a), Struct(b)) => {
                a.len() == 2 && b.len() == 2 && a.iter().zip(b).all(|(a, b)| keeps_values(a.data_type(), b.data_type()))
            }
            _ => false,
        },
        _ => false,
    }
}

fn listed(schema: &Schema) -> String {
    let column = |f: &arrow::datatypes::FieldRef| {
        let not_null = if f.is_nullable() { "" } else { " NOT NULL" };
        format!("{} {}{not_null}", f.name(), type_name(f.data_type()))
    };
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
