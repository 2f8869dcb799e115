//! Which characters a database's text can hold. Text goes there in UTF-8, and the server puts a question mark for what its
//! own character set lacks, without a word; national text comes the same way.

/// Characters 0x80 to 0x9F of Windows-1252, where Latin-1 has controls.
const WINDOWS_1252: &str = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ";
/// What Latin-9 has instead of eight characters of Latin-1.
const LATIN_9: &str = "€ŠšŽžŒœŸ";
/// Those eight.
const NOT_LATIN_9: &str = "¤¦¨´¸¼½¾";

/// The character set of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    /// Every character.
    Unicode,
    Latin1,
    Latin9,
    Windows1252,
    /// Any other: that it holds ASCII is all that is known here.
    Ascii,
}

impl Charset {
    /// By its name in `NLS_CHARACTERSET`.
    pub fn of(name: &str) -> Self {
        match name {
            "AL32UTF8" | "UTF8" => Charset::Unicode,
            "WE8ISO8859P1" => Charset::Latin1,
            "WE8ISO8859P15" => Charset::Latin9,
            "WE8MSWIN1252" => Charset::Windows1252,
            _ => Charset::Ascii,
        }
    }

    /// Whether it has all characters of a text.
    pub fn holds(self, text: &str) -> bool {
        if matches!(self, Charset::Unicode) || text.is_ascii() {
            return true;
        }
        text.chars().all(|c| match self {
            Charset::Unicode => true,
            Charset::Latin1 => c <= '\u{FF}',
            Charset::Latin9 => LATIN_9.contains(c) || (c <= '\u{FF}' && !NOT_LATIN_9.contains(c)),
            Charset::Windows1252 => WINDOWS_1252.contains(c) || c.is_ascii() || ('\u{A0}'..='\u{FF}').contains(&c),
            Charset::Ascii => c.is_ascii(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_sets_hold_what_they_have() {
        #[track_caller]
        fn check(name: &str, held: &str, lacking: &str) {
            let charset = Charset::of(name);
            assert!(charset.holds(held), "{held}");
            lacking.chars().for_each(|c| assert!(!charset.holds(&c.to_string()), "{c}"));
        }
        check("AL32UTF8", "aä€😀", "");
        check("WE8ISO8859P1", "aä¤", "€Œ😀");
        check("WE8ISO8859P15", "aä€Œ", "¤½😀");
        check("WE8MSWIN1252", "aä€„“", "\u{80}ł😀");
        check("US7ASCII", "abc", "ä€");
    }
}
