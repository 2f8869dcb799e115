//! Zip archives that are cut, damaged, lie, or are made to do harm.

use std::io::Read;

use super::build::{self, Entry, Tail, Zip, entry};
use super::{fails, seek, walk};
use crate::{Container, Limits, Walk};

fn changed(change: impl Fn(&mut Entry)) -> Entry {
    let mut changed = entry("a.csv", b"1,2\n3,4\n1,2\n3,4\n1,2\n3,4\n", 8);
    change(&mut changed);
    changed
}

fn one(change: impl Fn(&mut Entry)) -> Vec<u8> {
    Zip::default().add(&entry("before", b"x", 0)).add(&changed(change)).finish()
}

/// Both ways say this.
#[track_caller]
fn check(bytes: &[u8], part: &str) {
    let limits = Limits { members_max: 10, ..Limits::default() };
    fails(seek(bytes, &limits), part);
    for piece in [1, 1000] {
        fails(walk(bytes, Container::Zip, piece, &limits), part);
    }
}

#[track_caller]
fn check_sought(bytes: &[u8], part: &str) {
    fails(seek(bytes, &Limits::default()), part);
}

#[track_caller]
fn check_walked(bytes: &[u8], part: &str) {
    fails(walk(bytes, Container::Zip, 9, &Limits::default()), part);
}

#[test]
fn names_that_lead_outside() {
    for (name, part) in [
        ("../a", "by '..'"),
        ("d/../../a", "by '..'"),
        ("d\\..\\a", "by '..'"),
        ("..", "by '..'"),
        ("/etc/passwd", "an absolute path"),
        (".//etc/passwd", "an absolute path"),
        ("\\a", "an absolute path"),
        ("C:\\a", "an absolute path"),
        ("c:/a", "an absolute path"),
        ("", "without a name"),
        ("a\0.csv", "NUL"),
    ] {
        check(&one(|e| e.name = name.as_bytes().to_vec()), part);
    }
    check(&one(|e| e.name = vec![b'a'; 5000]), "a name of 5000 bytes");
    let fine = one(|e| e.name = b"a..b/..c/c:d".to_vec());
    assert_eq!(seek(&fine, &Limits::default()).unwrap().len(), 2);
}

#[test]
fn what_cannot_be_read_is_named() {
    check(&one(|e| e.flags = 1), "the member 'a.csv' is encrypted");
    check(&one(|e| e.flags = 1 << 6), "the member 'a.csv' is encrypted");
    check(&one(|e| e.method_told = 99), "the member 'a.csv' is encrypted");
    check(&one(|e| e.flags = 1 << 5), "is a patch");
    check(&one(|e| e.method_told = 9), "compressed by method 9 (deflate64)");
    check(&one(|e| e.method_told = 4711), "compressed by method 4711;");
    check(&Zip { disk: 1, ..Zip::default() }.add(&changed(|_| {})).finish(), "one of several parts");
}

#[test]
fn two_members_of_one_name() {
    check(&Zip::default().add(&changed(|_| {})).add(&changed(|e| e.data.clear())).finish(), "the member 'a.csv' twice");
}

#[test]
fn too_many_members() {
    let zip = (0..11).fold(Zip::default(), |zip, i| zip.add(&entry(&format!("{i}/"), b"", 0)));
    check(&zip.finish(), "11 entries or more");
}

#[test]
fn checksums_and_lengths_that_are_wrong() {
    for tail in [Tail::None, Tail::Descriptor { marked: true, wide: false }, Tail::Descriptor { marked: false, wide: true }] {
        check(&one(|e| (e.tail, e.crc_wrong) = (tail, 1)), "its checksum (CRC-32) is");
        for method in [8, 12, 93, 95] {
            let bytes = one(|e| (e.tail, e.size_wrong, e.method, e.method_told) = (tail, 1, method, method));
            check_sought(&bytes, "it has 24 bytes, the archive says 25");
            check_walked(&bytes, "it has 24 bytes");
            let bytes = one(|e| (e.tail, e.size_wrong, e.method, e.method_told) = (tail, 0u64.wrapping_sub(1), method, method));
            check_sought(&bytes, "longer than the 23 bytes");
        }
    }
    // A header that need not tell lengths, since they follow, but tells wrong ones.
    for (tail, method) in [(Tail::Descriptor { marked: true, wide: false }, 8), (Tail::Descriptor { marked: false, wide: true }, 12)] {
        let packed = build::packed(&changed(|_| ()).data, method).len() as u64;
        let with = |size| one(|e| (e.tail, e.method, e.method_told, e.header) = (tail, method, method, (size, packed)));
        check_walked(&with(25), "it has 24 bytes, the archive says 25");
        check_walked(&with(23), "longer than the 23 bytes");
        for (size, known) in [(24, true), (0, false)] {
            let mut walk = Walk::new(Box::new(std::io::Cursor::new(with(size))), Container::Zip, Limits::default());
            walk.next().unwrap();
            assert_eq!(walk.next().unwrap().map(|member| member.size_known()), Some(known));
            let mut content = Vec::new();
            assert_eq!(walk.read_to_end(&mut content).unwrap(), 24);
            assert!(walk.next().unwrap().is_none());
        }
    }
    // What is not deflate at all.
    check(&one(|e| e.method = 0), "the member 'a.csv' is damaged");
}

#[test]
fn a_cut_archive_is_never_taken_for_a_whole_one() {
    let tail = Tail::Descriptor { marked: true, wide: false };
    for zip64 in [false, true] {
        let zip = Zip { zip64, ..Zip::default() }.add(&entry("s", b"stored", 0)).add(&changed(|e| e.tail = tail)).add(&changed(|e| {
            (e.name, e.zip64) = (b"last".to_vec(), zip64);
        }));
        let bytes = zip.finish();
        for cut in 0..bytes.len() {
            assert!(seek(&bytes[..cut], &Limits::default()).is_err(), "sought, cut at {cut}");
            assert!(walk(&bytes[..cut], Container::Zip, 100, &Limits::default()).is_err(), "walked, cut at {cut}");
        }
        assert_eq!(seek(&bytes, &Limits::default()).unwrap().len(), 3);
    }
    check_sought(b"", "this is no zip archive");
    check_walked(b"", "it ends at byte 0");
    check(&[b'x'; 100], "no zip archive");
}

#[test]
fn flipped_bits_never_give_other_data() {
    let bytes = Zip::default().add(&changed(|_| {})).add(&entry("b", b"stored here", 0)).finish();
    let right = seek(&bytes, &Limits::default()).unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            for (way, got) in
                [("sought", seek(&damaged, &Limits::default())), ("walked", walk(&damaged, Container::Zip, 50, &Limits::default()))]
            {
                // Names carry no checksum, and a name with a slash at its end is a folder's.
                for (name, content) in got.unwrap_or_default() {
                    let fits = right.iter().any(|(_, expect)| content == *expect);
                    assert!(fits, "{way}: bit {bit} of byte {at} gives '{name}' other data");
                }
            }
        }
    }
}

#[test]
fn members_that_share_bytes() {
    // The second entry of the directory leads to the first member again.
    let mut zip = Zip::default().add(&entry("a", &[b'x'; 1000], 8));
    let mut second = zip.central.clone();
    let name = second.len() - 1;
    second[name] = b'b';
    zip.central.extend_from_slice(&second);
    zip.entries = 2;
    check_sought(&zip.finish(), "share bytes of the archive");

    // A member that says to be as long as all that follows it.
    let inner = Zip::default().add(&entry("inner", &[b'y'; 100], 0));
    let mut outer = Zip::default().add(&entry("outer", &inner.bytes, 0));
    let mut hidden = inner.central.clone();
    let at = hidden.len() - 5 - 4;
    let offset = (outer.bytes.len() - inner.bytes.len()) as u32;
    hidden[at..at + 4].copy_from_slice(&offset.to_le_bytes());
    outer.central.extend_from_slice(&hidden);
    outer.entries = 2;
    let bytes = outer.finish();
    check_sought(&bytes, "the members 'outer' and 'inner' share bytes");
    check_walked(&bytes, "1 entries were met in the archive, its directory lists 2");
}

#[test]
fn a_directory_that_lies() {
    let zip = || Zip::default().add(&changed(|_| {})).add(&entry("b", b"123", 0));
    let (offset, size) = (zip().bytes.len() as u64, zip().central.len() as u64);
    check_sought(&zip().finish_at(offset, size + 1), "does not lie where the archive says");
    check_sought(&zip().finish_at(offset + 1, size), "does not lie where the archive says");
    check_sought(&zip().finish_at(0xFFFF_FFF0, 100), "does not lie where the archive says");
    check_sought(&zip().finish_at(u64::from(u32::MAX), size), "zip64 end record, which is missing");
    for entries in [1, 3] {
        let mut wrong = zip();
        wrong.entries = entries;
        check_sought(&wrong.finish(), "its directory lists 2");
    }
    // Lengths in the directory, not in the headers: at 24 and 20 of an entry.
    let with = |at: usize, value: u32| {
        let mut wrong = zip();
        wrong.central[at..at + 4].copy_from_slice(&value.to_le_bytes());
        wrong.finish()
    };
    check_sought(&with(20, 1 << 30), "it would reach into the directory or beyond the file");
    check_sought(&with(24, 1 << 30), "is a bomb, not data");
    check_sought(&with(42, 1 << 30), "it would reach into the directory or beyond the file");
    check_sought(&with(20, u32::MAX), "in its zip64 field, which is missing");
    check_sought(&with(42, 1), "share bytes of the archive");
    check_sought(&with(16, 7), "its checksum (CRC-32) is");
    for at in [16, 20, 24, 42] {
        check_walked(&with(at, 7), "are not those of the members that were met");
    }
    // An entry in the middle of which the directory ends.
    let mut cut = zip();
    cut.central.truncate(cut.central.len() - 1);
    check_sought(&cut.finish(), "the directory is damaged");
    check(&one(|e| (e.zip64, e.without_zip64) = (true, true)), "in its zip64 field, which is missing");
}

#[test]
fn headers_and_directory_that_do_not_agree() {
    let bytes = Zip::default().add(&entry("abc", b"1", 0)).finish();
    let mut other = bytes.clone();
    other[30] = b'x';
    check_sought(&other, "do not agree about its name or method");
    other[3] = 9;
    check_sought(&other, "no header lies at byte 0");
    let after = [&bytes[..], b"\0"].concat();
    check_sought(&after, "something was appended");
    check_walked(&after, "something follows the end of the archive");
    check_walked(&[&bytes[..], &bytes[..]].concat(), "something follows the end of the archive");
}

#[test]
fn symbolic_links_are_no_files() {
    let link =
        changed(|e| (e.name, e.data, e.made_by, e.attributes) = (b"link".to_vec(), b"/etc/passwd".to_vec(), (3 << 8) | 20, 0xA1FF << 16));
    let bytes = Zip::default().add(&link).add(&changed(|_| {})).finish();
    let members = seek(&bytes, &Limits::default()).unwrap();
    assert_eq!(members.len(), 1);
    // From front to back that shows only at the end, where it is too late.
    check_walked(&bytes, "'link' was read as a file, but is a symbolic link");
    let mut walk = crate::Walk::new(Box::new(std::io::Cursor::new(bytes)), Container::Zip, Limits::default());
    let mut names = Vec::new();
    while let Some(member) = walk.next().unwrap() {
        names.push(member.name);
    }
    assert_eq!(names, ["link", "a.csv"]);
}

#[test]
fn bombs_by_ratio() {
    let zeros = vec![0; 80 << 20];
    let limits = Limits { ratio_max: 100, ..Limits::default() };
    let part = "would unpack to more than 100 times its size";
    for tail in [Tail::None, Tail::Descriptor { marked: true, wide: false }] {
        let bytes = Zip::default().add(&changed(|e| (e.tail, e.data) = (tail, zeros.clone()))).finish();
        fails(seek(&bytes, &limits), part);
        fails(walk(&bytes, Container::Zip, 1 << 20, &limits), part);
        assert_eq!(walk(&bytes, Container::Zip, 1 << 20, &Limits { ratio_max: 2000, ..limits }).unwrap().len(), 1);
    }
    // Many small ones that together are too much.
    let zip = (0..80).fold(Zip::default(), |zip, i| zip.add(&entry(&i.to_string(), &zeros[..1 << 20], 8)));
    fails(seek(&zip.finish(), &limits), "the archive would unpack to more than 100 times its size");
}
