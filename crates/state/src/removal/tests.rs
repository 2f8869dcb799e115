//! What is removed, what is cut, and what stays for who has it.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;

use super::*;

const LARGE: u64 = PIECE * 2 + 1;

fn large(path: &Path) {
    File::create(path).unwrap().write_all(&vec![7; LARGE as usize]).unwrap();
}

/// A file that has another name stays, and one that is open stays whole for who has it.
#[test]
fn only_what_nobody_has_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other, small) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("c"));
    large(&path);
    fs::hard_link(&path, &other).unwrap();
    fs::write(&small, "small").unwrap();
    assert!(unnamed(&path).unwrap().is_none() && unnamed(&small).unwrap().is_none());
    assert!(!path.exists() && !small.exists());
    let mut reader = File::open(&other).unwrap();
    let forgotten = unnamed(&other).unwrap().expect("it has no name");
    assert!(!matches!(system::is_open_once(&forgotten), Ok(true)));
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || cut_all(&receiver, |_, _| {}));
    send(&sender, forgotten);
    // The thread has looked at it, and left it alone.
    thread::sleep(LOOK * 3);
    let mut content = Vec::new();
    reader.read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, LARGE);
    drop(sender);
    thread.join().unwrap();
}

/// What is forgotten is cut by whole pieces from its end; where the system does not tell, it is left to be closed.
#[test]
fn what_is_forgotten_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    large(&path);
    let forgotten = unnamed(&path).unwrap().expect("it has no name");
    let (held, told) = (forgotten.try_clone().unwrap(), system::is_open_once(&forgotten));
    let (sender, receiver) = channel();
    send(&sender, forgotten);
    drop(sender);
    cut_all(&receiver, |file, _| assert_eq!(length(file) % PIECE, 0));
    assert_eq!(length(&held), if matches!(told, Ok(true)) { 0 } else { LARGE });
}

/// The names are gone when the call returns, whatever they named, and what a link names stays.
#[test]
fn a_directory_goes_with_all_that_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, kept, link) = (dir.path().join("chk"), dir.path().join("kept"), dir.path().join("link"));
    fs::create_dir_all(path.join("inner")).unwrap();
    large(&path.join("large"));
    fs::write(path.join("inner/small"), "small").unwrap();
    fs::create_dir(&kept).unwrap();
    large(&kept.join("large"));
    symlink(kept.join("large"), path.join("inner/file")).unwrap();
    symlink(&kept, path.join("inner/directory")).unwrap();
    symlink(&kept, &link).unwrap();
    directory(&path).unwrap();
    directory(&link).unwrap();
    assert!(!path.exists() && fs::symlink_metadata(&link).is_err());
    assert_eq!(fs::metadata(kept.join("large")).unwrap().len(), LARGE);
    assert_eq!(directory(&path).unwrap_err().kind(), ErrorKind::NotFound);
}
