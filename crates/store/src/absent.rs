//! What stands in for the clients in builds without the feature `cloud`: the same functions, of types that nobody can have
//! a value of. What they do is said where they do something, in `store`, `commit`, `ranges`, `writer` and `lock`.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::ops::Range;

use bytes::Bytes;

use crate::error::{Kind, StoreError};
use crate::{Object, Pending, StoreOptions, Unfinished};

/// What there is none of.
#[derive(Clone, Copy, Debug)]
enum Never {}

/// Bytes received by this process from stores and web servers: none.
pub fn network_bytes() -> u64 {
    0
}

/// Nobody waits for what cannot be asked.
pub fn network_waited() -> std::time::Duration {
    std::time::Duration::ZERO
}

/// A bucket or web server, of which this build has none.
#[derive(Clone)]
pub struct Store(Never);

impl Store {
    /// Refuses.
    ///
    /// # Errors
    /// Always: how to get a build that has clients.
    pub fn of(url: &str, _: &StoreOptions) -> Result<(Store, String), StoreError> {
        let why = "this build has no clients of object stores and web servers; build it with the feature 'network'";
        Err(StoreError::new(Kind::Other, format!("'{url}': {why}")))
    }

    pub fn client_id(&self) -> usize {
        match self.0 {}
    }

    pub fn url(&self, _: &str) -> String {
        match self.0 {}
    }

    pub fn list(&self, _: &str) -> Result<Vec<Object>, StoreError> {
        match self.0 {}
    }

    pub fn head(&self, _: &str) -> Result<Object, StoreError> {
        match self.0 {}
    }

    pub fn reader(&self, _: &Object, _: u64, _: Option<u64>) -> Box<dyn Read + Send> {
        match self.0 {}
    }

    pub fn ranges(&self, _: &Object) -> ObjectFile {
        match self.0 {}
    }

    pub fn read(&self, _: &str) -> Result<Bytes, StoreError> {
        match self.0 {}
    }

    pub fn writer(&self, _: &str) -> Result<ObjectWriter, StoreError> {
        match self.0 {}
    }

    pub fn writer_in(&self, _: &str, _: &str, _: Option<&str>) -> Result<ObjectWriter, StoreError> {
        match self.0 {}
    }

    pub fn complete(&self, _: &Pending) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn complete_all(&self, _: Vec<Pending>) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn abort(&self, _: &Pending) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn unfinished(&self, _: &str) -> Result<Vec<Unfinished>, StoreError> {
        match self.0 {}
    }

    pub fn is_complete(&self, _: &Pending) -> Result<bool, StoreError> {
        match self.0 {}
    }

    pub fn below(&self, _: &str) -> Result<Vec<Object>, StoreError> {
        match self.0 {}
    }

    pub fn publish(&self, _: &str, _: &[Pending], _: BTreeSet<String>, _: &Lock) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn committing(&self, _: &str) -> Result<Option<(bool, BTreeSet<String>)>, StoreError> {
        match self.0 {}
    }

    pub fn gone(&self, _: &str, _: &[Pending]) -> Result<BTreeSet<String>, StoreError> {
        match self.0 {}
    }

    pub fn settle(&self, _: &str, _: &Lock) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn delete_all(&self, _: Vec<String>) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn delete(&self, _: &str) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn delete_held(&self, _: &str, _: &Lock) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn put(&self, _: &str, _: Bytes) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn put_new(&self, _: &str, _: Bytes) -> Result<bool, StoreError> {
        match self.0 {}
    }

    pub fn lock(&self, _: &str, _: Option<&str>) -> Result<Lock, StoreError> {
        match self.0 {}
    }

    pub fn lock_file(&self, _: &str) -> Result<Lock, StoreError> {
        match self.0 {}
    }
}

/// An object whose bytes can be asked for anywhere.
#[derive(Clone)]
pub struct ObjectFile(Never);

impl ObjectFile {
    pub fn size(&self) -> u64 {
        match self.0 {}
    }

    pub fn object(&self) -> &Object {
        match self.0 {}
    }

    pub fn reserve(&self, _: u64) -> Option<Reserved> {
        match self.0 {}
    }

    pub fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub fn read_ranges(&self, _: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        match self.0 {}
    }

    pub fn read_ranges_near(&self, _: &[Range<u64>], _: u64) -> Result<Vec<Bytes>, StoreError> {
        match self.0 {}
    }
}

/// Room for bytes fetched before they are wanted.
pub struct Reserved {
    _never: Never,
}

impl tidemill_archive::ReadAt for ObjectFile {
    fn size(&self) -> u64 {
        match self.0 {}
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }
}

/// Writes one object.
pub struct ObjectWriter(Never);

impl ObjectWriter {
    pub fn url(&self) -> String {
        match self.0 {}
    }

    pub fn written(&self) -> u64 {
        match self.0 {}
    }

    pub fn upload(self) -> Result<Pending, StoreError> {
        match self.0 {}
    }
}

impl Write for ObjectWriter {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }
}

/// A directory that this process alone writes to.
#[derive(Debug)]
pub struct Lock(Never);

impl Lock {
    pub fn check(&self) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn renew(&self) -> Result<(), StoreError> {
        match self.0 {}
    }

    pub fn holder(&self) -> &str {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_with_what_to_do() {
        let refused = Store::of("gs://b/x.csv", &StoreOptions::default()).map(drop).unwrap_err();
        assert!(refused.to_string().starts_with("'gs://b/x.csv': this build has no clients"), "{refused}");
    }
}
