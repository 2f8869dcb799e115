//! Where in a record batch's body the wanted columns lie: lengths checked against the body, nothing of it read yet, so
//! that only the parts that are wanted need be.

use std::ops::Range;

use arrow::datatypes::DataType;
use arrow::ipc;

use super::unpack::Codec;

/// The most rows of a batch, and values of a column: more than anybody writes, and safely multiplied by their widths.
const VALUES_MAX: i64 = u32::MAX as i64;

/// What a message says of the columns that are wanted of it, in the order in which their types are walked.
#[derive(Debug)]
pub(super) struct Layout {
    pub rows: usize,
    pub nodes: Vec<Node>,
    /// Counted from the beginning of the body.
    pub buffers: Vec<Range<u64>>,
    /// For each column of views, how many buffers its texts stand in.
    pub counts: Vec<usize>,
    pub codec: Option<Codec>,
}

/// A column, or one within a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub length: usize,
    pub nulls: usize,
}

/// The rows of a batch.
///
/// # Errors
/// Their number is none.
pub(super) fn rows_of(batch: &ipc::RecordBatch<'_>) -> Result<usize, String> {
    match batch.length() {
        rows @ 0..=VALUES_MAX => Ok(rows as usize),
        rows => Err(format!("a batch of {rows} rows")),
    }
}

impl Layout {
    /// Of the columns of these types for which `true` stands beside the type; `body` is the length of the body, bytes.
    ///
    /// # Errors
    /// What contradicts what.
    pub fn of<'t>(
        batch: &ipc::RecordBatch<'_>,
        body: u64,
        columns: impl ExactSizeIterator<Item = (&'t DataType, bool)>,
    ) -> Result<Self, String> {
        let rows = rows_of(batch)?;
        let codec = batch.compression().map(|c| Codec::of(&c)).transpose()?;
        let mut layout = Layout { rows, nodes: Vec::new(), buffers: Vec::new(), counts: Vec::new(), codec };
        if columns.len() == 0 {
            return Ok(layout);
        }
        let (Some(nodes), Some(buffers)) = (batch.nodes(), batch.buffers()) else {
            return Err("its lists of columns and buffers are missing".to_string());
        };
        let mut walk = Walk {
            nodes: nodes.iter(),
            buffers: buffers.iter(),
            counts: batch.variadicBufferCounts().into_iter().flatten(),
            body,
            keep: false,
            layout: &mut layout,
        };
        for (data_type, keep) in columns {
            let at = walk.layout.nodes.len();
            walk.keep = keep;
            walk.column(data_type)?;
            if keep && walk.layout.nodes[at].length != rows {
                return Err("a column has another number of values than its batch has rows".to_string());
            }
        }
        Ok(layout)
    }
}

/// Goes over nodes and buffers in the order in which they are written.
struct Walk<'l, N, B, C> {
    nodes: N,
    buffers: B,
    counts: C,
    body: u64,
    /// Whether the column is wanted.
    keep: bool,
    layout: &'l mut Layout,
}

impl<'a, N, B, C> Walk<'_, N, B, C>
where
    N: Iterator<Item = &'a ipc::FieldNode>,
    B: Iterator<Item = &'a ipc::Buffer>,
    C: Iterator<Item = i64>,
{
    fn column(&mut self, data_type: &DataType) -> Result<(), String> {
        let node = self.nodes.next().ok_or("it has fewer columns than the schema")?;
        let (length, nulls) = (node.length(), node.null_count());
        if !(0..=VALUES_MAX).contains(&length) || !(0..=length).contains(&nulls) {
            return Err(format!("a column of {length} values, {nulls} of them NULL"));
        }
        if self.keep {
            self.layout.nodes.push(Node { length: length as usize, nulls: nulls as usize });
        }
        match data_type {
            DataType::Null => Ok(()),
            DataType::Utf8 | DataType::Binary | DataType::LargeUtf8 | DataType::LargeBinary => self.take(3),
            DataType::Utf8View | DataType::BinaryView => {
                let count = self.counts.next().and_then(|count| usize::try_from(count).ok());
                let count = count.ok_or("the count of a column's text buffers is missing or wrong")?;
                if self.keep {
                    self.layout.counts.push(count);
                }
                self.take(count.saturating_add(2))
            }
            DataType::Struct(fields) => {
                self.take(1)?;
                fields.iter().try_for_each(|field| self.column(field.data_type()))
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                self.take(2)?;
                self.column(item.data_type())
            }
            DataType::FixedSizeList(item, _) => {
                self.take(1)?;
                self.column(item.data_type())
            }
            // Which of its NULLs, and values of one width or indices of a dictionary.
            _ => self.take(2),
        }
    }

    fn take(&mut self, buffers: usize) -> Result<(), String> {
        for _ in 0..buffers {
            let buffer = self.buffers.next().ok_or("it has fewer buffers than its columns need")?;
            if !self.keep {
                continue;
            }
            let part = u64::try_from(buffer.offset()).ok().zip(u64::try_from(buffer.length()).ok());
            let part = part.and_then(|(from, length)| Some(from..from.checked_add(length)?)).filter(|part| part.end <= self.body);
            self.layout.buffers.push(part.ok_or_else(|| {
                format!("a buffer at {} of {} bytes is not within its body of {}", buffer.offset(), buffer.length(), self.body)
            })?);
        }
        Ok(())
    }
}
