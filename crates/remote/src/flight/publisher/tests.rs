//! The publisher against a server that follows a script.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::script::{Script, Scripted, at_once, batch, schema};
use super::*;
use serde_json::json;

static RUNNING: AtomicBool = AtomicBool::new(false);

fn publisher(server: &Scripted, id: &str, keep: bool, window: usize) -> Publisher {
    let options = PublisherOptions { id: id.into(), keep, projected: false, window, reconnect: at_once() };
    Publisher::start(server.client(), schema(), options, Waker::noop()).unwrap()
}

/// Publishes the rows 0 to `rows` in messages of `block` rows, keeping them; what the server has then.
#[track_caller]
fn keeps(script: Script, rows: i64, block: usize, window: usize) -> Scripted {
    let server = Scripted::start(script);
    let mut publisher = publisher(&server, "p", true, window);
    assert_eq!(publisher.handshake(&RUNNING).unwrap(), Handshake::default());
    let all: Vec<i64> = (0..rows).collect();
    for part in all.chunks(block) {
        publisher.send(&batch(part.iter().copied()), &RUNNING).unwrap();
    }
    publisher.close(&RUNNING).unwrap();
    assert_eq!(publisher.ready().unwrap(), Ready::Finished);
    assert_eq!(server.rows("p"), all, "every row once and in order");
    assert_eq!((publisher.next_row(), publisher.acknowledged()), (rows as u64, rows as u64));
    let breaks_left = server.script().breaks.len();
    assert_eq!(breaks_left, 0, "every break has happened");
    server
}

#[test]
fn rows_arrive_in_order() {
    keeps(Script::default(), 1000, 7, 1 << 20);
}

#[test]
fn rows_survive_breaks() {
    keeps(Script { breaks: vec![1, 50, 1, 300], ..Script::default() }, 1000, 7, 1 << 20);
}

#[test]
fn rows_survive_a_server_that_forgets_what_it_has_not_acknowledged() {
    keeps(Script { breaks: vec![100, 400, 30], forgetful: true, lazy: true, ..Script::default() }, 1000, 10, 1 << 20);
}

#[test]
fn a_full_window_asks_for_acknowledgements() {
    // A message takes more than 128 bytes: the window holds a few of the thousand.
    let server = keeps(Script { lazy: true, ..Script::default() }, 1000, 1, 2048);
    assert!(server.script().urges > 10, "{}", server.script().urges);
}

#[test]
fn draining_waits_for_acknowledgements() {
    let server = Scripted::start(Script { lazy: true, ..Script::default() });
    let mut publisher = publisher(&server, "p", true, 1 << 20);
    publisher.handshake(&RUNNING).unwrap();
    publisher.drain(&RUNNING).unwrap();
    publisher.send(&batch(0..5), &RUNNING).unwrap();
    publisher.drain(&RUNNING).unwrap();
    assert_eq!(publisher.acknowledged(), 5);
    publisher.send(&batch(5..6), &RUNNING).unwrap();
    publisher.drain(&RUNNING).unwrap();
    assert_eq!((publisher.acknowledged(), server.rows("p")), (6, (0..6).collect()));
}

#[test]
fn rows_that_are_waited_for_are_asked_for() {
    let urged = |keep, acknowledged, next_row| {
        let mut state = State { keep, acknowledged, next_row, hurried: 5, limit: 1 << 20, ..State::default() };
        state.urge_if_needed();
        state.urge
    };
    for keep in [true, false] {
        assert!(urged(keep, 4, 5) && urged(keep, 4, 6) && urged(keep, 0, 1));
        assert!(!urged(keep, 5, 6), "nobody waits for the sixth");
        assert!(!urged(keep, 4, 4), "the fifth has not come");
        let server = Scripted::start(Script { lazy: true, ..Script::default() });
        let mut publisher = publisher(&server, "p", keep, 1 << 20);
        publisher.handshake(&RUNNING).unwrap();
        publisher.resume(0);
        publisher.hurry(5);
        publisher.send(&batch(0..5), &RUNNING).unwrap();
        while publisher.acknowledged() < 5 {
            publisher.ready().unwrap();
            std::thread::yield_now();
        }
        publisher.send(&batch(5..6), &RUNNING).unwrap();
        publisher.close(&RUNNING).unwrap();
        assert_eq!(server.rows("p"), (0..6).collect::<Vec<_>>());
    }
}

#[test]
fn rows_are_counted_on_under_the_same_name() {
    let server = keeps(Script::default(), 10, 3, 1 << 20);
    let mut again = publisher(&server, "p", true, 1 << 20);
    let handshake = again.handshake(&RUNNING).unwrap();
    assert_eq!((handshake.offset, handshake.acknowledged), (10, 10));
    again.send(&batch(10..12), &RUNNING).unwrap();
    again.close(&RUNNING).unwrap();
    assert_eq!(server.rows("p"), (0..12).collect::<Vec<_>>());
}

/// Publishes without keeping: after each handshake from where the server stands.
fn goes_back(script: Script, rows: i64, block: i64) -> (Scripted, Sent) {
    let server = Scripted::start(script);
    let mut publisher = publisher(&server, "p", false, 1 << 20);
    let mut next = 0;
    loop {
        match publisher.ready().unwrap() {
            Ready::Handshake(handshake) => {
                // The position stands at the row it says.
                assert_eq!(handshake.position.map_or(0, |p| p["row"].as_u64().unwrap()), handshake.offset);
                next = handshake.offset as i64;
                publisher.resume(handshake.offset);
            }
            Ready::Rows if next < rows => {
                let end = rows.min(next + block);
                if publisher.try_send(&batch(next..end), None, Some(&json!({ "row": end }))).unwrap() {
                    next = end;
                }
            }
            Ready::Rows => publisher.finish(),
            Ready::Wait => std::thread::yield_now(),
            Ready::Columns(_) => unreachable!("no column is left out"),
            Ready::Finished => break,
        }
    }
    assert_eq!(server.rows("p"), (0..rows).collect::<Vec<_>>());
    assert!(server.script().breaks.is_empty());
    (server, publisher.sent())
}

#[test]
fn who_goes_back_needs_no_memory() {
    let (_, sent) = goes_back(Script::default(), 100, 9);
    assert_eq!((sent.blocks, sent.reconnects), (12, 0));
    let (_, sent) = goes_back(Script { breaks: vec![20, 1, 50], ..Script::default() }, 100, 9);
    assert_eq!(sent.reconnects, 3);
    let (_, sent) = goes_back(Script { breaks: vec![60, 30], lazy: true, forgetful: true, ..Script::default() }, 100, 9);
    assert_eq!(sent.reconnects, 2);
}

#[test]
fn large_batches_travel_in_parts() {
    let server = Scripted::start(Script::default());
    let mut publisher = publisher(&server, "p", true, 64 << 20);
    publisher.handshake(&RUNNING).unwrap();
    publisher.send(&batch(0..1_000_000), &RUNNING).unwrap();
    publisher.close(&RUNNING).unwrap();
    assert_eq!(server.rows("p").len(), 1_000_000);
    assert_eq!(publisher.sent().blocks, 2, "8 MB in messages of 4 MB");
}

#[test]
fn another_publisher_of_the_same_name_is_found_out() {
    let server = Scripted::start(Script { breaks: vec![3], lazy: true, ..Script::default() });
    let mut publisher = publisher(&server, "p", true, 1 << 20);
    publisher.handshake(&RUNNING).unwrap();
    server.script().taken.get_mut("p").unwrap().rows = vec![0; 100];
    publisher.send(&batch(0..5), &RUNNING).unwrap();
    let error = publisher.close(&RUNNING).unwrap_err().to_string();
    assert!(error.contains("another process publishes under the same name"), "{error}");
}

#[test]
fn a_server_without_its_memory_is_found_out() {
    let server = Scripted::start(Script::default());
    let mut publisher = publisher(&server, "p", true, 1 << 20);
    publisher.handshake(&RUNNING).unwrap();
    publisher.send(&batch(0..5), &RUNNING).unwrap();
    publisher.drain(&RUNNING).unwrap();
    {
        let mut script = server.script();
        script.taken.clear();
        script.taken.insert("p".into(), Default::default());
        script.breaks = vec![1];
    }
    publisher.send(&batch(5..6), &RUNNING).unwrap();
    let error = publisher.close(&RUNNING).unwrap_err().to_string();
    assert!(error.contains("was its state removed?"), "{error}");
}

#[test]
fn waiting_ends_when_the_job_is_stopped() {
    let server = Scripted::start(Script::default());
    let mut publisher = publisher(&server, "p", true, 1 << 20);
    publisher.handshake(&RUNNING).unwrap();
    let stopped = AtomicBool::new(true);
    let error = publisher.close(&stopped).err().map(|e| e.to_string());
    // It may have been acknowledged before anybody looked.
    assert!(error.is_none_or(|e| e.contains("the job was stopped")));
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_connection_is_told_of_much_together_and_of_little_when_no_more_is_at_hand() {
    let wakes = Arc::new(Wakes::default());
    let woken = || wakes.0.swap(0, Ordering::Relaxed);
    let asleep = |untold| State { writer: Some(wakes.clone().into()), untold, ..State::default() };
    let mut state = asleep(None);
    wake(state.put(TOGETHER_BYTES));
    assert_eq!((woken(), state.untold), (1, None));
    wake(state.put(10));
    assert_eq!((woken(), state.untold), (0, None), "it is awake and looks by itself");
    let mut state = asleep(None);
    wake(state.put(10));
    assert_eq!(woken(), 0);
    wake(state.untold_writer());
    wake(state.untold_writer());
    assert_eq!(woken(), 1);
    let long_ago = Instant::now().checked_sub(TOGETHER_TIME).expect("the clock has run for a millisecond");
    let mut state = asleep(Some((10, long_ago)));
    wake(state.put(10));
    assert_eq!((woken(), state.untold), (1, None), "the first has waited long enough");
}

#[test]
fn rows_that_were_put_arrive_when_they_are_flushed() {
    let server = Scripted::start(Script::default());
    let mut publisher = publisher(&server, "p", true, 1 << 20);
    publisher.handshake(&RUNNING).unwrap();
    for n in 0..10 {
        assert!(publisher.try_put(&batch(n..n + 1), None, None).unwrap());
    }
    publisher.flush();
    while publisher.acknowledged() < 10 {
        publisher.ready().unwrap();
        std::thread::yield_now();
    }
    assert_eq!(server.rows("p"), (0..10).collect::<Vec<_>>());
}
