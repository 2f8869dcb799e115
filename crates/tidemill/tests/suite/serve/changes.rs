//! Changes on their way: from publishers into a job, from a stream into a job elsewhere, and back again.

use std::fs::File;
use std::process::Stdio;

use super::server::Server;
use crate::harness::{Background, Scratch, finish, text, tidemill, wait_for};

const SERVED: &str = "CREATE TABLE accounts (id BIGINT NOT NULL, owner STRING, balance BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'stream', 'stream.changes' = 'upsert');
CREATE TABLE per_owner (owner STRING, balance BIGINT) WITH ('connector' = 'stream', 'stream.snapshot' = 'true');
CREATE TABLE mirror (owner STRING, balance BIGINT) WITH ('connector' = 'stream', 'stream.changes' = 'all');
CREATE TABLE mirrored (owner STRING, balance BIGINT) WITH ('connector' = 'stream', 'stream.snapshot' = 'true');
EXECUTE STATEMENT SET BEGIN
INSERT INTO per_owner SELECT owner, SUM(balance) AS balance FROM accounts GROUP BY owner;
INSERT INTO mirrored SELECT owner, balance FROM mirror;
END;";

fn served(scratch: &Scratch) -> Server {
    let job = scratch.write("changes.sql", SERVED);
    let server = Server::start(scratch, &[&job, "--state-dir", &scratch.at("server"), "--parallelism", "1"]);
    for (stream, side) in [("accounts", "inlet"), ("per_owner", "outlet"), ("mirror", "inlet"), ("mirrored", "outlet")] {
        server.wait_side(stream, side);
    }
    server
}

/// Waits until the contents of a stream are these, as `owner balance`, sorted.
#[track_caller]
fn holds(server: &Server, stream: &str, expect: &[&str]) {
    let mut found = Vec::new();
    wait_for(&format!("{stream} to hold {expect:?}"), || {
        let rows = server.get(&format!("/v1/streams/{stream}/rows"));
        let line = |row: &serde_json::Value| format!("{} {}", row["owner"].as_str().unwrap_or("NULL"), row["balance"]);
        found = rows.as_array().expect("an array").iter().map(line).collect();
        found.sort();
        found == expect
    });
}

#[test]
fn changes_go_from_publishers_through_servers_and_jobs() {
    let scratch = Scratch::new("serve-changes");
    let server = served(&scratch);
    let publish = |lines: &str| server.post("/v1/streams/accounts", lines);
    publish("{\"id\":1,\"owner\":\"anna\",\"balance\":10}\n{\"id\":2,\"owner\":\"ben\",\"balance\":20}\n");
    publish("{\"id\":3,\"owner\":\"anna\",\"balance\":5}\n");
    holds(&server, "per_owner", &["anna 15", "ben 20"]);
    // A row of a key takes the place of the one before it, whatever it says it is; a deletion needs its key alone.
    publish("{\"id\":1,\"owner\":\"anna\",\"balance\":11,\"row_kind\":\"+U\"}\n{\"id\":2,\"row_kind\":\"-D\"}\n");
    holds(&server, "per_owner", &["anna 16"]);

    // A job elsewhere begins with the contents, follows the changes, and publishes them into another stream.
    let table = |name: &str| {
        format!(
            "CREATE TABLE {name} (owner STRING, balance BIGINT) WITH ('connector' = 'flight', 'url' = '{}', 'changes' = 'apply');",
            server.stream(name)
        )
    };
    let job = format!("{}\n{}\nINSERT INTO mirror SELECT owner, balance FROM per_owner;", table("per_owner"), table("mirror"));
    let mut command = tidemill();
    command.args(["run", &scratch.write("elsewhere.sql", job), "--quiet"]);
    let errors = File::create(scratch.path().join("elsewhere.log")).expect("a file for the log");
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().expect("starting tidemill");
    let mut elsewhere = Background(child);
    holds(&server, "mirrored", &["anna 16"]);
    publish("{\"id\":4,\"owner\":\"carla\",\"balance\":1}\n{\"id\":1,\"row_kind\":\"-D\"}\n{\"id\":5,\"owner\":\"ben\",\"balance\":9}\n");
    holds(&server, "per_owner", &["anna 5", "ben 9", "carla 1"]);
    holds(&server, "mirrored", &["anna 5", "ben 9", "carla 1"]);
    publish("{\"id\":3,\"row_kind\":\"-D\"}\n");
    holds(&server, "mirrored", &["ben 9", "carla 1"]);
    let log = std::fs::read_to_string(scratch.path().join("elsewhere.log")).expect("the log");
    assert!(elsewhere.0.try_wait().expect("waiting for tidemill").is_none(), "{log}");
    drop(elsewhere);

    // An adapter publishes what a format of changes says.
    let file = scratch.write(
        "changes.json",
        "{\"before\":null,\"after\":{\"owner\":\"dora\",\"balance\":3},\"op\":\"c\"}\n\
         {\"before\":{\"owner\":\"dora\",\"balance\":3},\"after\":{\"owner\":\"dora\",\"balance\":4},\"op\":\"u\"}\n\
         {\"before\":{\"owner\":\"carla\",\"balance\":1},\"after\":null,\"op\":\"d\"}\n",
    );
    let from = format!("connector=filesystem,format=debezium-json,path={file}");
    let output = finish(tidemill().args(["adapter", "--from", &from, "--to", &server.stream("mirror")]));
    assert!(output.status.success(), "{}", text(&output));
    holds(&server, "mirrored", &["ben 9", "dora 4"]);

    // What a row does must be said in one of the four ways.
    let (status, said) = server.ask("POST", "/v1/streams/accounts", "application/x-ndjson", "{\"id\":1,\"row_kind\":\"*\"}");
    assert!(status == 400 && said.contains("expected +I, -U, +U or -D"), "{said}");
    assert_eq!(server.get("/v1/jobs/changes")["restarts"], 0);
}
