//! What a broker answers for a partition: batches of records, through the checks and the decoder that stand before every
//! message from Kafka.
//!
//! The first byte says how many messages are taken at a time, the second how many transactions were aborted and where
//! reading begins and ends. The lengths and checksums of batches are put right, as far as they are batches: behind wrong
//! ones nothing would be reached.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_format::message::Place;
use tidemill_kafka::fetch::batch::{HEAD_BYTES, headers};
use tidemill_kafka::fetch::crc::crc32c;
use tidemill_kafka::fetch::pieces::{Given, Piece, Pieces};

/// Where the length of a batch, its format, its checksum and what that is of begin.
const LENGTH_AT: usize = 8;
const FORMAT_AT: usize = 16;
const SUM_AT: usize = 17;
const SUMMED_AT: usize = 21;

/// Makes batches of bytes: each is as long as its length says modulo 4 kB, or up to the end.
fn put_right(bytes: &mut [u8]) {
    let mut at = 0;
    while bytes.len() - at >= HEAD_BYTES {
        let batch = &mut bytes[at..];
        let said = (usize::from(batch[LENGTH_AT + 2] & 0xf) << 8) | usize::from(batch[LENGTH_AT + 3]);
        let length = said.clamp(HEAD_BYTES, batch.len());
        batch[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&(length as u32 - 12).to_be_bytes());
        // Offsets that are not near their end, and formats other than the newest now and then.
        batch[0] &= 0x3f;
        if batch[FORMAT_AT] & 0xf0 != 0xf0 {
            batch[FORMAT_AT] = 2;
        }
        let sum = crc32c(&batch[SUMMED_AT..length]);
        batch[SUM_AT..SUMMED_AT].copy_from_slice(&sum.to_be_bytes());
        at += length;
    }
}

/// A message: offset, time, key, value, bytes of its headers.
type Message = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>, usize);

fn run(piece: Piece, most: usize, stop: i64) -> (Vec<Message>, Given) {
    let (mut pieces, mut next, mut found) = (Pieces::default(), piece.from, Vec::new());
    pieces.put(piece);
    loop {
        let given = pieces.read(most, next, stop);
        let messages = pieces.messages("t", 0);
        assert!(messages.len() <= most && given.next >= next);
        let columns = messages.columns;
        for index in 0..messages.len() {
            let owned = |place: &Place| place.of(messages.bytes).map(<[u8]>::to_vec);
            assert!(columns.offsets[index] < stop);
            let mut bytes = 0;
            headers(messages.bytes, columns.headers[index], |name, value| bytes += name.len() + value.map_or(0, <[u8]>::len));
            std::hint::black_box(columns.batch(index));
            found.push((columns.offsets[index], columns.times[index], owned(&columns.keys[index]), owned(&columns.values[index]), bytes));
        }
        next = given.next;
        if given.stopped || given.fault.is_some() || pieces.done() {
            return (found, given);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let [most, choice, bytes @ ..] = data else { return };
    let mut bytes = bytes.to_vec();
    put_right(&mut bytes);
    let stop = if choice & 1 > 0 { i64::from(*choice) << 8 } else { i64::MAX };
    let from = i64::from((choice >> 1) & 7);
    let aborted: Vec<(i64, i64)> = (0..i64::from(choice >> 4)).map(|n| (n * 3, n & 1)).collect();
    let piece = || Piece { bytes: bytes.clone(), from, aborted: aborted.clone() };
    let (whole, end) = run(piece(), 1 << 20, stop);
    let (parts, other_end) = run(piece(), usize::from(*most) + 1, stop);
    assert_eq!((whole, end.next, end.stopped, end.fault), (parts, other_end.next, other_end.stopped, other_end.fault));
});
