//! `tidemill copy` to and from buckets: what becomes visible and when, what is refused, a service that fails, and copies that
//! are killed at any moment. Against the emulated bucket of the `store` crate; against a real server in [`minio`]. What copies
//! make of locks that were lost and of what others left half done is in [`recovery`].
//!
//! `COPY_KILLS` says how often copies are killed.

mod minio;
mod recovery;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tidemill_format::options::{OptionSet, RawOptions};
use tidemill_store::emulator::{Behaviour, Emulator, Fault};
use tidemill_store::{Kind, Store, StoreOptions};

use crate::copy::{SMALL_AND_LARGE, small_and_large};
use crate::crash::Random;
use crate::failures::{SmallDisk, expect};
use crate::harness::{Background, Scratch, finish, text, tidemill, wait_for};
use crate::not_run::not_run;

/// What a number of kills is by default.
const KILLS: u64 = 10;

/// A bucket, and how it is reached.
struct Place {
    /// `gs://bucket`.
    base: String,
    /// Options `store.…`.
    options: Vec<(String, String)>,
}

impl Place {
    /// A bucket of an emulator.
    fn of(emulator: &Emulator, base: &str) -> Self {
        let endpoint = emulator.endpoint();
        let options = [("store.endpoint", endpoint.as_str()), ("store.anonymous", "true"), ("store.retries", "2")];
        Place { base: base.to_string(), options: options.map(|(k, v)| (k.to_string(), v.to_string())).to_vec() }
    }

    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// `tidemill copy` with these arguments.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidemill();
        command.arg("copy").args(arguments);
        for (name, value) in &self.options {
            let option = format!("{name}={value}");
            command.args(["--read", &option, "--write", &option]);
        }
        command
    }

    fn copy(&self, arguments: &[&str]) -> Output {
        finish(&mut self.command(arguments))
    }

    fn store(&self) -> Store {
        let options = StoreOptions::take(&mut RawOptions::new("a test", self.options.clone())).expect("options");
        Store::of(&self.base, &options).expect("a bucket").0
    }

    /// The lines of what readers see at a path, sorted; none if there is nothing.
    fn lines(&self, name: &str) -> Option<Vec<String>> {
        let store = self.store();
        let objects = match store.list(name) {
            Err(e) if e.kind() == Kind::NotFound => return None,
            listed => listed.expect("a list"),
        };
        let read = |key: &str| String::from_utf8(store.read(key).expect("an object").to_vec()).expect("text");
        let texts: Vec<String> = objects.iter().map(|object| read(&object.key)).collect();
        let mut lines: Vec<String> = texts.iter().flat_map(|text| text.lines().map(str::to_string)).collect();
        lines.sort();
        Some(lines)
    }

    /// What is left of copies and other writers: locks, manifests, marks, commits.
    fn left_behind(&self) -> Vec<String> {
        let all = self.store().below("").expect("a list");
        all.into_iter().map(|object| object.key).filter(|key| key.contains("_tidemill/")).collect()
    }
}

/// Three files of orders in a directory.
fn orders(scratch: &Scratch) -> String {
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    for (name, rows) in [("a", "1,anna\n2,ben\n"), ("b", "3,anna\n4,carl\n"), ("c", "5,ben\n")] {
        scratch.write(&format!("in/{name}.csv"), format!("id,customer\n{rows}"));
    }
    scratch.at("in")
}

/// The same, as objects below `in/`.
fn orders_in(emulator: &Emulator, bucket: &str) {
    for (name, rows) in [("a", "1,anna\n2,ben\n"), ("b", "3,anna\n4,carl\n"), ("c", "5,ben\n")] {
        emulator.put(bucket, &format!("in/{name}.csv"), format!("id,customer\n{rows}"));
    }
}

const ROWS: [&str; 5] = ["1,anna", "2,ben", "3,anna", "4,carl", "5,ben"];
const PLAIN: [&str; 4] = ["--write", "format=csv", "--write", "header=false"];

fn with<'a>(arguments: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [arguments, more].concat()
}

#[test]
fn into_a_bucket_and_out_of_it() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator");
    for (base, bucket) in [("gs://b", "b"), ("s3://c", "c")] {
        let (scratch, place) = (Scratch::new("bucket"), Place::of(&emulator, base));
        let (input, out) = (orders(&scratch), place.at("out"));
        let plain = with(&[&input, &out], &PLAIN);
        expect(&place.copy(&plain), 0, &["5 rows from 3 files", "in 3 files", "on both sides"]);
        assert_eq!((place.lines("out").expect("a copy"), emulator.keys(bucket).len()), (ROWS.map(str::to_string).to_vec(), 3));
        expect(&place.copy(&plain), 2, &["is there already", "--overwrite"]);
        expect(&place.copy(&with(&plain, &["--resume"])), 0, &["nothing to resume"]);
        // In place of what is there, in directories.
        let divided = ["--overwrite", "--where", "id > 1", "--partition-by", "customer", "--files", "1"];
        expect(&place.copy(&with(&plain, &divided)), 0, &["4 rows from 3 files", "in 3 files"]);
        assert_eq!(place.lines("out").expect("a copy"), ["2", "3", "4", "5"]);
        assert_eq!(place.lines("out/customer=ben/").expect("a directory"), ["2", "5"]);
        // From there to other formats, and back to the disk.
        let (parquet, zipped) = (place.at("d/one.parquet"), scratch.at("back.csv.gz"));
        expect(&place.copy(&[&out, &parquet, "--read", "header=false"]), 0, &["4 rows from 3 files", "in 1 file", "on both sides"]);
        expect(&place.copy(&[&parquet, &zipped]), 0, &["4 rows from 1 file", "on both sides"]);
        for format in ["avro", "arrow", "orc"] {
            let (object, back) = (place.at(&format!("d/one.{format}")), scratch.at(&format!("{format}.csv")));
            expect(&place.copy(&[&input, &object]), 0, &["5 rows from 3 files", "in 1 file", "on both sides"]);
            expect(&place.copy(&[&object, &back]), 0, &["5 rows from 1 file", "on both sides"]);
        }
        expect(&place.copy(&[&input, &parquet]), 2, &["is there already"]);
        expect(&place.copy(&[&input, &parquet, "--overwrite", "--sort-by", "id"]), 0, &["5 rows from 3 files"]);
        expect(&place.copy(&[&parquet, &scratch.at("all.csv"), "--verify", "rows"]), 0, &["5 rows", "the number of rows is the same"]);
        let all = std::fs::read_to_string(scratch.at("all.csv")).expect("the copy");
        assert_eq!(all.lines().collect::<Vec<_>>(), with(&["id,customer"], &ROWS));
        expect(&place.copy(&[&input, &place.at(""), "--write", "format=csv", "--overwrite"]), 2, &["is a whole bucket"]);
        assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0));
    }
    let place = Place::of(&emulator, "gs://b");
    expect(&place.copy(&[&place.at("d/one.parquet"), "http://127.0.0.1:1/x.csv"]), 2, &["no place to write to", "s3://"]);
}

#[test]
fn a_copy_that_would_lose_something_is_not_seen() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator");
    let (scratch, place) = (Scratch::new("bucket-loss"), Place::of(&emulator, "gs://b"));
    emulator.put("b", "out.csv", "old\n");
    let input = scratch.write("a.json", "{\"a\": 1}\n{\"a\": null}\n");
    expect(&place.copy(&[&input, &place.at("out.csv"), "--overwrite"]), 1, &["not the same", "csv.null-literal"]);
    assert_eq!((emulator.get("b", "out.csv").expect("the old one").as_ref(), emulator.keys("b").len()), (&b"old\n"[..], 1));
    assert_eq!(emulator.uploads(), 0);
}

/// What is uploaded is kept on the disk until it is compared. Where that has no room nothing is seen, and no upload is left but
/// those that are gone on with.
#[test]
fn a_temporary_directory_that_fills_up_is_named() {
    let scratch = Scratch::new("bucket-full");
    let at = scratch.path().join("disk");
    let Some(disk) = SmallDisk::mount(&at) else {
        not_run("copies into buckets with a full TMPDIR (mounting a small disk takes a superuser)");
        return;
    };
    let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator");
    let (input, place) = (small_and_large(&scratch), Place::of(&emulator, "gs://b"));
    let copy = |name: &str, more: &[&str]| finish(place.command(&with(&[&input, &place.at(name)], more)).env("TMPDIR", &at));
    let on_disk = || std::fs::read_dir(&at).expect("the disk").count();
    let said = ["disk/tidemill-copy-", "No space left", "set TMPDIR to a place with more room"];
    for name in ["out.csv", "out.parquet"] {
        expect(&copy(name, &[]), 1, &said);
        assert_eq!((place.lines(name), place.left_behind(), emulator.uploads(), on_disk()), (None, Vec::new(), 0, 0), "{name}");
    }
    let arguments = with(&PLAIN, &["--parallel", "1"]);
    expect(&copy("out", &arguments), 1, &with(&said, &["1 of 2 parts are done", "--resume"]));
    assert_eq!((place.lines("out"), emulator.uploads(), on_disk()), (None, 1, 0));
    disk.grow();
    expect(&copy("out", &with(&arguments, &["--resume"])), 0, &["1 of 2 parts were done", "on both sides"]);
    assert_eq!(place.lines("out").expect("a copy").len() as u64, SMALL_AND_LARGE);
    assert_eq!((place.left_behind(), emulator.uploads(), on_disk()), (Vec::new(), 0, 0));
}

/// A copy within a bucket, while a fault happens; what it says, or nothing if it is to succeed all the same.
#[track_caller]
fn check(method: &str, target: &str, fault: Fault, times: usize, expected: &str) {
    check_behind(0, method, target, fault, times, expected);
}

/// As [`check`], with so many requests before the fault.
#[track_caller]
fn check_behind(passed: usize, method: &str, target: &str, fault: Fault, times: usize, expected: &str) {
    for base in ["gs://b", "s3://b"] {
        let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator");
        let place = Place::of(&emulator, base);
        orders_in(&emulator, "b");
        emulator.fail(method, target, Fault::Passed, passed);
        emulator.fail(method, target, fault, times);
        let (input, out) = (place.at("in/*.csv"), place.at("out"));
        let plain = with(&[&input, &out], &PLAIN);
        let output = place.copy(&plain);
        let seen = || emulator.keys("b").into_iter().filter(|key| !key.starts_with("in/") && !key.contains("_tidemill/")).count();
        if expected.is_empty() {
            expect(&output, 0, &["5 rows from 3 files", "on both sides"]);
        } else {
            assert!(!output.status.success() && text(&output).contains(expected), "{method} {target} {fault:?}: {}", text(&output));
            emulator.forgive();
            assert_eq!(place.lines("out"), None, "{method} {target} {fault:?}: nothing is visible");
            expect(&place.copy(&with(&plain, &["--resume"])), 0, &["5 rows from 3 files"]);
        }
        assert_eq!((place.lines("out").expect("a copy"), seen()), (ROWS.map(str::to_string).to_vec(), 3));
        assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0), "{method} {target} {fault:?}");
    }
}

#[test]
fn a_source_that_fails() {
    check("GET", "b/in/a.csv", Fault::CutAfter(5), 3, "");
    check("GET", "b/in/b.csv", Fault::Status(503), 2, "");
    check("GET", "b/in/b.csv", Fault::Status(429), 2, "");
    check("GET", "b/in/b.csv", Fault::Status(403), 9, "access was denied");
    check("GET", "b/in/b.csv", Fault::Status(404), 9, "there is no such bucket or object");
    check("GET", "b/in/b.csv", Fault::Status(429), 99, "too many requests");
    check("GET", "b/in/b.csv", Fault::Status(500), 99, "the service failed");
    check("GET", "b/in/b.csv", Fault::Touched, 9, "has changed since it was listed");
    check("GET", "list-type", Fault::Status(500), 99, "the service failed");
}

#[test]
fn a_target_that_fails() {
    check("PUT", "partNumber", Fault::Status(503), 2, "");
    check("PUT", "partNumber", Fault::Forgotten, 1, "");
    check("POST", "csv?uploadId", Fault::Forgotten, 1, "");
    check("PUT", "_tidemill/lock", Fault::Status(403), 9, "access was denied");
    check("PUT", "partNumber", Fault::Status(403), 1, "access was denied");
    check("PUT", "partNumber", Fault::Status(500), 99, "the service failed");
    check("PUT", "_tidemill/copy.json", Fault::Status(403), 9, "access was denied");
    // In the middle of the commit: some objects are there, and no reader sees them.
    check_behind(1, "POST", "csv?uploadId", Fault::Status(403), 9, "access was denied");
    // Before it, and at its turning point.
    for passed in 0..3 {
        check_behind(passed, "PUT", "_tidemill/commit", Fault::Status(403), 9, "access was denied");
    }
}

#[test]
fn an_unfinished_copy_goes_on() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator");
    let place = Place::of(&emulator, "s3://b");
    orders_in(&emulator, "b");
    emulator.put("b", "in/c.csv", "id,customer\nfive,ben\n");
    let (input, out) = (place.at("in/*.csv"), place.at("out"));
    let arguments = with(&[&input, &out, "--parallel", "1"], &PLAIN);
    expect(&place.copy(&arguments), 1, &["c.csv", "2 of 3 parts are done", "--resume"]);
    assert_eq!((place.lines("out"), emulator.uploads()), (None, 2));
    expect(&place.copy(&arguments), 2, &["an unfinished copy", "2 of 3", "--overwrite"]);
    // Of the same length, and another version.
    emulator.put("b", "in/a.csv", "id,customer\n7,anna\n2,ben\n");
    emulator.put("b", "in/c.csv", "id,customer\n5,ben\n");
    let resumed = with(&arguments, &["--resume"]);
    emulator.fail("POST", "uploadId", Fault::Status(403), 2);
    expect(&place.copy(&resumed), 1, &["1 of 3 parts were done", "access was denied"]);
    assert_eq!(place.lines("out"), None);
    emulator.forgive();
    // Changed once more, in the middle of the commit, which is taken back.
    emulator.put("b", "in/b.csv", "id,customer\n3,anna\n4,dora\n");
    expect(&place.copy(&resumed), 0, &["5 rows from 3 files", "on both sides"]);
    assert_eq!(place.lines("out").expect("a copy"), ["2,ben", "3,anna", "4,dora", "5,ben", "7,anna"]);
    assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0));
}

#[test]
fn one_of_two_writers_wins() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator");
    let (scratch, place) = (Scratch::new("bucket-two"), Place::of(&emulator, "gs://b"));
    let rows = |first: u64| (first..first + 40_000).map(|n| format!("{n},{}\n", n * 7)).collect::<String>();
    let (one, two) = (scratch.write("one.csv", rows(100_000)), scratch.write("two.csv", rows(500_000)));
    for (name, lock, method, last) in
        [("out", "out/_tidemill/lock", "PUT", "out/_tidemill/commit"), ("out.csv", "_tidemill/lock.out.csv", "POST", "out.csv?uploadId")]
    {
        let target = place.at(name);
        let no_header = ["--read", "header=false"];
        // The first is kept from its last steps until the second has been sent away, however long that one takes to come.
        emulator.fail(method, last, Fault::Held, 1);
        let mut first = Background::start(&mut place.command(&with(&with(&[&one, &target, "--quiet"], &PLAIN), &no_header)));
        wait_for("the first writer to be held", || emulator.held() == 1);
        assert!(emulator.keys("b").iter().any(|key| key == lock), "{:?}", emulator.keys("b"));
        let second = place.copy(&with(&with(&[&two, &target, "--overwrite"], &PLAIN), &no_header));
        expect(&second, 1, &["is being written by process", "wait for it, or choose another path"]);
        emulator.let_go();
        assert_eq!(first.end(), (Some(0), String::new()), "{name}");
        let lines = place.lines(name).expect("a copy");
        assert_eq!((lines.len(), lines[0].as_str()), (40_000, "100000,700000"), "{name}");
    }
    assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0));
}

/// Kills copies into a bucket, each after another time: what readers see is then nothing (or what was there before), or all of
/// it; the same command with `--resume` completes it, and leaves nothing behind.
fn kill(place: &Place, wanted: u64, files: usize, rows: usize) {
    let mut random = Random(823);
    let scratch = Scratch::new("bucket-kill");
    std::fs::create_dir(scratch.path().join("in")).expect("a directory");
    let mut expected: Vec<String> = Vec::new();
    for file in 0..files {
        let lines: Vec<String> = (0..rows).map(|row| format!("{file},{row},{}", random.below(1_000_000_000))).collect();
        scratch.write(&format!("in/{file:02}.csv"), format!("file,row,value\n{}\n", lines.join("\n")));
        expected.extend(lines);
    }
    expected.sort();
    let input = scratch.at("in");
    let command = |target: &str, more: &[&str]| {
        let target = place.at(target);
        place.command(&with(&with(&[&input, &target, "--quiet", "--parallel", "2"], &PLAIN), more))
    };
    let begun = Instant::now();
    expect(&finish(&mut command("whole", &[])), 0, &[]);
    let length = begun.elapsed().as_millis() as u64 + 1;
    assert_eq!(place.lines("whole").as_ref(), Some(&expected));
    let old = vec!["old".to_string()];
    let (mut before, mut whole, mut went_on) = (0, 0, 0);
    for number in 0..wanted {
        // Directories, some of them in place of what is there, and single objects.
        let (single, replaced) = (number % 3 == 2, number % 3 == 1);
        let target = format!("out{number}{}", if single { ".csv" } else { "" });
        if replaced {
            place.store().put(&format!("{target}/old.csv"), "old\n".into()).expect("an object");
        }
        let overwrite: &[&str] = if replaced { &["--overwrite"] } else { &[] };
        // The second kill, of one in four, meets a copy that goes on.
        for attempt in 0..1 + u64::from(number % 4 == 3) {
            let more = if attempt > 0 { with(overwrite, &["--resume"]) } else { overwrite.to_vec() };
            let after = random.below(length + length / 4);
            let mut running = Background::start(&mut command(&target, &more));
            std::thread::sleep(Duration::from_millis(after));
            // It may have ended by itself.
            let _ = running.0.kill();
            let _ = running.0.wait();
            match place.lines(&target) {
                None if !replaced => before += 1,
                Some(rows) if replaced && rows == old => before += 1,
                Some(rows) if rows == expected => whole += 1,
                rows => panic!("kill {number} after {after} ms: {} rows of {}", rows.map_or(0, |rows| rows.len()), expected.len()),
            }
        }
        went_on += usize::from(place.left_behind().iter().any(|key| key.contains("_tidemill/copy.")));
        let resumed = finish(&mut command(&target, &with(overwrite, &["--resume"])));
        expect(&resumed, 0, &[]);
        assert_eq!(place.lines(&target).as_ref(), Some(&expected), "kill {number}, resumed: {}", text(&resumed));
        assert_eq!(place.left_behind(), Vec::<String>::new(), "kill {number}: what a finished copy leaves behind");
    }
    println!(
        "{}: {wanted} copies killed: target {before} times as before, {whole} times whole; {went_on} went on from a manifest",
        place.base
    );
}

/// How often copies are killed.
fn kills(default: u64) -> u64 {
    std::env::var("COPY_KILLS").map_or(default, |n| n.parse().expect("COPY_KILLS is a number"))
}

#[test]
fn killed_at_any_moment() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour { latency: Duration::from_millis(2), ..Behaviour::default() });
    let emulator = emulator.expect("the emulator");
    kill(&Place::of(&emulator, "gs://b"), kills(KILLS), 12, 3_000);
    assert_eq!(emulator.parts(), 0, "what killed copies had uploaded");
}
