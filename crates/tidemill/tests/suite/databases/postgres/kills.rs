//! Jobs that are killed at any moment and go on, and servers that are killed under them and started again:
//! the table is in the end that of one undisturbed run, row by row.

use std::time::Duration;

use super::server::Server;
use crate::crash::Random;
use crate::databases::wanted;
use crate::harness::{Background, Scratch, tidemill, wait_for};

/// Rows of a round.
const ROWS: u64 = 30_000;
/// Keys of the table of totals.
const KEYS: u64 = 500;

/// Appends all rows to one table, and keeps totals by key in another, of which some are deleted again.
fn job(server: &Server) -> String {
    let access = |table: &str| format!("{}, 'connection.max-retry-timeout' = '10 min'", server.options(table));
    format!(
        "SET 'execution.checkpointing.interval' = '30 ms';\n\
         CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '{ROWS}', 'rows-per-second' = '25000',\n\
         'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{}');\n\
         CREATE TABLE events (id BIGINT, name STRING) WITH ({});\n\
         CREATE TABLE totals (k BIGINT, n BIGINT, total BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ({});\n\
         EXECUTE STATEMENT SET BEGIN\n\
         INSERT INTO events SELECT id, CONCAT('event ', CAST(id AS STRING)) FROM numbers;\n\
         INSERT INTO totals SELECT MOD(id, {KEYS}), COUNT(*), SUM(id) FROM numbers GROUP BY MOD(id, {KEYS})\n\
         HAVING COUNT(*) <= {} OR MOD(MOD(id, {KEYS}), 10) <> 3;\n\
         END;\n",
        ROWS - 1,
        access("events"),
        access("totals"),
        ROWS / KEYS / 2,
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
fn check(server: &Server, history: &[String]) {
    let said = || history.join("; ");
    let events = server.rows("SELECT count(*), count(DISTINCT id), min(id), max(id), bool_and(name = 'event ' || id) FROM events");
    assert_eq!(events, [format!("{ROWS},{ROWS},0,{},t", ROWS - 1)], "after {}", said());
    let expected: Vec<String> = (0..KEYS)
        .filter(|k| k % 10 != 3)
        .map(|k| format!("{k},{},{}", ROWS / KEYS, (k..ROWS).step_by(KEYS as usize).sum::<u64>()))
        .collect();
    assert_eq!(server.rows("SELECT k, n, total FROM totals ORDER BY k"), expected, "after {}", said());
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
    // The job may finish before it was killed often enough: then it begins anew.
    while kills < kills_wanted {
        rounds += 1;
        clear(&server);
        let scratch = Scratch::new("postgres-job-killed-round");
        let (job, state) = (scratch.write("job.sql", job(&server)), scratch.at("state"));
        let mut history = vec![format!("seed {seed}, round {rounds}")];
        loop {
            let shards = 1 + random.below(2);
            let mut command = tidemill();
            command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
            let mut running = Background::start(&mut command);
            if kills < kills_wanted {
                let delay = 20 + random.below(900);
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
        check(&server, &history);
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
    while kills < kills_wanted {
        rounds += 1;
        clear(&server);
        let scratch = Scratch::new("postgres-server-killed-round");
        let (job, state) = (scratch.write("job.sql", job(&server)), scratch.at("state"));
        let mut history = vec![format!("seed {seed}, round {rounds}")];
        let mut command = tidemill();
        let shards = 1 + random.below(2);
        command.args(["run", &job, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
        let mut running = Background::start(&mut command);
        let mut ended = false;
        while kills < kills_wanted && !ended {
            let delay = 50 + random.below(900);
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
        check(&server, &history);
    }
    println!("{kills} kills in {rounds} rounds");
}
