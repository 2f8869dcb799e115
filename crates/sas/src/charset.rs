//! Character sets: the number a SAS7BDAT file has in its header, and bytes to text and back.

use std::borrow::Cow;

use encoding_rs::{DecoderResult, Encoding, ISO_2022_JP, UTF_8, WINDOWS_1252};

use crate::SasError;

/// Bytes that a message shows of a text that is none.
const SHOWN_BYTES_MAX: usize = 16;

/// How the bytes of text columns are to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Charset {
    /// One that there is a decoder for.
    Known(&'static Encoding),
    /// Not said by the file: UTF-8 where a value is that, otherwise Windows-1252.
    Guess,
    /// One, by its name, that there is no decoder for; text of it is read as long as it is ASCII.
    Foreign(&'static str),
}

/// The numbers in byte 70 of a SAS7BDAT file, with the name of the set as SAS or IANA call it and the label
/// under which a decoder is found; an empty label if there is none.
const SETS: &[(u8, &str, &str)] = &[
    (20, "UTF-8", "utf-8"),
    (28, "US-ASCII", "windows-1252"),
    // Bytes 0x80 to 0x9F of Latin 1 are control characters that nobody writes; Windows-1252 has text there.
    (29, "ISO-8859-1", "windows-1252"),
    (30, "ISO-8859-2", "iso-8859-2"),
    (31, "ISO-8859-3", "iso-8859-3"),
    (32, "ISO-8859-4", "iso-8859-4"),
    (33, "ISO-8859-5", "iso-8859-5"),
    (34, "ISO-8859-6", "iso-8859-6"),
    (35, "ISO-8859-7", "iso-8859-7"),
    (36, "ISO-8859-8", "iso-8859-8"),
    (37, "ISO-8859-9", "windows-1254"),
    (39, "ISO-8859-11", "windows-874"),
    (40, "ISO-8859-15", "iso-8859-15"),
    (41, "CP437", ""),
    (42, "CP850", ""),
    (43, "CP852", ""),
    (44, "CP857", ""),
    (45, "CP858", ""),
    (46, "CP862", ""),
    (47, "CP864", ""),
    (48, "CP865", ""),
    (49, "CP866", "ibm866"),
    (50, "CP869", ""),
    (51, "CP874", "windows-874"),
    (52, "CP921", ""),
    (53, "CP922", ""),
    (54, "CP1129", ""),
    (55, "CP720", ""),
    (56, "CP737", ""),
    (57, "CP775", ""),
    (58, "CP860", ""),
    (59, "CP863", ""),
    (60, "Windows-1250", "windows-1250"),
    (61, "Windows-1251", "windows-1251"),
    (62, "Windows-1252", "windows-1252"),
    (63, "Windows-1253", "windows-1253"),
    (64, "Windows-1254", "windows-1254"),
    (65, "Windows-1255", "windows-1255"),
    (66, "Windows-1256", "windows-1256"),
    (67, "Windows-1257", "windows-1257"),
    (68, "Windows-1258", "windows-1258"),
    (69, "MacRoman", "macintosh"),
    (70, "MacArabic", ""),
    (71, "MacHebrew", ""),
    (72, "MacGreek", ""),
    (73, "MacThai", ""),
    (75, "MacTurkish", ""),
    (76, "MacUkrainian", "x-mac-ukrainian"),
    (118, "CP950", "big5"),
    (119, "EUC-TW", ""),
    (123, "Big5", "big5"),
    (125, "GBK", "gb18030"),
    (126, "CP936", "gbk"),
    (128, "CP1381", ""),
    (134, "EUC-JP", "euc-jp"),
    (136, "CP949", "euc-kr"),
    (137, "CP942", ""),
    (138, "CP932", "shift_jis"),
    (140, "EUC-KR", "euc-kr"),
    (141, "CP949", "euc-kr"),
    (142, "CP949", "euc-kr"),
    (163, "MacIcelandic", ""),
    (167, "ISO-2022-JP", "iso-2022-jp"),
    (168, "ISO-2022-KR", ""),
    (169, "ISO-2022-CN", ""),
    (172, "ISO-2022-CN-EXT", ""),
    (205, "GB18030", "gb18030"),
    (227, "ISO-8859-14", "iso-8859-14"),
    (242, "ISO-8859-13", "iso-8859-13"),
    (245, "MacCroatian", ""),
    (246, "MacCyrillic", "x-mac-cyrillic"),
    (247, "MacRomanian", ""),
    (248, "Shift_JISX0213", "shift_jis"),
];

impl Charset {
    /// The set of that number in a SAS7BDAT header; one that is not in the table, or 0 or 204 ("any"), is
    /// guessed.
    pub fn of_byte(byte: u8) -> Charset {
        match SETS.iter().find(|(number, ..)| *number == byte) {
            None => Charset::Guess,
            Some(&(_, name, label)) => Encoding::for_label(label.as_bytes()).map_or(Charset::Foreign(name), Charset::Known),
        }
    }

    /// The set of that name, such as `utf-8`, `windows-1252`, `shift_jis`.
    ///
    /// # Errors
    /// There is no decoder for such a set.
    pub fn of_label(label: &str) -> Result<Charset, SasError> {
        Encoding::for_label(label.trim().as_bytes()).map(Charset::Known).ok_or_else(|| {
            SasError::unsupported(format!("there is no character set '{label}' here; names are as on the web: utf-8, windows-1252, gbk"))
        })
    }

    /// Its name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Charset::Known(encoding) => encoding.name(),
            Charset::Guess => "not said (UTF-8 or Windows-1252)",
            Charset::Foreign(name) => name,
        }
    }

    /// Whether text of bytes below 128 means the same as in ASCII.
    pub(crate) fn holds_ascii(self) -> bool {
        self != Charset::Known(ISO_2022_JP)
    }

    /// The bytes of a name or label as text; what is no character of the set becomes U+FFFD.
    ///
    /// # Errors
    /// Text that is not ASCII in a set without a decoder.
    pub(crate) fn decode(self, bytes: &[u8]) -> Result<Cow<'_, str>, SasError> {
        Ok(self.encoding_of(bytes)?.decode_without_bom_handling(bytes).0)
    }

    /// The bytes of a value as text. A character that was cut in two at the end, because its column is too narrow, becomes U+FFFD.
    ///
    /// # Errors
    /// Bytes that are no text of the set; text that is not ASCII in a set without a decoder.
    pub(crate) fn decode_value(self, bytes: &[u8]) -> Result<Cow<'_, str>, SasError> {
        let encoding = self.encoding_of(bytes)?;
        if let Some(text) = encoding.decode_without_bom_handling_and_without_replacement(bytes) {
            return Ok(text);
        }
        let mut decoder = encoding.new_decoder_without_bom_handling();
        // Each byte becomes at most three.
        let mut text = String::with_capacity(3 * bytes.len() + 16);
        let (result, read) = decoder.decode_to_string_without_replacement(bytes, &mut text, true);
        if let (DecoderResult::Malformed(..), true) = (result, read == bytes.len()) {
            text.push(char::REPLACEMENT_CHARACTER);
            return Ok(Cow::Owned(text));
        }
        let shown: Vec<String> = bytes.iter().take(SHOWN_BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
        let more = if bytes.len() > SHOWN_BYTES_MAX { " …" } else { "" };
        Err(SasError::data(format!(
            "the bytes {}{more} are no text in {}; if the file is in another character set, 'sas.charset' names it",
            shown.join(" "),
            encoding.name()
        )))
    }

    /// What these bytes are decoded by.
    fn encoding_of(self, bytes: &[u8]) -> Result<&'static Encoding, SasError> {
        Ok(match self {
            Charset::Known(encoding) => encoding,
            Charset::Guess if std::str::from_utf8(bytes).is_ok() => UTF_8,
            Charset::Guess => WINDOWS_1252,
            Charset::Foreign(_) if bytes.is_ascii() => UTF_8,
            Charset::Foreign(name) => {
                return Err(SasError::unsupported(format!(
                    "text in the character set {name}, for which there is no decoder here; name one that is near to it, \
                     'sas.charset' = 'windows-1252'"
                )));
            }
        })
    }

    /// Text as bytes of the set; `None` if it has a character that the set lacks. So it is, too, where the set's encoder takes
    /// another for it, as those of the web do for Japanese: '¥' became a backslash.
    pub(crate) fn encode(self, text: &str) -> Option<Cow<'_, [u8]>> {
        match self {
            Charset::Known(encoding) => {
                let (bytes, _, lacking) = encoding.encode(text);
                let back = || encoding.decode_without_bom_handling_and_without_replacement(&bytes);
                let same = matches!(bytes, Cow::Borrowed(_)) || encoding.is_single_byte() || back().is_some_and(|back| back == text);
                (same && !lacking).then_some(bytes)
            }
            Charset::Guess => Some(Cow::Borrowed(text.as_bytes())),
            Charset::Foreign(_) => text.is_ascii().then_some(Cow::Borrowed(text.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests;
