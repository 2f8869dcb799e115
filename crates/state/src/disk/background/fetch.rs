//! The thread that reads the files of a checkpoint ahead of the rows that will be wanted, after a restart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::pace::{TURN_POLL, turn_of};
use super::{NICE_MERGE, Shared};
use crate::disk::system;

/// The store whose files are being fetched; one after the other, so that the flow has a processor left.
pub(super) static FETCHING: Mutex<()> = Mutex::new(());
/// Bytes that the stores there are have fetched.
static FETCHED: AtomicU64 = AtomicU64::new(0);
/// Stores fetch no more than this part, as its divisor, of the memory that can be had: what is fetched next would make it go again.
const FETCH_DIVISOR: u64 = 2;

/// Tells that there is no more to fetch, however that came about.
struct FetchEnd<'a>(&'a Shared);

impl Drop for FetchEnd<'_> {
    fn drop(&mut self) {
        self.0.lock().fetching = false;
        self.0.changed();
    }
}

/// The thread that reads what a store begins with into the system's cache: from front to end a disk gives some ten times as much as
/// by single rows, each of which waits for it. It ends with that.
pub(super) fn fetch(shared: &Shared) {
    let _end = FetchEnd(shared);
    system::step_back(NICE_MERGE);
    let runs = shared.lock().runs.clone();
    let missing = || runs.iter().map(|run| run.missing()).sum::<u64>();
    if missing() == 0 {
        return;
    }
    let _turn = loop {
        if let Some(turn) = turn_of(&FETCHING) {
            break turn;
        }
        let state = shared.lock();
        if shared.stopped() {
            return;
        }
        drop(shared.wait_for(state, TURN_POLL));
    };
    let bytes = missing();
    if FETCHED.load(Ordering::Relaxed).saturating_add(bytes) > system::available() / FETCH_DIVISOR {
        return;
    }
    FETCHED.fetch_add(bytes, Ordering::Relaxed);
    shared.lock().fetched = bytes;
    for run in runs.iter() {
        run.fetch(|| !shared.stopped() && shared.lock().runs.iter().any(|now| now.name == run.name));
    }
}

impl Drop for Shared {
    /// What the store wanted to have in the system's cache nobody wants any more.
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        FETCHED.fetch_sub(state.fetched, Ordering::Relaxed);
    }
}
