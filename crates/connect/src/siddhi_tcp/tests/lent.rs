//! Connections that are lent to a reader, under a loop that waits for their sockets as a worker does.

use super::*;
use crate::siddhi_tcp::channel::LENT_MAX;
use crate::{Bell, Sockets};

/// A reader of `t`, and what a worker would have for it.
struct Waiting {
    reading: Reading,
    bell: Arc<Bell>,
    sockets: Sockets,
}

impl Waiting {
    fn new(place: &Place, more: &[(&str, &str)]) -> Self {
        let bell = Arc::new(Bell::new().unwrap());
        let theirs = bell.clone();
        let source = place.source("t", &numbers(), more);
        let waker = Waker::new(move || theirs.ring());
        let context = ReaderContext { waker, request: ReadRequest::all(numbers()), shard: 0, shards: 1 };
        let reader = source.open(&source.splits(1).unwrap()[0], context).unwrap();
        let (_, woken) = mpsc::channel();
        let reading = Reading { reader, woken, rows: Vec::new(), bad: Vec::new(), raw: Vec::new(), bytes: 0 };
        Waiting { reading, bell, sockets: Sockets::default() }
    }

    /// What a worker does when nothing has come.
    fn sleep(&mut self, time: Duration) {
        self.sockets.clear();
        self.reading.reader.wait_on(&mut self.sockets);
        self.sockets.wait(&self.bell, time);
    }

    fn until(&mut self, enough: impl Fn(&Reading) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !enough(&self.reading) {
            assert!(Instant::now() < end, "it does not come: {} rows, {:?}", self.reading.rows.len(), self.reading.bad);
            if !self.reading.poll(100) {
                self.sleep(Duration::from_millis(5));
            }
        }
    }

    /// Sends single events, of which `at` is the number of the next, until the connection is lent.
    fn borrow(&mut self, stream: &mut TcpStream, at: &mut i64) {
        let (begin, rows) = (*at, self.reading.rows.len());
        loop {
            stream.write_all(&events("t", *at, 1)).unwrap();
            *at += 1;
            let enough = rows + (*at - begin) as usize;
            self.until(|r| r.rows.len() == enough);
            self.sleep(Duration::ZERO);
            if !self.sockets.is_empty() {
                return;
            }
            assert!(*at - begin < 10_000, "it is never lent");
        }
    }
}

#[test]
fn frames_are_cut_at_every_byte_of_a_connection_that_is_lent() {
    let place = place(&[]);
    let (mut waiting, mut stream, mut at) = (Waiting::new(&place, &[]), place.connect(), 0);
    waiting.borrow(&mut stream, &mut at);
    let mut bytes = at as usize * events("t", 0, 1).len();
    for cut in 0..=events("t", 0, 2).len() {
        let frame = events("t", at, 2);
        stream.write_all(&frame[..cut]).unwrap();
        waiting.sleep(Duration::ZERO);
        waiting.reading.poll(100);
        stream.write_all(&frame[cut..]).unwrap();
        (at, bytes) = (at + 2, bytes + frame.len());
        waiting.until(|r| r.rows.len() as i64 >= at);
    }
    assert_eq!(waiting.reading.rows, expected(0..at));
    assert_eq!(waiting.reading.bytes, bytes as u64);
}

#[test]
fn a_connection_that_is_lent_ends_as_others_do() {
    let place = place(&[]);
    let (mut waiting, mut at) = (Waiting::new(&place, &[]), 0);
    let cases: [(Vec<u8>, &str); 3] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "the frame begins with byte 0x47"),
        (events("t", 0, 3)[..30].to_vec(), "the connection was closed inside this frame, of which 30 bytes had come"),
        (events("t", 0, 3)[..1].to_vec(), "the connection was closed inside this frame, of which 1 bytes had come"),
    ];
    for (number, (bytes, reason)) in cases.into_iter().enumerate() {
        let (mut stream, begin) = (place.connect(), at);
        let peer = stream.local_addr().unwrap();
        waiting.borrow(&mut stream, &mut at);
        stream.write_all(&[events("t", at, 1), bytes].concat()).unwrap();
        at += 1;
        drop(stream);
        waiting.until(|r| r.bad.len() == number + 1 && r.rows.len() as i64 == at);
        let (whose, why) = &waiting.reading.bad[number];
        assert_eq!(*whose, format!("{peer} frame {}", at - begin + 1), "{reason}");
        assert!(why.starts_with(reason) && why.ends_with("the connection ends here"), "{why}");
    }
    assert_eq!(waiting.reading.rows, expected(0..at));
}

#[test]
fn frames_for_others_go_to_them() {
    let place = place(&[]);
    let (mut waiting, mut stream, mut at) = (Waiting::new(&place, &[]), place.connect(), 0);
    let mut other = place.read("u", &numbers(), &[]);
    for round in 0..3 {
        waiting.borrow(&mut stream, &mut at);
        let nobody = events("nobody/lends", 0, 1);
        stream.write_all(&[events("t", at, 3), events("u", round * 2, 2), nobody, events("t", at + 3, 2)].concat()).unwrap();
        at += 5;
        waiting.until(|r| r.rows.len() as i64 == at);
        other.until(10, |r| r.rows.len() as i64 == round * 2 + 2);
        assert_eq!(other.rows, expected(0..round * 2 + 2));
    }
    assert_eq!(waiting.reading.rows, expected(0..at));
    let name = format!("127.0.0.1:{}/nobody/lends", place.port);
    assert_eq!(unknown_channels().into_iter().find(|(n, _)| *n == name), Some((name, 3)));
}

/// A worker that waits for its sink must not keep what others wait for.
#[test]
fn a_worker_that_does_not_look_loses_the_connection() {
    let place = place(&[]);
    let (mut waiting, mut stream, mut at) = (Waiting::new(&place, &[]), place.connect(), 0);
    let mut other = place.read("u", &numbers(), &[]);
    waiting.borrow(&mut stream, &mut at);
    stream.write_all(&[events("t", at, 1), events("u", 0, 1)].concat()).unwrap();
    other.until(10, |r| r.rows.len() == 1);
    stream.write_all(&events("t", at + 1, 1)).unwrap();
    at += 2;
    waiting.until(|r| r.rows.len() as i64 == at);
    waiting.borrow(&mut stream, &mut at);
    assert_eq!(waiting.reading.rows, expected(0..at));
}

/// Nobody reads in the listener's name what is lent: the system says how long nothing has come.
#[cfg(target_os = "linux")]
#[test]
fn a_connection_that_is_lent_is_cut_off_when_it_is_silent() {
    let place = place(&[("idle.timeout", "2 s")]);
    let (mut waiting, mut stream, mut at) = (Waiting::new(&place, &[]), place.connect(), 0);
    waiting.borrow(&mut stream, &mut at);
    stream.write_all(&events("t", at, 1)[..10]).unwrap();
    waiting.until(|r| r.bad.len() == 1);
    assert_eq!(waiting.reading.rows, expected(0..at));
    let why = &waiting.reading.bad[0].1;
    assert!(why.starts_with("the connection was closed inside this frame, of which 10 bytes had come"), "{why}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is cut off");
    let address = format!("127.0.0.1:{}", place.port);
    while !crate::listeners::stats().get(&address).is_some_and(|stats| stats.silent == 1) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Its thread, which bounds such a silence, does not read it.
#[test]
fn a_connection_that_is_lent_is_cut_off_when_it_stops_in_the_middle_of_a_frame() {
    let place = place(&[]);
    place.lease.shared().set_frame_silence_max(Duration::from_millis(500));
    let (mut waiting, mut stream, mut at) = (Waiting::new(&place, &[]), place.connect(), 0);
    waiting.borrow(&mut stream, &mut at);
    stream.write_all(&events("t", at, 1)[..10]).unwrap();
    waiting.until(|r| r.bad.len() == 1);
    assert_eq!(waiting.reading.rows, expected(0..at));
    let why = &waiting.reading.bad[0].1;
    assert!(why.starts_with("the connection was silent for 500 ms inside this frame, of which 10 bytes had come"), "{why}");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is cut off");
}

#[test]
fn little_and_much_in_turn_with_a_queue_that_is_full() {
    let place = place(&[]);
    let mut waiting = Waiting::new(&place, &[("source.queue", "1000")]);
    let (mut stream, mut at) = (place.connect(), 0);
    for _ in 0..4 {
        waiting.borrow(&mut stream, &mut at);
        let (mut theirs, first) = (stream.try_clone().unwrap(), at);
        let sender = thread::spawn(move || {
            for first in (first..first + 20_000).step_by(500) {
                theirs.write_all(&events("t", first, 500)).unwrap();
            }
        });
        at += 20_000;
        waiting.until(|r| r.rows.len() as i64 >= at);
        sender.join().unwrap();
    }
    assert!(waiting.reading.rows == expected(0..at), "every row once and in order");
}

#[test]
fn of_many_connections_some_are_lent() {
    let place = place(&[]);
    let mut waiting = Waiting::new(&place, &[]);
    let mut streams: Vec<TcpStream> = (0..LENT_MAX + 3).map(|_| place.connect()).collect();
    let (each, mut most) = (100, 0);
    for round in 0..each {
        for (connection, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&events("t", connection as i64 * each + round, 1)).unwrap();
        }
        let enough = streams.len() * (round + 1) as usize;
        waiting.until(|r| r.rows.len() >= enough);
        waiting.sleep(Duration::ZERO);
        most = most.max(waiting.sockets.len());
    }
    assert!((1..=LENT_MAX).contains(&most), "{most} are lent");
    for connection in 0..streams.len() as i64 {
        let all = expected(connection * each..(connection + 1) * each);
        let came = waiting.reading.rows.iter().filter(|row| all.contains(row));
        assert!(came.eq(&all), "every row of connection {connection} once and in order");
    }
}

#[test]
fn who_reads_next_gets_what_comes_next() {
    let place = place(&[]);
    let (mut stream, mut at) = (place.connect(), 0);
    for _ in 0..3 {
        let (mut waiting, begin) = (Waiting::new(&place, &[]), at);
        waiting.borrow(&mut stream, &mut at);
        assert_eq!(waiting.reading.rows, expected(begin..at));
    }
}

/// Rows that came together used to count as having arrived with the first of them, however long after it they were published.
#[test]
fn frames_published_apart_are_left_apart_where_the_publisher_s_clock_counts() {
    let place = place(&[]);
    let (mut waiting, mut stream, mut at) = (Waiting::new(&place, &[("arrival.column", "n")]), place.connect(), 0);
    for lent in [false, true] {
        if lent {
            waiting.borrow(&mut stream, &mut at);
        }
        let mut had = waiting.reading.rows.len();
        let frames = [events("t", 0, 2), events("t", 49_000, 2), events("t", 1_000_000, 1), events("t", 1_000_001, 1)];
        stream.write_all(&frames.concat()).unwrap();
        for expect in [4, 2] {
            waiting.until(|r| r.rows.len() > had);
            assert_eq!(waiting.reading.rows.len() - had, expect, "lent: {lent}");
            had = waiting.reading.rows.len();
        }
    }
}
