//! In which order files are read, and what is fetched meanwhile: what the page cache holds first, then the largest;
//! while they are read, the beginnings of the next are asked for.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Mutex;

use super::cache::{self, AHEAD_BYTES, Care, Prior, Residency};
use super::page;

/// Residency is told apart in so many steps: a file cached a little more is not read before one that is larger.
const STEPS: u64 = 4;

/// What a source is going to read.
#[derive(Default)]
pub(super) struct Queue(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Splits that were not opened yet.
    left: usize,
    /// Local files in the order of reading, and their lengths.
    files: VecDeque<(String, u64)>,
    /// What the cache held of files before anybody here read them.
    priors: HashMap<String, Prior>,
    give_back: bool,
}

/// Puts what is to be read in order: `of` says how long it is and what the cache has of it. What comes earlier stays
/// earlier among equals.
pub(super) fn order<T>(all: &mut [T], of: impl Fn(&T) -> (u64, Residency)) {
    let rank = |item: &T| {
        let (size, found) = of(item);
        let step = (u128::from(found.cached) * u128::from(STEPS) / u128::from(found.bytes.max(1))) as u64;
        (std::cmp::Reverse(step), std::cmp::Reverse(size))
    };
    all.sort_by_cached_key(rank);
}

impl Queue {
    /// So many splits will be opened, of these local files, if they are fetched ahead at all.
    pub fn fill(&self, splits: usize, files: VecDeque<(String, u64)>, give_back: bool) {
        let mut inner = self.0.lock().expect("no panic while held");
        inner.left = splits;
        inner.files = files;
        inner.give_back = give_back;
    }

    /// What the cache holds of a file, before it is read by several readers.
    pub fn remember(&self, path: &str, found: Residency) {
        let prior = Prior { end: found.bytes, cached: found.cached };
        self.0.lock().expect("no panic while held").priors.entry(path.to_string()).or_insert(prior);
    }

    /// Splits that were not opened yet.
    pub fn left(&self) -> usize {
        self.0.lock().expect("no panic while held").left
    }

    /// A split of this file is opened by one of so many readers: asks for the files that are next, and says how this
    /// one is to be treated.
    pub fn opened(&self, path: &str, readers: usize) -> Care {
        let (care, next) = {
            let mut inner = self.0.lock().expect("no panic while held");
            inner.left = inner.left.saturating_sub(1);
            // Readers take splits in order, so it is among the first.
            if let Some(at) = inner.files.iter().take(2 * readers.max(1)).position(|(file, _)| file == path) {
                inner.files.remove(at);
            }
            let next: Vec<(String, u64)> =
                inner.files.iter().take(readers.max(1)).filter(|(file, _)| !inner.priors.contains_key(file)).cloned().collect();
            (Care { give_back: inner.give_back, prior: inner.priors.get(path).copied() }, next)
        };
        for (path, size) in next {
            // A file that cannot be opened will say so when it is its turn.
            let Ok(file) = File::open(&path) else { continue };
            let end = size.min(AHEAD_BYTES);
            if let Ok(cached) = cache::cached(&file, 0, end) {
                if cached < end {
                    page::fetch(&file, 0, end);
                }
                // Of two readers that looked at once the first has seen what nobody had asked for yet.
                self.0.lock().expect("no panic while held").priors.entry(path).or_insert(Prior { end, cached });
            }
        }
        care
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cached_comes_first_and_then_what_is_large() {
        let file = |name: &'static str, bytes: u64, cached: u64| (name, Residency { bytes, cached });
        let mut all = [file("cold", 10, 0), file("large", 100, 10), file("warm", 40, 40), file("half", 80, 41), file("warm too", 40, 40)];
        order(&mut all, |(_, found)| (found.bytes, *found));
        assert_eq!(all.map(|(name, _)| name), ["warm", "warm too", "half", "large", "cold"]);
    }

    #[test]
    fn what_is_next_is_looked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
        let names = ["a", "b", "c"].map(|name| {
            std::fs::write(path(name), vec![b'x'; 10_000]).unwrap();
            path(name)
        });
        let queue = Queue::default();
        queue.fill(3, names.iter().map(|name| (name.clone(), 10_000)).collect(), true);
        let first = queue.opened(&names[0], 1);
        assert!(first.give_back && first.prior.is_none());
        assert_eq!(queue.left(), 2);
        let second = queue.opened(&names[1], 1);
        assert_eq!(second.prior.map(|prior| prior.end), Some(10_000));
        queue.remember("other", Residency { bytes: 7, cached: 7 });
        assert_eq!(queue.opened("other", 1).prior, Some(Prior { end: 7, cached: 7 }));
    }
}
