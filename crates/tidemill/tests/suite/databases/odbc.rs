//! Jobs over ODBC: Debian's drivers against the PostgreSQL and the MariaDB that the tests start, and a driver manager that
//! is not there.
//!
//! Needed are the packages `unixodbc`, `odbc-postgresql` and `odbc-mariadb`; what is missing is said, and its tests do not
//! run. Elsewhere than where Debian has them, `ODBC_DRIVERS` names the drivers' directory and `TIDEMILL_ODBC_LIBRARY` the
//! manager's library.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::examples::Database;
use super::postgres::server as postgres;
use super::{csv, installed, missing, mysql, run, runs, same_rows, types, wanted};
use crate::crash::Random;
use crate::harness::{Background, Scratch, finish, text, tidemill};

const LIBRARY_VARIABLE: &str = "TIDEMILL_ODBC_LIBRARY";

/// Files in the directories of libraries, or in one of theirs.
fn in_libraries(below: &str, file: &str) -> Option<PathBuf> {
    let triplets = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let roots = triplets.chain(["/usr/lib".into(), "/usr/lib64".into()]);
    roots.map(|root: PathBuf| root.join(below).join(file)).find(|path| path.is_file())
}

/// A driver's library, if it and the manager are there; what is missing is said.
fn driver(file: &str, package: &str) -> Option<PathBuf> {
    let manager = || std::env::var_os(LIBRARY_VARIABLE).is_some() || in_libraries("", "libodbc.so.2").is_some();
    let driver = || match std::env::var_os("ODBC_DRIVERS") {
        Some(directory) => Some(Path::new(&directory).join(file)).filter(|path| path.is_file()),
        None => in_libraries("odbc", file),
    };
    let there = installed("unixodbc", manager) && installed(package, || driver().is_some());
    let found = driver().filter(|_| there);
    if found.is_none() {
        missing("ODBC", &format!("unixodbc {package}"));
    }
    found
}

/// A database that is reached by a driver.
struct Store<'a> {
    /// The connection string, without the login.
    string: String,
    user: &'static str,
    password: &'static str,
    /// Rows of a statement that goes another way, with commas between the columns.
    rows: &'a dyn Fn(&str) -> Vec<String>,
}

impl Store<'_> {
    fn with(&self, table: &str, more: &str) -> String {
        format!(
            "WITH ('connector' = 'jdbc', 'url' = 'jdbc:odbc:{}', 'table-name' = '{table}', 'username' = '{}', 'password' = '{}'{more})",
            self.string, self.user, self.password
        )
    }
}

#[test]
fn without_the_manager_it_is_said() {
    let scratch = Scratch::new("odbc-missing");
    let sql = "CREATE TABLE t (id BIGINT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:odbc:DSN=none;PWD=geheim', 'table-name' = 't');
         CREATE TABLE s (id BIGINT) WITH ('connector' = 'print');
         INSERT INTO s SELECT id FROM t;";
    let missing = scratch.at("libodbc.so.2");
    let output = finish(tidemill().args(["run", &scratch.write("job.sql", sql), "--quiet"]).env(LIBRARY_VARIABLE, &missing));
    let said = text(&output);
    assert!(!output.status.success() && said.contains("install unixodbc") && said.contains(&missing), "{said}");
    assert!(said.contains("odbc:DSN=none") && !said.contains("geheim"), "{said}");
}

#[test]
fn jobs_over_postgres() {
    let Some(driver) = driver("psqlodbcw.so", "odbc-postgresql") else { return };
    let Some(server) = postgres::Server::start("odbc-postgres") else { return };
    let place = format!("Servername=127.0.0.1;Port={};Database=postgres;SSLmode=disable", server.port);
    let string = format!("Driver={};{place}", driver.display());
    let store = Store { string, user: "postgres", password: postgres::PASSWORD, rows: &|sql| server.rows(sql) };
    all(&store);
    values_of_postgres(&store);
}

#[test]
fn jobs_over_mariadb() {
    let Some(driver) = driver("libmaodbc.so", "odbc-mariadb") else { return };
    let Some(server) = mysql::shared() else { return };
    server.sql(
        "CREATE DATABASE IF NOT EXISTS odbc CHARACTER SET utf8mb4; GRANT ALL ON odbc.* TO job@'127.0.0.1'; \
         GRANT ALL ON odbc.* TO job@localhost",
    );
    let string = format!("Driver={};Server=127.0.0.1;Port={};Database=odbc", driver.display(), server.port);
    let rows = |sql: &str| server.sql(&format!("USE odbc; {sql}")).lines().map(|line| line.replace('\t', ",")).collect::<Vec<_>>();
    let store = Store { string, user: "job", password: "geheim", rows: &rows };
    all(&store);
    another_unique_index(&store);
}

/// What every database can do, one after the other over one server.
fn all(store: &Store<'_>) {
    the_examples_run(store);
    every_type_comes_back(store);
    long_texts_come_back(store);
    a_changelog_becomes_a_table(store, "counted", ", 'sink.create-table' = 'true'");
    rows_are_looked_up(store);
    refused_rows_are_passed_over(store);
    what_is_wrong_is_said(store);
    killed_jobs(store);
}

fn the_examples_run(store: &Store<'_>) {
    Database {
        defines: vec![
            format!("URL=jdbc:odbc:{}", store.string),
            format!("USERNAME={}", store.user),
            format!("PASSWORD={}", store.password),
        ],
        number: &|sql| (store.rows)(sql)[0].parse::<i64>().expect(sql),
        run: &|sql| drop((store.rows)(sql)),
    }
    .check();
}

fn every_type_comes_back(store: &Store<'_>) {
    // More rows than a block of results has.
    types::check(&Scratch::new("odbc-types"), &store.with("types", ", 'sink.create-table' = 'true'"), 1500);
}

fn long_texts_come_back(store: &Store<'_>) {
    let mut lines = String::new();
    for id in 0..60 {
        let _ = writeln!(lines, "{id},{},x{id}", "ä😀".repeat(id * 70));
    }
    let _ = writeln!(lines, "60,{},", "y".repeat(300_000));
    let with = store.with("long_texts", ", 'sink.create-table' = 'true'");
    types::check_lines(&Scratch::new("odbc-long"), "id INT, s STRING, t STRING", &lines, &with);
}

/// Sums by key that come, change, and go again.
fn a_changelog_becomes_a_table(store: &Store<'_>, table: &str, more: &str) {
    let scratch = Scratch::new("odbc-upsert");
    let mut random = Random(7);
    let (mut lines, mut counts, mut last) = (String::new(), vec![0u64; 600], vec![0u64; 600]);
    for n in 0..6_000u64 {
        let key = random.below(600);
        counts[key as usize] += 1;
        last[key as usize] = n;
        let _ = writeln!(lines, "{key},{n}");
    }
    let job = format!(
        "{}CREATE TABLE sink (k BIGINT, c BIGINT, m BIGINT, PRIMARY KEY (k) NOT ENFORCED) {};\n\
         INSERT INTO sink SELECT k, COUNT(*), MAX(n) FROM source GROUP BY k HAVING COUNT(*) <= 10;",
        csv(&scratch, "k BIGINT, n BIGINT", &lines),
        store.with(table, more)
    );
    runs(&scratch, &job, &["--parallelism", "2", "--set", "execution.runtime-mode=streaming"]);
    let kept = (0..600).filter(|k| (1..=10).contains(&counts[*k]));
    let expect: Vec<String> = kept.map(|k| format!("{k},{},{}", counts[k], last[k])).collect();
    assert_eq!((store.rows)(&format!("SELECT k, c, m FROM {table} ORDER BY k")), expect, "{table}");
}

/// A duplicate in it is no row to be updated.
fn another_unique_index(store: &Store<'_>) {
    (store.rows)("CREATE TABLE other_unique (k BIGINT PRIMARY KEY, c BIGINT NOT NULL, m BIGINT, UNIQUE (m))");
    a_changelog_becomes_a_table(store, "other_unique", "");
    (store.rows)("CREATE TABLE keyless (k BIGINT, c BIGINT, m BIGINT)");
    let scratch = Scratch::new("odbc-keyless");
    let table = format!("CREATE TABLE sink (k BIGINT, c BIGINT, PRIMARY KEY (k) NOT ENFORCED) {};", store.with("keyless", ""));
    let output = run(&scratch, &format!("{table}\nINSERT INTO sink VALUES (1, 2);"), &[]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("ADD UNIQUE"), "{said}");
}

fn rows_are_looked_up(store: &Store<'_>) {
    let scratch = Scratch::new("odbc-lookup");
    (store.rows)("CREATE TABLE names (id INT PRIMARY KEY, area VARCHAR(10), name VARCHAR(20))");
    let names: Vec<String> = (0..400).step_by(2).map(|n| format!("({n}, 'a{}', 'name {n}')", n % 4)).collect();
    (store.rows)(&format!("INSERT INTO names VALUES {}", names.join(", ")));
    for (on, step) in [("n.id = e.id", 2), ("n.id = e.id AND n.area = e.area", 4), ("n.id = e.id + 300000000", 400)] {
        let job = format!(
            "CREATE TABLE asked (id BIGINT, pt AS PROCTIME(), area AS 'a0')\n\
             WITH ('connector' = 'datagen', 'number-of-rows' = '399', 'rows-per-second' = '0',\n\
             'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '399');\n\
             CREATE TABLE names (id BIGINT, area STRING, name STRING) {};\n\
             CREATE TABLE shown (id BIGINT, name STRING) WITH ('connector' = 'print');\n\
             INSERT INTO shown SELECT e.id, n.name FROM asked AS e JOIN names FOR SYSTEM_TIME AS OF e.pt AS n ON {on};\n",
            store.with("names", "")
        );
        let found = runs(&scratch, &job, &["--parallelism", "1"]);
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        let mut expect: Vec<String> = (1..400).filter(|n| n % step == 0).map(|n| format!("+I[{n}, name {n}]")).collect();
        expect.sort_unstable();
        assert_eq!(found, expect, "{on}");
    }
}

fn refused_rows_are_passed_over(store: &Store<'_>) {
    let scratch = Scratch::new("odbc-refused");
    let (dead, state) = (scratch.at("dead.jsonl"), scratch.at("state"));
    (store.rows)("CREATE TABLE refused (id INT, name VARCHAR(6) UNIQUE, day DATE)");
    let job = format!(
        "CREATE TABLE t (id BIGINT, name STRING, `day` DATE) {};
         INSERT INTO t VALUES (1, 'a', DATE '2024-01-01'), (2, 'b', NULL), (3, 'a', NULL), (4, 'd', NULL), (5, 'too long', NULL),
           (3000000000, 'g', NULL), (6, 'f', NULL);",
        store.with("refused", &format!(", 'sink.on-error' = 'dead-letter', 'sink.dead-letter' = '{dead}'"))
    );
    for (more, ids) in [(&["--parallelism", "1", "--state-dir", &state][..], "1,2,4,6"), (&["--parallelism", "1"][..], "1,2,4,6")] {
        (store.rows)("DELETE FROM refused");
        runs(&scratch, &job, more);
        assert_eq!((store.rows)("SELECT id FROM refused ORDER BY id").join(","), ids);
    }
    let letters = std::fs::read_to_string(&dead).expect("dead letters");
    let refused = |id: u64| letters.contains(&format!("\"id\":{id},"));
    assert!(refused(3) && refused(5) && refused(3_000_000_000) && !refused(1), "{letters}");
    assert!(letters.contains("column 'id'") && letters.contains("3000000000"), "{letters}");
}

fn what_is_wrong_is_said(store: &Store<'_>) {
    let scratch = Scratch::new("odbc-wrong");
    (store.rows)("CREATE TABLE wrong (id INT PRIMARY KEY, s VARCHAR(10), d DECIMAL(4, 1))");
    let fails = |columns: &str, with: String, words: &[&str]| {
        let job = format!("CREATE TABLE t ({columns}) {with};\nINSERT INTO t VALUES (1, '2', 1.25);");
        let output = run(&scratch, &job, &[]);
        let said = text(&output);
        assert!(!output.status.success() && words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        assert!(!said.contains(store.password) && !said.contains("falsch"), "{said}");
    };
    let good = "id INT, s STRING, d DECIMAL(10, 2)";
    fails(good, store.with("wrong", "").replace(store.password, "falsch"), &["SQLSTATE", "connecting"]);
    fails(good, store.with("nowhere", ""), &["sink.create-table"]);
    fails(good, store.with("wrong", ""), &["column 'd'", "1.25", "more digits"]);
    fails("id INT, x STRING, d DECIMAL(10, 2)", store.with("wrong", ""), &["no column 'x'"]);
    fails("id INT, s STRING, d DOUBLE", store.with("wrong", ""), &["column 'd'", "cast it"]);
    let string = "Driver=/nowhere/libmaodbc.so;Server=127.0.0.1";
    fails(good, store.with("wrong", "").replace(&store.string, string), &["odbcinst"]);
    let refused = store.with("wrong", ", 'connection.max-retry-timeout' = '100ms'").replace("Port=", "Port=1;Unused=");
    fails(good, refused, &["connection.max-retry-timeout"]);
}

/// What is appended is there once, what is upserted is what the last row of each key says.
fn killed_jobs(store: &Store<'_>) {
    let (kills, seed) = (wanted("DATABASE_KILLS", 4), wanted("DATABASE_SEED", 99));
    let scratch = Scratch::new("odbc-kills");
    let mut random = Random(seed);
    let mut lines = String::new();
    let (mut counts, mut last) = (vec![0u64; 200], vec![0u64; 200]);
    for n in 0..60_000u64 {
        let k = random.below(200);
        counts[k as usize] += 1;
        last[k as usize] = n;
        let _ = writeln!(lines, "{n},{k}");
    }
    let expect: Vec<String> = (0..200).map(|k| format!("{k},{},{}", counts[k], last[k])).collect();
    let create = ", 'sink.create-table' = 'true', 'sink.max-retries' = '50'";
    let job = format!(
        "{}CREATE TABLE appended (n BIGINT, k BIGINT) {};\n\
         CREATE TABLE latest (k BIGINT, c BIGINT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) {};\n\
         INSERT INTO appended SELECT n, k FROM source;\nINSERT INTO latest SELECT k, COUNT(*), MAX(n) FROM source GROUP BY k;",
        csv(&scratch, "n BIGINT, k BIGINT", &lines),
        store.with("appended", create),
        store.with("latest", create),
    );
    let path = scratch.write("job.sql", job);
    let state = scratch.at("state");
    let mut history = vec![format!("seed {seed}")];
    loop {
        let mut command = tidemill();
        command.args(["run", &path, "--quiet", "--state-dir", &state, "--set", "execution.runtime-mode=streaming"]);
        command.args(["--set", "execution.checkpointing.interval=20ms", "--set", "block.size=100", "--parallelism", "1"]);
        if history.len() as u64 > kills {
            let output = finish(&mut command);
            assert!(output.status.success(), "after {}\n{}", history.join("; "), text(&output));
            break;
        }
        let mut running = Background::start(&mut command);
        let delay = 100 + random.below(500);
        history.push(format!("killed after {delay} ms"));
        std::thread::sleep(Duration::from_millis(delay));
        let _ = running.0.kill();
        match running.end() {
            (None, _) => {}
            (Some(0), _) => break,
            (code, errors) => panic!("ended with {code:?} after {}\n{errors}", history.join("; ")),
        }
    }
    let appended: Vec<String> = lines.lines().map(str::to_string).collect();
    same_rows("appended", &(store.rows)("SELECT n, k FROM appended ORDER BY n"), &appended, &history.join("; "));
    same_rows("latest", &(store.rows)("SELECT k, c, n FROM latest ORDER BY k"), &expect, &history.join("; "));
}

/// What this driver would change, or has no type of its own for.
fn values_of_postgres(store: &Store<'_>) {
    let scratch = Scratch::new("odbc-postgres-values");
    let types = "id int PRIMARY KEY, u uuid, js jsonb, n numeric, f real, g double precision, b boolean";
    (store.rows)(&format!("CREATE TABLE odd_in ({types}); CREATE TABLE odd_out ({types})"));
    (store.rows)(
        "INSERT INTO odd_in VALUES (1, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{\"a\": [1, 2.50, null]}', 12345678901234567890.123456789, \
         'NaN', '-Infinity', true), (2, NULL, NULL, NULL, '-0', 'NaN', false)",
    );
    let columns = "id INT, u STRING, js STRING, n DECIMAL(38, 9), f FLOAT, g DOUBLE, b BOOLEAN";
    for key in ["", ", PRIMARY KEY (id) NOT ENFORCED"] {
        (store.rows)("TRUNCATE odd_out");
        let job = format!(
            "CREATE TABLE odd_in ({columns}) {};\nCREATE TABLE odd_out ({columns}{key}) {};\nINSERT INTO odd_out SELECT * FROM odd_in;",
            store.with("odd_in", ""),
            store.with("odd_out", "")
        );
        runs(&scratch, &job, &["--parallelism", "1"]);
        let rows = |table: &str| (store.rows)(&format!("SELECT whole FROM {table} whole ORDER BY id"));
        assert_eq!(rows("odd_out"), rows("odd_in"));
    }
    (store.rows)("CREATE TABLE far (id int, d date, s timestamp); INSERT INTO far VALUES (1, '5874897-12-31', NULL)");
    let job = format!(
        "CREATE TABLE far (id INT, d DATE, s TIMESTAMP(6)) {};\nCREATE TABLE o (id INT, d DATE, s TIMESTAMP(6)) WITH ('connector' = 'print');\n\
         INSERT INTO o SELECT * FROM far;",
        store.with("far", "")
    );
    for (update, column) in [("SELECT 1", "column 'd'"), ("UPDATE far SET d = NULL, s = '294246-12-31'", "column 's'")] {
        (store.rows)(update);
        let output = run(&scratch, &job, &[]);
        assert!(!output.status.success() && text(&output).contains(column), "{}", text(&output));
    }
}
