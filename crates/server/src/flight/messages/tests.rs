//! Where a call ends.

use arrow_flight::FlightData;
use prost::Message as _;

use super::*;

/// A message as gRPC sends it.
fn framed() -> Vec<u8> {
    let data = FlightData { data_header: b"a header".to_vec().into(), data_body: vec![7u8; 1000].into(), ..FlightData::default() };
    let message = data.encode_to_vec();
    [&[0u8][..], &(message.len() as u32).to_be_bytes()[..], &message[..]].concat()
}

#[tokio::test]
async fn a_call_ends_between_messages_or_with_an_error() {
    let bytes = framed();
    let mut messages = Messages::new(Body::from(bytes.clone()), 1 << 20);
    assert_eq!(messages.message().await.unwrap().unwrap().header, b"a header".as_slice());
    assert!(messages.message().await.unwrap().is_none() && messages.message().await.unwrap().is_none());
    let mut messages = Messages::new(Body::from(bytes[..bytes.len() - 1].to_vec()), 1 << 20);
    assert!(messages.message().await.unwrap_err().message().contains("ended within it"));
}

/// What came behind a message that the job kept waiting was taken for as new as the moment at which it was looked at.
#[tokio::test]
async fn messages_that_came_together_came_at_one_time() {
    let bytes: Vec<u8> = samples().iter().flat_map(|m| framed(&m.encode_to_vec())).collect();
    let before = now_ns();
    let mut messages = Messages::new(Body::from(bytes), 1 << 20);
    let first = messages.message().await.unwrap().unwrap().arrival_ns;
    let now = now_ns();
    assert!((before..=now).contains(&first));
    while now_ns() == now {}
    assert_eq!(messages.message().await.unwrap().unwrap().arrival_ns, first);
}
