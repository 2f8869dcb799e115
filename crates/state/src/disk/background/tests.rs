//! Merging, resting and fetching of a store's threads.

use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;

use super::fetch::FETCHING;
use super::pace::{COMING_BYTES, COMING_TIMES, LARGE_BYTES, Pace, REST, Turn};
use super::tidy::Task;
use super::tiers::{FAN_IN, FAN_IN_NEW, MERGE_MAX, RUNS_PILED, tiered};
use super::*;
use crate::disk::system::{self, Advice, advise};
use crate::disk::{ColdOptions, ColdStore};

/// A store that waits for merges never waits in vain, and one that is in order is left alone.
#[test]
fn what_is_merged() {
    let (small, large) = (1 << 10, 8 << 20);
    let eight = |sizes: &[u64]| tiered(sizes, FAN_IN);
    assert_eq!(eight(&[]), None);
    assert_eq!(eight(&[large * 64, large * 8, large, large, small, small]), None);
    assert_eq!(eight(&[&[large * 64][..], &[large; 8]].concat()), Some(1..9));
    assert_eq!(eight(&[&[large][..], &[small; 7], &[large]].concat()), None);
    assert_eq!(tiered(&[large; 31], FAN_IN_NEW), None);
    assert_eq!(tiered(&[large; 40], FAN_IN_NEW), Some(0..32));
    for (behind, fan_in) in (0..RUNS_MAX).flat_map(|behind| [(behind, FAN_IN), (behind, FAN_IN_NEW)]) {
        // Checkpoints' runs, and behind them full buffers.
        let sizes = [vec![small; RUNS_MAX - behind], vec![large; behind]].concat();
        let range = tiered(&sizes, fan_in).unwrap_or_else(|| panic!("{behind} full buffers"));
        assert!(range.len() > 1 && range.len() <= MERGE_MAX && range.end <= sizes.len(), "{range:?}");
    }
}

/// While somebody merges much, no other large merge is begun, but a small one, and one of many runs.
#[test]
fn large_merges_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let options = ColdOptions { directory: dir.path().to_path_buf(), name: "op".into(), run_bytes: 1 << 20, memory: usize::MAX };
    let mut store = ColdStore::create(options, vec![DataType::Int64], 1).unwrap();
    store.put(&[1, 2, 3], &[Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef]).unwrap();
    let files = store.files().unwrap();
    let file = files.iter().find(|file| file.name.ends_with(".run")).unwrap();
    let place = || Place::new(dir.path().to_path_buf(), "op".into(), &[DataType::Int64], 1).unwrap();
    let runs = |count: usize, bytes: u64| {
        let run = || {
            let mut run = Run::open(&place(), file.path.clone(), file.name.clone(), None).unwrap();
            run.bytes = bytes;
            Arc::new(run)
        };
        Shared::new(place(), (0..count).map(|_| run()).collect(), Vec::new())
    };
    let begins = |shared: &Shared, turn: &mut Turn| matches!(shared.lock().task(&shared.place, turn), Some(Task::Merge { .. }));
    let (large, small, many) = (runs(FAN_IN, LARGE_BYTES), runs(FAN_IN, 1 << 10), runs(RUNS_PILED, LARGE_BYTES));
    let mut turn = Turn::default();
    assert!(begins(&large, &mut turn) && turn.held.is_some());
    let mut other = Turn::default();
    assert!(!begins(&runs(FAN_IN, LARGE_BYTES), &mut other) && other.missed);
    for shared in [&small, &many] {
        let mut other = Turn::default();
        assert!(begins(shared, &mut other) && !other.missed);
    }
    drop(turn);
    assert!(begins(&runs(FAN_IN, LARGE_BYTES), &mut other) && other.held.is_some());
    // What a store begins with is read before, unless many runs have come meanwhile.
    [&small, &many].iter().for_each(|shared| shared.lock().fetching = true);
    assert!(!begins(&small, &mut other) && begins(&many, &mut other));
}

/// It does not wait for its turn to fetch, and takes nothing that it did not use.
#[test]
fn a_store_ends_while_another_fetches() {
    let dir = tempfile::tempdir().unwrap();
    let options = ColdOptions { directory: dir.path().to_path_buf(), name: "op".into(), run_bytes: 1 << 20, memory: usize::MAX };
    let mut store = ColdStore::create(options.clone(), vec![DataType::Int64], 1).unwrap();
    let keys: Vec<u64> = (0..10_000).collect();
    store.put(&keys, &[Arc::new(Int64Array::from_iter_values(0..10_000)) as ArrayRef]).unwrap();
    let files = store.files().unwrap();
    drop(store);
    for file in &files {
        advise(&std::fs::File::open(&file.path).unwrap(), 0, 0, Advice::Done);
    }
    let turn = FETCHING.lock().unwrap();
    let store = ColdStore::open(options, vec![DataType::Int64], 1, files, |_| true).unwrap();
    if store.shared.lock().runs.iter().all(|run| run.missing() == 0) {
        return println!("not looked at: the system does not let go of what it holds of a file, or does not say so");
    }
    assert!(store.shared.lock().fetching);
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        let _ = ended.send(());
    });
    end.recv_timeout(Duration::from_secs(60)).expect("it ends");
    drop(turn);
}

/// A merge that can wait rests for a multiple of what it worked, but not if there is a hurry, nor when the store ends.
#[test]
fn merges_rest() {
    let dir = tempfile::tempdir().unwrap();
    let shared = Shared::new(Place::new(dir.path().to_path_buf(), "op".into(), &[DataType::Int64], 1).unwrap(), Vec::new(), Vec::new());
    let (pace, before) = (shared.pace(), system::processor_time().expect("the system tells"));
    while system::processor_time().unwrap() < before + Duration::from_millis(10) {}
    let due = pace.due();
    assert!(due >= Duration::from_millis(10) * REST);
    shared.lock().hurried_from = 1;
    let before = Instant::now();
    shared.rest(due);
    assert!(before.elapsed() >= due);
    // The test would last for hours.
    let hour = Duration::from_secs(3600);
    shared.lock().hurried_from = 0;
    shared.rest(hour);
    shared.lock().hurried_from = 1;
    shared.end();
    shared.rest(hour);
}

#[test]
fn merges_that_fall_behind_do_not_rest() {
    let mut pace = Pace { begun: None, arrived: 1 << 40, read: 0 };
    let keeps_up = |pace: &Pace, come: u64| pace.keeps_up((1 << 40) + come);
    assert!(keeps_up(&pace, COMING_BYTES / COMING_TIMES) && !keeps_up(&pace, COMING_BYTES / COMING_TIMES + 1));
    pace.read = 4 << 30;
    assert!(keeps_up(&pace, 1 << 30) && !keeps_up(&pace, 2 << 30));
}

#[test]
fn reads_are_noticed_and_forgotten() {
    let mut recent = Recent::default();
    assert!(!recent.is_new(), "nothing is known");
    recent.written(100_000, 1_000);
    assert!(recent.is_new());
    recent.written(100_000, 101_000);
    assert!(!recent.is_new());
    (0..100).for_each(|_| recent.written(100_000, 101_000));
    assert!(recent.is_new());
}
