//! Archives that are read from front to back: tar files, and zip files that arrive over the network. A thread walks
//! from member to member ([`pump`]); [`MembersReader`] reads each as a text file of its own, with its own header line
//! and line numbers. Zip files that can be read anywhere are divided by [`super::directory`].

use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemill_archive::{Container, Limits, Walk, container, matches};
use tidemill_format::compression::{self, Compression};
use tidemill_format::encoding::TextEncoding;
use tidemill_format::text::TextFormat;

use super::feed::{self, Feed, Message, Next, Opening, Out, Work};
use super::metadata::{Constants, FileInfo};
use super::path::hidden_member;
use super::reader::{Lines, Position, TextReader, decoded};
use crate::{ConnectError, Polled, ReadRequest, Reader, Waker};

/// Names of members that a message lists, at most.
const NAMES_SHOWN: usize = 5;

tidemill_format::option_enum! {
    /// Kinds of archives.
    pub enum Archive {
        /// A zip, unpacked while it arrives.
        Zip = "zip",
        /// A tar.
        Tar = "tar",
        /// A tar, compressed by gzip.
        TarGzip = "tar.gz",
        /// A tar, compressed by Zstandard.
        TarZstd = "tar.zst",
        /// A tar, compressed by bzip2.
        TarBzip2 = "tar.bz2",
        /// A tar, compressed by xz.
        TarXz = "tar.xz",
        /// A tar, compressed by LZ4.
        TarLz4 = "tar.lz4",
    }
}

impl Archive {
    /// How it is unpacked.
    pub(super) fn container(self) -> Container {
        match self {
            Archive::Zip => Container::Zip,
            Archive::Tar => Container::Tar(Compression::None),
            Archive::TarGzip => Container::Tar(Compression::Gzip),
            Archive::TarZstd => Container::Tar(Compression::Zstd),
            Archive::TarBzip2 => Container::Tar(Compression::Bzip2),
            Archive::TarXz => Container::Tar(Compression::Xz),
            Archive::TarLz4 => Container::Tar(Compression::Lz4),
        }
    }
}

/// Whether a member is read.
///
/// # Errors
/// It is an archive itself.
pub(super) fn chosen(archive: &str, name: &str, glob: Option<&str>) -> Result<bool, ConnectError> {
    if hidden_member(name, glob) || !glob.is_none_or(|glob| matches(glob, name)) {
        return Ok(false);
    }
    if container(name).is_some() {
        let why = "is an archive in an archive, which is not read; unpack the outer one, or choose other members behind '//'";
        return Err(ConnectError::new(format!("'{archive}//{name}' {why}")));
    }
    Ok(true)
}

/// The error about an archive none of whose members is wanted.
pub(super) fn none_chosen(archive: &str, glob: Option<&str>, names: &[&str], all: usize) -> ConnectError {
    let shown = names[..names.len().min(NAMES_SHOWN)].join(", ");
    let has = match all {
        0 => "it has no files".to_string(),
        all if all > NAMES_SHOWN => format!("it has: {shown}, … ({all} in all)"),
        _ => format!("it has: {shown}"),
    };
    ConnectError::new(match glob {
        Some(glob) => format!("no member of '{archive}' matches '{glob}'; {has}"),
        None => format!("there is nothing to read in '{archive}'; {has}"),
    })
}

/// A member begins.
pub(super) struct Begun {
    pub index: u64,
    pub name: String,
    /// Its length unpacked, 0 if that is not known.
    pub size: u64,
    /// The first byte that is handed over.
    pub at: u64,
}

/// What a thread walks through.
pub(super) struct Members {
    pub path: String,
    pub open: Opening,
    pub container: Container,
    pub glob: Option<String>,
    /// Whether it is an error if there is nothing to read.
    pub must_match: bool,
    pub from: MemberPosition,
    /// The encoding of the texts, and the option that says it.
    pub encoding: (TextEncoding, &'static str),
}

/// Where an archive that is read from front to back stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MemberPosition {
    /// The member's number in the archive; those before it were read.
    pub member: u64,
    /// Its name, if it was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where in the member, as in any text.
    #[serde(flatten)]
    pub inside: Position,
}

/// Walks to the end of the archive; `None` if the reader went away before.
pub(super) fn pump(members: Members, out: &Out) -> Result<Option<()>, ConnectError> {
    let Members { path, open, container, glob, must_match, from, encoding } = members;
    let glob = glob.as_deref();
    let mut walk = Shared(Arc::new(Mutex::new(Walk::new(open()?, container, Limits::default()))));
    let (mut names, mut all, mut read) = (Vec::new(), 0, from.member > 0);
    let mut met = from.name.is_none();
    loop {
        let next = walk.0.lock().expect("no panic while held").next();
        let Some(member) = next.map_err(|e| ConnectError::new(format!("reading the archive '{path}': {e}")))? else { break };
        let index = member.index as u64;
        if index < from.member {
            continue;
        }
        if !met && (index != from.member || from.name.as_ref() != Some(&member.name)) {
            return Err(ConnectError::new(format!(
                "member {index} of '{path}' is '{}', but it was '{}' when the job read it: the archive was replaced; put it back, or \
                 start the job without its checkpoint",
                member.name,
                from.name.unwrap_or_default()
            )));
        }
        met = true;
        all += 1;
        if names.len() <= NAMES_SHOWN {
            names.push(member.name.clone());
        }
        if !chosen(&path, &member.name, glob)? {
            continue;
        }
        read = true;
        let at = if index == from.member { from.inside.offset } else { 0 };
        let shown = format!("{path}//{}", member.name);
        let packed = Compression::from_path(&member.name);
        if !out.give(Message::Member(Begun { index, name: member.name, size: member.size, at })) {
            return Ok(None);
        }
        let done = if packed == Compression::None && encoding.0.is_utf8() {
            hand_over(&mut walk, at, "unpacking", &shown, out)?
        } else {
            let input = Box::new(Shared(walk.0.clone()));
            let input = compression::reader(input, packed).map_err(|e| ConnectError::io(format!("opening '{shown}'"), &e))?;
            hand_over(&mut decoded(input, encoding, None), at, "decompressing", &shown, out)?
        };
        if done.is_none() {
            return Ok(None);
        }
    }
    if !met {
        return Err(ConnectError::new(format!(
            "'{path}' has no member {} any more, '{}', which the job had begun to read: the archive was replaced; put it back, or start \
             the job without its checkpoint",
            from.member,
            from.name.unwrap_or_default()
        )));
    }
    if !read && must_match {
        return Err(none_chosen(&path, glob, &names.iter().map(String::as_str).collect::<Vec<_>>(), all));
    }
    Ok(Some(()))
}

/// The member at which a walk stands, for decompressors, which want to own what they read.
struct Shared(Arc<Mutex<Walk>>);

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic while held").read(buffer)
    }
}

fn hand_over(input: &mut dyn Read, at: u64, doing: &str, shown: &str, out: &Out) -> Result<Option<u64>, ConnectError> {
    if at > 0 && !feed::discard(input, 0, at, shown, out)? {
        return Ok(None);
    }
    feed::copy(input, at, doing, shown, true, out)
}

/// Reads an archive that is one split.
pub(super) struct MembersReader {
    path: String,
    format: TextFormat,
    request: ReadRequest,
    /// Of the archive.
    info: FileInfo,
    /// The member being read and its number and name; without one, the feed.
    current: Current,
    position: MemberPosition,
}

enum Current {
    Between(Feed),
    Member(Box<TextReader>),
    /// Only while one of the others is made from the other.
    Changing,
}

impl MembersReader {
    /// A reader of the archive `work`, whose first byte read is that of `work.from`.
    pub fn new(work: Members, format: TextFormat, request: ReadRequest, info: FileInfo, waker: Waker) -> Self {
        let (path, position) = (work.path.clone(), work.from.clone());
        MembersReader { path, format, request, info, current: Current::Between(Feed::thread(Work::Members(work), waker)), position }
    }

    fn begin(&mut self, begun: &Begun, feed: Feed) -> Result<TextReader, ConnectError> {
        let records = if begun.at > 0 { self.position.inside.records } else { 0 };
        let base = Position { offset: begun.at, records };
        let decoder = self.format.decoder_at(&self.request.physical, &self.request.projection, begun.at == 0)?;
        let constants = Constants::of(&self.request, &self.info.member(&begun.name, begun.size))?;
        let shown = format!("{}//{}", self.path, begun.name);
        Ok(TextReader::new(shown, feed, decoder, base, Lines::of(&self.format), constants))
    }
}

impl Reader for MembersReader {
    fn fetch(&mut self) -> Result<(), ConnectError> {
        match &mut self.current {
            Current::Between(feed) => feed.start(),
            Current::Member(_) | Current::Changing => Ok(()),
        }
    }

    fn poll(&mut self, rows_max: usize) -> Result<Polled, ConnectError> {
        loop {
            match std::mem::replace(&mut self.current, Current::Changing) {
                Current::Between(mut feed) => {
                    let next = feed.member()?;
                    match next {
                        Next::Member(begun) => {
                            let reader = self.begin(&begun, feed)?;
                            self.position = MemberPosition { member: begun.index, name: Some(begun.name), inside: Position::default() };
                            self.current = Current::Member(Box::new(reader));
                        }
                        Next::Nothing => {
                            self.current = Current::Between(feed);
                            return Ok(Polled::Pending);
                        }
                        Next::End => {
                            self.current = Current::Between(feed);
                            return Ok(Polled::End);
                        }
                    }
                }
                Current::Member(mut reader) => match reader.poll(rows_max)? {
                    Polled::End => {
                        self.current = Current::Between(reader.into_feed());
                        self.position = MemberPosition { member: self.position.member + 1, ..MemberPosition::default() };
                    }
                    other => {
                        self.current = Current::Member(reader);
                        return Ok(other);
                    }
                },
                Current::Changing => return Err(ConnectError::new(format!("'{}' is read on behind an error", self.path))),
            }
        }
    }

    fn position(&self) -> Value {
        let position = match &self.current {
            Current::Member(reader) => MemberPosition { inside: reader.reached(), ..self.position.clone() },
            _ => self.position.clone(),
        };
        serde_json::json!(position)
    }
}
