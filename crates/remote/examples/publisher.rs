//! Publishes one block again and again for some time, as fast as the server takes it:
//! `publisher ADDRESS STREAM BLOCK_BYTES SECONDS`. The stream has eight columns BIGINT, a to h.
//!
//! Prints a line of JSON: rows, bytes of messages, and the time until all rows were acknowledged.

use std::env;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use serde_json::json;
use tidemill_connect::{ConnectError, Waker};
use tidemill_remote::flight::client::{Client, ClientOptions};
use tidemill_remote::flight::options::Reconnect;
use tidemill_remote::flight::publisher::{Publisher, PublisherOptions, Ready};
use tidemill_remote::url::StreamUrl;

/// What waits for the connection, bytes at most.
const WINDOW_BYTES: usize = 8 << 20;
/// Bytes of a row.
const ROW_BYTES: usize = 64;

fn block(rows: usize) -> RecordBatch {
    let column = |at: usize| -> ArrayRef { Arc::new(Int64Array::from_iter_values((0..rows as i64).map(|n| n * 8 + at as i64))) };
    let columns = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate().map(|(at, name)| (name, column(at)));
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).expect("columns of one length")
}

fn main() -> Result<(), ConnectError> {
    let wrong = |text: &str| ConnectError::new(text);
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, stream, bytes, seconds] = arguments.as_slice() else {
        return Err(wrong("usage: publisher ADDRESS STREAM BLOCK_BYTES SECONDS"));
    };
    let bytes: usize = bytes.parse().map_err(|_| wrong("BLOCK_BYTES is no number"))?;
    let seconds: f64 = seconds.parse().map_err(|_| wrong("SECONDS is no number"))?;
    let url = StreamUrl::parse(&format!("flight://{address}/{stream}")).map_err(|why| wrong(&why))?;
    let client = Client::new(&ClientOptions::new(url))?;
    let block = block((bytes / ROW_BYTES).max(1));
    let here = thread::current();
    let pause = Duration::from_millis(100);
    let options = PublisherOptions {
        id: format!("load-{}", std::process::id()),
        keep: false,
        projected: false,
        window: WINDOW_BYTES,
        reconnect: Reconnect { attempts: Some(0), backoff: pause, backoff_max: pause },
    };
    let mut publisher = Publisher::start(client, block.schema(), options, Waker::new(move || here.unpark()))?;
    let (mut began, mut rows, mut sent_s) = (Instant::now(), 0, None);
    loop {
        match publisher.ready()? {
            Ready::Handshake(handshake) => {
                publisher.resume(handshake.offset);
                began = Instant::now();
            }
            Ready::Rows if began.elapsed().as_secs_f64() < seconds => {
                if publisher.try_send(&block, None, None)? {
                    rows += block.num_rows();
                }
            }
            Ready::Rows => {
                sent_s = Some(began.elapsed().as_secs_f64());
                publisher.finish();
            }
            Ready::Wait => thread::park_timeout(Duration::from_millis(20)),
            Ready::Columns(_) | Ready::Finished => break,
        }
    }
    let result = json!({
        "rows": rows,
        "bytes": publisher.sent().bytes,
        "blocks": publisher.sent().blocks,
        "sent_s": sent_s,
        "elapsed_s": began.elapsed().as_secs_f64(),
    });
    println!("{result}");
    Ok(())
}
