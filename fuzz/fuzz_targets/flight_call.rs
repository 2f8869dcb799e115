//! The bytes of a publisher's Flight call, cut anywhere: the server's own reader of gRPC's frames and of the messages in
//! them. The messages and the error do not depend on where, and are those of prost.
//!
//! The first byte says how the rest is cut, the second whether it is one message, to which the frame is made, or the bytes
//! of a call.

#![no_main]

use arrow_flight::FlightData;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message as _;

use self::parser::{Message, Parser};

#[path = "../../crates/server/src/flight/parser.rs"]
mod parser;

/// Small, so that long messages are refused rather than waited for.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// What stands before a message.
const PREFIX_BYTES: usize = 5;
/// How values are to lie, bytes.
const ALIGNED: usize = 64;

/// The messages of a call, and whether it ended between two; or the error that ended it.
fn run(bytes: &[u8], piece: usize) -> (Vec<Message>, Result<bool, String>) {
    let (mut parser, mut messages) = (Parser::new(MESSAGE_BYTES_MAX), Vec::new());
    for piece in bytes.chunks(piece) {
        let mut piece = Bytes::copy_from_slice(piece);
        loop {
            // As the server does, which looks for room first.
            let announced = parser.announced(&mut piece);
            if let Ok(Some(bytes)) = &announced {
                assert!(*bytes <= MESSAGE_BYTES_MAX);
            }
            match announced.and_then(|_| parser.take(&mut piece)) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Err(format!("{:?}: {}", error.code(), error.message()))),
            }
        }
        assert!(piece.is_empty(), "bytes are left over");
    }
    (messages, Ok(parser.is_between()))
}

/// Cuts a frame off; none if the bytes do not hold it whole.
fn frame<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (prefix, rest) = bytes.split_at_checked(PREFIX_BYTES)?;
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
    let (message, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    (prefix[0] == 0 && length <= MESSAGE_BYTES_MAX).then_some(message)
}

/// Compares with what prost makes of the same frames.
fn compare(mut bytes: &[u8], messages: &[Message], end: &Result<bool, String>) {
    for message in messages {
        let data = frame(&mut bytes).map(FlightData::decode).expect("the frame of a message").expect("prost reads what we read");
        assert_eq!(message.descriptor, data.flight_descriptor);
        assert_eq!((&message.header, &message.metadata), (&data.data_header, &data.app_metadata));
        assert_eq!(message.body.as_slice(), data.data_body.as_ref());
        assert_eq!(message.body.as_ptr().align_offset(ALIGNED), 0);
    }
    if let Err(why) = end
        && frame(&mut bytes).is_some_and(|message| FlightData::decode(message).is_ok())
    {
        // Groups, which nobody has written for many years.
        assert!(why.contains("of a kind that Flight has not"), "prost reads it: {why}");
    }
}

fuzz_target!(|data: &[u8]| {
    let [piece, choice, bytes @ ..] = data else { return };
    let mut call = Vec::new();
    if choice & 1 > 0 {
        call.push(0);
        call.extend((bytes.len() as u32).to_be_bytes());
    }
    call.extend_from_slice(bytes);
    let whole = run(&call, call.len().max(1));
    assert_eq!(run(&call, *piece as usize + 1), whole);
    compare(&call, &whole.0, &whole.1);
});
