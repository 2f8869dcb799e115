//! Copies into buckets that come back, or are gone on with, when not all is as they left it: the lock is another's, uploads are
//! gone, nothing can be removed.

use std::time::Duration;

use tidemill_store::emulator::{Behaviour, Emulator, Fault};

use super::{PLAIN, Place, ROWS, orders, orders_in, with};
use crate::failures::expect;
use crate::harness::{Background, Scratch, finish, text, tidemill, wait_for};

fn emulator() -> Emulator {
    Emulator::start("127.0.0.1:0", Behaviour::default()).expect("the emulator")
}

/// A copy was suspended at the very moment in which it would have put its commit, or completed its object, for longer than
/// its lock lasts. Another copy to the same target came and ended. The first woke up, hid what the second had written, and said
/// that all was well.
#[test]
fn a_copy_that_slept_changes_nothing() {
    for base in ["gs://b", "s3://b"] {
        for (name, lock, method, target, passed) in [
            ("out", "out/_tidemill/lock", "PUT", "out/_tidemill/commit", 2),
            ("out", "out/_tidemill/lock", "PUT", "out/_tidemill/commit", 0),
            // One object of the same length as the other's, so that only the lock tells them apart.
            ("out.csv", "_tidemill/lock.out.csv", "POST", "out.csv?uploadId", 0),
        ] {
            let (emulator, scratch) = (emulator(), Scratch::new("bucket-slept"));
            let place = Place::of(&emulator, base);
            emulator.put("b", if name == "out" { "out/old.csv" } else { "out.csv" }, "old\n");
            let (one, two) = (scratch.write("one.csv", "1\n2\n"), scratch.write("two.csv", "3\n4\n"));
            let out = place.at(name);
            let more = with(&PLAIN, &["--read", "header=false", "--overwrite", "--quiet"]);
            emulator.fail(method, target, Fault::Passed, passed);
            emulator.fail(method, target, Fault::Held, 1);
            let mut first = Background::start(&mut place.command(&with(&[&one, &out], &more)));
            wait_for("the first copy to be held", || emulator.held() == 1);
            emulator.age("b", lock, Duration::from_secs(100));
            expect(&place.copy(&with(&[&two, &out], &more)), 0, &[]);
            assert_eq!(place.lines(name).expect("a copy"), ["3", "4"], "{base} {name}");
            emulator.let_go();
            let (code, said) = first.end();
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("somebody else has taken its lock"), "{said}");
            assert_eq!(place.lines(name).expect("a copy"), ["3", "4"], "{base} {name}, at the end");
            // An empty commit of the first may have stayed; the next copy takes its place.
            expect(&place.copy(&with(&[&one, &out], &more)), 0, &[]);
            assert_eq!(place.lines(name).expect("a copy"), ["1", "2"], "{base} {name}, once more");
            assert_eq!((place.left_behind(), emulator.uploads(), emulator.keys("b").len()), (Vec::new(), 0, 1), "{base} {name}");
        }
    }
}

/// A copy whose commit had been taken back was killed before its manifest said so: going on, it met uploads that were gone, and
/// went on to do so for ever.
#[test]
fn uploads_that_are_gone_are_done_again() {
    for base in ["gs://b", "s3://b"] {
        let emulator = emulator();
        let place = Place::of(&emulator, base);
        orders_in(&emulator, "b");
        let (input, out) = (place.at("in/*.csv"), place.at("out"));
        let arguments = with(&[&input, &out], &PLAIN);
        emulator.fail("POST", "csv?uploadId", Fault::Passed, 1);
        emulator.fail("POST", "csv?uploadId", Fault::Status(403), 9);
        expect(&place.copy(&arguments), 1, &["access was denied", "--resume"]);
        emulator.forgive();
        let store = place.store();
        let lock = store.lock("out/", None).expect("the lock");
        store.settle("out/", &lock).expect("a commit that is taken back");
        drop(lock);
        expect(&place.copy(&with(&arguments, &["--resume"])), 0, &["5 rows from 3 files", "on both sides"]);
        assert_eq!(place.lines("out").expect("a copy"), ROWS);
        assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0), "{base}");
    }
}

/// Where the manifest could not be put any more, what was done stayed, with the advice to go on with it, and --resume knew nothing of it.
#[test]
fn what_no_manifest_knows_is_not_left_behind() {
    for base in ["gs://b", "s3://b"] {
        let emulator = emulator();
        let place = Place::of(&emulator, base);
        orders_in(&emulator, "b");
        emulator.put("b", "out/old.csv", "old\n");
        let (input, out) = (place.at("in/*.csv"), place.at("out"));
        emulator.fail("PUT", "_tidemill/copy.json", Fault::Passed, 1);
        emulator.fail("PUT", "_tidemill/copy.json", Fault::Status(403), 99);
        let failed = place.copy(&with(&with(&[&input, &out], &PLAIN), &["--overwrite"]));
        expect(&failed, 1, &["copy.json", "access was denied"]);
        assert!(!text(&failed).contains("--resume"), "{}", text(&failed));
        assert_eq!(place.lines("out").expect("the old one"), ["old"], "{base}");
        assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0), "{base}");
    }
}

/// What a COPY of SQL had uploaded when it failed stayed until somebody wrote there again.
#[test]
fn a_failed_copy_in_sql_leaves_no_uploads() {
    for base in ["gs://b", "s3://b"] {
        let (emulator, scratch) = (emulator(), Scratch::new("bucket-sql"));
        let place = Place::of(&emulator, base);
        emulator.put("b", "out/old.csv", "old\n");
        emulator.fail("POST", "csv?uploadId", Fault::Status(403), 99);
        let options: Vec<String> = place.options.iter().map(|(name, value)| format!("'{name}' = '{value}'")).collect();
        let copy = format!("COPY '{}' TO '{}' (FORMAT csv, {})", orders(&scratch), place.at("out"), options.join(", "));
        expect(&finish(tidemill().args(["sql", &copy])), 1, &["access was denied"]);
        assert_eq!(place.lines("out").expect("the old one"), ["old"], "{base}");
        assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0), "{base}");
    }
}

/// A file came while a copy with `--overwrite` was unfinished, and stayed beside what replaced all others.
#[test]
fn what_has_come_meanwhile_is_replaced_too() {
    let emulator = emulator();
    let place = Place::of(&emulator, "gs://b");
    orders_in(&emulator, "b");
    emulator.put("b", "out/old.csv", "old\n");
    let (input, out) = (place.at("in/*.csv"), place.at("out"));
    let arguments = with(&with(&[&input, &out], &PLAIN), &["--overwrite"]);
    emulator.fail("POST", "csv?uploadId", Fault::Status(403), 9);
    expect(&place.copy(&arguments), 1, &["access was denied"]);
    emulator.forgive();
    emulator.put("b", "out/since.csv", "since\n");
    assert_eq!(place.lines("out").expect("the old ones"), ["old", "since"]);
    expect(&place.copy(&with(&arguments, &["--resume"])), 0, &["5 rows from 3 files"]);
    assert_eq!(place.lines("out").expect("a copy"), ROWS);
    assert!(emulator.keys("b").iter().all(|key| !key.ends_with("old.csv") && !key.ends_with("since.csv")));
}

/// A copy without rows wrote no object, so that all that it had written was there before it had done anything.
#[test]
fn a_copy_of_nothing_replaces_what_is_there() {
    let emulator = emulator();
    let place = Place::of(&emulator, "gs://b");
    orders_in(&emulator, "b");
    emulator.put("b", "out/old.csv", "old\n");
    let (input, out) = (place.at("in/*.csv"), place.at("out"));
    let arguments = with(&with(&[&input, &out], &PLAIN), &["--overwrite", "--where", "id > 100"]);
    emulator.fail("PUT", "_tidemill/commit", Fault::Status(403), 9);
    expect(&place.copy(&arguments), 1, &["access was denied"]);
    emulator.forgive();
    assert_eq!(place.lines("out").expect("the old one"), ["old"]);
    expect(&place.copy(&with(&arguments, &["--resume"])), 0, &["0 rows from 3 files"]);
    assert!(place.lines("out").is_none_or(|lines| lines.is_empty()), "{:?}", emulator.keys("b"));
    assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0));
}

/// Where objects may be put and not removed (a right that was taken away, a rule that keeps them), a manifest stayed that said that all
/// is done: the next copy found it, could not remove it, and found it again, until its stack was full.
#[test]
fn an_account_that_cannot_remove_is_told_so() {
    for (base, right) in [("gs://b", "storage.objects.delete"), ("s3://b", "s3:DeleteObject")] {
        for name in ["out.csv", "out"] {
            let (emulator, scratch) = (emulator(), Scratch::new("bucket-rights"));
            let place = Place::of(&emulator, base);
            let (input, out) = (orders(&scratch), place.at(name));
            let arguments = with(&[&input, &out], &PLAIN);
            // Google's requests name the object, those of S3 are for several at once.
            let (method, target) = if base == "gs://b" { ("DELETE", "_tidemill/") } else { ("POST", "?delete") };
            // What an earlier copy might have left is removed at the beginning.
            emulator.fail(method, target, Fault::Passed, 1);
            emulator.fail(method, target, Fault::Status(403), 10_000);
            // A directory's commit stays, too, and that is an error already.
            let first = place.copy(&arguments);
            assert_eq!(first.status.code(), Some(if name == "out" { 1 } else { 0 }), "{}", text(&first));
            expect(&place.copy(&arguments), 1, &["access was denied", right]);
            assert_eq!(place.lines(name).expect("a copy"), ROWS, "{base} {name}");
            emulator.forgive();
            expect(&place.copy(&arguments), 2, &["is there already", "--overwrite"]);
            assert_eq!(place.lines(name).expect("a copy"), ROWS, "{base} {name}");
            assert_eq!((place.left_behind(), emulator.uploads()), (Vec::new(), 0), "{base} {name}");
        }
    }
}
