//! SAS files as Arrow record batches: SAS7BDAT (`SasFile`, read) and XPORT, the transport format, of versions
//! 5 and 8 (`XportFile`, read; `XportEncoder`, write).
//!
//! Both formats hold rows of one fixed length. A reader finds where the rows of some pages begin and then
//! goes over them column by column, so that what is paid per value is a load, a swap of bytes and a store.
//! `kind` says what a column's format makes of its numbers, `charset` what its bytes say, `decode` turns
//! rows into columns. What does not live here: paths, options of tables, threads.

mod bdat;
mod charset;
mod column;
mod decode;
mod error;
mod kind;
mod pages;
mod xport;

pub use bdat::{Choose, Place, SasFile, SasRows};
pub use charset::Charset;
pub use column::{As, Column, Wanted};
pub use error::SasError;
pub use kind::Kind;
pub use pages::{LocalPages, Pages};
pub use xport::{XportEncoder, XportFile, XportOptions, XportRows, XportVersion};
