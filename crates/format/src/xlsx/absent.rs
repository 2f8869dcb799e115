//! What stands in for XLSX in builds without the feature `xlsx`: the same functions, which refuse. What they do otherwise
//! is said in `read`, `infer` and `write`.

use std::io::Write;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::{XlsxInput, XlsxOptions, XlsxRows};
use crate::FormatError;

/// What there is none of.
enum Never {}

fn refused() -> FormatError {
    FormatError::unsupported("this build has no XLSX; build it with the feature 'xlsx', or use CSV")
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn read(
    _: &str,
    _: Box<dyn XlsxInput>,
    _: &XlsxOptions,
    _: &SchemaRef,
    _: &[usize],
    _: u64,
    _: usize,
    _: &mut dyn FnMut(XlsxRows) -> bool,
) -> Result<(), FormatError> {
    Err(refused())
}

/// Refuses.
///
/// # Errors
/// Always.
pub fn infer(_: &str, _: Box<dyn XlsxInput>, _: &XlsxOptions, _: Option<bool>) -> Result<(SchemaRef, bool), FormatError> {
    Err(refused())
}

/// A writer, of which this build has none.
pub struct XlsxFileWriter(Never);

impl XlsxFileWriter {
    /// Refuses.
    ///
    /// # Errors
    /// Always.
    pub fn check(_: &SchemaRef, _: &XlsxOptions) -> Result<(), FormatError> {
        Err(refused())
    }

    pub fn new(_: Box<dyn Write + Send>, _: &SchemaRef, _: &XlsxOptions) -> Result<Self, FormatError> {
        Err(refused())
    }

    pub fn room(&self) -> usize {
        match self.0 {}
    }

    pub fn bytes(&self) -> u64 {
        match self.0 {}
    }

    pub fn write(&mut self, _: &RecordBatch) -> Result<(), FormatError> {
        match self.0 {}
    }

    pub fn finish(self) -> Result<(), FormatError> {
        match self.0 {}
    }
}
