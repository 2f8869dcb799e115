//! What publishers send, made to fit the columns of a table: by name, in any order.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int8Type, Schema, SchemaRef};
use tidemill_format::types::type_name;

use crate::error::{HubError, Refusal};
use crate::stream::ROW_KIND;

/// Makes batches fit; remembers how for batches of one schema after another.
pub(crate) struct Fit {
    stream: String,
    wanted: SchemaRef,
    last: Option<(SchemaRef, Plan)>,
}

/// Where the columns come from.
#[derive(Clone)]
struct Plan {
    columns: Vec<Place>,
    row_kind: Option<usize>,
}

#[derive(Clone, Copy)]
enum Place {
    /// The column of this index.
    Take(usize),
    /// The same, in another of Arrow's forms of the type.
    Cast(usize),
    Null,
}

impl Fit {
    pub fn new(stream: &str, wanted: SchemaRef) -> Self {
        Fit { stream: stream.to_string(), wanted, last: None }
    }

    /// The columns that come out.
    pub fn wanted(&self) -> SchemaRef {
        self.wanted.clone()
    }

    /// Looks whether rows of a schema can be taken.
    ///
    /// # Errors
    /// [`HubError::Schema`] with both lists of columns.
    pub fn accepts(&mut self, given: &SchemaRef) -> Result<(), HubError> {
        self.plan(given).map(drop)
    }

    /// The rows with exactly the wanted columns.
    ///
    /// # Errors
    /// [`HubError::Schema`]: other columns, a NULL where none may be, rows that are not new; with what it counts for.
    pub fn fit(&mut self, batch: RecordBatch) -> Result<RecordBatch, (Refusal, HubError)> {
        if Arc::ptr_eq(batch.schema_ref(), &self.wanted) {
            return Ok(batch);
        }
        let (wanted, rows) = (self.wanted.clone(), batch.num_rows());
        let schema = |e| (Refusal::Schema, e);
        let plan = self.plan(batch.schema_ref()).map_err(schema)?;
        if let Some(at) = plan.row_kind {
            self.only_new(batch.column(at)).map_err(schema)?;
        }
        let wrong = |refusal, why: String| (refusal, HubError::Schema(format!("rows for stream '{}': {why}", self.stream)));
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(plan.columns.len());
        for (place, field) in plan.columns.iter().zip(wanted.fields()) {
            columns.push(match place {
                Place::Take(at) => batch.column(*at).clone(),
                Place::Cast(at) => {
                    let cast = cast(batch.column(*at), field.data_type());
                    cast.map_err(|e| wrong(Refusal::Malformed, format!("column '{}': {e}", field.name())))?
                }
                Place::Null => new_null_array(field.data_type(), rows),
            });
            if !field.is_nullable() && columns.last().is_some_and(|c| c.null_count() > 0) {
                return Err(wrong(Refusal::Null, format!("column '{}' is NOT NULL, but a row has NULL in it", field.name())));
            }
        }
        RecordBatch::try_new_with_options(wanted, columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
            .map_err(|e| wrong(Refusal::Malformed, e.to_string()))
    }

    /// The plan for a schema. A copy: a few numbers a batch.
    fn plan(&mut self, given: &SchemaRef) -> Result<Plan, HubError> {
        if let Some((schema, plan)) = &self.last
            && (Arc::ptr_eq(schema, given) || schema == given)
        {
            return Ok(plan.clone());
        }
        let plan = plan(&self.stream, given, &self.wanted)?;
        self.last = Some((given.clone(), plan.clone()));
        Ok(plan)
    }

    fn only_new(&self, kinds: &ArrayRef) -> Result<(), HubError> {
        match kinds.as_primitive_opt::<Int8Type>() {
            Some(kinds) if kinds.null_count() == 0 && kinds.values().iter().all(|k| *k == 0) => Ok(()),
            _ => Err(HubError::Schema(format!(
                "stream '{}' takes new rows only: its column '{ROW_KIND}' must be TINYINT and 0 (+I) in every row; leave it out, or set 'stream.changes' of the table",
                self.stream
            ))),
        }
    }
}

fn plan(stream: &str, given: &Schema, wanted: &Schema) -> Result<Plan, HubError> {
    let mut used = vec![false; given.fields().len()];
    let mut columns = Vec::with_capacity(wanted.fields().len());
    let mut fits = true;
    for field in wanted.fields() {
        let place = match given.fields().iter().position(|f| f.name() == field.name()) {
            Some(at) if given.field(at).data_type() == field.data_type() => Place::Take(at),
            Some(at) if same(given.field(at).data_type(), field.data_type()) => Place::Cast(at),
            None if field.is_nullable() => Place::Null,
            _ => {
                fits = false;
                break;
            }
        };
        if let Place::Take(at) | Place::Cast(at) = place {
            used[at] = true;
        }
        columns.push(place);
    }
    let row_kind = given.fields().iter().position(|f| f.name() == ROW_KIND).filter(|at| !used[*at]);
    if let Some(at) = row_kind {
        used[at] = true;
    }
    if fits && used.iter().all(|u| *u) {
        return Ok(Plan { columns, row_kind });
    }
    Err(HubError::Schema(format!(
        "the rows are not of stream '{stream}': it has {}; they have {} (columns are found by name, those that may be NULL may be left out)",
        listed(wanted),
        listed(given)
    )))
}

/// Whether both are forms of one SQL type.
fn same(given: &DataType, wanted: &DataType) -> bool {
    match (given, wanted) {
        (DataType::Utf8View | DataType::LargeUtf8, DataType::Utf8) | (DataType::BinaryView | DataType::LargeBinary, DataType::Binary) => {
            true
        }
        // A time zone only says how an instant is shown.
        (DataType::Timestamp(a, Some(_)), DataType::Timestamp(b, Some(_))) => a == b,
        (DataType::Dictionary(_, value), wanted) => **value == *wanted || same(value, wanted),
        (DataType::List(a) | DataType::LargeList(a), DataType::List(b)) => {
            a.data_type() == b.data_type() || same(a.data_type(), b.data_type())
        }
        (given, wanted) => given.equals_datatype(wanted),
    }
}

fn listed(schema: &Schema) -> String {
    let one = |f: &arrow::datatypes::FieldRef| {
        format!("{} {}{}", f.name(), type_name(f.data_type()), if f.is_nullable() { "" } else { " NOT NULL" })
    };
    if schema.fields().is_empty() { "no columns".into() } else { schema.fields().iter().map(one).collect::<Vec<_>>().join(", ") }
}
