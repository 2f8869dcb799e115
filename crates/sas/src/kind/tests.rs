//! Tests of `kind`.

use super::*;

#[test]
fn formats() {
    #[track_caller]
    fn check(name: &str, expect: Kind) {
        assert_eq!(Kind::of_format(name), expect, "{name}");
    }
    check("", Kind::Number);
    check("BEST", Kind::Number);
    check("DOLLAR12.2", Kind::Number);
    check("MMSS", Kind::Number);
    check("date9.", Kind::Date);
    check("MMDDYY", Kind::Date);
    check("E8601DA", Kind::Date);
    check("MONNAME", Kind::Date);
    check("DATETIME22.3", Kind::DateTime);
    check("E8601DT", Kind::DateTime);
    check("TIME8.", Kind::Time);
    check("TOD", Kind::TimeOfDay);
}

#[test]
fn numbers_to_dates_and_times() {
    assert_eq!((date(0.0), date(20_892.0), date(20_892.9)), (Some(-3_653), Some(17_239), Some(17_239)));
    assert_eq!((date(-0.5), date(1e9), date(f64::NAN)), (Some(-3_654), None, None));
    assert_eq!(datetime(1_805_125_016.546), Some(1_489_505_816_546_000));
    assert_eq!((datetime(0.0), datetime(-0.25)), (Some(-315_619_200_000_000), Some(-315_619_200_250_000)));
    assert_eq!(datetime(f64::INFINITY), None);
    assert_eq!((time(0.0), time(56_216.546), time(86_399.999_9)), (Some(0), Some(56_216_546), Some(86_399_999)));
    assert_eq!((time(86_400.0), time(-1.0), time(f64::NAN)), (None, None, None));
    assert_eq!(time_of_day(1_805_125_016.546), Some(56_216_546));
}

#[test]
fn missing_values() {
    assert!((0..28).all(|code| missing(code).is_nan()));
    let texts: Vec<_> = [0, 1, 2, 27].iter().map(|code| missing_text(missing(*code))).collect();
    assert_eq!(texts, ["._", ".", ".A", ".Z"]);
    assert_eq!(missing_text(missing(b'C')), ".C");
    assert_eq!(missing_text(f64::NAN), ".");
    assert_eq!(missing(1).to_bits(), 0xFFFF_FE00_0000_0000);
}
