//! Names of members: what they may be, how old ones are written, and that none comes twice.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use crate::{ArchiveError, Limits};

/// The upper half of code page 437, in which names of zip members stand that do not say they are UTF-8.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀\
    αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// The name in these bytes, if it is one that a member may have: not empty, not too long, not leading outside
/// of the folder that a careless program would unpack it to. `utf8`: the archive says that it is UTF-8.
pub(crate) fn checked(raw: &[u8], utf8: bool, limits: &Limits) -> Result<String, ArchiveError> {
    if raw.len() > limits.name_bytes_max {
        let (is, may) = (raw.len(), limits.name_bytes_max);
        return Err(ArchiveError::Refused(format!("the archive has a name of {is} bytes; at most {may} are read")));
    }
    let name = match std::str::from_utf8(raw) {
        // Many programs write UTF-8 without saying so, and hardly any other text is valid UTF-8 by chance.
        Ok(name) => name.to_string(),
        Err(_) if utf8 => {
            let name = String::from_utf8_lossy(raw);
            return Err(ArchiveError::Damaged(format!("the name '{}' is not the UTF-8 that it should be", name.escape_debug())));
        }
        Err(_) => raw.iter().map(|b| from_cp437(*b)).collect(),
    };
    let mut plain = name.as_str();
    while let Some(rest) = plain.strip_prefix("./") {
        plain = rest;
    }
    let refused = |why: &str| Err(ArchiveError::Refused(format!("the archive has a member '{}', {why}", name.escape_debug())));
    if name.is_empty() {
        return Err(ArchiveError::Refused("the archive has a member without a name".to_string()));
    }
    if name.contains('\0') {
        return refused("whose name has a NUL character in it");
    }
    let letter = name.as_bytes()[0].is_ascii_alphabetic() && name.as_bytes().get(1) == Some(&b':');
    if plain.starts_with(['/', '\\']) || (letter && matches!(name.as_bytes().get(2), Some(b'/' | b'\\'))) {
        return refused("an absolute path: names in archives are relative");
    }
    if name.split(['/', '\\']).any(|part| part == "..") {
        return refused("whose name leads out of the archive by '..'");
    }
    Ok(plain.to_string())
}

fn from_cp437(byte: u8) -> char {
    match byte {
        0..0x80 => byte as char,
        _ => CP437.chars().nth(usize::from(byte - 0x80)).expect("the table has 128 characters"),
    }
}

/// The names that were there, by their hashes: a second member of a name is refused, since unpacking would keep
/// one of them and reading would count both. Hashes have a key of their own in each process, so that nobody
/// can make names that collide; by chance two of a million do once in 40 million archives.
#[derive(Default)]
pub(crate) struct Seen {
    keys: RandomState,
    /// By hash: whether the member was read.
    names: HashMap<u64, bool>,
}

impl Seen {
    pub fn add(&mut self, name: &str) -> Result<(), ArchiveError> {
        match self.names.insert(self.keys.hash_one(name), false) {
            None => Ok(()),
            Some(_) => Err(ArchiveError::Refused(format!(
                "the archive has the member '{name}' twice: unpacking would keep one of the two; make an archive with the one that counts"
            ))),
        }
    }

    /// Notes that the member's bytes were asked for.
    pub fn mark_read(&mut self, name: &str) {
        self.names.insert(self.keys.hash_one(name), true);
    }

    pub fn was_read(&self, name: &str) -> bool {
        self.names.get(&self.keys.hash_one(name)).copied().unwrap_or(false)
    }

    /// A hash of numbers under the same key.
    pub fn hash(&self, of: (u64, u32, u64, u64)) -> u64 {
        self.keys.hash_one(of)
    }
}
