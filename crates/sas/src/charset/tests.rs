//! Tests of `charset`.

use super::*;

#[test]
fn every_label_names_a_decoder() {
    for (byte, name, label) in SETS {
        let known = matches!(Charset::of_byte(*byte), Charset::Known(_));
        assert_eq!(known, !label.is_empty(), "{name}");
    }
    assert_eq!(Charset::of_byte(0), Charset::Guess);
    assert_eq!(Charset::of_byte(204), Charset::Guess);
    assert!(Charset::of_label("klingon").is_err());
}

#[test]
fn bytes_to_text() {
    #[track_caller]
    fn check(byte: u8, bytes: &[u8], expect: &str) {
        assert_eq!(Charset::of_byte(byte).decode(bytes).unwrap(), expect);
    }
    check(20, "鱷魚".as_bytes(), "鱷魚");
    check(20, b"a\xE9", "a\u{FFFD}");
    check(29, b"caf\xE9 \x80", "café €");
    check(33, b"\xB8\xE0", "Ир");
    check(61, b"\xC8\xF0", "Ир");
    check(123, b"\xB0\xAA\xB6\xAF", "高雄");
    check(138, b"\x8D\x82", "高");
    check(39, b"\xA1", "ก");
    check(0, b"caf\xE9", "café");
    check(0, "café".as_bytes(), "café");
    check(42, b"plain", "plain");
    assert!(Charset::of_byte(42).decode(b"caf\x82").unwrap_err().to_string().contains("CP850"));
}

/// The encoders of Shift_JIS and EUC-JP take a backslash for '¥', '~' for '‾' and a wide hyphen for '−'; text came back as another.
#[test]
fn text_is_written_as_it_is_read_or_not_at_all() {
    #[track_caller]
    fn check(label: &str, text: &str, there: bool) {
        let charset = Charset::of_label(label).unwrap();
        let bytes = charset.encode(text);
        assert_eq!(bytes.is_some(), there, "{label} {text}");
        assert!(bytes.is_none_or(|bytes| charset.decode_value(&bytes).unwrap() == text), "{label} {text}");
    }
    for label in ["shift_jis", "euc-jp"] {
        for lost in ["a¥1", "‾", "1−2"] {
            check(label, lost, false);
        }
        check(label, "高\\~－ﾊ", true);
    }
    check("iso-2022-jp", "¥1‾日", true);
    check("windows-1252", "€é", true);
    check("windows-1252", "高", false);
    check("gb18030", "¥‾−", true);
}

#[test]
fn values_that_are_none_of_the_set_are_refused() {
    #[track_caller]
    fn check(byte: u8, bytes: &[u8], expect: Result<&str, &str>) {
        match (Charset::of_byte(byte).decode_value(bytes), expect) {
            (Ok(text), Ok(expect)) => assert_eq!(text, expect),
            (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{e}"),
            (found, _) => panic!("{found:?}"),
        }
    }
    check(138, b"\x8D\x82", Ok("高"));
    check(138, b"a\x8D", Ok("a\u{FFFD}"));
    check(138, b"\x8D\x20a", Err("no text in Shift_JIS"));
    check(134, b"\xFFab", Err("the bytes ff 61 62 are no text in EUC-JP; if the file is in another character set"));
    check(62, b"caf\xE9", Ok("café"));
    check(0, b"caf\xE9", Ok("café"));
}
