//! The token file: JSON, one object a line or all in one array, read anew when it changes.
//!
//! ```json
//! {"token": "…", "name": "dashboard", "read": ["*"], "expires": "2030-01-01T00:00:00Z"}
//! {"sha256": "…64 hex digits…", "name": "feed", "write": ["trades", "quotes-*"]}
//! ```
//!
//! Kept in memory are digests only, and a token is looked for by its digest, all of them every time: how
//! long the answer takes says nothing about how near a guess was.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use rustls::SupportedCipherSuite;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use serde::Deserialize;

use super::{Access, Grant, Pattern};
use crate::limits::TOKENS_CHECK;
use crate::log;

type Digest = [u8; 32];

/// The tokens of a server.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    known: RwLock<Vec<(Digest, Access)>>,
    /// When the file was last looked at, and what it was then.
    looked: Mutex<(Instant, Option<Stamp>)>,
    warned: AtomicBool,
}

/// What changes when a file does: time of change in nanoseconds, length, inode.
type Stamp = (i64, i64, u64, u64);

/// One entry as it stands in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    token: Option<String>,
    sha256: Option<String>,
    name: String,
    #[serde(default)]
    read: Vec<String>,
    #[serde(default)]
    write: Vec<String>,
    #[serde(default)]
    manage: bool,
    expires: Option<String>,
}

impl Tokens {
    /// Reads the file.
    ///
    /// # Errors
    /// A file that cannot be read, or an entry that is wrong, with its number.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        let stamp = stamp(&path);
        let known = read(&path)?;
        let tokens =
            Tokens { path, known: RwLock::new(known), looked: Mutex::new((Instant::now(), stamp)), warned: AtomicBool::new(false) };
        tokens.warn_of_readers();
        Ok(tokens)
    }

    /// The rights of a token, expired or not.
    pub fn find(&self, token: &str) -> Option<Access> {
        self.refresh(TOKENS_CHECK);
        let digest = sha256(token.as_bytes());
        let known = self.known.read().expect("no panic while held");
        let mut found = None;
        for (candidate, access) in known.iter() {
            let differing = candidate.iter().zip(&digest).fold(0u8, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(differing) == 0 {
                found = Some(access.clone());
            }
        }
        found
    }

    /// Reads the file again if it changed, and was not looked at for `pause`. Tokens that are no longer in
    /// it, or have other rights now, are revoked: calls that go on with them end. A file that is wrong
    /// changes nothing, and the log says so.
    pub fn refresh(&self, pause: Duration) {
        // Somebody else is looking already.
        let Ok(mut looked) = self.looked.try_lock() else { return };
        if looked.0.elapsed() < pause {
            return;
        }
        looked.0 = Instant::now();
        let now = stamp(&self.path);
        if now == looked.1 {
            return;
        }
        looked.1 = now;
        match read(&self.path) {
            Ok(fresh) => {
                let mut known = self.known.write().expect("no panic while held");
                *known = merge(&known, fresh);
                let count = known.len();
                drop(known);
                log(format_args!("token file '{}' read anew: {count} tokens", self.path.display()));
                self.warn_of_readers();
            }
            Err(e) => log(format_args!("{e}; the tokens read before stay in force")),
        }
    }

    fn warn_of_readers(&self) {
        let open = fs::metadata(&self.path).is_ok_and(|m| m.mode() & 0o077 != 0);
        if open && !self.warned.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            log(format_args!("warning: token file '{path}' can be read by others than its owner: chmod 600 '{path}'"));
        }
    }
}

/// The fresh tokens; those that stayed the same keep their identity, the others' old ones are revoked.
fn merge(old: &[(Digest, Access)], fresh: Vec<(Digest, Access)>) -> Vec<(Digest, Access)> {
    let merged: Vec<(Digest, Access)> = fresh
        .into_iter()
        .map(|(digest, access)| match old.iter().find(|(d, a)| *d == digest && a.0.same(&access.0)) {
            Some((_, same)) => (digest, same.clone()),
            None => (digest, access),
        })
        .collect();
    for (_, access) in old {
        if !merged.iter().any(|(_, a)| Arc::ptr_eq(&a.0, &access.0)) {
            access.0.revoked.store(true, Ordering::Relaxed);
        }
    }
    merged
}

fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|m| (m.mtime(), m.mtime_nsec(), m.len(), m.ino()))
}

fn read(path: &Path) -> Result<Vec<(Digest, Access)>, String> {
    let wrong = |what: String| format!("token file '{}': {what}", path.display());
    let text = fs::read_to_string(path).map_err(|e| wrong(format!("reading it: {e}")))?;
    parse(&text).map_err(wrong)
}

pub(super) fn parse(text: &str) -> Result<Vec<(Digest, Access)>, String> {
    // An entry and where it stands.
    let mut entries: Vec<(String, Entry)> = Vec::new();
    if text.trim_start().starts_with('[') {
        let all: Vec<Entry> = serde_json::from_str(text).map_err(|e| e.to_string())?;
        entries.extend(all.into_iter().enumerate().map(|(i, e)| (format!("entry {}", i + 1), e)));
    } else {
        for (number, line) in text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()) {
            let entry = serde_json::from_str(line).map_err(|e| format!("line {}: {e}", number + 1))?;
            entries.push((format!("line {}", number + 1), entry));
        }
    }
    let mut known: Vec<(Digest, Access)> = Vec::with_capacity(entries.len());
    for (place, entry) in entries {
        let (digest, access) = checked(entry).map_err(|e| format!("{place}: {e}"))?;
        if known.iter().any(|(d, _)| *d == digest) {
            return Err(format!("{place}: the same token as an earlier one"));
        }
        known.push((digest, access));
    }
    Ok(known)
}

fn checked(entry: Entry) -> Result<(Digest, Access), String> {
    let digest = match (&entry.token, &entry.sha256) {
        (Some(token), None) if token.is_empty() => return Err("'token' is empty".into()),
        (Some(token), None) if token.trim() != token => return Err("'token' begins or ends with a blank".into()),
        (Some(token), None) => sha256(token.as_bytes()),
        (None, Some(hex)) => from_hex(hex).ok_or("'sha256' is not 64 hex digits")?,
        _ => return Err("expected either 'token' or 'sha256'".into()),
    };
    let patterns = |what: &str, texts: &[String]| -> Result<Vec<Pattern>, String> {
        texts.iter().map(|t| Pattern::new(t).map_err(|e| format!("'{what}': {e}"))).collect()
    };
    let grant = Grant {
        read: patterns("read", &entry.read)?,
        write: patterns("write", &entry.write)?,
        manage: entry.manage,
        expires: entry.expires.as_deref().map(time).transpose()?,
        name: entry.name,
        revoked: AtomicBool::new(false),
    };
    Ok((digest, Access(Arc::new(grant))))
}

/// A time as RFC 3339 writes it; the offset must be there, an expiry in a guessed time zone helps nobody.
fn time(text: &str) -> Result<SystemTime, String> {
    let wrong = || format!("'expires': '{text}' is no time like 2030-01-31T12:00:00Z");
    let offset = text.ends_with(['Z', 'z']) || (text.len() > 6 && matches!(text.as_bytes()[text.len() - 6], b'+' | b'-'));
    if !offset || !text.contains(['T', 't', ' ']) {
        return Err(wrong());
    }
    let ns = string_to_timestamp_nanos(text).map_err(|_| wrong())?;
    // A time before 1970 is as expired as 1970.
    Ok(UNIX_EPOCH + Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
}

fn from_hex(text: &str) -> Option<Digest> {
    let text = text.trim().as_bytes();
    let mut digest = [0; 32];
    if text.len() != 64 {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| (c as char).to_digit(16);
        *byte = ((digit(pair[0])? << 4) | digit(pair[1])?) as u8;
    }
    Some(digest)
}

/// SHA-256 (FIPS 180-4), from the library that does our TLS.
pub(super) fn sha256(bytes: &[u8]) -> Digest {
    let common = match &TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls13(suite) => &suite.common,
        SupportedCipherSuite::Tls12(suite) => &suite.common,
    };
    let mut digest = [0; 32];
    digest.copy_from_slice(common.hash_provider.hash(bytes).as_ref());
    digest
}
