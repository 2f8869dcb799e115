//! Tests of `unnest`.

use std::sync::Arc;

use arrow::array::{Int64Array, ListArray, StructArray};
use arrow::datatypes::{Int64Type, Schema};
use tidemill_block::{RowKind, text};

use super::*;

fn item() -> Arc<Field> {
    Arc::new(Field::new_list_field(DataType::Int64, true))
}

fn block(keys: &[i64], lists: Vec<Option<Vec<Option<i64>>>>) -> Block {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    let schema = Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("l", DataType::List(item()), true)]);
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys.to_vec())), Arc::new(list)];
    Block::inserts(RecordBatch::try_new(Arc::new(schema), columns).unwrap(), 7)
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("x", DataType::Int64, true)]))
}

#[track_caller]
fn check(keep_null: bool, keep_empty: bool, block: Block, expect: &str) {
    let mut operator = Unnest::new(vec![(0, Part::Keep), (1, Part::Elements)], keep_null, keep_empty, schema());
    let mut out = Output::default();
    operator.on_block(0, block, &mut out).unwrap();
    assert_eq!(out.blocks.iter().map(text::format).collect::<String>(), expect);
    assert!(out.blocks.iter().all(|b| b.arrival_ns == 7));
}

#[test]
fn elements_become_rows() {
    let all = || block(&[1, 2, 3, 4], vec![Some(vec![Some(5), None]), None, Some(vec![]), Some(vec![Some(6)])]);
    check(false, false, all(), "+I 1 5\n+I 1 NULL\n+I 4 6\n");
    check(true, false, all(), "+I 1 5\n+I 1 NULL\n+I 2 NULL\n+I 4 6\n");
    check(true, true, all(), "+I 1 5\n+I 1 NULL\n+I 2 NULL\n+I 3 NULL\n+I 4 6\n");
    check(false, false, all().slice(1, 3), "+I 4 6\n");
    check(false, false, all().slice(1, 2), "");
}

#[test]
fn kinds_and_marks_stay() {
    let mut all = block(&[1, 2], vec![Some(vec![Some(5), Some(6)]), Some(vec![Some(7)])]);
    all.kinds = Some(vec![RowKind::UpdateBefore, RowKind::UpdateAfter].into());
    all.row_watermarks = Some(vec![10, 20].into());
    check(false, false, all.clone(), "-U 1 5\n-U 1 6\n+U 2 7\n");
    let mut out = Output::default();
    Unnest::new(vec![(0, Part::Keep), (1, Part::Elements)], false, false, schema()).on_block(0, all, &mut out).unwrap();
    assert_eq!(out.blocks[0].row_watermarks.as_deref(), Some(&[10, 10, 20][..]));
}

#[test]
fn long_arrays_leave_in_several_blocks() {
    let keys: Vec<i64> = (0..50).collect();
    let all = block(&keys, (0..50).map(|_| Some((0..1000).map(Some).collect())).collect());
    let mut out = Output::default();
    Unnest::new(vec![(0, Part::Keep), (1, Part::Elements)], false, false, schema()).on_block(0, all, &mut out).unwrap();
    assert_eq!(out.blocks.iter().map(Block::rows).sum::<usize>(), 50_000);
    assert!(out.blocks.iter().all(|b| b.rows() <= BLOCK_ROWS_MAX));
}

#[test]
fn fields_become_columns() {
    let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
    let numbers = |values: Vec<i64>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let row = StructArray::new(
        vec![field("a"), field("b")].into(),
        vec![numbers(vec![1, 2]), numbers(vec![3, 4])],
        Some(vec![true, false].into()),
    );
    let schema = Arc::new(Schema::new(vec![Field::new("r", row.data_type().clone(), true)]));
    let block = Block::inserts(RecordBatch::try_new(schema, vec![Arc::new(row)]).unwrap(), 0);
    let wide = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)]));
    let mut out = Output::default();
    Unnest::new(vec![(0, Part::Fields)], false, false, wide).on_block(0, block, &mut out).unwrap();
    assert_eq!(text::format(&out.blocks[0]), "+I 1 3\n+I NULL NULL\n");
}
