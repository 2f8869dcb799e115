//! The directory of a zip archive: found from its end, read, and held against the file before anything in it is
//! believed.

use super::records::{
    CENTRAL, CENTRAL_BYTES, COMMENT_BYTES_MAX, Central, END, END_BYTES, END64, END64_BYTES, LOCAL_BYTES, LOCATOR64, LOCATOR64_BYTES,
    SIGNATURE, several_disks, u16_at, u32_at, u64_at,
};
use super::{Place, check_flags};
use crate::names::Seen;
use crate::{ArchiveError, Limits, Member, ReadAt};

/// How much of the end is read first, bytes: the end record with the longest comment, and the whole directory of
/// most archives with it.
const TAIL_BYTES: u64 = 128 << 10;
/// How much of a directory is read at once, bytes.
const CHUNK_BYTES: u64 = 1 << 20;
/// The longest directory that is read, bytes: two million entries of usual length. It bounds the memory that
/// names take.
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;
/// How many places that look like an end record are looked into.
const ENDS_MAX: usize = 4;

/// The files in a zip archive, in the order of its directory. Folders and symbolic links are left out.
///
/// Reads the end of the file and the directory, nothing of the members.
///
/// # Errors
/// The file is no zip archive, or a damaged or cut one; it is one of several parts; members are encrypted, overlap,
/// come twice or have names that lead outside; there are more of them than `limits` allow, or they would unpack to
/// far more than what is there.
pub fn zip_directory(file: &dyn ReadAt, limits: &Limits) -> Result<Vec<Member>, ArchiveError> {
    let mut cache = Cache { file, size: file.size(), at: 0, bytes: Vec::new() };
    let directory = locate(&mut cache)?;
    read(&mut cache, &directory, limits)
}

/// Where the directory lies.
struct Directory {
    start: u64,
    end: u64,
    entries: u64,
    /// The number of entries is known in full; otherwise modulo 65,536.
    counted: bool,
    /// How many bytes stand before the archive that its offsets do not count.
    shift: u64,
}

/// Part of the file that was read, and more of it as it is asked for.
struct Cache<'a> {
    file: &'a dyn ReadAt,
    size: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Cache<'_> {
    /// The `n` bytes from `at` on.
    fn get(&mut self, at: u64, n: usize) -> Result<&[u8], ArchiveError> {
        let end = at.checked_add(n as u64).filter(|end| *end <= self.size);
        let Some(end) = end else {
            let wanted = at.saturating_add(n as u64);
            return Err(ArchiveError::Cut(format!("the archive is cut short: it has {} bytes, {wanted} are spoken of", self.size)));
        };
        if at < self.at || end > self.at + self.bytes.len() as u64 {
            self.load(at, CHUNK_BYTES.max(n as u64).min(self.size - at))?;
        }
        let from = (at - self.at) as usize;
        Ok(&self.bytes[from..from + n])
    }

    fn load(&mut self, at: u64, n: u64) -> Result<(), ArchiveError> {
        self.at = at;
        self.bytes.clear();
        self.bytes.resize(n as usize, 0);
        let mut filled = 0;
        while filled < self.bytes.len() {
            match self.file.read_at(at + filled as u64, &mut self.bytes[filled..])? {
                0 => {
                    self.bytes.truncate(filled);
                    return Err(ArchiveError::Cut(format!("the archive became shorter while it was read: {} bytes", at + filled as u64)));
                }
                got => filled += got,
            }
        }
        Ok(())
    }
}

/// The end record.
struct End {
    at: u64,
    disk: u16,
    directory_disk: u16,
    entries_here: u16,
    entries: u16,
    size: u32,
    offset: u32,
}

/// Finds the end record, and by it the directory.
fn locate(cache: &mut Cache<'_>) -> Result<Directory, ArchiveError> {
    let size = cache.size;
    if size < END_BYTES as u64 {
        return Err(ArchiveError::Damaged(format!("this is no zip archive: it has {size} bytes, the least is {END_BYTES}")));
    }
    let tail = TAIL_BYTES.min(size);
    cache.load(size - tail, tail)?;
    // The signature may stand in the comment, too: an end record's comment reaches to the end of the file, and
    // the directory lies where it says.
    let mut first = None;
    for end in ends(&cache.bytes, size) {
        match resolve(cache, &end) {
            Ok(directory) => return Ok(directory),
            Err(e) => _ = first.get_or_insert(e),
        }
    }
    Err(first.unwrap_or_else(|| {
        ArchiveError::Cut(
            "the archive has no directory at its end: it was cut short, something was appended, or it is no zip archive".to_string(),
        )
    }))
}

/// Places at the end of a file that may be its end record, the last first.
fn ends(tail: &[u8], size: u64) -> Vec<End> {
    let last = tail.len() - END_BYTES;
    let range = last.saturating_sub(COMMENT_BYTES_MAX)..=last;
    let fits = |at: &usize| u32_at(tail, *at) == END && *at + END_BYTES + usize::from(u16_at(tail, *at + 20)) == tail.len();
    let parse = |at: usize| End {
        at: size - tail.len() as u64 + at as u64,
        disk: u16_at(tail, at + 4),
        directory_disk: u16_at(tail, at + 6),
        entries_here: u16_at(tail, at + 8),
        entries: u16_at(tail, at + 10),
        size: u32_at(tail, at + 12),
        offset: u32_at(tail, at + 16),
    };
    range.rev().filter(fits).take(ENDS_MAX).map(parse).collect()
}

/// Follows an end record to the directory; through the records of zip64 if they are there.
fn resolve(cache: &mut Cache<'_>, end: &End) -> Result<Directory, ArchiveError> {
    let mut entries = u64::from(end.entries);
    let (mut size, mut offset) = (u64::from(end.size), u64::from(end.offset));
    let mut disks = [end.disk, end.directory_disk].map(u32::from);
    let mut here = u64::from(end.entries_here);
    let mut behind = end.at;
    let wide = end64(cache, end.at)?;
    if let Some(at) = wide {
        let record = cache.get(at, END64_BYTES)?;
        disks = [u32_at(record, 16), u32_at(record, 20)];
        (here, entries, size, offset) = (u64_at(record, 24), u64_at(record, 32), u64_at(record, 40), u64_at(record, 48));
        let agree = |narrow: u64, all: u64, wide: u64| narrow == all || narrow == wide;
        if !agree(u64::from(end.entries), 0xFFFF, entries)
            || !agree(u64::from(end.size), u64::from(u32::MAX), size)
            || !agree(u64::from(end.offset), u64::from(u32::MAX), offset)
        {
            return Err(ArchiveError::Damaged("the archive's two end records, plain and zip64, do not agree".to_string()));
        }
        behind = at;
    } else if size == u64::from(u32::MAX) || offset == u64::from(u32::MAX) {
        return Err(ArchiveError::Damaged("the place of the directory is said to be in a zip64 end record, which is missing".to_string()));
    }
    if disks != [0, 0] || here != entries {
        return Err(several_disks());
    }
    if size > DIRECTORY_BYTES_MAX {
        return Err(ArchiveError::Refused(format!("the directory has {size} bytes; at most {DIRECTORY_BYTES_MAX} are read")));
    }
    // Right before the end record, wherever the offset says that is: something may stand before the archive (a program
    // that unpacks it) that its offsets do not count. Or else where the offset says, with a gap behind it.
    let near = behind.checked_sub(size).filter(|start| *start >= offset);
    let told = offset.checked_add(size).filter(|stop| *stop <= behind).map(|_| offset);
    for start in [near, told].into_iter().flatten() {
        let there = if entries == 0 { size == 0 } else { size >= CENTRAL_BYTES as u64 && u32_at(cache.get(start, 4)?, 0) == CENTRAL };
        if there {
            return Ok(Directory { start, end: start + size, entries, counted: wide.is_some(), shift: start - offset });
        }
    }
    Err(ArchiveError::Damaged(format!(
        "the directory does not lie where the archive says, at byte {offset} ({size} bytes, {entries} entries)"
    )))
}

/// The offset of the zip64 end record that belongs to the end record at `end`, if there is one.
fn end64(cache: &mut Cache<'_>, end: u64) -> Result<Option<u64>, ArchiveError> {
    let Some(locator) = end.checked_sub(LOCATOR64_BYTES as u64) else { return Ok(None) };
    let record = cache.get(locator, LOCATOR64_BYTES)?;
    if u32_at(record, 0) != LOCATOR64 {
        return Ok(None);
    }
    let (disk, told, disks) = (u32_at(record, 4), u64_at(record, 8), u32_at(record, 16));
    if disk != 0 || disks > 1 {
        return Err(several_disks());
    }
    // Where it is said to lie, or, if something stands before the archive, right before the locator.
    let near = locator.checked_sub(END64_BYTES as u64);
    for at in [Some(told), near].into_iter().flatten() {
        if at.checked_add(END64_BYTES as u64).is_some_and(|stop| stop <= locator) {
            let record = cache.get(at, END64_BYTES)?;
            let stop = u64_at(record, 4).checked_add(12).and_then(|bytes| bytes.checked_add(at));
            if u32_at(record, 0) == END64 && stop == Some(locator) {
                return Ok(Some(at));
            }
        }
    }
    Err(ArchiveError::Damaged("the archive's zip64 end record does not lie where it should".to_string()))
}

/// What an entry takes at least of the file.
struct Extent {
    start: u64,
    end: u64,
    /// Its place among the members, if it is one.
    member: Option<usize>,
}

/// Reads the directory.
fn read(cache: &mut Cache<'_>, directory: &Directory, limits: &Limits) -> Result<Vec<Member>, ArchiveError> {
    limits.check_count(directory.entries)?;
    let mut members: Vec<Member> = Vec::new();
    let mut extents: Vec<Extent> = Vec::new();
    let mut seen = Seen::default();
    let (mut at, mut entries) = (directory.start, 0u64);
    let (mut packed, mut size) = (0u64, 0u64);
    while at < directory.end {
        let left = directory.end - at;
        let mark = if left < 4 { 0 } else { u32_at(cache.get(at, 4)?, 0) };
        if mark == SIGNATURE {
            break;
        }
        if mark != CENTRAL || left < CENTRAL_BYTES as u64 {
            return Err(ArchiveError::Damaged(format!("the directory is damaged at byte {at}: no entry begins there")));
        }
        let bytes = Central::bytes(cache.get(at, CENTRAL_BYTES)?);
        if left < bytes as u64 {
            return Err(ArchiveError::Damaged(format!("the directory is damaged at byte {at}: the entry is longer than the directory")));
        }
        let entry = Central::parse(cache.get(at, bytes)?, limits)?;
        at += bytes as u64;
        let index = entries as usize;
        entries += 1;
        limits.check_count(entries)?;
        check_flags(entry.flags, entry.method, &entry.name)?;
        let start = entry.offset.checked_add(directory.shift);
        let stop = start.and_then(|start| start.checked_add((LOCAL_BYTES + entry.name_bytes) as u64)?.checked_add(entry.packed));
        let (Some(start), Some(stop)) = (start, stop) else {
            return Err(outside(&entry.name));
        };
        if stop > directory.start {
            return Err(outside(&entry.name));
        }
        limits.check_ratio(entry.size, entry.packed, || format!("the member '{}'", entry.name))?;
        // Neither sum can overflow unnoticed: members do not overlap, and of sizes the largest sum will do.
        (packed, size) = (packed.saturating_add(entry.packed), size.saturating_add(entry.size));
        let file = !entry.folder && !entry.link;
        extents.push(Extent { start, end: stop, member: file.then_some(members.len()) });
        if file {
            seen.add(&entry.name)?;
            let place = Place { offset: start, limit: 0, method: entry.method, crc: entry.crc };
            members.push(Member { name: entry.name, index, size: entry.size, packed: entry.packed, sized: true, place });
        }
    }
    let told = directory.entries;
    if entries != told && (directory.counted || entries % 0x1_0000 != told) {
        return Err(ArchiveError::Damaged(format!("the archive says that it has {told} entries, its directory lists {entries}")));
    }
    limits.check_ratio(size, packed, || "the archive".to_string())?;
    set_limits(&mut members, extents, directory.start)?;
    Ok(members)
}

fn outside(name: &str) -> ArchiveError {
    ArchiveError::Damaged(format!(
        "the member '{name}' is said to lie where it cannot: it would reach into the directory or beyond the file"
    ))
}

/// Notes for each member where the next entry begins; refuses entries that share bytes.
fn set_limits(members: &mut [Member], mut extents: Vec<Extent>, directory: u64) -> Result<(), ArchiveError> {
    extents.sort_unstable_by_key(|extent| extent.start);
    for (i, extent) in extents.iter().enumerate() {
        let next = extents.get(i + 1).map_or(directory, |next| next.start);
        if extent.end > next {
            let name = |extent: Option<&Extent>| match extent.and_then(|e| e.member) {
                Some(member) => format!("'{}'", members[member].name),
                None => "a folder or link".to_string(),
            };
            let (one, other) = (name(Some(extent)), name(extents.get(i + 1)));
            return Err(ArchiveError::Refused(format!(
                "the members {one} and {other} share bytes of the archive, at byte {next}: archives are made so to unpack to more than \
                 they hold"
            )));
        }
        if let Some(member) = extent.member {
            members[member].place.limit = next;
        }
    }
    Ok(())
}
