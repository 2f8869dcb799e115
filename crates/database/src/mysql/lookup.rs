//! Rows by key: `SELECT … WHERE (a, b) IN ((?, ?), …)`, prepared.
//!
//! Keys come in lists whose lengths are powers of two, filled up with the last key again, so that a few prepared
//! statements serve all.

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;

use super::connection::MysqlConnection;
use super::dialect::{MysqlDialect, quoted_list};
use super::encode::Prepared;
use crate::driver::{DbError, Dialect, Target};

/// Most keys in one list.
const LIST_KEYS: usize = 256;

impl MysqlConnection {
    /// The rows of `target` whose columns equal a row of `keys`.
    ///
    /// # Errors
    /// Of the server; a value that does not fit.
    pub(super) fn look_up_keys(&mut self, target: &Target, keys: &RecordBatch, columns: &SchemaRef) -> Result<RecordBatch, DbError> {
        let prepared = Prepared::new(keys)?;
        let cells = prepared.cells();
        let names = keys.schema();
        let names = quoted_list(names.fields().iter().map(|f| f.name().as_str()), "");
        let wanted = quoted_list(columns.fields().iter().map(|f| f.name().as_str()), "");
        let begin = format!("SELECT {wanted} FROM {} WHERE ({names}) IN (", MysqlDialect.quote(&target.table));
        let marks: Vec<String> = cells.iter().map(|c| c.placeholder()).collect();
        let mark = format!("({})", marks.join(","));
        let mut found = Vec::new();
        let mut first = 0;
        while first < prepared.rows {
            let taken = LIST_KEYS.min(prepared.rows - first);
            let asked = taken.next_power_of_two();
            let mut parameters = Vec::with_capacity(asked * cells.len());
            for i in 0..asked {
                let row = first + i.min(taken - 1);
                parameters.extend(cells.iter().map(|c| c.parameter(row)));
            }
            let sql = format!("{begin}{mark}{})", format!(",{mark}").repeat(asked - 1));
            self.fetch(&sql, parameters, columns, &mut found)?;
            first += taken;
        }
        Ok(concat_batches(columns, &found)?)
    }
}
