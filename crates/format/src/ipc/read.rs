//! Reads Arrow files and streams as a table declares them: columns found by name, in the engine's types, some thousand
//! rows at a time. A column that has the declared type is given as it lies in the file.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::{Array, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::build::Columns;
use super::file::{ArrowFile, FileMessages, IpcInput};
use super::held::Held;
use super::stream::{Opened, StreamMessages};
use super::{malformed, reason};
use crate::FormatError;
use crate::types::{plain_type, type_name};

/// What is asked of a file.
#[derive(Clone, Debug)]
pub struct ArrowAsk<'a> {
    /// The declared columns.
    pub physical: &'a SchemaRef,
    /// The numbers of those that are wanted, in the order in which they are given.
    pub projection: &'a [usize],
    /// Rows passed over, of those that would be given.
    pub start: u64,
    /// The most rows of a batch that is given; those of the file may have more.
    pub batch_rows: usize,
    /// Whether offsets, indices and texts are taken for what they must be, without a look. Only for files of trusted
    /// writers: wrong ones lead to reads outside of memory.
    pub trusted: bool,
}

/// Reads a file, some of its batches, or a stream.
pub struct ArrowReader {
    form: Form,
    target: Target,
    /// The batch at hand: its wanted columns, its rows, and those of them that were given.
    held: Option<(Vec<ArrayRef>, usize, usize)>,
    /// Rows still to be passed over.
    skip: u64,
    batch_rows: usize,
}

enum Form {
    File(FileMessages),
    Stream(StreamMessages),
}

/// The columns to make.
struct Target {
    schema: SchemaRef,
    /// For each of them, where it stands among the columns that are read.
    sources: Vec<usize>,
}

impl ArrowReader {
    /// Of the batches of a file with the numbers `part`, or of all. What is read of it is added to `read`, bytes.
    ///
    /// # Errors
    /// It lacks a column, or has it in a type that cannot become the declared one; it has fewer batches.
    pub fn of_file(
        input: Box<dyn IpcInput>,
        file: ArrowFile,
        part: Option<Range<u64>>,
        ask: &ArrowAsk<'_>,
        read: Arc<AtomicU64>,
    ) -> Result<Self, FormatError> {
        let mut target = None;
        let columns = |held| columns(held, ask, &mut target);
        let messages = FileMessages::new(input, file, part, columns, read)?;
        Ok(ArrowReader::of(Form::File(messages), target, ask))
    }

    /// Of a stream, or of a file from front to back. What is read of it is added to `read`, bytes.
    ///
    /// # Errors
    /// It cannot be read or is none of Arrow's; otherwise as [`ArrowReader::of_file`].
    pub fn of_stream(input: Box<dyn Read + Send>, ask: &ArrowAsk<'_>, read: Arc<AtomicU64>) -> Result<Self, FormatError> {
        let mut target = None;
        let messages = Opened::new(input, read)?.into_messages(|held| columns(held, ask, &mut target))?;
        Ok(ArrowReader::of(Form::Stream(messages), target, ask))
    }

    fn of(form: Form, target: Option<Target>, ask: &ArrowAsk<'_>) -> Self {
        let target = target.expect("made with the columns");
        ArrowReader { form, target, held: None, skip: ask.start, batch_rows: ask.batch_rows.max(1) }
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or a value does not fit into the declared type.
    pub fn read(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        loop {
            if let Some((columns, rows, done)) = &mut self.held
                && *done < *rows
            {
                let take = (*rows - *done).min(self.batch_rows);
                let batch = self.target.batch(columns, *done, take)?;
                *done += take;
                return Ok(Some(batch));
            }
            // What it points to is let go of before more is read.
            self.held = None;
            let next = match &mut self.form {
                Form::File(messages) => messages.next(&mut self.skip)?,
                Form::Stream(messages) => messages.next(&mut self.skip)?,
            };
            let Some((columns, rows)) = next else { break };
            let done = usize::try_from(std::mem::take(&mut self.skip)).unwrap_or(rows);
            self.held = Some((columns, rows, done));
        }
        if self.skip > 0 {
            let why = "it has fewer rows than before: it was replaced; put the file back, or start the job without its checkpoint";
            return Err(FormatError::data(why));
        }
        Ok(None)
    }
}

/// Chooses the columns of a file.
fn columns(held: Held, ask: &ArrowAsk<'_>, target: &mut Option<Target>) -> Result<Columns, FormatError> {
    let mut roots = Vec::with_capacity(ask.projection.len());
    for index in ask.projection {
        roots.push(find(&held.schema, &ask.physical.fields()[*index])?);
    }
    let mut wanted = vec![false; held.schema.fields().len()];
    roots.iter().for_each(|root| wanted[*root] = true);
    // Columns are read in the file's order, each once.
    let sources = roots.iter().map(|root| wanted[..*root].iter().filter(|wanted| **wanted).count()).collect();
    let fields: Vec<_> = ask.projection.iter().map(|index| ask.physical.fields()[*index].clone()).collect();
    *target = Some(Target { schema: Arc::new(Schema::new(fields)), sources });
    Ok(Columns::new(held, wanted, ask.trusted))
}

/// Where the file has a declared column.
fn find(held: &Schema, wanted: &Field) -> Result<usize, FormatError> {
    let mut named = held.fields().iter().enumerate().filter(|(_, field)| field.name() == wanted.name());
    let Some((root, field)) = named.next() else {
        let names: Vec<_> = held.fields().iter().map(|f| f.name().as_str()).collect();
        return Err(FormatError::data(format!("it has no column '{}'; it has: {}", wanted.name(), names.join(", "))));
    };
    if named.next().is_some() {
        return Err(FormatError::data(format!("it has two columns '{}', and nobody can tell which one is meant", wanted.name())));
    }
    let (from, to) = (field.data_type(), wanted.data_type());
    if from != to && !can_cast_types(from, to) {
        return Err(FormatError::data(format!(
            "column '{}' is {} in the file and cannot be read as {}",
            wanted.name(),
            type_name(from),
            type_name(to)
        )));
    }
    Ok(root)
}

impl Target {
    /// Some rows of the columns that were read, as declared.
    fn batch(&self, columns: &[ArrayRef], from: usize, rows: usize) -> Result<RecordBatch, FormatError> {
        let mut out = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            let column = columns[*source].slice(from, rows);
            let wrong = |why: String| FormatError::data(format!("column '{}' as {}: {why}", field.name(), type_name(field.data_type())));
            out.push(declared(&column, field.data_type()).map_err(wrong)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), out, &options).map_err(|e| malformed(reason(&e.to_string())))
    }
}

/// A column in the declared type.
fn declared(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, String> {
    if column.data_type() == to {
        return Ok(column.clone());
    }
    let said = |e: arrow::error::ArrowError| reason(&e.to_string()).to_string();
    // Arrow makes small offsets of large ones as they are, and fails where they count from the beginning of a large batch.
    let last = match column.data_type() {
        DataType::LargeUtf8 => column.as_string::<i64>().value_offsets().last(),
        DataType::LargeBinary => column.as_binary::<i64>().value_offsets().last(),
        _ => None,
    };
    let counted_anew = match last {
        Some(last) if *last > i64::from(i32::MAX) => {
            let data = column.to_data();
            let mut copy = MutableArrayData::new(vec![&data], false, data.len());
            copy.try_extend(0, 0, data.len()).map_err(said)?;
            Some(make_array(copy.freeze()))
        }
        _ => None,
    };
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(counted_anew.as_ref().unwrap_or(column), to, &strict).map_err(said)
}

/// The type of tables that holds the values of a column of a file.
fn engine_type(data_type: &DataType) -> DataType {
    match data_type {
        // All of it is NULL, whatever the type.
        DataType::Null | DataType::Interval(_) => DataType::Utf8,
        DataType::Duration(_) => DataType::Int64,
        // Numbers of more digits than DECIMAL has.
        DataType::Decimal256(precision, _) if *precision > 38 => DataType::Utf8,
        DataType::Dictionary(_, value) => engine_type(value),
        other => plain_type(other),
    }
}

fn engine_schema(held: &Schema) -> Result<SchemaRef, FormatError> {
    let mut fields = Vec::with_capacity(held.fields().len());
    for field in held.fields() {
        let (from, to) = (field.data_type(), engine_type(field.data_type()));
        if *from != to && !can_cast_types(from, &to) {
            return Err(FormatError::unsupported(format!(
                "column '{}' is {from}, which tables have nothing for; declare the other columns by CREATE TABLE",
                field.name()
            )));
        }
        fields.push(Field::new(field.name(), to, field.is_nullable() || *from == DataType::Null));
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// The columns of a file in the types that tables have.
///
/// # Errors
/// A column that no type of tables can hold.
pub fn schema_of_file(file: &ArrowFile) -> Result<SchemaRef, FormatError> {
    engine_schema(file.schema())
}

/// As [`schema_of_file`], of a stream or a file of which only the beginning is read.
///
/// # Errors
/// It cannot be read or is none of Arrow's; otherwise as [`schema_of_file`].
pub fn schema_of_stream(input: Box<dyn Read + Send>) -> Result<SchemaRef, FormatError> {
    engine_schema(&Opened::new(input, Arc::default())?.held.schema)
}

#[cfg(test)]
mod tests;
