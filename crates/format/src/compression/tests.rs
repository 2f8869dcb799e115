//! Tests of `compression`.

use super::*;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pack(data: &[u8], compression: Compression, level: Option<u32>) -> Vec<u8> {
    let shared = Shared::default();
    let mut writer = writer(Box::new(shared.clone()), compression, level).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap();
    shared.0.lock().unwrap().clone()
}

fn unpack(data: &[u8], compression: Compression) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader(Box::new(io::Cursor::new(data.to_vec())), compression)?.read_to_end(&mut out)?;
    Ok(out)
}

const ALL: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zstd];

#[test]
fn round_trips_at_any_level() {
    let data: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    for compression in ALL {
        for level in [None, Some(0), Some(1), Some(9), Some(99)] {
            assert_eq!(unpack(&pack(&data, compression, level), compression).unwrap(), data, "{compression:?} {level:?}");
        }
        assert_eq!(unpack(&pack(b"", compression, None), compression).unwrap(), b"");
    }
}

#[test]
fn members_and_frames_follow_one_another() {
    for compression in ALL {
        let two = [pack(b"one ", compression, None), pack(b"two", compression, None)].concat();
        assert_eq!(unpack(&two, compression).unwrap(), b"one two", "{compression:?}");
    }
}

#[test]
fn a_cut_stream_says_so_wherever_it_is_cut() {
    for (compression, name) in [(Compression::Gzip, "gzip"), (Compression::Zstd, "zstd")] {
        let first = pack(b"hello hello hello", compression, None);
        let whole = [first.clone(), pack(b"again", compression, None)].concat();
        for cut in (1..whole.len()).filter(|c| *c != first.len()) {
            let error = unpack(&whole[..cut], compression).expect_err("a cut stream");
            assert!(error.to_string().starts_with(&format!("the {name} stream ends in the middle")), "cut at {cut}: {error}");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        let error = unpack(b"plain text, not compressed", compression).unwrap_err().to_string();
        assert!(error.contains(&format!("is no {name} at all")), "{error}");
    }
}

#[test]
fn extensions_name_the_compression() {
    for (path, expect) in
        [("a.csv", Compression::None), ("a.csv.GZ", Compression::Gzip), ("d/a.zst", Compression::Zstd), ("gz", Compression::None)]
    {
        assert_eq!(Compression::from_path(path), expect, "{path}");
    }
}
