//! Text and bytes in other clothes: hexadecimal, base64, URLs, character sets, digests, UUIDs.
//!
//! The digests themselves are computed in `digest`.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion_common::{Result, exec_err};

use super::define::{Call, Def, Param::*, Returns, build_binary, build_text, def};
use super::digest::{md5, sha1, sha224, sha256, sha384, sha512};
use super::random::random_u64;

/// The functions of this theme.
pub(super) const FUNCTIONS: &[Def] = &[
    def("hex", "HEX(number or text)", "Hexadecimal, in capitals", &[Any], Returns::Text, hex),
    def("unhex", "UNHEX(text)", "The bytes that a hexadecimal text stands for; NULL if it is none", &[Text], Returns::Bytes, unhex),
    def("to_base64", "TO_BASE64(text)", "Base64 of the text", &[Bytes], Returns::Text, to_base64),
    def(
        "from_base64",
        "FROM_BASE64(text)",
        "The text that a base64 text stands for; NULL if it is none",
        &[Text],
        Returns::Text,
        from_base64,
    ),
    def(
        "encode",
        "ENCODE(text, charset)",
        "The bytes of a text: UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE",
        &[Text, Text],
        Returns::Bytes,
        encode,
    ),
    def(
        "decode",
        "DECODE(bytes, charset)",
        "The text that the bytes stand for; the character sets of ENCODE",
        &[Bytes, Text],
        Returns::Text,
        decode,
    ),
    def("url_encode", "URL_ENCODE(text)", "As in an HTML form: + and %xx", &[Text], Returns::Text, url_encode),
    def("url_decode", "URL_DECODE(text)", "The inverse of URL_ENCODE; NULL if it is ill-formed", &[Text], Returns::Text, url_decode),
    def(
        "parse_url",
        "PARSE_URL(url, part[, key])",
        "HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY or USERINFO of a URL, or the value of a key of its query",
        &[Text, Text, Text],
        Returns::Text,
        parse_url,
    )
    .optional(1),
    def("md5", "MD5(text)", "The MD5 digest, hexadecimal", &[Bytes], Returns::Text, |c| digest(c, |b, o| lower_hex(&md5(b), o))),
    def("sha1", "SHA1(text)", "The SHA-1 digest, hexadecimal", &[Bytes], Returns::Text, |c| digest(c, |b, o| lower_hex(&sha1(b), o))),
    def("sha224", "SHA224(text)", "The SHA-224 digest, hexadecimal", &[Bytes], Returns::Text, |c| {
        digest(c, |b, o| lower_hex(&sha224(b), o))
    }),
    def("sha256", "SHA256(text)", "The SHA-256 digest, hexadecimal", &[Bytes], Returns::Text, |c| {
        digest(c, |b, o| lower_hex(&sha256(b), o))
    }),
    def("sha384", "SHA384(text)", "The SHA-384 digest, hexadecimal", &[Bytes], Returns::Text, |c| {
        digest(c, |b, o| lower_hex(&sha384(b), o))
    }),
    def("sha512", "SHA512(text)", "The SHA-512 digest, hexadecimal", &[Bytes], Returns::Text, |c| {
        digest(c, |b, o| lower_hex(&sha512(b), o))
    }),
    def("sha2", "SHA2(text, bits)", "The SHA-2 digest of 224, 256, 384 or 512 bits, hexadecimal", &[Bytes, Int], Returns::Text, sha2),
    def("uuid", "UUID()", "A random UUID (version 4)", &[], Returns::Text, uuid).per_row(),
];

fn lower_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(bytes.iter().flat_map(|b| [b"0123456789abcdef"[(b >> 4) as usize], b"0123456789abcdef"[(b & 15) as usize]]));
}

fn upper_hex(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(bytes.iter().flat_map(|b| [b"0123456789ABCDEF"[(b >> 4) as usize], b"0123456789ABCDEF"[(b & 15) as usize]]));
}

fn hex_digit(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|d| d as u8)
}

fn hex(call: &Call) -> Result<ArrayRef> {
    match call.type_of(0) {
        t if t.is_integer() => {
            let numbers = call.int(0)?;
            build_text(call.rows, |r, out| {
                out.extend_from_slice(format!("{:X}", numbers.get(r)?).as_bytes());
                Some(())
            })
        }
        DataType::Binary => {
            let bytes = call.bytes(0)?;
            build_text(call.rows, |r, out| {
                upper_hex(bytes.get(r)?, out);
                Some(())
            })
        }
        _ => {
            let texts = call.text(0)?;
            build_text(call.rows, |r, out| {
                upper_hex(texts.get(r)?.as_bytes(), out);
                Some(())
            })
        }
    }
}

fn unhex(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_binary(call.rows, |r, out| {
        let mut digits = texts.get(r)?.as_bytes();
        if digits.len() % 2 == 1 {
            out.push(hex_digit(digits[0])?);
            digits = &digits[1..];
        }
        digits.chunks_exact(2).try_for_each(|p| {
            out.push(hex_digit(p[0])? << 4 | hex_digit(p[1])?);
            Some(())
        })
    })
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(call: &Call) -> Result<ArrayRef> {
    let bytes = call.bytes(0)?;
    build_text(call.rows, |r, out| {
        for group in bytes.get(r)?.chunks(3) {
            let bits = group.iter().enumerate().fold(0u32, |n, (i, b)| n | (*b as u32) << (16 - 8 * i));
            for i in 0..4 {
                out.push(if i <= group.len() { BASE64[(bits >> (18 - 6 * i) & 63) as usize] } else { b'=' });
            }
        }
        Some(())
    })
}

fn from_base64(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?.trim_end_matches('=').as_bytes();
        let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
        for group in text.chunks(4) {
            if group.len() == 1 {
                return None;
            }
            let mut bits = 0u32;
            for (i, c) in group.iter().enumerate() {
                let six = match c {
                    b'A'..=b'Z' => c - b'A',
                    b'a'..=b'z' => c - b'a' + 26,
                    b'0'..=b'9' => c - b'0' + 52,
                    b'+' => 62,
                    b'/' => 63,
                    _ => return None,
                };
                bits |= (six as u32) << (18 - 6 * i);
            }
            bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
        }
        out.extend_from_slice(String::from_utf8_lossy(&bytes).as_bytes());
        Some(())
    })
}

#[derive(Clone, Copy)]
enum Charset {
    Utf8,
    Ascii,
    Latin1,
    /// Big-endian, with a byte order mark when written, heeding one when read.
    Utf16,
    Utf16Be,
    Utf16Le,
}

impl Charset {
    fn parse(name: &str) -> Result<Charset> {
        Ok(match name.to_ascii_uppercase().as_str() {
            "UTF-8" | "UTF8" => Charset::Utf8,
            "US-ASCII" | "ASCII" => Charset::Ascii,
            "ISO-8859-1" | "LATIN1" => Charset::Latin1,
            "UTF-16" => Charset::Utf16,
            "UTF-16BE" => Charset::Utf16Be,
            "UTF-16LE" => Charset::Utf16Le,
            _ => {
                return exec_err!(
                    "there is no character set '{name}' here; there are UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE"
                );
            }
        })
    }
}

fn encode(call: &Call) -> Result<ArrayRef> {
    let Some(charset) = call.word(1)? else { return build_binary(call.rows, |_, _| None) };
    let (texts, charset) = (call.text(0)?, Charset::parse(&charset)?);
    build_binary(call.rows, |r, out| {
        let text = texts.get(r)?;
        match charset {
            Charset::Utf8 => out.extend_from_slice(text.as_bytes()),
            Charset::Ascii => out.extend(text.chars().map(|c| if c.is_ascii() { c as u8 } else { b'?' })),
            Charset::Latin1 => out.extend(text.chars().map(|c| u8::try_from(c as u32).unwrap_or(b'?'))),
            Charset::Utf16 => {
                out.extend_from_slice(&[0xFE, 0xFF]);
                out.extend(text.encode_utf16().flat_map(u16::to_be_bytes));
            }
            Charset::Utf16Be => out.extend(text.encode_utf16().flat_map(u16::to_be_bytes)),
            Charset::Utf16Le => out.extend(text.encode_utf16().flat_map(u16::to_le_bytes)),
        }
        Some(())
    })
}

fn decode(call: &Call) -> Result<ArrayRef> {
    let Some(charset) = call.word(1)? else { return build_text(call.rows, |_, _| None) };
    let (values, charset) = (call.bytes(0)?, Charset::parse(&charset)?);
    build_text(call.rows, |r, out| {
        let mut bytes = values.get(r)?;
        let mut push = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        let little = match charset {
            Charset::Utf8 => {
                String::from_utf8_lossy(bytes).chars().for_each(push);
                return Some(());
            }
            Charset::Ascii => {
                bytes.iter().for_each(|b| push(if b.is_ascii() { *b as char } else { char::REPLACEMENT_CHARACTER }));
                return Some(());
            }
            Charset::Latin1 => {
                bytes.iter().for_each(|b| push(*b as char));
                return Some(());
            }
            Charset::Utf16 => match bytes {
                [0xFE, 0xFF, rest @ ..] => {
                    bytes = rest;
                    false
                }
                [0xFF, 0xFE, rest @ ..] => {
                    bytes = rest;
                    true
                }
                _ => false,
            },
            Charset::Utf16Be => false,
            Charset::Utf16Le => true,
        };
        let units = bytes.chunks_exact(2).map(|p| if little { u16::from_le_bytes([p[0], p[1]]) } else { u16::from_be_bytes([p[0], p[1]]) });
        char::decode_utf16(units).for_each(|c| push(c.unwrap_or(char::REPLACEMENT_CHARACTER)));
        if bytes.len() % 2 == 1 {
            push(char::REPLACEMENT_CHARACTER);
        }
        Some(())
    })
}

fn url_encode(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        for b in texts.get(r)?.bytes() {
            match b {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => out.push(b),
                b' ' => out.push(b'+'),
                _ => {
                    out.push(b'%');
                    upper_hex(&[b], out);
                }
            }
        }
        Some(())
    })
}

fn url_decode(call: &Call) -> Result<ArrayRef> {
    let texts = call.text(0)?;
    build_text(call.rows, |r, out| {
        let text = texts.get(r)?.as_bytes();
        let mut bytes = Vec::with_capacity(text.len());
        let mut i = 0;
        while i < text.len() {
            match text[i] {
                b'+' => bytes.push(b' '),
                b'%' => {
                    bytes.push(hex_digit(*text.get(i + 1)?)? << 4 | hex_digit(*text.get(i + 2)?)?);
                    i += 2;
                }
                b => bytes.push(b),
            }
            i += 1;
        }
        out.extend_from_slice(String::from_utf8_lossy(&bytes).as_bytes());
        Some(())
    })
}

fn parse_url(call: &Call) -> Result<ArrayRef> {
    let (urls, parts) = (call.text(0)?, call.text(1)?);
    let keys = if call.len() == 3 { Some(call.text(2)?) } else { None };
    build_text(call.rows, |r, out| {
        let (url, part) = (urls.get(r)?, parts.get(r)?);
        let found = match &keys {
            None => url_part(url, part)?,
            Some(keys) => {
                let key = keys.get(r)?;
                if part != "QUERY" {
                    return None;
                }
                url_part(url, part)?.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?
            }
        };
        out.extend_from_slice(found.as_bytes());
        Some(())
    })
}

/// A part of `protocol://[userinfo@]host[:port]/path[?query][#ref]`.
fn url_part<'a>(url: &'a str, part: &str) -> Option<&'a str> {
    let (protocol, rest) = url.split_once("://")?;
    if protocol.is_empty() || !protocol.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')) {
        return None;
    }
    let (rest, reference) = rest.split_once('#').map_or((rest, None), |(a, b)| (a, Some(b)));
    let (authority, file) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = file.split_once('?').map_or((file, None), |(a, b)| (a, Some(b)));
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    Some(match part {
        "PROTOCOL" => protocol,
        "AUTHORITY" => authority,
        "USERINFO" => return user,
        "HOST" => host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(h, _)| h),
        "FILE" => file,
        "PATH" => path,
        "QUERY" => return query,
        "REF" => return reference,
        _ => return None,
    })
}

fn digest(call: &Call, write: fn(&[u8], &mut Vec<u8>)) -> Result<ArrayRef> {
    let bytes = call.bytes(0)?;
    build_text(call.rows, |r, out| {
        write(bytes.get(r)?, out);
        Some(())
    })
}

fn sha2(call: &Call) -> Result<ArrayRef> {
    let (values, bits) = (call.bytes(0)?, call.int(1)?);
    build_text(call.rows, |r, out| {
        let bytes = values.get(r)?;
        match bits.get(r)? {
            224 => lower_hex(&sha224(bytes), out),
            256 | 0 => lower_hex(&sha256(bytes), out),
            384 => lower_hex(&sha384(bytes), out),
            512 => lower_hex(&sha512(bytes), out),
            _ => return None,
        }
        Some(())
    })
}

fn uuid(call: &Call) -> Result<ArrayRef> {
    build_text(call.rows, |_, out| {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&random_u64().to_be_bytes());
        bytes[8..].copy_from_slice(&random_u64().to_be_bytes());
        bytes[6] = bytes[6] & 0x0F | 0x40;
        bytes[8] = bytes[8] & 0x3F | 0x80;
        for (i, part) in [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]].into_iter().enumerate() {
            if i > 0 {
                out.push(b'-');
            }
            lower_hex(part, out);
        }
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, column};

    #[test]
    fn codes() {
        check("hex", &["'abc'"], "616263");
        check("hex", &["255"], "FF");
        check("hex", &["-1"], "FFFFFFFFFFFFFFFF");
        check("unhex", &["'616263'"], "abc");
        check("unhex", &["'zz'"], "NULL");
        check("to_base64", &["'hello'"], "aGVsbG8=");
        check("to_base64", &["'hell'"], "aGVsbA==");
        check("from_base64", &["'aGVsbG8='"], "hello");
        check("from_base64", &["'?'"], "NULL");
        check("encode", &["'aé'", "'UTF-8'"], "aé");
        check("decode", &["X'61E9'", "'ISO-8859-1'"], "aé");
        check("decode", &["X'FFFE6100'", "'UTF-16'"], "a");
        check("hex", &["'ä'"], "C3A4");
    }

    #[test]
    fn urls() {
        const URL: &str = "'https://u:p@host.org:81/a/b?k1=v1&k2=v2#top'";
        check("parse_url", &[URL, "'HOST'"], "host.org");
        check("parse_url", &[URL, "'PATH'"], "/a/b");
        check("parse_url", &[URL, "'QUERY'"], "k1=v1&k2=v2");
        check("parse_url", &[URL, "'QUERY'", "'k2'"], "v2");
        check("parse_url", &[URL, "'REF'"], "top");
        check("parse_url", &[URL, "'FILE'"], "/a/b?k1=v1&k2=v2");
        check("parse_url", &[URL, "'AUTHORITY'"], "u:p@host.org:81");
        check("parse_url", &[URL, "'USERINFO'"], "u:p");
        check("parse_url", &["'nonsense'", "'HOST'"], "NULL");
        check("url_encode", &["'a b&ü'"], "a+b%26%C3%BC");
        check("url_decode", &["'a+b%26%C3%BC'"], "a b&ü");
        check("url_decode", &["'%4'"], "NULL");
    }

    #[test]
    fn digests_and_uuids() {
        check("md5", &["'hello'"], "5d41402abc4b2a76b9719d911017c592");
        check("sha2", &["'abc'", "256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check("sha2", &["'abc'", "1"], "NULL");
        let uuids = column("uuid", 100);
        assert!(uuids.iter().all(|u| u.len() == 36 && u.as_bytes()[14] == b'4'), "{uuids:?}");
        assert_eq!(uuids.iter().collect::<std::collections::HashSet<_>>().len(), 100);
    }
}
