//! The examples do what they say. Those of `examples/vwap/vwap.sql` are in `crash`.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

use crate::harness::{Background, Scratch, finish, free_port, root, sink_lines, text, tidemill, wait_for};

fn stdout_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8_lossy(bytes).lines().map(str::to_string).collect();
    lines.sort();
    lines
}

/// Runs an example in the root of the repository, in one shard.
fn run(job: &str) -> Vec<String> {
    let output = finish(tidemill().current_dir(root()).args(["run", job, "--quiet", "--parallelism", "1"]));
    assert!(output.status.success(), "{job}: {}", text(&output));
    stdout_lines(&output.stdout)
}

#[test]
fn dead_letter() {
    let found = run("examples/dead-letter/orders.sql");
    assert_eq!(found.len(), 4, "{found:#?}");
    assert_eq!(found[..2], ["large> +I[3, cleo, 140.0]", "large> +I[5, anna, 220.25]"]);
    assert!(found[2].contains("orders.csv:3") && found[2].contains("has 1 field, the table has 4 columns"), "{found:#?}");
    assert!(found[3].contains("orders.csv:5") && found[3].contains("'a lot' is not a DOUBLE"), "{found:#?}");
}

#[test]
fn batch_report() {
    let found = run("examples/batch-report/report.sql");
    assert_eq!(found, ["------  ------  ------", "Bremen       3  372.75", "Emden        1     7.0", "city    orders  amount"]);
}

#[test]
fn tables_of_the_page_on_serving() {
    let scratch = Scratch::new("serving-tables");
    let page = std::fs::read_to_string(root().join("docs/serving.md")).expect("docs/serving.md");
    let tables: Vec<&str> = page.split("\n    CREATE TABLE ").skip(1).filter_map(|rest| rest.split(';').next()).collect();
    for connector in ["flight", "http", "websocket", "siddhi-tcp"] {
        assert!(tables.iter().any(|t| t.contains(&format!("'connector' = '{connector}'"))), "there is one of {connector}");
    }
    for table in tables {
        let name = table.split(' ').next().expect("split gives one at least");
        let job = format!(
            "CREATE TABLE {table};\nCREATE TABLE drain (n BIGINT) WITH ('connector' = 'blackhole');\n\
             INSERT INTO drain SELECT CAST(1 AS BIGINT) FROM {name};"
        );
        let output = finish(tidemill().args(["explain", &scratch.write("job.sql", job)]));
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
}

#[test]
fn socket_windows() {
    let scratch = Scratch::new("socket-windows");
    // A port that is free now; the example has one of its own.
    let port = free_port();
    let example = root().join("examples/socket-windows");
    let sql = std::fs::read_to_string(example.join("windows.sql")).expect("examples/socket-windows/windows.sql");
    let job = scratch.write("windows.sql", sql.replace("'7007'", &format!("'{port}'")));
    let out = scratch.at("out.txt");
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "--parallelism", "1"]);
    let file = std::fs::File::create(&out).expect("a file for the output");
    let child = command.stdin(std::process::Stdio::null()).stdout(file).stderr(std::process::Stdio::piped()).spawn();
    let mut child = Background(child.expect("starting tidemill"));
    let mut peer = None;
    wait_for("the job to listen", || {
        peer = TcpStream::connect(("127.0.0.1", port)).ok();
        peer.is_some()
    });
    let readings = std::fs::read(example.join("readings.jsonl")).expect("the readings");
    let mut peer = peer.expect("waited for");
    peer.write_all(&readings).expect("the job reads");
    let written = || stdout_lines(&std::fs::read(&out).expect("the output"));
    wait_for("three windows", || written().len() >= 3);
    // Worked out by hand. The window of the last reading stays open.
    let expect = [
        "+I[cellar, 2024-05-01T10:00, 2, 12.25, 12.125]",
        "+I[kitchen, 2024-05-01T10:00, 2, 21.0, 20.75]",
        "+I[kitchen, 2024-05-01T10:00:10, 1, 21.5, 21.5]",
    ];
    assert_eq!(written(), expect);
    child.signal("INT");
    let (code, errors) = child.end();
    assert_eq!(code, Some(0), "{errors}");
}

#[test]
fn demo() {
    let scratch = Scratch::new("demo");
    let job = root().join("examples/vwap/demo.sql");
    let output = finish(tidemill().current_dir(scratch.path()).arg("run").arg(&job).arg("--quiet"));
    assert!(output.status.success(), "{}", text(&output));
    for sink in ["costs", "vwap_5m", "vwap_1h", "vwap_24h"] {
        let lines = sink_lines(&Path::new(&scratch.at("demo-output")).join(sink));
        assert_eq!(lines.len(), 1_000_000, "{sink}: a line for each trade");
    }
}
