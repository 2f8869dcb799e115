//! The records of a zip archive, as they stand in it: little endian, fields of fixed width, then names and
//! extra fields.

use super::UTF8;
use crate::names;
use crate::{ArchiveError, Limits};

/// How records begin, after `PK`.
pub(super) const LOCAL: u32 = 0x0403_4b50;
pub(super) const CENTRAL: u32 = 0x0201_4b50;
pub(super) const END: u32 = 0x0605_4b50;
pub(super) const END64: u32 = 0x0606_4b50;
pub(super) const LOCATOR64: u32 = 0x0706_4b50;
pub(super) const DESCRIPTOR_MARK: u32 = 0x0807_4b50;
pub(super) const SIGNATURE: u32 = 0x0505_4b50;

/// Lengths of their fixed parts, bytes.
pub(super) const LOCAL_BYTES: usize = 30;
pub(super) const CENTRAL_BYTES: usize = 46;
pub(super) const END_BYTES: usize = 22;
pub(super) const END64_BYTES: usize = 56;
pub(super) const LOCATOR64_BYTES: usize = 20;

/// The longest comment behind the end record, bytes.
pub(super) const COMMENT_BYTES_MAX: usize = 65_535;

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// What stands before a member.
pub(super) struct Local {
    pub flags: u16,
    pub method: u16,
    pub crc: u32,
    pub packed: u64,
    pub size: u64,
    pub name: String,
    /// It is a folder.
    pub folder: bool,
    /// It has the extra field with lengths of 8 bytes.
    pub zip64: bool,
}

impl Local {
    /// The length of the header with all that belongs to it, from its fixed part.
    pub fn bytes(fixed: &[u8]) -> usize {
        LOCAL_BYTES + usize::from(u16_at(fixed, 26)) + usize::from(u16_at(fixed, 28))
    }

    /// From the whole header, [`Local::bytes`] long.
    pub fn parse(whole: &[u8], limits: &Limits) -> Result<Local, ArchiveError> {
        let (flags, method, crc) = (u16_at(whole, 6), u16_at(whole, 8), u32_at(whole, 14));
        let (mut packed, mut size) = (u64::from(u32_at(whole, 18)), u64::from(u32_at(whole, 22)));
        let (raw, extra) = whole[LOCAL_BYTES..].split_at(usize::from(u16_at(whole, 26)));
        let name = names::checked(raw, flags & UTF8 > 0, limits)?;
        let zip64 = extra_field(extra, 1).is_some();
        widen(extra, [&mut size, &mut packed]).map_err(|()| no_zip64(&name))?;
        Ok(Local { flags, method, crc, packed, size, name, folder: is_folder(raw), zip64 })
    }
}

/// What the directory says of a member.
pub(super) struct Central {
    pub flags: u16,
    pub method: u16,
    pub crc: u32,
    pub packed: u64,
    pub size: u64,
    pub offset: u64,
    pub name: String,
    /// The length of the name as it stands in the archive, bytes.
    pub name_bytes: usize,
    pub folder: bool,
    /// It is a symbolic link.
    pub link: bool,
}

impl Central {
    /// The length of the header with all that belongs to it, from its fixed part.
    pub fn bytes(fixed: &[u8]) -> usize {
        CENTRAL_BYTES + usize::from(u16_at(fixed, 28)) + usize::from(u16_at(fixed, 30)) + usize::from(u16_at(fixed, 32))
    }

    /// From the whole header, [`Central::bytes`] long.
    pub fn parse(whole: &[u8], limits: &Limits) -> Result<Central, ArchiveError> {
        let (made_by, flags, method, crc) = (u16_at(whole, 4), u16_at(whole, 8), u16_at(whole, 10), u32_at(whole, 16));
        let (mut packed, mut size) = (u64::from(u32_at(whole, 20)), u64::from(u32_at(whole, 24)));
        let mut offset = u64::from(u32_at(whole, 42));
        let (name_bytes, extra_bytes) = (usize::from(u16_at(whole, 28)), usize::from(u16_at(whole, 30)));
        let (raw, rest) = whole[CENTRAL_BYTES..].split_at(name_bytes);
        let name = names::checked(raw, flags & UTF8 > 0, limits)?;
        widen(&rest[..extra_bytes], [&mut size, &mut packed, &mut offset]).map_err(|()| no_zip64(&name))?;
        // Disk 0xFFFF: its number is a fourth field of zip64, which must be 0 here like that of all others.
        if !matches!(u16_at(whole, 34), 0 | 0xFFFF) {
            return Err(several_disks());
        }
        // Unix keeps the kind of a file in the upper half of the attributes.
        let link = made_by >> 8 == 3 && (u32_at(whole, 38) >> 16) & 0xF000 == 0xA000;
        Ok(Central { flags, method, crc, packed, size, offset, name, name_bytes, folder: is_folder(raw), link })
    }
}

/// A name that ends in a slash is a folder's.
fn is_folder(raw: &[u8]) -> bool {
    raw.ends_with(b"/")
}

/// The data of the first extra field with this number.
fn extra_field(extra: &[u8], number: u16) -> Option<&[u8]> {
    let mut rest = extra;
    while rest.len() >= 4 {
        let (id, bytes) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        // What does not add up is ignored, as everybody does: some writers pad with a few bytes.
        let data = rest.get(4..4 + bytes)?;
        if id == number {
            return Some(data);
        }
        rest = &rest[4 + bytes..];
    }
    None
}

/// Replaces fields that say "see zip64" by what the extra field 1 has, in its order.
fn widen<const N: usize>(extra: &[u8], fields: [&mut u64; N]) -> Result<(), ()> {
    let mut wide: Option<&[u8]> = None;
    for field in fields {
        if *field != u64::from(u32::MAX) {
            continue;
        }
        let rest = match wide {
            Some(rest) => rest,
            None => extra_field(extra, 1).ok_or(())?,
        };
        if rest.len() < 8 {
            return Err(());
        }
        *field = u64_at(rest, 0);
        wide = Some(&rest[8..]);
    }
    Ok(())
}

fn no_zip64(name: &str) -> ArchiveError {
    ArchiveError::Damaged(format!(
        "the length or place of the member '{name}' is said to be in its zip64 field, which is missing or too short"
    ))
}

pub(super) fn several_disks() -> ArchiveError {
    ArchiveError::Unsupported(
        "the archive is one of several parts (disks): join them first, with `zip -s 0 in.zip --out whole.zip`".to_string(),
    )
}
