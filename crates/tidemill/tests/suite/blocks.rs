//! `block.size` and `block.linger` of tables: how many rows a sink writes at once, and that rows which are held back come.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::failures::peers::{Listening, PROTOCOLS};
use crate::failures::{expect, run};
use crate::harness::{Scratch, sink_lines};

const NUMBERS: &str = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '0',
  'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '100');
";

/// Events of each frame of Siddhi.
fn frames(mut bytes: &[u8]) -> Vec<i32> {
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let size = number(&bytes[1..]) as usize;
        let session = number(&bytes[5..]) as usize;
        let channel = number(&bytes[9 + session..]) as usize;
        events.push(number(&bytes[17 + session + channel..]));
        bytes = &bytes[5 + size..];
    }
    events
}

#[test]
fn a_sink_writes_so_many_rows_at_once() {
    for (more, most) in [("", 100), (", 'block.size' = '7'", 7), (", 'block.size' = '7', 'frame.events' = '7'", 7)] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let server = thread::spawn(move || {
            let mut all = Vec::new();
            let (mut stream, _) = listener.accept().expect("the job connects");
            stream.read_to_end(&mut all).expect("the job closes in good order");
            all
        });
        let scratch = Scratch::new("frames");
        let job = format!(
            "{NUMBERS}CREATE TABLE s (n BIGINT) WITH ('connector' = 'siddhi-tcp', 'port' = '{port}', 'channel' = 'c'{more});
             INSERT INTO s SELECT n FROM t;"
        );
        expect(&run(&scratch, &job, &["--parallelism", "1"]), 0, &[]);
        let events = frames(&server.join().expect("the server"));
        assert_eq!(events.iter().sum::<i32>(), 100, "{more}: {events:?}");
        assert!(events.iter().all(|n| *n <= most), "{more}: {events:?}");
        // With a size frames are full as long as rows are at hand.
        assert!(most == 100 || events.iter().filter(|n| **n == most).count() >= 10, "{more}: {events:?}");
    }
}

#[test]
fn what_a_sink_writes_does_not_depend_on_it() {
    let scratch = Scratch::new("sizes");
    let expected: Vec<String> = (1..=100).map(|n| n.to_string()).collect();
    for mode in ["streaming", "batch"] {
        for size in ["1", "3", "64", "auto"] {
            let job = format!(
                "{NUMBERS}CREATE TABLE s (n BIGINT) WITH ('connector' = 'filesystem', 'path' = '${{DIR}}/{mode}-{size}', 'format' = 'csv',
                 'block.size' = '{size}'); INSERT INTO s SELECT n FROM t;"
            );
            expect(&run(&scratch, &job, &["--set", &format!("execution.runtime-mode={mode}")]), 0, &[]);
            let mut lines = sink_lines(&scratch.path().join(format!("{mode}-{size}")));
            lines.sort_by_key(|line| line.parse::<i64>().expect("a number"));
            assert_eq!(lines, expected, "{mode} {size}");
        }
    }
}

/// Rows that wait for others must not wait for ever.
#[test]
fn rows_that_linger_come_without_company() {
    for protocol in &PROTOCOLS {
        let mut listening = Listening::start("linger", protocol, ", 'block.size' = '1000', 'block.linger' = '20 ms'");
        let mut peer = protocol.connect(listening.port);
        for n in 1..4 {
            peer.write_all(&(protocol.row)(n)).expect("the job reads");
            listening.wait_row(n);
        }
        listening.stop();
    }
}
