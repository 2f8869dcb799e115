//! Writes the seeds of the target `flight`: a stream and its messages with columns of many kinds.
//!
//!     cargo run --manifest-path fuzz/Cargo.toml --example flight_seeds

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int8Array, Int64Array, RecordBatch, StringArray};
use arrow::array::{ListArray, TimestampMillisecondArray};
use arrow::datatypes::Int32Type;
use arrow::ipc::writer::StreamWriter;
use arrow_flight::utils::batches_to_flight_data;

fn batch(rows: usize) -> RecordBatch {
    let lists = (0..rows).map(|row| (row % 3 > 0).then(|| (0..row as i32).map(Some)));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("n", Arc::new((0..rows).map(|row| (row % 4 > 0).then_some(row as i64)).collect::<Int64Array>())),
        ("d", Arc::new((0..rows).map(|row| Some(row as f64 / 4.0)).collect::<Float64Array>())),
        ("b", Arc::new((0..rows).map(|row| Some(row % 2 > 0)).collect::<BooleanArray>())),
        ("s", Arc::new((0..rows).map(|row| (row % 5 > 0).then(|| "é".repeat(row))).collect::<StringArray>())),
        ("x", Arc::new((0..rows).map(|row| Some(vec![row as u8; row])).collect::<BinaryArray>())),
        ("t", Arc::new((0..rows).map(|row| Some(row as i64 * 1000)).collect::<TimestampMillisecondArray>())),
        ("m", Arc::new((0..rows).map(|row| Some(row as i128)).collect::<Decimal128Array>())),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ("row_kind", Arc::new(Int8Array::from(vec![0; rows]))),
    ];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/flight");
    std::fs::create_dir_all(&folder).expect("a folder for the seeds");
    let batches = vec![batch(0), batch(1), batch(9)];
    let mut stream = vec![1];
    let mut writer = StreamWriter::try_new(&mut stream, &batches[0].schema()).expect("a writer into memory");
    batches.iter().for_each(|batch| writer.write(batch).expect("writing into memory"));
    writer.finish().expect("writing into memory");
    drop(writer);
    std::fs::write(folder.join("stream"), stream).expect("writing a seed");
    let mut messages = vec![0];
    for data in batches_to_flight_data(&batches[0].schema(), batches.clone()).expect("batches of one schema") {
        for length in [data.data_header.len(), data.data_body.len()] {
            messages.extend(u16::try_from(length).expect("small batches").to_le_bytes());
        }
        messages.extend_from_slice(&data.data_header);
        messages.extend_from_slice(&data.data_body);
    }
    std::fs::write(folder.join("messages"), messages).expect("writing a seed");
}
