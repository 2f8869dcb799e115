//! Tests of `compression`.

use super::*;
use std::sync::Mutex;

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

const PACKED: [(Compression, &str); 5] = [
    (Compression::Gzip, "gzip"),
    (Compression::Zstd, "zstd"),
    (Compression::Bzip2, "bzip2"),
    (Compression::Xz, "xz"),
    (Compression::Lz4, "lz4"),
];

fn all() -> impl Iterator<Item = Compression> {
    PACKED.into_iter().map(|(compression, _)| compression).chain([Compression::None])
}

#[test]
fn round_trips_at_any_level() {
    let data: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    for compression in all() {
        for level in [None, Some(0), Some(1), Some(9), Some(99)] {
            assert_eq!(unpack(&pack(&data, compression, level), compression).unwrap(), data, "{compression:?} {level:?}");
        }
        assert_eq!(unpack(&pack(b"", compression, None), compression).unwrap(), b"");
    }
}

#[test]
fn members_and_frames_follow_one_another() {
    for compression in all() {
        let two = [pack(b"one ", compression, None), pack(b"two", compression, None)].concat();
        assert_eq!(unpack(&two, compression).unwrap(), b"one two", "{compression:?}");
    }
}

#[test]
fn a_cut_stream_says_so_wherever_it_is_cut() {
    for (compression, name) in PACKED {
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
    for (path, expect) in [
        ("a.csv", Compression::None),
        ("a.csv.GZ", Compression::Gzip),
        ("d/a.zst", Compression::Zstd),
        ("a.Bz2", Compression::Bzip2),
        ("a.tar.xz", Compression::Xz),
        ("a.lz4", Compression::Lz4),
        ("gz", Compression::None),
    ] {
        assert_eq!(Compression::from_path(path), expect, "{path}");
    }
    for (compression, _) in PACKED {
        assert_eq!(Compression::from_path(format!("a{}", compression.suffix())), compression);
    }
}

#[test]
fn damage_is_never_delivered_as_data() {
    let data: Vec<u8> = (0..20_000u32).flat_map(|i| (i % 251).to_le_bytes()).collect();
    for (compression, name) in PACKED {
        let whole = pack(&data, compression, None);
        for at in (0..whole.len()).step_by(whole.len() / 40 + 1) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            // Some bytes carry no data (the time in gzip's header); no flipped bit may change any.
            match unpack(&damaged, compression) {
                Ok(got) => assert_eq!(got, data, "{name}, byte {at}"),
                Err(e) => assert!(e.to_string().starts_with(&format!("the {name} stream ")), "{e}"),
            }
        }
    }
}

#[test]
fn frames_of_lz4_to_be_skipped_are_skipped_and_old_ones_refused() {
    let mut bytes = 0x184D_2A57u32.to_le_bytes().to_vec();
    bytes.extend(5u32.to_le_bytes());
    bytes.extend(b"skip!");
    let note = bytes.clone();
    bytes.extend(pack(b"data", Compression::Lz4, None));
    bytes.extend(&note);
    assert_eq!(unpack(&bytes, Compression::Lz4).unwrap(), b"data");
    let error = unpack(&bytes[..bytes.len() - 1], Compression::Lz4).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    let error = unpack(&0x184C_2102u32.to_le_bytes(), Compression::Lz4).unwrap_err().to_string();
    assert!(error.contains("legacy frame format"), "{error}");
}

#[test]
fn the_memory_that_xz_asks_for_is_bounded() {
    // The header of a block says how large the dictionary is: 30 is 128 MB, 37 is 1.5 GB. Its checksum follows.
    let block = |dictionary: u8| {
        let mut bytes = pack(b"data", Compression::Xz, None);
        assert_eq!(bytes[14..16], [0x21, 1], "a block with LZMA2 alone");
        bytes[16] = dictionary;
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[12..20]);
        bytes[20..24].copy_from_slice(&crc.sum().to_le_bytes());
        unpack(&bytes, Compression::Xz)
    };
    assert_eq!(block(30).unwrap(), b"data");
    let error = block(37).unwrap_err().to_string();
    assert!(error.contains("needs more than 256 MB"), "{error}");
}

/// Gives some bytes, and then fails.
struct Broken(io::Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the network is gone")),
            n => Ok(n),
        }
    }
}

#[test]
fn what_cannot_be_read_is_not_called_damaged() {
    for (compression, _) in PACKED {
        let mut half = pack(&[7; 100_000], compression, None);
        half.truncate(half.len() / 2);
        let error = reader(Box::new(Broken(io::Cursor::new(half))), compression).unwrap().read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "the network is gone", "{compression:?}");
    }
}
