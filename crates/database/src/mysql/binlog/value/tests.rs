//! Values against bytes as servers write them.

use super::*;

#[track_caller]
fn check(form: Form, bytes: &[u8], meaning: &Meaning, expect: Value) {
    let mut data = [bytes, b"rest"].concat();
    let mut rest = data.as_slice();
    let taken = form.take(&mut rest).unwrap();
    assert_eq!(rest, b"rest");
    assert_eq!(form.value(taken, meaning), Ok(expect));
    data.truncate(bytes.len() - 1);
    assert_eq!(form.take(&mut data.as_slice()), None);
}

#[track_caller]
fn plain(form: Form, bytes: &[u8], expect: Value) {
    check(form, bytes, &Meaning::default(), expect);
}

fn text(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

#[test]
fn numbers() {
    let unsigned = Meaning { unsigned: true, ..Meaning::default() };
    for (bytes, signed, whole) in [
        (&[0xFF][..], -1, 255),
        (&[0x00, 0x80], -32768, 32768),
        (&[0xFE, 0xFF, 0xFF], -2, 16_777_214),
        (&[1, 0, 0, 0], 1, 1),
        (&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], -1, u64::MAX),
    ] {
        plain(Form::Integer(bytes.len()), bytes, Value::Int(signed));
        check(Form::Integer(bytes.len()), bytes, &unsigned, Value::UInt(whole));
    }
    plain(Form::Float, &1.5f32.to_le_bytes(), Value::Float(1.5));
    plain(Form::Double, &(-0.1f64).to_le_bytes(), Value::Double(-0.1));
    plain(Form::Year, &[124], Value::UInt(2024));
    plain(Form::Year, &[0], Value::UInt(0));
    plain(Form::Bit(2), &[1, 2], Value::Bytes(vec![1, 2]));
}

/// The example of MySQL's sources: 1234567890.1234 as DECIMAL(14, 4).
#[test]
fn decimals() {
    plain(Form::Decimal(14, 4), &[0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2], text("1234567890.1234"));
    plain(Form::Decimal(14, 4), &[0x7E, 0xF2, 0x04, 0xC7, 0x2D, 0xFB, 0x2D], text("-1234567890.1234"));
    plain(Form::Decimal(3, 0), &[0x80, 0x00], text("0"));
    plain(Form::Decimal(3, 2), &[0x80, 0x05], text("0.05"));
    plain(Form::Decimal(2, 2), &[0xE3], text("0.99"));
}

#[test]
fn times() {
    plain(Form::Date, &(2024u32 << 9 | 2 << 5 | 29).to_le_bytes()[..3], Value::Date(2024, 2, 29, 0, 0, 0, 0));
    // 2024-02-29 12:34:56.
    let packed: u64 = (1 << 39) | ((2024 * 13 + 2) << 22) | (29 << 17) | (12 << 12) | (34 << 6) | 56;
    let datetime = packed.to_be_bytes()[3..].to_vec();
    plain(Form::DateTime(0), &datetime, Value::Date(2024, 2, 29, 12, 34, 56, 0));
    plain(Form::DateTime(1), &[&datetime[..], &[70]].concat(), Value::Date(2024, 2, 29, 12, 34, 56, 700_000));
    plain(Form::DateTime(3), &[&datetime[..], &1230u16.to_be_bytes()].concat(), Value::Date(2024, 2, 29, 12, 34, 56, 123_000));
    plain(Form::DateTime(6), &[&datetime[..], &[0x0F, 0x42, 0x3F]].concat(), Value::Date(2024, 2, 29, 12, 34, 56, 999_999));
    for (seconds, expect) in [
        (1u32, (1970, 1, 1, 0, 0, 1)),
        (951_782_400, (2000, 2, 29, 0, 0, 0)),
        (1_709_251_199, (2024, 2, 29, 23, 59, 59)),
        (i32::MAX as u32, (2038, 1, 19, 3, 14, 7)),
    ] {
        let (y, mo, d, h, mi, s) = expect;
        plain(Form::Timestamp(0), &seconds.to_be_bytes(), Value::Date(y, mo, d, h, mi, s, 0));
        plain(Form::OldTimestamp, &seconds.to_le_bytes(), Value::Date(y, mo, d, h, mi, s, 0));
    }
    plain(Form::Timestamp(0), &[0; 4], Value::Date(0, 0, 0, 0, 0, 0, 0));
    plain(Form::OldDateTime, &20_240_229_123_456u64.to_le_bytes(), Value::Date(2024, 2, 29, 12, 34, 56, 0));
    plain(Form::OldTime, &123_456u32.to_le_bytes()[..3], Value::Time(false, 0, 12, 34, 56, 0));
    // 838:59:59 and its negative, and half a second before midnight.
    plain(Form::Time(0), &[0xB4, 0x6E, 0xFB], Value::Time(false, 34, 22, 59, 59, 0));
    plain(Form::Time(0), &[0x4B, 0x91, 0x05], Value::Time(true, 34, 22, 59, 59, 0));
    plain(Form::Time(1), &[0x7F, 0xFF, 0xFF, 0xCE], Value::Time(true, 0, 0, 0, 0, 500_000));
    plain(Form::Time(6), &[0x80, 0, 0x01, 0x07, 0xA1, 0x20], Value::Time(false, 0, 0, 0, 1, 500_000));
}

#[test]
fn texts() {
    plain(Form::Bytes(1), b"\x02ab", text("ab"));
    plain(Form::Bytes(2), b"\x02\0ab", text("ab"));
    check(Form::Bytes(1), b"\x01\x80", &Meaning { encoding: Some(encoding_rs::WINDOWS_1252), ..Meaning::default() }, text("€"));
    check(Form::Bytes(1), b"\x01a", &Meaning { width: Some(3), ..Meaning::default() }, text("a\0\0"));
    let labels = Meaning { labels: vec!["x".into(), "y".into(), "z".into()], ..Meaning::default() };
    check(Form::Enum(1), &[2], &labels, text("y"));
    check(Form::Enum(1), &[0], &labels, text(""));
    check(Form::Set(1), &[5], &labels, text("x,z"));
    assert!(Form::Enum(1).value(&[4], &labels).is_err());
    assert!(Form::Set(1).value(&[8], &labels).is_err());
}

#[test]
fn types_of_the_log_have_forms() {
    use ColumnType::*;
    for (kind, meta, form) in [
        (MYSQL_TYPE_VARCHAR, &[255, 0][..], Form::Bytes(1)),
        (MYSQL_TYPE_VARCHAR, &[0, 1], Form::Bytes(2)),
        (MYSQL_TYPE_STRING, &[0xFE, 40], Form::Bytes(1)),
        // CHAR(255) of four bytes a character: 1020.
        (MYSQL_TYPE_STRING, &[0xCE, 0xFC], Form::Bytes(2)),
        (MYSQL_TYPE_BLOB, &[3], Form::Bytes(3)),
        (MYSQL_TYPE_BIT, &[2, 1], Form::Bit(2)),
        (MYSQL_TYPE_NEWDECIMAL, &[10, 2], Form::Decimal(10, 2)),
        (MYSQL_TYPE_ENUM, &[247, 2], Form::Enum(2)),
        (MYSQL_TYPE_DATETIME2, &[3], Form::DateTime(3)),
        (MYSQL_TYPE_LONGLONG, &[], Form::Integer(8)),
    ] {
        assert_eq!(Form::of(kind, meta), Some(form), "{kind:?}");
    }
    assert_eq!(Form::of(MYSQL_TYPE_TYPED_ARRAY, &[]), None);
}
