//! Jobs over sockets as a whole: what a slow peer costs.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::failures::{expect, read_json};
use crate::harness::{Scratch, finish, tidemill};

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
