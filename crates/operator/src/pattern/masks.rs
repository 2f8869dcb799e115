//! Which symbols each row of a block may be mapped to, as far as the row alone decides.

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::Int64Type;
use tidemill_block::Block;

use super::spec::MatchSymbol;
use crate::OperatorError;
use crate::map::Expr;

/// Conditions on single rows, computed for blocks.
pub(super) struct Masks {
    /// The symbols without such a condition, as bits.
    always: u64,
    /// The others: bit, input, conditions.
    tested: Vec<(u64, Option<i64>, Vec<Expr>)>,
    /// The column that says which input a row came from.
    input_column: Option<usize>,
}

fn truth(array: &BooleanArray) -> BooleanBuffer {
    match array.nulls() {
        Some(nulls) if nulls.null_count() > 0 => array.values() & nulls.inner(),
        _ => array.values().clone(),
    }
}

impl Masks {
    pub fn new(symbols: &[MatchSymbol], input_column: Option<usize>) -> Self {
        let mut masks = Masks { always: 0, tested: Vec::new(), input_column };
        for (i, symbol) in symbols.iter().enumerate() {
            let bit = 1u64 << i;
            if symbol.simple.is_empty() && input_column.is_none() {
                masks.always |= bit;
            } else {
                masks.tested.push((bit, input_column.map(|_| symbol.input as i64), symbol.simple.clone()));
            }
        }
        masks
    }

    /// The masks of all rows of a block into `out` (cleared first).
    ///
    /// # Errors
    /// A value that a condition cannot compute.
    pub fn compute(&self, block: &Block, out: &mut Vec<u64>) -> Result<(), OperatorError> {
        let rows = block.rows();
        out.clear();
        out.resize(rows, self.always);
        for (bit, input, conditions) in &self.tested {
            let mut holds: Option<BooleanBuffer> = None;
            if let (Some(input), Some(column)) = (input, self.input_column) {
                let column = block.column(column).as_primitive::<Int64Type>();
                holds = Some(BooleanBuffer::collect_bool(rows, |row| column.is_valid(row) && column.value(row) == *input));
            }
            for condition in conditions {
                let array = condition.evaluate(&block.batch)?.into_array(rows)?;
                let array = array.as_boolean_opt().ok_or_else(|| {
                    let found = array.data_type();
                    OperatorError::new(format!("internal error: the condition {condition} of a pattern gives {found}, not BOOLEAN"))
                })?;
                let this = truth(array);
                holds = Some(match holds {
                    Some(before) => &before & &this,
                    None => this,
                });
            }
            let holds = holds.expect("a tested symbol has a condition");
            for row in holds.set_indices() {
                out[row] |= bit;
            }
        }
        Ok(())
    }
}
