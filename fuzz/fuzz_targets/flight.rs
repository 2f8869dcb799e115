//! Messages as publishers send them: Flight data (a schema, then record batches), and Arrow IPC streams.
//!
//! The first byte says which. Flight data is a row of messages, each two lengths of 16 bits and as many
//! bytes of header and body. What is decoded must be valid to its last offset.

#![no_main]

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Schema;
use arrow::ipc::reader::StreamReader;
use arrow_flight::FlightData;
use arrow_flight::utils::flight_data_to_arrow_batch;
use libfuzzer_sys::fuzz_target;

fn check(batch: &RecordBatch) {
    for column in batch.columns() {
        assert_eq!(column.len(), batch.num_rows());
        column.to_data().validate_full().expect("what was decoded is valid");
    }
}

/// Cuts so many bytes off.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn message(bytes: &mut &[u8]) -> Option<FlightData> {
    let lengths = take(bytes, 4)?;
    let header = take(bytes, u16::from_le_bytes([lengths[0], lengths[1]]) as usize)?.to_vec();
    let body = take(bytes, u16::from_le_bytes([lengths[2], lengths[3]]) as usize)?.to_vec();
    Some(FlightData { data_header: header.into(), data_body: body.into(), ..FlightData::default() })
}

fn flight(mut bytes: &[u8]) {
    let Some(first) = message(&mut bytes) else { return };
    let Ok(schema) = Schema::try_from(&first) else { return };
    let (schema, dictionaries) = (Arc::new(schema), HashMap::new());
    while let Some(data) = message(&mut bytes) {
        if let Ok(batch) = flight_data_to_arrow_batch(&data, schema.clone(), &dictionaries) {
            check(&batch);
        }
    }
}

fn stream(bytes: &[u8]) {
    let Ok(reader) = StreamReader::try_new(bytes, None) else { return };
    reader.map_while(Result::ok).for_each(|batch| check(&batch));
}

fuzz_target!(|data: &[u8]| {
    match data {
        [0, bytes @ ..] => flight(bytes),
        [_, bytes @ ..] => stream(bytes),
        [] => {}
    }
});
