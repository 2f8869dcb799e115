//! Finds the rows of keys: a hash table over the keys as bytes. Rows of one key are chained in the order
//! of the table; a key with a NULL is found by nobody.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};

use crate::ConnectError;

/// No row.
const NONE: u32 = u32::MAX;

/// An index over some columns of a table that stays as it is.
pub(super) struct Index {
    converter: RowConverter,
    /// The keys of the table's rows.
    keys: Rows,
    /// The first row of the chain of each place; a power of two of them, at least twice the rows.
    heads: Vec<u32>,
    /// The next row of the same place.
    next: Vec<u32>,
}

fn fields(columns: &SchemaRef, places: &[usize]) -> Vec<SortField> {
    places.iter().map(|i| SortField::new(columns.field(*i).data_type().clone())).collect()
}

fn failed(e: &arrow::error::ArrowError) -> ConnectError {
    ConnectError::new(format!("looking keys up: {e}"))
}

/// Spreads the bytes of a key over 64 bits: multiply and fold, eight bytes at a time.
#[inline]
fn hash(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word).wrapping_mul(u128::from(ODD));
        (product >> 64) as u64 ^ product as u64
    };
    let mut hash = bytes.len() as u64 ^ ODD;
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        hash = fold(hash, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash, u64::from_le_bytes(last))
}

impl Index {
    /// Whether these columns can be keys.
    ///
    /// # Errors
    /// A type that cannot be compared.
    pub fn check(columns: &SchemaRef, places: &[usize]) -> Result<(), ConnectError> {
        RowConverter::new(fields(columns, places)).map(drop).map_err(|e| failed(&e))
    }

    /// The index over the columns `places` of `rows`, fewer than 2³² rows.
    ///
    /// # Errors
    /// As [`Index::check`].
    pub fn new(rows: &RecordBatch, places: &[usize]) -> Result<Self, ConnectError> {
        let converter = RowConverter::new(fields(&rows.schema(), places)).map_err(|e| failed(&e))?;
        let columns: Vec<ArrayRef> = places.iter().map(|i| rows.column(*i).clone()).collect();
        let keys = converter.convert_columns(&columns).map_err(|e| failed(&e))?;
        let mut heads = vec![NONE; (rows.num_rows() * 2).next_power_of_two().max(2)];
        let mut next = vec![NONE; rows.num_rows()];
        let mask = heads.len() - 1;
        // From the last to the first, so that chains are in the order of the table.
        for row in (0..rows.num_rows()).rev() {
            if columns.iter().any(|c| c.is_null(row)) {
                continue;
            }
            let head = &mut heads[hash(keys.row(row).as_ref()) as usize & mask];
            next[row] = *head;
            *head = row as u32;
        }
        Ok(Index { converter, keys, heads, next })
    }

    /// The rows of the table for each key, and for each of them which key it belongs to, ascending.
    ///
    /// # Errors
    /// Keys of other types than those of the index.
    pub fn find(&self, keys: &RecordBatch) -> Result<(Vec<u32>, Vec<u32>), ConnectError> {
        let asked = self.converter.convert_columns(keys.columns()).map_err(|e| failed(&e))?;
        let mask = self.heads.len() - 1;
        let (mut rows, mut origins) = (Vec::with_capacity(keys.num_rows()), Vec::with_capacity(keys.num_rows()));
        for (origin, key) in asked.iter().enumerate() {
            // A NULL among the keys is found by nobody, since no row with a NULL is in the table.
            let mut row = self.heads[hash(key.as_ref()) as usize & mask];
            while row != NONE {
                if self.keys.row(row as usize) == key {
                    rows.push(row);
                    origins.push(origin as u32);
                }
                row = self.next[row as usize];
            }
        }
        Ok((rows, origins))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int32Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn batch(a: Vec<Option<i32>>, b: Vec<Option<&str>>) -> RecordBatch {
        let schema = Schema::new(vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8, true)]);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(Int32Array::from(a)), Arc::new(StringArray::from(b))]).unwrap()
    }

    #[test]
    fn rows_of_keys() {
        let table = batch(vec![Some(1), Some(2), Some(1), None, Some(1)], vec![Some("x"), Some("y"), Some("z"), Some("x"), None]);
        let by_a = Index::new(&table, &[0]).unwrap();
        let asked = |a: Vec<Option<i32>>| batch(a.clone(), vec![None; a.len()]).project(&[0]).unwrap();
        assert_eq!(by_a.find(&asked(vec![Some(2), Some(7), Some(1), None])).unwrap(), (vec![1, 0, 2, 4], vec![0, 2, 2, 2]));
        let by_both = Index::new(&table, &[0, 1]).unwrap();
        let keys = batch(vec![Some(1), Some(1), None], vec![Some("z"), None, Some("x")]);
        assert_eq!(by_both.find(&keys).unwrap(), (vec![2], vec![0]));
        let empty = Index::new(&table.slice(0, 0), &[1]).unwrap();
        assert_eq!(empty.find(&keys.project(&[1]).unwrap()).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn many_keys_collide_in_no_harmful_way() {
        let table = batch((0..10_000).map(|n| Some(n % 5_000)).collect(), vec![Some("q"); 10_000]);
        let index = Index::new(&table, &[1, 0]).unwrap();
        let keys = batch((0..6_000).map(Some).collect(), vec![Some("q"); 6_000]).project(&[1, 0]).unwrap();
        let (rows, origins) = index.find(&keys).unwrap();
        let expect: Vec<(u32, u32)> = (0..5_000).flat_map(|n| [(n, n), (n + 5_000, n)]).collect();
        assert_eq!(rows.into_iter().zip(origins).collect::<Vec<_>>(), expect);
    }
}
