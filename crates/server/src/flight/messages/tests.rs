//! Where a call ends, and what it waits for.

use arrow_flight::FlightData;
use futures::FutureExt;
use prost::Message as _;

use super::*;
use crate::limits::Limits;
use crate::room::Pending;

/// Room for four blocks.
fn pending() -> Arc<Pending> {
    Arc::new(Pending::new(Limits { block_bytes: 1 << 20, pending_bytes: 4 << 20, ..Limits::default() }))
}

/// A message as gRPC sends it.
fn framed() -> Vec<u8> {
    let data = FlightData { data_header: b"a header".to_vec().into(), data_body: vec![7u8; 1000].into(), ..FlightData::default() };
    let message = data.encode_to_vec();
    [&[0u8][..], &(message.len() as u32).to_be_bytes()[..], &message[..]].concat()
}

#[tokio::test]
async fn a_call_ends_between_messages_or_with_an_error() {
    let bytes = framed();
    let mut messages = Messages::new(Body::from(bytes.clone()), 1 << 20, pending().room());
    assert_eq!(messages.message().await.unwrap().unwrap().header, b"a header".as_slice());
    assert!(messages.message().await.unwrap().is_none() && messages.message().await.unwrap().is_none());
    let mut messages = Messages::new(Body::from(bytes[..bytes.len() - 1].to_vec()), 1 << 20, pending().room());
    assert!(messages.message().await.unwrap_err().message().contains("ended within it"));
}

/// What came behind a message that the job kept waiting was taken for as new as the moment at which it was looked at.
#[tokio::test]
async fn messages_that_came_together_came_at_one_time() {
    let before = now_ns();
    let mut messages = Messages::new(Body::from([framed(), framed()].concat()), 1 << 20, pending().room());
    let first = messages.message().await.unwrap().unwrap().arrival_ns;
    messages.settle();
    let now = now_ns();
    assert!((before..=now).contains(&first));
    while now_ns() == now {}
    assert_eq!(messages.message().await.unwrap().unwrap().arrival_ns, first);
}

/// Each call might hold a message of the largest size, so that thousands of them held more than any machine has.
#[tokio::test]
async fn a_message_waits_for_room() {
    let pending = pending();
    // Everybody's, and what there is beside it.
    let (mut other, mut another) = (pending.room(), pending.room());
    assert!(other.try_grow(4 << 20) && another.try_grow(2 << 20));
    let mut messages = Messages::new(Body::from([framed(), framed()].concat()), 1 << 20, pending.room());
    assert!(messages.message().now_or_never().is_none());
    other.empty();
    assert!(messages.message().await.unwrap().is_some());
    // Held until the rows are with the stream.
    assert!(pending.bytes() > 2 << 20);
    messages.settle();
    assert_eq!(pending.bytes(), 2 << 20);
    assert!(messages.message().await.unwrap().is_some());
    drop((messages, another));
    assert_eq!(pending.bytes(), 0);
}
