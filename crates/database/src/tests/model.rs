//! A changelog against a model: after any batches the table holds the newest row of each key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;

/// `text_key`: keys are texts, of two columns; otherwise numbers.
fn check(seed: u64, text_key: bool, more: &[(&str, &str)]) {
    let place = Place::new();
    let mut random = Random(seed);
    let (schema, key): (_, &[&str]) = if text_key {
        (schema(&[("v", DataType::Int32), ("k", DataType::Utf8), ("l", DataType::Int64)]), &["k", "l"])
    } else {
        (schema(&[("v", DataType::Int32), ("k", DataType::Int64)]), &["k"])
    };
    let sink = place.sink(&schema, key, more);
    assert!(sink.accepts_updates() && !sink.wants_update_before() && sink.by_key());
    let mut writer = start(sink.as_ref(), &schema);
    let mut model: BTreeMap<String, i32> = BTreeMap::new();
    for _ in 0..20 {
        let mut changes = String::new();
        for _ in 0..1 + random.below(60) {
            let (k, v) = (random.below(40), random.below(1000) as i32);
            let key = if text_key { format!("k{} {}", k % 7, k) } else { k.to_string() };
            let kind = if random.below(3) == 0 { "-D" } else { ["+I", "+U"][random.below(2) as usize] };
            writeln!(changes, "{kind} {v} {key}").unwrap();
            if kind == "-D" {
                model.remove(&key)
            } else {
                model.insert(key, v)
            };
        }
        writer.write(&text::parse(&schema, &changes)).unwrap();
        if random.below(3) == 0 {
            writer.flush().unwrap();
        }
        if random.below(4) == 0 {
            writer.prepare(false).unwrap();
            let mut expect: Vec<String> = model.iter().map(|(k, v)| format!("+I {v} {k}")).collect();
            expect.sort();
            assert_eq!(lines(&place.rows(&schema)), expect, "seed {seed}");
        }
    }
}

#[test]
fn changes_by_number() {
    (0..10).for_each(|seed| check(seed, false, &[]));
}

#[test]
fn changes_by_texts() {
    (10..20).for_each(|seed| check(seed, true, &[]));
}

#[test]
fn changes_in_small_batches() {
    (20..25).for_each(|seed| check(seed, true, &[("sink.buffer-flush.max-rows", "7")]));
}

#[test]
fn a_table_of_keys_only() {
    let place = Place::new();
    let schema = schema(&[("k", DataType::Int64)]);
    let sink = place.sink(&schema, &["k"], &[]);
    let mut writer = start(sink.as_ref(), &schema);
    writer.write(&text::parse(&schema, "1\n2\n1\n-D 2")).unwrap();
    writer.prepare(true).unwrap();
    assert_eq!(lines(&place.rows(&schema)), ["+I 1"]);
}
