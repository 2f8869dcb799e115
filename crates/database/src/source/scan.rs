//! What is asked of a table, and how far it has been handed over.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};
use tidemill_connect::{ConnectError, ReadRequest};

use crate::driver::{Connection, DbError, Dialect, Target};
use crate::sink::key_rows;

/// A part of a table: from value to value of the column by which it is divided, in that column's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub lower: i128,
    pub upper: i128,
    /// The rows without a value are in it, too.
    pub nulls: bool,
}

/// The id of the split.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}{}", self.lower, self.upper, if self.nulls { "+null" } else { "" })
    }
}

impl Part {
    /// Reads what was displayed.
    pub fn parse(id: &str) -> Result<Self, ConnectError> {
        let (range, nulls) = id.strip_suffix("+null").map_or((id, false), |range| (range, true));
        let bounds = range.split_once("..").and_then(|(lower, upper)| Some((lower.parse().ok()?, upper.parse().ok()?)));
        let (lower, upper) = bounds.ok_or_else(|| ConnectError::new(format!("the checkpoint has '{id}', which is no part of a table")))?;
        Ok(Part { lower, upper, nulls })
    }
}

/// In which order rows come, and so what says how far they came.
#[derive(Clone, Debug)]
enum Order {
    /// In none that is known: they are counted.
    None,
    /// By these columns of the result, a primary key.
    Key(Vec<usize>),
    /// By this column of the result, which grows.
    Growing(usize),
}

/// How far rows were handed over.
#[derive(Clone, Debug, Default)]
pub(super) struct Cursor {
    /// Rows to pass over: all so far, or those with the newest value of the column that grows.
    pub rows: u64,
    /// The last key or value handed over, one row.
    pub after: Option<RecordBatch>,
}

/// The same as the checkpoint keeps it.
#[derive(Serialize, Deserialize)]
struct Position {
    rows: u64,
    /// An Arrow IPC stream, two hexadecimal digits a byte.
    after: Option<String>,
}

/// What is asked.
pub(super) struct Scan {
    table: String,
    dialect: &'static dyn Dialect,
    /// Of the result: the columns wanted, then those that say how far it came.
    pub schema: SchemaRef,
    /// How many are wanted.
    pub wanted: usize,
    /// No column is asked for: the rows are only counted.
    counts: bool,
    part: Option<(FieldRef, Part)>,
    order: Order,
}

impl Scan {
    pub fn new(
        target: &Target,
        dialect: &'static dyn Dialect,
        request: &ReadRequest,
        part: Option<(usize, Part)>,
        poll: Option<usize>,
    ) -> Self {
        let mut columns = request.projection.clone();
        // A column of the table as one of the result, added to it if need be.
        let mut place = |column: usize| {
            columns.iter().position(|c| *c == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            })
        };
        let order = match poll {
            Some(column) => Order::Growing(place(column)),
            None if target.key.is_empty() => Order::None,
            None => Order::Key(target.key.iter().map(|column| place(*column)).collect()),
        };
        let mut fields: Vec<FieldRef> = columns.iter().map(|c| target.schema.fields()[*c].clone()).collect();
        let counts = fields.is_empty();
        if counts {
            fields.push(Arc::new(Field::new("row", DataType::Int64, true)));
        }
        Scan {
            table: target.table.clone(),
            dialect,
            schema: Arc::new(Schema::new(fields)),
            wanted: request.projection.len(),
            counts,
            part: part.map(|(column, part)| (target.schema.fields()[column].clone(), part)),
            order,
        }
    }

    /// Where a split begins.
    ///
    /// # Errors
    /// A position that is not one of this table as it is now declared.
    pub fn cursor(&self, position: Option<&serde_json::Value>) -> Result<Cursor, ConnectError> {
        let Some(position) = position.filter(|p| !p.is_null()) else { return Ok(Cursor::default()) };
        let wrong = |why: &dyn fmt::Display| {
            ConnectError::new(format!(
                "the checkpoint's position in table '{}' is not one of it ({why}); was the declaration changed?",
                self.table
            ))
        };
        let position = Position::deserialize(position).map_err(|e| wrong(&e))?;
        let after = position.after.as_deref().map(decode).transpose().map_err(|e| wrong(&e))?;
        let expected: Vec<&FieldRef> = self.ordering().iter().map(|i| &self.schema.fields()[*i]).collect();
        if let Some(after) = &after {
            let schema = after.schema();
            let same = schema.fields().len() == expected.len()
                && schema.fields().iter().zip(expected).all(|(a, b)| a.name() == b.name() && a.data_type() == b.data_type());
            if !same {
                return Err(wrong(&"it is by other columns"));
            }
        }
        Ok(Cursor { rows: position.rows, after })
    }

    /// The columns of the result that are its order.
    fn ordering(&self) -> Vec<usize> {
        match &self.order {
            Order::None => Vec::new(),
            Order::Key(columns) => columns.clone(),
            Order::Growing(column) => vec![*column],
        }
    }

    /// Notes that rows of the result were handed over.
    ///
    /// # Errors
    /// Columns that cannot be compared.
    pub fn advance(&self, cursor: &mut Cursor, rows: &RecordBatch) -> Result<(), DbError> {
        let count = rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        let last = |columns: &[usize]| Ok::<_, DbError>(rows.project(columns)?.slice(count - 1, 1));
        match &self.order {
            Order::None => cursor.rows += count as u64,
            Order::Key(columns) => cursor.after = Some(last(columns)?),
            Order::Growing(column) => {
                let values = key_rows(rows, &[*column])?;
                let newest = values.row(count - 1);
                let same = (0..count).rev().take_while(|row| values.row(*row) == newest).count();
                let goes_on = match &cursor.after {
                    Some(after) if same == count => key_rows(after, &[0])?.row(0).data() == newest.data(),
                    _ => false,
                };
                cursor.rows = if goes_on { cursor.rows } else { 0 } + same as u64;
                cursor.after = Some(last(&[*column])?);
            }
        }
        Ok(())
    }

    /// The statement that continues at a cursor, its parameters, and how many rows of its result to pass over.
    ///
    /// # Errors
    /// Bounds that are not of the column's type; of the database, which may be asked how it orders the table.
    pub fn statement(&self, cursor: &Cursor, connection: &mut dyn Connection) -> Result<(String, Option<RecordBatch>, u64), DbError> {
        let quote = |index: usize| self.dialect.quote_column(self.schema.field(index).name());
        let mut ordered = |index: usize| connection.ordered_by(&self.table, self.schema.field(index), quote(index));
        let mut parameters: Vec<(String, ArrayRef)> = Vec::new();
        let mut add = |value: ArrayRef| {
            parameters.push((format!("p{}", parameters.len()), value));
            self.dialect.placeholder(parameters.len())
        };
        let mut conditions = Vec::new();
        if let Some((field, part)) = &self.part {
            let column = self.dialect.quote_column(field.name());
            let (lower, to, upper) = self.dialect.range(bound(part.lower, field)?, bound(part.upper, field)?)?;
            let cast = self.dialect.decimal_cast(field.data_type());
            let (lower, upper) = (cast_to(add(lower), cast), cast_to(add(upper), cast));
            let or_null = if part.nulls { format!(" OR {column} IS NULL") } else { String::new() };
            conditions.push(format!("({column} >= {lower} AND {column} {to} {upper}{or_null})"));
        }
        let (mut order, mut skip) = (String::new(), 0);
        match &self.order {
            Order::None => skip = cursor.rows,
            Order::Key(columns) => {
                let names: Vec<String> = columns.iter().map(|i| ordered(*i)).collect::<Result<_, _>>()?;
                if let Some(after) = &cursor.after {
                    let mut values = Vec::with_capacity(names.len());
                    for value in after.columns() {
                        let (value, cast) = self.dialect.position(value.clone())?;
                        values.push(cast_to(add(value), cast));
                    }
                    conditions.push(self.dialect.behind(&names, &values));
                }
                order = format!(" ORDER BY {}", names.join(", "));
            }
            Order::Growing(column) => {
                let name = ordered(*column)?;
                conditions.push(format!("{name} IS NOT NULL"));
                if let Some(after) = &cursor.after {
                    let (value, cast) = self.dialect.position(after.column(0).clone())?;
                    conditions.push(format!("{name} >= {}", cast_to(add(value), cast)));
                    skip = cursor.rows;
                }
                order = format!(" ORDER BY {name}");
            }
        }
        let columns: Vec<String> = (0..self.schema.fields().len()).map(quote).collect();
        let columns = if self.counts { "1".to_string() } else { columns.join(", ") };
        let condition = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        let sql = format!("SELECT {columns} FROM {}{condition}{order}", self.dialect.quote(&self.table));
        let parameters = if parameters.is_empty() { None } else { Some(RecordBatch::try_from_iter(parameters)?) };
        Ok((sql, parameters, skip))
    }
}

/// A placeholder, cast if that is asked for.
fn cast_to(placeholder: String, to: Option<&str>) -> String {
    match to {
        Some(to) => format!("CAST({placeholder} AS {to})"),
        None => placeholder,
    }
}

/// A value of a column from its units.
fn bound(units: i128, field: &Field) -> Result<ArrayRef, DbError> {
    Ok(match field.data_type() {
        DataType::Date32 => Arc::new(Date32Array::from(vec![units.clamp(i32::MIN.into(), i32::MAX.into()) as i32])),
        DataType::Decimal128(precision, scale) => {
            Arc::new(Decimal128Array::from(vec![units]).with_precision_and_scale(*precision, *scale)?)
        }
        other => {
            let value: ArrayRef = Arc::new(Int64Array::from(vec![units.clamp(i64::MIN.into(), i64::MAX.into()) as i64]));
            cast(&value, other)?
        }
    })
}

impl Cursor {
    /// The position for the checkpoint.
    pub fn position(&self) -> serde_json::Value {
        let after = self.after.as_ref().map(|row| encode(row).unwrap_or_default());
        serde_json::to_value(Position { rows: self.rows, after }).unwrap_or_default()
    }
}

/// One row as text, for checkpoints.
///
/// # Errors
/// Types that Arrow cannot write.
pub(crate) fn encode(row: &RecordBatch) -> Result<String, DbError> {
    let mut writer = StreamWriter::try_new(Vec::new(), &row.schema())?;
    writer.write(row)?;
    let bytes = writer.into_inner()?;
    Ok(bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')).collect())
}

/// The row that was encoded.
///
/// # Errors
/// The text is none of a row.
pub(crate) fn decode(text: &str) -> Result<RecordBatch, DbError> {
    let digit = |b: &u8| char::from(*b).to_digit(16).map(|d| d as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some((digit(high)? << 4) | digit(low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    let bytes = bytes.ok_or_else(|| DbError::fatal("its last row is no text of hexadecimal digits"))?;
    let mut reader = StreamReader::try_new(bytes.as_slice(), None)?;
    let row = reader.next().transpose()?.filter(|row| row.num_rows() == 1);
    row.ok_or_else(|| DbError::fatal("its last row is missing"))
}
