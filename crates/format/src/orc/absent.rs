//! What stands in for ORC in builds without the feature `orc`: the same functions, of types that nobody can have a value
//! of. What they do is said where they do something, in `read` and `write`.

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{OrcInput, OrcOptions};
use crate::FormatError;

/// What there is none of.
enum Never {}

fn refused() -> FormatError {
    FormatError::unsupported("this build has no ORC; build it with the feature 'orc', or use Parquet")
}

/// A reader, of which this build has none.
pub struct OrcFileReader(Never);

impl OrcFileReader {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn of(_: &Path, _: Box<dyn OrcInput>, _: &SchemaRef, _: &[usize], _: Range<u64>, _: usize) -> Result<Self, FormatError> {
        Err(refused())
    }

    pub fn rows(&self) -> u64 {
        match self.0 {}
    }

    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordBatch>, FormatError> {
        match self.0 {}
    }
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn schema_in(_: &Path, _: &dyn OrcInput) -> Result<SchemaRef, FormatError> {
    Err(refused())
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn stripes_in(_: &Path, _: &dyn OrcInput) -> Result<Vec<(u64, u64)>, FormatError> {
    Err(refused())
}

/// A writer, of which this build has none.
pub struct OrcFileWriter(Never);

impl OrcFileWriter {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn check(_: &SchemaRef, _: &OrcOptions) -> Result<(), FormatError> {
        Err(refused())
    }

    pub fn new(_: Box<dyn Write + Send>, _: &SchemaRef, _: &OrcOptions) -> Result<Self, FormatError> {
        Err(refused())
    }

    pub fn write(&mut self, _: &RecordBatch) -> Result<(), FormatError> {
        match self.0 {}
    }

    pub fn finish(self) -> Result<(), FormatError> {
        match self.0 {}
    }
}
