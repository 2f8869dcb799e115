//! `GROUPING SETS`, `ROLLUP`, `CUBE`: each row once for every set, so that a plain aggregate behind it
//! does the rest.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::datatypes::SchemaRef;
use tidemill_block::Block;

use crate::map::Expr;
use crate::{Operator, OperatorError, Output};

/// A set of keys to group by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Hash)]
pub struct GroupingSet {
    /// Tells the set apart from all others, even from one of the same keys.
    pub id: i64,
    /// For each key whether it is in the set.
    pub keys: Vec<bool>,
}

/// Adds to each row the keys of a set, those that are not in it as NULL, and the number of the set;
/// once for every set. The columns of the input are shared, not copied.
pub struct Expand {
    keys: Vec<Expr>,
    sets: Vec<GroupingSet>,
    schema: SchemaRef,
}

impl Expand {
    /// Repeats rows for `sets` over `keys`. `schema` is the input's with the keys and the number (a
    /// BIGINT) added.
    pub fn new(keys: Vec<Expr>, sets: Vec<GroupingSet>, schema: SchemaRef) -> Self {
        assert!(sets.iter().all(|s| s.keys.len() == keys.len()), "a set says of every key whether it has it");
        Expand { keys, sets, schema }
    }
}

impl Operator for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let rows = block.rows();
        let keys = self.keys.iter().map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?)).collect::<Result<Vec<_>, OperatorError>>()?;
        let absent: Vec<ArrayRef> = keys.iter().map(|k| new_null_array(k.data_type(), rows)).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        for set in &self.sets {
            let mut columns = block.batch.columns().to_vec();
            columns.extend(set.keys.iter().zip(&keys).zip(&absent).map(|((has, key), null)| if *has { key } else { null }.clone()));
            columns.push(Arc::new(Int64Array::from_value(set.id, rows)));
            out.emit(block.with_batch(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_physical_expr::expressions::Column;
    use tidemill_block::text;

    #[test]
    fn each_row_once_for_every_set() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let input = Arc::new(Schema::new(vec![field("a"), field("x")]));
        let schema = Arc::new(Schema::new(vec![field("a"), field("x"), field("key"), field("id")]));
        let sets = vec![GroupingSet { id: 0, keys: vec![true] }, GroupingSet { id: 1, keys: vec![false] }];
        let mut expand = Expand::new(vec![Arc::new(Column::new("a", 0))], sets, schema);
        let mut out = Output::default();
        expand.on_block(0, text::parse(&input, "-U 1 5\n+U 1 6\nNULL 7"), &mut out).unwrap();
        let all: String = out.blocks.iter().map(text::format).collect();
        assert_eq!(all, "-U 1 5 1 0\n+U 1 6 1 0\n+I NULL 7 NULL 0\n-U 1 5 NULL 1\n+U 1 6 NULL 1\n+I NULL 7 NULL 1\n");
    }
}
