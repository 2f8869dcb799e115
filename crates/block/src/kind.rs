//! The kind of a row in a changelog.

use std::fmt;

/// What a row of a changelog says about the table it describes. Names, order and short forms are
/// Flink's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RowKind {
    /// `+I`: a new row.
    Insert = 0,
    /// `-U`: the old content of a row that changes; its `+U` follows.
    UpdateBefore = 1,
    /// `+U`: the new content of a row that changed.
    UpdateAfter = 2,
    /// `-D`: the row is gone.
    Delete = 3,
}

impl RowKind {
    /// Whether the row adds its content to the table (`+I`, `+U`) rather than takes it away.
    #[inline]
    pub fn adds(self) -> bool {
        matches!(self, RowKind::Insert | RowKind::UpdateAfter)
    }

    /// `1` for a row that adds, `-1` for one that takes away.
    #[inline]
    pub fn sign(self) -> i64 {
        if self.adds() { 1 } else { -1 }
    }

    /// The kind written as Flink prints it: `+I`, `-U`, `+U`, `-D`.
    pub fn short(self) -> &'static str {
        match self {
            RowKind::Insert => "+I",
            RowKind::UpdateBefore => "-U",
            RowKind::UpdateAfter => "+U",
            RowKind::Delete => "-D",
        }
    }

    /// Reads what [`RowKind::short`] writes.
    pub fn from_short(text: &str) -> Option<Self> {
        Some(match text {
            "+I" => RowKind::Insert,
            "-U" => RowKind::UpdateBefore,
            "+U" => RowKind::UpdateAfter,
            "-D" => RowKind::Delete,
            _ => return None,
        })
    }

    /// The kind whose discriminant is `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => RowKind::Insert,
            1 => RowKind::UpdateBefore,
            2 => RowKind::UpdateAfter,
            3 => RowKind::Delete,
            _ => return None,
        })
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}
