//! SAS7BDAT and XPORT files from strangers: whatever they say of themselves, the rows do not depend on the ranges of pages
//! and the sizes of batches in which they are read.

#![no_main]

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use libfuzzer_sys::fuzz_target;
use tidemill_sas::{SasError, SasFile, Wanted, XportFile};

/// Rows of a file that are compared; a page of empty rows may say that it has thousands.
const ROWS_MAX: u64 = 100_000;

type Batches = Result<Vec<RecordBatch>, SasError>;

/// The rows in one batch; none if reading failed.
fn joined(batches: Batches) -> Option<RecordBatch> {
    let batches = batches.ok()?;
    let first = batches.first()?.schema();
    Some(concat_batches(&first, &batches).expect("batches of one schema"))
}

fn sas(bytes: &[u8]) {
    let Ok(file) = SasFile::open(Arc::new(bytes.to_vec())) else { return };
    if file.rows() > ROWS_MAX {
        return;
    }
    let wanted = Wanted::all(file.columns().len());
    let whole: Batches = file.read(0..file.pages(), 0, &wanted, 1_000).expect("columns and pages that there are").collect();
    let parts: Batches =
        file.splits(3).into_iter().flat_map(|part| file.read(part, 0, &wanted, 3).expect("columns and pages that there are")).collect();
    // Only who reads all of it knows whether there are as many rows as the file says.
    if let (Some(whole), Some(parts)) = (joined(whole), joined(parts)) {
        assert!(whole == parts, "rows depend on how the file is divided");
        assert_eq!(whole.num_rows() as u64, file.rows());
    }
}

fn xport(bytes: &[u8]) {
    let Ok(file) = XportFile::open(Arc::new(bytes.to_vec()), None, None) else { return };
    let wanted = Wanted::all(file.columns().len());
    let read = |rows: usize| -> Batches { file.read(0, &wanted, rows).expect("columns that there are").collect() };
    assert!(joined(read(1)) == joined(read(100)), "rows depend on the size of batches");
}

fuzz_target!(|data: &[u8]| {
    sas(data);
    xport(data);
});
