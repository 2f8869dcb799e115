//! Jobs that are killed at any moment and go on, and servers that are killed under them and started again:
//! the table is in the end that of one undisturbed run, row by row.

use std::time::{Duration, Instant};

use super::server::Server;
use crate::crash::Random;
use crate::databases::{large_and_small, same_rows, wanted};
use crate::harness::{Background, Scratch, finish, text, tidemill, wait_for};

/// What a job has to do.
#[derive(Clone, Copy)]
struct Load {
    rows: u64,
    rows_per_second: u64,
    /// Of the table of totals.
    keys: u64,
    /// Characters behind the number in the text of each event.
    padding: usize,
    interval_ms: u64,
    /// How long upserts wait for others.
    gathers: &'static str,
    /// Jobs and servers are killed within so long.
    delay_ms: u64,
}

/// Many checkpoints with little in each.
const SMALL: Load = Load { rows: 30_000, rows_per_second: 25_000, keys: 500, padding: 1, interval_ms: 30, gathers: "", delay_ms: 900 };
/// Some 20 MB between two checkpoints, of which each of two writers has more than the 8 MB for which it opens a transaction, and
/// batches of thousands of upserts.
const LARGE: Load = Load {
    rows: 60_000,
    rows_per_second: 50_000,
    keys: 20_000,
    padding: 1_000,
    interval_ms: 400,
    gathers: ", 'sink.buffer-flush.interval' = '100 ms'",
    delay_ms: 1_100,
};

/// Appends all rows to one table, and keeps totals by key in another, of which some are deleted again.
fn job(server: &Server, load: Load) -> String {
    let access = |table: &str| format!("{}, 'connection.max-retry-timeout' = '10 min'", server.options(table));
    let Load { rows, rows_per_second, keys, interval_ms, gathers, .. } = load;
    format!(
        "SET 'execution.checkpointing.interval' = '{interval_ms} ms';\n\
         CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{rows}',\n\
         'rows-per-second' = '{rows_per_second}', 'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{}');\n\
         CREATE TABLE events (id BIGINT, name STRING) WITH ({});\n\
         CREATE TABLE totals (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({}{gathers});\n\
         EXECUTE STATEMENT SET BEGIN\n\
         INSERT INTO events SELECT id, CONCAT('event ', CAST(id AS STRING), ' {}') FROM numbers;\n\
         INSERT INTO totals SELECT MOD(id, {keys}), COUNT(*), SUM(id) FROM numbers GROUP BY MOD(id, {keys})\n\
         HAVING COUNT(*) <= {} OR MOD(MOD(id, {keys}), 10) <> 3;\n\
         END;\n",
        rows - 1,
        access("events"),
        access("totals"),
        "x".repeat(load.padding),
        rows / keys / 2,
    )
}

/// Empty tables, as before the first run.
fn clear(server: &Server) {
    server.rows(
        "DROP TABLE IF EXISTS events, totals, tidemill_checkpoints; CREATE TABLE events (id bigint, name text); \
         CREATE TABLE totals (k bigint PRIMARY KEY, n bigint, total bigint)",
    );
}

/// Compares both tables with what they must hold.
fn check(server: &Server, load: Load, history: &[String]) {
    let Load { rows, keys, padding, .. } = load;
    let said = history.join("; ");
    let right = format!("bool_and(name = 'event ' || id || ' ' || repeat('x', {padding}))");
    let events = server.rows(&format!("SELECT count(*), count(DISTINCT id), min(id), max(id), {right} FROM events"));
    assert_eq!(events, [format!("{rows},{rows},0,{},t", rows - 1)], "after {said}");
    let expected: Vec<String> = (0..keys)
        .filter(|k| k % 10 != 3)
        .map(|k| format!("{k},{},{}", rows / keys, (k..rows).step_by(keys as usize).sum::<u64>()))
        .collect();
    same_rows("totals", &server.rows("SELECT k, n, total FROM totals ORDER BY k"), &expected, &said);
}

/// Never more rows than there are, and none twice, at whatever moment one looks.
fn nothing_twice(server: &Server, history: &[String]) {
    let Some(found) = server.try_rows("SELECT count(*) = count(DISTINCT id) FROM events") else { return };
    assert_eq!(found, ["t"], "rows are there twice after {}", history.join("; "));
}

/// `DATABASE_KILLS` says how often the job is killed, `DATABASE_SEED` when.
#[test]
fn the_job_is_killed() {
    let (kills_wanted, seed) = (wanted("DATABASE_KILLS", 8), wanted("DATABASE_SEED", 4711));
    let Some(server) = Server::start("postgres-job-killed") else { return };
    let mut random = Random(seed);
    let (mut kills, mut rounds) = (0, 0);
    for (large, more) in large_and_small(kills_wanted) {
        let (load, kills_wanted) = (if large { LARGE } else { SMALL }, kills + more);
        // The job may finish before it was killed often enough: then it begins anew.
        while kills < kills_wanted {
            rounds += 1;
            clear(&server);
            let scratch = Scratch::new("postgres-job-killed-round");
            let (job, state) = (scratch.write("job.sql", job(&server, load)), scratch.at("state"));
            let mut history = vec![format!("seed {seed}, round {rounds}, large: {large}")];
            loop {
                let shards = 1 + random.below(2);
                let mut command = tidemill();
                command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
                let mut running = Background::start(&mut command);
                if kills < kills_wanted {
                    let delay = 20 + random.below(load.delay_ms);
                    history.push(format!("parallelism {shards}, {delay} ms"));
                    std::thread::sleep(Duration::from_millis(delay));
                    let _ = running.0.kill();
                }
                match running.end() {
                    (None, _) => kills += 1,
                    (Some(0), _) => break,
                    (code, errors) => panic!("ended with {code:?} after {}\n{errors}", history.join("; ")),
                }
                nothing_twice(&server, &history);
            }
            check(&server, load, &history);
        }
    }
    println!("{kills} kills in {rounds} rounds");
}

/// `DATABASE_SERVER_KILLS` says how often the server is killed, `DATABASE_SEED` when. The job bears it.
#[test]
fn the_server_is_killed() {
    let (kills_wanted, seed) = (wanted("DATABASE_SERVER_KILLS", 3), wanted("DATABASE_SEED", 4711));
    let Some(mut server) = Server::start("postgres-server-killed") else { return };
    let mut random = Random(seed ^ 0x5eed);
    let (mut kills, mut rounds) = (0, 0);
    for (large, more) in large_and_small(kills_wanted) {
        let (load, kills_wanted) = (if large { LARGE } else { SMALL }, kills + more);
        while kills < kills_wanted {
            rounds += 1;
            clear(&server);
            let scratch = Scratch::new("postgres-server-killed-round");
            let (job, state) = (scratch.write("job.sql", job(&server, load)), scratch.at("state"));
            let mut history = vec![format!("seed {seed}, round {rounds}, large: {large}")];
            let mut command = tidemill();
            let shards = 1 + random.below(2);
            command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
            let mut running = Background::start(&mut command);
            let mut ended = false;
            while kills < kills_wanted && !ended {
                let delay = 50 + random.below(load.delay_ms);
                history.push(format!("server killed after {delay} ms"));
                std::thread::sleep(Duration::from_millis(delay));
                ended = running.0.try_wait().expect("waiting for the job").is_some();
                if !ended {
                    server.kill();
                    kills += 1;
                    std::thread::sleep(Duration::from_millis(random.below(300)));
                    server.again();
                    nothing_twice(&server, &history);
                }
            }
            wait_for("the job to end", || running.0.try_wait().expect("waiting for the job").is_some());
            let (code, errors) = running.end();
            assert_eq!(code, Some(0), "after {}\n{errors}", history.join("; "));
            check(&server, load, &history);
        }
    }
    println!("{kills} kills in {rounds} rounds");
}

/// A job that was asked to stop while its server was away waited out 'connection.max-retry-timeout', here ten minutes.
#[test]
fn a_job_is_stopped_while_the_server_is_away() {
    let Some(mut server) = Server::start("postgres-stopped") else { return };
    clear(&server);
    let scratch = Scratch::new("postgres-stopped-job");
    // Slow enough that it is in the middle when the server goes.
    let load = Load { rows_per_second: 8_000, ..SMALL };
    let (job, state) = (scratch.write("job.sql", job(&server, load)), scratch.at("state"));
    let mut command = tidemill();
    command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", "2"]);
    let mut running = Background::start(&mut command);
    wait_for("rows", || server.rows("SELECT count(*) > 0 FROM events") == ["t"]);
    server.kill();
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    running.signal("TERM");
    let (code, errors) = running.end();
    let took = asked.elapsed();
    // 5 s of patience, as much for a pause that had begun, and then some.
    assert!(code == Some(1) && took < Duration::from_secs(20), "{code:?} after {took:?}\n{errors}");
    let place = format!("postgresql://127.0.0.1:{}/postgres", server.port);
    assert!(errors.contains(&place) && errors.contains("the job is being stopped"), "{errors}");
    server.again();
    let output = finish(&mut command);
    assert!(output.status.success(), "{}", text(&output));
    check(&server, load, &["stopped while the server was away".to_string()]);
}

/// A batch that had read all of its rows did not hear that it was to stop: it went on trying while its server was away, here for ten
/// minutes, and stayed for as long as somebody else had a lock.
#[test]
fn a_batch_is_stopped_while_it_waits() {
    let Some(mut server) = Server::start("postgres-batch-stopped") else { return };
    server.rows("CREATE TABLE waited (id bigint PRIMARY KEY, v int); INSERT INTO waited VALUES (0, 0)");
    let scratch = Scratch::new("postgres-batch-stopped-job");
    let sql = format!(
        "CREATE TABLE waited (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({}, 'connection.max-retry-timeout' = '10 min');\n\
         INSERT INTO waited VALUES (0, 5);\n",
        server.options("waited")
    );
    let job = scratch.write("job.sql", sql);
    let held = "SELECT count(*) > 0 FROM pg_locks WHERE relation = 'waited'::regclass AND granted AND mode = 'RowExclusiveLock'";
    let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for away in [true, false] {
        let other = server.beside("BEGIN; UPDATE waited SET v = 1 WHERE id = 0; SELECT pg_sleep(600)");
        wait_for("the lock", || server.rows(held) == ["t"]);
        let mut running = Background::start(tidemill().args(["run", &job, "--quiet", "--set", "execution.runtime-mode=batch"]));
        wait_for("the job to wait", || server.rows(waits) == ["t"]);
        if away {
            server.kill();
            std::thread::sleep(Duration::from_millis(500));
        }
        let asked = Instant::now();
        running.signal("TERM");
        let (code, errors) = running.end();
        let took = asked.elapsed();
        // 10 s of patience, 3 s for the connection, and then some.
        assert!(code == Some(1) && took < Duration::from_secs(25), "away: {away}, {code:?} after {took:?}\n{errors}");
        let left = "INSERT INTO waited: stopped before the end; the table may have got rows already";
        assert!(errors.contains(left) && errors.contains("the job is being stopped"), "away: {away}\n{errors}");
        drop(other);
        if away {
            let place = format!("postgresql://127.0.0.1:{}/postgres", server.port);
            assert!(errors.contains(&place), "{errors}");
            server.again();
        }
    }
}
