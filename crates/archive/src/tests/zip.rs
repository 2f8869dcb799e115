//! Sound zip archives, by their directory and from front to back.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

use super::build::{Entry, Tail, Zip, entry};
use super::{fails, seek, walk};
use crate::{Container, Limits, LocalFile, Walk, zip_directory, zip_member};

const METHODS: [u16; 5] = [0, 8, 12, 93, 95];
const PIECES: [usize; 4] = [1, 7, 1000, 1 << 20];

fn text(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| format!("{i},{},row\n", i * i % 977).into_bytes()).collect()
}

/// Reads it both ways; gives what came out.
#[track_caller]
fn both(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let limits = Limits::default();
    let sought = seek(bytes, &limits).expect("by the directory");
    for piece in PIECES {
        assert_eq!(walk(bytes, Container::Zip, piece, &limits).expect("from front to back"), sought, "in pieces of {piece}");
    }
    sought
}

fn with(change: impl Fn(&mut Entry), entry: &Entry) -> Entry {
    let mut changed = entry.clone();
    change(&mut changed);
    changed
}

#[test]
fn every_method_and_form_of_lengths() {
    let data = text(5000);
    for method in METHODS {
        let mut tails = vec![Tail::None];
        if method != 0 {
            let forms = [(true, true), (true, false), (false, true), (false, false)];
            tails.extend(forms.map(|(marked, wide)| Tail::Descriptor { marked, wide }));
        }
        for tail in tails {
            for zip64 in [false, true] {
                let one = with(|e| (e.tail, e.zip64) = (tail, zip64), &entry("d/one.csv", &data, method));
                let none = with(|e| (e.name, e.data) = (b"none.csv".to_vec(), Vec::new()), &one);
                let zip = Zip { zip64, ..Zip::default() }.add(&entry("d/", b"", 0)).add(&one).add(&none).add(&entry("last", b"x", 0));
                let expect = [("d/one.csv", data.clone()), ("none.csv", Vec::new()), ("last", b"x".to_vec())];
                assert_eq!(both(&zip.finish()), expect.map(|(name, data)| (name.to_string(), data)), "{method} {tail:?} {zip64}");
            }
        }
    }
}

#[test]
fn no_members_and_a_comment() {
    assert!(both(&Zip::default().finish()).is_empty());
    assert!(both(&Zip { zip64: true, ..Zip::default() }.finish()).is_empty());
    let comment = b"made by hand".to_vec();
    assert_eq!(both(&Zip { comment, ..Zip::default() }.add(&entry("a", b"1", 0)).finish()).len(), 1);
}

#[test]
fn members_are_numbered_as_in_the_directory() {
    let zip = Zip::default().add(&entry("d/", b"", 0)).add(&entry("./d/a", b"12", 0)).add(&entry("b", b"345", 8)).finish();
    let members = zip_directory(&zip, &Limits::default()).unwrap();
    let shown: Vec<_> = members.iter().map(|m| (m.name.as_str(), m.index, m.size, m.size_known())).collect();
    assert_eq!(shown, [("d/a", 1, 2, true), ("b", 2, 3, true)]);
    let mut walk = Walk::new(Box::new(std::io::Cursor::new(zip)), Container::Zip, Limits::default());
    assert_eq!(walk.read(&mut [0; 4]).unwrap(), 0, "nothing before the first member");
    let first = walk.next().unwrap().unwrap();
    assert_eq!((first.name.as_str(), first.index, first.size), ("d/a", 1, 2));
}

#[test]
fn names_that_are_not_utf8_are_of_code_page_437() {
    let raw = with(|e| e.name = b"\x81ber\xe1.txt".to_vec(), &entry("", b"1", 0));
    let said = with(|e| (e.name, e.flags) = ("ü€".as_bytes().to_vec(), 1 << 11), &raw);
    let unsaid = with(|e| e.name = "ö".as_bytes().to_vec(), &raw);
    let names: Vec<_> = both(&Zip::default().add(&raw).add(&said).add(&unsaid).finish()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["überß.txt", "ü€", "ö"]);
    let wrong = with(|e| e.flags = 1 << 11, &raw);
    fails(seek(&Zip::default().add(&wrong).finish(), &Limits::default()), "is not the UTF-8 that it should be");
}

#[test]
fn a_stored_member_of_unknown_length_needs_seeking() {
    let tail = Tail::Descriptor { marked: true, wide: false };
    let stored = with(|e| e.tail = tail, &entry("a.csv", b"1,2\n", 0));
    let bytes = Zip::default().add(&stored).finish();
    assert_eq!(seek(&bytes, &Limits::default()).unwrap().len(), 1);
    fails(walk(&bytes, Container::Zip, 10, &Limits::default()), "the member 'a.csv' is stored and does not say how long it is");
    // Not if there is nothing of it: what a writer leaves of an empty file, or a folder.
    let empty = with(|e| e.data.clear(), &stored);
    let folder = with(|e| e.name = b"d/".to_vec(), &empty);
    assert_eq!(both(&Zip::default().add(&empty).add(&folder).finish()), [("a.csv".to_string(), Vec::<u8>::new())]);
}

#[test]
fn something_before_the_archive_shifts_it() {
    for zip64 in [false, true] {
        let zip = Zip { zip64, ..Zip::default() }.add(&entry("a", b"1", 8)).add(&entry("b", b"2", 0)).finish();
        let bytes = [&b"#!/bin/sh\nPK\x03\x04 unpack\n"[..], &zip[..]].concat();
        assert_eq!(seek(&bytes, &Limits::default()).unwrap().len(), 2);
        fails(walk(&bytes, Container::Zip, 10, &Limits::default()), "something stands before it");
    }
}

#[test]
fn an_end_record_in_the_comment_is_none() {
    let inner = Zip::default().add(&entry("wrong", b"", 0)).finish();
    // A whole archive as comment has an end record that reaches to the end of the file, but no directory where that says.
    let end = inner[inner.len() - 22..].to_vec();
    for comment in [b"PK\x05\x06".to_vec(), b"PK\x05\x06 and more than twenty-two bytes".to_vec(), end] {
        let bytes = Zip { comment, ..Zip::default() }.add(&entry("a", b"1", 0)).add(&entry("b", b"2", 0)).finish();
        assert_eq!(both(&bytes).len(), 2);
    }
}

#[test]
fn what_is_not_wanted_is_passed_over() {
    let data = text(100_000);
    let described = with(|e| e.tail = Tail::Descriptor { marked: true, wide: false }, &entry("b", &data, 8));
    let bytes = Zip::default().add(&entry("a", &data, 8)).add(&described).add(&entry("c", &data, 0)).add(&entry("d", b"end", 8)).finish();
    for wanted in 0..3 {
        let mut walk = Walk::new(Box::new(std::io::Cursor::new(bytes.clone())), Container::Zip, Limits::default());
        let mut names = Vec::new();
        while let Some(member) = walk.next().unwrap() {
            let mut some = vec![0; wanted * 1000];
            if member.name != "d" {
                walk.read_exact(&mut some).unwrap();
                assert_eq!(some, data[..some.len()]);
            }
            names.push(member.name);
        }
        assert_eq!(names, ["a", "b", "c", "d"]);
        assert!(walk.next().unwrap().is_none() && walk.read(&mut [0; 9]).unwrap() == 0, "the end stays the end");
    }
}

#[test]
fn members_of_a_file_are_read_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.zip");
    let data = text(60_000);
    let bytes = Zip::default().add(&entry("a", &data, 8)).add(&entry("b", &data, 0)).finish();
    File::create(&path).unwrap().write_all(&bytes).unwrap();
    let file = Arc::new(LocalFile::new(File::open(&path).unwrap()).unwrap());
    let members = zip_directory(&*file, &Limits::default()).unwrap();
    let mut readers: Vec<_> = members.iter().map(|m| zip_member(file.clone(), m, &Limits::default()).unwrap()).collect();
    let mut contents = [Vec::new(), Vec::new()];
    let mut piece = vec![0; 10_000];
    loop {
        let mut got = 0;
        for (reader, content) in readers.iter_mut().zip(&mut contents) {
            let n = reader.read(&mut piece).unwrap();
            content.extend_from_slice(&piece[..n]);
            got += n;
        }
        if got == 0 {
            break;
        }
    }
    assert!(contents.iter().all(|content| *content == data));
}
