//! Jobs that read and write databases.
//!
//! - [`examples`]: the jobs of `examples/databases`, over each of them
//! - [`sqlite`]: in files, without a server
//! - [`duckdb`]: the same, with a library that npm has
//! - [`odbc`]: over PostgreSQL and MariaDB by their ODBC drivers, packages of Debian
//! - [`altered`]: tables that are altered under a job, over servers
//! - [`polled`]: tables that grow and are asked again and again, over servers
//! - [`types`]: values of every type, there and back, over servers
//! - [`copied`]: how copies of tables that are followed are waited for
//! - [`postgres`], [`mysql`], [`binlog`]: against real servers, those of Debian's packages `postgresql` and
//!   `mariadb-server`; where they are missing the tests say that they did not run. With `DATABASE_INSTALL=1`,
//!   as `make test` has it, root has them installed first.
//!
//! `DATABASE_KILLS` and `DATABASE_SERVER_KILLS` say how often jobs and servers are killed, `DATABASE_SEED` when.

mod altered;
mod binlog;
mod copied;
mod duckdb;
mod examples;
mod mysql;
mod odbc;
mod polled;
mod postgres;
mod sqlite;
mod types;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::harness::{Scratch, finish, text, tidemill};
use crate::not_run::not_run;

/// A number that the environment may set.
fn wanted(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Whether this process is root, as which servers run only if they are told to, or not at all.
fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

/// Whether something of a Debian package is there. If not, the package is installed where that is wanted; one at a time,
/// and after whoever else installs something.
pub fn installed(package: &str, there: impl Fn() -> bool) -> bool {
    static INSTALLING: Mutex<()> = Mutex::new(());
    if there() || !std::env::var("DATABASE_INSTALL").is_ok_and(|v| v == "1") || !is_root() {
        return there();
    }
    let _one = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if there() {
        return true;
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        // Without a network it shall be known soon.
        command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::http::Timeout=20", "-o", "Acquire::Retries=0", "-q", "-y"]);
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
    };
    let install = ["install", "--no-install-recommends", package];
    // A fresh machine has no list of packages, an old one's is out of date.
    if !apt(&install) && !(apt(&["update"]) && apt(&install)) {
        println!("apt-get install {package} failed");
    }
    there()
}

/// Says that tests did not run for want of a server.
pub fn missing(what: &str, package: &str) {
    not_run(&format!("the tests over {what}: it is not installed (apt-get install {package}; `make test` does it for root)"));
}

/// Makes an authority and a certificate for `localhost` that it has signed (`good-ca.pem`, `server.pem`, `server.key`), and another
/// authority, which has signed nothing (`other-ca.pem`).
fn certificates(directory: &Path) -> Result<(), String> {
    let openssl = |args: &str| {
        let output = Command::new("openssl").current_dir(directory).args(args.split(' ')).output();
        let output = output.map_err(|e| format!("openssl: {e}"))?;
        if output.status.success() { Ok(()) } else { Err(format!("openssl {args}: {}", text(&output))) }
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for name in ["good", "other"] {
        openssl(&format!("req -x509 {key} -subj /CN={name}-authority -keyout {name}-ca.key -out {name}-ca.pem"))?;
    }
    let names = "-addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE";
    openssl(&format!("req -x509 -CA good-ca.pem -CAkey good-ca.key {key} {names} -subj /CN=localhost -keyout server.key -out server.pem"))
}

/// Runs a job; what it says, and whether it succeeds, is the caller's to look at.
fn run(scratch: &Scratch, sql: &str, arguments: &[&str]) -> Output {
    finish(tidemill().args(["run", &scratch.write("job.sql", sql), "--quiet"]).args(arguments))
}

/// Runs a job that succeeds; what it says.
#[track_caller]
fn runs(scratch: &Scratch, sql: &str, arguments: &[&str]) -> String {
    let output = run(scratch, sql, arguments);
    // A process that a signal ended may have said all that it had to say.
    assert!(output.status.success(), "{}: {sql}\n{}", output.status, text(&output));
    text(&output)
}

/// Compares what a table holds with what it must, and names the first row that is another.
#[track_caller]
fn same_rows<T: AsRef<str>>(table: &str, found: &[T], expect: &[String], history: &str) {
    let found: Vec<&str> = found.iter().map(AsRef::as_ref).collect();
    let same = found.iter().zip(expect).take_while(|(f, e)| **f == e.as_str()).count();
    assert!(
        same == expect.len() && found.len() == same,
        "{table}: row {same} is {:?} instead of {:?}, {} rows instead of {}, after {history}",
        found.get(same),
        expect.get(same),
        found.len(),
        expect.len()
    );
}

/// The runs of a test in which jobs are killed so often: half of them with so much between checkpoints that the sink has a transaction
/// open, and large batches of upserts (true), the other half with little.
fn large_and_small(kills: u64) -> [(bool, u64); 2] {
    [(true, kills.div_ceil(2)), (false, kills / 2)]
}

/// A table over a CSV file with these lines.
fn csv(scratch: &Scratch, columns: &str, lines: &str) -> String {
    let path = scratch.write("in.csv", lines);
    format!(
        "CREATE TABLE source ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv', \
         'csv.null-literal' = 'NULL');\n"
    )
}
