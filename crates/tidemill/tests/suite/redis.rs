//! Jobs over streams of Redis, on a server of the tests' own: entries in and out, bad ones, wrong options, and kills of both
//! sides.
//!
//! The server is Debian's `redis-server`; where it is missing the tests say that they did not run. `REDIS_KILLS` says how
//! often the job is killed, `REDIS_SEED` when.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::{Value, json};

use crate::crash::Random;
use crate::databases::{installed, missing};
use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, fold, free_port, newest_checkpoint, root, text, tidemill, wait_for};

/// Whether there is a server to start; that there is none is said.
fn has_server() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let there = *THERE.get_or_init(|| installed("redis-server", || runs("redis-server") && runs("redis-cli")));
    if !there {
        missing("Redis", "redis-server");
    }
    there
}

/// A server in a directory of its own, killed when dropped. It keeps what it has confirmed.
struct Server {
    process: Option<Background>,
    scratch: Scratch,
    port: u16,
    password: Option<&'static str>,
}

impl Server {
    fn start(name: &str, password: Option<&'static str>) -> Option<Self> {
        if !has_server() {
            return None;
        }
        let mut server = Server { process: None, scratch: Scratch::new(name), port: free_port(), password };
        server.again();
        Some(server)
    }

    /// Starts it on what it has.
    fn again(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.scratch.at("log")).expect("a log file");
        let errors = log.try_clone().expect("the log file again");
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--dir", &self.scratch.at("")]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--unixsocket", &self.socket()]);
        if let Some(password) = self.password {
            command.args(["--requirepass", password]);
        }
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("starting redis-server");
        self.process = Some(Background(child));
        wait_for("Redis", || {
            let ended = self.process.as_mut().expect("started").0.try_wait().expect("waiting for redis-server");
            assert!(ended.is_none(), "{}", std::fs::read_to_string(self.scratch.at("log")).unwrap_or_default());
            self.client("PING\n").stdout.starts_with(b"PONG")
        });
    }

    /// Ends it as a power cut would.
    fn kill(&mut self) {
        self.process = None;
    }

    fn socket(&self) -> String {
        self.scratch.at("s")
    }

    fn url(&self) -> String {
        let password = self.password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{password}127.0.0.1:{}", self.port)
    }

    /// What the server's own client says to commands, one a line.
    fn client(&self, commands: &str) -> Output {
        let mut command = Command::new("redis-cli");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "--raw"]);
        if let Some(password) = self.password {
            command.env("REDISCLI_AUTH", password);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("starting redis-cli");
        let mut input = child.stdin.take().expect("piped");
        let commands = commands.to_string();
        // Beside reading what it says, since neither pipe holds all.
        let writing = std::thread::spawn(move || {
            // It may have gone for want of a server.
            let _ = input.write_all(commands.as_bytes());
        });
        let output = child.wait_with_output().expect("running redis-cli");
        writing.join().expect("the writing thread");
        output
    }

    /// The lines that the client says.
    #[track_caller]
    fn ask(&self, commands: &str) -> Vec<String> {
        let output = self.client(commands);
        assert!(output.status.success(), "{commands}\n{}", text(&output));
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
    }

    /// The values of the field `value` of all entries of a stream, which have no other.
    fn values(&self, stream: &str) -> Vec<String> {
        let lines = self.ask(&format!("XRANGE {stream} - +\n"));
        lines.chunks_exact(3).map(|entry| entry[2].clone()).collect()
    }

    fn with(&self, stream: &str, more: &str) -> String {
        format!("WITH ('connector' = 'redis-streams', 'url' = '{}', 'stream' = '{stream}'{more})", self.url())
    }
}

const BOUNDED: &str = ", 'scan.bounded.mode' = 'latest'";
const SHOWN: &str = "CREATE TABLE shown (id BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n";

fn run(scratch: &Scratch, sql: &str, more: &[&str]) -> Output {
    let job = scratch.write("job.sql", sql);
    finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]).args(more))
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{}", text(output));
}

/// A command that adds entries of one field, a message in JSON, all in one step.
fn messages(stream: &str, ids: std::ops::Range<u64>) -> String {
    let add = "redis.call('XADD', KEYS[1], '*', 'value', '{\\\"id\\\":' .. i .. '}')";
    format!("EVAL \"for i = tonumber(ARGV[1]), tonumber(ARGV[2]) - 1 do {add} end\" 1 {stream} {} {}\n", ids.start, ids.end)
}

#[test]
fn fields_in_and_out() {
    let Some(server) = Server::start("redis-fields", Some("geheim")) else { return };
    let scratch = Scratch::new("redis-fields-job");
    server.ask(
        "XADD one 5-1 id 1 name anna price 2.5 more x\nXADD one 5-2 price 3 id 2\nXADD two 6-0 id 3 name \"a, 'b'\"\n\
         XADD two 7-0 id 4 name \"\"\n",
    );
    let sql = format!(
        "CREATE TABLE orders (id BIGINT, name STRING, price DOUBLE, k STRING METADATA FROM 'key' VIRTUAL, \
         e STRING METADATA FROM 'id' VIRTUAL) {};\n\
         CREATE TABLE results (id BIGINT, name STRING, price DOUBLE, place STRING) {};\n\
         INSERT INTO results SELECT id, name, price * 2, k || '@' || e FROM orders;\n",
        server.with("one;two", BOUNDED),
        server.with("out", ", 'value.format' = 'json'"),
    );
    succeeds(&run(&scratch, &sql, &[]));
    let mut found: Vec<Value> = server.values("out").iter().map(|text| serde_json::from_str(text).expect("JSON")).collect();
    found.sort_by_key(|row| row["id"].as_i64());
    let row =
        |id: i64, name: Option<&str>, price: Option<f64>, place: &str| json!({"id": id, "name": name, "price": price, "place": place});
    let expect = [
        row(1, Some("anna"), Some(5.0), "one@5-1"),
        row(2, None, Some(6.0), "one@5-2"),
        row(3, Some("a, 'b'"), None, "two@6-0"),
        row(4, Some(""), None, "two@7-0"),
    ];
    assert_eq!(found, expect);
}

#[test]
fn messages_that_cannot_be_read() {
    let Some(server) = Server::start("redis-poison", None) else { return };
    let scratch = Scratch::new("redis-poison-job");
    server.ask(&format!("{}XADD s 5000000000000-0 value {{\nXADD s 5000000000000-1 other x\n", messages("s", 0..3)));
    let sql = |more: &str| {
        format!(
            "CREATE TABLE t (id BIGINT) {};\n{SHOWN}INSERT INTO shown SELECT id FROM t;\n",
            server.with("s", &format!("{BOUNDED}{more}"))
        )
    };
    expect(&run(&scratch, &sql(", 'value.format' = 'json'"), &[]), 1, &["table 't'", "s@5000000000000-0", "on-error"]);
    let output = run(&scratch, &sql(", 'value.format' = 'json', 'on-error' = 'skip'"), &[]);
    succeeds(&output);
    assert_eq!(fold(&String::from_utf8_lossy(&output.stdout), "shown"), ["0", "1", "2"]);
    // Over a socket of this machine, and from a given entry on.
    let more = ", 'value.format' = 'json', 'value.field' = 'other', 'scan.startup.mode' = 'id', 'scan.startup.id' = '5000000000000-0'";
    let output = run(&scratch, &sql(more).replace(&server.url(), &format!("unix://{}", server.socket())), &[]);
    expect(&output, 1, &["s@5000000000000-1"]);
}

#[test]
fn what_does_not_fit_is_told() {
    let Some(server) = Server::start("redis-wrong", Some("geheim")) else { return };
    let scratch = Scratch::new("redis-wrong-job");
    server.ask("SET text x\n");
    let reads = |with: &str| format!("CREATE TABLE t (id BIGINT) {with};\n{SHOWN}INSERT INTO shown SELECT id FROM t;\n");
    let wrong = server.with("s", "").replace("geheim", "verraten");
    let output = run(&scratch, &reads(&wrong), &[]);
    expect(&output, 1, &["table 't'", "WRONGPASS", "check 'username' and 'password'"]);
    assert!(!text(&output).contains("verraten"), "{}", text(&output));
    expect(&run(&scratch, &reads(&server.with("s", BOUNDED)), &[]), 1, &["there is no stream 's'"]);
    expect(&run(&scratch, &reads(&server.with("text", BOUNDED)), &[]), 1, &["WRONGTYPE"]);
    expect(&run(&scratch, &reads(&server.with("s", ", 'scan.startup.mod' = 'latest'")), &[]), 2, &["did you mean 'scan.startup.mode'?"]);
    let writes = |with: &str| {
        format!(
            "CREATE TABLE made_up (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');\nCREATE TABLE t (id BIGINT) {with};\n\
             INSERT INTO t SELECT id FROM made_up;\n"
        )
    };
    expect(&run(&scratch, &writes(&server.with("text", "")), &[]), 1, &["the key 'text' holds a string"]);
    let nobody = server.with("s", ", 'connect.timeout' = '300 ms'").replace(&format!(":{}'", server.port), &format!(":{}'", free_port()));
    expect(&run(&scratch, &reads(&nobody), &[]), 1, &["Redis at 127.0.0.1:", "check that a server runs there"]);
}

#[test]
fn entries_that_were_trimmed_before_they_were_read() {
    let Some(server) = Server::start("redis-trimmed", None) else { return };
    let scratch = Scratch::new("redis-trimmed-job");
    let (state, json) = (scratch.at("state"), ", 'value.format' = 'json'");
    let sql = |more: &str| {
        format!(
            "SET 'execution.checkpointing.interval' = '50 ms';\nCREATE TABLE t (id BIGINT) {};\nCREATE TABLE o (id BIGINT) {};\n\
             INSERT INTO o SELECT id FROM t;\n",
            server.with("s", &format!("{json}{more}")),
            server.with("o", json),
        )
    };
    let start = |sql: &str| {
        let job = scratch.write("job.sql", sql);
        Background::start(tidemill().args(["run", &job, "--quiet", "--parallelism", "1", "--state-dir", &state]))
    };
    server.ask(&messages("s", 0..10));
    let mut job = start(&sql(""));
    wait_for("ten entries", || server.values("o").len() >= 10);
    job.signal("INT");
    assert_eq!(job.end().0, Some(0));
    // Five more, of which the last two stay.
    server.ask(&format!("{}XTRIM s MAXLEN 2\n", messages("s", 10..15)));
    let (code, errors) = start(&sql("")).end();
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("3 entries behind") && errors.contains("trimmed away") && errors.contains("scan.lost-entries"), "{errors}");
    let mut job = start(&sql(", 'scan.lost-entries' = 'ignore'"));
    wait_for("the other two", || server.values("o").iter().any(|value| value.contains("14")));
    job.signal("INT");
    assert_eq!(job.end().0, Some(0));
    assert!(!server.values("o").iter().any(|value| value.contains("12")), "12 was trimmed away");
}

/// Each entry is once in what is written exactly once, and in what is written at least once, whichever side is killed.
#[test]
fn every_entry_whatever_is_killed() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |n| n.parse().expect("a number"));
    let (kills, seed) = (number("REDIS_KILLS", 5), number("REDIS_SEED", 4711));
    let Some(mut server) = Server::start("redis-crash", None) else { return };
    let mut random = Random(seed);
    let scratch = Scratch::new("redis-crash-job");
    let state = scratch.at("state");
    let json = ", 'value.format' = 'json'";
    let sql = format!(
        "SET 'execution.checkpointing.interval' = '50 ms';\n\
         CREATE TABLE t (id BIGINT) {};\nCREATE TABLE exactly (id BIGINT) {};\nCREATE TABLE at_least (id BIGINT) {};\n\
         EXECUTE STATEMENT SET BEGIN\nINSERT INTO exactly SELECT id FROM t;\nINSERT INTO at_least SELECT id FROM t;\nEND;\n",
        server.with("in-1;in-2", json),
        server.with("once", &format!("{json}, 'sink.delivery-guarantee' = 'exactly-once'")),
        server.with("least", json),
    );
    let job = scratch.write("job.sql", sql);
    let start = |shards: u64| {
        let mut command = tidemill();
        Background::start(command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]))
    };
    let (mut written, mut history) = (0, vec![format!("seed {seed}")]);
    for round in 0..kills {
        let shards = 1 + random.below(3);
        let process = start(shards);
        server.ask(&messages(if round.is_multiple_of(2) { "in-1" } else { "in-2" }, written..written + 2_000));
        written += 2_000;
        let delay_ms = 100 + random.below(1_500);
        std::thread::sleep(Duration::from_millis(delay_ms));
        let server_too = random.below(3);
        history.push(format!("parallelism {shards}, {delay_ms} ms, server {server_too}"));
        match server_too {
            // While the job runs: it bears that.
            0 => {
                server.kill();
                server.again();
                std::thread::sleep(Duration::from_millis(random.below(1_500)));
                drop(process);
            }
            1 => {
                drop(process);
                server.kill();
                server.again();
            }
            _ => drop(process),
        }
    }
    let mut process = start(2);
    let numbers = |stream: &str| {
        let number = |value: &String| value.trim_start_matches("{\"id\":").trim_end_matches('}').parse::<u64>().expect("an id");
        let mut all: Vec<u64> = server.values(stream).iter().map(number).collect();
        all.sort_unstable();
        all
    };
    wait_for("all entries", || {
        let ended = process.0.try_wait().expect("waiting for tidemill");
        assert!(ended.is_none(), "the job has ended after {}", history.join("; "));
        numbers("once").len() as u64 >= written
    });
    assert!(newest_checkpoint(std::path::Path::new(&state)).is_some());
    process.signal("INT");
    let (code, errors) = process.end();
    assert_eq!(code, Some(0), "{errors}; {}", history.join("; "));
    let expect: Vec<u64> = (0..written).collect();
    assert!(numbers("once") == expect, "each once after {}", history.join("; "));
    let mut least = numbers("least");
    least.dedup();
    assert!(least == expect, "each at least once after {}", history.join("; "));
}

#[test]
fn the_example() {
    let Some(server) = Server::start("redis-example", None) else { return };
    server.ask(
        "XADD orders 1-0 id 1 customer anna amount 120.5\nXADD orders 2-0 id 2 customer bert amount 99\nXADD orders 3-0 customer cleo\n",
    );
    let job = root().join("examples/redis/orders.sql");
    let mut command = tidemill();
    command.arg("run").arg(job).args(["--quiet", "--parallelism", "1", "-D", "UNTIL=latest", "-D", &format!("REDIS={}", server.url())]);
    let output = finish(&mut command);
    succeeds(&output);
    assert_eq!(server.ask("XRANGE large-orders - +\n")[1..], ["id", "1", "customer", "anna", "amount", "120.5", "entry", "1-0"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.starts_with("unreadable> ") && printed.lines().count() == 1, "{printed}");
    assert!(printed.contains("orders@3-0") && printed.contains("the entry has no field 'id'"), "{printed}");
}
