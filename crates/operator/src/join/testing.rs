//! For the tests of joins: random changelogs, and the table that a changelog leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidemill_block::{Block, RowKind, text};
use tidemill_state::hash;

use crate::{Operator, Output};

/// A row: a key, which may be NULL, and a value.
pub type Row = (Option<i64>, i64);

/// Columns `k BIGINT, v BIGINT, t STRING`, the last one made of the value.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("t", DataType::Utf8, true),
    ]))
}

/// A row as it looks in the text of a block.
pub fn shown((k, v): Row) -> String {
    format!("{} {v} t{v}", k.map_or("NULL".to_string(), |k| k.to_string()))
}

/// A block of changes; of inserts if there is no other, unless `updating`.
pub fn block(changes: &[(bool, Row)], updating: bool) -> Block {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(changes.iter().map(|(_, (k, _))| *k).collect::<Int64Array>()),
        Arc::new(changes.iter().map(|(_, (_, v))| Some(*v)).collect::<Int64Array>()),
        Arc::new(changes.iter().map(|(_, (_, v))| Some(format!("t{v}"))).collect::<StringArray>()),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    if !updating {
        return Block::inserts(batch, 0);
    }
    let kinds: Vec<RowKind> = changes.iter().map(|(adds, _)| if *adds { RowKind::Insert } else { RowKind::UpdateBefore }).collect();
    Block::changelog(batch, kinds.into(), 0)
}

/// Numbers from a seed.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash::mix(self.0) % n
    }

    /// A row with a key of few, one in six NULL.
    pub fn row(&mut self) -> Row {
        let k = self.below(6) as i64;
        ((k > 0).then_some(k), self.below(4) as i64)
    }

    /// Some changes to `table`, which follows them. With `unknown` some take back what is not there.
    pub fn changes(&mut self, table: &mut Vec<Row>, updating: bool, unknown: bool) -> Vec<(bool, Row)> {
        (0..1 + self.below(7))
            .map(|_| {
                if updating && self.below(3) == 0 && !table.is_empty() {
                    let at = self.below(table.len() as u64) as usize;
                    return (false, table.swap_remove(at));
                }
                if updating && unknown && self.below(8) == 0 {
                    return (false, (Some(100 + self.below(9) as i64), 77));
                }
                let row = self.row();
                table.push(row);
                (true, row)
            })
            .collect()
    }
}

/// Gives an operator a block and follows what it emits.
#[track_caller]
pub fn feed(operator: &mut dyn Operator, input: usize, block: Block, result: &mut BTreeMap<String, i64>) {
    let mut out = Output::default();
    operator.on_block(input, block, &mut out).unwrap();
    for block in out.blocks {
        for line in text::format(&block).lines() {
            let (kind, row) = line.split_at(3);
            let count = result.entry(row.to_string()).or_default();
            *count += if kind.starts_with('+') { 1 } else { -1 };
            assert!(*count >= 0, "{row} is taken back and is not there");
            if *count == 0 {
                result.remove(row);
            }
        }
    }
}

/// Rows counted.
pub fn counted(rows: impl IntoIterator<Item = String>) -> BTreeMap<String, i64> {
    let mut out = BTreeMap::new();
    rows.into_iter().for_each(|row| *out.entry(row).or_default() += 1);
    out
}

/// Moves the state of `from` to new operators, divided among two shards and brought together again.
pub fn moved<O: Operator>(from: &mut O, make: impl Fn() -> O) -> O {
    let tables = from.snapshot().unwrap();
    let mut halves = Vec::new();
    for shard in 0..2 {
        let mut half = make();
        half.restore(tables.iter().map(|t| t.of_shard(shard, 2).unwrap()).collect()).unwrap();
        halves.extend(half.snapshot().unwrap());
    }
    let mut whole = make();
    whole.restore(halves).unwrap();
    whole
}
