//! What a sink has in the end, beside lists of rows that are searched from their end. A failing case prints its seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::datatypes::{Field, Schema};
use tidemill_block::text;
use tidemill_state::hash;

use super::*;

/// The key stands in the middle.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("v", DataType::Int64, true),
        Field::new("k", DataType::Utf8, true),
        Field::new("s", DataType::Utf8, true),
    ]))
}

fn operator() -> UpsertMaterialize {
    UpsertMaterialize::new(schema(), vec![1]).unwrap()
}

/// Gives each shard its rows of a block; the lines that come out.
fn feed(shards: &mut [UpsertMaterialize], block: &Block) -> Vec<String> {
    let mut hashes = Vec::new();
    hash::rows(std::slice::from_ref(block.column(1)), block.rows(), &mut hashes).unwrap();
    let count = shards.len();
    let mut out = Output::default();
    for (shard, operator) in shards.iter_mut().enumerate() {
        let mine: BooleanArray = hashes.iter().map(|hash| Some(hash::shard(*hash, count) == shard)).collect();
        operator.on_block(0, block.filter(&mine).unwrap(), &mut out).unwrap();
    }
    let lines: String = out.blocks.iter().map(text::format).collect();
    lines.lines().map(str::to_string).collect()
}

/// Gives an operator rows in blocks of `size` and looks at what comes out.
#[track_caller]
fn check(operator: &mut UpsertMaterialize, input: &str, size: usize, expect: &str) {
    let block = text::parse(&schema(), input);
    let mut found = Vec::new();
    for from in (0..block.rows()).step_by(size) {
        found.extend(feed(std::slice::from_mut(operator), &block.slice(from, size.min(block.rows() - from))));
    }
    assert_eq!(found, expect.lines().map(str::trim).collect::<Vec<_>>(), "blocks of {size}");
}

/// The state of some shards in as many others.
fn moved(shards: &mut [UpsertMaterialize], later: usize) -> Vec<UpsertMaterialize> {
    let tables: Vec<StateTable> = shards.iter_mut().flat_map(|shard| shard.snapshot().unwrap()).collect();
    let restored = |shard: usize| {
        let mut operator = operator();
        operator.restore(tables.iter().map(|table| table.of_shard(shard, later).unwrap()).collect()).unwrap();
        operator
    };
    (0..later).map(restored).collect()
}

#[test]
fn the_newest_row_is_shown_and_then_the_one_before() {
    check(&mut operator(), "2 a x\n1 a y\n-D 1 a y\n-D 2 a x", 1, "+I 2 a x\n+U 1 a y\n+U 2 a x\n-D 2 a x");
    // Of one that is not shown nobody hears.
    check(&mut operator(), "2 a x\n1 a y\n-U 2 a x\n-D 1 a y", 1, "+I 2 a x\n+U 1 a y\n-D 1 a y");
    // Rows that are the same count each, and show nothing new.
    check(&mut operator(), "2 a x\n2 a x\n-D 2 a x\n-D 2 a x\n5 a NULL", 1, "+I 2 a x\n-D 2 a x\n+I 5 a NULL");
    check(&mut operator(), "1 a x\n2 a x\n1 a x\n-D 1 a x", 1, "+I 1 a x\n+U 2 a x\n+U 1 a x\n+U 2 a x");
}

#[test]
fn a_block_says_what_a_key_ends_with() {
    let mut operator = operator();
    check(&mut operator, "1 b x\n2 a y\n3 c z\n-U 1 b x\n+U 4 b x\n-D 3 c z", 100, "+I 4 b x\n+I 2 a y");
    check(&mut operator, "-D 2 a y\n-U 4 b x\n+U 5 b x\n-U 5 b x\n+U 4 b x\n7 d x", 100, "-D 2 a y\n+I 7 d x");
    check(&mut operator, "8 d x\n-U 4 b x\n+U 5 b NULL\n9 d x\n-D 9 d x", 100, "+U 8 d x\n+U 5 b NULL");
}

/// A sink may have rows of which nothing is known here.
#[test]
fn what_is_not_there_is_deleted_where_nothing_is() {
    let mut operator = operator();
    check(&mut operator, "-D 1 a x\n-U 2 b y\n+U 3 b y", 100, "-D 1 a x\n+I 3 b y");
    assert_eq!(operator.stats().unknown_rows, 0);
    check(&mut operator, "-D 1 b x\n-D 3 b x\n4 a x\n-D 4 a x\n-D 5 a x", 100, "-D 5 a x");
    assert_eq!((operator.stats().unknown_rows, operator.stats().entries), (2, 1));
    // What was shown is there again.
    check(&mut operator, "-D 3 b y\n-D 9 b y\n3 b y", 100, "");
}

#[test]
fn what_leaves_leaves_nothing_behind() {
    let mut operator = operator();
    for round in 0..1000 {
        feed(std::slice::from_mut(&mut operator), &text::parse(&schema(), &format!("{round} k{round} x\n-D 1 b y\n{round} a y")));
        feed(std::slice::from_mut(&mut operator), &text::parse(&schema(), &format!("-D {round} a y\n-D {round} k{round} x")));
    }
    assert_eq!((operator.keys.len(), operator.contents.len(), operator.stats().entries), (0, 0, 0));
    assert!(operator.rows.rows.len() <= 2 && operator.contents.capacity() <= 3, "numbers are given again");
    assert!(operator.snapshot().unwrap().is_empty());
}

/// Columns behind hashes, in a table of this name: what was kept in front of sinks before had it so, too.
#[test]
fn the_form_of_the_state() {
    let rows = text::parse(&schema(), "1 a x\n2 a y\n3 b z");
    let mut hashes = Vec::new();
    hash::rows(std::slice::from_ref(rows.column(1)), 3, &mut hashes).unwrap();
    let table = StateTable::keyed("rows", hashes, rows.batch.columns().to_vec()).unwrap();
    let mut operator = operator();
    operator.restore(vec![table.clone()]).unwrap();
    let saved = operator.snapshot().unwrap();
    assert_eq!(saved.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["rows"]);
    assert_eq!(saved[0].batch, table.batch);
    check(&mut operator, "-D 2 a y\n-D 3 b z", 1, "+U 1 a x\n-D 3 b z");
    assert!(operator.restore(vec![StateTable::keyed("rows", vec![1], vec![rows.column(0).slice(0, 1)]).unwrap()]).is_err());
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash::mix(self.0) % n
    }
}

/// Every row by key, in order of arrival, and how many were to be taken back in vain.
#[derive(Default)]
struct Oracle {
    rows: BTreeMap<String, Vec<String>>,
    unknown: u64,
}

impl Oracle {
    fn follow(&mut self, adds: bool, key: &str, row: &str) {
        let rows = self.rows.entry(key.to_string()).or_default();
        if adds {
            rows.push(row.to_string());
        } else if let Some(at) = rows.iter().rposition(|other| other == row) {
            rows.remove(at);
        } else if !rows.is_empty() {
            self.unknown += 1;
        }
    }

    fn shown(&self) -> BTreeMap<String, String> {
        self.rows.iter().filter_map(|(key, rows)| Some((key.clone(), rows.last()?.clone()))).collect()
    }
}

/// Writes changes to a sink that knows one row a key.
#[track_caller]
fn write(sink: &mut BTreeMap<String, String>, lines: &[String], seed: u64) {
    for line in lines {
        let (kind, row) = line.split_once(' ').unwrap();
        let key = row.split(' ').nth(1).unwrap().to_string();
        let fits = match kind {
            "+I" => sink.insert(key, row.to_string()).is_none(),
            "+U" => sink.insert(key, row.to_string()).is_some_and(|before| before != row),
            "-D" => sink.remove(&key).is_none_or(|before| before == row),
            _ => false,
        };
        assert!(fits, "seed {seed}: {line}");
    }
}

#[test]
fn a_sink_has_the_newest_row_of_each_key() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (mut oracle, mut sink) = (Oracle::default(), BTreeMap::new());
        let mut shards = vec![operator()];
        for step in 0..60 {
            let mut changes = String::new();
            for _ in 0..=random.below(7) {
                let key = format!("k{}", random.below(4));
                let held = oracle.rows.get(&key).filter(|rows| !rows.is_empty());
                let (adds, row) = match held {
                    Some(rows) if random.below(2) == 0 => (false, rows[random.below(rows.len() as u64) as usize].clone()),
                    // Few, so that some are the same, and some of those that are taken back are not there.
                    _ => (random.below(6) > 0, format!("{} {key} s{}", random.below(4), random.below(2))),
                };
                let kind = [["-D", "-U"], ["+I", "+U"]][usize::from(adds)][random.below(2) as usize];
                changes += &format!("{kind} {row}\n");
                oracle.follow(adds, &key, &row);
            }
            write(&mut sink, &feed(&mut shards, &text::parse(&schema(), &changes)), seed);
            assert_eq!(sink, oracle.shown(), "seed {seed}, after block {step}");
            let stats: Vec<OperatorStats> = shards.iter().map(Operator::stats).collect();
            let rows: usize = oracle.rows.values().map(Vec::len).sum();
            assert_eq!(stats.iter().map(|s| s.entries).sum::<u64>(), rows as u64, "seed {seed}");
            assert_eq!(stats.iter().map(|s| s.unknown_rows).sum::<u64>(), oracle.unknown, "seed {seed}");
            if random.below(10) == 0 {
                shards = moved(&mut shards, 1 + random.below(3) as usize);
                oracle.unknown = 0;
            }
        }
    }
}
