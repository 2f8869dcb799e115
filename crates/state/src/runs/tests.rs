//! Tests of what happens to files of state when a job is divided among other numbers of shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};

use super::*;
use crate::disk::{ColdOptions, ColdStore};
use crate::hash;

#[test]
fn ranges_are_those_of_shards() {
    for shards in [1, 2, 3, 7, 64] {
        let mut next = Some(0u64);
        for shard in 0..shards {
            let range = HashRange::of_shard(shard, shards);
            assert_eq!(Some(range.from), next, "{shard} of {shards}");
            for hash in [range.from, range.from + 1, range.to - 1, range.to] {
                assert_eq!(hash::shard(hash, shards), shard, "{hash:x} of {shards}");
                assert!(range.contains(hash));
            }
            assert!(range.overlaps(HashRange::ALL) && range.overlaps(range));
            next = range.to.checked_add(1);
            let behind = next.map(|from| HashRange { from, to: u64::MAX });
            assert!(behind.is_none_or(|behind| !range.overlaps(behind) && !behind.overlaps(range)));
        }
        assert_eq!(next, None, "all hashes are in one of {shards}");
    }
}

fn store(directory: &Path, run: usize, shard: usize, shards: usize, runs: &[StateRuns]) -> ColdStore {
    let hashes = HashRange::of_shard(shard, shards);
    let mut files: Vec<StateFile> = Vec::new();
    for file in runs.iter().filter(|runs| runs.hashes.overlaps(hashes)).flat_map(|runs| &runs.files) {
        if files.iter().all(|known| known.name != file.name) {
            files.push(file.clone());
        }
    }
    let directory: PathBuf = directory.join(format!("run-{run}-{shard}"));
    let options = ColdOptions { directory, name: format!("test-{run}-{shard}"), run_bytes: 1 << 14, memory: usize::MAX };
    ColdStore::open(options, vec![DataType::Int64, DataType::Int64], 1, files, move |hash| hashes.contains(hash)).unwrap()
}

fn columns(rows: &[(i64, i64)]) -> (Vec<u64>, Vec<ArrayRef>) {
    let column = |of: fn(&(i64, i64)) -> i64| Arc::new(rows.iter().map(of).collect::<Int64Array>()) as ArrayRef;
    let keys = column(|row| row.0);
    let mut hashes = Vec::new();
    hash::rows(std::slice::from_ref(&keys), rows.len(), &mut hashes).unwrap();
    (hashes, vec![keys, column(|row| row.1)])
}

/// State is divided among other numbers of shards again and again, while keys change and go: what is
/// deleted stays so, whatever old files still hold it.
#[test]
fn divided_anew_nothing_comes_back() {
    let directory = std::env::temp_dir().join(format!("tidemill-runs-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    let mut model: BTreeMap<i64, i64> = BTreeMap::new();
    let mut runs: Vec<StateRuns> = Vec::new();
    for (run, shards) in [1, 3, 2, 2, 5, 1].into_iter().enumerate() {
        let round = run as i64;
        let mut stores: Vec<ColdStore> = (0..shards).map(|shard| store(&directory, run, shard, shards, &runs)).collect();
        let changed: Vec<(i64, i64)> = (0..3000).filter(|key| (key + round) % 3 == 0).map(|key| (key, key * 10 + round)).collect();
        let gone: Vec<(i64, i64)> = (0..3000).filter(|key| (key + round) % 7 == 1 && (key + round) % 3 > 0).map(|key| (key, 0)).collect();
        model.extend(changed.iter().copied());
        model.retain(|key, _| gone.iter().all(|(other, _)| other != key));
        let mine = |rows: &[(i64, i64)], shard: usize| {
            let (hashes, _) = columns(rows);
            let owned = rows.iter().zip(hashes).filter(|(_, hash)| hash::shard(*hash, shards) == shard);
            columns(&owned.map(|(row, _)| *row).collect::<Vec<_>>())
        };
        runs.clear();
        for (shard, store) in stores.iter_mut().enumerate() {
            let (hashes, rows) = mine(&changed, shard);
            store.put(&hashes, &rows).unwrap();
            let (hashes, rows) = mine(&gone, shard);
            store.delete(&hashes, &rows[..1]).unwrap();
            runs.push(StateRuns { hashes: HashRange::of_shard(shard, shards), files: store.files().unwrap() });
        }
        let mut found: BTreeMap<i64, i64> = BTreeMap::new();
        for (shard, store) in stores.iter_mut().enumerate() {
            let (hashes, _) = mine(&(-100..3100).map(|key| (key, 0)).collect::<Vec<_>>(), shard);
            let mut maybe = Vec::new();
            store.maybe(&hashes, &mut maybe);
            let asked: Vec<u64> = maybe.iter().map(|at| hashes[*at as usize]).collect();
            let Some((_, rows)) = store.read(&asked).unwrap() else { continue };
            let (keys, values) = (rows[0].as_primitive::<Int64Type>(), rows[1].as_primitive::<Int64Type>());
            for row in 0..keys.len() {
                assert_eq!(found.insert(keys.value(row), values.value(row)), None, "a key is found once");
            }
        }
        assert_eq!(found, model, "run {run} with {shards} shards");
    }
    fs::remove_dir_all(&directory).unwrap();
}
