//! Text in other encodings than UTF-8, as a stream: bytes to UTF-8 before a decoder sees them ([`read`]), and what an
//! encoder wrote from UTF-8 to bytes ([`write`]). What stands in no encoding is an error that says where, never
//! U+FFFD. The tables are those of `encoding_rs`. Nothing here knows records or columns, but for messages.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;
use std::fmt;

use encoding_rs::{DecoderResult, EUC_JP, EncoderResult, Encoding, GB18030, GBK, ISO_2022_JP, SHIFT_JIS, UTF_8, UTF_16BE, UTF_16LE};

use crate::FormatError;
use crate::options::{OptionValue, one_of};

pub use read::DecodingReader;
pub(crate) use read::Transcoded;
pub(crate) use write::{Reencoded, lacks};

/// The encodings that messages list; there are more labels.
const KNOWN: &[&str] = &[
    "UTF-8",
    "UTF-16",
    "UTF-16LE",
    "UTF-16BE",
    "windows-1250",
    "windows-1251",
    "windows-1252",
    "ISO-8859-1",
    "ISO-8859-2",
    "ISO-8859-15",
    "Shift_JIS",
    "EUC-JP",
    "ISO-2022-JP",
    "EUC-KR",
    "GBK",
    "GB18030",
    "Big5",
    "KOI8-R",
    "macintosh",
    "IBM866",
];

/// How characters are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEncoding {
    /// UTF-8, with a byte order mark or without.
    Utf8,
    /// UTF-16 that begins with a byte order mark, which says in which order the bytes are. Written with the least
    /// significant byte first.
    Utf16,
    /// One of the WHATWG's Encoding Standard; UTF-16LE and UTF-16BE are read with a mark or without, and written without.
    Other(&'static Encoding),
}

impl TextEncoding {
    /// Whether bytes are read and written as they are.
    pub fn is_utf8(self) -> bool {
        self == TextEncoding::Utf8
    }

    /// The name, as an option may say it.
    pub fn name(self) -> &'static str {
        match self {
            TextEncoding::Utf8 => "UTF-8",
            TextEncoding::Utf16 => "UTF-16",
            TextEncoding::Other(encoding) => encoding.name(),
        }
    }

    /// The text that the bytes are, all of them; a byte order mark is left out.
    ///
    /// # Errors
    /// Where they are none. `option` is what says the encoding, for the message.
    pub fn decode<'a>(self, bytes: &'a [u8], option: &'static str) -> Result<Cow<'a, str>, Malformed> {
        if let TextEncoding::Other(encoding) = self
            && Encoding::for_bom(bytes).is_none()
            && let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes)
        {
            return Ok(text);
        }
        let mut text = String::new();
        Transcoder::new(self, option).feed(bytes, true, &mut text)?;
        Ok(Cow::Owned(text))
    }

    /// Appends the text; without a byte order mark. Whatever is written reads back as the same text.
    ///
    /// # Errors
    /// The first character that the encoding lacks. What was appended then is of no use.
    pub fn encode(self, text: &str, out: &mut Vec<u8>) -> Result<(), char> {
        let encoding = match self {
            TextEncoding::Utf8 => {
                out.extend_from_slice(text.as_bytes());
                return Ok(());
            }
            TextEncoding::Utf16 => UTF_16LE,
            TextEncoding::Other(encoding) => encoding,
        };
        if encoding == UTF_16LE || encoding == UTF_16BE {
            out.reserve(text.len() * 2);
            for unit in text.encode_utf16() {
                out.extend_from_slice(&if encoding == UTF_16LE { unit.to_le_bytes() } else { unit.to_be_bytes() });
            }
            return Ok(());
        }
        let (mut rest, behind) = text.split_at(misread(encoding, text).unwrap_or(text.len()));
        // One encoder a call: a stateful encoding is back in its first state at the end of each.
        let mut encoder = encoding.new_encoder();
        loop {
            let room = encoder.max_buffer_length_from_utf8_without_replacement(rest.len());
            out.reserve(room.expect("buffers are far smaller than the memory there could be"));
            let (result, read) = encoder.encode_from_utf8_to_vec_without_replacement(rest, out, true);
            let (done, left) = rest.split_at(read);
            rest = left;
            match result {
                EncoderResult::InputEmpty => return behind.chars().next().map_or(Ok(()), Err),
                EncoderResult::OutputFull => {}
                // Of control characters that would switch ISO-2022-JP the encoder says that they are U+FFFD.
                EncoderResult::Unmappable(character) => return Err(done.chars().next_back().unwrap_or(character)),
            }
        }
    }

    /// What stands at the beginning of a file.
    pub fn mark(self) -> &'static [u8] {
        if self == TextEncoding::Utf16 { &[0xFF, 0xFE] } else { &[] }
    }
}

/// The characters of private use whose places GB 18030-2022 gave to others; in writing they have their old bytes.
const GIVEN_AWAY: [char; 18] = [
    '\u{E78D}', '\u{E78E}', '\u{E78F}', '\u{E790}', '\u{E791}', '\u{E792}', '\u{E793}', '\u{E794}', '\u{E795}', '\u{E796}', '\u{E81E}',
    '\u{E826}', '\u{E82B}', '\u{E82C}', '\u{E832}', '\u{E843}', '\u{E854}', '\u{E864}',
];

/// Where the first character stands that the Encoding Standard writes as the bytes of another one, as which it would be read
/// back. Such characters are as good as missing.
fn misread(encoding: &'static Encoding, text: &str) -> Option<usize> {
    if text.is_ascii() {
        return None;
    }
    if encoding == SHIFT_JIS || encoding == EUC_JP {
        // As the backslash, the tilde and U+FF0D.
        text.find(['\u{A5}', '\u{203E}', '\u{2212}'])
    } else if encoding == ISO_2022_JP {
        // As U+FF0D, and narrow katakana as wide ones; it has the other two.
        text.find(|c: char| matches!(c, '\u{2212}' | '\u{FF61}'..='\u{FF9F}'))
    } else if encoding == GBK || encoding == GB18030 {
        text.find(|c: char| ('\u{E78D}'..='\u{E864}').contains(&c) && GIVEN_AWAY.contains(&c))
    } else {
        None
    }
}

impl OptionValue for TextEncoding {
    const KIND: &'static str = "encoding";

    /// A label of the Encoding Standard (`windows-1252`, `latin1`, `sjis`), hyphens where people put them or not.
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bare: String = text.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).collect::<String>().to_ascii_lowercase();
        match bare.as_str() {
            "utf16" => return Ok(TextEncoding::Utf16),
            "utf16le" => return Ok(TextEncoding::Other(UTF_16LE)),
            "utf16be" => return Ok(TextEncoding::Other(UTF_16BE)),
            // The standard takes these for windows-1252, whose characters would then be written.
            "ascii" | "usascii" => return Err("text in ASCII is UTF-8 as it is; say UTF-8".to_string()),
            _ => {}
        }
        let windows = bare.strip_prefix("windows").map(|page| format!("windows-{page}")).unwrap_or_default();
        let labels = [text, &bare, &windows];
        match labels.iter().find_map(|label| Encoding::for_label_no_replacement(label.as_bytes())) {
            Some(encoding) if encoding == UTF_8 => Ok(TextEncoding::Utf8),
            Some(encoding) => Ok(TextEncoding::Other(encoding)),
            None => Err(one_of(text, KNOWN)),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.name().to_string())
    }
}

/// Why bytes are not text in the encoding that they should be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The first byte that is wrong, counted from the beginning of the text (0).
    pub offset: u64,
    why: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Malformed {}

impl From<Malformed> for FormatError {
    fn from(e: Malformed) -> Self {
        FormatError::Data(e.why)
    }
}

/// Bytes to UTF-8, piece by piece, cut anywhere.
pub struct Transcoder {
    encoding: TextEncoding,
    /// The option that says the encoding, for messages.
    option: &'static str,
    /// None until the first bytes were looked at.
    decoder: Option<encoding_rs::Decoder>,
    /// The first bytes, until it is known whether they are a byte order mark.
    head: Vec<u8>,
    /// Bytes that the decoder has seen, and the mark.
    seen: u64,
}

impl Transcoder {
    /// A transcoder for a text from its beginning; `option` says its encoding, for messages.
    pub fn new(encoding: TextEncoding, option: &'static str) -> Self {
        Transcoder { encoding, option, decoder: None, head: Vec::new(), seen: 0 }
    }

    /// Appends the text of the next bytes; `last` says that none follow, and none may then.
    ///
    /// # Errors
    /// Where and why the bytes are no text of the encoding. What stands before was appended; nothing can follow.
    pub fn feed(&mut self, mut bytes: &[u8], last: bool, out: &mut String) -> Result<(), Malformed> {
        if self.decoder.is_none() {
            // A byte order mark has three bytes at most.
            let (first, rest) = bytes.split_at(bytes.len().min(3 - self.head.len()));
            self.head.extend_from_slice(first);
            bytes = rest;
            if self.head.len() < 3 && !last {
                return Ok(());
            }
            let (encoding, mark) = self.begin()?;
            self.decoder = Some(encoding.new_decoder_without_bom_handling());
            self.seen = mark as u64;
            let head = std::mem::take(&mut self.head);
            self.run(&head[mark..], false, out)?;
        }
        self.run(bytes, last, out)
    }

    /// The encoding, now that the first bytes are known, and how many of these are its mark.
    fn begin(&self) -> Result<(&'static Encoding, usize), Malformed> {
        let wrong = |why: String| Err(Malformed { offset: 0, why });
        let option = self.option;
        match (self.encoding, Encoding::for_bom(&self.head)) {
            (TextEncoding::Utf8, Some((mark, length))) if mark == UTF_8 => Ok((UTF_8, length)),
            (TextEncoding::Utf8, _) => Ok((UTF_8, 0)),
            (TextEncoding::Utf16, Some((mark, length))) if mark != UTF_8 => Ok((mark, length)),
            (TextEncoding::Utf16, _) if self.head.is_empty() => Ok((UTF_16LE, 0)),
            (TextEncoding::Utf16, _) => wrong(format!(
                "the text should be UTF-16, but begins with no byte order mark of it; say '{option}' = 'UTF-16LE' or 'UTF-16BE', or which \
                 encoding it is in"
            )),
            (TextEncoding::Other(encoding), Some((mark, length))) if mark == encoding => Ok((encoding, length)),
            // Two bytes may be letters in another encoding, three are no accident.
            (TextEncoding::Other(encoding), Some((mark, _))) if mark == UTF_8 || encoding == UTF_16LE || encoding == UTF_16BE => {
                wrong(format!(
                    "the text begins with the byte order mark of {}, but '{option}' is {}; say '{option}' = '{}'",
                    mark.name(),
                    encoding.name(),
                    mark.name()
                ))
            }
            (TextEncoding::Other(encoding), _) => Ok((encoding, 0)),
        }
    }

    fn run(&mut self, mut bytes: &[u8], last: bool, out: &mut String) -> Result<(), Malformed> {
        let Some(decoder) = &mut self.decoder else { return Ok(()) };
        loop {
            let room = decoder.max_utf8_buffer_length_without_replacement(bytes.len());
            out.reserve(room.expect("buffers are far smaller than the memory there could be"));
            let (result, read) = decoder.decode_to_string_without_replacement(bytes, out, last);
            bytes = &bytes[read..];
            self.seen += read as u64;
            match result {
                DecoderResult::InputEmpty => return Ok(()),
                DecoderResult::OutputFull => {}
                DecoderResult::Malformed(length, behind) => {
                    let offset = self.seen.saturating_sub(u64::from(length) + u64::from(behind));
                    let (name, option) = (self.encoding.name(), self.option);
                    let why = format!(
                        "byte {offset} of the text is not {name}: it is in another encoding, which '{option}' can say, or damaged or cut there"
                    );
                    return Err(Malformed { offset, why });
                }
            }
        }
    }
}

/// The byte order marks that text can begin with.
const MARKS: [&[u8]; 3] = [b"\xEF\xBB\xBF", b"\xFF\xFE", b"\xFE\xFF"];

/// Takes the byte order mark off a text in UTF-8 that comes in pieces.
#[derive(Default)]
pub(crate) struct Mark {
    /// What may become a mark.
    held: Vec<u8>,
    done: bool,
    /// The encoding whose mark stands there instead.
    foreign: Option<&'static str>,
}

/// What [`Mark::strip`] made of a piece: these follow each other.
#[derive(Default)]
pub(crate) struct Stripped<'a> {
    /// Bytes of the text that were its mark, once that is known.
    pub skipped: u64,
    /// What could have been the beginning of a mark, and is none of UTF-8.
    pub held: Vec<u8>,
    /// The rest of the piece.
    pub rest: &'a [u8],
}

impl Mark {
    /// For text from the middle of a file, where no mark stands.
    pub fn absent() -> Self {
        Mark { done: true, ..Mark::default() }
    }

    /// Whether what comes is no mark any more.
    pub fn is_past(&self) -> bool {
        self.done
    }

    /// Looks at the next piece.
    #[inline]
    pub fn strip<'a>(&mut self, bytes: &'a [u8]) -> Stripped<'a> {
        if self.done { Stripped { rest: bytes, ..Stripped::default() } } else { self.first(bytes) }
    }

    #[cold]
    fn first<'a>(&mut self, bytes: &'a [u8]) -> Stripped<'a> {
        for (at, byte) in bytes.iter().enumerate() {
            self.held.push(*byte);
            let rest = &bytes[at + 1..];
            if self.held == MARKS[0] {
                self.done = true;
                self.held.clear();
                return Stripped { skipped: MARKS[0].len() as u64, rest, ..Stripped::default() };
            }
            if !MARKS.iter().any(|mark| self.held.len() < mark.len() && mark.starts_with(&self.held)) {
                self.foreign = Encoding::for_bom(&self.held).map(|(encoding, _)| encoding.name());
                return Stripped { skipped: 0, held: self.end(), rest };
            }
        }
        Stripped::default()
    }

    /// What is still held back, when nothing follows.
    pub fn end(&mut self) -> Vec<u8> {
        self.done = true;
        std::mem::take(&mut self.held)
    }

    /// # Errors
    /// The text begins with the mark of UTF-16. `option` can say so.
    #[inline]
    pub fn check(&self, option: &str) -> Result<(), FormatError> {
        match self.foreign {
            None => Ok(()),
            Some(name) => Err(FormatError::data(format!(
                "the text begins with the byte order mark of {name}, but is read as UTF-8; say '{option}' = 'UTF-16'"
            ))),
        }
    }
}
