//! Tables of MariaDB that are followed: a copy and sums of a table are what the table and its sums are, however often the
//! job and the server were killed while the table was changed.

use std::path::Path;
use std::time::Duration;

use super::copied::{Differences, count, counted, part, some, wait_for_copy};
use super::mysql::Server;
use super::wanted;
use crate::crash::Random;
use crate::harness::{Background, Scratch, finish, newest_checkpoint, text, tidemill, wait_for};

/// What the server needs so that changes can be read.
const LOGGED: &[&str] = &["--log-bin=binlog", "--binlog-format=ROW", "--server-id=1"];
/// Rows that are there at the beginning.
const ROWS: u64 = 20_000;
/// Every type; `e` and `l` are not text in UTF-8 in the log.
const TYPES: &str = "u BIGINT UNSIGNED, i1 TINYINT, i3 MEDIUMINT UNSIGNED, f FLOAT, d DOUBLE, n DECIMAL(20, 5), c CHAR(5), b BINARY(4), \
    t TEXT, y BLOB, da DATE, ti TIME(3), dt DATETIME(6), ts TIMESTAMP(3) NULL, yr YEAR, e ENUM('x', 'it''s'), s SET('p', 'q', 'r'), \
    l VARCHAR(20) CHARACTER SET latin1";
const COLUMNS: &str = "u DECIMAL(20, 0), i1 TINYINT, i3 INT, f FLOAT, d DOUBLE, n DECIMAL(20, 5), c STRING, b BYTES, t STRING, y BYTES, \
    da DATE, ti TIME, dt TIMESTAMP(6), ts TIMESTAMP_LTZ(3), yr INT, e STRING, s STRING, l STRING";
const NAMES: &str = "id, k, n0, u, i1, i3, f, d, n, c, b, t, y, da, ti, dt, ts, yr, e, s, l";
/// Two rows with the ends of the types, as values.
const VALUES: [&str; 2] = [
    "18446744073709551615, -128, 16777215, -1.5, 0.1, -123456789012345.67890, 'ab', 'x', 'ä€😀', x'00FF00', '0001-01-01', '23:59:59.999', \
     '9999-12-31 23:59:59.999999', '2037-12-31 23:59:59.999', 2155, 'it''s', 'p,r', 'é€'",
    "0, 127, 0, 3.25, -1e300, 0.00001, '', '', '', '', '9999-12-31', '00:00:00', '1000-01-01 00:00:00', '1970-01-02 00:00:01', 1901, 'x', \
     '', ''",
];

fn server(name: &str) -> Option<Server> {
    let mut server = Server::start(name)?;
    server.kill();
    server.again(LOGGED);
    for user in ["job@'127.0.0.1'", "job@localhost"] {
        server.sql(&format!("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {user}"));
    }
    Some(server)
}

/// The options of a table that is followed.
fn followed(server: &Server, table: &str, more: &str) -> String {
    format!(
        "'connector' = 'mysql-cdc', 'hostname' = '127.0.0.1', 'port' = '{}', 'username' = 'job', 'password' = 'geheim', \
         'database-name' = 'test2', 'table-name' = '{table}', 'scan.snapshot.fetch.size' = '500', \
         'connection.max-retry-timeout' = '10 min'{more}",
        server.port
    )
}

/// Changes some rows: new ones, other values, other keys, deletions, a transaction that is taken back, a large one.
fn change(server: &Server, random: &mut Random, round: u64) {
    let (k, from) = (random.below(50), random.below(ROWS));
    let values = VALUES[(round % 2) as usize];
    server.sql(&format!(
        "USE test2; INSERT INTO changing ({NAMES}) SELECT CONCAT('new {round} ', seq), seq % 50, seq, {values} FROM seq_1_to_200; \
         UPDATE changing SET n0 = n0 + 7 WHERE k = {k}; \
         UPDATE changing SET id = CONCAT('moved {round} ', id) WHERE n0 BETWEEN {from} AND {from} + 20; \
         DELETE FROM changing WHERE n0 BETWEEN {from} + 100 AND {from} + 130; \
         UPDATE changing SET k = (k + 1) % 50, t = NULL WHERE n0 % 97 = {round} % 97; \
         BEGIN; DELETE FROM changing; ROLLBACK"
    ));
    if round % 4 == 3 {
        server.sql(&format!("USE test2; UPDATE changing SET n0 = n0 + 1, l = 'all {round}'; FLUSH BINARY LOGS"));
    }
}

/// What is in the table and not in its copy, and the other way round; the same of the sums.
fn sides() -> [String; 4] {
    let (rows, copy) = (format!("SELECT {NAMES} FROM changing"), format!("SELECT {NAMES} FROM copied"));
    let (sums, summed) = ("SELECT k, COUNT(*) AS c, SUM(n0) AS n0 FROM changing GROUP BY k", "SELECT k, c, n0 FROM summed");
    [format!("{rows} EXCEPT {copy}"), format!("{copy} EXCEPT {rows}"), format!("{sums} EXCEPT {summed}"), format!("{summed} EXCEPT {sums}")]
}

/// What the server's client says; none if the server does not answer.
fn answer(server: &Server, sql: &str) -> Option<String> {
    let output = server.client(&format!("USE test2; {sql}"));
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How copy and sums differ from what they must be.
fn differences(server: &Server) -> Option<Differences> {
    counted(&answer(server, &count(&sides()))?, '\t')
}

/// What differs, and what the server is doing.
fn report(server: &Server, sides: &[String; 4]) -> String {
    let asked = [
        ("sessions", "SHOW FULL PROCESSLIST"),
        ("the log", "SHOW MASTER STATUS"),
        ("transactions", "SELECT trx_id, trx_mysql_thread_id, trx_state, trx_started, trx_query FROM information_schema.innodb_trx"),
        ("locks that are waited for", "SELECT * FROM information_schema.innodb_lock_waits"),
    ];
    let queries = some(sides).into_iter().chain(asked.map(|(title, sql)| (title, sql.to_string())));
    let lines = |text: String| text.lines().map(str::to_string).collect::<Vec<_>>();
    queries.map(|(title, sql)| part(title, answer(server, &sql).map(lines))).collect()
}

/// `DATABASE_KILLS` says how often the job is killed, `DATABASE_SERVER_KILLS` how often the server, `DATABASE_SEED` when.
#[test]
fn a_copy_is_the_table() {
    let (kills, server_kills, seed) = (wanted("DATABASE_KILLS", 8), wanted("DATABASE_SERVER_KILLS", 3), wanted("DATABASE_SEED", 63));
    let Some(mut server) = server("mariadb-changes") else { return };
    let mut random = Random(seed);
    let key = "id VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, k INT, n0 BIGINT";
    server.sql(&format!(
        "USE test2; CREATE TABLE changing ({key}, {TYPES}); CREATE TABLE copied ({key}, {TYPES}); \
         CREATE TABLE summed (k INT PRIMARY KEY, c BIGINT, n0 BIGINT); \
         INSERT INTO changing SELECT CONCAT('Row ', seq), seq % 50, seq, {} FROM seq_1_to_{ROWS}",
        VALUES[0]
    ));
    let scratch = Scratch::new("mariadb-changes-job");
    let columns = format!("id STRING, k INT, n0 BIGINT, {COLUMNS}, PRIMARY KEY (id) NOT ENFORCED");
    let more = ", 'connection.max-retry-timeout' = '10 min', 'sink.max-retries' = '50'";
    let job = format!(
        "SET 'execution.checkpointing.interval' = '30 ms';\n\
         CREATE TABLE changing ({columns}) WITH ({});\nCREATE TABLE copied ({columns}) {};\n\
         CREATE TABLE summed (k INT, c BIGINT, n0 BIGINT, PRIMARY KEY (k) NOT ENFORCED) {};\n\
         EXECUTE STATEMENT SET BEGIN\n\
         INSERT INTO copied SELECT * FROM changing;\n\
         INSERT INTO summed SELECT k, COUNT(*), SUM(n0) FROM changing GROUP BY k;\n\
         END;\n",
        followed(&server, "changing", ""),
        server.with("copied", more),
        server.with("summed", more),
    );
    let (path, state) = (scratch.write("job.sql", job), scratch.at("state"));
    let mut history = vec![format!("seed {seed}")];
    let start = |shards: u64| {
        let mut command = tidemill();
        command.args(["run", &path, "--quiet", "--state-dir", &state, "--parallelism", &shards.to_string()]);
        Background::start(&mut command)
    };
    for round in 0..kills {
        let shards = 1 + random.below(2);
        let mut running = start(shards);
        let delay = 20 + random.below(600);
        history.push(format!("parallelism {shards}, killed after {delay} ms"));
        std::thread::sleep(Duration::from_millis(delay));
        change(&server, &mut random, round);
        if round < server_kills {
            history.push("server killed".into());
            server.kill();
            server.again(LOGGED);
        }
        std::thread::sleep(Duration::from_millis(random.below(300)));
        let _ = running.0.kill();
        let (code, errors) = running.end();
        assert_eq!(code, None, "the job ended after {}\n{errors}", history.join("; "));
        change(&server, &mut random, round + 1000);
    }
    let mut running = start(2);
    wait_for_copy("the copy to be the table", &mut running, &history, || differences(&server), || report(&server, &sides()));
    // A column more makes no difference to those that are read.
    server.sql("ALTER TABLE test2.changing ADD COLUMN more INT FIRST");
    server.sql("UPDATE test2.changing SET n0 = n0 + 1 WHERE k = 3");
    wait_for_copy("the copy to follow the table", &mut running, &history, || differences(&server), || report(&server, &sides()));
}

/// Where the event that commits a transaction begins.
fn commit_at(log: &[u8], mut at: usize) -> usize {
    const XID_EVENT: u8 = 16;
    while log[at + 4] != XID_EVENT {
        let bytes = log[at + 9..at + 13].try_into().expect("four bytes");
        at += u32::from_le_bytes(bytes) as usize;
    }
    at
}

/// The server is killed while it writes a transaction to its log: the file ends within an event, and the transaction never was.
#[test]
fn a_log_that_a_crash_cut_off_is_gone_on_with() {
    let Some(mut server) = server("mariadb-changes-cut") else { return };
    server.sql(
        "USE test2; CREATE TABLE changing (id INT PRIMARY KEY, v INT); CREATE TABLE copied (id INT PRIMARY KEY, v INT); \
         INSERT INTO changing SELECT seq, 0 FROM seq_1_to_100",
    );
    let scratch = Scratch::new("mariadb-changes-cut-job");
    let columns = "id INT, v INT, PRIMARY KEY (id) NOT ENFORCED";
    let job = format!(
        "SET 'execution.checkpointing.interval' = '30 ms';\n\
         CREATE TABLE changing ({columns}) WITH ({});\nCREATE TABLE copied ({columns}) {};\n\
         INSERT INTO copied SELECT * FROM changing;\n",
        followed(&server, "changing", ""),
        server.with("copied", ", 'connection.max-retry-timeout' = '10 min', 'sink.max-retries' = '50'"),
    );
    let path = scratch.write("job.sql", job);
    let mut running = Background::start(tidemill().args(["run", &path, "--quiet", "--state-dir", &scratch.at("state")]));
    let (rows, copy, none) = ("SELECT id, v FROM changing", "SELECT id, v FROM copied", "SELECT 1 FROM copied WHERE FALSE");
    let sides = [format!("{rows} EXCEPT {copy}"), format!("{copy} EXCEPT {rows}"), none.to_string(), none.to_string()];
    let follows = |server: &Server, running: &mut Background| {
        let differences = || counted(&answer(server, &count(&sides))?, '\t');
        wait_for_copy("the copy to be the table", running, &[], differences, || report(server, &sides));
    };
    follows(&server, &mut running);
    for round in 0..=3 {
        let status = server.sql("SHOW MASTER STATUS");
        let (file, begin) = status.split_once('\t').expect("a file and a place");
        let begin = begin.split('\t').next().and_then(|at| at.parse().ok()).expect("a place");
        server.sql(&format!("UPDATE test2.changing SET v = v + 1 + {round}"));
        server.sql(&format!("UPDATE test2.changing SET v = v * 10 WHERE id <= 1 + {round}"));
        server.kill();
        // A transaction that has no end looks like the first of these without its own; it must not be taken for a second one. It
        // ends between two events at first, then within one.
        let mut log = std::fs::read(server.data(file)).expect("the log");
        let end = commit_at(&log, begin);
        log.extend_from_within(begin..end + 5 * round);
        std::fs::write(server.data(file), log).expect("the log with half a transaction more");
        server.again(LOGGED);
        server.sql(&format!("INSERT INTO test2.changing VALUES (1000 + {round}, {round})"));
        follows(&server, &mut running);
    }
}

/// The first reading goes on behind a label: labels are ordered by their texts here, and by their numbers in the table.
#[test]
fn a_reading_by_labels_goes_on() {
    let Some(server) = server("mariadb-changes-labels") else { return };
    let columns = "e ENUM('zulu', 'alpha', 'mike'), s SET('y', 'x'), n INT, v INT, PRIMARY KEY (e, s, n)";
    server.sql(&format!(
        "USE test2; CREATE TABLE labelled ({columns}); CREATE TABLE copied ({columns}); \
         INSERT INTO labelled SELECT ELT(1 + seq % 3, 'zulu', 'alpha', 'mike'), ELT(1 + seq % 4, '', 'x', 'y', 'x,y'), seq, 0 \
         FROM seq_1_to_60000"
    ));
    let scratch = Scratch::new("mariadb-changes-labels-job");
    let columns = "e STRING, s STRING, n INT, v INT, PRIMARY KEY (e, s, n) NOT ENFORCED";
    let job = format!(
        "SET 'execution.checkpointing.interval' = '30 ms';\n\
         CREATE TABLE labelled ({columns}) WITH ({});\nCREATE TABLE copied ({columns}) {};\n\
         INSERT INTO copied SELECT * FROM labelled;\n",
        followed(&server, "labelled", ""),
        // So that it takes a while.
        server.with("copied", ", 'sink.buffer-flush.max-rows' = '300'"),
    );
    let (path, state) = (scratch.write("job.sql", job), scratch.at("state"));
    let start = || Background::start(tidemill().args(["run", &path, "--quiet", "--state-dir", &state]));
    let newest = || newest_checkpoint(Path::new(&state)).unwrap_or(0);
    let mut history = Vec::new();
    for round in 0..4 {
        let (mut running, known) = (start(), newest());
        wait_for("checkpoints", || {
            let ended = running.0.try_wait().expect("waiting for the job").is_some();
            assert!(!ended, "round {round}: {}", running.end().1);
            newest() > known + 1
        });
        server.sql(&format!(
            "USE test2; UPDATE labelled SET v = v + 1 WHERE n % 5 = {round}; DELETE FROM labelled WHERE n % 701 = {round}; \
             UPDATE labelled SET e = 'mike' WHERE n % 703 = {round}"
        ));
        let _ = running.0.kill();
        let (code, errors) = running.end();
        history.push(format!("killed at checkpoint {}", newest()));
        assert_eq!(code, None, "{errors}");
    }
    let all = |table: &str| format!("SELECT e, s, n, v FROM {table}");
    let (rows, copy, none) = (all("labelled"), all("copied"), "SELECT 1 FROM copied WHERE FALSE");
    let sides = [format!("{rows} EXCEPT {copy}"), format!("{copy} EXCEPT {rows}"), none.to_string(), none.to_string()];
    let differences = || counted(&answer(&server, &count(&sides))?, '\t');
    wait_for_copy("the copy to be the table", &mut start(), &history, differences, || report(&server, &sides));
}

#[test]
fn what_is_wrong_with_changes_is_said() {
    let Some(mut server) = server("mariadb-changes-wrong") else { return };
    let scratch = Scratch::new("mariadb-changes-wrong-job");
    server.sql("USE test2; CREATE TABLE t (id INT PRIMARY KEY, v TEXT); INSERT INTO t VALUES (1, 'a')");
    server.sql("CREATE TABLE test2.m (id INT, v TEXT) ENGINE=MyISAM");
    let columns = "id INT, v STRING";
    let job = |with: &str, columns: &str| {
        scratch.write(
            "job.sql",
            format!(
                "CREATE TABLE t ({columns}) WITH ({with});\nCREATE TABLE out ({columns}) WITH ('connector' = 'blackhole');\n\
                 INSERT INTO out SELECT * FROM t;\n"
            ),
        )
    };
    let fails = |with: &str, columns: &str, words: &[&str]| {
        let output = finish(tidemill().args(["run", &job(with, columns), "--quiet"]));
        let said = text(&output);
        assert!(!output.status.success() && words.iter().all(|w| said.contains(w)), "{words:?}: {said}");
        assert!(!said.contains("geheim") && !said.contains("falsch"), "{said}");
    };
    let with = followed(&server, "t", "");
    fails(&with.replace("geheim", "falsch"), columns, &["Access denied"]);
    fails(&followed(&server, "nosuch", ""), columns, &["no table test2.nosuch"]);
    fails(&followed(&server, "m", ""), columns, &["MyISAM"]);
    fails(&followed(&server, "t", ", 'server-id' = 'x'"), columns, &["server-id"]);
    fails(&with, "id INT, w STRING", &["w"]);
    server.sql("SET GLOBAL binlog_row_image = MINIMAL");
    fails(&with, columns, &["binlog_row_image = FULL"]);
    server.sql("SET GLOBAL binlog_row_image = FULL");
    // TRUNCATE does not say what it deletes.
    let mut running = Background::start(tidemill().args(["run", &job(&with, columns), "--quiet"]));
    let streams = "SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Binlog Dump'";
    wait_for("the stream to begin", || server.sql(streams) == "1");
    server.sql("TRUNCATE test2.t");
    let (code, errors) = running.end();
    assert!(code == Some(1) && errors.contains("emptied"), "{code:?} {errors}");
    // Nor does DROP DATABASE name the tables that go with it; and what a foreign key takes with it is not logged at all.
    wait_for("the stream to end", || server.sql(streams) == "0");
    server.sql(
        "CREATE DATABASE gone; GRANT ALL ON gone.* TO job@'127.0.0.1'; GRANT ALL ON gone.* TO job@localhost; USE gone; \
         CREATE TABLE parent (id INT PRIMARY KEY); \
         CREATE TABLE t (id INT PRIMARY KEY, v TEXT, p INT, \
         CONSTRAINT of_parent FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE RESTRICT)",
    );
    let gone = with.replace("'test2'", "'gone'");
    let mut running = Background::start(tidemill().args(["run", &job(&gone, columns), "--quiet"]));
    wait_for("the stream to begin", || server.sql(streams) == "1");
    server.sql("DROP DATABASE gone");
    let (code, errors) = running.end();
    assert!(code == Some(1) && errors.contains("dropped"), "{code:?} {errors}");
    assert!(errors.contains("'of_parent' (ON DELETE CASCADE) when rows of 'parent' change"), "{errors}");
    server.kill();
    server.again(&[]);
    fails(&with, columns, &["binary log is off"]);
}
