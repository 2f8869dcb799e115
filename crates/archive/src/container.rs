//! Which files are archives, by their names.

use tidemill_format::compression::Compression;

/// A kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Members compressed one by one, with a directory at the end.
    Zip,
    /// Members in a row, compressed as a whole.
    Tar(Compression),
}

/// Endings of tar files, the compression in them.
const TARS: [(&str, Compression); 11] = [
    (".tar", Compression::None),
    (".tar.gz", Compression::Gzip),
    (".tgz", Compression::Gzip),
    (".tar.zst", Compression::Zstd),
    (".tar.zstd", Compression::Zstd),
    (".tzst", Compression::Zstd),
    (".tar.bz2", Compression::Bzip2),
    (".tbz2", Compression::Bzip2),
    (".tar.xz", Compression::Xz),
    (".txz", Compression::Xz),
    (".tar.lz4", Compression::Lz4),
];

/// What the path's ending says, in any case: `.zip`, `.tar`, or a tar that is compressed (`.tar.gz`, `.tgz`,
/// `.tar.zst`, `.tar.bz2`, `.tbz2`, `.tar.xz`, `.txz`, `.tar.lz4`).
pub fn container(path: &str) -> Option<Container> {
    let ends = |ending: &str| {
        let at = path.len().checked_sub(ending.len());
        at.and_then(|at| path.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
    };
    if ends(".zip") {
        return Some(Container::Zip);
    }
    TARS.iter().find(|(ending, _)| ends(ending)).map(|(_, compression)| Container::Tar(*compression))
}
