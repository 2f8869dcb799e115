//! The encoding of a sample, where its bytes tell it: by a byte order mark, or by the zero bytes of UTF-16. Other encodings
//! cannot be told from each other by looking, so nothing is guessed.

use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use crate::FormatError;
use crate::encoding::{TextEncoding, Transcoder};

/// How many bytes are looked at.
const LOOKED_AT: usize = 4096;

/// The sample in UTF-8, and the encoding if it is another; `given` is what the user says, `option` where. `complete` says
/// that the sample is the whole text, so that its last character is not cut.
///
/// # Errors
/// Where the sample is no text of the encoding.
pub fn sample_text(
    sample: Vec<u8>,
    complete: bool,
    given: Option<TextEncoding>,
    option: &'static str,
) -> Result<(Vec<u8>, Option<TextEncoding>), FormatError> {
    let encoding = given.unwrap_or_else(|| sniff(&sample));
    if encoding.is_utf8() {
        return Ok((sample, None));
    }
    let mut text = String::new();
    Transcoder::new(encoding, option).feed(&sample, complete, &mut text)?;
    Ok((text.into_bytes(), Some(encoding)))
}

fn sniff(sample: &[u8]) -> TextEncoding {
    if Encoding::for_bom(sample).is_some_and(|(encoding, _)| encoding != UTF_8) {
        return TextEncoding::Utf16;
    }
    // Letters, digits and delimiters have a zero in UTF-16: all on the same side.
    let (pairs, _) = sample[..sample.len().min(LOOKED_AT)].as_chunks::<2>();
    let zeros = |side: usize| pairs.iter().filter(|pair| pair[side] == 0).count();
    match (zeros(0), zeros(1)) {
        (0, right) if right > 0 && right * 5 >= pairs.len() * 2 => TextEncoding::Other(UTF_16LE),
        (left, 0) if left > 0 && left * 5 >= pairs.len() * 2 => TextEncoding::Other(UTF_16BE),
        _ => TextEncoding::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utf_16_shows_itself() {
        for (sample, text, encoding) in [
            (&b"a,b\n"[..], "a,b\n", None),
            (b"\xff\xfea\0,\0", "a,", Some("UTF-16")),
            (b"\xfe\xff\0a\0", "a", Some("UTF-16")),
            (b"a\0,\0b\0\n\0", "a,b\n", Some("UTF-16LE")),
            (b"\0a\0,\0b", "a,b", Some("UTF-16BE")),
            (b"a\0\0\0b\0\0\0", "a\0\0\0b\0\0\0", None),
            (b"1,\0\n2,x\n3,y\n4,z\n", "1,\0\n2,x\n3,y\n4,z\n", None),
            (b"", "", None),
        ] {
            let (found, how) = sample_text(sample.to_vec(), false, None, "csv.encoding").unwrap();
            assert_eq!((String::from_utf8(found).unwrap().as_str(), how.map(TextEncoding::name)), (text, encoding), "{sample:?}");
        }
        let given = Some(TextEncoding::Other(encoding_rs::WINDOWS_1252));
        assert_eq!(sample_text(b"\xe9".to_vec(), true, given, "csv.encoding").unwrap().0, "é".as_bytes());
        let error = sample_text(b"a\0b".to_vec(), true, Some(TextEncoding::Other(UTF_16LE)), "csv.encoding").unwrap_err();
        assert!(error.to_string().starts_with("byte 2 of the text is not UTF-16LE"), "{error}");
    }
}
