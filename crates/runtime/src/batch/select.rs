//! Conditions of a query that a table's readers check, too, so that they need not decode rows that nobody wants, nor read parts
//! of files in which there are none, nor open files in which by their names there are none. The executor checks them again: a reader
//! may leave out as few as it likes, and where a condition fails on a value it is the executor that says so.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::physical_optimizer::pruning::{PruningPredicateBuilder, PruningStatistics};
use datafusion_common::tree_node::TreeNode;
use datafusion_common::{Column, DFSchema, Result, ScalarValue};
use datafusion_expr::utils::conjunction;
use datafusion_expr::{Expr, Operator};
use datafusion_physical_expr::utils::{Guarantee, LiteralGuarantee};
use tidemill_connect::{ConnectError, FileSelection, Reader, ReaderContext, Selection, Source, Split};
use tidemill_format::parquet::{Extent, Extents};

/// Whether a condition is worth checking twice: nothing but comparisons of columns of the file.
pub(super) fn is_simple(condition: &Expr, physical: &Schema) -> Result<bool> {
    let is_other = |part: &Expr| match part {
        Expr::Column(column) => physical.index_of(&column.name).is_err(),
        Expr::BinaryExpr(both) => !matches!(
            both.op,
            Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::And
                | Operator::Or
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom
        ),
        Expr::Literal(..) | Expr::Not(_) | Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::Between(_) | Expr::InList(_) => false,
        _ => true,
    };
    Ok(!condition.column_refs().is_empty() && !condition.exists(|part| Ok(is_other(part)))?)
}

/// The rows for which all conditions are true; `None` without conditions.
///
/// # Errors
/// A condition cannot be planned.
pub(super) fn selection(conditions: &[Expr], physical: &Schema, state: &dyn Session) -> Result<Option<Selection>> {
    let Some(condition) = conjunction(conditions.iter().cloned()) else { return Ok(None) };
    let names: BTreeSet<String> = condition.column_refs().into_iter().map(|column| column.name.clone()).collect();
    let fields: Vec<_> = physical.fields().iter().filter(|field| names.contains(field.name())).cloned().collect();
    let columns: SchemaRef = Arc::new(Schema::new(fields));
    let test = state.create_physical_expr(condition, &DFSchema::try_from(columns.clone())?)?;
    let predicate = PruningPredicateBuilder::new()
        .with_file_schema(columns.clone())
        .try_build(test.clone())
        .ok()
        .filter(|predicate| !predicate.always_true());
    let selection = Selection::new(columns.clone(), move |rows| {
        let answer = test.evaluate(rows).and_then(|answer| answer.into_array(rows.num_rows()));
        answer.ok()?.as_boolean_opt().cloned()
    });
    // Filters say which values are not there, by which only a part of a file is left out in which some value was looked for.
    let guarantees = predicate.iter().flat_map(|predicate| predicate.literal_guarantees());
    let sought: Vec<_> = guarantees.filter(|guarantee| guarantee.guarantee == Guarantee::In).cloned().collect();
    Ok(Some(selection.with_parts(move |known| predicate.as_ref()?.prune(&Known { columns: &columns, known, sought: &sought }).ok())))
}

/// Whether a condition speaks of nothing but `constants`, metadata columns (key and column) that have one value in all rows of a file.
/// It is checked once a file, so it may cost what it likes.
pub(super) fn is_of_files(condition: &Expr, constants: &[(String, FieldRef)]) -> Result<bool> {
    let is_other = |part: &Expr| match part {
        Expr::Column(column) => !constants.iter().any(|(_, field)| *field.name() == column.name),
        Expr::Literal(..)
        | Expr::BinaryExpr(_)
        | Expr::Like(_)
        | Expr::SimilarTo(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_)
        | Expr::Negative(_)
        | Expr::Between(_)
        | Expr::Case(_)
        | Expr::Cast(_)
        | Expr::TryCast(_)
        | Expr::InList(_)
        // Those of users, which are asked outside, are volatile.
        | Expr::ScalarFunction(_) => false,
        _ => true,
    };
    Ok(!condition.column_refs().is_empty() && !condition.is_volatile() && !condition.exists(|part| Ok(is_other(part)))?)
}

/// The files for whose `constants` all conditions are true; `None` without conditions that can be checked.
pub(super) fn file_selection(conditions: &[Expr], constants: &[(String, FieldRef)], state: &dyn Session) -> Option<FileSelection> {
    let condition = conjunction(conditions.iter().cloned())?;
    let names: BTreeSet<String> = condition.column_refs().into_iter().map(|column| column.name.clone()).collect();
    let asked: Vec<(String, FieldRef)> = constants.iter().filter(|(_, field)| names.contains(field.name())).cloned().collect();
    let columns = Schema::new(asked.iter().map(|(_, field)| field.clone()).collect::<Vec<_>>());
    let test = state.create_physical_expr(condition, &DFSchema::try_from(columns).ok()?).ok()?;
    Some(FileSelection::new(asked, move |values| {
        let answer = test.evaluate(values).and_then(|answer| answer.into_array(values.num_rows())).ok()?;
        let answer = answer.as_boolean_opt()?;
        // Where it is neither true nor false, the executor takes no row either.
        Some(answer.iter().any(|wanted| wanted == Some(true)))
    }))
}

/// What is known of parts of a file, by the names of columns.
struct Known<'a> {
    columns: &'a Schema,
    known: &'a Extents<'a>,
    /// The columns in which some values are looked for.
    sought: &'a [LiteralGuarantee],
}

impl Known<'_> {
    fn of(&self, column: &Column) -> Option<&Extent> {
        let at = self.columns.index_of(&column.name).ok()?;
        self.known.columns.get(at)?.as_ref()
    }
}

impl PruningStatistics for Known<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.of(column)?.least.clone())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.of(column)?.greatest.clone())
    }

    fn num_containers(&self) -> usize {
        self.known.rows.values().len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::new(self.of(column)?.nulls.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.known.rows.clone()))
    }

    fn contained(&self, column: &Column, values: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        let is_sought = |one: &LiteralGuarantee| one.column.name == column.name && one.literals == *values;
        let at = self.columns.index_of(&column.name).ok().filter(|_| self.sought.iter().any(is_sought))?;
        let values = ScalarValue::iter_to_array(values.iter().cloned()).ok()?;
        let lack = self.known.filters?.lack(at, values.as_ref())?;
        // What does not lack all of them may have one, and others beside it.
        Some(lack.into_iter().map(|lacks| lacks.then_some(false)).collect())
    }
}

/// A table of which only some rows are wanted.
pub(super) struct Selecting {
    pub source: Arc<dyn Source>,
    pub selection: Selection,
}

impl Source for Selecting {
    fn bounded(&self) -> bool {
        self.source.bounded()
    }

    fn splits(&self, parallelism: usize) -> std::result::Result<Vec<Split>, ConnectError> {
        self.source.splits(parallelism)
    }

    fn open(&self, split: &Split, context: ReaderContext) -> std::result::Result<Box<dyn Reader>, ConnectError> {
        self.source.open_selecting(split, context, &self.selection)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch, StringArray, UInt64Array};
    use arrow::datatypes::{DataType, Field};
    use datafusion::prelude::SessionContext;
    use datafusion_expr::{col, lit};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("unused", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]))
    }

    #[test]
    fn what_is_checked_twice() {
        let check = |condition: Expr, expect: bool| assert_eq!(is_simple(&condition, &schema()).unwrap(), expect, "{condition}");
        check(col("n").gt(lit(1i64)), true);
        check(col("n").gt_eq(lit(1i64)).or(col("s").eq(lit("x"))), true);
        check(col("n").between(lit(1i64), lit(2i64)).and(col("s").is_not_null()), true);
        check(col("s").in_list(vec![lit("x"), lit("y")], true), true);
        // It may fail, may cost much, is no column of the file, or says nothing of rows.
        check((lit(1i64) / col("n")).gt(lit(1i64)), false);
        check(col("s").like(lit("%x%")), false);
        check(col("other").eq(lit("x")), false);
        check(lit(false), false);
    }

    #[test]
    fn what_is_checked_of_files() {
        let constants = [("partition.year", DataType::Int64), ("file.path", DataType::Utf8)]
            .map(|(key, data_type)| (key.to_string(), Arc::new(Field::new(key.rsplit('.').next().unwrap_or(key), data_type, true))));
        let state = SessionContext::new().state();
        let check = |condition: Expr, expect: Option<[bool; 3]>| {
            assert_eq!(is_of_files(&condition, &constants).unwrap(), expect.is_some(), "{condition}");
            let Some(expect) = expect else { return };
            let files = file_selection(std::slice::from_ref(&condition), &constants, &state).expect("a selection");
            let rows = [(Some(2023), "/a"), (Some(2024), "/b"), (None, "/c")].map(|(year, path)| {
                let columns = files.request().metadata.into_iter().map(|(key, _)| -> ArrayRef {
                    if key == "file.path" { Arc::new(StringArray::from(vec![path])) } else { Arc::new(Int64Array::from(vec![year])) }
                });
                RecordBatch::try_new(files.request().schema(), columns.collect()).unwrap()
            });
            assert_eq!(rows.map(|row| files.wanted(&row)), expect, "{condition}");
        };
        check(col("year").eq(lit(2024i64)), Some([false, true, false]));
        check(col("year").is_null().or(col("year").lt(lit(2024i64))), Some([true, false, true]));
        check(col("year").not_eq(lit(2024i64)), Some([true, false, false]));
        check(col("year").in_list(vec![lit(2023i64), lit(2024i64)], false), Some([true, true, false]));
        check(col("path").like(lit("/_")).and(col("year").gt(lit(0i64))), Some([true, true, false]));
        check(col("path").gt_eq(lit("/b")).or(col("year").eq(lit(2023i64))), Some([true, true, true]));
        // Where it fails, the file is read: then the executor says why, if it comes to that.
        check((lit(1i64) / (col("year") - lit(2023i64))).gt(lit(0i64)), Some([true, true, false]));
        // It speaks of a column of the file, of none, or of something else each time.
        check(col("year").eq(lit(2024i64)).or(col("n").eq(lit(1i64))), None);
        check(lit(false), None);
        check(col("year").gt(datafusion::functions::math::random().call(vec![])), None);
        assert!(file_selection(&[], &constants, &state).is_none());
    }

    #[test]
    fn rows_for_which_all_is_true_are_wanted() {
        let state = SessionContext::new().state();
        assert!(selection(&[], &schema(), &state).unwrap().is_none());
        let both = [col("n").gt(lit(1i64)), col("s").not_eq(lit("x"))];
        let selection = selection(&both, &schema(), &state).unwrap().expect("conditions");
        assert_eq!(selection.columns().fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["n", "s"]);
        let n: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), Some(3), None]));
        let s: ArrayRef = Arc::new(StringArray::from(vec![Some("y"), Some("x"), Some("y"), Some("y")]));
        let rows = RecordBatch::try_new(selection.columns().clone(), vec![n, s]).unwrap();
        assert_eq!(selection.wanted(&rows), Some(BooleanArray::from(vec![Some(false), Some(false), Some(true), None])));
        // Of row groups: what is too small, what may do, what is not known, nothing but NULLs.
        let n = Extent {
            least: Arc::new(Int64Array::from(vec![Some(-5), Some(0), None, None])),
            greatest: Arc::new(Int64Array::from(vec![Some(1), Some(2), None, None])),
            nulls: UInt64Array::from(vec![Some(0), Some(1), None, Some(9)]),
        };
        let known = Extents { rows: UInt64Array::from(vec![9; 4]), columns: vec![Some(n), None], filters: None };
        assert_eq!(selection.wanted_parts(&known), Some(vec![false, true, true, false]));
        // Rows of which it cannot tell.
        assert_eq!(selection.wanted(&RecordBatch::new_empty(Arc::new(Schema::empty()))), None);
    }
}
