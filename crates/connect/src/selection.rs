//! Rows that a query does not want, and that a reader may leave out before it has decoded all of them; and files without any that
//! it wants, which need not be opened.

use std::fmt;
use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use tidemill_format::parquet::Extents;

use crate::ReadRequest;

type Test = dyn Fn(&RecordBatch) -> Option<BooleanArray> + Send + Sync;
type PartTest = dyn Fn(&Extents<'_>) -> Option<Vec<bool>> + Send + Sync;
type FileTest = dyn Fn(&RecordBatch) -> Option<bool> + Send + Sync;

/// Says of rows, by some of their columns, which of them a query wants. Whoever gets the rows checks them again, so a reader
/// leaves out as many of the others as it likes.
#[derive(Clone)]
pub struct Selection {
    columns: SchemaRef,
    test: Arc<Test>,
    parts: Option<Arc<PartTest>>,
}

impl Selection {
    /// By physical columns of the table. `test` gets rows of them and is true for those that are wanted; `None` means that it
    /// cannot tell, so that all are.
    pub fn new(columns: SchemaRef, test: impl Fn(&RecordBatch) -> Option<BooleanArray> + Send + Sync + 'static) -> Self {
        Selection { columns, test: Arc::new(test), parts: None }
    }

    /// The same for parts of a file, by what is known of the columns before any row is read: `test` is true for each part that may
    /// have rows that are wanted.
    pub fn with_parts(self, test: impl Fn(&Extents<'_>) -> Option<Vec<bool>> + Send + Sync + 'static) -> Self {
        Selection { parts: Some(Arc::new(test)), ..self }
    }

    /// The columns that tell.
    pub fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// Of rows of these columns, which are wanted: those for which it is true. `None` means all.
    pub fn wanted(&self, rows: &RecordBatch) -> Option<BooleanArray> {
        (self.test)(rows)
    }

    /// Of parts of a file, which may have rows that are wanted. `None` means all.
    pub fn wanted_parts(&self, known: &Extents<'_>) -> Option<Vec<bool>> {
        self.parts.as_ref().and_then(|test| test(known))
    }
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.columns.fields().iter().map(|field| field.name()).collect();
        write!(f, "by {names:?}")
    }
}

/// Says of files, by metadata columns that have one value in all rows of a file, in which there may be rows that a query wants. Whoever
/// gets the rows checks them again, so a source leaves out as many of the others as it likes.
#[derive(Clone)]
pub struct FileSelection {
    metadata: Vec<(String, FieldRef)>,
    test: Arc<FileTest>,
}

impl FileSelection {
    /// By metadata columns of the table: the connector's key, and the column as it appears. `test` gets one row of them and is false
    /// if no row is wanted that has these values; `None` means that it cannot tell, so that some may be.
    pub fn new(metadata: Vec<(String, FieldRef)>, test: impl Fn(&RecordBatch) -> Option<bool> + Send + Sync + 'static) -> Self {
        FileSelection { metadata, test: Arc::new(test) }
    }

    /// What asks for the columns that tell, and for nothing else.
    pub fn request(&self) -> ReadRequest {
        ReadRequest { physical: Arc::new(Schema::empty()), projection: Vec::new(), metadata: self.metadata.clone() }
    }

    /// Of a file with these values, one row of the request's schema, whether it may have rows that are wanted.
    pub fn wanted(&self, values: &RecordBatch) -> bool {
        (self.test)(values).unwrap_or(true)
    }
}

impl fmt::Debug for FileSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.metadata.iter().map(|(key, _)| key).collect();
        write!(f, "by {keys:?}")
    }
}
