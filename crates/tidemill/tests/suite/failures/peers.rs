//! What peers of a listener do must not end a job: rubbish of one is counted, and the rows of the others arrive.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use super::{read_json, sum};
use crate::harness::{Background, Scratch, free_port, many_connections, tidemill, wait_for};

/// A frame of Siddhi for the channel `t` with one event of one BIGINT.
pub fn siddhi_frame(n: i64) -> Vec<u8> {
    let payload = [&1i32.to_be_bytes()[..], &0i64.to_be_bytes(), &n.to_be_bytes()].concat();
    let mut out = vec![2];
    out.extend((12 + 1 + payload.len() as i32).to_be_bytes());
    for part in [&b""[..], b"t", &payload] {
        out.extend((part.len() as i32).to_be_bytes());
        out.extend(part);
    }
    out
}

/// A message of a WebSocket's client; its mask is zeros.
fn message(text: &str) -> Vec<u8> {
    [&[0x81, 0x80 | text.len() as u8, 0, 0, 0, 0][..], text.as_bytes()].concat()
}

fn post(text: &str) -> Vec<u8> {
    let head = format!("POST / HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/csv\r\ncontent-length: {}\r\n\r\n", text.len());
    [head.as_bytes(), text.as_bytes()].concat()
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                       sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A connector that listens, and how its peers speak.
pub struct Protocol {
    pub options: &'static str,
    /// What a peer says first; it is answered with a head of HTTP.
    hello: &'static str,
    pub row: fn(i64) -> Vec<u8>,
    /// What no record can be made of.
    rubbish: fn() -> Vec<u8>,
    /// Rubbish costs the peer its connection.
    cut: bool,
}

pub const PROTOCOLS: [Protocol; 4] = [
    Protocol {
        options: "'connector' = 'siddhi-tcp'",
        hello: "",
        row: siddhi_frame,
        rubbish: || b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        cut: true,
    },
    Protocol {
        options: "'connector' = 'socket', 'mode' = 'listener', 'format' = 'csv'",
        hello: "",
        row: |n| format!("{n}\n").into_bytes(),
        rubbish: || b"rubbish \xff\xfe\n".to_vec(),
        cut: false,
    },
    Protocol {
        options: "'connector' = 'websocket', 'mode' = 'listener', 'format' = 'csv'",
        hello: UPGRADE,
        row: |n| message(&n.to_string()),
        rubbish: || message("rubbish"),
        cut: false,
    },
    Protocol {
        options: "'connector' = 'http', 'format' = 'csv'",
        hello: "",
        row: |n| post(&format!("{n}\n")),
        rubbish: || post("rubbish\n"),
        cut: false,
    },
];

impl Protocol {
    pub fn connect(&self, port: u16) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the job listens");
        stream.write_all(self.hello.as_bytes()).expect("the job reads");
        let mut answer = Vec::new();
        while !self.hello.is_empty() && !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            answer.extend(byte);
        }
        stream
    }
}

/// A job that prints what `protocol` brings it, to a file.
pub struct Listening {
    pub scratch: Scratch,
    pub port: u16,
    pub job: Background,
}

impl Listening {
    /// Starts it with further options of its table, and waits until it listens.
    pub fn start(name: &str, protocol: &Protocol, more: &str) -> Self {
        let (scratch, port) = (Scratch::new(name), free_port());
        let job = format!(
            "CREATE TABLE t (n BIGINT) WITH ({}, 'hostname' = '127.0.0.1', 'port' = '{port}'{more});
             CREATE TABLE s (n BIGINT) WITH ('connector' = 'print');
             INSERT INTO s SELECT n FROM t;",
            protocol.options
        );
        let job = scratch.write("job.sql", job);
        let mut command = tidemill();
        command.args(["run", &job, "--parallelism", "1", "--metrics", &scratch.at("metrics.json")]);
        let out = File::create(scratch.path().join("out")).expect("a file for the output");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn().expect("starting tidemill");
        let mut listening = Listening { scratch, port, job: Background(child) };
        wait_for("the job to listen", || listening.lives() && TcpStream::connect(("127.0.0.1", port)).is_ok());
        listening
    }

    /// Fails the test with what the job said if it has ended.
    #[track_caller]
    pub fn lives(&mut self) -> bool {
        if self.job.0.try_wait().expect("waiting for tidemill").is_some() {
            let (code, errors) = self.job.end();
            panic!("the job has ended with {code:?}: {errors}");
        }
        true
    }

    /// Waits until a row was written.
    #[track_caller]
    pub fn wait_row(&mut self, n: i64) {
        let (out, line) = (self.scratch.path().join("out"), format!("+I[{n}]"));
        wait_for(&format!("row {n}"), || {
            self.lives() && std::fs::read_to_string(&out).expect("the output").lines().any(|found| found == line)
        });
    }

    /// Stops it in good order; gives its metrics and what it said.
    pub fn stop(&mut self) -> (serde_json::Value, String) {
        self.job.signal("INT");
        let (code, errors) = self.job.end();
        assert_eq!(code, Some(0), "{errors}");
        (read_json(&self.scratch.at("metrics.json")), errors)
    }
}

/// Reads until the other side closes, however it does.
fn until_closed(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

/// A frame of garbage from anybody once ended the job, because bad records fail it by default.
#[test]
fn rubbish_of_one_peer_costs_the_others_nothing() {
    for protocol in &PROTOCOLS {
        let mut listening = Listening::start("rubbish", protocol, "");
        let mut good = protocol.connect(listening.port);
        let send = |stream: &mut TcpStream, bytes: Vec<u8>| stream.write_all(&bytes).expect("the job reads");
        send(&mut good, (protocol.row)(1));
        listening.wait_row(1);
        let mut bad = protocol.connect(listening.port);
        send(&mut bad, (protocol.rubbish)());
        if protocol.cut {
            until_closed(&mut bad);
        } else {
            // Behind the rubbish on the same connection: when this row is there, the rubbish was read.
            send(&mut bad, (protocol.row)(2));
            listening.wait_row(2);
        }
        for n in 3..6 {
            send(&mut good, (protocol.row)(n));
        }
        for n in 3..6 {
            listening.wait_row(n);
        }
        let (metrics, said) = listening.stop();
        assert_eq!(sum(&metrics, "bad_rows"), 1, "{}: {said}", protocol.options);
        assert!(said.contains("1 unreadable"), "{}: {said}", protocol.options);
        let _ = good.shutdown(Shutdown::Both);
    }
}

/// Who wants it so may still have the job fail.
#[test]
fn rubbish_of_a_peer_ends_a_job_that_wants_it_so() {
    for protocol in &PROTOCOLS {
        let mut listening = Listening::start("rubbish-fails", protocol, ", 'on-error' = 'fail'");
        let mut bad = protocol.connect(listening.port);
        // A row first: then the table is known to be there.
        bad.write_all(&(protocol.row)(1)).expect("the job reads");
        listening.wait_row(1);
        bad.write_all(&(protocol.rubbish)()).expect("the job reads");
        let (code, errors) = listening.job.end();
        assert_eq!(code, Some(1), "{}: {errors}", protocol.options);
        assert!(errors.contains("'on-error' = 'skip'"), "{}: {errors}", protocol.options);
    }
}

/// Connections that are turned away and frames for nobody concern no table, so the job as a whole shows them.
#[test]
fn what_concerns_no_table_is_shown() {
    let siddhi = &PROTOCOLS[0];
    let mut listening = Listening::start("turned-away", siddhi, ", 'listener.max-connections' = '1'");
    // The connection by which the test saw that the job listens may still be the only one that is taken.
    let mut number = 0;
    let mut first = loop {
        number += 1;
        let mut stream = siddhi.connect(listening.port);
        stream.set_read_timeout(Some(Duration::from_millis(10))).expect("a time");
        let _ = stream.write_all(&siddhi_frame(number));
        let row = format!("+I[{number}]\n");
        let turned_away = loop {
            let _ = listening.lives();
            if std::fs::read_to_string(listening.scratch.path().join("out")).expect("the output").contains(&row) {
                break false;
            }
            let nothing_yet = |e: &std::io::Error| matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            if !stream.read(&mut [0]).is_err_and(|e| nothing_yet(&e)) {
                break true;
            }
        };
        if !turned_away {
            break stream;
        }
    };
    let mut unknown = siddhi_frame(0);
    // The channel's name stands behind the five bytes of the head and two lengths.
    unknown[13] = b'x';
    first.write_all(&[unknown, siddhi_frame(1_000_000)].concat()).expect("the job reads");
    listening.wait_row(1_000_000);
    until_closed(&mut siddhi.connect(listening.port));
    let (metrics, said) = listening.stop();
    let address = format!("127.0.0.1:{}", listening.port);
    assert!(metrics["listeners"][&address]["turned_away"].as_u64() >= Some(1), "{metrics}");
    assert_eq!(metrics["unknown_channels"][format!("{address}/x")], 1, "{metrics}");
    assert!(said.contains(&format!("listener {address}: ")) && said.contains(&format!("channel {address}/x: 1 frames")), "{said}");
}

/// Nobody who looks at the job saw that a peer was refused again and again.
#[test]
fn what_is_refused_at_the_door_is_counted() {
    let nowhere = UPGRADE.replacen("GET /", "GET /nowhere", 1);
    let post = "POST /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    for (protocol, request) in [(&PROTOCOLS[2], nowhere.as_str()), (&PROTOCOLS[3], post)] {
        let mut listening = Listening::start("refused", protocol, "");
        let mut good = protocol.connect(listening.port);
        let mut lost = TcpStream::connect(("127.0.0.1", listening.port)).expect("the job listens");
        lost.write_all(request.as_bytes()).expect("the job reads");
        let mut answer = Vec::new();
        let _ = lost.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 404 "), "{}", String::from_utf8_lossy(&answer));
        good.write_all(&(protocol.row)(1)).expect("the job reads");
        listening.wait_row(1);
        let (metrics, said) = listening.stop();
        let address = format!("127.0.0.1:{}", listening.port);
        assert_eq!(metrics["listeners"][&address]["refused"], 1, "{metrics}");
        assert!(said.contains("1 requests refused"), "{said}");
    }
}

/// As many peers as a server of many sensors has, each with a row and then silent.
#[test]
fn many_peers_at_once() {
    let Some(peers) = many_connections(300) else { return };
    for protocol in &PROTOCOLS {
        let mut listening = Listening::start("many", protocol, &format!(", 'listener.max-connections' = '{}'", peers + 10));
        let mut held = Vec::new();
        for n in 0..peers {
            let mut stream = protocol.connect(listening.port);
            stream.write_all(&(protocol.row)(n as i64)).expect("the job reads");
            held.push(stream);
        }
        let out = listening.scratch.path().join("out");
        let lines = || std::fs::read_to_string(&out).expect("the output").lines().count() as u64;
        wait_for("a row of each", || listening.lives() && lines() == peers);
        // The first of them is still heard among all the others.
        held[0].write_all(&(protocol.row)(-1)).expect("the job reads");
        listening.wait_row(-1);
        let (metrics, said) = listening.stop();
        assert_eq!((metrics["rows_in"].as_u64(), sum(&metrics, "bad_rows")), (Some(peers + 1), 0), "{}: {said}", protocol.options);
        assert!(metrics["listeners"].is_null(), "nobody was turned away: {metrics}");
    }
}
