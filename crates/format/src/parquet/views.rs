//! Columns of texts that lie in pages as they are (encoding PLAIN), as views.
//!
//! The library makes the views of a page when they are asked for, those of a batch at a time. Of a page that ends in a later batch the rest
//! has left the processor's cache by then, and since each text begins where the one before ends, they are waited for one by one. Here they are
//! made as soon as a page is unpacked, up to [`VIEWS_MAX`] at once; batches take copies of them, 16 bytes each. Columns whose pages may be
//! encoded otherwise stay with the library.

use std::collections::VecDeque;
use std::vec::IntoIter;

use arrow::array::builder::make_view;
use arrow::array::{NullBufferBuilder, StringViewArray};
use arrow::buffer::Buffer;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{RowGroups, RowSelector};
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;

use super::memory::{self, Groups};
use super::texts;

/// So many views are made at once. Most writers end a page at 20,000 rows or before, but some make but one of a row group. Tests have few
/// texts in a page.
const VIEWS_MAX: usize = if cfg!(test) { 7 } else { 32 << 10 };
/// What a view holds by itself, bytes.
const INLINE_MAX: u32 = 12;
/// Where in a view the number of its buffer begins, bits.
const BUFFER_AT: u32 = 64;

/// Whether the pages of a chunk of texts at the root are of the kind that is read here, by what the footer says.
pub(super) fn are_plain(chunk: &ColumnChunkMetaData) -> bool {
    let column = chunk.column_descr();
    let flat = column.max_rep_level() == 0 && column.max_def_level() <= 1;
    // The others are those of levels.
    #[allow(deprecated)]
    let known = [Encoding::PLAIN, Encoding::RLE, Encoding::BIT_PACKED];
    let plain = chunk.encodings_mask().is_set(Encoding::PLAIN) && chunk.encodings().all(|encoding| known.contains(&encoding));
    flat && plain && chunk.dictionary_page_offset().is_none()
}

fn damaged(what: String) -> ParquetError {
    ParquetError::General(what)
}

/// One column of some row groups, in the order of its rows.
pub(super) struct Views {
    chunks: Box<dyn PageIterator>,
    /// How many rows each of the row groups has that come next.
    groups: IntoIter<u64>,
    pages: Option<Box<dyn PageReader>>,
    /// Of this group's rows those whose page was not asked for yet.
    rows_left: u64,
    page: Option<PageViews>,
    /// Whether values may be NULL.
    optional: bool,
    /// Which rows are given; `None`: all.
    selected: Option<VecDeque<RowSelector>>,
}

impl Views {
    /// Of the column `leaf`, which is one of those that `groups` looks at.
    pub fn new<R: ChunkReader + 'static>(groups: &Groups<R>, leaf: usize, selected: Option<&[RowSelector]>) -> Result<Self> {
        let rows: Vec<u64> = groups.row_groups().map(|group| group.num_rows().max(0) as u64).collect();
        let optional = groups.metadata().file_metadata().schema_descr().column(leaf).max_def_level() > 0;
        let (chunks, selected) = (groups.column_chunks(leaf)?, selected.map(|selected| selected.iter().copied().collect()));
        Ok(Views { chunks, groups: rows.into_iter(), pages: None, rows_left: 0, page: None, optional, selected })
    }

    /// The values of the next `rows` rows that are given.
    ///
    /// # Errors
    /// There are not so many; the file cannot be read, or is damaged.
    pub fn next(&mut self, rows: usize) -> Result<StringViewArray> {
        let mut out = Given { views: Vec::with_capacity(rows), buffers: Vec::new(), nulls: NullBufferBuilder::new(rows) };
        while out.views.len() < rows {
            let wanted = rows - out.views.len();
            let run = match &mut self.selected {
                None => wanted,
                Some(selected) => match selected.pop_front() {
                    Some(run) if run.skip => {
                        self.pass(run.row_count)?;
                        continue;
                    }
                    Some(run) => {
                        let now = run.row_count.min(wanted);
                        if now < run.row_count {
                            selected.push_front(RowSelector::select(run.row_count - now));
                        }
                        now
                    }
                    None => return Err(damaged(format!("{wanted} rows are wanted behind the last"))),
                },
            };
            let mut left = run;
            while left > 0 {
                let page = self.page()?;
                let now = left.min(page.rows);
                page.give(now, &mut out)?;
                left -= now;
            }
        }
        Ok(out.finish())
    }

    /// Passes over rows.
    fn pass(&mut self, mut rows: usize) -> Result<()> {
        while rows > 0 {
            if let Some(page) = self.page.as_mut().filter(|page| page.rows > 0) {
                let now = rows.min(page.rows);
                page.pass(now)?;
                rows -= now;
                continue;
            }
            let next = match &mut self.pages {
                Some(_) if rows as u64 >= self.rows_left => {
                    rows -= self.rows_left as usize;
                    self.rows_left = 0;
                    self.pages = None;
                    continue;
                }
                Some(pages) => pages.peek_next_page()?,
                None => {
                    self.begin_group()?;
                    continue;
                }
            };
            // In a flat column a level is a row.
            let next = next.and_then(|next| next.num_rows.or(next.num_levels)).unwrap_or(usize::MAX);
            match &mut self.pages {
                Some(pages) if next <= rows && next as u64 <= self.rows_left => {
                    pages.skip_next_page()?;
                    self.rows_left -= next as u64;
                    rows -= next;
                }
                _ => {
                    self.page()?;
                }
            }
        }
        Ok(())
    }

    fn begin_group(&mut self) -> Result<()> {
        let ended = || ParquetError::EOF("there are no more row groups, but more rows are wanted".to_string());
        self.pages = Some(self.chunks.next().ok_or_else(ended)??);
        self.rows_left = self.groups.next().ok_or_else(ended)?;
        Ok(())
    }

    /// A page of which there are rows left.
    fn page(&mut self) -> Result<&mut PageViews> {
        while self.page.as_ref().is_none_or(|page| page.rows == 0) {
            // Its memory may be that of the next one.
            self.page = None;
            let Some(pages) = self.pages.as_mut().filter(|_| self.rows_left > 0) else {
                self.begin_group()?;
                continue;
            };
            let left = self.rows_left;
            let page = pages.get_next_page()?;
            let page = page.ok_or_else(|| ParquetError::EOF(format!("its pages end {left} rows before its row group does")))?;
            let page = PageViews::new(&page, self.optional)?;
            let rest = left.checked_sub(page.rows as u64);
            self.rows_left = rest.ok_or_else(|| damaged(format!("a page has {} rows, and its row group {left}", page.rows)))?;
            self.page = Some(page);
        }
        Ok(self.page.as_mut().expect("one was made"))
    }
}

/// The definition levels of a page; `None` of one without data.
fn levels(page: &Page) -> Option<Levels> {
    match page {
        // They have their length in front of them.
        Page::DataPage { buf, def_level_encoding: Encoding::RLE, .. } => Some(Levels::new(buf.slice(texts::value(buf, 0)?))),
        Page::DataPage { buf, num_values, .. } => Some(Levels::bits(buf.slice(..(*num_values as usize).div_ceil(8).min(buf.len())))),
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let begin = *rep_levels_byte_len as usize;
            Some(Levels::new(buf.slice(begin..begin + *def_levels_byte_len as usize)))
        }
        Page::DictionaryPage { .. } => None,
    }
}

/// What a batch gets.
struct Given {
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    nulls: NullBufferBuilder,
}

impl Given {
    /// Appends views of a page.
    fn append(&mut self, views: &[u128], page: &Buffer) {
        // The length stands first.
        let long = |view: &u128| *view as u32 > INLINE_MAX;
        if views.iter().any(long) && self.buffers.last().is_none_or(|last| !last.ptr_eq(page)) {
            self.buffers.push(page.clone());
        }
        let number = (self.buffers.len().saturating_sub(1) as u128) << BUFFER_AT;
        self.views.extend(views.iter().map(|view| if long(view) { view + number } else { *view }));
    }

    fn finish(mut self) -> StringViewArray {
        // SAFETY: a view is 0, for NULL, or one of those that `PageViews::more` made, of texts within its page's bytes that were looked at and
        // are UTF-8; if it is long, `append` has put the number of these bytes into it, which are in `buffers`. There is a level for each
        // view.
        unsafe { StringViewArray::new_unchecked(self.views.into(), self.buffers, self.nulls.finish()) }
    }
}

/// The views of a page of which rows are left.
struct PageViews {
    bytes: Buffer,
    /// Of values that are there, as if the page was the first of an array's buffers.
    views: Vec<u128>,
    /// How many of them are behind us.
    given: usize,
    /// Where in the page the next text is that has no view yet, and how many may follow.
    next: (usize, usize),
    /// How many rows are left.
    rows: usize,
    /// Which rows have a value, if not all have one.
    levels: Option<Levels>,
}

impl PageViews {
    /// Of a page that [`Groups`] has given, and so has looked at.
    fn new(page: &Page, optional: bool) -> Result<Self> {
        let texts = memory::plain_texts(page, optional)?.filter(|_| page.is_data_page());
        let Some((begin, count)) = texts else {
            return Err(damaged(format!("a page of texts is none as the footer says: {}", page.encoding())));
        };
        let levels = if optional { levels(page) } else { None };
        let (bytes, rows) = (Buffer::from(page.buffer().clone()), page.num_values() as usize);
        let mut made = PageViews { bytes, views: Vec::new(), given: 0, next: (begin, count as usize), rows, levels };
        made.more();
        Ok(made)
    }

    /// Makes the next views, when all have been given.
    fn more(&mut self) {
        let (mut at, left) = self.next;
        let bytes = self.bytes.as_slice();
        self.views.clear();
        // Each text has its length in front of it.
        self.views.reserve_exact(left.min(VIEWS_MAX).min(bytes.len().saturating_sub(at) / 4));
        while self.views.len() < left.min(VIEWS_MAX)
            && let Some(text) = texts::value(bytes, at)
        {
            at = text.end;
            self.views.push(make_view(&bytes[text.clone()], 0, text.start as u32));
        }
        self.next = (at, left - self.views.len());
        self.given = 0;
    }

    /// Appends so many rows, which are there.
    fn give(&mut self, rows: usize, out: &mut Given) -> Result<()> {
        let mut left = rows;
        while left > 0 {
            let (valid, run) = self.run(left)?;
            if valid {
                out.append(&self.views[self.given..self.given + run], &self.bytes);
                out.nulls.append_n_non_nulls(run);
                self.given += run;
            } else {
                out.views.resize(out.views.len() + run, 0);
                out.nulls.append_n_nulls(run);
            }
            left -= run;
        }
        self.rows -= rows;
        Ok(())
    }

    /// Passes over so many rows, which are there.
    fn pass(&mut self, rows: usize) -> Result<()> {
        let mut left = rows;
        while left > 0 {
            let (valid, run) = self.run(left)?;
            self.given += if valid { run } else { 0 };
            left -= run;
        }
        self.rows -= rows;
        Ok(())
    }

    /// Whether the next rows have values, and how many of them, up to `rows`, are alike in that; if so, there are views of them.
    fn run(&mut self, rows: usize) -> Result<(bool, usize)> {
        if self.given == self.views.len() {
            self.more();
        }
        let made = self.views.len() - self.given;
        let (valid, alike) = self.levels.as_mut().map_or(Ok((true, rows)), Levels::alike)?;
        if valid && made == 0 {
            return Err(ParquetError::EOF("a page ends before its texts do".to_string()));
        }
        let run = alike.min(rows).min(if valid { made } else { rows });
        if let Some(levels) = &mut self.levels {
            levels.take(run);
        }
        Ok((valid, run))
    }
}

/// The texts of a column of one page, for fuzzing. The first byte of `page` says of which kind it is: bit 0: of the second version, bit 1:
/// with NULLs, bit 2: with levels of the older encoding; the other bits are the rows of a batch, 0: all. Two numbers of two bytes follow,
/// the lower byte first: of values, and of bytes of levels.
///
/// # Errors
/// As those of a file with such a page.
#[doc(hidden)]
pub fn texts_of_page(page: &[u8]) -> std::result::Result<Vec<StringViewArray>, String> {
    struct One(Option<Page>);
    impl Iterator for One {
        type Item = Result<Page>;
        fn next(&mut self) -> Option<Self::Item> {
            self.0.take().map(Ok)
        }
    }
    impl PageReader for One {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(self.0.take())
        }
        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }
        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
        fn at_record_boundary(&mut self) -> Result<bool> {
            Ok(true)
        }
    }
    struct Chunk(Option<One>);
    impl Iterator for Chunk {
        type Item = Result<Box<dyn PageReader>>;
        fn next(&mut self) -> Option<Self::Item> {
            self.0.take().map(|page| Ok(Box::new(page) as Box<dyn PageReader>))
        }
    }
    impl PageIterator for Chunk {}

    let [kind, a, b, c, d, bytes @ ..] = page else { return Err("five bytes are wanted".to_string()) };
    let (optional, buf) = (kind & 2 > 0, Bytes::copy_from_slice(bytes));
    let (num_values, levels) = (u32::from(u16::from_le_bytes([*a, *b])), u32::from(u16::from_le_bytes([*c, *d])));
    #[allow(deprecated)]
    let def_level_encoding = if kind & 4 > 0 { Encoding::BIT_PACKED } else { Encoding::RLE };
    let (encoding, statistics) = (Encoding::PLAIN, None);
    let page = match kind & 1 {
        0 => Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding: Encoding::RLE, statistics },
        _ => {
            let (def_levels_byte_len, num_rows) = (if optional { levels } else { 0 }, num_values);
            // How many are NULL is looked at only to know how many are not.
            let (num_nulls, rep_levels_byte_len, is_compressed) = (0, 0, false);
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls,
                num_rows,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                statistics,
            }
        }
    };
    let page = memory::looked_at(page, true, optional, &mut |bytes, _| Ok(bytes.clone())).map_err(|e| e.to_string())?;
    let (chunks, groups) = (Box::new(Chunk(Some(One(Some(page))))), vec![u64::from(num_values)].into_iter());
    let mut views = Views { chunks, groups, pages: None, rows_left: 0, page: None, optional, selected: None };
    let (rows, batch) = (num_values as usize, usize::from(kind >> 3));
    let batch = if batch == 0 { rows.max(1) } else { batch };
    (0..rows).step_by(batch).map(|from| views.next(batch.min(rows - from)).map_err(|e| e.to_string())).collect()
}

/// Definition levels of 0 and 1, as runs of one level and as bits (Parquet's RLE/bit-packing hybrid of width 1).
struct Levels {
    bytes: Bytes,
    /// Where the next run begins.
    at: usize,
    run: Run,
}

enum Run {
    /// So many of one level.
    Alike { valid: bool, left: usize },
    /// So many levels from this bit of all the bytes on, the lowest of each byte first.
    Bits { bit: usize, left: usize },
}

impl Levels {
    fn new(bytes: Bytes) -> Self {
        Levels { bytes, at: 0, run: Run::Alike { valid: true, left: 0 } }
    }

    /// Of an older encoding: bits alone, the lowest first, as the library reads them; by the specification the highest comes first.
    fn bits(bytes: Bytes) -> Self {
        Levels { at: bytes.len(), run: Run::Bits { bit: 0, left: 8 * bytes.len() }, bytes }
    }

    /// Whether there is a value at the next level, and how many levels from it on are known to be alike.
    fn alike(&mut self) -> Result<(bool, usize)> {
        loop {
            match &self.run {
                Run::Alike { left: 0, .. } | Run::Bits { left: 0, .. } => self.begin()?,
                Run::Alike { valid, left } => return Ok((*valid, *left)),
                Run::Bits { bit, left } => {
                    let (rest, bits) = (self.bytes[*bit / 8] >> (*bit % 8), 8 - *bit % 8);
                    let valid = rest & 1 == 1;
                    let alike = if valid { rest.trailing_ones() } else { rest.trailing_zeros() } as usize;
                    return Ok((valid, alike.min(bits).min(*left)));
                }
            }
        }
    }

    /// Passes over so many levels, which [`Levels::alike`] has seen.
    fn take(&mut self, levels: usize) {
        match &mut self.run {
            Run::Alike { left, .. } => *left -= levels,
            Run::Bits { bit, left } => {
                *bit += levels;
                *left -= levels;
            }
        }
    }

    /// Begins the next run: a number in pieces of seven bits, the lowest first; if it is odd, half of it is the number of bytes that follow with
    /// a level in each bit, else half of it is how often the level comes that the next byte holds.
    fn begin(&mut self) -> Result<()> {
        let short = || ParquetError::EOF("the levels of a page end before its rows do".to_string());
        let mut next = || {
            let byte = *self.bytes.get(self.at).ok_or_else(short)?;
            self.at += 1;
            Ok::<_, ParquetError>(byte)
        };
        let (mut head, mut shift) = (0u64, 0);
        loop {
            let byte = next()?;
            head |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 28 {
                return Err(damaged("a run of levels is longer than any page".to_string()));
            }
        }
        let count = (head >> 1) as usize;
        self.run = if head & 1 == 1 {
            let bytes = count.min(self.bytes.len() - self.at);
            let bit = 8 * self.at;
            self.at += bytes;
            Run::Bits { bit, left: 8 * bytes }
        } else {
            match next()? {
                level @ (0 | 1) => Run::Alike { valid: level == 1, left: count },
                level => return Err(damaged(format!("a level is {level}, which may be 0 or 1"))),
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::{Arc, Mutex};

    use arrow::array::{Array, ArrayRef, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ArrowReaderMetadata;
    use parquet::basic::Compression;
    use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

    use super::super::tests::Temp;
    use super::*;

    /// Numbers that look random, the same every time.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }

    /// Pages that are there already, and what was done with them: how many were asked for, and how many passed over.
    struct Scripted {
        pages: VecDeque<Page>,
        seen: Arc<Mutex<(usize, usize)>>,
    }

    impl Iterator for Scripted {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Self::Item> {
            self.get_next_page().transpose()
        }
    }

    impl PageReader for Scripted {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            self.seen.lock().unwrap().0 += 1;
            Ok(self.pages.pop_front())
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            let levels = |page: &Page| Some(page.num_values() as usize);
            Ok(self.pages.front().map(|page| PageMetadata { num_rows: None, num_levels: levels(page), is_dict: page.is_dictionary_page() }))
        }

        fn skip_next_page(&mut self) -> Result<()> {
            self.seen.lock().unwrap().1 += 1;
            self.pages.pop_front();
            Ok(())
        }

        fn at_record_boundary(&mut self) -> Result<bool> {
            Ok(true)
        }
    }

    struct Chunks(Option<Box<dyn PageReader>>);

    impl Iterator for Chunks {
        type Item = Result<Box<dyn PageReader>>;

        fn next(&mut self) -> Option<Self::Item> {
            self.0.take().map(Ok)
        }
    }

    impl PageIterator for Chunks {}

    /// Views of one row group of `rows` rows with these pages.
    fn scripted(pages: Vec<Page>, rows: u64, optional: bool, selected: Option<Vec<RowSelector>>) -> (Views, Arc<Mutex<(usize, usize)>>) {
        let seen = Arc::new(Mutex::new((0, 0)));
        let chunks = Chunks(Some(Box::new(Scripted { pages: pages.into(), seen: seen.clone() })));
        let (groups, selected) = (vec![rows].into_iter(), selected.map(VecDeque::from));
        (Views { chunks: Box::new(chunks), groups, pages: None, rows_left: 0, page: None, optional, selected }, seen)
    }

    fn plain(texts: &[&str]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()).collect()
    }

    fn bit_packed(num_values: u32, levels: &[u8], texts: &[&str]) -> Page {
        #[allow(deprecated)]
        let def_level_encoding = Encoding::BIT_PACKED;
        let (buf, rep_level_encoding) = ([levels.to_vec(), plain(texts)].concat().into(), Encoding::RLE);
        Page::DataPage { buf, num_values, encoding: Encoding::PLAIN, def_level_encoding, rep_level_encoding, statistics: None }
    }

    /// A page of the first version with so many values, behind their levels if there are some.
    fn page(num_values: u32, levels: Option<&[u8]>, texts: &[&str]) -> Page {
        let levels = levels.map_or(Vec::new(), |levels| [&(levels.len() as u32).to_le_bytes(), levels].concat());
        Page::DataPage {
            buf: [levels, plain(texts)].concat().into(),
            num_values,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    fn texts(array: &StringViewArray) -> Vec<Option<String>> {
        // The library's own look at what was made without one.
        array.to_data().validate_full().unwrap();
        array.iter().map(|text| text.map(str::to_string)).collect()
    }

    /// Rows in any runs and any batches are those that the file was made of.
    #[test]
    fn any_rows_are_given_in_any_batches() {
        let temp = Temp::new("own-views");
        let mut dice = Dice(7);
        let mut runs = 0;
        for case in 0..60 {
            let (optional, nulls) = (case % 3 > 0, [2, 40][case % 2]);
            let rows = 200 + dice.below(3_000);
            let mut text = |row: usize| match dice.below(nulls) {
                0 if optional => None,
                // NULLs and values come in runs, too.
                _ if optional && row / 100 % 3 == 2 => None,
                _ => Some(format!("{row}{}", "x".repeat(dice.below(30)))),
            };
            let all: Vec<Option<String>> = (0..rows).map(&mut text).collect();
            let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, optional)]));
            let column: ArrayRef = Arc::new(StringArray::from(all.clone()));
            let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
            let properties = WriterProperties::builder()
                .set_writer_version(versions[case / 2 % 2])
                .set_compression([Compression::SNAPPY, Compression::UNCOMPRESSED][case / 4 % 2])
                .set_statistics_enabled([EnabledStatistics::Page, EnabledStatistics::None][case / 8 % 2])
                .set_dictionary_enabled(false)
                .set_encoding(Encoding::PLAIN)
                .set_data_page_size_limit(500 + dice.below(3_000))
                .set_write_batch_size(1 + dice.below(60))
                .set_max_row_group_row_count(Some(100 + dice.below(1_000)));
            let mut writer = ArrowWriter::try_new(File::create(&temp.0).unwrap(), schema.clone(), Some(properties.build())).unwrap();
            writer.write(&RecordBatch::try_new(schema, vec![column]).unwrap()).unwrap();
            writer.close().unwrap();
            let file = || File::open(&temp.0).unwrap();
            let metadata = ArrowReaderMetadata::load(&file(), Default::default()).unwrap().metadata().clone();
            assert!(metadata.row_groups().iter().all(|group| are_plain(group.column(0))), "case {case}");
            let numbers = (0..metadata.num_row_groups()).collect();
            let groups = Groups::new(file(), metadata, numbers, Arc::new([0]), Arc::default());

            let (mut selected, mut expected, mut at) = (Vec::new(), Vec::new(), 0);
            let longest = [10, 100, 2_000][dice.below(3)];
            while at < rows {
                let run = dice.below(longest).min(rows - at);
                let skip = dice.below(2) == 0;
                selected.push(if skip { RowSelector::skip(run) } else { RowSelector::select(run) });
                expected.extend(if skip { &[][..] } else { &all[at..at + run] }.iter().cloned());
                at += run;
            }
            runs += selected.len();
            for (selected, expected) in [(None, &all), (Some(&selected[..]), &expected)] {
                let mut views = Views::new(&groups, 0, selected).unwrap();
                let mut given = Vec::new();
                while given.len() < expected.len() {
                    let rows = (1 + dice.below(500)).min(expected.len() - given.len());
                    given.extend(texts(&views.next(rows).unwrap()));
                }
                assert!(given == *expected, "case {case}");
                assert!(views.next(1).is_err(), "case {case}: rows behind the last");
            }
        }
        assert!(runs > 1_000);
    }

    #[test]
    fn pages_of_rows_that_are_not_wanted_stay_packed() {
        let pages = || (0..10).map(|_| page(3, None, &["a", "b", "c"])).collect::<Vec<_>>();
        let (mut views, seen) =
            scripted(pages(), 30, false, Some(vec![RowSelector::skip(10), RowSelector::select(4), RowSelector::skip(16)]));
        assert_eq!(texts(&views.next(4).unwrap()), ["b", "c", "a", "b"].map(|text| Some(text.to_string())));
        assert_eq!(*seen.lock().unwrap(), (2, 3));
        assert!(views.next(1).unwrap_err().to_string().contains("behind the last"));
        assert_eq!(*seen.lock().unwrap(), (2, 3), "what is left of a row group is not looked at");
    }

    #[test]
    fn levels_come_in_runs_and_in_bits() {
        // Five with a value; a run of nothing; bits for 16 of which 10 are rows; the lowest comes first.
        let levels = [10, 1, 0, 1, 5, 0b0000_0110, 0b1111_1110];
        let (mut views, _) = scripted(vec![page(15, Some(&levels), &["1", "2", "3", "4", "5", "7", "8", "15"])], 15, true, None);
        let expected: Vec<Option<String>> = (1..=15).map(|row| [1, 2, 3, 4, 5, 7, 8, 15].contains(&row).then(|| row.to_string())).collect();
        assert_eq!([texts(&views.next(6).unwrap()), texts(&views.next(9).unwrap())].concat(), expected);
        // The length of a run in two bytes.
        let long = vec!["long enough for a buffer"; 300];
        let (mut views, _) = scripted(vec![page(301, Some(&[0xd8, 4, 1, 2, 0]), &long)], 301, true, None);
        let array = views.next(301).unwrap();
        assert_eq!((array.null_count(), array.is_null(300), array.data_buffers().len()), (1, true, 1));
        let (mut views, _) = scripted(vec![bit_packed(9, &[0b0000_0101, 1], &["1", "3", "9"])], 9, true, None);
        let expected: Vec<Option<String>> = (1..=9).map(|row| [1, 3, 9].contains(&row).then(|| row.to_string())).collect();
        assert_eq!(texts(&views.next(9).unwrap()), expected);
        // Where there are none it does not matter how they are said to be encoded.
        let (mut views, _) = scripted(vec![bit_packed(2, &[], &["1", "2"])], 2, false, None);
        assert_eq!(views.next(2).unwrap().null_count(), 0);
        // Short texts need no page.
        let (mut views, _) = scripted(vec![page(1, None, &["short"]), page(1, None, &["and short"])], 2, false, None);
        assert_eq!(views.next(2).unwrap().data_buffers().len(), 0);
    }

    /// Pages may have more texts than views are made of at once.
    #[test]
    fn large_pages_are_taken_in_pieces() {
        let rows = 3 * VIEWS_MAX + 10;
        let all: Vec<String> = (0..rows).map(|row| format!("{row}, {row:>0$}", row % 17)).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        // A NULL, then as many values as make it necessary to go on in the middle of a run.
        let levels =
            [&[2, 0][..], &[0x80 | ((2 * rows) & 0x7f) as u8, 0x80 | ((2 * rows) >> 7 & 0x7f) as u8, ((2 * rows) >> 14) as u8, 1]].concat();
        let same = |array: &StringViewArray, from: usize| array.iter().zip(&all[from..]).all(|(is, expected)| is == Some(expected));
        for batch in [100, VIEWS_MAX, VIEWS_MAX + 1, rows] {
            let (mut views, _) = scripted(vec![page(rows as u32 + 1, Some(&levels), &all)], rows as u64 + 1, true, None);
            assert_eq!(texts(&views.next(1).unwrap()), [None]);
            for from in (0..rows).step_by(batch) {
                let array = views.next(batch.min(rows - from)).unwrap();
                array.to_data().validate_full().unwrap();
                assert!(same(&array, from) && array.data_buffers().len() < 2, "{from} in batches of {batch}");
            }
        }
        let passed = vec![RowSelector::skip(2 * VIEWS_MAX + 5), RowSelector::select(7), RowSelector::skip(VIEWS_MAX - 2)];
        let (mut views, _) = scripted(vec![page(rows as u32, None, &all)], rows as u64, false, Some(passed));
        assert!(same(&views.next(7).unwrap(), 2 * VIEWS_MAX + 5));
    }

    /// Whatever a page holds, it is refused or gives sound texts.
    #[test]
    fn no_page_gives_unsound_texts() {
        let mut dice = Dice(11);
        let (mut sound, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let kind = dice.below(256) as u8;
            let values = dice.below(30);
            let levels = [&[(2 * (values / 2)) as u8, 1][..], &[3, dice.below(256) as u8], &[2 * dice.below(20) as u8, 0]].concat();
            let texts: Vec<u8> = (0..values)
                .flat_map(|_| {
                    let text = &"äöü and some more text"[..[0, 2, 4, 6, 10, 22][dice.below(6)]];
                    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
                })
                .collect();
            let prefix = if kind & 1 == 0 { (levels.len() as u32).to_le_bytes().to_vec() } else { Vec::new() };
            let levels = if kind & 2 > 0 { [prefix, levels].concat() } else { Vec::new() };
            let mut page = [&[kind][..], &(values as u16).to_le_bytes(), &(levels.len() as u16).to_le_bytes(), &levels, &texts].concat();
            for _ in 0..dice.below(3) {
                let at = dice.below(page.len());
                page[at] = dice.below(256) as u8;
            }
            match texts_of_page(&page) {
                Ok(arrays) => {
                    arrays.iter().for_each(|array| array.to_data().validate_full().unwrap());
                    sound += 1;
                }
                Err(_) => refused += 1,
            }
        }
        assert!(sound > 2_000 && refused > 2_000, "{sound} sound, {refused} refused");
    }

    #[test]
    fn damaged_pages_are_refused() {
        let dictionary = Page::DictionaryPage { buf: plain(&["a"]).into(), num_values: 1, encoding: Encoding::PLAIN, is_sorted: false };
        let levels = |levels: &[u8]| vec![page(9, Some(levels), &["a"; 9])];
        for (pages, rows, optional, expect) in [
            (vec![page(3, None, &["a", "b"])], 3, false, "ends before its texts"),
            (vec![page(3, None, &["a", "b", "c"])], 2, false, "has 3 rows, and its row group 2"),
            (vec![page(2, None, &["a", "b"])], 3, false, "end 1 rows before"),
            (vec![dictionary], 1, false, "none as the footer says: PLAIN"),
            (levels(&[]), 9, true, "levels of a page end"),
            (levels(&[16, 1]), 9, true, "levels of a page end"),
            (levels(&[3]), 9, true, "levels of a page end"),
            (levels(&[0x80]), 9, true, "levels of a page end"),
            (levels(&[18, 2]), 9, true, "a level is 2"),
            (levels(&[0xff; 9]), 9, true, "longer than any page"),
            (vec![page(9, Some(&[18, 1]), &["a"; 8])], 9, true, "ends before its texts"),
        ] {
            let (mut views, _) = scripted(pages, rows, optional, None);
            let said = views.next(rows as usize + usize::from(rows == 2)).map(|array| texts(&array)).unwrap_err().to_string();
            assert!(said.contains(expect), "{said}, not {expect}");
        }
    }
}
