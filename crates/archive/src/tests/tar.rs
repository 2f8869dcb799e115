//! Tar archives, sound and not.

use std::io::Write;
use std::sync::{Arc, Mutex};

use super::build::Tar;
use super::{Contents, fails, walk};
use crate::{Container, Limits};
use tidemill_format::compression::{Compression, writer};

fn read(bytes: &[u8]) -> Contents {
    let limits = Limits { members_max: 20, ..Limits::default() };
    let all = walk(bytes, Container::Tar(Compression::None), 1, &limits);
    for piece in [511, 1 << 20] {
        assert_eq!(walk(bytes, Container::Tar(Compression::None), piece, &limits), all, "in pieces of {piece}");
    }
    all
}

#[track_caller]
fn check(tar: Tar, expect: &[(&str, &str)]) {
    let expect: Vec<_> = expect.iter().map(|(name, data)| (name.to_string(), data.as_bytes().to_vec())).collect();
    assert_eq!(read(&tar.finish()).unwrap(), expect);
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, value) in records {
        let body = key.len() + value.len() + 3;
        // The length counts its own digits.
        let length = (1..4).map(|digits| body + digits).find(|n| n.to_string().len() + body == *n).unwrap();
        out.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
    }
    out
}

#[test]
fn files_come_out_and_nothing_else() {
    let tar = Tar::default().add(b'5', "d/", b"").add(b'0', "./d/a", b"one").add(b'2', "link", b"").add(b'0', "none", b"");
    let tar = tar.header(b'1', "hard", b"00000001000\0", "").header(b'3', "device", &[b'x'; 12], "").add(0, "old", b"two");
    let tar = tar.add(0, "old folder/", b"").add(b'V', "label", b"").add(b'7', "e", &[b'z'; 513]);
    let long = "z".repeat(513);
    check(tar, &[("d/a", "one"), ("none", ""), ("old", "two"), ("e", long.as_str())]);
    check(Tar::default(), &[]);
}

#[test]
fn long_names_and_lengths() {
    let long = format!("{}/{}", "d".repeat(150), "f".repeat(90));
    let size = b"00000000003\0";
    let tar = Tar::default().header(b'0', &long[151..], size, &long[..150]).data(b"abc");
    check(tar, &[(long.as_str(), "abc")]);
    let tar = Tar::default().add(b'L', "././@LongLink", format!("{long}\0").as_bytes()).add(b'K', "k", b"x\0").add(b'0', "short", b"1");
    check(tar.add(b'0', "next", b"2"), &[(long.as_str(), "1"), ("next", "2")]);
    let records = pax(&[("mtime", "1.5"), ("path", "ü/long=name"), ("size", "5"), ("comment", &"c".repeat(200))]);
    let tar = Tar::default().add(b'g', "g", &pax(&[("comment", "all")])).add(b'x', "x", &records);
    let tar = tar.header(b'0', "short", b"00000000000\0", "").data(b"12345").add(b'0', "next", b"2");
    check(tar, &[("ü/long=name", "12345"), ("next", "2")]);
    let mut binary = [0; 12];
    (binary[0], binary[11]) = (0x80, 3);
    check(Tar::default().header(b'0', "a", &binary, "").data(b"abc"), &[("a", "abc")]);
}

#[test]
fn what_is_refused() {
    let one = |kind: u8, name: &str| Tar::default().add(kind, name, b"x").finish();
    fails(read(&one(b'0', "../a")), "by '..'");
    fails(read(&one(b'0', "/a")), "an absolute path");
    fails(read(&one(b'S', "holes")), "the member 'holes' is a sparse file");
    fails(read(&one(b'M', "a")), "one of several volumes");
    fails(read(&one(b'?', "a")), "unknown kind '?'");
    fails(read(&Tar::default().add(b'0', "a", b"1").add(b'0', "./a", b"2").finish()), "'a' twice");
    let sparse = Tar::default().add(b'x', "x", &pax(&[("GNU.sparse.major", "1")])).add(b'0', "holes", b"x");
    fails(read(&sparse.finish()), "sparse file");
    fails(read(&Tar::default().add(b'x', "x", b"99 path=a\n").add(b'0', "a", b"").finish()), "does not add up");
    fails(read(&Tar::default().header(b'L', "x", b"00077777777\0", "").finish()), "a long name of 16777215 bytes");
    fails(read(&Tar::default().header(b'0', "x", &[0xFF; 12], "").finish()), "is no number");
    let many = (0..21).fold(Tar::default(), |tar, i| tar.add(b'5', &i.to_string(), b""));
    fails(read(&many.finish()), "21 entries or more");
}

#[test]
fn a_cut_or_damaged_archive() {
    let bytes = Tar::default().add(b'0', "a", b"some data").add(b'0', "b", &[b'x'; 700]).finish();
    let end = bytes.len() - 1024;
    for cut in (0..=end + 511).step_by(37).chain([end]) {
        let part = if cut < 512 { "this is no tar archive" } else { "cut short" };
        fails(walk(&bytes[..cut], Container::Tar(Compression::None), 100, &Limits::default()), part);
    }
    let mut damaged = bytes.clone();
    damaged[1024 + 3] ^= 1;
    fails(read(&damaged), "damaged at byte 1024: the checksum of a header");
    damaged[3] ^= 1;
    fails(read(&damaged), "this is no tar archive");
    fails(read(&[&bytes[..], &bytes[..]].concat()), "something follows the end");
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn packed(bytes: &[u8], compression: Compression) -> Vec<u8> {
    let shared = Shared::default();
    let mut out = writer(Box::new(shared.clone()), compression, Some(1)).unwrap();
    out.write_all(bytes).unwrap();
    out.finish().unwrap();
    shared.0.lock().unwrap().clone()
}

#[test]
fn in_every_compression() {
    let data = "1,2,3\n".repeat(100_000);
    let tar = Tar::default().add(b'0', "a.csv", data.as_bytes()).add(b'0', "b.csv", b"x").finish();
    for compression in [Compression::Gzip, Compression::Zstd, Compression::Bzip2, Compression::Xz, Compression::Lz4] {
        let bytes = packed(&tar, compression);
        let all = walk(&bytes, Container::Tar(compression), 5000, &Limits::default()).unwrap();
        assert_eq!(all, [("a.csv".to_string(), data.clone().into_bytes()), ("b.csv".to_string(), b"x".to_vec())]);
        // The end of the compressed stream is read, too, where its checksum is.
        let cut = &bytes[..bytes.len() - 1];
        fails(walk(cut, Container::Tar(compression), 5000, &Limits::default()), "ends in the middle");
    }
}

#[test]
fn bombs_by_ratio() {
    let tar = Tar::default().add(b'0', "zeros", &vec![0; 70 << 20]).finish();
    let limits = Limits { ratio_max: 100, ..Limits::default() };
    let bytes = packed(&tar, Compression::Zstd);
    fails(walk(&bytes, Container::Tar(Compression::Zstd), 1 << 20, &limits), "would unpack to more than 100 times");
}
