//! Many subscribers of one stream in one process, each with a connection of its own, that count what they
//! get and look at nothing: `subscribers ADDRESS STREAM COUNT SECONDS [drop|wait]`.
//!
//! Prints `ready` when all are subscribed, and after the time a line of JSON: messages and bytes of that
//! time, and how many subscriptions ended before it was over.

use std::env;
use std::error::Error;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow_flight::Ticket;
use arrow_flight::flight_service_client::FlightServiceClient;
use serde_json::json;
use tokio::sync::Semaphore;
use tonic::transport::Endpoint;

/// Connections that are being made at a time.
const CONNECTING_MAX: usize = 32;
/// The largest message taken, bytes.
const MESSAGE_BYTES_MAX: usize = 128 << 20;

/// What all subscribers have got so far.
#[derive(Default)]
struct Counts {
    subscribed: AtomicUsize,
    ended: AtomicUsize,
    messages: AtomicU64,
    bytes: AtomicU64,
    /// Why the first subscription ended.
    error: Mutex<Option<String>>,
}

type Failed = Box<dyn Error + Send + Sync>;

/// Subscribes and counts until the stream ends.
async fn subscribe(address: String, ticket: String, connecting: Arc<Semaphore>, counts: Arc<Counts>) -> Result<(), Failed> {
    let turn = connecting.acquire_owned().await?;
    let endpoint = Endpoint::from_shared(address)?.tcp_nodelay(true);
    let endpoint = endpoint.initial_connection_window_size(16 << 20).initial_stream_window_size(8 << 20).max_frame_size(1 << 20);
    let mut client = FlightServiceClient::new(endpoint.connect().await?).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut messages = client.do_get(Ticket::new(ticket)).await?.into_inner();
    messages.message().await?.ok_or("the stream ended before its schema came")?;
    counts.subscribed.fetch_add(1, Ordering::Relaxed);
    drop(turn);
    while let Some(message) = messages.message().await? {
        counts.messages.fetch_add(1, Ordering::Relaxed);
        counts.bytes.fetch_add((message.data_header.len() + message.data_body.len()) as u64, Ordering::Relaxed);
    }
    Ok(())
}

#[allow(clippy::disallowed_methods)] // A program of its own, with a runtime of its own.
#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (address, stream, count, seconds, slow) = match arguments.as_slice() {
        [address, stream, count, seconds] => (address, stream, count, seconds, "drop"),
        [address, stream, count, seconds, slow] => (address, stream, count, seconds, slow.as_str()),
        _ => return Err("usage: subscribers ADDRESS STREAM COUNT SECONDS [drop|wait]".into()),
    };
    let (count, seconds): (usize, f64) = (count.parse()?, seconds.parse()?);
    let ticket = json!({ "stream": stream, "slow": slow }).to_string();
    let (connecting, counts) = (Arc::new(Semaphore::new(CONNECTING_MAX)), Arc::new(Counts::default()));
    for _ in 0..count {
        let (address, ticket, connecting, counts) = (format!("http://{address}"), ticket.clone(), connecting.clone(), counts.clone());
        tokio::spawn(async move {
            let why = match subscribe(address, ticket, connecting, counts.clone()).await {
                Ok(()) => "the stream has ended".to_string(),
                Err(error) => error.to_string(),
            };
            counts.error.lock().expect("no panic while held").get_or_insert(why);
            counts.ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    while counts.subscribed.load(Ordering::Relaxed) < count {
        if let Some(why) = counts.error.lock().expect("no panic while held").clone() {
            return Err(why.into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("ready");
    let read = || (counts.messages.load(Ordering::Relaxed), counts.bytes.load(Ordering::Relaxed));
    let (began, before) = (Instant::now(), read());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let (elapsed, after) = (began.elapsed().as_secs_f64(), read());
    let result = json!({
        "subscribers": count,
        "elapsed_s": elapsed,
        "messages": after.0 - before.0,
        "bytes": after.1 - before.1,
        "ended": counts.ended.load(Ordering::Relaxed),
        "error": *counts.error.lock().expect("no panic while held"),
    });
    println!("{result}");
    Ok(())
}
