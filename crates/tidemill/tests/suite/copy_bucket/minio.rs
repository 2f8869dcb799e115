//! Copies to and from MinIO, a real server of the protocol of S3, with signatures and multipart uploads of its own making.
//!
//! The server is a binary `minio`: where `MINIO` says, in `PATH`, or where `make minio` puts it (it needs Go). Where there is none
//! the test says that it did not run.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{KILLS, PLAIN, Place, ROWS, kill, kills, orders, with};
use crate::failures::expect;
use crate::harness::{Background, Scratch, free_port, wait_for};
use crate::not_run::not_run;

/// Bucket, user and password, made up for the test.
const BUCKET: &str = "tidemill-test";
const USER: &str = "tidemill";
const PASSWORD: &str = "tidemill-secret";

/// The binary; that there is none is said.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("MINIO").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let folders = std::env::split_paths(&path).chain(cache.map(|cache| cache.join("tidemill/bin")));
    let found = named.into_iter().chain(folders.map(|folder| folder.join("minio"))).find(|file| file.is_file());
    if found.is_none() {
        not_run("the tests over MinIO: there is no binary minio (make minio builds it with Go, or MINIO names one)");
    }
    found
}

/// A server with an empty bucket; it ends when dropped.
struct Server {
    _process: Background,
    _scratch: Scratch,
    place: Place,
}

impl Server {
    fn start() -> Option<Self> {
        let program = program()?;
        let scratch = Scratch::new("minio");
        // A directory on its disk is a bucket.
        std::fs::create_dir_all(scratch.path().join("data").join(BUCKET)).expect("a directory");
        let port = free_port();
        let mut command = Command::new(program);
        command.args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}"), &scratch.at("data")]);
        command.env("MINIO_ROOT_USER", USER).env("MINIO_ROOT_PASSWORD", PASSWORD).env("MINIO_BROWSER", "off").env("MINIO_UPDATE", "off");
        command.env("HOME", scratch.path());
        // To a file: a pipe that nobody reads is full at some time, and whoever writes to it stops.
        let log = std::fs::File::create(scratch.at("log")).expect("a log file");
        let errors = log.try_clone().expect("the log file again");
        let mut process = Background(command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("starting minio"));
        let endpoint = format!("http://127.0.0.1:{port}");
        let options = [
            ("store.endpoint", endpoint.as_str()),
            ("store.access-key", USER),
            ("store.secret-key", PASSWORD),
            ("store.region", "us-east-1"),
            ("store.retries", "2"),
        ];
        let options = options.map(|(k, v)| (k.to_string(), v.to_string())).to_vec();
        let place = Place { base: format!("s3://{BUCKET}"), options };
        wait_for("MinIO", || {
            let ended = process.0.try_wait().expect("waiting for minio");
            let said = || std::fs::read_to_string(scratch.at("log")).unwrap_or_default();
            assert!(ended.is_none(), "minio ended: {ended:?}; {}", said());
            place.store().list("").is_ok()
        });
        Some(Server { _process: process, _scratch: scratch, place })
    }
}

#[test]
fn copies_over_minio() {
    let Some(server) = Server::start() else { return };
    let (place, scratch) = (&server.place, Scratch::new("minio-copy"));
    let (input, out) = (orders(&scratch), place.at("out"));
    let plain = with(&[&input, &out], &PLAIN);
    expect(&place.copy(&plain), 0, &["5 rows from 3 files", "on both sides"]);
    assert_eq!(place.lines("out").expect("a copy"), ROWS);
    expect(&place.copy(&plain), 2, &["is there already"]);
    expect(&place.copy(&with(&plain, &["--overwrite", "--partition-by", "customer"])), 0, &["5 rows"]);
    assert_eq!(place.lines("out/customer=ben/").expect("a directory"), ["2", "5"]);
    // More than one part of an upload: 9 MB and more of numbers that do not repeat.
    let rows: String = (0..600_000_u64).map(|n| format!("{n},{}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1)).collect();
    let large = scratch.write("large.csv", format!("n,x\n{rows}"));
    let (target, back) = (place.at("d/large.csv"), scratch.at("back.parquet"));
    expect(&place.copy(&[&large, &target]), 0, &["600 k rows", "on both sides"]);
    expect(&place.copy(&[&target, &back]), 0, &["600 k rows", "on both sides"]);
    assert_eq!(place.left_behind(), Vec::<String>::new());
    kill(place, kills(KILLS), 6, 1_000);
}
