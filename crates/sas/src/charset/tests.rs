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
