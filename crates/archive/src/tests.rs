//! Tests of archives, made byte by byte: `build.rs` writes them, sound or not; `zip.rs` reads sound ones both ways,
//! `hostile.rs` the others, `tar.rs` tars.

mod build;
mod hostile;
mod tar;
mod zip;

use std::io::Read;
use std::sync::Arc;

use crate::{Container, Limits, ReadAt, Walk, container, zip_directory, zip_member};
use tidemill_format::compression::Compression;

/// Names and contents, or the text of the error.
type Contents = Result<Vec<(String, Vec<u8>)>, String>;

/// Reads all members by the directory.
fn seek(bytes: &[u8], limits: &Limits) -> Contents {
    let file: Arc<dyn ReadAt> = Arc::new(bytes.to_vec());
    let members = zip_directory(&*file, limits).map_err(|e| e.to_string())?;
    let mut all = Vec::new();
    for member in &members {
        let mut content = Vec::new();
        let mut reader = zip_member(Arc::clone(&file), member, limits).map_err(|e| e.to_string())?;
        if let Err(e) = reader.read_to_end(&mut content) {
            // It must not end well when it is asked again.
            assert!(reader.read(&mut [0; 10]).is_err(), "an end after: {e}");
            return Err(e.to_string());
        }
        assert_eq!(content.len() as u64, member.size, "{}", member.name);
        all.push((member.name.clone(), content));
    }
    Ok(all)
}

/// Reads all members from front to back, `piece` bytes at once below and above.
fn walk(bytes: &[u8], container: Container, piece: usize, limits: &Limits) -> Contents {
    let mut walk = Walk::new(Box::new(Pieces { bytes: bytes.to_vec(), at: 0, piece }), container, *limits);
    let mut all = Vec::new();
    let mut buf = vec![0; piece];
    loop {
        match walk.next() {
            Ok(None) => return Ok(all),
            Ok(Some(member)) => {
                let mut content = Vec::new();
                loop {
                    match walk.read(&mut buf) {
                        Ok(0) => break,
                        Ok(n) => content.extend_from_slice(&buf[..n]),
                        Err(e) => {
                            assert!(walk.read(&mut buf).is_err() && walk.next().is_err(), "an end after: {e}");
                            return Err(e.to_string());
                        }
                    }
                }
                if member.size_known() {
                    assert_eq!(content.len() as u64, member.size, "{}", member.name);
                }
                all.push((member.name, content));
            }
            Err(e) => {
                assert!(walk.next().is_err(), "an end after: {e}");
                return Err(e.to_string());
            }
        }
    }
}

/// Bytes that come in pieces.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = self.piece.min(buf.len()).min(self.bytes.len() - self.at);
        buf[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[track_caller]
fn fails(contents: Contents, part: &str) {
    match contents {
        Err(e) => assert!(e.contains(part), "'{part}' is not in: {e}"),
        Ok(all) => panic!("should fail ({part}), but gives {:?}", all.iter().map(|(name, _)| name).collect::<Vec<_>>()),
    }
}

#[test]
fn endings_name_the_container() {
    for (path, expect) in [
        ("a.zip", Some(Container::Zip)),
        ("gs://b/c.ZIP", Some(Container::Zip)),
        ("a.tar", Some(Container::Tar(Compression::None))),
        ("a.b.tar.gz", Some(Container::Tar(Compression::Gzip))),
        ("a.tgz", Some(Container::Tar(Compression::Gzip))),
        ("a.tar.zst", Some(Container::Tar(Compression::Zstd))),
        ("a.tar.bz2", Some(Container::Tar(Compression::Bzip2))),
        ("a.TBZ2", Some(Container::Tar(Compression::Bzip2))),
        ("a.tar.xz", Some(Container::Tar(Compression::Xz))),
        ("a.txz", Some(Container::Tar(Compression::Xz))),
        ("a.tar.lz4", Some(Container::Tar(Compression::Lz4))),
        ("a.gz", None),
        ("zip", None),
        ("ü.csv", None),
        ("", None),
    ] {
        assert_eq!(container(path), expect, "{path}");
    }
}
