//! Transactional ids: numbers behind a table's prefix, each leased to one producer of this process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex};

use crate::client::lock;

/// Numbers in use, by cluster and prefix. Of the process, since several inserts may write one table.
static USED: LazyLock<Mutex<HashMap<(String, String), BTreeSet<u32>>>> = LazyLock::new(Mutex::default);

/// An id that is in use until this is dropped.
#[derive(Debug)]
pub struct Lease {
    pool: (String, String),
    number: u32,
    name: String,
}

/// The lowest id that nobody uses.
pub fn lease(servers: &str, base: &str) -> Lease {
    let pool = (servers.to_string(), base.to_string());
    let mut used = lock(&USED);
    let numbers = used.entry(pool.clone()).or_default();
    let number = (0..).find(|n| !numbers.contains(n)).expect("fewer than four billion are in use");
    numbers.insert(number);
    Lease { pool, number, name: format!("{base}{number}") }
}

impl Lease {
    /// The id as brokers know it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Keeps others from an id; none if it is not of this prefix or in use.
    pub fn hold(servers: &str, base: &str, id: &str) -> Option<Lease> {
        let number = number(base, id)?;
        let pool = (servers.to_string(), base.to_string());
        let new = lock(&USED).entry(pool.clone()).or_default().insert(number);
        new.then(|| Lease { pool, number, name: id.to_string() })
    }
}

/// The number of an id with this prefix.
pub fn number(base: &str, id: &str) -> Option<u32> {
    let digits = id.strip_prefix(base)?;
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(numbers) = lock(&USED).get_mut(&self.pool) {
            numbers.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_that_is_free() {
        let (a, b) = (lease("ids-test", "p-t-"), lease("ids-test", "p-t-"));
        assert_eq!((a.name(), b.name()), ("p-t-0", "p-t-1"));
        let other = lease("ids-test", "p-u-");
        assert_eq!(other.name(), "p-u-0");
        drop(a);
        assert_eq!(lease("ids-test", "p-t-").name(), "p-t-0");
        let held = Lease::hold("ids-test", "p-t-", "p-t-0").unwrap();
        assert!(Lease::hold("ids-test", "p-t-", "p-t-0").is_none());
        assert_eq!(lease("ids-test", "p-t-").name(), "p-t-2");
        drop((held, b));
    }

    #[test]
    fn numbers_of_ids() {
        let check = |id: &str, expect: Option<u32>| assert_eq!(number("p-t-", id), expect, "{id}");
        check("p-t-7", Some(7));
        check("p-t-0", Some(0));
        check("p-t-07", None);
        check("p-t-", None);
        check("p-t-x-1", None);
        check("p-tt-1", None);
    }
}
