//! SAS7BDAT: the files that SAS keeps tables in. Reading only: what is known of the format is what was found in
//! files, which is enough to read them and not enough to promise SAS that a file is sound.
//!
//! [`header`] and [`meta`] say what the columns are, [`page`] where the rows of a page begin, [`rle`] and [`rdc`]
//! unpack compressed rows, [`read`] goes from page to page. A page stands for itself, so any run of pages can be
//! read without those before it.

mod header;
mod meta;
mod page;
mod rdc;
mod read;
mod rle;

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

pub(crate) use self::header::MAGIC;
pub use self::read::{Choose, Place, SasRows};

use self::header::Header;
use self::meta::{Meta, Packing};
use self::page::{Page, PageKind};
use crate::column::{self, Column, Wanted};
use crate::pages::{self, Pages};
use crate::{Charset, SasError};

/// Bytes of a page that its head takes up, and more.
const HEAD_BYTES: usize = 64;

/// An open SAS7BDAT file.
#[derive(Clone)]
pub struct SasFile {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<dyn Pages>,
    header: Header,
    /// So many pages at the front were looked at for metadata; a subheader behind them is a row.
    front: u64,
    packing: Packing,
    row_bytes: usize,
    rows: u64,
    charset: Charset,
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl SasFile {
    /// Reads the metadata of a file.
    ///
    /// # Errors
    /// The file cannot be read, is none of this format, is cut short or damaged.
    pub fn open(file: Arc<dyn Pages>) -> Result<SasFile, SasError> {
        SasFile::open_as(file, None)
    }

    /// The same with text in that character set, whatever the file says.
    ///
    /// # Errors
    /// As [`SasFile::open`].
    pub fn open_as(file: Arc<dyn Pages>, charset: Option<Charset>) -> Result<SasFile, SasError> {
        let header = Header::read(file.as_ref())?;
        let charset = charset.unwrap_or_else(|| Charset::of_byte(header.charset));
        let mut meta = Meta::new(header.words);
        let mut buffer = vec![0; if header.pages > 0 { header.page_bytes } else { 0 }];
        let mut front = 0;
        for number in 0..header.pages {
            pages::fill_all(file.as_ref(), header.page_at(number), &mut buffer, &format!("page {number}"))?;
            let page = Page::new(&buffer, header.words, number)?;
            if page.kind == PageKind::Data {
                break;
            }
            if page.kind != PageKind::Index && !meta.page(&page, number)? && meta.complete() {
                break;
            }
            front = number + 1;
        }
        // Changes of the metadata were put behind everything else.
        let mut amended = header.pages;
        while amended > front {
            let mut head = [0; HEAD_BYTES];
            pages::fill_all(file.as_ref(), header.page_at(amended - 1), &mut head, &format!("the head of page {}", amended - 1))?;
            match Page::new(&head, header.words, amended - 1)?.kind {
                PageKind::Amendment | PageKind::Index => amended -= 1,
                _ => break,
            }
        }
        for number in amended..header.pages {
            pages::fill_all(file.as_ref(), header.page_at(number), &mut buffer, &format!("page {number}"))?;
            meta.page(&Page::new(&buffer, header.words, number)?, number)?;
        }
        let columns = meta.columns(charset)?;
        let schema = column::schema(&columns);
        Ok(SasFile {
            inner: Arc::new(Inner {
                file,
                front,
                packing: meta.packing(),
                row_bytes: meta.row_bytes,
                rows: meta.rows - meta.deleted,
                charset,
                columns,
                schema,
                header,
            }),
        })
    }

    /// The columns as fields, all nullable, with their labels and formats as metadata.
    pub fn schema(&self) -> SchemaRef {
        self.inner.schema.clone()
    }

    /// The columns as the file describes them.
    pub fn columns(&self) -> &[Column] {
        &self.inner.columns
    }

    /// How many rows there are, without deleted ones.
    pub fn rows(&self) -> u64 {
        self.inner.rows
    }

    /// How many pages there are.
    pub fn pages(&self) -> u64 {
        self.inner.header.pages
    }

    /// Length of a page, bytes.
    pub fn page_bytes(&self) -> usize {
        self.inner.header.page_bytes
    }

    /// How rows are compressed, for people: `none`, `char` or `binary`, as SAS's option COMPRESS says.
    pub fn compression(&self) -> &'static str {
        match self.inner.packing {
            Packing::None => "none",
            Packing::Rle => "char",
            Packing::Rdc => "binary",
        }
    }

    /// The name of the data set.
    pub fn name(&self) -> String {
        self.inner.charset.decode(&self.inner.header.name).map_or_else(|_| String::new(), |name| name.into_owned())
    }

    /// The character set of texts.
    pub fn charset(&self) -> Charset {
        self.inner.charset
    }

    /// Divides the pages among up to `n` readers: ranges that follow each other and of which none is empty, but for
    /// the one of a file without pages.
    pub fn splits(&self, n: usize) -> Vec<Range<u64>> {
        let pages = self.pages();
        let n = (n as u64).clamp(1, pages.max(1));
        let bound = |i: u64| (u128::from(pages) * u128::from(i) / u128::from(n)) as u64;
        (0..n).map(|i| bound(i)..bound(i + 1)).collect()
    }

    /// Reads the rows of some pages, without the first `skip` of them: the columns `wanted`, in batches of up to
    /// `batch_rows` rows (fewer where rows are very long). Nothing is decoded of other columns.
    ///
    /// # Errors
    /// Pages or columns that the file does not have.
    pub fn read(&self, pages: Range<u64>, skip: u64, wanted: &[Wanted], batch_rows: usize) -> Result<SasRows, SasError> {
        SasRows::new(self.clone(), pages, skip, wanted, batch_rows)
    }
}
