//! What upserts come to, in blocks of any size, and state that moves to other shards.

use super::*;
use arrow::datatypes::{Field, Schema};
use tidemill_block::text;

fn schema(nullable: bool) -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("v", DataType::Int64, nullable),
        Field::new("k", DataType::Utf8, false),
        Field::new("s", DataType::Utf8, true),
    ]))
}

fn operator() -> Normalize {
    Normalize::new(vec![1], &schema(true), schema(false)).unwrap()
}

/// Gives the rows in blocks of `size` rows; what comes out, as text.
fn run(operator: &mut Normalize, input: &str, size: usize) -> String {
    let block = text::parse(&schema(true), input);
    let mut out = Output::default();
    for from in (0..block.rows()).step_by(size) {
        operator.on_block(0, block.slice(from, size.min(block.rows() - from)), &mut out).unwrap();
    }
    out.blocks.iter().map(text::format).collect()
}

#[track_caller]
fn check(input: &str, expect: &str) {
    let expect: String = expect.lines().map(|l| format!("{}\n", l.trim())).collect();
    for size in [1, 2, 3, 1000] {
        assert_eq!(run(&mut operator(), input, size), expect, "blocks of {size}");
    }
}

#[test]
fn keys_are_inserted_updated_and_deleted() {
    check("1 a x\n2 b y", "+I 1 a x\n+I 2 b y");
    check("1 a x\n2 a x\n+U 3 a NULL", "+I 1 a x\n-U 1 a x\n+U 2 a x\n-U 2 a x\n+U 3 a NULL");
    check("+U 1 a x\n-D NULL a NULL\n5 a x", "+I 1 a x\n-D 1 a x\n+I 5 a x");
    check(
        "1 a x\n1 b y\n-D NULL a NULL\n2 b y\n3 c z\n-D NULL c NULL",
        "+I 1 a x\n+I 1 b y\n-D 1 a x\n-U 1 b y\n+U 2 b y\n+I 3 c z\n-D 3 c z",
    );
}

#[test]
fn what_changes_nothing_is_dropped() {
    check("-D NULL a NULL\n-D NULL b NULL\n1 a x", "+I 1 a x");
    check("1 a x\n1 a x\n+U 1 a x\n1 b NULL\n1 b NULL", "+I 1 a x\n+I 1 b NULL");
    check("1 a x\n-U 1 a x\n+U 2 a x", "+I 1 a x\n-U 1 a x\n+U 2 a x");
}

#[test]
fn a_deleted_key_leaves_nothing_behind() {
    let mut operator = operator();
    run(&mut operator, "1 a x\n2 b y\n-D NULL a NULL\n-D NULL zz NULL", 4);
    assert_eq!(operator.stats().entries, 1);
    run(&mut operator, "-D NULL b NULL", 1);
    assert_eq!(operator.stats().entries, 0);
    assert_eq!(run(&mut operator, "7 b y", 1), "+I 7 b y\n");
}

#[test]
fn a_table_of_keys_only() {
    let keys = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
    let mut operator = Normalize::new(vec![0], &keys, keys.clone()).unwrap();
    let mut out = Output::default();
    operator.on_block(0, text::parse(&keys, "1\n1\n2\n-D 1\n-D 3\n1"), &mut out).unwrap();
    assert_eq!(out.blocks.iter().map(text::format).collect::<String>(), "+I 1\n+I 2\n-D 1\n+I 1\n");
}

/// The state of any number of shards goes on in any other number of them.
#[test]
fn state_is_divided_anew() {
    let input: String = (0..100).map(|i| format!("{i} k{i} s{i}\n")).collect();
    for (former, later) in [(1, 1), (1, 3), (3, 1), (2, 5)] {
        let mut before: Vec<Normalize> = (0..former).map(|_| operator()).collect();
        let all = StateTable::keyed("rows", hashes(&input), text::parse(&schema(true), &input).batch.columns().to_vec()).unwrap();
        for (shard, operator) in before.iter_mut().enumerate() {
            let mine = all.of_shard(shard, former).unwrap();
            let batch = RecordBatch::try_new(schema(true), mine.columns().to_vec()).unwrap();
            operator.on_block(0, Block::inserts(batch, 0), &mut Output::default()).unwrap();
        }
        let tables: Vec<StateTable> = before.iter_mut().flat_map(|operator| operator.snapshot().unwrap()).collect();
        let mut lines: Vec<String> = Vec::new();
        for shard in 0..later {
            let mut operator = operator();
            operator.restore(tables.iter().map(|t| t.of_shard(shard, later).unwrap()).collect()).unwrap();
            let deletions: String = (0..100).map(|i| format!("-D NULL k{i} NULL\n")).collect();
            lines.extend(run(&mut operator, &deletions, 7).lines().map(str::to_string));
            assert_eq!(operator.stats().entries, 0);
        }
        lines.sort();
        let mut expect: Vec<String> = (0..100).map(|i| format!("-D {i} k{i} s{i}")).collect();
        expect.sort();
        assert_eq!(lines, expect, "{former} shards, then {later}");
    }
}

fn hashes(input: &str) -> Vec<u64> {
    let block = text::parse(&schema(true), input);
    let mut slots = Slots::default();
    KeyTable::new(vec![DataType::Utf8]).unwrap().intern(&[block.column(1).clone()], block.rows(), &mut slots).unwrap();
    slots.hashes
}
