//! A served job from outside: the process, and HTTP as `curl` would speak it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{Background, Scratch, free_port, tidemill, wait_for};

/// An address for a server that is started again there.
pub fn lasting_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// `tidemill serve` in the background; killed when dropped.
pub struct Server {
    pub process: Background,
    pub address: SocketAddr,
    /// What it said when it was ready.
    pub ready: String,
    /// Sent with each request, if there is one.
    pub token: Option<&'static str>,
    log: String,
}

impl Server {
    /// Starts it on a port that the system chooses, unless the arguments say another, and waits until it
    /// answers.
    pub fn start(scratch: &Scratch, args: &[&str]) -> Self {
        let log = scratch.at("server.log");
        let errors = File::options().create(true).append(true).open(&log).expect("a file for the log");
        let mut command = tidemill();
        command.arg("serve").args(args);
        for (option, default) in [("--listen", "127.0.0.1:0"), ("--parallelism", "2")] {
            if !args.contains(&option) {
                command.args([option, default]);
            }
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).spawn().expect("starting tidemill");
        let mut process = Background(child);
        let mut ready = String::new();
        BufReader::new(process.0.stdout.take().expect("piped")).read_line(&mut ready).expect("standard output");
        let address = ready.split("://").nth(1).and_then(|rest| rest.split(',').next()).and_then(|a| a.parse().ok());
        let Some(address) = address else {
            panic!("{command:?} did not start: {ready:?}\n{}", std::fs::read_to_string(&log).unwrap_or_default())
        };
        Server { process, address, ready, token: None, log }
    }

    /// The log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    /// The address of a stream for `tidemill publish` and `subscribe`.
    pub fn stream(&self, name: &str) -> String {
        format!("flight://{}/{name}", self.address)
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("the server listens")
    }

    /// Status and body of the answer to a request.
    pub fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
        let mut stream = self.connect();
        let token = self.token.map_or(String::new(), |t| format!("authorization: Bearer {t}\r\n"));
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n{token}connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("the server reads");
        // One that refuses a body may close before it has read all of it.
        let _ = stream.write_all(body.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{method} {path}: no status in {answer:?}\n{}", self.log()));
        (status, answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_string()))
    }

    /// As [`Server::ask`], where the status must be `expect` and the body contain all parts.
    #[track_caller]
    pub fn expect(&self, method: &str, path: &str, body: &str, expect: u16, parts: &[&str]) -> String {
        let (status, text) = self.ask(method, path, "application/json", body);
        assert_eq!(status, expect, "{method} {path}: {text}\n{}", self.log());
        for part in parts {
            assert!(text.contains(part), "{method} {path}: {part:?} is not in {text}");
        }
        text
    }

    /// What is at a path, as JSON.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let text = self.expect("GET", path, "", 200, &[]);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"))
    }

    /// Publishes lines of JSON and gives the answer.
    #[track_caller]
    pub fn post(&self, path: &str, lines: &str) -> Value {
        let (status, text) = self.ask("POST", path, "application/x-ndjson", lines);
        assert_eq!(status, 200, "POST {path}: {text}\n{}", self.log());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}: {text}"))
    }

    /// Waits until a job is in a state.
    #[track_caller]
    pub fn wait_job(&self, name: &str, state: &str) {
        wait_for(&format!("job '{name}' to be {state}"), || self.get(&format!("/v1/jobs/{name}"))["state"] == state);
    }

    /// Waits until a running job reads the stream (`inlet`) or writes it (`outlet`).
    #[track_caller]
    pub fn wait_side(&self, stream: &str, side: &str) {
        let path = format!("/v1/streams/{stream}");
        wait_for(&format!("the {side} of stream '{stream}'"), || {
            let (status, text) = self.ask("GET", &path, "application/json", "");
            status == 200 && serde_json::from_str::<Value>(&text).is_ok_and(|s| s[side].is_object())
        });
    }

    /// Waits until the streams of the example are there.
    #[track_caller]
    pub fn wait_example(&self) {
        for (stream, side) in [("orders", "inlet"), ("per_customer", "outlet"), ("large_orders", "outlet")] {
            self.wait_side(stream, side);
        }
        // Until every job is up an unknown stream may be one that comes.
        wait_for("all jobs to be up", || self.ask("GET", "/v1/streams/none", "", "").0 == 404);
    }

    /// Waits for the end of the process and gives its exit code; none if a signal ended it.
    pub fn end(&mut self) -> Option<i32> {
        let mut status = None;
        wait_for("the server to end", || {
            status = self.process.0.try_wait().expect("waiting for tidemill");
            status.is_some()
        });
        status.and_then(|s| s.code())
    }

    /// A figure of a stream.
    #[track_caller]
    pub fn stat(&self, stream: &str, name: &str) -> u64 {
        let about = self.get(&format!("/v1/streams/{stream}"));
        about["stats"][name].as_u64().unwrap_or_else(|| panic!("{name} in {about}"))
    }

    /// A metric without labels.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.expect("GET", "/metrics", "", 200, &[]);
        let value = page.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    /// What the view of the example holds: a line each, sorted.
    #[track_caller]
    pub fn per_customer(&self) -> Vec<String> {
        let rows = self.get("/v1/streams/per_customer/rows");
        let mut lines: Vec<String> = rows.as_array().expect("an array").iter().map(customer_line).collect();
        lines.sort();
        lines
    }

    /// Memory that the process holds, bytes; `None` where the system does not say.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
    }

    /// The connection of a subscriber that gets events, behind the head of the answer. In HTTP 1.0, so that
    /// the events come without chunks around them.
    pub fn events(&self, path: &str, headers: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: {}\r\n{headers}\r\n", self.address).expect("the server reads");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).expect("the head of the answer") > 0, "cut short: {head}");
        }
        assert!(head.contains(" 200 ") && head.contains("text/event-stream"), "{path}: {head}");
        reader
    }
}

/// A row of `per_customer`.
pub fn customer_line(row: &Value) -> String {
    let amount = row["amount"].as_f64().unwrap_or_else(|| panic!("an amount in {row}"));
    format!("{}: {} orders, {amount}", row["customer"].as_str().unwrap_or("?"), row["orders"])
}

/// An event: its id, name and data.
#[derive(Debug, Default, PartialEq)]
pub struct Event {
    pub id: Option<u64>,
    pub event: String,
    pub data: String,
}

/// The next event; `None` at the end of the stream.
pub fn next_event(reader: &mut impl BufRead) -> Option<Event> {
    let (mut event, mut line) = (Event::default(), String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).expect("the server goes on") == 0 {
            return None;
        }
        match line.trim_end_matches('\n').split_once(": ") {
            Some(("id", id)) => event.id = id.parse().ok(),
            Some(("event", name)) => event.event = name.to_string(),
            Some(("data", data)) => event.data = data.to_string(),
            _ if line == "\n" && !event.data.is_empty() => return Some(event),
            // A comment, or the empty line behind one.
            _ => {}
        }
    }
}
