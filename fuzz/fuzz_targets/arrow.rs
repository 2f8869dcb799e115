//! Arrow files and streams from strangers: whatever they say of themselves, there is an error, or rows that are valid to
//! their last offset and do not depend on the size of batches.

#![no_main]

use std::io::{self, Cursor};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::buffer::Buffer;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use libfuzzer_sys::fuzz_target;
use tidemill_format::FormatError;
use tidemill_format::ipc::{ArrowAsk, ArrowFile, ArrowReader, IpcInput, schema_of_file, schema_of_stream};

/// Rows that are looked at; rows of columns that take no bytes may be many.
const ROWS_MAX: usize = 20_000;

struct Memory(Buffer);

impl IpcInput for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, parts: &[Range<u64>]) -> io::Result<Vec<Buffer>> {
        Ok(parts.iter().map(|part| self.0.slice_with_length(part.start as usize, (part.end - part.start) as usize)).collect())
    }
}

/// The rows in batches of so many; none if there is an error before they are enough.
fn rows(bytes: &[u8], front: bool, batch_rows: usize) -> Option<RecordBatch> {
    let input = Memory(Buffer::from(bytes));
    let file = if front { None } else { ArrowFile::open(&input).ok()? };
    let stream = || Box::new(Cursor::new(bytes.to_vec()));
    let schema: SchemaRef = match &file {
        Some(file) => schema_of_file(file).ok()?,
        None => schema_of_stream(stream()).ok()?,
    };
    let projection: Vec<usize> = (0..schema.fields().len()).collect();
    let ask = ArrowAsk { physical: &schema, projection: &projection, start: 0, batch_rows, trusted: false };
    let reader: Result<ArrowReader, FormatError> = match file {
        Some(file) => ArrowReader::of_file(Box::new(input), file, None, &ask, Arc::default()),
        None => ArrowReader::of_stream(stream(), &ask, Arc::default()),
    };
    let (mut reader, mut batches, mut found) = (reader.ok()?, Vec::new(), 0);
    while found < ROWS_MAX {
        let Some(batch) = reader.read().ok()? else { break };
        assert!(batch.num_rows() > 0 && batch.num_rows() <= batch_rows);
        for column in batch.columns() {
            assert_eq!(column.len(), batch.num_rows());
            column.to_data().validate_full().expect("what was decoded is valid");
        }
        found += batch.num_rows();
        batches.push(batch);
    }
    let all = concat_batches(&schema, &batches).ok()?;
    Some(all.slice(0, all.num_rows().min(ROWS_MAX)))
}

fuzz_target!(|data: &[u8]| {
    for front in [false, true] {
        if let (Some(few), Some(many)) = (rows(data, front, 7), rows(data, front, 1000)) {
            assert!(few == many, "rows depend on the size of batches");
        }
    }
});
