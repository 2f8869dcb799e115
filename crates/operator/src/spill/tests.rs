//! Operators whose state hardly fits in memory against the same with all of it: what they emit is the same,
//! whatever leaves, comes back, is written for a checkpoint or divided among other shards.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray, UInt32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_physical_expr::expressions::Column;
use tidemill_block::{Block, RowKind, text};
use tidemill_state::{StateTable, hash};

use super::*;
use crate::aggregate::AggregateCall;
use crate::aggregate::tests::call;
use crate::group::GroupAggregate;
use crate::map::Expr;
use crate::rank::keep_last::KeepLast;
use crate::rank::{RankFunction, RankSpec, Ties};
use crate::{Operator, Output};

/// Small numbers that are the same in every run (a linear congruence; only high bits are used).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidemill-spill-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

fn place(folder: &Path, run: usize, shard: usize, shards: usize, share: usize) -> SpillPlace {
    SpillPlace {
        directory: folder.join(format!("{run}-{shard}")),
        name: format!("test-{run}-{shard}"),
        hashes: HashRange::of_shard(shard, shards),
        share: Some(Arc::new(MemoryShare::new(share))),
        durable: true,
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

type Make<'a> = &'a dyn Fn() -> Box<dyn Operator>;

/// Operators that share the keys, and what they emitted, row for row of the input block.
struct Shards {
    operators: Vec<Box<dyn Operator>>,
}

impl Shards {
    fn new(make: Make<'_>, folder: Option<&Path>, run: usize, shards: usize, share: usize) -> Self {
        let mut operators: Vec<Box<dyn Operator>> = (0..shards).map(|_| make()).collect();
        if let Some(folder) = folder {
            for (shard, operator) in operators.iter_mut().enumerate() {
                assert!(operator.spills());
                operator.spill_to(place(folder, run, shard, shards, share));
            }
        }
        Shards { operators }
    }

    /// What comes of a block, its changes sorted: the order between shards is no matter.
    fn take_in(&mut self, block: &Block) -> Vec<String> {
        let mut hashes = Vec::new();
        hash::rows(&block.batch.columns()[..1], block.rows(), &mut hashes).unwrap();
        let mut out = Output::default();
        let shards = self.operators.len();
        for (shard, operator) in self.operators.iter_mut().enumerate() {
            let mine: Vec<u32> = (0..block.rows() as u32).filter(|row| hash::shard(hashes[*row as usize], shards) == shard).collect();
            if !mine.is_empty() {
                operator.on_block(0, block.take(&UInt32Array::from(mine)).unwrap(), &mut out).unwrap();
            }
        }
        let mut lines: Vec<String> =
            out.blocks.iter().flat_map(|b| text::format(b).lines().map(str::to_string).collect::<Vec<_>>()).collect();
        lines.sort();
        lines
    }

    /// A barrier: what is in memory, and what goes into files while blocks come in.
    fn barrier(&mut self) -> Vec<StateTable> {
        self.operators.iter_mut().flat_map(|operator| operator.snapshot().unwrap()).collect()
    }

    fn files(&mut self, into: &mut [Option<Vec<StateRuns>>]) -> bool {
        for (operator, files) in self.operators.iter_mut().zip(into.iter_mut()).filter(|(_, files)| files.is_none()) {
            if let SnapshotFiles::Written(runs) = operator.snapshot_files().unwrap() {
                *files = Some(runs);
            }
        }
        into.iter().all(Option::is_some)
    }

    fn restore(&mut self, tables: &[StateTable], runs: &[StateRuns]) {
        let shards = self.operators.len();
        for (shard, operator) in self.operators.iter_mut().enumerate() {
            let hashes = HashRange::of_shard(shard, shards);
            operator.restore_files(runs.iter().filter(|runs| runs.hashes.overlaps(hashes)).cloned().collect()).unwrap();
            operator.restore(tables.iter().map(|table| table.of_shard(shard, shards).unwrap()).collect()).unwrap();
        }
    }
}

/// Random blocks through one operator in memory and several that must spill, which are now and then replaced
/// by what a checkpoint says, while the blocks since are given again.
fn same_with_little_memory(name: &str, make: Make<'_>, share: usize, mut block: impl FnMut(&mut Random) -> Block) {
    let seed = std::env::var("SPILL_SEED").map_or(5, |seed| seed.parse().expect("SPILL_SEED is a number"));
    let mut random = Random(seed);
    let folder = Folder::new(name);
    let mut model = Shards::new(make, None, 0, 1, 0);
    let mut tested = Shards::new(make, Some(&folder.0), 0, 2, share);
    let (mut left, mut read) = (0, 0);
    for run in 1..12 {
        let gather = |shards: &Shards, left: &mut u64, read: &mut u64| {
            for stats in shards.operators.iter().filter_map(|operator| operator.disk_stats()) {
                *left += stats.writes;
                *read += stats.reads;
            }
        };
        for _ in 0..random.below(40) {
            let block = block(&mut random);
            assert_eq!(tested.take_in(&block), model.take_in(&block), "run {run}, seed {seed}");
        }
        let tables = tested.barrier();
        let mut files: Vec<Option<Vec<StateRuns>>> = vec![None; tested.operators.len()];
        // What comes behind the barrier must not show in the files.
        let mut since: Vec<(Block, Vec<String>)> = Vec::new();
        while !tested.files(&mut files) || random.below(4) > 0 {
            let block = block(&mut random);
            let lines = tested.take_in(&block);
            assert_eq!(lines, model.take_in(&block), "behind the barrier of run {run}, seed {seed}");
            since.push((block, lines));
        }
        gather(&tested, &mut left, &mut read);
        if random.below(3) > 0 {
            let shards = 1 + random.below(4) as usize;
            let runs: Vec<StateRuns> = files.into_iter().flatten().flatten().collect();
            tested = Shards::new(make, Some(&folder.0), run, shards, share);
            tested.restore(&tables, &runs);
            for (block, lines) in &since {
                assert_eq!(tested.take_in(block), *lines, "again behind run {run} with {shards} shards, seed {seed}");
            }
        }
    }
    assert!(left > 1000 && read > 100, "{left} keys left and {read} came back: too few for a test");
}

fn column(name: &str, index: usize) -> Expr {
    Arc::new(Column::new(name, index))
}

/// A key of a hundred thousand, few of them often, and a value.
fn row(random: &mut Random) -> (String, i64) {
    let many = if random.below(3) == 0 { 20 } else { 5000 };
    let key = random.below(many);
    (format!("key {key} {}", "x".repeat(key as usize % 50)), random.below(100) as i64)
}

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true), Field::new("v", DataType::Int64, true)]))
}

fn batch(rows: &[(String, i64)]) -> RecordBatch {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(key, _)| key)));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, value)| *value)));
    RecordBatch::try_new(input(), vec![keys, values]).unwrap()
}

fn group(calls: &[AggregateCall], retracts: bool, fold: bool) -> Box<dyn Operator> {
    Box::new(grouping(calls, retracts, fold))
}

fn grouping(calls: &[AggregateCall], retracts: bool, fold: bool) -> GroupAggregate {
    let mut fields = vec![Field::new("k", DataType::Utf8, true)];
    fields.extend(calls.iter().enumerate().map(|(i, call)| call.output.as_ref().clone().with_name(format!("c{i}"))));
    let keys = vec![column("k", 0)];
    let schema = Arc::new(Schema::new(fields));
    GroupAggregate::new(keys, vec![DataType::Utf8], calls.to_vec(), schema, retracts, fold, true).unwrap()
}

fn calls(names: &[(&str, bool)]) -> Vec<AggregateCall> {
    let one = |(name, distinct): &(&str, bool)| {
        let mut call = call(name, DataType::Int64, false);
        call.arguments = vec![column("v", 1)];
        call.distinct = *distinct;
        call
    };
    names.iter().map(one).collect()
}

#[test]
fn groups_that_only_grow() {
    let calls = calls(&[("count", false), ("sum", false), ("max", false), ("count", true)]);
    for fold in [false, true] {
        let make = || group(&calls, false, fold);
        same_with_little_memory(&format!("grow-{fold}"), &make, 256 << 10, |random| {
            let rows: Vec<(String, i64)> = (0..1 + random.below(400)).map(|_| row(random)).collect();
            Block::inserts(batch(&rows), 0)
        });
    }
}

#[test]
fn groups_that_come_and_go() {
    let calls = calls(&[("count", false), ("sum", false), ("min", false), ("sum", true), ("last_value", false)]);
    for fold in [false, true] {
        let make = || group(&calls, true, fold);
        // What is there, so that only that is taken back.
        let mut there: Vec<(String, i64)> = Vec::new();
        same_with_little_memory(&format!("come-and-go-{fold}"), &make, 128 << 10, |random| {
            let mut rows: Vec<(RowKind, (String, i64))> = Vec::new();
            for _ in 0..1 + random.below(300) {
                if random.below(5) < 2 && !there.is_empty() {
                    let gone = there.swap_remove(random.below(there.len() as u64) as usize);
                    rows.push((RowKind::Delete, gone));
                } else {
                    let new = row(random);
                    there.push(new.clone());
                    rows.push((RowKind::Insert, new));
                }
            }
            let (kinds, rows): (Vec<RowKind>, Vec<(String, i64)>) = rows.into_iter().unzip();
            Block::changelog(batch(&rows), kinds.into(), 0)
        });
    }
}

#[test]
fn the_last_rows_of_keys() {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, false),
        Field::new("v", DataType::Int64, false),
        Field::new("t", time, false),
    ]));
    for fold in [false, true] {
        let make = || -> Box<dyn Operator> {
            let spec = RankSpec {
                keys: vec![column("k", 0)],
                key_types: vec![DataType::Utf8],
                order: Vec::new(),
                order_types: Vec::new(),
                function: RankFunction::RowNumber,
                from: 1,
                to: 1,
                ties: Ties::Last,
                retracts: false,
                rank_column: false,
                input: schema.clone(),
                schema: schema.clone(),
            };
            Box::new(KeepLast::new(spec, 2, fold, true).unwrap())
        };
        let mut now = 0;
        same_with_little_memory(&format!("last-{fold}"), &make, 256 << 10, |random| {
            let rows: Vec<(String, i64)> = (0..1 + random.below(2500)).map(|_| row(random)).collect();
            now += 10;
            let times: Vec<i64> = rows.iter().map(|_| now - random.below(30) as i64).collect();
            let mut columns = batch(&rows).columns().to_vec();
            columns.push(Arc::new(TimestampMillisecondArray::from(times)));
            Block::inserts(RecordBatch::try_new(schema.clone(), columns).unwrap(), 0)
        });
    }
}

/// A few hundred keys, each of which gathers values for a while: memory is looked at although few keys are new.
#[test]
fn what_grows_without_new_keys_leaves_too() {
    let folder = Folder::new("grow-within");
    let calls = calls(&[("count", true)]);
    let mut operator = group(&calls, false, true);
    operator.spill_to(place(&folder.0, 0, 0, 1, 2 << 20));
    let mut out = Output::default();
    let mut most = 0;
    for block in 0..1200_i64 {
        // Every sixty blocks ten other keys; all values differ.
        let rows: Vec<(String, i64)> = (0..1000).map(|row| (format!("key {}", block / 60 * 10 + row % 10), block * 1000 + row)).collect();
        operator.on_block(0, Block::inserts(batch(&rows), 0), &mut out).unwrap();
        out.blocks.clear();
        most = most.max(operator.stats().memory);
    }
    assert_eq!(operator.stats().entries, 200);
    // All 1.2 million values take 32 MB and more.
    assert!(most <= 24 << 20, "{most} bytes");
    assert!(operator.disk_stats().unwrap().writes > 0);
}

/// Unique keys, far more than fit: what is in memory stays within its share.
#[test]
fn memory_stays_within_its_share() {
    let folder = Folder::new("share");
    let share = 2 << 20;
    let calls = calls(&[("count", false)]);
    let mut operator = group(&calls, false, true);
    operator.spill_to(place(&folder.0, 0, 0, 1, share));
    let mut out = Output::default();
    let mut most = 0;
    for block in 0..300 {
        let rows: Vec<(String, i64)> = (0..500).map(|row| (format!("{:>100}", block * 500 + row), 1)).collect();
        operator.on_block(0, Block::inserts(batch(&rows), 0), &mut out).unwrap();
        out.blocks.clear();
        most = most.max(operator.stats().memory);
    }
    assert_eq!(operator.stats().entries, 150_000);
    assert!(most <= share as u64 * 2, "{most} bytes of {share}");
    assert!(operator.disk_stats().unwrap().writes >= 120_000);
}

/// Keys leave with the next rows when some of the share is withheld, down to less than keys have otherwise, and none is lost.
#[test]
fn keys_leave_when_memory_is_withheld() {
    let folder = Folder::new("withheld");
    let share = Arc::new(MemoryShare::new(16 << 20));
    let mut operator = grouping(&calls(&[("count", false)]), false, true);
    operator.spill_to(SpillPlace { share: Some(share.clone()), ..place(&folder.0, 0, 0, 1, 0) });
    let mut next = 0;
    let mut take_in = |blocks: usize| {
        let mut out = Output::default();
        for _ in 0..blocks {
            let rows: Vec<(String, i64)> = (next..next + 500).map(|row| (format!("{row:>100}"), 1)).collect();
            next += 500;
            operator.on_block(0, Block::inserts(batch(&rows), 0), &mut out).unwrap();
            out.blocks.clear();
        }
        let written = operator.disk_stats().map_or(0, |disk| disk.writes);
        // Not the buffers of the store, which are as full as the disk is slow.
        (operator.bytes_of_keys(), operator.stats().entries, operator.stats().entries - written)
    };
    let (full, _, kept) = take_in(400);
    share.withhold(usize::MAX);
    let (less, _, left) = take_in(20);
    assert!(left * 3 < kept, "{left} keys of {kept} are still there");
    assert!(less * 3 < full, "{full} bytes, then {less}");
    share.withhold(0);
    let (_, entries, again) = take_in(100);
    assert!(again > left * 2, "{left} keys stayed, and then {again}");
    assert_eq!(entries, 260_000);
}

/// The same of keys that take nothing but their slots, which stay when keys leave: the slots are filled again and again.
#[test]
fn slots_are_filled_again() {
    let folder = Folder::new("slots");
    let share = 8 << 20;
    let schema = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true), Field::new("c", DataType::Int64, false)]));
    let mut operator =
        GroupAggregate::new(vec![column("v", 1)], vec![DataType::Int64], calls(&[("count", false)]), schema, false, true, true).unwrap();
    operator.spill_to(place(&folder.0, 0, 0, 1, share));
    let mut out = Output::default();
    let (mut most, mut fewest) = (0, u64::MAX);
    for block in 0..400 {
        let rows: Vec<(String, i64)> = (0..2000).map(|row| (String::new(), block * 2000 + row)).collect();
        operator.on_block(0, Block::inserts(batch(&rows), 0), &mut out).unwrap();
        out.blocks.clear();
        most = most.max(operator.stats().memory);
        // No key comes twice, so what was written is no longer here.
        if let Some(disk) = operator.disk_stats() {
            fewest = fewest.min(operator.stats().entries - disk.writes);
        }
    }
    assert_eq!(operator.stats().entries, 800_000);
    // A vector that is not yet mapped doubles, and a filter that grows is there twice for a moment: of so little that is much.
    assert!(most <= share as u64 * 3 / 2, "{most} bytes of {share}");
    // Some 60 bytes each, and half of the share is the store's.
    assert!(fewest * 160 >= share as u64, "only {fewest} keys stayed in {share} bytes");
}
