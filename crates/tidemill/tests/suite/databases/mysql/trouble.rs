//! What a job has to bear with from a MariaDB: locks and deadlocks, too many connections, a disk that is full, tables that are
//! altered, accounts that want TLS.

use std::time::Duration;

use super::Server;
use crate::databases::altered::Altered;
use crate::databases::{certificates, run, runs};
use crate::failures::expect;
use crate::harness::{Scratch, fold, text, wait_for};
use crate::not_run::not_run;

/// Sessions that sleep in a statement.
const SLEEPING: &str = "SELECT id FROM information_schema.processlist WHERE state = 'User sleep'";

/// One server serves these one after the other.
#[test]
fn a_server_in_trouble() {
    let Some(mut server) = Server::start("mariadb-waits") else { return };
    locks(&server);
    deadlocks(&server);
    too_many_connections(&server);
    a_full_disk_is_said(&server);
    tables_are_altered(&server);
    // The last, since it starts the server anew.
    connections_are_encrypted(&mut server);
}

/// A job that updates both rows of table `locked`.
fn both(server: &Server, more: &str) -> String {
    format!(
        "CREATE TABLE locked (id BIGINT, v INT, PRIMARY KEY (id) NOT ENFORCED) {};\nINSERT INTO locked VALUES (1, 5), (2, 5);\n",
        server.with("locked", more)
    )
}

/// Runs a job while sessions sleep, which are ended in the middle.
fn runs_when_woken(server: &Server, scratch: &Scratch, sql: &str) {
    let output = std::thread::scope(|scope| {
        let job = scope.spawn(|| run(scratch, sql, &[]));
        std::thread::sleep(Duration::from_millis(1500));
        server.sql(SLEEPING).lines().for_each(|id| drop(server.sql(&format!("KILL {id}"))));
        job.join().expect("the job")
    });
    assert!(output.status.success(), "{}", text(&output));
}

/// Somebody has a row: the job's lock times out, and it tries again as often as it may.
fn locks(server: &Server) {
    let scratch = Scratch::new("mariadb-locks");
    server.sql(
        "SET GLOBAL innodb_lock_wait_timeout = 1; CREATE TABLE test2.locked (id BIGINT PRIMARY KEY, v INT); \
         INSERT INTO test2.locked VALUES (1, 0), (2, 0)",
    );
    let _other = server.beside(None, "BEGIN; UPDATE test2.locked SET v = 1 WHERE id = 2; SELECT SLEEP(600)");
    wait_for("the lock", || !server.sql(SLEEPING).is_empty());
    expect(&run(&scratch, &both(server, ", 'sink.max-retries' = '1'"), &[]), 1, &["error 1205", "sink.max-retries"]);
    runs_when_woken(server, &scratch, &both(server, ", 'sink.max-retries' = '1000'"));
    assert_eq!(server.sql("SELECT v FROM test2.locked"), "5\n5");
}

/// Two who wait for each other: one is thrown out, and the job's rows come to the table either way.
fn deadlocks(server: &Server) {
    let scratch = Scratch::new("mariadb-deadlock");
    server.sql("SET GLOBAL innodb_lock_wait_timeout = 50; UPDATE test2.locked SET v = 0");
    let update = |id: u32| format!("UPDATE test2.locked SET v = 1 WHERE id = {id}");
    let _other = server.beside(None, &format!("BEGIN; {}; SELECT SLEEP(5); {}; ROLLBACK", update(2), update(1)));
    wait_for("the lock", || !server.sql(SLEEPING).is_empty());
    runs(&scratch, &both(server, ""), &[]);
    assert_eq!(server.sql("SELECT v FROM test2.locked"), "5\n5");
}

/// What the server has no connections for is tried again, until there are some.
fn too_many_connections(server: &Server) {
    let scratch = Scratch::new("mariadb-connections");
    for host in ["127.0.0.1", "localhost"] {
        server.sql(&format!(
            "CREATE USER few@'{host}' IDENTIFIED BY 'geheim' WITH MAX_USER_CONNECTIONS 1; GRANT ALL ON test2.* TO few@'{host}'"
        ));
    }
    let _other = server.beside(Some("few"), "SELECT SLEEP(600)");
    wait_for("the only connection", || !server.sql(SLEEPING).is_empty());
    let job = |more: &str| both(server, more).replace("'username' = 'job'", "'username' = 'few'");
    let soon = run(&scratch, &job(", 'connection.max-retry-timeout' = '300ms'"), &[]);
    expect(&soon, 1, &["error 1226", "'sink.connections'", "connection.max-retry-timeout"]);
    runs_when_woken(server, &scratch, &job(""));
}

/// Played by a trigger, since disks of tests are not full: the server's own code for it. It is no row's fault.
fn a_full_disk_is_said(server: &Server) {
    let scratch = Scratch::new("mariadb-full");
    server.sql(
        "USE test2; CREATE TABLE full_up (id BIGINT); CREATE TRIGGER full_up BEFORE INSERT ON full_up FOR EACH ROW \
         SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1021, MESSAGE_TEXT = 'Disk full'",
    );
    let with = server.with("full_up", ", 'sink.on-error' = 'skip'");
    let output = run(&scratch, &format!("CREATE TABLE t (id BIGINT) {with};\nINSERT INTO t VALUES (1);\n"), &[]);
    expect(&output, 1, &["Disk full", "error 1021", "is the server's disk full?"]);
}

fn tables_are_altered(server: &Server) {
    let in_database = |sql: &str| server.sql(&format!("USE test2; {sql}"));
    let with = server.with("altered", "");
    Altered {
        options: with.trim_start_matches("WITH (").trim_end_matches(')'),
        run: &|sql| drop(in_database(sql)),
        number: &|sql| in_database(sql).parse::<i64>().expect(sql),
        change_type: ["MODIFY", ""],
    }
    .check();
}

fn connections_are_encrypted(server: &mut Server) {
    if let Err(why) = certificates(server.scratch.path()) {
        not_run(&format!("TLS to MariaDB (no certificate could be made): {why}"));
        return;
    }
    let files = [("--ssl-cert", "server.pem"), ("--ssl-key", "server.key")];
    let [cert, key] = files.map(|(option, name)| format!("{option}={}", server.scratch.at(name)));
    server.kill();
    server.again(&[&cert, &key]);
    server.sql(
        "CREATE VIEW test2.encrypted AS SELECT variable_value AS cipher FROM information_schema.session_status \
         WHERE variable_name = 'Ssl_cipher'",
    );
    let scratch = Scratch::new("mariadb-tls");
    let run = |host: &str, parameters: &str| {
        let with = server.with("encrypted", "").replace("127.0.0.1", host).replace("test2'", &format!("test2?{parameters}'"));
        let sql = format!(
            "CREATE TABLE encrypted (cipher STRING) {with};\n\
             CREATE TABLE shown (cipher STRING) WITH ('connector' = 'print', 'print-identifier' = 'shown');\n\
             INSERT INTO shown SELECT cipher FROM encrypted;\n"
        );
        run(&scratch, &sql, &["--parallelism", "1"])
    };
    let verified = |authority: &str| format!("ssl-mode=verify-full&ssl-ca={}", server.scratch.at(authority));
    let (right, wrong) = (verified("good-ca.pem"), verified("other-ca.pem"));
    let modes = [("127.0.0.1", "ssl-mode=disable", false), ("127.0.0.1", "ssl-mode=prefer", true), ("127.0.0.1", "ssl-mode=require", true)];
    for (host, parameters, encrypted) in modes.into_iter().chain([("localhost", right.as_str(), true)]) {
        let output = run(host, parameters);
        assert!(output.status.success(), "{parameters}: {}", text(&output));
        let found = fold(&String::from_utf8_lossy(&output.stdout), "shown");
        assert!(found.len() == 1 && found[0].is_empty() != encrypted, "{parameters}: {found:?}");
    }
    // Another authority, and a name that is not in the certificate.
    expect(&run("localhost", &wrong), 1, &["ertificate"]);
    expect(&run("127.0.0.1", &right), 1, &["ertificate"]);
    // An account that wants it.
    server.sql("ALTER USER job@'127.0.0.1' REQUIRE SSL; ALTER USER job@localhost REQUIRE SSL");
    expect(&run("127.0.0.1", "ssl-mode=disable"), 1, &["Access denied", "the server wants TLS"]);
    assert!(run("127.0.0.1", "ssl-mode=prefer").status.success());
}
