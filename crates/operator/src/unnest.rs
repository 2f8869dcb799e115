//! `UNNEST`: a row for each element of an array, a column for each field of a ROW.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, SchemaRef};
use tidemill_block::Block;

use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, Output};

/// What becomes of an input column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It stays, once for each row that its row becomes.
    Keep,
    /// An array: its elements.
    Elements,
    /// A ROW: its fields.
    Fields,
}

/// Makes rows of the elements of arrays. Several arrays of a row are taken side by side, the shorter
/// ones filled with NULL.
pub struct Unnest {
    /// Input column and what becomes of it, in the order of the output's columns.
    parts: Vec<(usize, Part)>,
    /// A row without elements stays, with NULL, where the array is NULL, and where it is empty.
    keep_null: bool,
    keep_empty: bool,
    schema: SchemaRef,
}

/// An array column in one form.
struct Lists {
    elements: ArrayRef,
    /// Where the elements of each row begin, and how many there are; `None` for NULL.
    rows: Vec<Option<(u32, u32)>>,
}

impl Lists {
    fn of(column: &ArrayRef) -> Result<Lists, OperatorError> {
        let (elements, offsets): (ArrayRef, Vec<i32>) = match column.data_type() {
            DataType::List(_) => {
                let list = column.as_list::<i32>();
                (list.values().clone(), list.value_offsets().to_vec())
            }
            DataType::FixedSizeList(_, length) => {
                let list = column.as_fixed_size_list();
                (list.values().clone(), (0..=list.len() as i32).map(|row| row * length).collect())
            }
            DataType::LargeList(field) => {
                let narrow = cast(column, &DataType::List(field.clone()))?;
                return Lists::of(&narrow);
            }
            other => return Err(OperatorError::new(format!("UNNEST takes an ARRAY, not {other}"))),
        };
        let row = |row: usize| {
            let (from, until) = (offsets[row] as u32, offsets[row + 1] as u32);
            column.is_valid(row).then_some((from, until - from))
        };
        Ok(Lists { elements, rows: (0..column.len()).map(row).collect() })
    }
}

impl Unnest {
    /// Makes of each row what `parts` say; the output has `schema`.
    pub fn new(parts: Vec<(usize, Part)>, keep_null: bool, keep_empty: bool, schema: SchemaRef) -> Self {
        Unnest { parts, keep_null, keep_empty, schema }
    }

    /// How many rows a row with these arrays becomes.
    fn height(&self, lists: &[Lists], row: usize) -> u32 {
        let height = |list: &Lists| match list.rows[row] {
            None => u32::from(self.keep_null),
            Some((_, 0)) => u32::from(self.keep_empty),
            Some((_, length)) => length,
        };
        lists.iter().map(height).max().unwrap_or(1)
    }

    /// Rows `from .. until` of a block.
    fn part(&self, block: &Block, lists: &[Lists], heights: &[u32], from: usize, until: usize) -> Result<Block, OperatorError> {
        let total: usize = heights[from..until].iter().map(|h| *h as usize).sum();
        let mut origin: Vec<u32> = Vec::with_capacity(total);
        for row in from..until {
            origin.resize(origin.len() + heights[row] as usize, row as u32);
        }
        let origin = UInt32Array::from(origin);
        let repeats = total != block.rows() || heights[from..until].iter().any(|h| *h != 1);
        let mut lists = lists.iter();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (index, part) in &self.parts {
            let column = block.column(*index);
            match part {
                Part::Keep if !repeats => columns.push(column.clone()),
                Part::Keep => columns.push(take(column, &origin, None)?),
                Part::Fields => {
                    let column = if repeats { take(column, &origin, None)? } else { column.clone() };
                    columns.extend(fields(&column)?);
                }
                Part::Elements => {
                    let list = lists.next().expect("one for each such part");
                    let mut picks: Vec<Option<u32>> = Vec::with_capacity(total);
                    for row in from..until {
                        let (first, length) = list.rows[row].unwrap_or((0, 0));
                        picks.extend((0..heights[row]).map(|i| (i < length).then_some(first + i)));
                    }
                    columns.push(take(&list.elements, &UInt32Array::from(picks), None)?);
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(total));
        let columns = columns.into_iter().zip(self.schema.fields()).map(|(c, f)| typed(c, f)).collect::<Result<Vec<_>, _>>()?;
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        // A change of a row is the same change of each row that it becomes.
        let kinds = block.kinds.as_ref().map(|kinds| origin.values().iter().map(|row| kinds[*row as usize]).collect());
        let row_watermarks = block.row_watermarks.as_ref().map(|marks| origin.values().iter().map(|row| marks[*row as usize]).collect());
        Ok(Block::marked(batch, kinds, block.arrival_ns, row_watermarks))
    }
}

/// The fields of a ROW as columns; those of a NULL are NULL.
fn fields(column: &ArrayRef) -> Result<Vec<ArrayRef>, OperatorError> {
    let Some(row) = column.as_struct_opt() else {
        return Err(OperatorError::new(format!("UNNEST takes an ARRAY or a ROW, not {}", column.data_type())));
    };
    match row.nulls().filter(|n| n.null_count() > 0) {
        None => Ok(row.columns().to_vec()),
        Some(nulls) => {
            let picks: UInt32Array = (0..row.len() as u32).map(|i| nulls.is_valid(i as usize).then_some(i)).collect();
            Ok(row.columns().iter().map(|c| take(c, &picks, None)).collect::<Result<_, _>>()?)
        }
    }
}

/// A column of the declared type: fields of nested types may have other names.
fn typed(column: ArrayRef, field: &Field) -> Result<ArrayRef, OperatorError> {
    if column.data_type() == field.data_type() { Ok(column) } else { Ok(cast(&column, field.data_type())?) }
}

impl Operator for Unnest {
    fn name(&self) -> &'static str {
        "Unnest"
    }

    fn on_block(&mut self, _input: usize, block: Block, out: &mut Output) -> Result<(), OperatorError> {
        let arrays = self.parts.iter().filter(|(_, part)| *part == Part::Elements);
        let lists = arrays.map(|(index, _)| Lists::of(block.column(*index))).collect::<Result<Vec<_>, _>>()?;
        if lists.is_empty() {
            let heights = vec![1; block.rows()];
            out.emit(self.part(&block, &lists, &heights, 0, block.rows())?);
            return Ok(());
        }
        let heights: Vec<u32> = (0..block.rows()).map(|row| self.height(&lists, row)).collect();
        // Long arrays make many rows; they leave in blocks of a usual size.
        let mut from = 0;
        while from < block.rows() {
            let (mut until, mut rows) = (from, 0);
            while until < block.rows() && (until == from || rows + heights[until] as usize <= BLOCK_ROWS_MAX) {
                rows += heights[until] as usize;
                until += 1;
            }
            if rows > 0 {
                out.emit(self.part(&block, &lists, &heights, from, until)?);
            }
            from = until;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
