//! Tests of `index`.

use super::*;

fn fields(text: &str, cut: usize) -> Vec<Vec<String>> {
    let mut index = Index::new(b',', Some(b'"'), None);
    let bytes = text.as_bytes();
    let mut upto = 0;
    while upto < bytes.len() {
        upto = (upto + cut).min(bytes.len());
        index.scan(&bytes[..upto]);
    }
    let mut start = 0;
    let mut separator = 0;
    let mut records = Vec::new();
    for &end in &index.record_ends {
        let mut record = Vec::new();
        while separator <= end as usize {
            let at = index.separators[separator] as usize;
            record.push(text[start..at].to_string());
            start = at + 1;
            separator += 1;
        }
        records.push(record);
    }
    records
}

#[test]
fn the_fast_and_the_slow_path_agree() {
    let mut text = String::new();
    for i in 0..300 {
        text += &format!("{i},plain text {i},\"quoted, with \"\"{i}\"\"\nand a line\",5\" pipe\n");
        text += &"x,y,z,w\n".repeat(i % 7);
    }
    let whole = fields(&text, text.len());
    assert_eq!(whole.len(), 300 + (0..300).map(|i| i % 7).sum::<usize>());
    assert!(whole.iter().all(|r| r.len() == 4), "every record has four fields");
    for cut in [1, 7, 63, 64, 65, 1000] {
        assert_eq!(fields(&text, cut), whole, "cut into pieces of {cut}");
    }
}

#[test]
fn the_ways_of_all_processors_agree() {
    let mut text = String::new();
    for i in 0..400 {
        text += &format!("{},{i}\n{}", ",".repeat(i % 70), "word\n".repeat(i % 3));
        text += &"x".repeat(i);
    }
    let (mut narrow, mut any) = (Index::new(b',', None, None), Index::new(b',', None, None));
    narrow.scan_by(text.as_bytes(), masks, places);
    any.scan(text.as_bytes());
    assert_eq!(narrow.separators.len(), text.bytes().filter(|b| b",\n".contains(b)).count());
    assert_eq!((&any.separators, &any.record_ends), (&narrow.separators, &narrow.record_ends));
    #[cfg(target_arch = "x86_64")]
    if wide() {
        // What a processor with larger registers would not take.
        let mut wide = Index::new(b',', None, None);
        // SAFETY: the processor has all that the function is compiled for.
        unsafe { wide.scan_wide(text.as_bytes()) };
        assert_eq!((&wide.separators, &wide.record_ends), (&narrow.separators, &narrow.record_ends));
    }
}

#[test]
fn what_is_not_plain_is_known() {
    for (odd, quote) in [("\"", Some(b'"')), ("é", None), ("é", Some(b'"'))] {
        for at in [0, 10, 63, 64, 150, 199] {
            let text = format!("{}{odd}{}", "x".repeat(at), "y".repeat(200 - at));
            let mut index = Index::new(b',', quote, None);
            index.scan(text.as_bytes());
            let first = (0..=text.len()).find(|from| index.is_plain_from(*from)).expect("behind the text");
            assert!((at + odd.len()..at + odd.len() + 64).contains(&first), "{odd} at {at}: {first}");
        }
    }
    let mut index = Index::new(b',', Some(b'"'), None);
    index.scan(b"a,\"b\"\nc,d\n");
    index.discard(1, 6);
    assert!(index.is_plain_from(0));
    let mut index = Index::new(b',', None, None);
    index.scan(b"a,\"b\"\n");
    assert!(index.is_plain_from(0), "a quote means nothing here");
}
