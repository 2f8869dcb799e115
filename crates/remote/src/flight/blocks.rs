//! How rows are put into messages: so many as are at hand, neither so few that the cost of a message
//! counts nor so many that a message is a burden.
//!
//! A block of a fixed size is never a message of its own: a message holds as many whole blocks as are at
//! hand, and the job that reads the stream cuts them again, by its own `block.size`. So a small block costs
//! nothing on the wire, in the server or in its queues.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::DataType;
use tidemill_connect::ConnectError;

/// The most rows of a message whose size is left to us: as many as a block of the engine has.
pub const ROWS_AUTO: usize = 8192;
/// Where the size of messages is left to us, and more rows than these are enough, it is a multiple of them: the engine
/// takes 2,048 rows at once, so that such a message need be neither cut nor put together with the next for a job.
const ROWS_ROUND: usize = 1024;
/// The same for blocks of a fixed size, of which the engine takes twice as many rows at once.
const ROWS_ROUND_FIXED: usize = 2 * ROWS_ROUND;
/// The least rows that a source is asked for at once, however wide they are.
const ROWS_LEAST: usize = 256;
/// How wide a row is taken to be before the first was seen, bytes.
const ROW_BYTES: usize = 64;
/// The most rows that may be asked for.
pub const ROWS_LIMIT: usize = 1 << 20;
/// Rows of this many bytes need no more company. A message costs some 20 µs at both ends together, with
/// the wake-ups of four threads; beside the copies that this many bytes take anyway that is a fifth. More
/// would leave the second-level cache between one copy and the next.
pub const BYTES_ENOUGH: usize = 128 << 10;
/// The most bytes of a message, about: servers bound what they accept.
pub const BYTES_MAX: usize = 4 << 20;

/// Bytes of the rows of a batch, about, as they travel.
pub fn bytes(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column_bytes(column.as_ref())).sum()
}

fn column_bytes(column: &dyn Array) -> usize {
    let rows = column.len();
    let validity = if column.nulls().is_some() { rows.div_ceil(8) } else { 0 };
    // What most columns are, without taking their arrays apart.
    if let Some(width) = column.data_type().primitive_width() {
        return rows * width + validity;
    }
    if *column.data_type() == DataType::Utf8 {
        let offsets = column.as_string::<i32>().value_offsets();
        return (offsets[rows] - offsets[0]) as usize + size_of_val(offsets) + validity;
    }
    // An array that cannot say how long its slice is (a view) says how long its memory is.
    column.to_data().get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size())
}

/// The parts of a batch that are messages, as ranges of rows: none is larger than `bytes_max`, about,
/// unless a row is.
pub fn parts(rows: usize, bytes: usize, bytes_max: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = bytes.div_ceil(bytes_max.max(1)).clamp(1, rows.max(1));
    let each = rows.div_ceil(count).max(1);
    (0..rows).step_by(each).map(move |at| (at, each.min(rows - at)))
}

/// The multiple that is nearest.
fn nearest(rows: usize, round: usize) -> usize {
    (rows + round / 2) / round * round
}

/// Rows that wait for company.
pub struct Gather {
    /// Rows go out in whole blocks of so many while there are more; in any number if `None`.
    block: Option<usize>,
    held: Vec<RecordBatch>,
    rows: usize,
    bytes: usize,
    /// Bytes of a row, by the latest.
    row_bytes: usize,
}

impl Gather {
    /// Messages of whole blocks of so many rows, or of what is at hand.
    pub fn new(block: Option<usize>) -> Self {
        Gather { block, held: Vec::new(), rows: 0, bytes: 0, row_bytes: ROW_BYTES }
    }

    /// Rows of a message that needs no more.
    fn target(&self) -> usize {
        let enough = (BYTES_ENOUGH / self.row_bytes).clamp(ROWS_LEAST, ROWS_AUTO);
        match self.block {
            Some(block) => {
                let round = if enough < ROWS_ROUND_FIXED { enough } else { nearest(enough, ROWS_ROUND_FIXED) };
                round.max(block) / block * block
            }
            None if enough > ROWS_ROUND => nearest(enough, ROWS_ROUND),
            None => enough,
        }
    }

    /// How many more rows the next message can take: at least one.
    pub fn wanted(&self) -> usize {
        self.target().saturating_sub(self.rows).max(1)
    }

    /// Rows that wait.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Takes rows.
    pub fn push(&mut self, batch: RecordBatch) {
        let rows = batch.num_rows();
        if rows > 0 {
            let bytes = bytes(&batch);
            self.row_bytes = (bytes / rows).max(1);
            self.rows += rows;
            self.bytes += bytes;
            self.held.push(batch);
        }
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.held.clear();
        (self.rows, self.bytes) = (0, 0);
    }

    /// The rows of the next message; `None` if it shall wait for more. With `all` nothing waits.
    ///
    /// # Errors
    /// Batches of different columns.
    pub fn next(&mut self, all: bool) -> Result<Option<RecordBatch>, ConnectError> {
        let full = match self.block {
            Some(block) => self.rows >= self.target() || (self.bytes >= BYTES_ENOUGH && self.rows >= block),
            // What is nearly enough does not wait for a few more rows: joining copies all of them.
            None => self.rows * 8 >= self.target() * 7 || self.bytes >= BYTES_ENOUGH,
        };
        if self.rows == 0 || !(full || all) {
            return Ok(None);
        }
        let held = match self.held.len() {
            1 => self.held.pop().expect("one is held"),
            _ => concat_batches(&self.held[0].schema(), &self.held)
                .map_err(|e| ConnectError::new(format!("joining rows to publish them together: {e}")))?,
        };
        self.clear();
        let rows = held.num_rows();
        let whole = if all { rows } else { self.block.map_or(rows, |block| rows / block * block) };
        if whole < rows {
            self.push(held.slice(whole, rows - whole));
        }
        Ok(Some(if whole < rows { held.slice(0, whole) } else { held }))
    }
}

#[cfg(test)]
mod tests;
