//! Tables that are followed: a copy and sums of a table are what the table and its sums are, however often the job and
//! the server were killed while the table was changed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::server::{PASSWORD, Server};
use crate::crash::Random;
use crate::databases::copied::{Differences, count, counted, part, some, wait_for_copy};
use crate::databases::wanted;
use crate::harness::{Background, PATIENCE, Scratch, finish, newest_checkpoint, text, tidemill, wait_for};

/// Rows that are there at the beginning.
const ROWS: u64 = 20_000;

/// The options of a table that is followed.
fn followed(server: &Server, table: &str, slot: &str, more: &str) -> String {
    format!(
        "'connector' = 'postgres-cdc', 'hostname' = '127.0.0.1', 'port' = '{}', 'username' = 'postgres', 'password' = '{PASSWORD}', \
         'database-name' = 'postgres', 'schema-name' = 'public', 'table-name' = '{table}', 'slot.name' = '{slot}', \
         'decoding.plugin.name' = 'pgoutput', 'ssl-mode' = 'disable', 'scan.snapshot.fetch.size' = '500', \
         'connection.max-retry-timeout' = '10 min'{more}",
        server.port
    )
}

/// Copies table `name` to `name_copy`, and its sums to `name_sums`.
fn job(server: &Server, name: &str, more: &str) -> String {
    let to = |table: &str| format!("{}, 'connection.max-retry-timeout' = '10 min'", server.options(table));
    format!(
        "SET 'execution.checkpointing.interval' = '30 ms';\n\
         CREATE TABLE changing (id STRING, k INT, n BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({});\n\
         CREATE TABLE copied (id STRING, k INT, n BIGINT, note STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({});\n\
         CREATE TABLE summed (k INT, c BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({});\n\
         EXECUTE STATEMENT SET BEGIN\n\
         INSERT INTO copied SELECT * FROM changing;\n\
         INSERT INTO summed SELECT k, COUNT(*), SUM(n) FROM changing GROUP BY k;\n\
         END;\n",
        followed(server, name, &format!("of_{name}"), more),
        to(&format!("{name}_copy")),
        to(&format!("{name}_sums")),
    )
}

/// Makes a table with its rows, and what its copy and its sums go into.
fn tables(server: &Server, name: &str) {
    server.rows(&format!(
        "CREATE TABLE {name} (extra inet, id text PRIMARY KEY, k int, n bigint NOT NULL, note varchar(20)); \
         CREATE TABLE {name}_copy (id text PRIMARY KEY, k int, n bigint, note text); \
         CREATE TABLE {name}_sums (k int PRIMARY KEY, c bigint, n bigint); \
         INSERT INTO {name} SELECT '10.0.0.1', 'Row ' || i, i % 50, i, CASE WHEN i % 3 = 0 THEN NULL ELSE 'note ' || i END \
         FROM generate_series(1, {ROWS}) i"
    ));
}

/// Changes some rows: new ones, other values, a transaction that is taken back, a large one; with `removes` also other keys and
/// deletions.
fn change(server: &Server, name: &str, random: &mut Random, round: u64, removes: bool) {
    let (k, from) = (random.below(50), random.below(ROWS));
    let removal = if removes {
        format!(
            "UPDATE {name} SET id = 'moved {round} ' || id WHERE n BETWEEN {from} AND {from} + 20; \
             DELETE FROM {name} WHERE n BETWEEN {from} + 100 AND {from} + 130; "
        )
    } else {
        String::new()
    };
    server.rows(&format!(
        "INSERT INTO {name} SELECT NULL, 'new {round} ' || i, i % 50, i, 'ä€😀' FROM generate_series(1, 200) i; \
         UPDATE {name} SET n = n + 7 WHERE k = {k}; {removal}\
         UPDATE {name} SET k = (k + 1) % 50, note = NULL WHERE n % 97 = {round} % 97"
    ));
    server.rows(&format!("BEGIN; DELETE FROM {name}; ROLLBACK"));
    if round % 4 == 3 {
        server.rows(&format!("UPDATE {name} SET n = n + 1, note = 'all ' || {round}"));
    }
}

/// What is in the table and not in its copy, and the other way round; the same of the sums.
fn sides(name: &str) -> [String; 4] {
    let (rows, copy) = (format!("SELECT id, k, n, note FROM {name}"), format!("SELECT id, k, n, note FROM {name}_copy"));
    let (sums, summed) =
        (format!("SELECT k, count(*) AS c, sum(n) AS n FROM {name} GROUP BY k"), format!("SELECT k, c, n FROM {name}_sums"));
    [format!("{rows} EXCEPT {copy}"), format!("{copy} EXCEPT {rows}"), format!("{sums} EXCEPT {summed}"), format!("{summed} EXCEPT {sums}")]
}

/// How copy and sums differ from what they must be; none if the server does not answer.
fn differences(server: &Server, name: &str) -> Option<Differences> {
    counted(server.try_rows(&count(&sides(name)))?.first()?, ',')
}

/// What differs, and what the server is doing.
fn report(server: &Server, name: &str) -> String {
    let asked = [
        (
            "slots",
            "SELECT slot_name, active, active_pid, restart_lsn, confirmed_flush_lsn, wal_status, pg_current_wal_lsn() \
             FROM pg_replication_slots",
        ),
        (
            "sessions",
            "SELECT pid, backend_type, state, wait_event_type, wait_event, now() - xact_start, left(query, 120) FROM pg_stat_activity \
             WHERE pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender')",
        ),
        (
            "locks that are waited for",
            "SELECT pid, locktype, relation::regclass, transactionid, mode, pg_blocking_pids(pid) FROM pg_locks WHERE NOT granted",
        ),
    ];
    let queries = some(&sides(name)).into_iter().chain(asked.map(|(title, sql)| (title, sql.to_string())));
    queries.map(|(title, sql)| part(title, server.try_rows(&sql))).collect()
}

/// `DATABASE_KILLS` says how often the job is killed, `DATABASE_SERVER_KILLS` how often the server, `DATABASE_SEED` when.
///
/// Without old rows in the log nobody can tell what a job that was killed in the first reading wrote of rows that are gone, so
/// they may stay (`docs/databases.md`). There the first half of the kills comes with changes that remove no key, and the second
/// when the reading is through.
#[test]
fn a_copy_is_the_table() {
    let (kills, server_kills, seed) = (wanted("DATABASE_KILLS", 8), wanted("DATABASE_SERVER_KILLS", 3), wanted("DATABASE_SEED", 31));
    let Some(mut server) = Server::start("postgres-changes") else { return };
    let mut random = Random(seed);
    for (name, more) in [("whole", ""), ("upserts", ", 'changelog-mode' = 'upsert'")] {
        tables(&server, name);
        if more.is_empty() {
            server.rows(&format!("ALTER TABLE {name} REPLICA IDENTITY FULL"));
        }
        let scratch = Scratch::new(&format!("postgres-changes-{name}"));
        let (path, state) = (scratch.write("job.sql", job(&server, name, more)), scratch.at("state"));
        let removed_from = if more.is_empty() { 0 } else { kills / 2 };
        let mut history = vec![format!("seed {seed}, table {name}")];
        let start = |shards: u64| {
            let mut command = tidemill();
            command.args(["run", &path, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
            Background::start(&mut command)
        };
        for round in 0..kills {
            if round == removed_from && !more.is_empty() {
                let mut running = start(2);
                history.push("the first reading is let through".into());
                let what = "the first reading to be through";
                wait_for_copy(what, &mut running, &history, || differences(&server, name), || report(&server, name));
                let streams = format!("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'of_{name}' AND active");
                wait_for("the stream to begin", || server.rows(&streams) == ["1"]);
                // The next run knows it when a checkpoint that began behind it does.
                let newest = || newest_checkpoint(Path::new(&state)).unwrap_or(0);
                let known = newest();
                wait_for("checkpoints", || newest() > known + 2);
            }
            let removes = round >= removed_from;
            let shards = 1 + random.below(2);
            let mut running = start(shards);
            let delay = 20 + random.below(600);
            history.push(format!("parallelism {shards}, killed after {delay} ms"));
            std::thread::sleep(Duration::from_millis(delay));
            change(&server, name, &mut random, round, removes);
            let of_half = if removes { round - removed_from } else { round };
            if of_half < server_kills {
                history.push("server killed".into());
                server.kill();
                server.again();
            }
            std::thread::sleep(Duration::from_millis(random.below(300)));
            let _ = running.0.kill();
            let (code, errors) = running.end();
            assert_eq!(code, None, "the job ended after {}\n{errors}", history.join("; "));
            change(&server, name, &mut random, round + 1000, removes);
        }
        let mut running = start(2);
        wait_for_copy("the copy to be the table", &mut running, &history, || differences(&server, name), || report(&server, name));
        change(&server, name, &mut random, 2000, true);
        wait_for_copy("the copy to follow the table", &mut running, &history, || differences(&server, name), || report(&server, name));
        // What checkpoints hold the server need not keep.
        let lag =
            format!("SELECT pg_current_wal_lsn() - confirmed_flush_lsn < 1000000 FROM pg_replication_slots WHERE slot_name = 'of_{name}'");
        wait_for("the log to be forgotten", || server.rows(&lag) == ["t"]);
    }
}

/// An adapter waited for ever to be told that the place in the log was safe, and the log was never forgotten.
#[test]
fn an_adapter_publishes_a_table_and_its_changes() {
    let Some(server) = Server::start("postgres-adapter") else { return };
    let scratch = Scratch::new("postgres-adapter");
    server.rows(
        "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL; \
         INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 1000) i",
    );
    let job = scratch.write(
        "job.sql",
        "SET 'execution.checkpointing.interval' = '50 ms';
         CREATE TABLE changes (id INT, v STRING) WITH ('connector' = 'stream', 'stream.changes' = 'all');
         CREATE TABLE copied (id INT, v STRING) WITH ('connector' = 'stream', 'stream.snapshot' = 'true');
         INSERT INTO copied SELECT id, v FROM changes;",
    );
    let served = crate::serve::server::Server::start(&scratch, &[&job, "--state-dir", &scratch.at("state"), "--parallelism", "1"]);
    served.wait_side("changes", "inlet");
    served.wait_side("copied", "outlet");
    let from = followed(&server, "t", "of_t", "").replace("' = '", "=").replace('\'', "");
    let adapter = || Background::start(tidemill().args(["adapter", "--from", &from, "--to", &served.stream("changes"), "--quiet"]));
    let same = |running: &mut Background| {
        let mut rows = server.rows("SELECT id || ' ' || v FROM t");
        rows.sort();
        wait_for("the stream to hold the table", || {
            if running.0.try_wait().expect("waiting for the adapter").is_some() {
                panic!("the adapter has ended: {:?}", running.end());
            }
            let found = served.get("/v1/streams/copied/rows?limit=100000");
            let line = |row: &serde_json::Value| format!("{} {}", row["id"], row["v"].as_str().unwrap_or("NULL"));
            let mut found: Vec<String> = found.as_array().expect("an array").iter().map(line).collect();
            found.sort();
            found == rows
        });
    };
    let mut running = adapter();
    same(&mut running);
    server.rows("UPDATE t SET v = v || '!' WHERE id % 3 = 0; DELETE FROM t WHERE id % 7 = 0; INSERT INTO t VALUES (0, 'zero')");
    same(&mut running);
    // What is acknowledged the database need not keep.
    let here = server.rows("SELECT pg_current_wal_lsn()").remove(0);
    server.rows("UPDATE t SET v = 'one' WHERE id = 1");
    same(&mut running);
    let forgotten = format!("SELECT confirmed_flush_lsn >= '{here}' FROM pg_replication_slots WHERE slot_name = 'of_t'");
    wait_for("the log to be forgotten", || server.rows(&forgotten) == ["t"]);
    // Killed and started again it goes on where it stood.
    running.0.kill().expect("killing the adapter");
    running.end();
    server.rows("DELETE FROM t WHERE id % 5 = 0; UPDATE t SET v = 'two' WHERE id = 2");
    let mut running = adapter();
    same(&mut running);
    server.rows("INSERT INTO t VALUES (5, 'five again')");
    same(&mut running);
    running.signal("INT");
    let (code, errors) = running.end();
    assert_eq!(code, Some(0), "{errors}");
}

#[test]
fn what_is_wrong_with_changes_is_said() {
    let Some(server) = Server::start("postgres-changes-wrong") else { return };
    let scratch = Scratch::new("postgres-changes-wrong");
    server.rows("CREATE TABLE t (id int PRIMARY KEY, v text, i inet); INSERT INTO t VALUES (1, 'a', '::1')");
    #[track_caller]
    fn fails(scratch: &Scratch, columns: &str, with: &str, words: &[&str]) {
        let sql = format!(
            "CREATE TABLE t ({columns}) WITH ({with});\nCREATE TABLE out ({}) WITH ('connector' = 'blackhole');\n\
             INSERT INTO out SELECT * FROM t;\n",
            columns.replace(", PRIMARY KEY (id) NOT ENFORCED", "")
        );
        let output = finish(tidemill().args(["run", &scratch.write("job.sql", sql), "--quiet"]));
        let said = text(&output);
        assert!(!output.status.success() && words.iter().all(|w| said.contains(w)), "{words:?}: {said}");
        assert!(!said.contains(PASSWORD) && !said.contains("wrong-secret"), "{said}");
    }
    let columns = "id INT, v STRING";
    let with = followed(&server, "t", "s", "");
    fails(&scratch, columns, &with, &["ALTER TABLE public.t REPLICA IDENTITY FULL", "changelog-mode"]);
    fails(&scratch, columns, &with.replace(PASSWORD, "wrong-secret"), &["password"]);
    fails(&scratch, columns, &with.replace("'table-name' = 't'", "'table-name' = 'nosuch'"), &["no table public.nosuch"]);
    fails(&scratch, columns, &with.replace("'slot.name' = 's'", "'slot.name' = 'S-1'"), &["slot.name"]);
    fails(&scratch, columns, &format!("{with}, 'changelog-mode' = 'upsert'"), &["PRIMARY KEY"]);
    server.rows("ALTER TABLE t REPLICA IDENTITY FULL");
    fails(&scratch, "id INT, w STRING", &with, &["no column \"w\"", "id, v, i"]);
    fails(&scratch, "id INT, i STRING", &with, &["'i'", "inet"]);
    fails(&scratch, "id STRING", &with, &["'id'"]);
    // TRUNCATE does not say what it deletes.
    let sql = format!(
        "CREATE TABLE t ({columns}) WITH ({with});\nCREATE TABLE out ({columns}) WITH ('connector' = 'print');\n\
         INSERT INTO out SELECT * FROM t;\n"
    );
    let mut running = Background::start(tidemill().args(["run", &scratch.write("job.sql", sql), "--quiet"]));
    // The slot is there before the first reading is.
    let (mut output, mut row) = (BufReader::new(running.0.stdout.take().expect("piped")), String::new());
    output.read_line(&mut row).expect("the output in UTF-8");
    assert!(row.ends_with("+I[1, a]\n"), "{row}");
    let active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 's' AND active";
    wait_for("the stream to begin", || server.rows(active) == ["1"]);
    server.rows("TRUNCATE t");
    let (code, errors) = running.end();
    assert!(code == Some(1) && errors.contains("TRUNCATE"), "{code:?} {errors}");
}

/// The log has nothing of it; the job says so and goes on.
#[test]
fn a_partition_that_is_emptied_is_told_of() {
    let Some(server) = Server::start("postgres-partitions") else { return };
    let scratch = Scratch::new("postgres-partitions");
    server.rows(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); \
         CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (10); CREATE TABLE high PARTITION OF t FOR VALUES FROM (10) TO (20); \
         ALTER TABLE low REPLICA IDENTITY FULL; ALTER TABLE high REPLICA IDENTITY FULL; ALTER TABLE t REPLICA IDENTITY FULL; \
         INSERT INTO t VALUES (1, 'a'), (11, 'b')",
    );
    let sql = format!(
        "CREATE TABLE t (id INT, v STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ({});\n\
         CREATE TABLE out (id INT, v STRING) WITH ('connector' = 'print');\nINSERT INTO out SELECT * FROM t;\n",
        followed(&server, "t", "s", "")
    );
    let mut running = Background::start(tidemill().args(["run", &scratch.write("job.sql", sql), "--quiet"]));
    let lines = |from: Box<dyn std::io::Read + Send>| {
        let (sender, lines) = channel();
        std::thread::spawn(move || BufReader::new(from).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        lines
    };
    let rows = lines(Box::new(running.0.stdout.take().expect("piped")));
    let notices = lines(Box::new(running.0.stderr.take().expect("piped")));
    let next = |of: &Receiver<String>, what: &str| {
        of.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{what}: {e}; {:?}", notices.try_iter().collect::<Vec<_>>()))
    };
    let mut read = [next(&rows, "a row"), next(&rows, "a row")];
    read.sort();
    assert!(read[0].ends_with("+I[1, a]") && read[1].ends_with("+I[11, b]"), "{read:?}");
    let active = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 's' AND active";
    wait_for("the stream to begin", || server.rows(active) == ["1"]);
    server.rows("TRUNCATE low");
    let told = std::iter::from_fn(|| Some(next(&notices, "a notice"))).find(|line| line.contains("partition"));
    assert!(told.as_ref().is_some_and(|line| line.contains("low was emptied by TRUNCATE")), "{told:?}");
    server.rows("INSERT INTO t VALUES (12, 'c')");
    assert!(next(&rows, "a row").ends_with("+I[12, c]"));
}
