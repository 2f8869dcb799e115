//! Names that appear in one step: a file or directory put where nothing is, or in the place of another. What
//! is put there, and how writers agree, is others' business.

use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Calls `renameat2(2)` with a flag.
#[cfg(target_os = "linux")]
fn renameat2(from: &Path, to: &Path, flag: libc::c_uint) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    let from = CString::new(from.as_os_str().as_bytes())?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    // SAFETY: both are texts that end with a zero byte and live until the call returns.
    let code = unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flag) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets two directories, or two files, change places in one step.
///
/// # Errors
/// One of them is not there, or the file system cannot do it.
#[cfg(target_os = "linux")]
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    renameat2(one, other, libc::RENAME_EXCHANGE)
}

/// Lets two directories, or two files, change places; for a moment there is only one.
///
/// # Errors
/// One of them is not there.
#[cfg(not(target_os = "linux"))]
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let aside = one.with_extension("aside");
    fs::rename(other, &aside)?;
    fs::rename(one, other)?;
    fs::rename(&aside, one)
}

/// Gives a file or directory a name that nothing has. Of two that try at once, one gets it. Where the file
/// system cannot do that in one step (network file systems), it is looked first whether the name is free.
///
/// # Errors
/// Of kind `AlreadyExists`: the name is taken.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    match renameat2(from, to, libc::RENAME_NOREPLACE) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::ENOTSUP)) => {}
        done => return done,
    }
    // A link that leads nowhere is something, too.
    if fs::symlink_metadata(to).is_ok() {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    fs::rename(from, to)
}

/// Makes the names in a directory survive a power failure.
///
/// # Errors
/// The directory cannot be opened, or the disk fails.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once_and_places_are_changed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        rename_new(&at("a"), &at("c")).unwrap();
        assert_eq!(rename_new(&at("b"), &at("c")).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        exchange(&at("b"), &at("c")).unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!((read("b"), read("c"), at("a").exists()), ("a".into(), "b".into(), false));
        sync_directory(dir.path()).unwrap();
    }
}
