//! Messages arrive as they were, their values without a copy.

use super::*;
use arrow_flight::FlightDescriptor;
use futures::task::noop_waker_ref;

fn message(metadata: usize, values: usize) -> FlightData {
    let path = FlightDescriptor::new_path(vec!["stream".into(), "publisher".into()]);
    let data = FlightData::new().with_data_header(vec![1; 300]).with_app_metadata(vec![2; metadata]).with_data_body(vec![3; values]);
    if values == 0 { data.with_descriptor(path) } else { data }
}

/// The pieces of a body that is asked until it ends, or nothing more is there.
fn pieces(messages: impl Stream<Item = FlightData> + Unpin) -> Vec<Bytes> {
    let (mut body, mut context) = (MessageBody::new(messages), Context::from_waker(noop_waker_ref()));
    let mut pieces = Vec::new();
    while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut context) {
        pieces.push(frame.unwrap().into_data().unwrap());
    }
    pieces
}

/// What gRPC's library reads.
fn read(pieces: &[Bytes]) -> Vec<FlightData> {
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    let (mut bytes, mut messages) = (Bytes::from(bytes), Vec::new());
    while !bytes.is_empty() {
        let prefix = bytes.split_to(5);
        assert_eq!(prefix[0], 0);
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        messages.push(FlightData::decode(bytes.split_to(length)).unwrap());
    }
    messages
}

#[test]
fn messages_arrive_as_they_were() {
    let sizes = [(0, 0), (100, 1), (0, VALUES_BYTES_MIN - 1), (200, VALUES_BYTES_MIN), (5000, 1 << 20), (0, 0), (7, 300)];
    let messages: Vec<FlightData> = sizes.iter().map(|(metadata, values)| message(*metadata, *values)).collect();
    assert_eq!(read(&pieces(futures::stream::iter(messages.clone()))), messages);
    // Nothing waits for what does not come.
    let some = futures::StreamExt::chain(futures::stream::iter(messages.clone()), futures::stream::pending());
    assert_eq!(read(&pieces(some)), messages);
    assert!(pieces(futures::stream::empty()).is_empty());
}

#[test]
fn values_are_not_copied_and_follow_short_pieces() {
    let message = message(100, 64 << 10);
    let pieces = pieces(futures::stream::iter([message.clone()]));
    let (values, before) = pieces.split_last().unwrap();
    assert_eq!(values.as_ptr(), message.data_body.as_ptr());
    assert!(before.len() == 2 && before.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX), "{before:?}");
}

#[test]
fn small_messages_go_out_together() {
    let messages: Vec<FlightData> = (0..100).map(|n| message(10, n)).collect();
    let lengths: Vec<usize> = pieces(futures::stream::iter(messages)).iter().map(Bytes::len).collect();
    assert!(lengths.len() == 2 && lengths[0] >= GATHERED_BYTES && lengths[0] < GATHERED_BYTES + 1000, "{lengths:?}");
}
