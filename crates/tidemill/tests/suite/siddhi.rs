//! Siddhi's own TCP sinks and sources, from Maven Central, against the connector `siddhi-tcp`, in both
//! directions. Where Java, Maven or Maven Central is missing these tests say so and do not run.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{Background, Scratch, finish, fold, free_port, root, text, tidemill, wait_for};
use crate::not_run::not_run;

/// Events on each channel.
const EVENTS: i64 = 2000;

/// The directory with the classes of tests/siddhi and their jars, built once.
fn siddhi() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| match build() {
        Ok(directory) => Some(directory),
        Err(reason) => {
            not_run(&format!("the tests with Siddhi's own client and server: {reason}"));
            None
        }
    });
    built.as_deref()
}

fn build() -> Result<PathBuf, String> {
    let java = Command::new("java").arg("-version").output();
    java.map_err(|e| format!("java: {e}"))?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("siddhi");
    let maven = |offline: &[&str]| {
        let mut command = Command::new("mvn");
        command.args(["-q", "-B", "-f"]).arg(root().join("tests/siddhi/pom.xml")).args(offline);
        command.arg(format!("-Dsiddhi.target={}", target.display())).arg("package");
        command.output().map_err(|e| format!("mvn: {e}"))
    };
    // Without the network first: a second run then depends on nobody.
    let mut built = maven(&["-o"])?;
    if !built.status.success() {
        built = maven(&[])?;
    }
    if built.status.success() {
        return Ok(target);
    }
    let said = text(&built);
    assert!(!said.contains("COMPILATION ERROR"), "{said}");
    Err(format!("mvn package failed: {}", said.lines().find(|line| line.contains("ERROR")).unwrap_or("without a word")))
}

fn java(target: &Path, class: &str, port: u16) -> Command {
    let mut command = Command::new("java");
    let path = format!("{0}/classes:{0}/lib/*", target.display());
    // Siddhi takes strings in the default charset of the JVM.
    command.args(["-Xmx256m", "-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", &path]);
    command.args([&format!("tidemill.siddhi.{class}"), &port.to_string(), &EVENTS.to_string()]);
    command
}

#[test]
fn sinks_of_siddhi_publish_into_a_job() {
    let Some(target) = siddhi() else { return };
    let (scratch, port) = (Scratch::new("siddhi-in"), free_port());
    let job = format!(
        "CREATE TABLE everything (
           s STRING, i INT, l BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'
         ) WITH ('connector' = 'siddhi-tcp', 'port' = '{port}', 'channel' = 'app/all');
         CREATE TABLE pairs (n BIGINT, s STRING) WITH ('connector' = 'siddhi-tcp', 'port' = '{port}', 'channel' = 'app/pairs');
         CREATE TABLE a (s STRING, i INT, l BIGINT, f FLOAT, d DOUBLE, b BOOLEAN, `at` TIMESTAMP_LTZ(3))
         WITH ('connector' = 'print', 'print-identifier' = 'a');
         CREATE TABLE p (s STRING, n BIGINT) WITH ('connector' = 'print', 'print-identifier' = 'p');
         EXECUTE STATEMENT SET BEGIN
         INSERT INTO a SELECT s, i, l, f, d, b, `at` FROM everything;
         INSERT INTO p SELECT s, n FROM pairs;
         END;"
    );
    let job = scratch.write("job.sql", job);
    let out = scratch.path().join("out");
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "--parallelism", "2"]).stdin(Stdio::null()).stderr(Stdio::piped());
    let child = command.stdout(File::create(&out).expect("a file for the output")).spawn().expect("starting tidemill");
    let mut running = Background(child);
    wait_for("the job to listen", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let client = finish(&mut java(target, "Client", port));
    assert!(client.status.success(), "{}", text(&client));
    let printed = || std::fs::read_to_string(&out).expect("the output");
    let mut ended = false;
    wait_for("all events", || {
        ended = running.0.try_wait().expect("waiting for tidemill").is_some();
        ended || printed().lines().count() as i64 >= 2 * EVENTS
    });
    if !ended {
        running.signal("INT");
    }
    let (code, errors) = running.end();
    assert_eq!(code, Some(0), "{errors}");
    let mut everything: Vec<String> = (0..EVENTS)
        .map(|i| {
            let s = if i % 5 == 0 { "null".to_string() } else { format!("key-{i}") };
            // 2023-11-14T22:13:20Z and i ms.
            let (second, ms) = (20 + i / 1000, i % 1000);
            let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
            let at = format!("2023-11-14T22:13:{second}{fraction}Z");
            let (f, d) = (i as f32 / 4.0, i as f64 / 8.0);
            format!("{s}, {}, {}, {f:?}, {d:?}, {}, {at}", i - 1000, i * 3_000_000_000, i % 2 == 0)
        })
        .collect();
    everything.sort();
    assert_eq!(fold(&only(&printed(), "a"), "a"), everything);
    let mut pairs: Vec<String> = (0..EVENTS).map(|n| format!("pair-{}, {n}", n % 10)).collect();
    pairs.sort();
    assert_eq!(fold(&only(&printed(), "p"), "p"), pairs);
}

/// The lines of one `print` sink.
fn only(printed: &str, name: &str) -> String {
    printed.lines().filter(|line| line.split([':', '>']).next() == Some(name)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_job_publishes_into_a_source_of_siddhi() {
    let Some(target) = siddhi() else { return };
    let (scratch, port) = (Scratch::new("siddhi-out"), free_port());
    let mut server = Background::start(&mut java(target, "Server", port));
    let mut lines = BufReader::new(server.0.stdout.take().expect("piped")).lines();
    assert_eq!(lines.next().expect("the server's first word").expect("text"), "ready");
    let last = EVENTS - 1;
    let job = format!(
        "CREATE TABLE numbers (n BIGINT) WITH (
           'connector' = 'datagen', 'rows-per-second' = '0', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '{last}'
         );
         CREATE TABLE out (n BIGINT, s STRING, i INT, f FLOAT, d DOUBLE, b BOOLEAN) WITH (
           'connector' = 'siddhi-tcp', 'port' = '{port}', 'channel' = 'app/out', 'frame.events' = '7', 'timestamp.column' = 'n'
         );
         INSERT INTO out
         SELECT n, CASE WHEN n % 5 = 0 THEN '' ELSE CONCAT('é-', CAST(n AS STRING)) END, CAST(n - 1000 AS INT),
           CAST(CAST(n AS DOUBLE) / 4 AS FLOAT), CAST(n AS DOUBLE) / 8, n % 2 = 0
         FROM numbers;"
    );
    let job = scratch.write("job.sql", job);
    let output = finish(tidemill().args(["run", &job, "--quiet", "--parallelism", "1"]));
    assert!(output.status.success(), "{}", text(&output));
    let got: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let expect: Vec<String> = (0..EVENTS)
        .map(|n| {
            let s = if n % 5 == 0 { "null".to_string() } else { format!("é-{n}") };
            let (f, d) = (n as f32 / 4.0, n as f64 / 8.0);
            format!("{n}|{n}|{s}|{}|{f:?}|{d:?}|{}", n - 1000, n % 2 == 0)
        })
        .collect();
    let (code, errors) = server.end();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(got, expect, "in the order written");
}
