//! Tests of `ipc`.

use super::*;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, DictionaryArray, Int32Array, StringViewArray, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

fn batch() -> RecordBatch {
    let n: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let text: ArrayRef = Arc::new(StringViewArray::from(vec!["a", "a text that is longer than twelve bytes", "c"]));
    let fields: Fields = vec![Field::new("x", DataType::Int32, true)].into();
    let row: ArrayRef = Arc::new(StructArray::new(fields, vec![n.clone()], Some(vec![true, false, true].into())));
    RecordBatch::try_from_iter_with_nullable([("n", n, true), ("text", text, true), ("row", row, true)]).unwrap()
}

fn target() -> SchemaRef {
    let mut fields: Vec<_> = batch().schema().fields().iter().map(|f| f.as_ref().clone()).collect();
    fields[1] = Field::new("text", DataType::Utf8, true);
    Arc::new(Schema::new(fields))
}

fn written() -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch().schema()).unwrap();
    writer.write(&batch()).unwrap();
    writer.write(&batch().slice(1, 2)).unwrap();
    writer.into_inner().unwrap()
}

/// Feeds the bytes cut into pieces of `size`; gives the batches, or the error.
fn read(bytes: &[u8], size: usize) -> Result<Vec<RecordBatch>, ApiError> {
    let mut body = StreamBody::default();
    let (mut decoder, mut batches) = (None::<BatchDecoder>, Vec::new());
    for piece in bytes.chunks(size) {
        body.push(piece);
        while let Some((header, bytes)) = body.next(1 << 20)? {
            match &mut decoder {
                None => decoder = Some(BatchDecoder::new(&header, target(), 1 << 20)?),
                Some(decoder) => batches.extend(decoder.decode(&header, bytes)?),
            }
        }
    }
    body.finish()?;
    Ok(batches)
}

#[test]
fn a_stream_cut_anywhere() {
    let bytes = written();
    for size in [1, 7, 64, 4096, bytes.len()] {
        let batches = read(&bytes, size).unwrap();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [3, 2], "pieces of {size}");
        assert_eq!(batches[0].schema(), target());
        assert_eq!(batches[0].column(2).as_ref(), batch().column(2).as_ref());
        assert_eq!(batches[1].slice(1, 1).column(0).as_ref(), batch().slice(2, 1).column(0).as_ref());
    }
    assert!(read(&bytes[..bytes.len() - 12], 64).unwrap_err().to_string().contains("end within"));
}

#[test]
fn dictionaries_and_compressed_bodies_are_taken() {
    let words: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::from_iter(["a", "b", "a"]));
    let n = batch().column(0).clone();
    let coded = RecordBatch::try_from_iter_with_nullable([("n", n, true), ("text", words, true)]).unwrap();
    let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &coded.schema(), options).unwrap();
    writer.write(&coded).unwrap();
    let batches = read(&writer.into_inner().unwrap(), 7).unwrap();
    assert_eq!(batches[0].schema(), target());
    assert_eq!(batches[0].column(1).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), Some("b"), Some("a")]);
    assert_eq!(batches[0].column(0).as_ref(), batch().column(0).as_ref());
}

/// Whatever byte is wrong, there are rows or an error, never a panic.
#[test]
fn wrong_bytes_are_errors() {
    let bytes = written();
    for at in 0..bytes.len() {
        for wrong in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            let _ = read(&bytes, 4096);
        }
    }
}
