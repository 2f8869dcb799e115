//! Stores against a hash map that does the same; files that are damaged, missing, foreign.

use std::collections::{BTreeMap, HashMap};

use arrow::array::{Array, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;

use super::background::FILTER_KEYS_MIN;
use super::system::{self, Advice, advise};
use super::*;
use crate::hash::{mix, shard};

const TYPES: [DataType; 3] = [DataType::Int64, DataType::Utf8, DataType::Int64];

/// Rows by key: a text, or NULL, and a version.
type Model = HashMap<i64, (Option<String>, i64)>;

/// How keys are hashed.
type Hasher = fn(i64) -> u64;

fn good(key: i64) -> u64 {
    mix(key as u64)
}

/// Sixteen hashes for all keys: every one is of many keys.
fn poor(key: i64) -> u64 {
    mix(key as u64 % 16)
}

/// How much memory the stores of these tests have for filters; one in three has hardly any.
fn memory(seed: u64) -> usize {
    if seed.is_multiple_of(3) { 2 << 10 } else { usize::MAX }
}

fn options(dir: &Path, name: &str, run_bytes: usize) -> ColdOptions {
    ColdOptions { directory: dir.to_path_buf(), name: name.into(), run_bytes, memory: usize::MAX }
}

fn columns(rows: &[(i64, (Option<String>, i64))]) -> Vec<ArrayRef> {
    vec![
        Arc::new(rows.iter().map(|(k, _)| *k).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|(_, (text, _))| text.clone()).collect::<StringArray>()),
        Arc::new(rows.iter().map(|(_, (_, version))| *version).collect::<Int64Array>()),
    ]
}

fn put(store: &mut ColdStore, rows: &[(i64, (Option<String>, i64))], hash: Hasher) {
    let hashes: Vec<u64> = rows.iter().map(|(k, _)| hash(*k)).collect();
    store.put(&hashes, &columns(rows)).unwrap();
}

fn delete(store: &mut ColdStore, keys: &[i64], hash: Hasher) {
    let hashes: Vec<u64> = keys.iter().map(|k| hash(*k)).collect();
    store.delete(&hashes, &[Arc::new(Int64Array::from(keys.to_vec()))]).unwrap();
}

fn rows(hashes: &[u64], columns: &[ArrayRef], hash: Hasher, into: &mut Model) {
    let (keys, texts) = (columns[0].as_primitive::<Int64Type>(), columns[1].as_string::<i32>());
    let versions = columns[2].as_primitive::<Int64Type>();
    for row in 0..hashes.len() {
        assert_eq!(hashes[row], hash(keys.value(row)));
        let text = texts.is_valid(row).then(|| texts.value(row).to_owned());
        assert!(into.insert(keys.value(row), (text, versions.value(row))).is_none(), "key {} twice", keys.value(row));
    }
}

fn read(store: &mut ColdStore, keys: &[i64], hash: Hasher) -> Model {
    let hashes: Vec<u64> = keys.iter().map(|k| hash(*k)).collect();
    let mut maybe = Vec::new();
    store.maybe(&hashes, &mut maybe);
    let asked: Vec<u64> = maybe.iter().map(|row| hashes[*row as usize]).collect();
    let mut found = Model::new();
    if let Some((hashes, columns)) = store.read(&asked).unwrap() {
        rows(&hashes, &columns, hash, &mut found);
    }
    found
}

fn all(store: &ColdStore, hash: Hasher) -> Model {
    let (mut found, mut last) = (Model::new(), 0);
    let mut piece = |hashes: &[u64], columns: &[ArrayRef]| -> Result<(), ColdError> {
        assert!(hashes.is_sorted() && hashes[0] >= last);
        last = hashes[hashes.len() - 1];
        rows(hashes, columns, hash, &mut found);
        Ok(())
    };
    store.scan(&mut piece).unwrap();
    found
}

/// Numbers that are the same in every run of the test.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % n
    }
}

/// Puts, deletes and reads at random; now and then checkpoints, and opens anew at another number of shards.
fn against_the_model(seed: u64, keys: u64, steps: usize, run_bytes: usize, hash: Hasher) {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(seed);
    let mut model = Model::new();
    let open = |life: usize, shards: usize, files: &[StateFile]| -> Vec<ColdStore> {
        let open = |s: usize| {
            let options = ColdOptions { memory: memory(seed), ..options(dir.path(), &format!("op-{life}-{s}"), run_bytes) };
            ColdStore::open(options, TYPES.to_vec(), 1, files.to_vec(), move |h| shard(h, shards) == s).unwrap()
        };
        (0..shards).map(open).collect()
    };
    let mut stores = open(0, 1, &[]);
    for step in 0..steps {
        let shards = stores.len();
        let wanted = |random: &mut Random, n: u64| -> Vec<i64> {
            let mut some: Vec<i64> = (0..n).map(|_| random.below(keys) as i64).collect();
            some.sort_unstable();
            some.dedup();
            // Any order will do.
            some.sort_by_key(|k| mix(*k as u64 ^ seed));
            some
        };
        match random.below(10) {
            0..5 => {
                let some: Vec<_> = wanted(&mut random, 150)
                    .into_iter()
                    .map(|k| (k, ((k % 5 > 0).then(|| "x".repeat((k as usize * 7 + step) % 90)), step as i64)))
                    .collect();
                for (s, store) in stores.iter_mut().enumerate() {
                    let mine: Vec<_> = some.iter().filter(|(k, _)| shard(hash(*k), shards) == s).cloned().collect();
                    put(store, &mine, hash);
                }
                model.extend(some);
            }
            5..7 => {
                let some = wanted(&mut random, 60);
                for (s, store) in stores.iter_mut().enumerate() {
                    let mine: Vec<i64> = some.iter().copied().filter(|k| shard(hash(*k), shards) == s).collect();
                    delete(store, &mine, hash);
                }
                some.iter().for_each(|k| drop(model.remove(k)));
            }
            7..9 => {
                let some = wanted(&mut random, 80);
                for (s, store) in stores.iter_mut().enumerate() {
                    let mine: Vec<i64> = some.iter().copied().filter(|k| shard(hash(*k), shards) == s).collect();
                    let hashes: Vec<u64> = mine.iter().map(|k| hash(*k)).collect();
                    let expect: Model =
                        model.iter().filter(|(k, _)| hashes.contains(&hash(**k))).map(|(k, row)| (*k, row.clone())).collect();
                    assert_eq!(read(store, &mine, hash), expect, "seed {seed}, step {step}");
                }
            }
            _ if step % 3 == 0 => {
                let mut files = Vec::new();
                stores.iter_mut().for_each(|store| files.extend(store.files().unwrap()));
                files.iter().for_each(|file| file.verify(&TYPES, 1).unwrap());
                // What comes after the checkpoint is lost.
                put(&mut stores[shard(hash(0), shards)], &[(0, (None, -1))], hash);
                stores = Vec::new();
                stores.extend(open(step + 1, 1 + random.below(4) as usize, &files));
            }
            _ => {
                let whole: BTreeMap<_, _> = stores.iter().flat_map(|store| all(store, hash)).collect();
                assert_eq!(whole, model.clone().into_iter().collect::<BTreeMap<_, _>>(), "seed {seed}, step {step}");
            }
        }
    }
    for store in &mut stores {
        store.settle().unwrap();
    }
    let whole: BTreeMap<_, _> = stores.iter().flat_map(|store| all(store, hash)).collect();
    assert_eq!(whole, model.into_iter().collect::<BTreeMap<_, _>>(), "seed {seed}");
}

#[test]
fn stores_do_as_a_map_does() {
    for seed in 0..4 {
        against_the_model(seed, 600, 250, 2 << 10, good);
        against_the_model(seed + 10, 40_000, 120, 16 << 10, good);
    }
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    for seed in 0..4 {
        against_the_model(seed, 300, 200, 4 << 10, poor);
    }
}

/// A key that one half deleted and merged away stays deleted, though the other half still has the file that it was in.
#[test]
fn what_a_shard_deleted_does_not_come_back_by_the_file_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, files: &[StateFile], s: usize, n: usize| {
        ColdStore::open(options(dir.path(), name, 256), TYPES.to_vec(), 1, files.to_vec(), move |h| shard(h, n) == s).unwrap()
    };
    let mut one = open("a", &[], 0, 1);
    let keys: Vec<i64> = (0..200).collect();
    put(&mut one, &keys.iter().map(|k| (*k, (None, 1))).collect::<Vec<_>>(), good);
    let files = one.files().unwrap();
    let (mut left, mut right) = (open("b", &files, 0, 2), open("c", &files, 1, 2));
    assert!((left.stats().rows + right.stats().rows).abs_diff(200) <= 2, "each counts its part");
    let of_left: Vec<i64> = keys.iter().copied().filter(|k| shard(good(*k), 2) == 0).collect();
    of_left.chunks(10).for_each(|some| delete(&mut left, some, good));
    left.settle().unwrap();
    assert!(all(&left, good).is_empty() && left.stats().compactions > 0);
    let files = [left.files().unwrap(), right.files().unwrap()].concat();
    let mut again = open("d", &files, 0, 1);
    assert_eq!(all(&again, good).len(), 200 - of_left.len());
    assert!(read(&mut again, &of_left, good).is_empty());
}

#[test]
fn files_of_a_checkpoint_stay_and_others_go() {
    let dir = tempfile::tempdir().unwrap();
    let links = tempfile::tempdir().unwrap();
    let count = || fs::read_dir(dir.path()).unwrap().count();
    let mut store = ColdStore::create(options(dir.path(), "op", 1 << 10), TYPES.to_vec(), 1).unwrap();
    assert!(store.files().unwrap().is_empty());
    let rows: Vec<_> = (0..3000i64).map(|k| (k, (Some(format!("row {k}")), k))).collect();
    rows.chunks(50).for_each(|some| put(&mut store, some, good));
    let files = store.files().unwrap();
    // More rows, and merges: what was told is there still.
    rows.chunks(50).for_each(|some| put(&mut store, some, good));
    store.settle().unwrap();
    let stats = store.stats();
    assert!(stats.compactions > 0 && stats.runs < 20 && stats.written_bytes > stats.disk_bytes, "{stats:?}");
    files.iter().for_each(|file| file.verify(&TYPES, 1).unwrap());
    for file in &files {
        fs::hard_link(&file.path, links.path().join(&file.name)).unwrap();
    }
    let second = store.files().unwrap();
    store.settle().unwrap();
    assert!(count() <= second.len() + store.stats().runs as usize);
    drop(store);
    assert_eq!(count(), second.len(), "only the last checkpoint's files");
    // Leftovers of a store of the same name go, its neighbours' do not, nor a checkpoint's.
    fs::write(dir.path().join("op-x.run"), "").unwrap();
    let linked: Vec<StateFile> = files.iter().map(|f| StateFile { path: links.path().join(&f.name), ..f.clone() }).collect();
    let mut store = ColdStore::open(options(dir.path(), "op", 1 << 10), TYPES.to_vec(), 1, linked.clone(), |_| true).unwrap();
    // The links may be merged by now.
    let there = |name: &str| dir.path().join(name).exists();
    let stale = |file: &&StateFile| !files.iter().any(|f| f.name == file.name);
    assert!(there("op-x.run") && !second.iter().filter(stale).any(|file| there(&file.name)), "the neighbour's, and no others");
    assert_eq!(all(&store, good), rows.iter().cloned().collect::<Model>());
    put(&mut store, &rows[..10], good);
    let third = store.files().unwrap();
    assert!(third.iter().all(|file| !files.iter().any(|f| f.name == file.name)), "names are given once");
    drop(store);
    linked.iter().for_each(|file| file.verify(&TYPES, 1).unwrap());
}

/// What a checkpoint did not take is in no file afterwards.
#[test]
fn a_store_without_checkpoints_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ColdStore::create(options(dir.path(), "op", 1 << 10), TYPES.to_vec(), 1).unwrap();
    (0..100i64).for_each(|n| put(&mut store, &[(n, (Some("x".repeat(300)), n))], good));
    store.settle().unwrap();
    assert!(store.stats().disk_bytes > 0);
    drop(store);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// The filter grows with the store, and refuses what is not there before and after.
#[test]
fn hashes_that_are_not_there_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ColdStore::create(options(dir.path(), "op", 1 << 20), TYPES.to_vec(), 1).unwrap();
    let keys = FILTER_KEYS_MIN as i64 * 3 / 2;
    let piece = |from: i64| (from..(from + 8192).min(keys)).map(|k| (k, (None, 1))).collect::<Vec<_>>();
    (0..keys).step_by(8192).for_each(|from| put(&mut store, &piece(from), good));
    store.settle().unwrap();
    let files = store.files().unwrap();
    let check = |store: &ColdStore, one_in: i64| {
        let (mut there, mut not) = (Vec::new(), Vec::new());
        store.maybe(&(0..keys).map(good).collect::<Vec<_>>(), &mut there);
        assert!(there.iter().copied().eq(0..keys as u32));
        store.maybe(&(keys..2 * keys).map(good).collect::<Vec<_>>(), &mut not);
        assert!((not.len() as i64) < keys / one_in, "{} of {keys}", not.len());
    };
    check(&store, 100);
    let grown = store.shared.lock().filter.as_ref().unwrap().memory();
    assert!(grown > StoreFilter::new(FILTER_KEYS_MIN, 0, u64::MAX).memory() * 5 / 4);
    // Right after opening, before there is a filter of the whole.
    let mut again = ColdStore::open(options(dir.path(), "again", 1 << 20), TYPES.to_vec(), 1, files, |_| true).unwrap();
    // Each run's filter may be wrong.
    check(&again, 5);
    // Reading is enough for one to be begun.
    assert_eq!(again.read(&[good(0)]).unwrap().unwrap().0, [good(0)]);
    {
        let state = again.shared.lock();
        assert!(state.filter.is_some() || !matches!(state.growth, Growth::None));
    }
    again.settle().unwrap();
    assert!(again.shared.lock().filter.is_some());
    check(&again, 100);
    assert!(again.stats().filter_negatives > 0 && again.stats().memory_bytes > 0);
}

/// Filters and indexes keep within their memory, before and after the store is opened anew, and nothing is forgotten.
#[test]
fn filters_keep_within_their_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (keys, memory) = (1_000_000i64, 2 << 20);
    let options = |name: &str| ColdOptions { memory, ..options(dir.path(), name, 1 << 20) };
    let mut store = ColdStore::create(options("op"), TYPES.to_vec(), 1).unwrap();
    let piece = |from: i64| (from..(from + 8192).min(keys)).map(|k| (k, (None, 1))).collect::<Vec<_>>();
    (0..keys).step_by(8192).for_each(|from| put(&mut store, &piece(from), good));
    let files = store.files().unwrap();
    store.settle().unwrap();
    let mut again = ColdStore::open(options("again"), TYPES.to_vec(), 1, files, |_| true).unwrap();
    assert_eq!(again.read(&[good(0)]).unwrap().unwrap().0, [good(0)]);
    again.settle().unwrap();
    for store in [&store, &again] {
        let filters = {
            let state = store.shared.lock();
            state.runs.iter().map(|run| run.memory()).sum::<usize>() + state.filter.as_ref().unwrap().memory()
        };
        assert!(filters <= memory, "{filters} bytes");
        let mut there = Vec::new();
        store.maybe(&(0..keys).map(good).collect::<Vec<_>>(), &mut there);
        assert_eq!(there.len() as i64, keys);
    }
}

/// Keys that come and go do not make the filter larger for ever.
#[test]
fn a_filter_does_not_keep_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ColdStore::create(options(dir.path(), "op", 1 << 20), TYPES.to_vec(), 1).unwrap();
    let piece = |from: i64| (from..from + 10_000).map(|k| (k, (None, 1))).collect::<Vec<_>>();
    for from in (0..3_000_000).step_by(10_000) {
        put(&mut store, &piece(from), good);
        if from >= 20_000 {
            delete(&mut store, &(from - 20_000..from - 10_000).collect::<Vec<_>>(), good);
        }
        if from % 100_000 == 0 {
            store.settle().unwrap();
        }
    }
    store.settle().unwrap();
    let filter = store.shared.lock().filter.clone().unwrap();
    assert!(filter.memory() < StoreFilter::bytes(1_600_000), "{} bytes", filter.memory());
    assert_eq!(all(&store, good).len(), 20_000);
}

/// A store of a few runs of a few pages, and its files.
fn sample(dir: &Path) -> Vec<StateFile> {
    let mut store = ColdStore::create(options(dir, "op", 64 << 10), TYPES.to_vec(), 1).unwrap();
    for n in 0..3i64 {
        put(&mut store, &(0..400).map(|k| (k * 3 + n, (Some("text".repeat(20)), n))).collect::<Vec<_>>(), good);
        store.files().unwrap();
    }
    store.files().unwrap()
}

fn try_all(dir: &Path, files: &[StateFile], types: &[DataType]) -> Result<usize, ColdError> {
    let mut store = ColdStore::open(options(dir, "reader", 1 << 20), types.to_vec(), 1, files.to_vec(), |_| true)?;
    let mut rows = 0;
    store.scan(&mut |hashes, _| {
        rows += hashes.len();
        Ok(())
    })?;
    let keys: Vec<u64> = (0..1200).map(good).collect();
    let read = store.read(&keys)?.map_or(0, |(hashes, _)| hashes.len());
    assert_eq!(read, rows);
    Ok(rows)
}

#[test]
fn damage_is_found_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let files = sample(dir.path());
    assert_eq!(try_all(dir.path(), &files, &TYPES).unwrap(), 1200);
    let run = files.iter().find(|f| f.name.ends_with(".run")).unwrap();
    let list = files.iter().find(|f| f.name.ends_with(".list")).unwrap();
    let whole = fs::read(&run.path).unwrap();
    // No byte of a run may change: some in each part of it.
    for at in (0..40).chain((40..whole.len() - 200).step_by(997)).chain((whole.len() - 200..whole.len()).step_by(7)) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&run.path, bytes).unwrap();
        let error = try_all(dir.path(), &files, &TYPES).unwrap_err().to_string();
        assert!(error.contains(&run.name) && error.contains("--fresh"), "byte {at}: {error}");
        assert!(run.verify(&TYPES, 1).is_err(), "byte {at}");
        if (100..4000).contains(&at) {
            assert!(error.contains("page 0 at byte 32"), "byte {at}: {error}");
        }
    }
    for length in [0, 10, 31, 40, whole.len() / 2, whole.len() - 1] {
        fs::write(&run.path, &whole[..length]).unwrap();
        let error = try_all(dir.path(), &files, &TYPES).unwrap_err().to_string();
        assert!(error.contains(&run.name) && error.contains("damaged"), "{length} bytes: {error}");
    }
    let mut other_version = whole.clone();
    other_version[8] = 9;
    let last = fs::read(&files[1].path).unwrap();
    for (content, why) in [(&other_version, "another version (layout 9, this one reads 1)"), (&last, "damaged")] {
        fs::write(&run.path, content).unwrap();
        let error = try_all(dir.path(), &files, &TYPES).unwrap_err().to_string();
        assert!(error.contains(&run.name) && error.contains(why), "{error}");
    }
    fs::remove_file(&run.path).unwrap();
    let error = try_all(dir.path(), &files, &TYPES).unwrap_err().to_string();
    assert!(error.contains(&run.name), "{error}");
    fs::write(&run.path, &whole).unwrap();
    let error = try_all(dir.path(), &files, &[DataType::Int64, DataType::Utf8, DataType::Int32]).unwrap_err().to_string();
    assert!(error.contains("other columns"), "{error}");
    let text = fs::read_to_string(&list.path).unwrap();
    fs::write(&list.path, text.replace(&run.name[..2], "xx")).unwrap();
    let error = try_all(dir.path(), &files, &TYPES).unwrap_err().to_string();
    assert!(error.contains(&list.name) && error.contains("damaged"), "{error}");
    fs::write(&list.path, text).unwrap();
    let without: Vec<StateFile> = files.iter().filter(|f| f.name != run.name).cloned().collect();
    let error = try_all(dir.path(), &without, &TYPES).unwrap_err().to_string();
    assert!(error.contains(&run.name) && error.contains("not there"), "{error}");
    assert_eq!(try_all(dir.path(), &files, &TYPES).unwrap(), 1200);
}

/// A disk that cannot be written is told at the next call; when it can be again, nothing is missing.
#[test]
fn errors_of_the_threads_are_told_and_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("state");
    let mut store = ColdStore::create(options(&inner, "op", 1 << 10), TYPES.to_vec(), 1).unwrap();
    fs::remove_dir(&inner).unwrap();
    let rows: Vec<_> = (0..30i64).map(|k| (k, (Some("x".repeat(50)), k))).collect();
    put(&mut store, &rows, good);
    let error = store.settle().unwrap_err().to_string();
    assert!(error.contains("state/op-") && error.contains("creating"), "{error}");
    assert_eq!(all(&store, good).len(), 30, "still in memory");
    fs::create_dir(&inner).unwrap();
    // The thread may have tried once more before the directory was there.
    let files = store.files().or_else(|_| store.files()).unwrap();
    assert_eq!(files.len(), 2);
    assert_eq!(all(&store, good).len(), 30);
    let full = ColdError::io("writing the state file", &inner, &std::io::Error::from_raw_os_error(28)).to_string();
    assert!(full.contains("free some space"), "{full}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ColdStore::create(options(&file, "op", 1), TYPES.to_vec(), 1).err().unwrap().to_string();
    assert!(error.contains("directory for state"), "{error}");
}

/// Where the system says what it holds of a file, and lets go of it when it is told to: not in memory that is a disk.
#[test]
fn a_run_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ColdStore::create(options(dir.path(), "op", 32 << 20), TYPES.to_vec(), 1).unwrap();
    let rows: Vec<_> = (0..20_000i64).map(|k| (k, (Some("x".repeat(500)), k))).collect();
    put(&mut store, &rows, good);
    let files = store.files().unwrap();
    let place = Place::new(dir.path().to_path_buf(), "op".into(), &TYPES, 1).unwrap();
    let file = files.iter().max_by_key(|file| file.bytes).unwrap();
    let run = Run::open(&place, file.path.clone(), file.name.clone(), None).unwrap();
    fs::read(&file.path).unwrap();
    if !run.is_cached() {
        return println!("not looked at: the system does not say what it holds of a file that has just been read");
    }
    advise(&run.file, 0, 0, Advice::Done);
    let before = system::cached(&run.file, 0, run.bytes).unwrap();
    run.fetch(|| false);
    assert_eq!(system::cached(&run.file, 0, run.bytes).unwrap(), before);
    run.fetch(|| true);
    assert!(run.is_cached());

    drop(store);
    advise(&run.file, 0, 0, Advice::Done);
    if run.is_cached() {
        return println!("not looked at: the system does not let go of what it holds of a file");
    }
    let store = ColdStore::open(options(dir.path(), "op", 32 << 20), TYPES.to_vec(), 1, files, |_| true).unwrap();
    let mut state = store.shared.lock();
    while state.fetching {
        state = store.shared.wait(state);
    }
    assert!(run.is_cached(), "a store fetches what it begins with");
}

#[test]
fn rows_larger_than_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = ColdStore::create(options(dir.path(), "op", 1 << 16), TYPES.to_vec(), 1).unwrap();
    let rows: Vec<_> = (0..40i64).map(|k| (k, (Some("ä".repeat(k as usize * 1000)), k))).collect();
    put(&mut store, &rows, poor);
    store.files().unwrap();
    store.settle().unwrap();
    assert_eq!(all(&store, poor), rows.iter().cloned().collect::<Model>());
    assert_eq!(read(&mut store, &[3], poor).len(), 3, "3, 19 and 35 have one hash");
}

#[test]
fn stores_move_between_threads() {
    fn send<T: Send>() {}
    send::<ColdStore>();
}
