//! Tests of `page`.

use super::*;

#[test]
fn pages_come_back_and_no_bit_may_change() {
    let mut out = vec![1; 5];
    let mut builder = PageBuilder::default();
    for n in 0..20u64 {
        builder.push(n / 2 * 10, &vec![n as u8; n as usize], n % 3 == 0, &mut out);
    }
    let expected = builder.bytes(&out);
    assert_eq!(builder.span(), Some((0, 90)));
    builder.finish(77, &mut out);
    let bytes = &out[5..];
    assert_eq!(bytes.len(), expected);
    let page = Page::check(bytes, 77).unwrap();
    for n in 0..20 {
        assert_eq!(page.hash(n), n as u64 / 2 * 10);
        assert_eq!(page.row(n), (&vec![n as u8; n][..], n % 3 == 0));
    }
    assert_eq!([page.find(0), page.find(1), page.find(90), page.find(91)], [0, 2, 18, 20]);
    assert!(Page::check(bytes, 78).is_err(), "another place");
    for at in 0..bytes.len() {
        let mut other = bytes.to_vec();
        other[at] ^= 4;
        assert!(Page::check(&other, 77).is_err(), "byte {at}");
    }
}
