//! Updates of which one half may be lost, for who takes rows by key and is told that a row is gone by `-D`
//! alone: a filter may keep the content before and not the one behind it, or the other way round. Filters of
//! rows that are only added, or for who wants all changes as they are, are in [`crate::map`].

use std::sync::Arc;

use arrow::array::{Array, AsArray, UInt32Array};
use tidemill_block::{Block, RowKind};

use crate::map::Expr;
use crate::{Operator, OperatorError, Output};

/// Keeps the changes for which a predicate holds. The `-U` of an update whose `+U` is dropped leaves as `-D`.
/// The `+U` of an update must follow its `-U` directly in the input; one that comes in a later block replaces
/// what was deleted meanwhile.
pub struct FilterChanges {
    predicate: Expr,
    update_before: bool,
}

impl FilterChanges {
    /// Filters by `predicate`. `update_before`: the `-U` of an update that is kept whole is wanted.
    pub fn new(predicate: Expr, update_before: bool) -> Self {
        FilterChanges { predicate, update_before }
    }
}

impl Operator for FilterChanges {
    fn name(&self) -> &'static str {
        "Filter"
    }

    fn on_block(&mut self, _input: usize, mut block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let mask = self.predicate.evaluate(&block.batch)?.into_array(rows)?;
        let mask = mask.as_boolean();
        let Some(kinds) = block.kinds.take() else {
            out.emit(block.filter(mask)?);
            return Ok(());
        };
        let passes = |row: usize| mask.is_valid(row) && mask.value(row);
        let mut picked: Vec<u32> = Vec::with_capacity(rows);
        let mut kept: Vec<RowKind> = Vec::with_capacity(rows);
        for (row, kind) in kinds.iter().enumerate() {
            if !passes(row) {
                continue;
            }
            let kind = match kind {
                RowKind::UpdateBefore if kinds.get(row + 1) == Some(&RowKind::UpdateAfter) && passes(row + 1) => {
                    if !self.update_before {
                        continue;
                    }
                    RowKind::UpdateBefore
                }
                RowKind::UpdateBefore => RowKind::Delete,
                other => *other,
            };
            picked.push(row as u32);
            kept.push(kind);
        }
        if picked.is_empty() {
            return Ok(());
        }
        let mut block = if picked.len() == rows { block } else { block.take(&UInt32Array::from(picked))? };
        block.kinds = Some(kept.into());
        out.emit(block);
        Ok(())
    }
}

/// Makes each `-U` a `-D`: in front of what makes any number of rows of one, so that those before an update and
/// those behind it are no pairs.
pub struct BeforeAsDelete;

impl Operator for BeforeAsDelete {
    fn name(&self) -> &'static str {
        "Deletions"
    }

    fn on_block(&mut self, _input: usize, mut block: Block, out: &mut Output) -> Result<(), OperatorError> {
        if let Some(kinds) = block.kinds.as_ref().filter(|kinds| kinds.contains(&RowKind::UpdateBefore)) {
            let deletes = |kind: &RowKind| if *kind == RowKind::UpdateBefore { RowKind::Delete } else { *kind };
            let kinds: Arc<[RowKind]> = kinds.iter().map(deletes).collect();
            block.kinds = Some(kinds);
        }
        out.emit(block);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion_physical_expr::expressions::Column;
    use tidemill_block::text;

    use super::*;

    /// A key, and whether the row is to be kept.
    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true), Field::new("keep", DataType::Boolean, true)]))
    }

    #[track_caller]
    fn check(operator: &mut dyn Operator, rows: &str, expect: &str) {
        let mut out = Output::default();
        operator.on_block(0, text::parse(&schema(), rows), &mut out).unwrap();
        let found: String = out.blocks.iter().map(text::format).collect();
        let expect: String = expect.lines().map(|line| format!("{}\n", line.trim())).collect();
        assert_eq!(found, expect, "{rows}");
    }

    #[test]
    fn what_a_filter_leaves_of_an_update() {
        let whole = "-U 1 true\n+U 1 true";
        for (rows, upserts, pairs) in [
            ("1 true\n2 false\n3 NULL", "+I 1 true", "+I 1 true"),
            (whole, "+U 1 true", whole),
            ("-U 1 true\n+U 1 false", "-D 1 true", "-D 1 true"),
            ("-U 1 true\n+U 1 NULL", "-D 1 true", "-D 1 true"),
            ("-U 1 false\n+U 1 true", "+U 1 true", "+U 1 true"),
            ("-U 1 false\n+U 1 false\n-D 2 false", "", ""),
            // Halves of two updates are no pair.
            ("-U 1 true\n+U 1 false\n-U 2 false\n+U 2 true", "-D 1 true\n+U 2 true", "-D 1 true\n+U 2 true"),
            ("1 true\n-D 2 true\n-U 3 true", "+I 1 true\n-D 2 true\n-D 3 true", "+I 1 true\n-D 2 true\n-D 3 true"),
        ] {
            for (update_before, expect) in [(false, upserts), (true, pairs)] {
                check(&mut FilterChanges::new(Arc::new(Column::new("keep", 1)), update_before), rows, expect);
            }
        }
    }

    #[test]
    fn contents_before_are_deleted() {
        check(&mut BeforeAsDelete, "1 true\n-U 1 true\n+U 1 false\n-D 1 false", "+I 1 true\n-D 1 true\n+U 1 false\n-D 1 false");
        check(&mut BeforeAsDelete, "1 true", "+I 1 true");
    }
}
