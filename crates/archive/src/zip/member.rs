//! One member of a zip archive, read where it lies.

use std::io::{self, Read};
use std::sync::Arc;

use super::check_flags;
use super::records::{LOCAL, LOCAL_BYTES, Local, u32_at};
use crate::input::{INPUT_BYTES, Input, Section};
use crate::unpack::{Expect, Unpack};
use crate::{ArchiveError, Limits, Member, ReadAt};

/// Reads a member that [`crate::zip_directory`] listed, unpacked. Its length and checksum are checked at its
/// end; what is wrong with it comes out of `read` as an error that names it.
///
/// Reads 256 KB at once from `file`, of the archive's bytes those of this member alone. Members may be read at the
/// same time.
///
/// # Errors
/// The header before the member cannot be read or is not that of this member, or its method of compression is
/// unknown.
pub fn zip_member(file: Arc<dyn ReadAt>, member: &Member, limits: &Limits) -> Result<Box<dyn Read + Send>, ArchiveError> {
    let (place, name) = (member.place, &member.name);
    if place.limit == 0 {
        return Err(ArchiveError::Unsupported(format!("the member '{name}' was met on a walk: only members of a directory can be sought")));
    }
    let room = place.limit - place.offset;
    let capacity = usize::try_from(room).unwrap_or(usize::MAX).min(INPUT_BYTES);
    let mut input = Input::new(Section { file, at: place.offset, end: place.limit }, place.offset, capacity);
    let damaged = |why: &str| ArchiveError::Damaged(format!("the member '{name}' is damaged: {why}"));
    let fixed = input.peek(LOCAL_BYTES.min(capacity))?;
    if fixed.len() < LOCAL_BYTES || u32_at(fixed, 0) != LOCAL {
        return Err(damaged(&format!("no header lies at byte {}, where the directory says", place.offset)));
    }
    let bytes = Local::bytes(fixed);
    if (bytes as u64).checked_add(member.packed).is_none_or(|all| all > room) {
        return Err(damaged("it reaches into what follows it"));
    }
    let whole = input.peek(bytes)?;
    if whole.len() < bytes {
        return Err(ArchiveError::Cut(format!("the archive ends in the header of the member '{name}'")));
    }
    let local = Local::parse(whole, limits)?;
    check_flags(local.flags, local.method, &local.name)?;
    if local.name != *name || local.method != place.method {
        return Err(damaged("its header and the directory do not agree about its name or method"));
    }
    input.consume(bytes);
    input.inner().end = place.offset + bytes as u64 + member.packed;
    let expect = Expect { method: place.method, packed: Some(member.packed), size: Some(member.size), crc: Some(place.crc) };
    Ok(Box::new(Reader { unpack: Unpack::new(name, &expect, limits)?, input, failed: false }))
}

struct Reader {
    input: Input<Section>,
    unpack: Unpack,
    /// After an error nothing more comes, least of all an end that looks like a good one.
    failed: bool,
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.failed {
            return Err(self.unpack.damaged("reading stopped at an error before").into());
        }
        self.unpack.read(&mut self.input, buf).map_err(|e| {
            self.failed = true;
            e.into()
        })
    }
}
