//! What the emulator keeps: objects by bucket and key, uploads by their id.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};

/// An object. Its bytes stay in the pieces they came in.
#[derive(Clone)]
pub(super) struct Stored {
    pub pieces: Vec<Bytes>,
    pub size: u64,
    /// Different for each version of each object.
    pub generation: u64,
    pub modified: DateTime<Utc>,
}

impl Stored {
    pub fn etag(&self) -> String {
        format!("\"{:016x}\"", self.generation)
    }

    pub fn whole(&self) -> Bytes {
        if self.pieces.len() == 1 { self.pieces[0].clone() } else { self.pieces.concat().into() }
    }

    /// The bytes `[from, to)`, in frames of at most `frame`, in reverse order: they are popped.
    pub fn frames(&self, from: u64, to: u64, frame: usize) -> Vec<Bytes> {
        let (mut at, mut frames) = (0, Vec::new());
        for piece in &self.pieces {
            let end = at + piece.len() as u64;
            let (mut start, stop) = (from.max(at), to.min(end));
            while start < stop {
                let n = (stop - start).min(frame as u64);
                frames.push(piece.slice((start - at) as usize..(start - at + n) as usize));
                start += n;
            }
            at = end;
        }
        frames.reverse();
        frames
    }
}

/// An upload under way: parts by number, with their tags.
pub(super) struct Upload {
    pub name: String,
    pub parts: BTreeMap<usize, (String, Bytes)>,
}

/// Everything.
#[derive(Default)]
pub(super) struct Contents {
    objects: BTreeMap<String, Stored>,
    uploads: BTreeMap<String, Upload>,
    last: u64,
}

impl Contents {
    /// A number that was not given before.
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn put(&mut self, name: String, pieces: Vec<Bytes>) -> Stored {
        let size = pieces.iter().map(|p| p.len() as u64).sum();
        let stored = Stored { pieces, size, generation: self.next(), modified: Utc::now() };
        self.objects.insert(name, stored.clone());
        stored
    }

    pub fn get(&self, name: &str) -> Option<&Stored> {
        self.objects.get(name)
    }

    /// Dates an object back.
    pub fn age(&mut self, name: &str, by: Duration) {
        if let Some(stored) = self.objects.get_mut(name) {
            stored.modified -= by;
        }
    }

    pub fn remove(&mut self, name: &str) -> bool {
        self.objects.remove(name).is_some()
    }

    pub fn keys(&self, bucket: &str) -> Vec<String> {
        self.from(bucket).take_while(|(name, _)| name.starts_with(bucket)).map(|(name, _)| name[bucket.len()..].to_string()).collect()
    }

    /// Objects whose names are not below `begin`, in order.
    pub fn from<'a>(&'a self, begin: &str) -> impl Iterator<Item = (&'a String, &'a Stored)> + use<'a> {
        self.objects.range(begin.to_string()..)
    }

    pub fn uploads(&self) -> usize {
        self.uploads.len()
    }

    /// The parts of uploads that are not over.
    pub fn parts(&self) -> usize {
        self.uploads.values().map(|upload| upload.parts.len()).sum()
    }

    pub fn begin(&mut self, name: String) -> String {
        let id = format!("upload-{}", self.next());
        self.uploads.insert(id.clone(), Upload { name, parts: BTreeMap::new() });
        id
    }

    /// Takes a part; its tag, or `None` if there is no such upload.
    pub fn part(&mut self, name: &str, id: &str, number: usize, bytes: Bytes) -> Option<String> {
        let tag = format!("\"part-{}\"", self.next());
        let upload = self.uploads.get_mut(id).filter(|u| u.name == name)?;
        upload.parts.insert(number, (tag.clone(), bytes));
        Some(tag)
    }

    /// Makes an object of the parts with these tags. `None` if there is no such upload, an error if there are no such parts.
    pub fn complete(&mut self, name: &str, id: &str, tags: &[String]) -> Option<Result<Stored, &'static str>> {
        let upload = self.uploads.get(id).filter(|u| u.name == name)?;
        let mut pieces = Vec::with_capacity(tags.len());
        for tag in tags {
            match upload.parts.values().find(|(own, _)| own == tag) {
                Some((_, bytes)) => pieces.push(bytes.clone()),
                None => return Some(Err("InvalidPart")),
            }
        }
        if pieces.is_empty() {
            return Some(Err("MalformedXML"));
        }
        self.uploads.remove(id);
        Some(Ok(self.put(name.to_string(), pieces)))
    }

    pub fn abort(&mut self, id: &str) -> bool {
        self.uploads.remove(id).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_cross_pieces() {
        let mut contents = Contents::default();
        let stored = contents.put("b/k".into(), vec!["abcd".into(), "efg".into()]);
        let text = |from, to, frame| -> Vec<Bytes> { stored.frames(from, to, frame).into_iter().rev().collect() };
        assert_eq!(text(0, 7, 3), ["abc", "d", "efg"].map(Bytes::from));
        assert_eq!(text(3, 5, 64), ["d", "e"].map(Bytes::from));
        assert!(text(7, 7, 64).is_empty());
    }

    #[test]
    fn uploads_become_objects_once() {
        let mut contents = Contents::default();
        let id = contents.begin("b/k".into());
        let one = contents.part("b/k", &id, 1, "x".into()).unwrap();
        assert!(contents.part("b/other", &id, 1, "x".into()).is_none());
        assert!(contents.complete("b/k", &id, &["no".into()]).unwrap().is_err());
        assert_eq!(contents.complete("b/k", &id, std::slice::from_ref(&one)).unwrap().unwrap().whole(), "x");
        assert!(contents.complete("b/k", &id, &[one]).is_none());
        assert_eq!((contents.keys("b/"), contents.uploads()), (vec!["k".to_string()], 0));
    }
}
