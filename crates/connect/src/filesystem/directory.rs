//! Zip files that can be read anywhere: their directories, kept as long as the source, and single members as inputs.
//! Archives that are read from front to back are [`super::members`].

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use tidemill_archive::{Limits, LocalFile, Member, ReadAt, zip_directory, zip_member};
use tidemill_format::compression::{self, Compression};
use tidemill_store::{Object, Store};

use super::cache::{Care, TrackedAt};
use super::feed::Opening;
use super::members::{chosen, none_chosen};
use super::metadata::FileInfo;
use crate::ConnectError;

/// Beyond its packed bytes a member needs its local header, whose length shows only when it is read: 30 bytes, the
/// name, and some fields of tens of bytes.
const HEADER_BYTES: u64 = 256;
/// Bytes behind the last ones read of an object that are rather passed over than asked for anew.
const SKIP_BYTES: u64 = 1 << 20;

/// Where a zip lies.
#[derive(Clone)]
pub(super) enum Place {
    Local,
    Remote(Store, Arc<Object>),
}

/// A zip that was looked into.
pub(super) struct Directory {
    pub info: FileInfo,
    place: Place,
    members: HashMap<String, Member>,
    /// The names of all members that are read, in the order of the directory.
    pub chosen: Vec<String>,
}

impl Directory {
    /// Looks into a zip; `glob` chooses members. None need be there unless they must.
    ///
    /// # Errors
    /// It cannot be read, is no zip, or has what is refused in strangers' archives.
    pub fn read(path: &str, info: FileInfo, place: Place, glob: Option<&str>, must_match: bool) -> Result<Self, ConnectError> {
        let opened: Box<dyn ReadAt> = match &place {
            Place::Local => {
                let file = File::open(path).and_then(LocalFile::new);
                Box::new(file.map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?)
            }
            Place::Remote(store, object) => Box::new(store.ranges(object)),
        };
        let all = zip_directory(&*opened, &Limits::default())
            .map_err(|e| ConnectError::new(format!("reading the directory of the archive '{path}': {e}")))?;
        let (mut members, mut names) = (HashMap::new(), Vec::new());
        for member in &all {
            if chosen(path, &member.name, glob)? {
                names.push(member.name.clone());
                if members.insert(member.name.clone(), member.clone()).is_some() {
                    let why = "is there twice, and nobody can tell which one is meant; pack the archive anew";
                    return Err(ConnectError::new(format!("'{path}//{}' {why}", member.name)));
                }
            }
        }
        if names.is_empty() && must_match {
            let shown: Vec<&str> = all.iter().map(|m| m.name.as_str()).take(6).collect();
            return Err(none_chosen(path, glob, &shown, all.len()));
        }
        Ok(Directory { info, place, members, chosen: names })
    }

    /// A member that is read.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn member(&self, path: &str, name: &str) -> Result<&Member, ConnectError> {
        self.members.get(name).ok_or_else(|| {
            ConnectError::new(format!(
                "'{path}' has no member '{name}' any more, or it is no longer chosen: it was replaced; put it back, or start the job \
                 without its checkpoint"
            ))
        })
    }

    /// Opens a member, and decompresses it once more if its own name says so.
    pub fn open(&self, path: &str, member: &Member, care: Care) -> Result<Opening, ConnectError> {
        let span = member.packed + member.name.len() as u64 + HEADER_BYTES;
        let file: Arc<dyn ReadAt> = match &self.place {
            Place::Local => {
                let file = File::open(path).map_err(|e| ConnectError::io(format!("opening '{path}'"), &e))?;
                Arc::new(TrackedAt::new(file, self.info.size, span, care))
            }
            Place::Remote(store, object) => Arc::new(Streamed::new(store.clone(), object.clone(), span)),
        };
        let (member, shown) = (member.clone(), format!("{path}//{}", member.name));
        Ok(Box::new(move || {
            let input = zip_member(file, &member, &Limits::default()).map_err(|e| ConnectError::new(format!("opening '{shown}': {e}")))?;
            compression::reader(input, Compression::from_path(&member.name)).map_err(|e| ConnectError::io(format!("opening '{shown}'"), &e))
        }))
    }
}

/// An object read from somewhere on, from front to back: one stream with readahead, and not a request each time.
struct Streamed {
    store: Store,
    object: Arc<Object>,
    /// About how many bytes will be read.
    span: u64,
    /// Where the stream stands, and the stream.
    stream: Mutex<Option<(u64, Box<dyn Read + Send>)>>,
}

impl Streamed {
    fn new(store: Store, object: Arc<Object>, span: u64) -> Self {
        Streamed { store, object, span, stream: Mutex::new(None) }
    }
}

impl ReadAt for Streamed {
    fn size(&self) -> u64 {
        self.object.size
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if at >= self.object.size || buffer.is_empty() {
            return Ok(0);
        }
        let mut stream = self.stream.lock().expect("no panic while held");
        // Taken out, so that a stream that has failed is not read on.
        let (mut place, mut input) = match stream.take() {
            Some((place, input)) if place <= at && at - place <= SKIP_BYTES => (place, input),
            _ => {
                let end = at.saturating_add(self.span.max(buffer.len() as u64)).min(self.object.size);
                (at, self.store.reader(&self.object, at, Some(end)))
            }
        };
        while place < at {
            let skip = ((at - place) as usize).min(buffer.len());
            match input.read(&mut buffer[..skip])? {
                0 => break,
                n => place += n as u64,
            }
        }
        let mut got = if place == at { input.read(buffer)? } else { 0 };
        if got == 0 {
            // The stream ended where the estimate did.
            let end = at.saturating_add(self.span).min(self.object.size);
            (place, input) = (at, self.store.reader(&self.object, at, Some(end)));
            got = input.read(buffer)?;
        }
        *stream = Some((place + got as u64, input));
        Ok(got)
    }
}
