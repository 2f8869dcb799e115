//! What a server of Redis answers, cut anywhere: the answers and the error that ends them do not depend on where.
//!
//! The first byte says how the rest is cut.

#![no_main]

use std::io::{BufReader, ErrorKind};

use libfuzzer_sys::fuzz_target;
use tidemill_redis::resp::{Reply, read_reply, whole};

/// The answers, and what ended them, if only that there are no more.
fn run(bytes: &[u8], piece: usize) -> (Vec<Reply>, ErrorKind, String) {
    let (mut from, mut replies) = (BufReader::with_capacity(piece, bytes), Vec::new());
    loop {
        match read_reply(&mut from) {
            Ok(reply) => replies.push(reply),
            Err(error) => return (replies, error.kind(), error.to_string()),
        }
    }
}

/// The parts of an answer that has the form of a command.
fn command(reply: &Reply) -> Option<Vec<&[u8]>> {
    let Reply::Array(parts) = reply else { return None };
    let bytes = parts.iter().map(|part| if let Reply::Bytes(bytes) = part { Some(bytes.as_slice()) } else { None });
    bytes.collect()
}

fuzz_target!(|data: &[u8]| {
    let [piece, bytes @ ..] = data else { return };
    let all = run(bytes, bytes.len().max(1));
    assert_eq!(run(bytes, *piece as usize + 1), all);
    for reply in &all.0 {
        if let Some(parts) = command(reply) {
            let written = whole(&parts);
            let read = read_reply(&mut written.as_slice()).expect("what is written is read");
            assert_eq!(read, *reply);
        }
    }
});
