//! Tests of `start`.

use super::*;

#[test]
fn specific_offsets() {
    let check = |text: &str, expect: Option<&[(i32, i64)]>| {
        let got = offsets("o", Some(text));
        assert_eq!(got.ok(), expect.map(|pairs| pairs.iter().copied().collect()), "{text}");
    };
    check("partition:0,offset:42;partition:1,offset:300", Some(&[(0, 42), (1, 300)]));
    check(" partition:3 , offset:0 ; ", Some(&[(3, 0)]));
    check("partition:0,offset:-1", None);
    check("partition:0,offset:1;partition:0,offset:2", None);
    check("0:42", None);
    check("", None);
    assert!(offsets("o", None).unwrap_err().contains("'o' is required"));
}
