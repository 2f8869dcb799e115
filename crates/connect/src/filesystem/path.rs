//! From the `path` option to files: plain paths, `file:` URIs, directories, globs, members of archives, addresses
//! in object stores, and the messages when there is nothing to read. Does not open files.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use regex::Regex;
use tidemill_archive::{Container, container};
use tidemill_store::is_remote;

use crate::ConnectError;

/// Directories deeper than this below the path are an error: it is a loop or a mistake.
const DEPTH_MAX: usize = 64;

/// What the `path` option of a source means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// A local path, a directory or a glob; or an address, maybe with a glob.
    pub root: String,
    /// Which members are read of the archives that it means; `None` for all.
    pub members: Option<String>,
    /// Which archives they are, whatever their names say.
    pub archive: Option<Container>,
}

impl Location {
    /// Reads the option. `archive` says what it means if that is not in its name.
    ///
    /// # Errors
    /// As [`local_path`].
    pub fn parse(text: &str, archive: Option<Container>) -> Result<Self, ConnectError> {
        let path = if is_remote(text) { text.to_string() } else { local_path(text)? };
        let parts = if archive.is_some() { halves(&path).next() } else { split_member(&path) };
        Ok(match parts {
            Some((root, members)) => {
                Location { root: root.to_string(), members: Some(members.to_string()).filter(|m| !m.is_empty()), archive }
            }
            None => Location { root: path, members: None, archive },
        })
    }

    /// Which archive a file is, if it is one.
    pub fn container(&self, path: &str) -> Option<Container> {
        self.archive.or_else(|| container(plain_name(path)))
    }

    /// Whether the files lie in an object store or on a web server.
    pub fn remote(&self) -> bool {
        is_remote(&self.root)
    }
}

/// `archive//member` in two, if what stands before `//` has the name of an archive.
pub(super) fn split_member(text: &str) -> Option<(&str, &str)> {
    halves(text).find(|(archive, _)| container(plain_name(archive)).is_some())
}

/// What stands before and behind each `//` of a path, that of an address left aside.
fn halves(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let begin = if is_remote(text) { text.find("://").map_or(0, |at| at + 3) } else { 0 };
    text[begin..].match_indices("//").map(move |(at, _)| (&text[..begin + at], &text[begin + at + 2..]))
}

/// The part of a path or address whose extension says what the file is: what a web server is asked does not count.
pub(super) fn plain_name(path: &str) -> &str {
    if path.starts_with("http://") || path.starts_with("https://") { path.split(['?', '#']).next().unwrap_or(path) } else { path }
}

/// Whether a member of an archive is passed over: hidden, or what another system keeps beside the files, unless the
/// glob asks for such.
pub(super) fn hidden_member(name: &str, glob: Option<&str>) -> bool {
    let hidden = |path: &str| path.split('/').any(|part| ignored(OsStr::new(part)));
    hidden(name) && !glob.is_some_and(hidden)
}

/// The local path that an option's text means: `/a/b`, `a/b`, `file:/a/b`, `file:///a/b`.
///
/// # Errors
/// Another scheme, another host, no path at all.
pub(super) fn local_path(text: &str) -> Result<String, ConnectError> {
    let path = match text.strip_prefix("file:") {
        Some(rest) => match rest.strip_prefix("//") {
            Some(authority) => {
                let slash = authority.find('/').unwrap_or(authority.len());
                match &authority[..slash] {
                    "" | "localhost" => &authority[slash..],
                    host => {
                        return Err(ConnectError::new(format!(
                            "'{text}' names the host '{host}'; only local files can be read, write 'file:///{}'",
                            authority.trim_start_matches('/')
                        )));
                    }
                }
            }
            None => rest,
        },
        None => text,
    };
    if let Some((scheme, _)) = text.split_once("://") {
        let looks_like_one = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        if looks_like_one && scheme != "file" {
            return Err(ConnectError::new(format!(
                "'{text}' has the scheme '{scheme}'; the filesystem connector knows local paths, 'file:', 'gs:', 's3:', 'az:', 'http:' \
                 and 'https:'"
            )));
        }
    }
    if path.is_empty() {
        return Err(ConnectError::new(format!("'{text}' is no path; write a file, a directory or a glob such as '/data/*.csv'")));
    }
    Ok(path.to_string())
}

/// Makes the pattern of `source.path.regex-pattern`, which must match the whole absolute path.
///
/// # Errors
/// An ill-formed expression.
pub(super) fn path_pattern(text: &str) -> Result<Regex, ConnectError> {
    Regex::new(&format!("^(?:{text})$")).map_err(|e| ConnectError::new(format!("'source.path.regex-pattern' = '{text}': {e}")))
}

/// The files that `path` means, in order of their paths.
///
/// A directory stands for all regular files in it and below whose own name and directories' names do
/// not begin with `.` or `_`; a path that exists is never taken as a glob. With `may_be_empty` (a
/// source that waits for files) a glob without match is no error.
///
/// # Errors
/// Nothing there, no permission.
pub(super) fn files(path: &str, pattern: Option<&Regex>, may_be_empty: bool) -> Result<Vec<PathBuf>, ConnectError> {
    let root = Path::new(path);
    let mut found = Vec::new();
    match fs::metadata(root) {
        Ok(meta) if meta.is_dir() => walk(root, 0, &mut HashSet::new(), &mut found)?,
        Ok(_) => found.push(root.to_path_buf()),
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(ConnectError::io(format!("looking for '{path}'"), &e)),
        Err(_) if path.contains(['*', '?', '[']) => {
            expand(path, &mut found)?;
            if found.is_empty() && !may_be_empty {
                return Err(ConnectError::new(format!("no file matches '{path}'{}", near(fixed_part(path)))));
            }
        }
        Err(_) => return Err(ConnectError::new(format!("there is no file or directory '{path}'{}", near(root)))),
    }
    if let Some(pattern) = pattern {
        let all = found.len();
        found.retain(|f| std::path::absolute(f).is_ok_and(|f| pattern.is_match(&f.to_string_lossy())));
        if found.is_empty() && all > 0 && !may_be_empty {
            return Err(ConnectError::new(format!(
                "none of the {all} files of '{path}' matches 'source.path.regex-pattern' = '{}' (it must match the whole absolute path)",
                pattern.as_str().trim_start_matches("^(?:").trim_end_matches(")$")
            )));
        }
    }
    found.sort_unstable();
    found.dedup();
    if let Some(odd) = found.iter().find(|f| f.to_str().is_none()) {
        return Err(ConnectError::new(format!("the name of '{}' is not UTF-8; rename the file", odd.display())));
    }
    Ok(found)
}

/// Whether files and directories of this name are left alone: hidden, or another writer's work.
fn ignored(name: &OsStr) -> bool {
    matches!(name.as_encoded_bytes().first(), Some(b'.' | b'_'))
}

fn walk(directory: &Path, depth: usize, seen: &mut HashSet<(u64, u64)>, found: &mut Vec<PathBuf>) -> Result<(), ConnectError> {
    let doing = |e: &std::io::Error| ConnectError::io(format!("listing the directory '{}'", directory.display()), e);
    if depth > DEPTH_MAX {
        return Err(ConnectError::new(format!(
            "'{}' lies more than {DEPTH_MAX} directories deep; name a lower directory",
            directory.display()
        )));
    }
    let meta = fs::metadata(directory).map_err(|e| doing(&e))?;
    // A link back to a directory above would otherwise give the same files again and again.
    if !seen.insert((meta.dev(), meta.ino())) {
        return Ok(());
    }
    for entry in fs::read_dir(directory).map_err(|e| doing(&e))? {
        let entry = entry.map_err(|e| doing(&e))?;
        if ignored(&entry.file_name()) {
            continue;
        }
        let kind = entry.file_type().map_err(|e| doing(&e))?;
        let path = entry.path();
        if kind.is_file() {
            found.push(path);
        } else if kind.is_dir() {
            walk(&path, depth + 1, seen, found)?;
        } else if kind.is_symlink() {
            // A dangling link, or one to a device, is nobody's data.
            match fs::metadata(&path) {
                Ok(target) if target.is_dir() => walk(&path, depth + 1, seen, found)?,
                Ok(target) if target.is_file() => found.push(path),
                _ => {}
            }
        }
    }
    Ok(())
}

fn expand(pattern: &str, found: &mut Vec<PathBuf>) -> Result<(), ConnectError> {
    let options = glob::MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };
    let matches = glob::glob_with(pattern, options)
        .map_err(|e| ConnectError::new(format!("the pattern '{pattern}' is wrong at character {}: {}", e.pos, e.msg)))?;
    let fixed = fixed_part(pattern);
    // Names with `_` or `.` are taken only if the pattern asks for such.
    let asked = Path::new(&pattern[fixed.as_os_str().len()..]).components().any(|c| matches!(c, Component::Normal(name) if ignored(name)));
    for path in matches {
        let path = path
            .map_err(|e| ConnectError::io(format!("looking for files that match '{pattern}', at '{}'", e.path().display()), e.error()))?;
        let below = path.strip_prefix(fixed).unwrap_or(&path);
        if !asked && below.components().any(|c| matches!(c, Component::Normal(name) if ignored(name))) {
            continue;
        }
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => walk(&path, 0, &mut HashSet::new(), found)?,
            Ok(_) => found.push(path),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(ConnectError::io(format!("looking at '{}'", path.display()), &e)),
        }
    }
    Ok(())
}

/// The directories of a glob before its first wildcard.
fn fixed_part(pattern: &str) -> &Path {
    let wild = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    Path::new(&pattern[..pattern[..wild].rfind('/').map_or(0, |slash| slash + 1)])
}

/// What there is in place of a missing path, as the end of a message.
fn near(missing: &Path) -> String {
    if missing.as_os_str().is_empty() || missing.is_dir() {
        let shown = if missing.as_os_str().is_empty() { Path::new(".") } else { missing };
        return match fs::read_dir(shown).map(Iterator::count) {
            Ok(n) => format!("; the directory '{}' has {n} entries", shown.display()),
            Err(e) => format!("; the directory '{}' cannot be listed: {e}", shown.display()),
        };
    }
    let parent = match missing.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let name = missing.file_name().unwrap_or_default().to_string_lossy();
    if let Ok(entries) = fs::read_dir(parent) {
        let mut names: Vec<String> =
            entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| !n.starts_with('.')).collect();
        names.sort_unstable();
        let best = names.iter().map(|n| (strsim::jaro_winkler(n, &name), n)).max_by(|a, b| a.0.total_cmp(&b.0));
        return match best {
            Some((score, like)) if score > 0.8 => format!("; did you mean '{}'?", missing.with_file_name(like).display()),
            _ if names.is_empty() => format!("; the directory '{}' is empty", parent.display()),
            _ => format!(
                "; the directory '{}' has: {}{}",
                parent.display(),
                names[..names.len().min(5)].join(", "),
                if names.len() > 5 { ", …" } else { "" }
            ),
        };
    }
    match parent.ancestors().find(|a| a.is_dir()) {
        Some(existing) => format!("; the nearest directory that exists is '{}'", existing.display()),
        None => "; relative paths begin in the directory where the job was started".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_path(text: &str, expect: Result<&str, &str>) {
        match (local_path(text), expect) {
            (Ok(path), Ok(expect)) => assert_eq!(path, expect),
            (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{e}"),
            (got, expect) => panic!("{got:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn paths_and_uris() {
        check_path("/a/b.csv", Ok("/a/b.csv"));
        check_path("a/*.csv", Ok("a/*.csv"));
        check_path("file:///a/b", Ok("/a/b"));
        check_path("file:/a/b", Ok("/a/b"));
        check_path("file:a/b", Ok("a/b"));
        check_path("file://localhost/a", Ok("/a"));
        check_path("file://data/a", Err("names the host 'data'"));
        check_path("hdfs://name/a", Err("scheme 'hdfs'"));
        check_path("", Err("is no path"));
    }

    #[track_caller]
    fn check_location(text: &str, root: &str, members: Option<&str>) {
        let expect = Location { root: root.to_string(), members: members.map(str::to_string), archive: None };
        assert_eq!(Location::parse(text, None).unwrap(), expect);
    }

    #[test]
    fn archives_and_their_members() {
        check_location("2005/*.zip//NASDAQ*.txt", "2005/*.zip", Some("NASDAQ*.txt"));
        check_location("a//b.csv", "a//b.csv", None);
        check_location("a//b.tar.gz//c/**/d", "a//b.tar.gz", Some("c/**/d"));
        check_location("file:///a/b.zip//", "/a/b.zip", None);
        check_location("gs://bucket/b.zip//x", "gs://bucket/b.zip", Some("x"));
        check_location("gs://bucket/b.csv", "gs://bucket/b.csv", None);
        check_location("https://host/a.zip?token=1//x", "https://host/a.zip?token=1", Some("x"));
        let told = |text: &str| {
            let of = Location::parse(text, Some(Container::Zip)).unwrap();
            (of.container(&of.root), of.root, of.members)
        };
        assert_eq!(told("/dev/stdin//*.csv"), (Some(Container::Zip), "/dev/stdin".into(), Some("*.csv".into())));
        assert_eq!(told("https://host/get?id=5"), (Some(Container::Zip), "https://host/get?id=5".into(), None));
        assert_eq!(split_member("/a/b.zip//c.csv"), Some(("/a/b.zip", "c.csv")));
        assert!(hidden_member("__MACOSX/._a.csv", None) && hidden_member("a/.b", Some("a/*")));
        assert!(!hidden_member("a/.b", Some("a/.*")) && !hidden_member("a/b", None));
    }

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", "_tmp/x.csv", ".hidden.csv", "_SUCCESS", "sub/c.csv", "sub/d.json"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        dir
    }

    #[track_caller]
    fn check_files(path: &str, pattern: Option<&str>, expect: Result<&[&str], &str>) {
        let dir = tree();
        let full = dir.path().join(path);
        let pattern = pattern.map(|p| path_pattern(p).unwrap());
        match (files(full.to_str().unwrap(), pattern.as_ref(), false), expect) {
            (Ok(found), Ok(expect)) => {
                let names: Vec<_> = found.iter().map(|f| f.strip_prefix(dir.path()).unwrap().to_str().unwrap()).collect();
                assert_eq!(names, expect);
            }
            (Err(e), Err(expect)) => assert!(e.to_string().contains(expect), "{e}"),
            (got, expect) => panic!("{got:?} instead of {expect:?}"),
        }
    }

    #[test]
    fn directories_globs_and_what_is_missing() {
        check_files("", None, Ok(&["a.csv", "b.csv", "sub/c.csv", "sub/d.json"]));
        check_files("", Some(".*/sub/.*[.]csv"), Ok(&["sub/c.csv"]));
        check_files("", Some("nothing"), Err("none of the 4 files"));
        check_files("*.csv", None, Ok(&["a.csv", "b.csv"]));
        check_files("**/*.csv", None, Ok(&["a.csv", "b.csv", "sub/c.csv"]));
        check_files("s*", None, Ok(&["sub/c.csv", "sub/d.json"]));
        check_files(".hidden.csv", None, Ok(&[".hidden.csv"]));
        check_files("*.xml", None, Err("no file matches"));
        check_files("sub/cc.csv", None, Err("sub/c.csv'?"));
        check_files("no/such/file", None, Err("the nearest directory that exists is"));
        check_files("zzz", None, Err("has: _SUCCESS, _tmp, a.csv, b.csv, sub"));
    }

    #[test]
    fn links_in_a_circle_end() {
        let dir = tree();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("sub/again")).unwrap();
        let found = files(dir.path().to_str().unwrap(), None, false).unwrap();
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
