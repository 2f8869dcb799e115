//! Jobs that read and write databases.
//!
//! - [`examples`]: the jobs of `examples/databases`, over each of them
//! - [`sqlite`]: in files, without a server
//! - [`duckdb`]: the same, with a library that npm has
//! - [`postgres`], [`mysql`]: against real servers, those of Debian's packages `postgresql` and
//!   `mariadb-server`; where they are missing the tests say that they did not run. With `DATABASE_INSTALL=1`
//!   root has them installed first.
//!
//! `DATABASE_KILLS` and `DATABASE_SERVER_KILLS` say how often jobs and servers are killed, `DATABASE_SEED` when.

mod duckdb;
mod examples;
mod mysql;
mod postgres;
mod sqlite;

use std::process::{Command, Stdio};

/// A number that the environment may set.
fn wanted(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Whether this process is root, as which servers run only if they are told to, or not at all.
fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

/// Installs a package of Debian if that is wanted; whether it is there is for the caller to see.
fn install(package: &str) {
    if !std::env::var("DATABASE_INSTALL").is_ok_and(|v| v == "1") || !is_root() {
        return;
    }
    let mut apt = Command::new("apt-get");
    apt.args(["install", "-y", "--no-install-recommends", package]).env("DEBIAN_FRONTEND", "noninteractive");
    let status = apt.stdin(Stdio::null()).stdout(Stdio::null()).status();
    if !status.is_ok_and(|s| s.success()) {
        println!("apt-get install {package} failed");
    }
}

/// Says that tests did not run for want of a server.
fn not_run(what: &str, package: &str) {
    println!(
        "NOT RUN: the tests over {what}: it is not installed (apt-get install {package}, or as root DATABASE_INSTALL=1 with these tests)"
    );
}
