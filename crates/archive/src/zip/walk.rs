//! A zip archive from front to back, member after member, as it arrives.
//!
//! What comes before the directory may lie: it is believed as far as it goes, and held against the directory when
//! that comes. An archive that was walked to its end without an error is one whose directory lists exactly the
//! members that were met, in their places, with their lengths and checksums.

use std::io::Read;

use super::records::{
    CENTRAL, CENTRAL_BYTES, Central, DESCRIPTOR_MARK, END, END_BYTES, END64, LOCAL, LOCAL_BYTES, LOCATOR64, LOCATOR64_BYTES, Local,
    SIGNATURE, several_disks, u16_at, u32_at, u64_at,
};
use super::{DESCRIPTOR, Place, check_flags};
use crate::input::{INPUT_BYTES, Input};
use crate::names::Seen;
use crate::unpack::{Expect, Found, STORED, Unpack};
use crate::{ArchiveError, Limits, Member};

/// How much of a member is unpacked at once when nobody wants it, bytes.
const SCRATCH_BYTES: usize = 64 << 10;
/// The longest zip64 end record that is gone over, bytes; it has 56, and whatever somebody may add.
const END64_BYTES_MAX: u64 = 1 << 20;

/// Goes through a zip archive.
pub(crate) struct ZipWalk {
    input: Input<Box<dyn Read + Send>>,
    limits: Limits,
    current: Option<Current>,
    seen: Seen,
    entries: u64,
    /// A sum over all entries of what the directory must say of them.
    sum: u64,
    scratch: Vec<u8>,
    ended: bool,
}

/// The member at hand.
struct Current {
    name: String,
    offset: u64,
    expect: Expect,
    /// Lengths and checksum follow; in 8 bytes each, as far as the header says.
    descriptor: bool,
    zip64: bool,
    /// What the header says, if nothing follows.
    told: Found,
    /// Once the first byte of it was asked for.
    unpack: Option<Unpack>,
}

impl ZipWalk {
    pub fn new(input: Box<dyn Read + Send>, limits: Limits) -> ZipWalk {
        ZipWalk {
            input: Input::new(input, 0, INPUT_BYTES),
            limits,
            current: None,
            seen: Seen::default(),
            entries: 0,
            sum: 0,
            scratch: Vec::new(),
            ended: false,
        }
    }

    /// Reads the current member; 0 at its end, or if there is none.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let Some(current) = &mut self.current else { return Ok(0) };
        if current.unpack.is_none() {
            self.seen.mark_read(&current.name);
        }
        self.unpack(buf)
    }

    fn unpack(&mut self, buf: &mut [u8]) -> Result<usize, ArchiveError> {
        let Some(current) = &mut self.current else { return Ok(0) };
        let unpack = match &mut current.unpack {
            Some(unpack) => unpack,
            none => none.insert(Unpack::new(&current.name, &current.expect, &self.limits)?),
        };
        let n = unpack.read(&mut self.input, buf)?;
        if unpack.done() {
            self.close()?;
        }
        Ok(n)
    }

    /// Ends the current member, whose data are behind us: reads what follows it, and notes what it was.
    fn close(&mut self) -> Result<(), ArchiveError> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let found = match &current.unpack {
            Some(unpack) if current.descriptor => {
                self.descriptor(unpack, current.zip64)?;
                unpack.found()
            }
            _ => current.told,
        };
        self.note(current.offset, found);
        Ok(())
    }

    fn note(&mut self, offset: u64, found: Found) {
        self.sum = self.sum.wrapping_add(self.seen.hash((offset, found.crc, found.packed, found.size)));
    }

    /// Goes over what is left of the current member. Only what shows its own end must be unpacked for that.
    fn pass(&mut self) -> Result<(), ArchiveError> {
        let Some(current) = &self.current else { return Ok(()) };
        if let (Some(packed), false) = (current.expect.packed, current.descriptor) {
            let left = current.unpack.as_ref().and_then(Unpack::left).unwrap_or(packed);
            if !self.input.skip(left)? {
                return Err(ArchiveError::Cut(format!("the archive ends in the member '{}'", current.name)));
            }
            return self.close();
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(SCRATCH_BYTES, 0);
        while self.current.is_some() {
            self.unpack(&mut scratch)?;
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Reads lengths and checksum behind a member: after a mark or without it, lengths in 4 or 8 bytes; only the
    /// values show which. The longest form is tried first: what follows begins with `PK`, which no length that
    /// is known does by chance.
    fn descriptor(&mut self, unpack: &Unpack, zip64: bool) -> Result<(), ArchiveError> {
        let found = unpack.found();
        let bytes = self.input.peek(24)?;
        let marked = bytes.len() >= 4 && u32_at(bytes, 0) == DESCRIPTOR_MARK;
        for (mark, wide) in [(true, true), (true, false), (false, true), (false, false)] {
            let from = if mark { 4 } else { 0 };
            let length = from + if wide { 20 } else { 12 };
            if (mark && !marked) || bytes.len() < length {
                continue;
            }
            let lengths = if wide {
                (u64_at(bytes, from + 4), u64_at(bytes, from + 12))
            } else {
                (u64::from(u32_at(bytes, from + 4)), u64::from(u32_at(bytes, from + 8)))
            };
            if u32_at(bytes, from) == found.crc && lengths == (found.packed, found.size) {
                self.input.consume(length);
                return Ok(());
            }
        }
        // Which value is wrong, in the form that is to be expected.
        let from = if marked { 4 } else { 0 };
        let length = from + if zip64 { 20 } else { 12 };
        if bytes.len() < length {
            return Err(ArchiveError::Cut("the archive ends behind a member's data, before its lengths and checksum".to_string()));
        }
        unpack.check_crc(u32_at(bytes, from))?;
        let (packed, size) = (found.packed, found.size);
        Err(unpack.damaged(&format!("it has {size} bytes, {packed} packed, and what follows it says otherwise")))
    }

    /// The next member; what is left of the current one is gone over.
    pub fn next(&mut self) -> Result<Option<Member>, ArchiveError> {
        loop {
            self.pass()?;
            if self.ended {
                return Ok(None);
            }
            let at = self.input.at();
            let next = self.input.peek(4)?;
            let mark = (next.len() == 4).then(|| u32_at(next, 0));
            match mark {
                Some(LOCAL) => {
                    if let Some(member) = self.begin(at)? {
                        return Ok(Some(member));
                    }
                }
                Some(CENTRAL | END | END64) => {
                    self.directory()?;
                    self.ended = true;
                }
                Some(DESCRIPTOR_MARK) if at == 0 => return Err(several_disks()),
                Some(_) if at == 0 => {
                    return Err(ArchiveError::Damaged(
                        "this is no zip archive, or something stands before it: one that begins with something else is read only from \
                         where it can be sought (a file, an object store)"
                            .to_string(),
                    ));
                }
                Some(_) => {
                    return Err(ArchiveError::Damaged(format!("the archive is damaged at byte {at}: neither a member nor the directory")));
                }
                None => return Err(ArchiveError::Cut(format!("the archive is cut short: it ends at byte {at}, before its directory"))),
            }
        }
    }

    /// Reads the header of a member; `None`: a folder.
    fn begin(&mut self, at: u64) -> Result<Option<Member>, ArchiveError> {
        let cut = || ArchiveError::Cut(format!("the archive is cut short in the header of a member, at byte {at}"));
        let fixed = self.input.peek(LOCAL_BYTES)?;
        if fixed.len() < LOCAL_BYTES {
            return Err(cut());
        }
        let bytes = Local::bytes(fixed);
        let whole = self.input.peek(bytes)?;
        if whole.len() < bytes {
            return Err(cut());
        }
        let local = Local::parse(whole, &self.limits)?;
        self.input.consume(bytes);
        let index = self.entries as usize;
        self.entries += 1;
        self.limits.check_count(self.entries)?;
        check_flags(local.flags, local.method, &local.name)?;
        let descriptor = local.flags & DESCRIPTOR > 0;
        // With a descriptor the header's lengths are 0, or, from some writers, what they are.
        let mut packed = (!descriptor || local.packed > 0).then_some(local.packed);
        if descriptor && packed.is_none() && local.method == STORED && (local.folder || self.nothing_follows()?) {
            packed = Some(0);
        }
        let told = Found { packed: local.packed, size: local.size, crc: local.crc };
        let sized = !descriptor || (local.packed > 0 && local.size > 0);
        if sized {
            self.limits.check_ratio(local.size, local.packed, || format!("the member '{}'", local.name))?;
        }
        if !local.folder {
            self.seen.add(&local.name)?;
        }
        let (size, crc) = (sized.then_some(local.size), (!descriptor).then_some(local.crc));
        let expect = Expect { method: local.method, packed, size, crc };
        self.current = Some(Current { name: local.name.clone(), offset: at, expect, descriptor, zip64: local.zip64, told, unpack: None });
        if local.folder {
            return Ok(None);
        }
        let (size, packed) = if sized { (local.size, local.packed) } else { (0, 0) };
        Ok(Some(Member { name: local.name, index, size, packed, sized, place: Place::default() }))
    }

    /// Whether a descriptor comes at once that says there was nothing: of a stored member this is the one length
    /// that can be known.
    fn nothing_follows(&mut self) -> Result<bool, ArchiveError> {
        let next = self.input.peek(16)?;
        Ok(next.len() == 16 && u32_at(next, 0) == DESCRIPTOR_MARK && next[4..].iter().all(|b| *b == 0))
    }

    /// Reads the directory and what comes behind it, to the end of the input.
    fn directory(&mut self) -> Result<(), ArchiveError> {
        let start = self.input.at();
        let cut = || ArchiveError::Cut(format!("the archive is cut short in its directory, which begins at byte {start}"));
        let (mut entries, mut sum) = (0u64, 0u64);
        loop {
            let mark = self.input.peek(4)?;
            if mark.len() < 4 {
                return Err(cut());
            }
            match u32_at(mark, 0) {
                CENTRAL => {
                    let fixed = self.input.peek(CENTRAL_BYTES)?;
                    if fixed.len() < CENTRAL_BYTES {
                        return Err(cut());
                    }
                    let bytes = Central::bytes(fixed);
                    let whole = self.input.peek(bytes)?;
                    if whole.len() < bytes {
                        return Err(cut());
                    }
                    let entry = Central::parse(whole, &self.limits)?;
                    self.input.consume(bytes);
                    entries += 1;
                    self.limits.check_count(entries)?;
                    sum = sum.wrapping_add(self.seen.hash((entry.offset, entry.crc, entry.packed, entry.size)));
                    if entry.link && self.seen.was_read(&entry.name) {
                        return Err(ArchiveError::Unsupported(format!(
                            "'{}' was read as a file, but is a symbolic link, which only the archive's directory says: leave it out, or \
                             read the archive from where it can be sought",
                            entry.name
                        )));
                    }
                }
                SIGNATURE => {
                    let head = self.input.peek(6)?;
                    if head.len() < 6 {
                        return Err(cut());
                    }
                    let bytes = 6 + u64::from(u16_at(head, 4));
                    if !self.input.skip(bytes)? {
                        return Err(cut());
                    }
                }
                END64 => {
                    let head = self.input.peek(12)?;
                    if head.len() < 12 {
                        return Err(cut());
                    }
                    let bytes = u64_at(head, 4);
                    if bytes > END64_BYTES_MAX {
                        return Err(ArchiveError::Damaged(format!("the archive's zip64 end record is said to have {bytes} bytes")));
                    }
                    if !self.input.skip(12 + bytes)? {
                        return Err(cut());
                    }
                }
                LOCATOR64 => {
                    if !self.input.skip(LOCATOR64_BYTES as u64)? {
                        return Err(cut());
                    }
                }
                END => break,
                _ => {
                    let at = self.input.at();
                    return Err(ArchiveError::Damaged(format!("the directory is damaged at byte {at}: no entry begins there")));
                }
            }
        }
        let end = self.input.peek(END_BYTES)?;
        if end.len() < END_BYTES {
            return Err(cut());
        }
        let (disk, told, comment) = (u16_at(end, 4), u16_at(end, 10), u16_at(end, 20));
        if !matches!(disk, 0 | 0xFFFF) {
            return Err(several_disks());
        }
        if !self.input.skip(END_BYTES as u64 + u64::from(comment))? {
            return Err(cut());
        }
        if !self.input.peek(1)?.is_empty() {
            let at = self.input.at();
            return Err(ArchiveError::Damaged(format!(
                "something follows the end of the archive, at byte {at}: are these several archives?"
            )));
        }
        let met = self.entries;
        if entries != met || (told != 0xFFFF && u64::from(told) != entries % 0x1_0000) {
            return Err(ArchiveError::Damaged(format!(
                "{met} entries were met in the archive, its directory lists {entries}, its end says {told}"
            )));
        }
        if sum != self.sum {
            return Err(ArchiveError::Damaged(
                "the places, lengths or checksums in the archive's directory are not those of the members that were met".to_string(),
            ));
        }
        Ok(())
    }
}
