//! Clients: the command line, Python, Java and `curl`, with the server or the client killed in between.
//! What is not installed is said, and its test skipped.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::server::{Server, customer_line, lasting_address};
use super::{example, large, orders, per_customer};
use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, root, text, tidemill, wait_for};
use crate::not_run::not_run;

/// Where things are kept from one run of the tests to the next.
fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Output of a command that may take long the first time, such as one that downloads.
fn long(command: &mut Command) -> Result<Output, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if output.status.success() { Ok(output) } else { Err(format!("{command:?}: {}", text(&output))) }
}

/// A Python with pyarrow, or why there is none.
pub fn python() -> Option<&'static Path> {
    static PYTHON: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let make = || {
        let directory = kept("clients-venv");
        let python = directory.join("bin/python");
        let works = || long(Command::new(&python).args(["-c", "import pyarrow.flight"]));
        if works().is_err() {
            long(Command::new("python3").args(["-m", "venv"]).arg(&directory))?;
            long(Command::new(&python).args(["-m", "pip", "install", "--quiet", "pyarrow"]))?;
            works()?;
        }
        Ok(python)
    };
    match PYTHON.get_or_init(make) {
        Ok(python) => Some(python),
        Err(why) => {
            not_run(&format!("clients in Python (no Python with pyarrow): {why}"));
            None
        }
    }
}

/// Runs one of the example's scripts.
pub fn script(python: &Path, server: &Server, name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.arg(root().join("examples/clients").join(name)).args(["--server", &format!("grpc://{}", server.address)]).args(args);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A directory with the Java client, built, or why there is none.
fn java() -> Option<PathBuf> {
    let (source, directory) = (root().join("examples/clients/java"), kept("clients-java"));
    let files = ["pom.xml", "src/main/java/OrdersClient.java"];
    let same = |file: &&str| std::fs::read(source.join(file)).ok() == std::fs::read(directory.join(file)).ok();
    let built = directory.join("target/lib").exists() && files.iter().all(same);
    if !built {
        for file in files {
            let to = directory.join(file);
            std::fs::create_dir_all(to.parent().expect("below the directory")).expect("a directory");
            std::fs::copy(source.join(file), to).expect("copying the client");
        }
        if let Err(why) = long(Command::new("mvn").args(["--quiet", "--batch-mode", "package"]).current_dir(&directory)) {
            assert!(!why.contains("COMPILATION ERROR"), "{why}");
            let _ = std::fs::remove_dir_all(directory.join("target"));
            not_run(&format!("the client in Java (no Maven, Java 17 or network): {why}"));
            return None;
        }
    }
    Some(directory)
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(output));
    let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn the_command_line() {
    let scratch = Scratch::new("serve-cli");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    let url = server.stream("orders");
    let json = scratch.write("orders.json", orders(0, 1000));
    expect(&finish(tidemill().args(["publish", &url, &json])), 0, &["1000 rows published"]);
    assert_eq!(server.per_customer(), per_customer(1000, 1));
    // The same command goes on where it stood: there is nothing more.
    expect(&finish(tidemill().args(["publish", &url, &json])), 0, &["finished"]);
    assert_eq!(server.per_customer(), per_customer(1000, 1));
    // Another file of that name is not taken for it.
    scratch.write("orders.json", orders(1000, 1200));
    expect(&finish(tidemill().args(["publish", &url, &json])), 1, &["begins with other bytes", "--id"]);
    scratch.write("orders.json", orders(0, 1000));
    // An adapter is the same by other words, under a name of its own, wherever its file lies.
    let deep = format!("{}/orders.csv", ["year=2026/month=11/day=29"; 8].join("/"));
    std::fs::create_dir_all(std::path::Path::new(&scratch.at(&deep)).parent().unwrap()).unwrap();
    let csv: String = (0..1000).map(|n| format!("{n},customer {},{}\n", n % 7, n % 200)).collect();
    let from = format!("connector=filesystem,path={},format=csv,block.size=64", scratch.write(&deep, csv));
    expect(&finish(tidemill().args(["adapter", "--from", &from, "--to", &url, "--quiet"])), 0, &[]);
    assert_eq!(server.per_customer(), per_customer(1000, 2));

    let all = large(1000) * 2;
    wait_for("the log", || server.stat("large_orders", "next_offset") == all);
    let subscribe = |args: &[&str]| finish(tidemill().args(["subscribe", &server.stream("large_orders")]).args(args));
    let found = lines(&subscribe(&["--from", "earliest", "--where", "id = 150", "--limit", "2"]));
    assert_eq!(found, [r#"{"id":150,"customer":"customer 3","amount":150.0}"#; 2]);
    let found = lines(&subscribe(&["--from", "earliest", "--columns", "id", "--limit", &all.to_string(), "--format", "csv"]));
    assert_eq!(found.len() as u64, all + 1, "rows and a header line");
    // Under a name: what was printed does not come again.
    let named = |limit: u64, more: &[&str]| {
        let limit = limit.to_string();
        let args = [&["--name", "cli", "--columns", "id", "--format", "csv", "--limit", &limit], more].concat();
        let mut rows = lines(&subscribe(&args));
        rows.retain(|l| l != "id");
        rows
    };
    assert_eq!(named(all, &["--from", "earliest"]).len() as u64, all);
    server.post("/v1/streams/orders?wait=ack", &orders(1000, 200));
    // Also if the limit falls within a message.
    assert_eq!(named(30, &[]), (1100..1130).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(named(70, &[]), (1130..1200).map(|n| n.to_string()).collect::<Vec<_>>());

    expect(&finish(tidemill().args(["publish", &server.stream("ordres"), &json])), 1, &["'ordres'", "did you mean 'orders'?"]);
    expect(&finish(tidemill().args(["subscribe", &server.stream("large_order")])), 1, &["did you mean 'large_orders'?"]);
    expect(&subscribe(&["--where", "amont > 1"]), 1, &["amont > 1", "amount"]);
    expect(&finish(tidemill().args(["publish", "http://localhost:1/orders", &json])), 2, &["flight://"]);
}

/// Reads lines of a script's standard output until they say so.
fn read_until(child: &mut Background, mut enough: impl FnMut(Value) -> bool) {
    let mut output = BufReader::new(child.0.stdout.take().expect("piped"));
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line).expect("standard output") == 0 {
            panic!("it ended early: {:?}", child.end());
        }
        if enough(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line:?}: {e}"))) {
            return;
        }
    }
}

#[test]
fn python_follows_a_view() {
    let Some(python) = python() else { return };
    let scratch = Scratch::new("serve-follow");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    let publish = |rows: &str| finish(&mut script(python, &server, "publish.py", &["--rows", rows]));
    assert!(publish("1000").status.success());
    let mut follower = Background::start(&mut script(python, &server, "subscribe.py", &["per_customer"]));
    // The contents first, then changes; together they always make the view.
    let (mut contents, mut published) = (Vec::<String>::new(), false);
    read_until(&mut follower, |change| {
        let line = customer_line(&change);
        match change["row_kind"].as_str().expect("a kind") {
            "+I" | "+U" => contents.push(line),
            _ => {
                let at = contents.iter().position(|l| *l == line).unwrap_or_else(|| panic!("{line} is taken back, but not there"));
                contents.swap_remove(at);
            }
        }
        contents.sort();
        if !published && contents == per_customer(1000, 1) {
            published = true;
            // Goes on with row 1000.
            let output = publish("1500");
            assert!(text(&output).contains("from row 1000"), "{}", text(&output));
        }
        contents == per_customer(1500, 1)
    });
}

#[test]
fn python_loses_and_repeats_nothing() {
    let Some(python) = python() else { return };
    let kills: u64 = std::env::var("SERVE_KILLS").map_or(4, |n| n.parse().expect("SERVE_KILLS is a number"));
    let rows = 100_000 * (kills + 1);
    let scratch = Scratch::new("serve-kills");
    let (state, database) = (scratch.at("state"), scratch.at("orders.db"));
    let job = example().display().to_string();
    let address = lasting_address();
    let again = ["--state-dir", &state, "--listen", &address, "--set", "execution.checkpointing.interval=100ms"];
    let mut server = Server::start(&scratch, &[&[job.as_str()][..], &again].concat());
    server.wait_example();
    let subscriber = |server: &Server| {
        let mut command = script(python, server, "subscribe.py", &["large_orders", "--into", &database]);
        // Nobody reads what it prints.
        Background(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starting Python"))
    };
    let mut publisher = script(python, &server, "publish.py", &["--rows", &rows.to_string(), "--block-rows", "7"]);
    let mut publisher = Background(publisher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("Python"));
    let mut running = subscriber(&server);
    for kill in 1..=kills {
        // Each time at another place, as far as the publisher comes.
        let enough = [100, 40_000, 7_000, 20_000][kill as usize % 4];
        wait_for("rows", || server.stat("orders", "published_rows") > enough || publisher.0.try_wait().expect("Python").is_some());
        if kill % 2 == 0 {
            running.0.kill().expect("killing the subscriber");
            running = subscriber(&server);
        }
        server.process.0.kill().expect("killing the server");
        server.end();
        server = Server::start(&scratch, &again);
        server.wait_example();
    }
    let (code, errors) = publisher.end();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(server.per_customer(), per_customer(rows, 1));
    let expect = large(rows);
    wait_for("the subscriber to have all", || {
        let subscriptions = server.get("/v1/streams/large_orders");
        subscriptions["subscriptions"]["python"].as_u64() == Some(expect)
    });
    let count = "import json, sqlite3, sys
rows = [json.loads(row)['id'] for (row,) in sqlite3.connect(sys.argv[1]).execute('SELECT row FROM rows ORDER BY number')]
print(rows == [n for n in range(int(sys.argv[2])) if n % 200 >= 100], len(rows))";
    let output = finish(Command::new(python).args(["-c", count, &database, &rows.to_string()]));
    assert_eq!(text(&output).trim(), format!("True {expect}"));
}

#[test]
fn java_publishes_and_follows() {
    let Some(directory) = java() else { return };
    let scratch = Scratch::new("serve-java");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    let client = |args: &[&str]| {
        let mut command = Command::new("java");
        command.args(["--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp", "target/classes:target/lib/*", "OrdersClient"]);
        command.current_dir(&directory).arg(args[0]).arg(format!("grpc://{}", server.address)).args(&args[1..]);
        command
    };
    let output = finish(&mut client(&["publish", "orders", "java", "2000"]));
    assert!(output.status.success() && text(&output).contains("safe: 2000"), "{}", text(&output));
    assert_eq!(server.per_customer(), per_customer(2000, 1));
    let output = finish(&mut client(&["publish", "orders", "java", "2500"]));
    assert!(output.status.success() && text(&output).contains("from row 2000"), "{}", text(&output));
    let output = finish(&mut client(&["publish", "ordres", "java", "1"]));
    assert!(!output.status.success() && text(&output).contains("did you mean 'orders'?"), "{}", text(&output));
    let mut follower = Background::start(&mut client(&["subscribe", "per_customer"]));
    let mut output = BufReader::new(follower.0.stdout.take().expect("piped"));
    let mut found = Vec::new();
    for _ in 0..7 {
        let mut line = String::new();
        output.read_line(&mut line).expect("standard output");
        found.push(line);
    }
    found.sort();
    let expect = |customer: u64| {
        let (orders, amount) = (0..2500).filter(|n| n % 7 == customer).fold((0, 0), |(o, a), n| (o + 1, a + n % 200));
        format!("+I customer=customer {customer} orders={orders} amount={amount}.0\n")
    };
    assert_eq!(found, (0..7).map(expect).collect::<Vec<_>>());
}

#[test]
fn curl_is_enough() {
    if Command::new("curl").arg("--version").output().is_err() {
        not_run("examples/clients/curl.sh (curl is not installed)");
        return;
    }
    let scratch = Scratch::new("serve-curl");
    let server = Server::start(&scratch, &[&example().display().to_string(), "--state-dir", &scratch.at("state")]);
    server.wait_example();
    let script = root().join("examples/clients/curl.sh");
    let output = finish(Command::new(script).env("SERVER", format!("http://{}", server.address)));
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for part in [
        r#""name":"clients""#,
        r#""acknowledged":3"#,
        r#""acknowledged":4"#,
        r#"{"customer":"anna","orders":2,"amount":150.5}"#,
        r#"{"customer":"cleo","orders":1,"amount":250.0}"#,
        "data: {\"id\":1,\"customer\":\"anna\",\"amount\":120.5}\nid: 1\n",
    ] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}
