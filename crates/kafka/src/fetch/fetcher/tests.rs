//! Against a broker of a few lines that answers as it is told, one partition of one topic.

use std::io::{Read, Write};
use std::net::TcpListener;

use tidemill_format::options::{OptionSet, RawOptions};

use super::*;
use crate::fetch::Came;
use crate::fetch::bytes::Cursor;
use crate::fetch::written::{Batch, record};
use crate::options::CommonOptions;
use crate::position::EARLIEST;
use crate::taken::{Message as _, Taken as _};
use crate::transaction::wire::Body;

/// The answer to a request for messages.
enum Step {
    /// These, and the end of the partition.
    Records(Vec<u8>, i64),
    Code(i16),
    /// The connection is closed instead.
    HangUp,
}

/// What is answered to a request for messages from an offset on.
type Script = Arc<Mutex<Box<dyn FnMut(i64) -> Step + Send>>>;

/// Starts a broker that knows these versions of fetching, and whose oldest message is at 7; its address.
fn broker(fetch_version: i16, script: impl FnMut(i64) -> Step + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let script: Script = Arc::new(Mutex::new(Box::new(script)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let script = script.clone();
            std::thread::spawn(move || serve(stream.unwrap(), address.port(), fetch_version, &script));
        }
    });
    address.to_string()
}

fn serve(mut stream: TcpStream, port: u16, fetch_version: i16, script: &Script) -> Option<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request).ok()?;
        let mut cursor = Cursor::new(&request, 0);
        let (key, _version, correlation) = (cursor.i16()?, cursor.i16()?, cursor.i32()?);
        let client = cursor.i16()?;
        cursor.take(client as usize)?;
        let none = Body::default().i32(correlation);
        let answer = match key {
            18 => [(1, fetch_version), (2, 9), (3, 13), (23, 4)]
                .into_iter()
                .fold(none.i16(0).i32(4), |body, (key, most)| body.i16(key).i16(0).i16(most)),
            3 => {
                let brokers = none.i32(0).i32(1).i32(4).text("127.0.0.1").i32(i32::from(port)).i16(-1).i16(-1).i32(4);
                let topic = brokers.i32(1).i16(0).text("t").i8(0);
                // Batches are written in epoch 7.
                topic.i32(1).i16(0).i32(0).i32(4).i32(8).i32(0).i32(0).i32(0)
            }
            2 => none.i32(0).i32(1).text("t").i32(1).i32(0).i16(0).i64(-1).i64(7).i32(2),
            // The leader before wrote up to 3.
            23 => none.i32(0).i32(1).text("t").i32(1).i16(0).i32(0).i32(7).i64(3),
            _ => {
                // In front of the offset: replica, times and sizes; isolation; session; topics, "t", partitions, which, its epoch.
                cursor.take(4 * 4 + 1 + 2 * 4 + 4 + 3 + 4 + 4 + 4)?;
                let step = (*lock(script))(cursor.i64()?);
                let (code, records, end) = match step {
                    Step::HangUp => return None,
                    Step::Code(code) => (code, Vec::new(), -1),
                    Step::Records(records, end) => (0, records, end),
                };
                if records.is_empty() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                let partition = none.i32(0).i16(0).i32(0).i32(1).text("t").i32(1).i32(0).i16(code);
                partition.i64(end).i64(end).i64(7).i32(0).i32(-1).bytes(&records)
            }
        };
        let bytes = [&(answer.0.len() as u32).to_be_bytes()[..], &answer.0].concat();
        stream.write_all(&bytes).ok()?;
    }
}

fn connection(servers: &str, more: &[(&str, &str)]) -> Connection {
    let own = [("properties.bootstrap.servers", servers)];
    let all = more.iter().chain(&own);
    let mut raw = RawOptions::new("table 't'", all.map(|(k, v)| (k.to_string(), v.to_string())));
    let common = CommonOptions::take(&mut raw).unwrap();
    Connection::take(&common, &mut raw).unwrap()
}

fn fetcher(servers: &str, reset: OffsetReset, more: &[(&str, &str)]) -> Result<Arc<Fetcher>, String> {
    let connection = connection(servers, more);
    let settings = Settings::of(&connection, Prefetch::shared(None, 1), reset, true);
    Fetcher::start(&connection, settings, Arc::new(Outage::new("t".into())))
}

fn feed(fetcher: &Arc<Fetcher>, offset: i64) -> Feed {
    let position = Position { topic: "t".into(), partition: 0, offset, stop: None, topic_id: None };
    fetcher.assign(&position, Waker::noop()).unwrap()
}

fn batch(base: i64, values: &[&str]) -> Vec<u8> {
    let records: Vec<u8> = values.iter().enumerate().flat_map(|(n, v)| record(n as i64, 0, None, Some(v), &[])).collect();
    Batch { base, ..Batch::new(values.len() as i32, &records) }.bytes()
}

/// What comes next that is something: messages as `offset value`, all else in words.
#[track_caller]
fn came(feed: &mut Feed) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match feed.read(100) {
            Came::Nothing => std::thread::sleep(Duration::from_millis(1)),
            Came::Messages(given) => {
                let messages = feed.messages();
                let shown = |i: usize| {
                    let message = messages.get(i);
                    format!("{} {}", message.offset(), String::from_utf8_lossy(message.value().unwrap()))
                };
                assert_eq!(given.fault, None);
                return (0..messages.len()).map(shown).collect();
            }
            Came::Begins(_) => {}
            Came::End(end) => return vec![format!("end {end}")],
            Came::Failed(code, why) => return vec![format!("failed {code} {why}")],
            Came::Unspoken(why) => return vec![format!("unspoken {why}")],
        }
        assert!(Instant::now() < deadline, "nothing came");
    }
}

#[test]
fn a_lost_connection_is_made_anew_and_nothing_is_lost_or_doubled() {
    let mut hung_up = false;
    let address = broker(17, move |offset| match offset {
        0 => Step::Records([batch(0, &["a", "b"]), batch(2, &["cut off"])[..40].to_vec()].concat(), 5),
        2 if !std::mem::replace(&mut hung_up, true) => Step::HangUp,
        2 => Step::Records(batch(2, &["c"]), 5),
        _ => Step::Records(Vec::new(), 5),
    });
    let fetcher = fetcher(&address, OffsetReset::Fail, &[]).unwrap();
    let mut feed = feed(&fetcher, 0);
    assert_eq!(came(&mut feed), ["0 a", "1 b"]);
    assert_eq!(came(&mut feed), ["2 c"]);
    assert_eq!(came(&mut feed), ["end 5"], "what was compacted away at the end is nothing to wait for");
    let again = Position { topic: "t".into(), partition: 0, offset: 0, stop: None, topic_id: None };
    assert!(fetcher.assign(&again, Waker::noop()).err().unwrap().to_string().contains("being read"));
    drop(feed);
    let mut feed = self::feed(&fetcher, 2);
    assert_eq!(came(&mut feed), ["2 c"], "somebody else may read it now");
}

#[test]
fn where_an_offset_is_gone_it_goes_on_as_the_table_says() {
    let script = |offset: i64| match offset {
        7 => Step::Records(batch(7, &["oldest"]), 8),
        100 => Step::Code(code::OFFSET_OUT_OF_RANGE),
        _ => Step::Records(Vec::new(), 8),
    };
    let address = broker(11, script);
    let earliest = fetcher(&address, OffsetReset::Earliest, &[]).unwrap();
    assert_eq!(came(&mut feed(&earliest, 100)), ["7 oldest"]);
    assert_eq!(came(&mut feed(&earliest, EARLIEST)), ["7 oldest"]);
    let failing = fetcher(&address, OffsetReset::Fail, &[]).unwrap();
    assert!(came(&mut feed(&failing, 100))[0].starts_with("failed 1 OffsetOutOfRange"));
}

#[test]
fn a_leader_that_leads_no_longer_is_looked_for() {
    let mut moved = 0;
    let address = broker(11, move |offset| match offset {
        0 if moved < 2 => {
            moved += 1;
            Step::Code(code::NOT_LEADER)
        }
        0 => Step::Records(batch(0, &["a"]), 1),
        _ => Step::Records(Vec::new(), 1),
    });
    assert_eq!(came(&mut feed(&fetcher(&address, OffsetReset::Fail, &[]).unwrap(), 0)), ["0 a"]);
}

#[test]
fn a_log_that_was_cut_short_and_grew_again_is_noticed() {
    let mut moved = false;
    let address = broker(11, move |offset| match offset {
        0 => Step::Records(batch(0, &["a", "b", "c", "lost"]), 4),
        4 if !std::mem::replace(&mut moved, true) => Step::Code(code::NOT_LEADER),
        other => Step::Records(batch(other, &["of the new leader"]), 9),
    });
    let mut feed = feed(&fetcher(&address, OffsetReset::Fail, &[]).unwrap(), 0);
    assert_eq!(came(&mut feed).len(), 4);
    assert!(came(&mut feed)[0].starts_with("failed 1 "));
}

/// Eight buffers of twice an answer's bytes of a partition were kept.
#[test]
fn no_more_memory_is_kept_than_an_answer_takes() {
    let address = broker(11, |_| Step::HangUp);
    let fetcher = fetcher(&address, OffsetReset::Fail, &[("properties.max.partition.fetch.bytes", "5000")]).unwrap();
    let kept = || lock(&fetcher.shared.spare).len();
    fetcher.give_back(Vec::with_capacity(5001));
    assert_eq!(kept(), 0);
    (0..2 * SPARE).for_each(|_| fetcher.give_back(Vec::with_capacity(5000)));
    assert_eq!(kept(), SPARE);
    assert_eq!((fetcher.shared.buffer(5000).capacity(), kept()), (5000, SPARE - 1));
}

#[test]
fn what_is_not_spoken_is_said() {
    let address = broker(10, |_| Step::HangUp);
    let why = |more: &[(&str, &str)]| fetcher(&address, OffsetReset::Fail, more).err().unwrap();
    assert!(why(&[]).contains("version 11"));
    assert!(why(&[("properties.client.rack", "r")]).contains("client.rack"));
    let nobody = [("properties.security.protocol", "SASL_PLAINTEXT"), ("properties.sasl.mechanism", "PLAIN")];
    assert!(why(&nobody).contains("SASL_PLAINTEXT"));
}

#[test]
fn properties_say_how_much_is_asked_for() {
    let settings = |more: &[(&str, &str)]| Settings::of(&connection("h:1", more), Prefetch::of_memory(16 << 20), OffsetReset::Fail, false);
    let own = settings(&[]);
    assert_eq!(
        (own.room.bytes, own.room.messages, own.extent.partition_bytes_max, own.extent.committed),
        (8 << 20, u64::MAX, 2 << 20, true)
    );
    let little = Settings::of(&connection("h:1", &[]), Prefetch::of_memory(4 << 20), OffsetReset::Fail, false);
    assert_eq!((little.room.bytes, little.extent.partition_bytes_max), (2 << 20, 512 << 10), "no more of less memory");
    let told = settings(&[
        ("properties.isolation.level", "read_uncommitted"),
        ("properties.fetch.max.wait.ms", "77"),
        ("properties.max.partition.fetch.bytes", "5000"),
        ("properties.queued.min.messages", "9"),
        ("properties.queued.max.messages.kbytes", "2"),
    ]);
    assert_eq!((told.extent.wait_ms, told.extent.partition_bytes_max, told.extent.committed), (77, 5000, false));
    assert_eq!((told.room.bytes, told.room.messages), (2048, 9));
}
