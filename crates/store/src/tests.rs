//! Stores as the engine uses them, against the emulated bucket: read, resume, fail, write, commit, lock. What happens when two
//! hold a lock, one of them without knowing that it is lost, is in [`two_writers`].

mod two_writers;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::Duration;

use crate::ahead::Ahead;
use crate::client::{self, Place};
use crate::emulator::{Behaviour, Emulator, Fault};
use crate::reader::ObjectReader;
use tidemill_format::options::Secret;

use crate::{Kind, Object, Pending, Store, StoreError, StoreOptions};
use tidemill_format::options::ByteSize;

fn emulator() -> Emulator {
    Emulator::start("127.0.0.1:0", Behaviour::default()).unwrap()
}

fn options(emulator: &Emulator) -> StoreOptions {
    StoreOptions {
        endpoint: Some(emulator.endpoint()),
        anonymous: true,
        retries: 2,
        read_size: ByteSize(64 << 10),
        part_size: ByteSize(5 << 20),
        ..StoreOptions::default()
    }
}

#[track_caller]
fn store(emulator: &Emulator, base: &str) -> Store {
    Store::of(&format!("{base}/x"), &options(emulator)).unwrap().0
}

/// Bytes in which every place can be told from every other.
fn bytes(size: usize) -> Vec<u8> {
    (0..size as u32 / 4 + 1).flat_map(|n| n.to_le_bytes()).take(size).collect()
}

fn read(store: &Store, object: &Object, from: u64, end: Option<u64>) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    store.reader(object, from, end).read_to_end(&mut all).map(|_| all).map_err(|e| e.to_string())
}

#[track_caller]
fn refused<T>(result: Result<T, StoreError>, kind: Kind, text: &str) {
    let Err(error) = result else { panic!("this should have failed with {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn remote_paths() {
    for path in ["gs://b/x", "S3://b", "https://h/x", "abfss://c@a.dfs.core.windows.net/x"] {
        assert!(crate::is_remote(path), "{path}");
    }
    for path in ["file:///x", "/a://b", "x", "gs:/b"] {
        assert!(!crate::is_remote(path), "{path}");
    }
}

#[test]
fn objects_are_read_forwards_and_in_part() {
    let emulator = emulator();
    let all = bytes(1_000_003);
    emulator.put("b", "d/k ü%.bin", all.clone());
    let web = format!("{}/b", emulator.endpoint());
    for (base, name) in [("gs://b", "k ü%.bin"), ("s3://b", "k ü%.bin"), (web.as_str(), "k ü%25.bin")] {
        let (store, key) = Store::of(&format!("{base}/d/{name}"), &options(&emulator)).unwrap();
        let object = store.head(&key).unwrap();
        assert_eq!((object.size, object.seekable), (1_000_003, true), "{base}");
        assert!(read(&store, &object, 0, None).unwrap() == all, "{base}");
        assert!(read(&store, &object, 65_535, Some(300_001)).unwrap() == all[65_535..300_001], "{base}");
        assert!(read(&store, &object, 1_000_003, None).unwrap().is_empty(), "{base}");
    }
    assert!(crate::network_bytes() > 3_000_000);
}

/// Files merged by time are open all at once, and each fetched two requests ahead whatever the others held.
#[test]
fn many_open_readers_are_bounded_together() {
    static AHEAD: Ahead = Ahead::new(1 << 20, 16 << 10);
    let emulator = emulator();
    let all = bytes(300_000);
    emulator.put("b", "k", all.clone());
    let options = options(&emulator);
    let client = client::client(&Place::parse("gs://b/k").unwrap(), &options).unwrap();
    let object = store(&emulator, "gs://b").head("k").unwrap();
    let mut readers: Vec<ObjectReader> = (0..40).map(|_| ObjectReader::sharing(&AHEAD, client.clone(), object.clone(), 0, None)).collect();
    for reader in &mut readers {
        reader.read_exact(&mut [0]).unwrap();
    }
    let (used, open) = AHEAD.used();
    assert!(used <= (1 << 20) + 40 * (16 << 10) && open == 40, "{used} bytes, {open} readers");
    // None waits for another: the last one comes to its end while the first ones hold what they have.
    for reader in readers.iter_mut().rev() {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest == all[1..]);
    }
    drop(readers);
    assert_eq!(AHEAD.used(), (0, 0));
}

#[test]
fn ranges_are_read_anywhere() {
    let emulator = emulator();
    let all = bytes(5 << 20);
    emulator.put("b", "k", all.clone());
    let store = store(&emulator, "gs://b");
    let file = store.ranges(&store.head("k").unwrap());
    let mut buf = vec![0; 100_000];
    for at in [0_u64, 1_000_000, 1_048_000, 5_242_000, 3, 5_242_880] {
        let n = file.read_at(at, &mut buf).unwrap();
        assert_eq!(n, buf.len().min(all.len() - at as usize));
        assert!(buf[..n] == all[at as usize..at as usize + n], "at {at}");
    }
    let ranges = [4_000_000..4_000_100, 0..3_000_000, 7..7, 10..20];
    for (range, part) in ranges.iter().zip(file.read_ranges(&ranges).unwrap()) {
        assert!(part == all[range.start as usize..range.end as usize], "{range:?}");
    }
    refused(file.read_ranges(&[0..1, 5..5_242_881]), Kind::Other, "cut short");
}

#[test]
fn a_body_that_breaks_is_continued_where_it_broke() {
    let emulator = emulator();
    let all = bytes(150_000);
    emulator.put("b", "k", all.clone());
    for base in ["gs://b", "s3://b", &format!("{}/b", emulator.endpoint())] {
        let store = store(&emulator, base);
        let key = Store::of(&format!("{base}/k"), &options(&emulator)).unwrap().1;
        let object = store.head(&key).unwrap();
        emulator.fail("GET", "b/k", Fault::CutAfter(1_000), 3);
        emulator.fail("GET", "b/k", Fault::Status(503), 1);
        assert!(read(&store, &object, 0, None).unwrap() == all, "{base}");
    }
    // Ranges are asked for in pieces of 64 KB, so whatever begins elsewhere goes on behind bytes that had arrived: 1,000 a cut.
    let requests = emulator.requests();
    let begins = requests.iter().filter_map(|r| r.split_once("bytes=")?.1.split_once('-')?.0.parse::<u64>().ok());
    let resumed: Vec<u64> = begins.map(|from| from % (64 << 10)).filter(|from| *from > 0).collect();
    assert!(!resumed.is_empty() && resumed.iter().all(|from| *from <= 3_000), "{requests:?}");
}

/// A server that falls silent in the middle of a body, and keeps the connection, would otherwise be waited for for ever.
#[test]
fn a_body_that_stalls_is_asked_for_again() {
    let emulator = emulator();
    // One request for it, whichever way it is read.
    let all = bytes(50_000);
    emulator.put("b", "k", all.clone());
    let impatient = StoreOptions { timeout: Duration::from_millis(200), ..options(&emulator) };
    let web = format!("{}/b/k", emulator.endpoint());
    for url in ["gs://b/k", &web] {
        let (store, key) = Store::of(url, &impatient).unwrap();
        let object = store.head(&key).unwrap();
        emulator.fail("GET", "b/k", Fault::Stall(1_000), 1);
        assert!(read(&store, &object, 0, None).unwrap() == all, "{url}");
        emulator.fail("GET", "b/k", Fault::Stall(1_000), 1);
        let mut part = vec![0; all.len()];
        assert_eq!(store.ranges(&object).read_at(0, &mut part).unwrap(), all.len(), "{url}");
        assert!(part == all, "{url}");
        // Again and again, and nothing more comes.
        emulator.fail("GET", "b/k", Fault::Stall(1_000), 1);
        emulator.fail("GET", "b/k", Fault::Stall(0), 100);
        let error = read(&store, &object, 0, None).unwrap_err();
        // The client of a bucket has a clock of its own, which may be the first.
        let silent = "the connection failed: nothing came for 200 ms; check the address, raise 'store.retries'";
        assert!(error.contains(url) && (url != web || error.contains(silent)), "{error}");
        emulator.forgive();
    }
    let (store, key) = Store::of(&web, &impatient).unwrap();
    emulator.fail("HEAD", "b/k", Fault::Held, 3);
    refused(store.head(&key), Kind::Network, "no answer within 200 ms");
    emulator.let_go();
}

#[test]
fn web_servers_without_ranges() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour { ranges: false, ..Behaviour::default() }).unwrap();
    let all = bytes(300_000);
    emulator.put("b", "k", all.clone());
    let (store, key) = Store::of(&format!("{}/b/k?signature=a/b", emulator.endpoint()), &options(&emulator)).unwrap();
    let object = store.head(&key).unwrap();
    assert_eq!((object.size, object.seekable), (300_000, false));
    emulator.fail("GET", "b/k", Fault::CutAfter(70_000), 2);
    assert!(read(&store, &object, 5, None).unwrap() == all[5..]);
    assert!(store.ranges(&object).read_at(0, &mut [0; 4]).is_err_and(|e| e.to_string().contains("as a whole only")));
    refused(store.writer("b/new"), Kind::Other, "reading single files");
}

#[test]
fn refusals_say_what_to_do() {
    let emulator = emulator();
    emulator.put("b", "k", bytes(10));
    let store = store(&emulator, "gs://b");
    refused(store.head("missing"), Kind::NotFound, "looking at 'gs://b/missing': there is no such bucket or object");
    refused(store.list("missing"), Kind::NotFound, "gs://b/missing");
    emulator.fail("GET", "b/k", Fault::Status(403), 1);
    refused(store.read("k"), Kind::Denied, "gcloud auth application-default login");
    emulator.fail("GET", "b/k", Fault::Status(429), 2);
    assert_eq!(store.read("k").unwrap(), bytes(10));
    emulator.fail("GET", "b/k", Fault::Status(429), 3);
    refused(store.read("k"), Kind::Busy, "lower 'store.parallel'");
    emulator.fail("GET", "list-type", Fault::Status(500), 3);
    refused(store.list("*"), Kind::Server, "listing 'gs://b/'");
    let gone = StoreOptions { retries: 0, endpoint: Some("http://127.0.0.1:1".into()), ..options(&emulator) };
    refused(Store::of("gs://b/k", &gone).unwrap().0.head("k"), Kind::Network, "store.endpoint");
    refused(Store::of("gs://b/a//b", &options(&emulator)).unwrap().0.head("a//b"), Kind::Other, "no key that can be asked for");
}

#[test]
fn a_change_while_reading_is_noticed() {
    let emulator = emulator();
    emulator.put("b", "k", bytes(1_000_000));
    for base in ["gs://b", "s3://b", &format!("{}/b", emulator.endpoint())] {
        let store = store(&emulator, base);
        let key = Store::of(&format!("{base}/k"), &options(&emulator)).unwrap().1;
        let object = store.head(&key).unwrap();
        let mut reader = store.reader(&object, 0, None);
        reader.read_exact(&mut [0; 100]).unwrap();
        emulator.put("b", "k", bytes(1_000_000));
        let error = reader.read_to_end(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("has changed since it was listed"), "{error}");
    }
}

#[test]
fn lists_over_pages() {
    let emulator = Emulator::start("127.0.0.1:0", Behaviour { page: 2, ..Behaviour::default() }).unwrap();
    for key in ["a.csv", "d/", "d/_x/y.csv", "d/b&c.csv", "d/c.csv", "d/e/f.csv", "dd.csv"] {
        emulator.put("b", key, if key == "d/" { "" } else { "x" });
    }
    for base in ["gs://b", "s3://b"] {
        let store = store(&emulator, base);
        let list = |pattern: &str| store.list(pattern).unwrap().into_iter().map(|o| o.key).collect::<Vec<_>>().join(" ");
        assert_eq!(list(""), "a.csv d/b&c.csv d/c.csv d/e/f.csv dd.csv", "{base}");
        assert_eq!((list("d"), list("d/*.csv")), ("d/b&c.csv d/c.csv d/e/f.csv".to_string(), "d/b&c.csv d/c.csv".to_string()));
        assert_eq!((list("d*.csv"), list("nothing*"), list("a.csv")), ("dd.csv".to_string(), String::new(), "a.csv".to_string()));
    }
}

#[test]
fn a_change_between_list_and_read_is_noticed() {
    let emulator = emulator();
    emulator.put("b", "k", bytes(1_000));
    for base in ["gs://b", "s3://b"] {
        let store = store(&emulator, base);
        let object = store.head("k").unwrap();
        emulator.fail("GET", "b/k", Fault::Touched, 1);
        assert!(read(&store, &object, 0, None).is_err_and(|e| e.contains("has changed since it was listed")), "{base}");
    }
}

/// Writes an object of 11 MB up to where it could be completed.
fn prepared(store: &Store, key: &str) -> Pending {
    let mut writer = store.writer_in("out/", key, Some("job")).unwrap();
    bytes(11_000_000).chunks(300_000).for_each(|chunk| writer.write_all(chunk).unwrap());
    writer.upload().unwrap()
}

#[test]
fn nothing_is_visible_until_it_is_completed() {
    let emulator = emulator();
    for base in ["gs://b", "s3://b"] {
        let store = store(&emulator, base);
        let pending = prepared(&store, "out/x.csv");
        assert!(store.list("out/").unwrap().is_empty());
        assert_eq!((emulator.uploads(), emulator.keys("b").len()), (1, 1), "an upload and its mark");
        // As the checkpoint keeps it.
        let pending: Pending = serde_json::from_value(serde_json::to_value(&pending).unwrap()).unwrap();
        store.complete(&pending).unwrap();
        store.complete(&pending).unwrap();
        assert!(emulator.get("b", "out/x.csv").unwrap() == bytes(11_000_000));
        assert_eq!((emulator.uploads(), emulator.keys("b")), (0, vec!["out/x.csv".to_string()]));
        // One whose answer is lost on the way, over what is there.
        let again = prepared(&store, "out/x.csv");
        emulator.fail("POST", "uploadId", Fault::Forgotten, 1);
        store.complete(&again).unwrap();
        // One that was given up.
        let third = prepared(&store, "out/x.csv");
        store.abort(&third).unwrap();
        store.abort(&third).unwrap();
        refused(store.complete(&third), Kind::NotFound, "its upload is gone");
        assert_eq!((emulator.uploads(), emulator.keys("b")), (0, vec!["out/x.csv".to_string()]));
        store.delete("out/x.csv").unwrap();
        store.delete("out/x.csv").unwrap();
    }
}

/// Uploads of texts below `out/`, ready to be completed.
fn uploads(store: &Store, texts: &[(&str, &str)]) -> Vec<Pending> {
    let one = |(key, text): &(&str, &str)| {
        let mut writer = store.writer_in("out/", key, None).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        writer.upload().unwrap()
    };
    texts.iter().map(one).collect()
}

/// What readers see, by several patterns; without what was not found.
fn seen(store: &Store) -> Vec<String> {
    let patterns = ["out", "out/", "out/*.csv", "out/a*", "out/k=1/*", "out/k=*/*.csv", "**/*.csv"];
    let keys = |pattern: &&str| match store.list(pattern) {
        Ok(found) => found.into_iter().map(|object| object.key).collect::<Vec<_>>().join(" "),
        Err(e) => format!("{:?}", e.kind()),
    };
    patterns.iter().map(keys).collect()
}

#[test]
fn several_objects_appear_together() {
    let emulator = emulator();
    for base in ["gs://b", "s3://c"] {
        let store = store(&emulator, base);
        let lock = store.lock("out/", None).unwrap();
        let nothing = ["NotFound", "", "", "", "", "", ""];
        let both = ["out/a-1.csv out/k=1/a-2.csv"; 2];
        let both = [&both[..], &["out/a-1.csv", "out/a-1.csv", "out/k=1/a-2.csv", "out/k=1/a-2.csv", both[0]]].concat();

        // Killed between the two.
        let two = uploads(&store, &[("out/a-1.csv", "1"), ("out/k=1/a-2.csv", "22")]);
        emulator.fail("POST", "a-2.csv?uploadId", Fault::Status(403), 1);
        refused(store.publish("out/", &two, BTreeSet::new(), &lock), Kind::Denied, "committing");
        store.complete(&two[0]).unwrap();
        assert_eq!(seen(&store), nothing, "{base}");
        assert_eq!(store.below("out/").unwrap().iter().filter(|object| object.key.ends_with(".csv")).count(), 1);
        let other = uploads(&store, &[("out/x.csv", "x")]);
        refused(store.publish("out/", &other, BTreeSet::new(), &lock), Kind::Exists, "another commit is unfinished");
        store.abort(&other[0]).unwrap();
        // Gone on with.
        store.publish("out/", &two, BTreeSet::new(), &lock).unwrap();
        assert_eq!(seen(&store), both, "{base}");
        assert!(store.committing("out/").unwrap().is_none());

        // Taken back: the old ones stay.
        let old: BTreeSet<String> = two.iter().map(|upload| upload.key.clone()).collect();
        let new = uploads(&store, &[("out/b-1.csv", "1"), ("out/b-2.csv", "2")]);
        emulator.fail("POST", "b-2.csv?uploadId", Fault::Status(403), 1);
        refused(store.publish("out/", &new, old.clone(), &lock), Kind::Denied, "committing");
        store.complete(&new[0]).unwrap();
        assert_eq!(seen(&store), both, "{base}");
        store.settle("out/", &lock).unwrap();
        store.abort(&new[1]).unwrap();
        assert_eq!(seen(&store), both, "{base}");
        assert!(store.committing("out/").unwrap().is_none());

        // Past the turning point: killed before the old ones were removed, and brought to its end.
        let new = uploads(&store, &[("out/c-1.csv", "1"), ("out/c-2.csv", "2")]);
        let (method, target) = if base == "gs://b" { ("DELETE", "out/a-1.csv") } else { ("POST", "?delete") };
        // The marks of the two uploads are removed before; that this fails is passed over.
        emulator.fail(method, target, Fault::Status(403), if base == "gs://b" { 1 } else { 4 });
        refused(store.publish("out/", &new, old, &lock), Kind::Denied, "removing");
        assert_eq!(store.committing("out/").unwrap().map(|(done, _)| done), Some(true));
        assert_eq!(store.list("out/").unwrap().len(), 2, "{base}");
        emulator.forgive();
        store.settle("out/", &lock).unwrap();
        store.settle("out/", &lock).unwrap();
        assert_eq!(seen(&store)[0], "out/c-1.csv out/c-2.csv");
        assert!(store.below("out/").unwrap().iter().all(|object| !object.key.contains("/a-") && !object.key.ends_with("commit")), "{base}");
        drop(lock);
    }
}

#[test]
fn what_a_killed_writer_leaves_is_found() {
    let emulator = emulator();
    let store = store(&emulator, "gs://b");
    drop(store.writer("out/dropped.csv").unwrap());
    assert_eq!((emulator.uploads(), emulator.keys("b").len()), (0, 0), "a dropped one clears up");
    let _killed = std::mem::ManuallyDrop::new(store.writer_in("out/", "out/day=1/killed.csv", Some("job 1")).unwrap());
    let found = store.unfinished("out/").unwrap();
    assert_eq!((found.len(), found[0].owner.as_deref(), found[0].pending.key.as_str()), (1, Some("job 1"), "out/day=1/killed.csv"));
    store.abort(&found[0].pending).unwrap();
    assert_eq!((emulator.uploads(), emulator.keys("b").len(), store.unfinished("out/").unwrap().len()), (0, 0, 0));
}

#[test]
fn a_part_that_fails_fails_the_writer() {
    let emulator = emulator();
    let store = store(&emulator, "gs://b");
    let mut writer = store.writer("x").unwrap();
    emulator.fail("PUT", "partNumber", Fault::Status(403), 1);
    writer.write_all(&bytes(1000)).unwrap();
    refused(writer.upload(), Kind::Denied, "writing 'gs://b/x'");
    assert_eq!((emulator.uploads(), emulator.keys("b").len()), (0, 0));
    let empty = store.writer("empty").unwrap().upload().unwrap();
    store.complete(&empty).unwrap();
    store.complete(&empty).unwrap();
    assert_eq!((emulator.get("b", "empty").unwrap().len(), emulator.keys("b").len()), (0, 1));
}

#[test]
fn one_writer_for_a_directory() {
    let emulator = emulator();
    for base in ["gs://b", "s3://b"] {
        let store = store(&emulator, base);
        let first = store.lock("out/", None).unwrap();
        first.check().unwrap();
        refused(store.lock("out/", None), Kind::Exists, "is being written by process");
        refused(store.lock("out/", Some("job")), Kind::Exists, "wait for it, or choose another path");
        // What a killed run left on another machine: the job comes back, and finds itself.
        let other = store.lock("elsewhere/", Some("job")).unwrap();
        refused(store.lock("elsewhere/", Some("job")), Kind::Exists, "is being written by");
        let mut left: serde_json::Value = serde_json::from_slice(&emulator.get("b", "elsewhere/_tidemill/lock").unwrap()).unwrap();
        drop(other);
        left["process"] = serde_json::Value::Null;
        emulator.put("b", "elsewhere/_tidemill/lock", left.to_string());
        refused(store.lock("elsewhere/", Some("another")), Kind::Exists, "is being written by host");
        store.lock("elsewhere/", Some("job")).unwrap().check().unwrap();
        // Files of a directory have locks of their own.
        let file = store.lock_file("out/x.csv").unwrap();
        refused(store.lock_file("out/x.csv"), Kind::Exists, "/out/x.csv' is being written");
        drop(store.lock_file("out/y.csv").unwrap());
        drop((first, file));
        drop(store.lock("out/", None).unwrap());
        assert!(emulator.keys("b").is_empty(), "{:?}", emulator.keys("b"));
    }
}

#[test]
fn a_lock_whose_answer_was_lost_is_held() {
    let emulator = emulator();
    let store = store(&emulator, "gs://b");
    emulator.fail("PUT", "lock", Fault::Forgotten, 1);
    drop(store.lock("out/", None).unwrap());
    assert!(emulator.keys("b").is_empty());
}

#[test]
fn the_first_one_puts() {
    let emulator = emulator();
    for base in ["gs://b", "s3://c"] {
        let store = store(&emulator, base);
        assert!(store.put_new("k", "one".into()).unwrap());
        assert!(!store.put_new("k", "two".into()).unwrap());
        assert_eq!(store.read("k").unwrap(), "one");
        store.put("k", "three".into()).unwrap();
        assert_eq!(store.read("k").unwrap(), "three");
    }
}

#[test]
fn credentials_of_options() {
    let with = |secret: Option<&str>| {
        let options = StoreOptions {
            access_key: Some("id".into()),
            secret_key: secret.map(Secret::new),
            region: Some("eu-1".into()),
            ..StoreOptions::default()
        };
        Store::of("s3://b/k", &options).map(|(_, key)| key)
    };
    assert_eq!(with(Some("secret")).unwrap(), "k");
    let missing = StoreOptions { credentials_file: Some("/no/such/file".into()), ..StoreOptions::default() };
    refused(Store::of("gs://b/k", &missing), Kind::Other, "preparing access to 'gs://b'");
}
