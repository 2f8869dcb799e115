//! The row groups of a file for the library's decoder. Pages that are compressed with Snappy are unpacked here instead of
//! there: into memory that earlier pages were in, which need be neither zeroed nor asked for. And of what the library
//! believes of a page some is looked at before: all texts that become views.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use tidemill_block::ascii::Ascii;

use super::texts;

/// What a byte of Snappy makes at most: the densest copy takes 3 bytes for 64.
const SNAPPY_RATIO_MAX: usize = 22;
/// Pieces of memory of such sizes are kept, bytes: smaller ones cost little, and larger ones are rare.
const KEPT: RangeInclusive<usize> = 4 << 10..=4 << 20;

/// How pages of texts that become views may be encoded.
#[allow(deprecated)]
const VIEWED: [Encoding; 3] = [Encoding::PLAIN, Encoding::PLAIN_DICTIONARY, Encoding::RLE_DICTIONARY];
/// So many bytes are kept that nobody uses: about what the columns of a wide table need for a page each.
const FREE_MAX: usize = 64 << 20;

/// Some row groups of a file, whose bytes `input` gives.
pub(super) struct Groups<R> {
    input: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    numbers: Vec<usize>,
    /// The columns of the file that are read as views.
    views: Arc<[usize]>,
    memory: Arc<Memory>,
}

impl<R> Groups<R> {
    /// `memory` may be what other readers have left.
    pub fn new(input: R, metadata: Arc<ParquetMetaData>, numbers: Vec<usize>, views: Arc<[usize]>, memory: Arc<Memory>) -> Self {
        Groups { input: Arc::new(input), metadata, numbers, views, memory }
    }
}

impl<R: ChunkReader + 'static> RowGroups for Groups<R> {
    fn num_rows(&self) -> usize {
        self.row_groups().map(|group| group.num_rows().max(0) as usize).sum()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(Chunks {
            input: self.input.clone(),
            metadata: self.metadata.clone(),
            numbers: self.numbers.clone().into_iter(),
            column,
            views: self.views.contains(&column),
            memory: self.memory.clone(),
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.numbers.iter().map(|number| self.metadata.row_group(*number)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The chunks of one column, a row group each.
struct Chunks<R> {
    input: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    numbers: std::vec::IntoIter<usize>,
    column: usize,
    views: bool,
    memory: Arc<Memory>,
}

impl<R: ChunkReader + 'static> Chunks<R> {
    fn pages(&self, number: usize) -> Result<Box<dyn PageReader>> {
        let group = self.metadata.row_group(number);
        let chunk = group.column(self.column);
        // What has no index of its pages has an empty one where others of the file have theirs.
        let index = self.metadata.offset_index().and_then(|index| index.get(number)?.get(self.column));
        let places = index.map(|pages| pages.page_locations.clone());
        let rows = group.num_rows().max(0) as usize;
        let snappy = (chunk.compression() == Compression::SNAPPY).then(snap::raw::Decoder::new);
        let pages = match &snappy {
            // To the library they are not compressed.
            Some(_) => {
                let packed = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
                SerializedPageReader::new(self.input.clone(), &packed, rows, places)?
            }
            None => SerializedPageReader::new(self.input.clone(), chunk, rows, places)?,
        };
        let optional = chunk.column_descr().max_def_level() > 0;
        Ok(Box::new(Pages { pages, snappy, views: self.views, optional, memory: self.memory.clone() }))
    }
}

impl<R: ChunkReader + 'static> Iterator for Chunks<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.numbers.next()?;
        Some(self.pages(number))
    }
}

impl<R: ChunkReader + 'static> PageIterator for Chunks<R> {}

/// The pages of a chunk.
struct Pages<R: ChunkReader> {
    /// Gives them unpacked, but for what `snappy` is there for.
    pages: SerializedPageReader<R>,
    snappy: Option<snap::raw::Decoder>,
    /// Whether their texts become views.
    views: bool,
    /// Whether they may be NULL.
    optional: bool,
    memory: Arc<Memory>,
}

impl<R: ChunkReader> Pages<R> {
    /// A page's bytes, of which the first `plain` are not compressed.
    fn unpack(&mut self, bytes: &Bytes, plain: usize) -> Result<Bytes> {
        match &mut self.snappy {
            Some(snappy) => unpacked(snappy, &self.memory, bytes, plain),
            None => Ok(bytes.clone()),
        }
    }
}

/// Looks at up to `count` texts of a page, the first of which begins at `begin`: nobody else does that, to whom they are bytes. Where all
/// of them are ASCII the page is marked.
///
/// # Errors
/// One of them is not UTF-8, or the page ends before.
fn look_at(page: &mut Bytes, begin: usize, count: u32) -> Result<()> {
    if begin > page.len() {
        return Err(short_of_levels());
    }
    let wrong = |at| ParquetError::General(format!("a text is not UTF-8, behind byte {at} of its page"));
    if texts::are_ascii(page, begin, count as usize).map_err(wrong)? {
        *page = Bytes::from_owner(Ascii::new(std::mem::take(page)));
    }
    Ok(())
}

fn short_of_levels() -> ParquetError {
    ParquetError::EOF("a page ends before its levels do".to_string())
}

fn unpacked(snappy: &mut snap::raw::Decoder, memory: &Arc<Memory>, bytes: &Bytes, plain: usize) -> Result<Bytes> {
    let damaged = |why: String| ParquetError::General(format!("a page cannot be unpacked: {why}"));
    let Some((head, packed)) = bytes.split_at_checked(plain) else {
        return Err(damaged(format!("it has {} bytes, but says that its levels alone take {plain}", bytes.len())));
    };
    // That of a page of NULLs alone.
    if packed.is_empty() {
        return Ok(bytes.clone());
    }
    let size = snap::raw::decompress_len(packed).map_err(|e| damaged(e.to_string()))?;
    if size > packed.len().saturating_mul(SNAPPY_RATIO_MAX) || i32::try_from(plain + size).is_err() {
        return Err(damaged(format!("{} bytes of Snappy cannot hold {size}", packed.len())));
    }
    let mut lent = Memory::lend(memory, plain + size);
    lent.bytes[..plain].copy_from_slice(head);
    let made = snappy.decompress(packed, &mut lent.bytes[plain..plain + size]).map_err(|e| damaged(e.to_string()))?;
    lent.length = plain + made;
    Ok(Bytes::from_owner(lent))
}

impl<R: ChunkReader> Iterator for Pages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        let (views, optional) = (self.views, self.optional);
        looked_at(page, views, optional, &mut |bytes, plain| self.unpack(bytes, plain)).map(Some)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

/// A page unpacked; of one whose texts become `views` these are looked at. `unpack` gives bytes unpacked of which so many at the
/// beginning are not packed.
pub(super) fn looked_at(
    mut page: Page,
    views: bool,
    optional: bool,
    unpack: &mut dyn FnMut(&Bytes, usize) -> Result<Bytes>,
) -> Result<Page> {
    // Nobody else looks at texts that become views: those of an encoding that is not looked at here must not get further.
    let known = match &page {
        Page::DictionaryPage { .. } => true,
        Page::DataPage { encoding, .. } | Page::DataPageV2 { encoding, .. } => VIEWED.contains(encoding),
    };
    if views && !known {
        return Err(ParquetError::General(format!("a page of texts is encoded as the footer says that none is: {}", page.encoding())));
    }
    match &mut page {
        Page::DataPage { buf, .. } => *buf = unpack(buf, 0)?,
        Page::DictionaryPage { buf, num_values, .. } => {
            *buf = unpack(buf, 0)?;
            // Memory is taken for so many before they are looked for.
            if *num_values as usize > buf.len() {
                let why = format!("a dictionary of {} bytes says that it has {num_values} values", buf.len());
                return Err(ParquetError::General(why));
            }
        }
        Page::DataPageV2 { buf, is_compressed, num_values, num_nulls, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
            // Compressed or not, they are not.
            if levels > buf.len() {
                return Err(short_of_levels());
            }
            if *is_compressed {
                *buf = unpack(buf, levels)?;
            }
            if num_nulls > num_values {
                let why = format!("a page of {num_values} values says that {num_nulls} of them are NULL");
                return Err(ParquetError::General(why));
            }
        }
    }
    if views && let Some((begin, count)) = plain_texts(&page, optional)? {
        let (Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } | Page::DataPageV2 { buf, .. }) = &mut page;
        look_at(buf, begin, count)?;
    }
    Ok(page)
}

/// Where the texts of a page begin, unpacked, and how many there are at most, if they lie there as they are.
///
/// # Errors
/// The levels before them are encoded in a way that nobody knows.
pub(super) fn plain_texts(page: &Page, optional: bool) -> Result<Option<(usize, u32)>> {
    Ok(match page {
        Page::DataPage { buf, encoding: Encoding::PLAIN, num_values, def_level_encoding, .. } => {
            let begin = match def_level_encoding {
                _ if !optional => 0,
                // They have their length in front of them.
                Encoding::RLE => texts::value(buf, 0).map_or(usize::MAX, |levels| levels.end),
                // A bit each.
                #[allow(deprecated)]
                Encoding::BIT_PACKED => (*num_values as usize).div_ceil(8),
                other => return Err(ParquetError::General(format!("the levels of a page are encoded as {other}"))),
            };
            Some((begin, *num_values))
        }
        Page::DictionaryPage { num_values, .. } => Some((0, *num_values)),
        Page::DataPageV2 { encoding: Encoding::PLAIN, num_values, num_nulls, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = *def_levels_byte_len as usize + *rep_levels_byte_len as usize;
            Some((levels, num_values.saturating_sub(*num_nulls)))
        }
        Page::DataPage { .. } | Page::DataPageV2 { .. } => None,
    })
}

/// Memory that pages were in: of each power of two of bytes the pieces that nobody uses, the one used last on top.
#[derive(Debug)]
pub(super) struct Memory(Mutex<Free>);

#[derive(Debug)]
struct Free {
    pieces: [Vec<Vec<u8>>; usize::BITS as usize],
    bytes: usize,
}

impl Free {
    fn take(&mut self, class: usize) -> Option<Vec<u8>> {
        let piece = self.pieces[class.ilog2() as usize].pop()?;
        self.bytes -= class;
        Some(piece)
    }

    fn put(&mut self, piece: Vec<u8>) {
        if self.bytes + piece.len() <= FREE_MAX {
            self.bytes += piece.len();
            self.pieces[piece.len().ilog2() as usize].push(piece);
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory(Mutex::new(Free { pieces: std::array::from_fn(|_| Vec::new()), bytes: 0 }))
    }
}

impl Memory {
    /// How many bytes nobody uses.
    fn free(&self) -> usize {
        self.0.lock().map_or(0, |free| free.bytes)
    }

    /// A piece of at least so many bytes, whatever is in them.
    fn lend(this: &Arc<Memory>, bytes: usize) -> Lent {
        let class = bytes.next_power_of_two();
        let kept = KEPT.contains(&class);
        let free = kept.then(|| this.0.lock().expect("no panic while held").take(class)).flatten();
        Lent { bytes: free.unwrap_or_else(|| vec![0; if kept { class } else { bytes }]), length: bytes, home: Arc::downgrade(this) }
    }
}

/// What is left of the memory of readers that are done, [`FREE_MAX`] in all: as much as the next ones can use. Readers that are at work at
/// the same time share none, since one processor would wait for what lies in another's cache.
#[derive(Debug, Default)]
pub(super) struct Left(Mutex<Vec<Arc<Memory>>>);

impl Left {
    /// Memory for one reader.
    pub fn take(this: &Arc<Self>) -> Taken {
        let left = this.0.lock().expect("no panic while held").pop();
        Taken { memory: left.unwrap_or_default(), home: this.clone() }
    }
}

/// The memory of one reader. Goes back when the reader is done.
pub(super) struct Taken {
    pub memory: Arc<Memory>,
    home: Arc<Left>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Ok(mut left) = self.home.0.lock()
            && left.iter().chain([&self.memory]).map(|memory| memory.free()).sum::<usize>() <= FREE_MAX
        {
            left.push(self.memory.clone());
        }
    }
}

/// A page's memory. Goes back when the last that refers to it is gone, if there is somebody still who may use it again.
struct Lent {
    bytes: Vec<u8>,
    /// How many of them are the page's.
    length: usize,
    home: Weak<Memory>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if KEPT.contains(&bytes.len())
            && bytes.len().is_power_of_two()
            && let Some(home) = self.home.upgrade()
            && let Ok(mut free) = home.0.lock()
        {
            free.put(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::Encoding;
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::properties::{WriterProperties, WriterVersion};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use tidemill_block::ascii::is_known;

    use super::super::ParquetFileReader;
    use super::super::tests::Temp;
    use super::*;

    fn schema(texts: DataType) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("t", texts, true)]))
    }

    /// The texts of a file, read as `texts`, so many rows at a time.
    fn read(path: &Path, texts: DataType, rows: usize) -> std::result::Result<Vec<Option<String>>, String> {
        let mut reader = ParquetFileReader::open(path, &schema(texts.clone()), &[0], 0, rows).map_err(|e| e.to_string())?;
        let mut all = Vec::new();
        while let Some(batch) = reader.next().map_err(|e| e.to_string())? {
            let column = batch.column(0);
            assert_eq!(*column.data_type(), texts);
            match texts {
                DataType::Utf8View => all.extend(column.as_string_view().iter().map(|text| text.map(str::to_string))),
                _ => all.extend(column.as_string::<i32>().iter().map(|text| text.map(str::to_string))),
            }
        }
        Ok(all)
    }

    fn properties(version: WriterVersion, encoding: Option<Encoding>, compression: Compression) -> WriterProperties {
        let properties = WriterProperties::builder().set_writer_version(version).set_compression(compression);
        let properties = properties.set_data_page_size_limit(1 << 10).set_write_batch_size(16).set_max_row_group_row_count(Some(900));
        match encoding {
            Some(encoding) => properties.set_dictionary_enabled(false).set_encoding(encoding).build(),
            None => properties.build(),
        }
    }

    const VERSIONS: [WriterVersion; 2] = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    /// Those of texts; without one there is a dictionary.
    const ENCODINGS: [Option<Encoding>; 4] =
        [None, Some(Encoding::PLAIN), Some(Encoding::DELTA_LENGTH_BYTE_ARRAY), Some(Encoding::DELTA_BYTE_ARRAY)];

    #[test]
    fn texts_are_the_same_in_columns_and_as_views() {
        let temp = Temp::new("views");
        let text = |n: usize| match n % 5 {
            0 => None,
            1 => Some("short".to_string()),
            2 => Some(String::new()),
            // Of these no byte is worth compressing, of others all are.
            3 => Some(format!("{n}äöü{}", "ß".repeat(n % 40))),
            _ => Some((0..n % 90).map(|i| char::from(b'a' + ((n * 31 + i * i * 7) % 26) as u8)).collect()),
        };
        // Behind them lie pages of NULLs alone.
        let texts: Vec<Option<String>> = (0..2_000).map(text).chain(std::iter::repeat_n(None, 500)).collect();
        let column: ArrayRef = Arc::new(StringArray::from(texts.clone()));
        let batch = RecordBatch::try_new(schema(DataType::Utf8), vec![column]).unwrap();
        for version in VERSIONS {
            for encoding in ENCODINGS {
                for compression in [Compression::SNAPPY, Compression::UNCOMPRESSED, Compression::ZSTD(Default::default())] {
                    let properties = properties(version, encoding, compression);
                    let mut writer = ArrowWriter::try_new(File::create(&temp.0).unwrap(), batch.schema(), Some(properties)).unwrap();
                    writer.write(&batch).unwrap();
                    writer.close().unwrap();
                    for rows in [7, 5_000] {
                        let case = format!("{version:?} {encoding:?} {compression:?}, {rows} rows at a time");
                        assert!(read(&temp.0, DataType::Utf8, rows).unwrap() == texts, "{case}");
                        assert!(read(&temp.0, DataType::Utf8View, rows).unwrap() == texts, "{case}, as views");
                    }
                }
            }
        }
    }

    /// Pages are marked in which all texts are ASCII, whatever their lengths look like, and no others.
    #[test]
    fn it_is_known_of_pages_that_they_are_ascii() {
        let temp = Temp::new("ascii");
        for (version, encoding, optional) in VERSIONS
            .iter()
            .flat_map(|version| [None, Some(Encoding::PLAIN)].map(|encoding| (*version, encoding)))
            .flat_map(|(version, encoding)| [true, false].map(|optional| (version, encoding, optional)))
        {
            let text = |n: usize| match n {
                700 => Some("ä".repeat(20)),
                n if n % 3 == 0 && optional => None,
                n => Some(format!("{n:0$}", 130 + n % 7)),
            };
            let texts: Vec<Option<String>> = (0..1_800).map(text).collect();
            let field = Field::new("t", DataType::Utf8, optional);
            let column: ArrayRef = Arc::new(StringArray::from(texts.clone()));
            let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]).unwrap();
            for compression in [Compression::SNAPPY, Compression::UNCOMPRESSED] {
                let properties = properties(version, encoding, compression);
                let mut writer = ArrowWriter::try_new(File::create(&temp.0).unwrap(), batch.schema(), Some(properties)).unwrap();
                writer.write(&batch).unwrap();
                writer.close().unwrap();
                let mut reader = ParquetFileReader::open(&temp.0, &schema(DataType::Utf8View), &[0], 0, 10).unwrap();
                let (mut known, mut unknown, mut row) = (0, 0, 0);
                while let Some(batch) = reader.next().unwrap() {
                    let views = batch.column(0).as_string_view();
                    let is_known = views.data_buffers().iter().all(|buffer| is_known(buffer));
                    let is_ascii = texts[row..row + views.len()].iter().flatten().all(|text| text.is_ascii());
                    assert!(is_ascii || !is_known, "{version:?} {encoding:?} {compression:?} {optional}, row {row}");
                    *(if is_known { &mut known } else { &mut unknown }) += 1;
                    row += views.len();
                }
                assert!(known > 80 && unknown > 0, "{version:?} {encoding:?} {compression:?} {optional}: {known}, {unknown}");
            }
        }
    }

    /// The library looks at some of them together only, and not at all where a column is one of JSON; at those of views we do.
    #[test]
    fn bytes_that_are_no_text_are_refused_in_every_encoding() {
        let temp = Temp::new("no-text");
        // Together they are a text, each of its own is none.
        let halves = [&b"a\xc3"[..], &b"\xa9b"[..]];
        for (kind, texts) in
            [("UTF8", DataType::Utf8View), ("UTF8", DataType::Utf8), ("JSON", DataType::Utf8View), ("JSON", DataType::Utf8)]
        {
            for (encoding, optional, version, compression) in cases() {
                let message = format!("message m {{ {} binary t ({kind}); }}", if optional { "optional" } else { "required" });
                let properties = properties(version, encoding, compression);
                let schema = Arc::new(parse_message_type(&message).unwrap());
                let mut writer = SerializedFileWriter::new(File::create(&temp.0).unwrap(), schema, Arc::new(properties)).unwrap();
                let mut group = writer.next_row_group().unwrap();
                let mut column = group.next_column().unwrap().unwrap();
                let values: Vec<ByteArray> = halves.iter().map(|half| ByteArray::from(half.to_vec())).collect();
                let levels = [1, 0, 1];
                column.typed::<ByteArrayType>().write_batch(&values, optional.then_some(&levels[..]), None).unwrap();
                column.close().unwrap();
                group.close().unwrap();
                writer.close().unwrap();
                let case = format!("{kind} as {texts}: {encoding:?} {optional} {version:?} {compression:?}");
                let said = read(&temp.0, texts.clone(), 10).expect_err(&case);
                assert!(said.to_lowercase().contains("utf"), "{case}: {said}");
            }
        }
    }

    fn cases() -> impl Iterator<Item = (Option<Encoding>, bool, WriterVersion, Compression)> {
        let compressions = [Compression::SNAPPY, Compression::UNCOMPRESSED, Compression::ZSTD(Default::default())];
        let versions = VERSIONS.iter().flat_map(move |version| compressions.map(|compression| (*version, compression)));
        versions.flat_map(|(version, compression)| {
            ENCODINGS.iter().flat_map(move |encoding| [true, false].map(|optional| (*encoding, optional, version, compression)))
        })
    }

    /// A text is looked at where the library will find it, and a page in which it cannot be found is refused.
    #[test]
    fn texts_are_looked_at_behind_their_levels() {
        #[allow(deprecated)]
        let bits = Encoding::BIT_PACKED;
        let text = [&4u32.to_le_bytes()[..], b"a\xc3\xa9b"].concat();
        let with = |levels: &[u8], text: &[u8]| Bytes::from([levels, text].concat());
        let v1 = |buf: Bytes, def_level_encoding| Page::DataPage {
            buf,
            num_values: 9,
            encoding: Encoding::PLAIN,
            def_level_encoding,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let v2 = |buf: Bytes, def_levels_byte_len, encoding| Page::DataPageV2 {
            buf,
            num_values: 9,
            encoding,
            num_nulls: 8,
            num_rows: 9,
            def_levels_byte_len,
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        };
        let broken = [&4u32.to_le_bytes()[..], b"a\xc3\xa9\xc3"].concat();
        let levels = [&[2, 0, 0, 0][..], &[0xff, 0x80]].concat();
        for (page, expect) in [
            (v1(with(&levels, &text), Encoding::RLE), "text"),
            (v1(with(&levels, &broken), Encoding::RLE), "not UTF-8"),
            (v1(with(&[0x80, 1], &text), bits), "text"),
            (v1(with(&[0x80, 1], &broken), bits), "not UTF-8"),
            (v1(with(&[0x80], b""), bits), "ends before its levels"),
            (v1(with(&[9, 0, 0, 0], &text[..4]), Encoding::RLE), "ends before its levels"),
            (v1(with(&levels, &text), Encoding::PLAIN), "levels of a page are encoded as PLAIN"),
            (v2(with(&[0x80, 1], &text), 2, Encoding::PLAIN), "text"),
            (v2(with(&[0x80, 1], &broken), 2, Encoding::PLAIN), "not UTF-8"),
            // Behind the only value nobody looks for another.
            (v2(with(&[0x80, 1], &[&text[..], &broken].concat()), 2, Encoding::PLAIN), "text"),
            (v2(with(&[0x80, 1], b""), 3, Encoding::PLAIN), "ends before its levels"),
            (v2(with(&[0x80, 1], &text), 2, Encoding::BYTE_STREAM_SPLIT), "encoded as the footer says that none is"),
        ] {
            let said = match looked_at(page, true, true, &mut |bytes, _| Ok(bytes.clone())) {
                Ok(_) => "text".to_string(),
                Err(e) => e.to_string(),
            };
            assert!(said.contains(expect), "{said}, not {expect}");
        }
    }

    #[test]
    fn pages_that_promise_too_much_are_refused() {
        let unpack = |bytes: &[u8]| {
            let memory = Arc::new(Memory::default());
            unpacked(&mut snap::raw::Decoder::new(), &memory, &Bytes::copy_from_slice(bytes), 0).map_err(|e| e.to_string())
        };
        let packed = snap::raw::Encoder::new().compress_vec(&[7; 10_000]).unwrap();
        assert_eq!(unpack(&packed).unwrap(), [7; 10_000][..]);
        assert_eq!(unpack(&[]).unwrap(), [][..], "of NULLs alone");
        let said = unpack(&[&[0xff, 0xff, 0xff, 0xff, 0x0f][..], &packed].concat()).unwrap_err();
        assert!(said.contains("cannot hold 4294967295"), "{said}");
        let said = unpack(&packed[..packed.len() - 1]).unwrap_err();
        assert!(said.contains("cannot be unpacked"), "{said}");
    }

    #[test]
    fn readers_go_on_with_what_others_have_left() {
        let left = Arc::new(Left::default());
        let place = |taken: &Taken, bytes| Memory::lend(&taken.memory, bytes).bytes.as_ptr();
        let (one, other) = (Left::take(&left), Left::take(&left));
        let first = place(&one, 5_000);
        assert!(!Arc::ptr_eq(&one.memory, &other.memory));
        drop(one);
        let next = Left::take(&left);
        assert_eq!(place(&next, 5_000), first);
        // Of both together that would be too much.
        for taken in [&next, &other] {
            drop((0..10).map(|_| Memory::lend(&taken.memory, 4 << 20)).collect::<Vec<_>>());
        }
        drop((next, other));
        assert_eq!(left.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn memory_is_lent_again_and_only_so_much_is_kept() {
        let memory = Arc::new(Memory::default());
        let first = Memory::lend(&memory, 5_000);
        let place = first.bytes.as_ptr();
        assert_eq!((first.bytes.len(), first.as_ref().len()), (8_192, 5_000));
        drop(first);
        assert_eq!(Memory::lend(&memory, 8_000).bytes.as_ptr(), place);
        drop((Memory::lend(&memory, 100), Memory::lend(&memory, 5 << 20)));
        assert_eq!(memory.0.lock().unwrap().pieces.iter().map(Vec::len).sum::<usize>(), 1, "neither small nor large ones are kept");
        let many: Vec<Lent> = (0..40).map(|_| Memory::lend(&memory, 4 << 20)).collect();
        drop(many);
        assert!((FREE_MAX - (8 << 20)..=FREE_MAX).contains(&memory.0.lock().unwrap().bytes));
        let last = Memory::lend(&memory, 8_000);
        drop(memory);
        assert_eq!(last.as_ref().len(), 8_000, "what is lent stays");
    }
}
