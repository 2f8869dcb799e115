//! What there is to read: local files, objects, members of archives; and what was learned of them, kept as long as the
//! source. Does not read them.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use regex::Regex;
use tidemill_archive::Container;
use tidemill_store::{Object, Store, StoreOptions, is_remote};

use super::directory::{Directory, Place};
use super::metadata::FileInfo;
use super::path::{self, Location};
use crate::ConnectError;

/// What becomes a split, or several.
#[derive(Clone, Debug)]
pub(super) struct Item {
    /// The path, or `path//member`.
    pub id: String,
    /// The file or object in which it lies.
    pub path: String,
    /// Bytes as they lie there; 0 if that is not known (a pipe).
    pub size: u64,
    pub kind: Kind,
}

/// How an item is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As a file of its own.
    Plain,
    /// As a member of a zip that can be read anywhere.
    Member,
    /// As an archive, from front to back.
    Archive,
}

impl Item {
    /// Whether it lies on this machine.
    pub fn local(&self) -> bool {
        !is_remote(&self.path)
    }
}

/// Finds what there is.
pub(super) struct Listing {
    location: Location,
    pattern: Option<Regex>,
    store: StoreOptions,
    /// Objects that were found, by address.
    objects: Mutex<HashMap<String, (Store, Arc<Object>)>>,
    /// Zips that were looked into, by path or address.
    directories: Mutex<HashMap<String, Arc<Directory>>>,
}

impl Listing {
    /// Of what `location` means, reached as `store` says.
    pub fn new(location: Location, pattern: Option<Regex>, store: StoreOptions) -> Self {
        Listing { location, pattern, store, objects: Mutex::default(), directories: Mutex::default() }
    }

    /// Whether the path means one archive, and not several: then there must be something in it.
    pub fn one_archive(&self) -> bool {
        // In an address `?` begins what the server is asked, and is no wildcard.
        let root = self.location.root.as_str();
        self.location.container(root).is_some() && !path::plain_name(root).contains(['*', '?', '['])
    }

    /// Everything there is, in order of the paths and, in an archive, of its directory.
    ///
    /// # Errors
    /// Nothing there, no permission, an archive that cannot be read.
    pub fn items(&self, may_be_empty: bool) -> Result<Vec<Item>, ConnectError> {
        let files = if self.location.remote() { self.remote(may_be_empty)? } else { self.local(may_be_empty)? };
        let mut items = Vec::with_capacity(files.len());
        for (path, size, seekable) in files {
            match self.location.container(&path) {
                None if self.location.members.is_some() => {
                    return Err(ConnectError::new(format!("'{path}' is no archive by its name, so nothing can be chosen in it with '//'")));
                }
                None => items.push(Item { id: path.clone(), path, size, kind: Kind::Plain }),
                // Its members would have no names by which they were found again.
                Some(Container::Zip) if seekable && self.location.archive.is_none() => {
                    let directory = self.directory(&path)?;
                    for name in &directory.chosen {
                        let size = directory.member(&path, name)?.packed;
                        items.push(Item { id: format!("{path}//{name}"), path: path.clone(), size, kind: Kind::Member });
                    }
                }
                Some(_) => items.push(Item { id: path.clone(), path, size, kind: Kind::Archive }),
            }
        }
        if items.is_empty() && self.location.members.is_some() && !may_be_empty {
            let (root, glob) = (&self.location.root, self.location.members.as_deref().unwrap_or_default());
            return Err(ConnectError::new(format!("no archive of '{root}' has a member that matches '{glob}'")));
        }
        Ok(items)
    }

    /// Local files, their lengths, and whether they can be read anywhere.
    fn local(&self, may_be_empty: bool) -> Result<Vec<(String, u64, bool)>, ConnectError> {
        let files = path::files(&self.location.root, self.pattern.as_ref(), may_be_empty)?;
        let mut found = Vec::with_capacity(files.len());
        for file in files {
            let path = file.into_os_string().into_string().expect("checked by path::files");
            let meta = fs::metadata(&path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
            // What is no regular file (a pipe) has no length.
            found.push((path, if meta.is_file() { meta.len() } else { 0 }, meta.is_file()));
        }
        Ok(found)
    }

    fn remote(&self, may_be_empty: bool) -> Result<Vec<(String, u64, bool)>, ConnectError> {
        let root = &self.location.root;
        let wrong = |e: tidemill_store::StoreError| ConnectError::new(e.to_string());
        let (store, pattern) = Store::of(root, &self.store).map_err(wrong)?;
        let mut found = Vec::new();
        let listed = store.list(&pattern).map_err(wrong)?;
        // Taken behind the request: readers that open objects meanwhile do not wait for it.
        let mut objects = self.objects.lock().expect("no panic while held");
        for object in listed {
            if self.pattern.as_ref().is_some_and(|pattern| !pattern.is_match(&object.url)) {
                continue;
            }
            found.push((object.url.clone(), known(&object), object.seekable));
            objects.insert(object.url.clone(), (store.clone(), Arc::new(object)));
        }
        drop(objects);
        if found.is_empty() && !may_be_empty {
            let why = if self.pattern.is_some() { " (and 'source.path.regex-pattern')" } else { "" };
            return Err(ConnectError::new(format!("nothing in the bucket matches '{root}'{why}")));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Where a file lies.
    ///
    /// # Errors
    /// There is no such object any more.
    pub fn place(&self, path: &str) -> Result<Place, ConnectError> {
        if !is_remote(path) {
            return Ok(Place::Local);
        }
        if let Some((store, object)) = self.objects.lock().expect("no panic while held").get(path) {
            return Ok(Place::Remote(store.clone(), object.clone()));
        }
        // A split of a checkpoint: nothing was listed in this run.
        let wrong = |e: tidemill_store::StoreError| ConnectError::new(e.to_string());
        let (store, key) = Store::of(path, &self.store).map_err(wrong)?;
        let object = Arc::new(store.head(&key).map_err(wrong)?);
        self.objects.lock().expect("no panic while held").insert(path.to_string(), (store.clone(), object.clone()));
        Ok(Place::Remote(store, object))
    }

    /// What metadata columns say of an object.
    pub fn info(&self, path: &str, object: &Object) -> FileInfo {
        FileInfo { path: path.to_string(), size: known(object), modified_ms: object.modified_ms }
    }

    /// Whether there is a file or object of exactly this name.
    pub fn exists(&self, path: &str) -> bool {
        match is_remote(path) {
            true => self.objects.lock().expect("no panic while held").contains_key(path),
            false => fs::metadata(path).is_ok(),
        }
    }

    /// The directory of a zip, read once.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn directory(&self, path: &str) -> Result<Arc<Directory>, ConnectError> {
        if let Some(directory) = self.directories.lock().expect("no panic while held").get(path) {
            return Ok(directory.clone());
        }
        let place = self.place(path)?;
        let info = match &place {
            Place::Remote(_, object) => self.info(path, object),
            Place::Local => {
                let meta = fs::metadata(path).map_err(|e| ConnectError::io(format!("looking at '{path}'"), &e))?;
                FileInfo::local(path, &meta)?
            }
        };
        let directory = Arc::new(Directory::read(path, info, place, self.location.members.as_deref(), self.one_archive())?);
        self.directories.lock().expect("no panic while held").insert(path.to_string(), directory.clone());
        Ok(directory)
    }
}

/// The length of an object, 0 if its server does not say.
fn known(object: &Object) -> u64 {
    if object.size == tidemill_store::SIZE_UNKNOWN { 0 } else { object.size }
}
