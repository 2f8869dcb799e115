//! Jobs over sockets as a whole: what a slow peer costs, and a fast one.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::failures::peers::PROTOCOLS;
use crate::failures::{expect, read_json};
use crate::harness::{Background, PATIENCE, Scratch, finish, free_port, tidemill, wait_for};

/// Rows of 1 KB: twice as many bytes as the job may hold when its peer reads none of them.
const ROWS: usize = 900_000;
/// Most memory of the job, bytes. The program, its blocks and a queue of 4 MB take about 100 MB.
const MEMORY_MAX: u64 = 400 << 20;

/// The peer of a sink stays connected and reads nothing for a while, then all: the job waits without gathering what
/// it cannot write, and every row comes.
#[test]
fn a_job_waits_for_a_peer_that_stops_reading() {
    let scratch = Scratch::new("slow-peer");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let job = scratch.write(
        "job.sql",
        format!(
            "CREATE TABLE t (n BIGINT, pad STRING) WITH ('connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '{ROWS}',
               'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{last}', 'fields.pad.length' = '1000');
             CREATE TABLE s (n BIGINT, pad STRING) WITH ('connector' = 'socket', 'port' = '{port}', 'format' = 'csv');
             INSERT INTO s SELECT n, pad FROM t;",
            last = ROWS - 1
        ),
    );
    let (ended, end) = channel();
    let peer = thread::spawn(move || {
        let mut stream = listener.accept().expect("the job connects").0;
        // A job that does not wait ends before anything is read of it, or fills the memory meanwhile.
        let early = end.recv_timeout(Duration::from_secs(2)).is_ok();
        let (mut chunk, mut last, mut lines, mut bytes) = (vec![0; 1 << 20], b'\n', 0, 0);
        loop {
            match stream.read(&mut chunk).expect("reading what the job writes") {
                0 => return (early, lines, bytes, last),
                n => {
                    lines += chunk[..n].iter().filter(|b| **b == b'\n').count();
                    bytes += n as u64;
                    last = chunk[n - 1];
                }
            }
        }
    });
    let metrics = scratch.at("metrics.json");
    let output = finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "2", "--metrics", &metrics]));
    // Nobody hears it if the peer waits no more.
    let _ = ended.send(());
    expect(&output, 0, &[]);
    let (early, lines, bytes, last) = peer.join().expect("the peer");
    assert_eq!((early, lines, last), (false, ROWS, b'\n'));
    assert!(bytes > 2 * MEMORY_MAX, "{bytes} bytes say nothing of a bound of {MEMORY_MAX}");
    let peak = read_json(&metrics)["peak_memory_bytes"].as_u64().expect("a number");
    assert!(peak < MEMORY_MAX, "{peak} bytes of memory for {bytes} bytes of output");
}

/// Rows that a fast peer sends together.
const CHUNK_ROWS: usize = 1000;
/// Bytes that are taken of it while nothing leaves: the queues of the job hold some megabytes, and so do the system's, of rows
/// that leave as one digit to eight and come as a frame each with some protocols.
const TAKEN_MAX: usize = 512 << 20;

/// A peer sends faster than the job can write, which is not at all for a while: it waits, and then every row comes. Requests
/// over HTTP are answered instead, with 503.
#[test]
fn a_peer_that_is_faster_than_the_job_waits() {
    for protocol in &PROTOCOLS[..3] {
        let (scratch, port) = (Scratch::new("fast-peer"), free_port());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("its address").port();
        let job = format!(
            "CREATE TABLE t (n BIGINT) WITH ({}, 'hostname' = '127.0.0.1', 'port' = '{port}');
             CREATE TABLE s (n BIGINT) WITH ('connector' = 'socket', 'port' = '{to}', 'format' = 'csv');
             INSERT INTO s SELECT n FROM t;",
            protocol.options
        );
        let job = scratch.write("job.sql", job);
        let mut running = Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]));
        let (mut slow, _) = listener.accept().expect("the job connects");
        wait_for("the job to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        let mut fast = protocol.connect(port);
        fast.set_write_timeout(Some(PATIENCE)).expect("a time");
        let chunk: Vec<u8> = (0..CHUNK_ROWS as i64).flat_map(protocol.row).collect();
        let (sent, enough) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (taken, chunks, lines) = thread::scope(|scope| {
            let sender = scope.spawn(|| {
                // The bound is for a job that never makes it wait.
                while !enough.load(Ordering::Relaxed) && sent.load(Ordering::Relaxed) * chunk.len() < TAKEN_MAX {
                    fast.write_all(&chunk).expect("the job reads");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Until for a second nothing more is taken.
            let (mut last, mut same) = (0, 0);
            wait_for("the peer to be held back", || {
                thread::sleep(Duration::from_millis(100));
                let now = sent.load(Ordering::Relaxed);
                same = if now == last && now > 0 { same + 1 } else { 0 };
                last = now;
                same >= 10
            });
            enough.store(true, Ordering::Relaxed);
            slow.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
            let (begun, mut lines, mut buffer) = (Instant::now(), 0, vec![0; 1 << 20]);
            loop {
                match slow.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => lines += buffer[..n].iter().filter(|b| **b == b'\n').count(),
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(e) => panic!("reading what the job writes: {e}"),
                }
                let all = sender.is_finished() && lines >= sent.load(Ordering::Relaxed) * CHUNK_ROWS;
                if all || begun.elapsed() > PATIENCE {
                    break;
                }
            }
            (last * chunk.len(), sent.load(Ordering::Relaxed), lines)
        });
        assert_eq!(lines, chunks * CHUNK_ROWS, "{}", protocol.options);
        assert!(taken < TAKEN_MAX, "{}: {taken} bytes were taken while nothing left", protocol.options);
        running.signal("INT");
        let (code, errors) = running.end();
        assert_eq!(code, Some(0), "{}: {errors}", protocol.options);
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).expect("the job closes in good order");
        assert!(rest.is_empty(), "{}: rows came twice", protocol.options);
    }
}
