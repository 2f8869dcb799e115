//! A holder of a lock that was cut off or slept, and comes back when somebody else has the lock: it undoes and hides nothing.
//! What was left half done, and lists in the midst of it.

use std::time::Duration;

use super::*;
use crate::Lock;

/// Longer than a lock lasts.
const LONG: Duration = Duration::from_secs(100);

fn set(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|key| (*key).to_string()).collect()
}

/// The objects below `out/` that are not ours to keep there.
fn there(emulator: &Emulator) -> Vec<String> {
    emulator.keys("b").into_iter().filter(|key| !key.contains("_tidemill/")).collect()
}

/// What readers see below `out/`; a glob sees the same.
fn listed(store: &Store) -> Vec<String> {
    let keys = |pattern: &str| store.list(pattern).unwrap().into_iter().map(|object| object.key).collect::<Vec<_>>();
    assert_eq!(keys("out/"), keys("out/?-*"));
    keys("out/")
}

fn wait_until(ready: impl Fn() -> bool) {
    while !ready() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes the lock as somebody elsewhere does who has not heard of its holder for a while.
fn taken_over(emulator: &Emulator, store: &Store) -> Lock {
    emulator.age("b", "out/_tidemill/lock", LONG);
    store.lock("out/", None).unwrap()
}

/// One writer replaces `o-1.csv` by `a-1.csv` and `a-2.csv`, and is held in a request; another takes the lock, and does
/// `meanwhile`, from the writer's uploads; then the first goes on. What is there at the end.
#[track_caller]
fn check(fault: (&str, &str, usize), meanwhile: impl Fn(&Store, &Lock, &[Pending]), expect: &[&str]) {
    for base in ["gs://b", "s3://b"] {
        let emulator = emulator();
        let store = store(&emulator, base);
        emulator.put("b", "out/o-1.csv", "old");
        let former = store.lock("out/", None).unwrap();
        let uploads = uploads(&store, &[("out/a-1.csv", "1"), ("out/a-2.csv", "2")]);
        let (method, target, passed) = fault;
        emulator.fail(method, target, Fault::Passed, passed);
        emulator.fail(method, target, Fault::Held, 1);
        let now = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| store.publish("out/", &uploads, set(&["out/o-1.csv"]), &former));
            wait_until(|| emulator.held() == 1);
            let now = taken_over(&emulator, &store);
            meanwhile(&store, &now, &uploads);
            assert_eq!(listed(&store), expect, "{base} {fault:?}, before the first goes on");
            emulator.let_go();
            refused(publishing.join().unwrap(), Kind::Exists, "somebody else has taken its lock; nothing was committed");
            now
        });
        assert_eq!(listed(&store), expect, "{base} {fault:?}");
        assert_eq!(there(&emulator), expect, "{base} {fault:?}");
        // The next one finds nothing in its way.
        let next = self::uploads(&store, &[("out/n-1.csv", "n")]);
        store.publish("out/", &next, set(expect), &now).unwrap();
        assert_eq!((listed(&store), there(&emulator)), (vec!["out/n-1.csv".to_string()], vec!["out/n-1.csv".to_string()]), "{base}");
        assert!(store.committing("out/").unwrap().is_none());
        drop((former, now));
        assert_eq!(emulator.keys("b"), ["out/n-1.csv"], "{base} {fault:?}");
    }
}

/// Takes back what the former holder did, and replaces what is there.
fn anew(store: &Store, lock: &Lock, uploads: &[Pending]) {
    store.settle("out/", lock).unwrap();
    uploads.iter().for_each(|upload| store.abort(upload).unwrap());
    let own = self::uploads(store, &[("out/b-1.csv", "b")]);
    store.publish("out/", &own, set(&["out/o-1.csv"]), lock).unwrap();
}

/// Goes on with what the former holder did.
fn goes_on(store: &Store, lock: &Lock, uploads: &[Pending]) {
    store.publish("out/", uploads, set(&["out/o-1.csv"]), lock).unwrap();
}

#[test]
fn a_former_holder_changes_nothing() {
    // Before its commit, in the midst of its uploads, at the turning point.
    check(("POST", "a-2.csv?uploadId", 0), anew, &["out/b-1.csv"]);
    for passed in 0..3 {
        check(("PUT", "_tidemill/commit", passed), anew, &["out/b-1.csv"]);
        check(("PUT", "_tidemill/commit", passed), goes_on, &["out/a-1.csv", "out/a-2.csv"]);
    }
}

/// The first one, about to begin its commit, finds that of the other, in the midst of its uploads: it is not its to take back.
#[test]
fn a_former_holder_leaves_the_commit_of_the_next_alone() {
    for base in ["gs://b", "s3://b"] {
        let emulator = emulator();
        let store = store(&emulator, base);
        let former = store.lock("out/", None).unwrap();
        let first = uploads(&store, &[("out/a-1.csv", "1")]);
        emulator.fail("PUT", "_tidemill/commit", Fault::Held, 1);
        let (now, second) = std::thread::scope(|scope| {
            let publishing = scope.spawn(|| store.publish("out/", &first, set(&[]), &former));
            wait_until(|| emulator.held() == 1);
            let now = taken_over(&emulator, &store);
            let second = uploads(&store, &[("out/b-1.csv", "1"), ("out/b-2.csv", "2")]);
            emulator.fail("POST", "b-2.csv?uploadId", Fault::Status(403), 1);
            refused(store.publish("out/", &second, set(&[]), &now), Kind::Denied, "committing");
            emulator.let_go();
            refused(publishing.join().unwrap(), Kind::Exists, "somebody else has taken its lock");
            refused(store.settle("out/", &former), Kind::Exists, "somebody else has taken its lock");
            (now, second)
        });
        assert!(listed(&store).is_empty());
        store.publish("out/", &second, set(&[]), &now).unwrap();
        assert_eq!(listed(&store), ["out/b-1.csv", "out/b-2.csv"], "{base}");
    }
}

/// What it replaces is removed by the other, and then the commit; the first one's answer is as it was: everything is visible.
#[test]
fn one_that_had_turned_its_commit_has_committed() {
    let emulator = emulator();
    let store = store(&emulator, "gs://b");
    emulator.put("b", "out/o-1.csv", "old");
    let former = store.lock("out/", None).unwrap();
    let uploads = uploads(&store, &[("out/a-1.csv", "1")]);
    emulator.fail("DELETE", "out/o-1.csv", Fault::Held, 1);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| store.publish("out/", &uploads, set(&["out/o-1.csv"]), &former));
        wait_until(|| emulator.held() == 1);
        let now = taken_over(&emulator, &store);
        assert_eq!(store.committing("out/").unwrap(), Some((true, set(&["out/a-1.csv"]))));
        store.settle("out/", &now).unwrap();
        emulator.let_go();
        publishing.join().unwrap().unwrap();
        assert_eq!(there(&emulator), ["out/a-1.csv"]);
        // This one's commit is not removed by it.
        now.check().unwrap();
    });
}

/// An unfinished commit kept the list of what it replaces, and what had come since stayed beside what is new.
#[test]
fn what_is_replaced_is_found_anew() {
    let emulator = emulator();
    let store = store(&emulator, "s3://b");
    emulator.put("b", "out/o-1.csv", "old");
    let lock = store.lock("out/", None).unwrap();
    let uploads = uploads(&store, &[("out/a-1.csv", "1")]);
    emulator.fail("POST", "a-1.csv?uploadId", Fault::Status(403), 1);
    refused(store.publish("out/", &uploads, set(&["out/o-1.csv"]), &lock), Kind::Denied, "committing");
    drop(lock);
    emulator.put("b", "out/o-2.csv", "came since");
    let lock = store.lock("out/", None).unwrap();
    store.publish("out/", &uploads, set(&["out/o-1.csv", "out/o-2.csv"]), &lock).unwrap();
    assert_eq!((listed(&store), there(&emulator)), (vec!["out/a-1.csv".to_string()], vec!["out/a-1.csv".to_string()]));
}

#[test]
fn uploads_that_are_gone() {
    let emulator = emulator();
    for base in ["gs://b", "s3://b"] {
        let store = store(&emulator, base);
        let four = uploads(&store, &[("out/a", "under way"), ("out/b", "complete"), ("out/c", "given up"), ("out/d", "removed")]);
        assert!(store.gone("out/", &four).unwrap().is_empty() && store.gone("out/", &[]).unwrap().is_empty());
        store.complete_all(vec![four[1].clone(), four[3].clone()]).unwrap();
        store.abort(&four[2]).unwrap();
        store.delete("out/d").unwrap();
        assert_eq!(store.gone("out/", &four).unwrap(), set(&["out/c", "out/d"]), "{base}");
        store.delete_all(vec!["out/b".to_string()]).unwrap();
        store.abort(&four[0]).unwrap();
    }
}

/// `out/a-*` was listed, then the commit that replaces all of it was asked for: nothing was left.
#[test]
fn a_glob_sees_what_was_there_or_what_replaces_it() {
    for base in ["gs://b", "s3://b"] {
        for whole in [false, true] {
            let emulator = emulator();
            let store = store(&emulator, base);
            emulator.put("b", "out/a-0.csv", "old");
            let lock = store.lock("out/", None).unwrap();
            let uploads = uploads(&store, &[("out/a-1.csv", "1"), ("out/a-2.csv", "2")]);
            emulator.fail("GET", "list-type", Fault::Late, 1);
            std::thread::scope(|scope| {
                let listing = scope.spawn(|| store.list("out/a-*").unwrap());
                wait_until(|| emulator.held() == 1);
                // The commit comes, and goes, or stays behind its turning point.
                let (method, target) = if base == "gs://b" { ("DELETE", "out/a-0.csv") } else { ("POST", "?delete") };
                if !whole {
                    emulator.fail(method, target, Fault::Status(403), 9);
                }
                let published = store.publish("out/", &uploads, set(&["out/a-0.csv"]), &lock);
                assert_eq!(published.is_ok(), whole);
                emulator.let_go();
                let found: Vec<String> = listing.join().unwrap().into_iter().map(|object| object.key).collect();
                assert_eq!(found, ["out/a-1.csv", "out/a-2.csv"], "{base}, whole {whole}");
            });
            emulator.forgive();
        }
    }
}

#[test]
fn a_list_of_several_pages_sees_a_commit_that_came_in_between() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour { page: 2, ..Behaviour::default() }).unwrap();
    let store = store(&emulator, "gs://b");
    let old = ["out/0.csv", "out/1.csv", "out/2.csv"];
    old.iter().for_each(|key| emulator.put("b", key, "old"));
    let lock = store.lock("out/", None).unwrap();
    let uploads = uploads(&store, &[("out/a-1.csv", "1"), ("out/a-2.csv", "2")]);
    // One page, to see that there are more; then the first of them.
    emulator.fail("GET", "list-type", Fault::Passed, 2);
    emulator.fail("GET", "list-type", Fault::Held, 1);
    std::thread::scope(|scope| {
        let listing = scope.spawn(|| store.list("out/").unwrap());
        wait_until(|| emulator.held() == 1);
        store.publish("out/", &uploads, set(&old), &lock).unwrap();
        emulator.let_go();
        let found: Vec<String> = listing.join().unwrap().into_iter().map(|object| object.key).collect();
        assert_eq!(found, ["out/a-1.csv", "out/a-2.csv"]);
    });
}

#[test]
fn a_store_that_knows_no_conditions_is_refused() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour { conditions: false, ..Behaviour::default() }).unwrap();
    let careless = store(&emulator, "s3://b");
    refused(careless.lock("out/", None), Kind::Other, "passes over the conditions of puts; the server must know If-None-Match");
    assert!(emulator.keys("b").is_empty());
    let emulator = self::emulator();
    for base in ["gs://b", "s3://b"] {
        emulator.fail("PUT", "lock", Fault::Status(501), 9);
        refused(store(&emulator, base).lock("out/", None), Kind::Other, "it refuses conditional puts");
        emulator.forgive();
        store(&emulator, base).lock("out/", None).unwrap().check().unwrap();
    }
}
