//! The frames of `siddhi-tcp`, cut anywhere: what comes out does not depend on where.
//!
//! The first byte says how the rest is cut, the second which columns there are and which are wanted.

#![no_main]

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use libfuzzer_sys::fuzz_target;
use tidemill_block::{Block, text};
use tidemill_connect::ReadRequest;
use tidemill_connect::siddhi_tcp::decode::{Batcher, Layout, Place};
use tidemill_connect::siddhi_tcp::frame::{Assembly, Cut, split};

/// Small, so that long frames are refused rather than waited for.
const FRAME_BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
struct Outcome {
    rows: Vec<String>,
    /// In order of place: faults of strings are found later than others.
    bad: Vec<(String, String)>,
    fault: Option<String>,
    unfinished: usize,
}

fn request(choice: u8) -> ReadRequest {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    let mut fields = vec![
        field("i", DataType::Int32),
        field("l", DataType::Int64),
        field("f", DataType::Float32),
        field("d", DataType::Float64),
        field("b", DataType::Boolean),
        field("t", DataType::Timestamp(TimeUnit::Millisecond, None)),
    ];
    if choice & 1 > 0 {
        fields.insert(1, field("s", DataType::Utf8));
    }
    if choice & 2 > 0 {
        fields.push(Field::new("u", DataType::Utf8, false));
    }
    let mut request = ReadRequest::all(Arc::new(Schema::new(fields)));
    if choice & 4 > 0 {
        request.projection.retain(|index| index % 2 == 0);
    }
    if choice & 8 > 0 {
        request.metadata.push(("timestamp".to_string(), Arc::new(field("at", DataType::Int64))));
    }
    request
}

fn run(layout: &Arc<Layout>, mut bytes: &[u8], piece: usize) -> Outcome {
    let mut outcome = Outcome::default();
    let (mut assembly, mut batcher, mut frames, mut offset) = (Assembly::default(), Batcher::new(layout.clone()), 0, 0);
    while !bytes.is_empty() && outcome.fault.is_none() {
        let space = assembly.space(4096);
        let count = piece.min(space.len()).min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        assembly.advance(count);
        let (buffer, mut at) = (assembly.data(), 0);
        loop {
            match split(&buffer[at..], FRAME_BYTES_MAX) {
                Ok(Cut::More(need)) => {
                    assert!(need > buffer.len() - at && need <= FRAME_BYTES_MAX, "there is less than a frame");
                    break;
                }
                Ok(Cut::Frame(frame)) => {
                    frames += 1;
                    batcher.add(buffer, at, &frame, Place { peer: "p", number: frames, offset: offset + at as u64 });
                    at += frame.length;
                }
                Err(error) => {
                    outcome.fault = Some(error.to_string());
                    break;
                }
            }
        }
        if let Some(rows) = batcher.finish(buffer, "p", 7, 1) {
            assert_eq!(rows.bad.len(), rows.places.len());
            outcome.rows.extend(text::format(&Block::inserts(rows.batch, 0)).lines().map(String::from));
            outcome.bad.extend(rows.places.into_iter().zip(rows.bad).map(|(place, bad)| {
                let record = (bad.record, bad.offset, bad.raw);
                (place, format!("{} {record:?}", bad.reason))
            }));
        }
        assembly.consume(at);
        offset += at as u64;
    }
    outcome.bad.sort();
    outcome.unfinished = assembly.data().len() + bytes.len();
    outcome
}

fuzz_target!(|data: &[u8]| {
    let [piece, choice, bytes @ ..] = data else { return };
    let layout = Arc::new(Layout::new(&request(*choice), None).expect("columns that the wire has"));
    let whole = run(&layout, bytes, usize::MAX);
    let cut = run(&layout, bytes, *piece as usize + 1);
    assert_eq!((&whole.rows, &whole.bad, &whole.fault), (&cut.rows, &cut.bad, &cut.fault));
    if whole.fault.is_none() {
        assert_eq!(whole.unfinished, cut.unfinished);
    }
});
