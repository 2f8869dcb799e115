//! A server that lets jobs wait: for a lock that somebody else has, and because it stands still.

use std::time::Duration;

use super::server::Server;
use super::{numbers, run};
use crate::failures::expect;
use crate::harness::{Background, PATIENCE, Scratch, tidemill, wait_for};

/// A job stayed until a lock was gone when another of its tables had failed: its statement was waited for, and what had gone wrong was
/// not said.
pub fn a_failed_job_leaves_statements_that_wait(server: &Server) {
    let scratch = Scratch::new("postgres-left");
    // The row of the other table is refused when the first one's statement waits: no fault of a row's, so it is not tried again.
    server.rows(
        "CREATE TABLE waited (id bigint PRIMARY KEY, v int); INSERT INTO waited VALUES (0, 0); CREATE TABLE refusing (id bigint); \
         CREATE FUNCTION refusing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM pg_sleep(2); RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$; \
         CREATE TRIGGER refusing BEFORE INSERT ON refusing FOR EACH ROW EXECUTE FUNCTION refusing()",
    );
    let locked_s = 2 * PATIENCE.as_secs();
    let other = server.beside(&format!("BEGIN; UPDATE waited SET v = 1 WHERE id = 0; SELECT pg_sleep({locked_s}); ROLLBACK"));
    let held = "SELECT count(*) FROM pg_locks WHERE relation = 'waited'::regclass AND granted AND mode = 'RowExclusiveLock'";
    wait_for("the lock", || server.rows(held) != ["0"]);
    // Without an end, so that it is no checkpoint that waits.
    let sql = format!(
        "CREATE TABLE numbers (id BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '500',\n\
         'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '1000000000');\n\
         CREATE TABLE waited (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED) WITH ({});\n\
         CREATE TABLE refusing (id BIGINT) WITH ({});\n\
         EXECUTE STATEMENT SET BEGIN\n\
         INSERT INTO waited SELECT id, 5 FROM numbers;\nINSERT INTO refusing SELECT id FROM numbers;\nEND;\n",
        server.options("waited"),
        server.options("refusing")
    );
    let output = run(&scratch, &sql, &["--parallelism", "1", "--set", "execution.runtime-mode=streaming"]);
    expect(&output, 1, &["53100", "could not extend file"]);
    let theirs = format!("query LIKE '%pg_sleep({locked_s})%' AND pid <> pg_backend_pid()");
    server.rows(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {theirs}"));
    drop(other);
    // What was left waiting gets the lock, and finds that nobody is there to commit it.
    let at_it = "query LIKE '%\"waited\"%' AND pid <> pg_backend_pid()";
    wait_for("the session to end", || server.rows(&format!("SELECT count(*) FROM pg_stat_activity WHERE {at_it}")) == ["0"]);
    assert_eq!(server.rows("SELECT id, v FROM waited"), ["0,0"]);
}

/// Rows pour in while the server stands still: they wait at their source, not in memory.
pub fn a_server_that_stands_still_holds_the_job_back(server: &Server) {
    /// Rows of a kilobyte each: for all of them there is no room below the bound.
    const ROWS: u64 = 800_000;
    const PADDING: usize = 1_000;
    const MEMORY_MAX: u64 = 500 << 20;
    for (key, theirs, more) in [
        ("", "", ""),
        // Without a bound of its own a batch may have 256 MB.
        (", PRIMARY KEY (id) NOT ENFORCED", " PRIMARY KEY", ", 'sink.buffer-flush.max-bytes' = '32 mb'"),
    ] {
        server.rows(&format!("CREATE TABLE poured (id bigint{theirs}, name text)"));
        let scratch = Scratch::new("postgres-still");
        let sql = format!(
            "{}CREATE TABLE poured (id BIGINT, name STRING{key}) WITH ({}{more});\n\
             INSERT INTO poured SELECT id, CONCAT(CAST(id AS STRING), ' {}') FROM numbers;\n",
            numbers(ROWS),
            server.options("poured"),
            "x".repeat(PADDING)
        );
        let (job, metrics) = (scratch.write("job.sql", sql), scratch.at("metrics.json"));
        let mut command = tidemill();
        command.args(["run", &job, "--quiet", "--metrics", &metrics, "--parallelism", "1", "--set", "execution.runtime-mode=streaming"]);
        let mut running = Background::start(&mut command);
        wait_for("rows", || server.rows("SELECT count(*) > 0 FROM poured") == ["t"]);
        server.stand_still();
        std::thread::sleep(Duration::from_secs(5));
        server.go_on();
        let (code, errors) = running.end();
        assert_eq!(code, Some(0), "{key}: {errors}");
        let right = format!("bool_and(name = id::text || ' ' || repeat('x', {PADDING}))");
        let found = server.rows(&format!("SELECT count(*), count(DISTINCT id), min(id), max(id), {right} FROM poured"));
        assert_eq!(found, [format!("{ROWS},{ROWS},0,{},t", ROWS - 1)], "{key}");
        let summary = std::fs::read_to_string(&metrics).expect("the metrics");
        let summary: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        let peak = summary["peak_memory_bytes"].as_u64().expect("a number");
        assert!(peak < MEMORY_MAX, "{key}: {} MB", peak >> 20);
        server.rows("DROP TABLE poured");
    }
}
