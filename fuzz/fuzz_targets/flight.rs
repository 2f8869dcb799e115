//! Messages as publishers send them: Flight data (a schema, then record batches), and Arrow IPC streams,
//! through the checks and the decoder that stand before every row from a network.
//!
//! The first byte says which. Flight data is a row of messages, each two lengths of 16 bits and as many
//! bytes of header and body. What is decoded must be valid to its last offset.

#![no_main]

use arrow::array::{Array, RecordBatch};
use arrow::buffer::Buffer;
use libfuzzer_sys::fuzz_target;
use tidemill_format::ipc::{BatchDecoder, Framed, frame};

/// What a compressed batch or one with dictionaries may become.
const UNPACKED_BYTES_MAX: usize = 16 << 20;

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

/// The next message: header and body.
fn message<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let lengths = take(bytes, 4)?;
    let header = take(bytes, u16::from_le_bytes([lengths[0], lengths[1]]) as usize)?;
    let body = take(bytes, u16::from_le_bytes([lengths[2], lengths[3]]) as usize)?;
    Some((header, body))
}

fn flight(mut bytes: &[u8]) {
    let Some((header, _)) = message(&mut bytes) else { return };
    let Ok(decoder) = BatchDecoder::new(header) else { return };
    // So that little memory is enough to find what is not bounded.
    let mut decoder = decoder.unpacking(UNPACKED_BYTES_MAX);
    while let Some((header, body)) = message(&mut bytes) {
        if let Ok(Some(batch)) = decoder.decode(header, &Buffer::from(body)) {
            check(&batch);
        }
    }
}

fn stream(bytes: &[u8]) {
    let bytes = Buffer::from(bytes);
    let (mut at, mut decoder) = (0, None::<BatchDecoder>);
    while let Ok(Framed::Message(found)) = frame(&bytes[at..]) {
        let (begin, end) = (at + found.before, at + found.bytes());
        if end > bytes.len() {
            return;
        }
        let header = &bytes[begin..begin + found.header];
        match &mut decoder {
            None => match BatchDecoder::new(header) {
                Ok(made) => decoder = Some(made.unpacking(UNPACKED_BYTES_MAX)),
                Err(_) => return,
            },
            // Buffers that share these bytes, aligned or not, as in a request's body.
            Some(decoder) => {
                if let Ok(Some(batch)) = decoder.decode(header, &bytes.slice_with_length(end - found.body, found.body)) {
                    check(&batch);
                }
            }
        }
        at = end;
    }
}

fuzz_target!(|data: &[u8]| {
    match data {
        [0, bytes @ ..] => flight(bytes),
        [_, bytes @ ..] => stream(bytes),
        [] => {}
    }
});
