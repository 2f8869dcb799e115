//! What a broker of MQTT sends: whatever it says of itself, the packets are read, or there is an error; and what is read of a
//! message does not depend on how much of it has come.
//!
//! The first byte says where messages are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_mqtt::packet::{HEAD_BYTES_MAX, Packet, Publish, head, message, read};

/// A message whose topic and properties are there is read, one without them is not; and it comes back if it is sent.
fn check(first: u8, body: &[u8], publish: &Publish, cut: u8) {
    assert!(publish.topic.end < publish.payload && publish.payload <= body.len());
    let topic = std::str::from_utf8(&body[publish.topic.clone()]).expect("topics are UTF-8");
    assert_eq!(read(first, &body[..publish.payload]), Ok(Packet::Publish(publish.clone())));
    assert!(read(first, &body[..usize::from(cut) % publish.payload]).is_err());

    let (payload, mut out) = (&body[publish.payload..], Vec::new());
    let length = message(&mut out, topic, publish.id, publish.retained, payload);
    let found = head(&out).expect("a packet").expect("a packet that is whole");
    let own = &out[found.from..];
    assert_eq!((found.length, own.len()), (length, length));
    let Ok(Packet::Publish(again)) = read(found.first, own) else { panic!("what is written is read") };
    assert_eq!((&own[again.topic.clone()], &own[again.payload..]), (topic.as_bytes(), payload));
    assert_eq!((again.id, again.retained, again.again), (publish.id, publish.retained, false));
}

fuzz_target!(|data: &[u8]| {
    let [cut, bytes @ ..] = data else { return };
    let whole = head(bytes);
    for length in 0..bytes.len().min(HEAD_BYTES_MAX) {
        let part = head(&bytes[..length]);
        assert!(part == Ok(None) || part == whole, "{part:?} of {length} bytes, {whole:?} of all");
    }
    let mut rest = bytes;
    while let Ok(Some(found)) = head(rest) {
        // Of the last one perhaps a part.
        let body = &rest[found.from..rest.len().min(found.from + found.length)];
        if let Ok(Packet::Publish(publish)) = read(found.first, body) {
            check(found.first, body, &publish, *cut);
        }
        rest = &rest[found.from + body.len()..];
    }
});
