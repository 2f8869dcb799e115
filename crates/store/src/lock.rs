//! One writer for a directory: an object that is put only if there is none.
//!
//! `<directory>/_tidemill/lock` says who holds it. The holder writes it anew every 20 seconds, on condition that it is still
//! its own, and removes it at the end. Somebody else finds it and is told who is there; or takes it over, on condition that
//! nobody else does at the same time, where the holder is surely gone:
//!
//! - it was the same job (jobs with a state directory have a name that outlives them; two runs cannot use one state
//!   directory at once), or
//! - it was a process of this machine (same boot, same name space of processes) that is no more, or
//! - it has not been written for 90 seconds, by the bucket's clock, which is asked by putting a small object.
//!
//! A holder that was cut off from the bucket for so long, or whose machine was suspended, finds out before it commits:
//! [`Lock::check`] asks the clock, one that goes on while the machine sleeps, and [`Lock::renew`] the bucket. What is done between
//! the two and the deed itself is made on conditions of its own ([`crate::commit`]). Even without them nothing would be mixed
//! within a file: names hold the run's id, and every object appears as a whole.
//!
//! A store that takes conditions and passes over them, as some that speak S3 do, would give everybody the lock: they are tried
//! once for each bucket.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::Scheme;
use crate::client::Client;
use crate::error::{Kind, StoreError};
use crate::moment::Moment;
use crate::runtime::{lock, spawn, unique, wait, wait_briefly};
use crate::writer::remove;

/// Below a directory: where the lock lies.
pub(crate) const LOCK: &str = "_tidemill/lock";
/// How often the holder shows that it is there.
const BEAT: Duration = Duration::from_secs(20);
/// A lock that was not written for so long belongs to nobody.
const LEASE: Duration = Duration::from_secs(90);
/// A holder that could not write it for so long commits nothing: some time before others may take it.
const UNSURE: Duration = Duration::from_secs(60);
/// How long removing what only the holder may remove may take: less than the lock lasts after it was renewed.
pub(crate) const REMOVED_WITHIN: Duration = Duration::from_secs(30);
/// How long removing it may take.
const RELEASE_WAIT: Duration = Duration::from_secs(10);
/// What this process holds, or is releasing. What it does not, and its name stands on, could not be released.
static LIVE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
/// How often taking it is tried while others come and go.
const TRIES: usize = 4;

/// A directory that this process alone writes to, until this is dropped.
#[derive(Debug)]
pub struct Lock {
    held: Arc<Held>,
    beats: AbortHandle,
}

struct Held {
    client: Arc<Client>,
    /// What it is for.
    place: String,
    key: String,
    claim: Claim,
    /// Times that it was written anew.
    count: AtomicU64,
    /// The version that was written last: only on top of it the next one is.
    version: Mutex<UpdateVersion>,
    /// When it was written.
    fresh: Mutex<Moment>,
    /// Commits that were begun.
    commits: AtomicU64,
    lost: AtomicBool,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("key", &self.client.url(&self.key)).finish_non_exhaustive()
    }
}

/// What the lock's object holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Claim {
    /// Names this holding, and no other.
    holder: String,
    /// The job, if its name outlives the process.
    job: Option<String>,
    process: Option<Process>,
    host: String,
    since_ms: i64,
    /// Makes every writing another content, and so another ETag.
    beat: u64,
    /// Commits that were begun: who lists meanwhile sees that one has come, even if it has gone again.
    #[serde(default)]
    commits: u64,
}

/// A process, named so that no other has its name while the machine runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Process {
    boot: String,
    /// The name space of process numbers: containers count their own.
    space: String,
    number: u32,
    /// When it was started, in ticks since the boot: numbers are used again.
    start: u64,
}

impl Process {
    /// This process; `None` where the system does not say enough.
    fn this() -> Option<Self> {
        let number = std::process::id();
        Some(Process {
            boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_string(),
            space: std::fs::read_link("/proc/self/ns/pid").ok()?.to_string_lossy().into_owned(),
            number,
            start: start_of(number)?,
        })
    }

    /// Whether it runs no more, as far as `this` process can know.
    fn gone(&self, this: &Process) -> bool {
        self.boot == this.boot && self.space == this.space && start_of(self.number) != Some(self.start)
    }
}

/// The 22nd field of `/proc/<n>/stat`; the second may hold blanks and brackets.
fn start_of(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

impl Claim {
    fn new(job: Option<&str>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").map_or_else(|_| "?".to_string(), |h| h.trim().to_string());
        Claim { holder: unique(), job: job.map(str::to_string), process: Process::this(), host, since_ms: now, beat: 0, commits: 0 }
    }

    /// Whether the holder of `other` is gone for reasons that need no clock.
    fn outlives(&self, other: &Claim) -> bool {
        if lock(&LIVE).contains(&other.holder) {
            return false;
        }
        if self.job.is_some() && self.job == other.job {
            return true;
        }
        match (&self.process, &other.process) {
            (Some(this), Some(process)) => process == this || process.gone(this),
            _ => false,
        }
    }

    fn payload(&self) -> Result<PutPayload, StoreError> {
        let text = serde_json::to_vec(self).map_err(|e| StoreError::new(Kind::Other, format!("internal error: a lock's content: {e}")))?;
        Ok(text.into())
    }
}

fn update_of(meta: &ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() }
}

/// Takes the lock of `place`, a directory or an object, which lies at `key`.
pub(crate) fn acquire(client: Arc<Client>, place: &str, key: String, job: Option<&str>) -> Result<Lock, StoreError> {
    let claim = Claim::new(job);
    let (with, of, at) = (client.clone(), claim.clone(), key.clone());
    let place = client.url(place);
    let shown = place.clone();
    // Before it is seen: another thread may look at once.
    lock(&LIVE).insert(claim.holder.clone());
    let fresh = Moment::now();
    let version = wait(async move {
        let version = take(&with, &shown, &at, &of).await?;
        try_conditions(&with, &at, &of).await?;
        Ok(version)
    });
    let version = version.inspect_err(|_| {
        lock(&LIVE).remove(&claim.holder);
    })?;
    let held = Arc::new(Held {
        place,
        client,
        key,
        claim,
        count: AtomicU64::new(0),
        version: Mutex::new(version),
        fresh: Mutex::new(fresh),
        commits: AtomicU64::new(0),
        lost: AtomicBool::new(false),
    });
    let beating = held.clone();
    let beats = spawn(async move {
        loop {
            sleep(BEAT).await;
            if !beating.beat().await {
                return;
            }
        }
    })?;
    Ok(Lock { held, beats })
}

async fn put(client: &Client, key: &str, claim: &Claim, mode: PutMode) -> Result<object_store::Result<PutResult>, StoreError> {
    let (bucket, path) = (client.bucket("locking")?, client.path(key)?);
    let options = PutOptions { mode, ..PutOptions::default() };
    Ok(bucket.objects.put_opts(&path, claim.payload()?, options).await)
}

/// What an error of a conditional put means.
fn refused(client: &Client, doing: &str, key: &str, error: &object_store::Error) -> StoreError {
    use object_store::Error as E;
    let failed = client.failed(doing, key, error);
    if matches!(error, E::NotImplemented { .. } | E::NotSupported { .. }) || failed.to_string().contains("(status 501)") {
        return unconditional(client, doing, key, &format!("it refuses conditional puts ({failed})"));
    }
    failed
}

/// A store that cannot keep two writers apart.
fn unconditional(client: &Client, doing: &str, key: &str, why: &str) -> StoreError {
    let advice = match client.scheme {
        Scheme::S3 => "the server must know If-None-Match and If-Match of PutObject, and AWS_CONDITIONAL_PUT must not be 'disabled'",
        _ => "write to another store",
    };
    let url = client.url(key);
    StoreError::new(Kind::Other, format!("{doing} '{url}': this store cannot keep two writers apart, since {why}; {advice}"))
}

/// Whether the store heeds the conditions of puts, tried with a lock that was just taken. Google and Azure do.
///
/// # Errors
/// It does not; the lock is given back then. The request failed.
async fn try_conditions(client: &Client, key: &str, claim: &Claim) -> Result<(), StoreError> {
    if client.scheme != Scheme::S3 || client.heeds_conditions.load(Ordering::Acquire) {
        return Ok(());
    }
    let nothing = UpdateVersion { e_tag: Some("\"tidemill-no-such-version\"".to_string()), version: None };
    for mode in [PutMode::Create, PutMode::Update(nothing)] {
        match put(client, key, claim, mode).await? {
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {}
            other => {
                // What stays runs out.
                let _ = remove(client, key).await;
                return Err(match other {
                    Ok(_) => unconditional(client, "locking", key, "it passes over the conditions of puts"),
                    Err(e) => refused(client, "locking", key, &e),
                });
            }
        }
    }
    client.heeds_conditions.store(true, Ordering::Release);
    Ok(())
}

/// Puts the claim there if nobody else's is, or if that is a dead one's.
async fn take(client: &Client, place: &str, key: &str, claim: &Claim) -> Result<UpdateVersion, StoreError> {
    let bucket = client.bucket("locking")?;
    let path = client.path(key)?;
    let mut who = String::new();
    for _ in 0..TRIES {
        match put(client, key, claim, PutMode::Create).await? {
            Ok(result) => return Ok(result.into()),
            Err(object_store::Error::AlreadyExists { .. }) => {}
            Err(e) => return Err(refused(client, "locking", key, &e)),
        }
        let (meta, body) = match bucket.objects.get(&path).await {
            Ok(result) => {
                let meta = result.meta.clone();
                (meta, result.bytes().await.map_err(|e| client.failed("reading", key, &e))?)
            }
            // Released in this moment.
            Err(object_store::Error::NotFound { .. }) => continue,
            Err(e) => return Err(client.failed("reading", key, &e)),
        };
        let Ok(other) = serde_json::from_slice::<Claim>(&body) else {
            let place_of_lock = client.url(key);
            let why = format!("'{place_of_lock}' is no lock that this version knows; remove it if nothing writes to '{place}'");
            return Err(StoreError::new(Kind::Exists, why));
        };
        if other.holder == claim.holder {
            // The answer to the first try was lost.
            return Ok(update_of(&meta));
        }
        let silent = if claim.outlives(&other) { LEASE } else { silence(client, key, &meta).await? };
        if silent < LEASE {
            who = describe(&other, silent);
            break;
        }
        match put(client, key, claim, PutMode::Update(update_of(&meta))).await? {
            Ok(result) => return Ok(result.into()),
            // Somebody else was faster, or the holder lives.
            Err(object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. }) => who = describe(&other, silent),
            Err(e) => return Err(refused(client, "taking over", key, &e)),
        }
    }
    let who = if who.is_empty() { "others that come and go".to_string() } else { who };
    let why = format!(
        "'{place}' is being written by {who}; one job at a time can write there: wait for it, or choose another path. The lock of \
         a process that is gone can be taken after {} s",
        LEASE.as_secs()
    );
    Err(StoreError::new(Kind::Exists, why))
}

fn describe(claim: &Claim, silent: Duration) -> String {
    let process = claim.process.as_ref().map_or(String::new(), |p| format!("process {} on ", p.number));
    format!("{process}host '{}', seen {} s ago", claim.host, silent.as_secs())
}

/// How long the lock has not been written, by the bucket's own clock.
async fn silence(client: &Client, key: &str, meta: &ObjectMeta) -> Result<Duration, StoreError> {
    let bucket = client.bucket("locking")?;
    let clock = format!("{key}.{}", unique());
    let path = client.path(&clock)?;
    let failed = |e: object_store::Error| client.failed("asking the clock with", &clock, &e);
    bucket.objects.put(&path, PutPayload::from_static(b"clock")).await.map_err(failed)?;
    let now = bucket.objects.head(&path).await.map_err(failed)?.last_modified;
    remove(client, &clock).await?;
    let ms = now.timestamp_millis().saturating_sub(meta.last_modified.timestamp_millis());
    Ok(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// Who holds a lock, and how many commits were begun under it; `None` if nobody holds it. For lists: where that is the same
/// before and after, no commit has come and gone in between.
///
/// # Errors
/// The request failed.
pub(crate) async fn trace(client: &Client, key: &str) -> Result<Option<(String, u64)>, StoreError> {
    let bucket = client.bucket("listing")?;
    let failed = |e: object_store::Error| client.failed("looking at", key, &e);
    let body = match bucket.objects.get(&client.path(key)?).await {
        Ok(result) => result.bytes().await.map_err(failed)?,
        Err(e) => match failed(e) {
            // Who may list but not read finds nothing to read either.
            e if matches!(e.kind(), Kind::NotFound | Kind::Denied) => return Ok(None),
            e => return Err(e),
        },
    };
    // Of another version: nothing can be said.
    Ok(serde_json::from_slice::<Claim>(&body).ok().map(|claim| (claim.holder, claim.commits)))
}

impl Held {
    /// Writes the lock anew, on condition that it is still this holder's: then nobody had taken it before that moment.
    ///
    /// # Errors
    /// Of kind [`Kind::Exists`]: somebody else has it, or may have; others: the bucket could not be asked.
    async fn renew(&self) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let begun = Moment::now();
            let version = lock(&self.version).clone();
            let beat = self.count.fetch_add(1, Ordering::Relaxed) + 1;
            let claim = Claim { beat, commits: self.commits.load(Ordering::Acquire), ..self.claim.clone() };
            match put(&self.client, &self.key, &claim, PutMode::Update(version)).await? {
                Ok(result) => {
                    *lock(&self.version) = result.into();
                    *lock(&self.fresh) = begun;
                    return self.check();
                }
                // The answer to an earlier one may have been lost, or another thread was faster.
                Err(object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. }) => {
                    if !self.found_again().await? {
                        self.lost.store(true, Ordering::Release);
                        return self.check();
                    }
                }
                Err(e) => return Err(refused(&self.client, "renewing", &self.key, &e)),
            }
        }
        let why = format!("renewing '{}': it changes all the time; try again", self.client.url(&self.key));
        Err(StoreError::new(Kind::Changed, why))
    }

    /// Shows that the holder is there; whether it may still hold.
    async fn beat(&self) -> bool {
        // If the bucket cannot be reached, `check` knows how long.
        let _ = self.renew().await;
        !self.lost.load(Ordering::Acquire)
    }

    /// Whether the lock is this holder's; its version is then known again.
    ///
    /// # Errors
    /// The bucket could not be asked.
    async fn found_again(&self) -> Result<bool, StoreError> {
        let bucket = self.client.bucket("locking")?;
        let failed = |e: object_store::Error| self.client.failed("reading", &self.key, &e);
        let result = match bucket.objects.get(&self.client.path(&self.key)?).await {
            Ok(result) => result,
            Err(object_store::Error::NotFound { .. }) => return Ok(false),
            Err(e) => return Err(failed(e)),
        };
        let version = update_of(&result.meta);
        let body = result.bytes().await.map_err(failed)?;
        let ours = serde_json::from_slice::<Claim>(&body).is_ok_and(|claim| claim.holder == self.claim.holder);
        if ours {
            *lock(&self.version) = version;
        }
        Ok(ours)
    }

    /// As [`Lock::check`].
    fn check(&self) -> Result<(), StoreError> {
        let silent = lock(&self.fresh).elapsed();
        let why = if self.lost.load(Ordering::Acquire) {
            "somebody else has taken its lock".to_string()
        } else if silent >= UNSURE {
            format!("its lock could not be renewed for {} s, so somebody else may have taken it", silent.as_secs())
        } else {
            return Ok(());
        };
        Err(self.refusal(&why))
    }

    fn refusal(&self, why: &str) -> StoreError {
        StoreError::new(Kind::Exists, format!("writing to '{}': {why}; nothing was committed. Start the job again", self.place))
    }
}

impl Lock {
    /// Whether the directory is still this process's, as far as it can know without asking the bucket. Asked before something is
    /// made visible.
    ///
    /// # Errors
    /// Somebody took it over, or may have.
    pub fn check(&self) -> Result<(), StoreError> {
        self.held.check()
    }

    /// Asks the bucket whether the directory is still this process's, and keeps others from it for another 90 seconds.
    ///
    /// # Errors
    /// Of kind [`Kind::Exists`]: somebody took it over, or may have; others: the bucket could not be asked.
    pub fn renew(&self) -> Result<(), StoreError> {
        let held = self.held.clone();
        wait(async move { held.renew().await })
    }

    /// As [`Lock::check`], for other threads.
    pub(crate) fn checker(&self) -> impl Fn() -> Result<(), StoreError> + Send + Sync + 'static + use<> {
        let held = self.held.clone();
        move || held.check()
    }

    /// When it was renewed for the last time.
    pub(crate) fn renewed(&self) -> Moment {
        *lock(&self.held.fresh)
    }

    /// Names this holding of the lock, and no other.
    pub fn holder(&self) -> &str {
        &self.held.claim.holder
    }

    /// Notes that a commit begins. Readers see it with the next [`Lock::renew`].
    pub(crate) fn begins_commit(&self) {
        self.held.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// What shows that somebody else has taken it: a commit of this holder is not as it was left.
    pub(crate) fn was_taken(&self) -> StoreError {
        self.held.lost.store(true, Ordering::Release);
        self.held.refusal("somebody else has taken its lock")
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.beats.abort();
        let held = self.held.clone();
        let holder = held.claim.holder.clone();
        if !held.lost.load(Ordering::Acquire) {
            wait_briefly(RELEASE_WAIT, async move {
                // Only what is ours is removed, and nobody takes it between the two. What stays runs out.
                if held.renew().await.is_ok() {
                    let renewed = *lock(&held.fresh);
                    let _ = renewed.within(REMOVED_WITHIN, remove(&held.client, &held.key)).await;
                }
            });
        }
        // Not before: who takes it over at once, for a lock that this process has left behind, would lose it to the removal.
        lock(&LIVE).remove(&holder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(job: Option<&str>, number: u32, start: u64) -> Claim {
        let process = Process { boot: "b".into(), space: "s".into(), number, start };
        Claim { process: Some(process), ..Claim::new(job) }
    }

    #[test]
    fn who_is_surely_gone() {
        let this = claim(Some("j"), 1, 0);
        assert!(this.outlives(&claim(Some("j"), u32::MAX, 5)), "the same job");
        assert!(this.outlives(&claim(Some("k"), u32::MAX, 5)), "no such process");
        let mut elsewhere = claim(Some("k"), u32::MAX, 5);
        elsewhere.process = Some(Process { boot: "other".into(), ..elsewhere.process.unwrap() });
        assert!(!this.outlives(&elsewhere), "nobody knows of processes elsewhere");
        assert!(!claim(None, 1, 0).outlives(&Claim { process: None, ..claim(None, 1, 0) }), "no job is not the same job");
    }

    #[test]
    fn who_slept_holds_nothing_until_the_bucket_says_so() {
        let emulator = crate::emulator::Emulator::start("127.0.0.1:0", crate::emulator::Behaviour::default()).unwrap();
        let options = crate::StoreOptions { endpoint: Some(emulator.endpoint()), anonymous: true, ..crate::StoreOptions::default() };
        let store = crate::Store::of("gs://b/x", &options).unwrap().0;
        let held = store.lock("out/", None).unwrap();
        *lock(&held.held.fresh) = Moment::asleep_for(UNSURE);
        assert!(held.check().is_err_and(|e| e.kind() == Kind::Exists && e.to_string().contains("could not be renewed for 6")));
        held.renew().unwrap();
        held.check().unwrap();
        // Somebody else took it meanwhile.
        let other = Claim { holder: "another".into(), ..claim(None, 1, 0) };
        emulator.put("b", "out/_tidemill/lock", serde_json::to_vec(&other).unwrap());
        held.check().unwrap();
        assert!(held.renew().is_err_and(|e| e.kind() == Kind::Exists && e.to_string().contains("somebody else has taken its lock")));
        assert!(held.check().is_err());
        drop(held);
        assert_eq!(emulator.keys("b"), ["out/_tidemill/lock"], "it is the other's");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_lives() {
        let this = Process::this().unwrap();
        assert!(!this.gone(&this));
        assert!(Process { start: this.start + 1, ..this.clone() }.gone(&this), "its number was used again");
    }
}
