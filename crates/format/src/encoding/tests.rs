//! Tests of encodings: labels, pieces, marks, what is no text.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn encoding(label: &str) -> TextEncoding {
    TextEncoding::parse(label).unwrap()
}

#[test]
fn labels() {
    for (label, name) in [
        ("utf8", "UTF-8"),
        ("UTF-8", "UTF-8"),
        ("utf_16", "UTF-16"),
        ("UTF-16le", "UTF-16LE"),
        ("UTF16BE", "UTF-16BE"),
        ("windows-1252", "windows-1252"),
        ("Windows 1251", "windows-1251"),
        ("cp1252", "windows-1252"),
        ("latin-1", "windows-1252"),
        ("ISO-8859-15", "ISO-8859-15"),
        ("sjis", "Shift_JIS"),
        ("shift-jis", "Shift_JIS"),
        ("gb18030", "gb18030"),
    ] {
        assert_eq!(encoding(label).name(), name, "{label}");
    }
    assert!(TextEncoding::parse("shift_jiss").unwrap_err().contains("did you mean 'Shift_JIS'?"));
    assert!(TextEncoding::parse("us-ascii").unwrap_err().contains("say UTF-8"));
    assert!(TextEncoding::parse("").is_err());
}

/// Decodes `bytes` in pieces of `cut`; the text, or where it ends to be text.
fn decode(label: &str, bytes: &[u8], cut: usize) -> Result<String, (u64, String)> {
    let mut transcoder = Transcoder::new(encoding(label), "csv.encoding");
    let mut text = String::new();
    let pieces = bytes.chunks(cut).try_for_each(|piece| transcoder.feed(piece, false, &mut text));
    match pieces.and_then(|()| transcoder.feed(&[], true, &mut text)) {
        Ok(()) => Ok(text),
        Err(e) => Err((e.offset, e.to_string())),
    }
}

#[track_caller]
fn check(label: &str, bytes: &[u8], expect: Result<&str, u64>) {
    for cut in [1, 2, 3, 5, usize::MAX] {
        let found = decode(label, bytes, cut);
        assert_eq!(found.as_ref().map(String::as_str).map_err(|(offset, _)| *offset), expect, "{label} by {cut}: {found:?}");
    }
    let whole = encoding(label).decode(bytes, "csv.encoding");
    assert_eq!(whole.as_deref().map_err(|e| e.offset), expect, "{label} whole");
}

#[test]
fn bytes_become_text() {
    check("utf-8", b"a\xc3\xa9", Ok("aé"));
    check("utf-8", b"\xef\xbb\xbfa", Ok("a"));
    check("windows-1252", b"caf\xe9 \x80", Ok("café €"));
    check("shift_jis", b"\x93\xfa\x96\x7b,a", Ok("日本,a"));
    check("gb18030", b"\xd6\xd0\x81\x30\x81\x30", Ok("中\u{80}"));
    check("iso-2022-jp", b"\x1b$B\x46\x7c\x1b(Ba", Ok("日a"));
    check("utf-16", b"\xff\xfea\0\xe9\0", Ok("aé"));
    check("utf-16", b"\xfe\xff\0a\xd8\x3d\xdc\xa9", Ok("a\u{1F4A9}"));
    check("utf-16le", b"a\0b\0", Ok("ab"));
    check("utf-16be", b"\xfe\xff\0a", Ok("a"));
    for label in ["utf-8", "utf-16", "utf-16be", "windows-1252", "gb18030"] {
        check(label, b"", Ok(""));
    }
}

#[test]
fn bytes_that_are_no_text_are_named() {
    check("utf-8", b"ab\xff", Err(2));
    check("windows-1253", b"ab\xaac", Err(2));
    check("shift_jis", b"\x93\xfa\x96", Err(2));
    check("utf-16le", b"a\0b", Err(2));
    check("utf-16", b"a\0", Err(0));
    check("utf-16le", b"\xfe\xff\0a", Err(0));
    check("windows-1252", b"\xef\xbb\xbfa", Err(0));
    let (_, why) = decode("shift_jis", b"ab\x81\x20", 100).unwrap_err();
    assert!(why.starts_with("byte 2 of the text is not Shift_JIS: it is in another encoding, which 'csv.encoding' can say"), "{why}");
    let (_, why) = decode("utf-16le", b"\xfe\xff\0a", 100).unwrap_err();
    assert!(why.ends_with("say 'csv.encoding' = 'UTF-16BE'"), "{why}");
}

#[test]
fn text_becomes_bytes_and_text_again() {
    for (label, text) in [
        ("windows-1252", "café €"),
        ("shift_jis", "日本"),
        ("gb18030", "中\u{1F4A9}"),
        ("iso-2022-jp", "日a本\n"),
        ("utf-16le", "é\u{1F4A9}"),
        ("utf-16be", "é\u{1F4A9}"),
        ("utf-16", "é\u{1F4A9}"),
        ("utf-8", "é"),
    ] {
        let mut bytes = encoding(label).mark().to_vec();
        // Twice, as blocks are written one behind the other.
        encoding(label).encode(text, &mut bytes).unwrap();
        encoding(label).encode(text, &mut bytes).unwrap();
        check(label, &bytes, Ok(&text.repeat(2)));
    }
    assert_eq!(encoding("windows-1252").encode("aж", &mut Vec::new()), Err('ж'));
    assert_eq!(encoding("shift_jis").encode("\u{1F4A9}", &mut Vec::new()), Err('\u{1F4A9}'));
}

/// The Encoding Standard has Japanese encoders write the yen sign as a backslash, and more of the kind: for forms of web
/// pages, which are not read back.
#[test]
fn what_would_be_read_as_another_character_is_lacking() {
    for (label, text, lacking) in [
        ("shift_jis", "a¥1", Some('¥')),
        ("shift_jis", "日‾", Some('‾')),
        ("shift_jis", "1 − 1", Some('−')),
        ("shift_jis", "ж − \u{1F4A9}", Some('−')),
        ("shift_jis", "ﾃﾞ－\\~", None),
        ("euc-jp", "a¥1", Some('¥')),
        ("euc-jp", "日‾", Some('‾')),
        ("euc-jp", "1 − 1", Some('−')),
        ("euc-jp", "\u{1F4A9} −", Some('\u{1F4A9}')),
        ("euc-jp", "ﾃﾞ－\\~", None),
        ("iso-2022-jp", "1 − 1", Some('−')),
        ("iso-2022-jp", "aﾃ", Some('ﾃ')),
        ("iso-2022-jp", "a\u{1b}b", Some('\u{1b}')),
        ("iso-2022-jp", "¥1‾日\\~－", None),
        ("gbk", "a\u{E81E}", Some('\u{E81E}')),
        ("gb18030", "中\u{E78D}", Some('\u{E78D}')),
        ("gb18030", "¥‾−龴", None),
    ] {
        let mut bytes = Vec::new();
        assert_eq!(encoding(label).encode(text, &mut bytes).err(), lacking, "{label}: {text}");
        if lacking.is_none() {
            check(label, &bytes, Ok(text));
        }
    }
}

#[test]
fn whatever_can_be_written_reads_back() {
    for label in ["shift_jis", "euc-jp", "iso-2022-jp", "gbk", "gb18030", "big5", "euc-kr", "windows-1252", "koi8-u", "ibm866"] {
        let (encoding, mut bytes) = (encoding(label), Vec::new());
        for character in '\u{0}'..='\u{FFFF}' {
            let text = format!("a{character}b");
            bytes.clear();
            if encoding.encode(&text, &mut bytes).is_ok() {
                assert_eq!(encoding.decode(&bytes, "csv.encoding").as_deref(), Ok(&*text), "{label}: U+{:04X}", u32::from(character));
            }
        }
    }
}

#[test]
fn a_reader_gives_what_stands_before_the_fault_first() {
    let bytes = b"caf\xe9\xaa".repeat(50_000);
    let mut reader = DecodingReader::new(Box::new(std::io::Cursor::new(bytes)), encoding("windows-1253"), "csv.encoding", None);
    let mut found = Vec::new();
    let error = reader.read_to_end(&mut found).unwrap_err();
    assert_eq!(found, "cafι".as_bytes());
    assert_eq!(error.get_ref().and_then(|e| e.downcast_ref::<Malformed>()).unwrap().offset, 4);
    assert!(reader.read(&mut [0; 10]).is_err(), "nothing is read on behind it");
}

#[test]
fn a_text_that_grows_has_no_end() {
    /// Gives a piece a call, and nothing between them.
    struct Pieces(Vec<&'static [u8]>);
    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }
    let counter = Arc::new(AtomicU64::new(0));
    let input = Box::new(Pieces(vec![b"\xff\xfea\0b", b"", b"\0c\0"]));
    let mut reader = DecodingReader::new(input, encoding("utf-16"), "csv.encoding", Some(counter.clone()));
    let mut buffer = [0; 10];
    assert_eq!((reader.read(&mut buffer).unwrap(), buffer[0]), (1, b'a'));
    assert_eq!(reader.read(&mut buffer).unwrap(), 0, "half of a character waits for the other");
    assert_eq!((reader.read(&mut buffer).unwrap(), &buffer[..2]), (2, &b"bc"[..]));
    assert_eq!(counter.load(Ordering::Relaxed), 8);
}

#[test]
fn the_mark_of_utf_8_is_taken_off() {
    for (text, rest, foreign) in [
        (&b"\xef\xbb\xbfab"[..], &b"ab"[..], false),
        (b"\xef\xbb\xbf\xef\xbb\xbf", b"\xef\xbb\xbf", false),
        (b"\xef\xbb", b"\xef\xbb", false),
        (b"\xef\xbba", b"\xef\xbba", false),
        (b"ab", b"ab", false),
        (b"", b"", false),
        (b"\xff\xfea", b"\xff\xfea", true),
        (b"\xfe\xff", b"\xfe\xff", true),
    ] {
        for cut in [1, 2, 10] {
            let (mut mark, mut out, mut skipped) = (Mark::default(), Vec::new(), 0);
            for piece in text.chunks(cut) {
                let stripped = mark.strip(piece);
                skipped += stripped.skipped as usize;
                out.extend(stripped.held);
                out.extend(stripped.rest);
            }
            out.extend(mark.end());
            assert_eq!((out.as_slice(), skipped), (rest, text.len() - rest.len()), "{text:?} by {cut}");
            assert_eq!(mark.check("csv.encoding").is_err(), foreign, "{text:?} by {cut}");
        }
    }
}
