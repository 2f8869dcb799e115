//! Checkpoints on disk.
//!
//! ```text
//! state-dir/
//!   LOCK                 held while a job runs
//!   VERSION              of the layout
//!   local/               state that left memory, of the job that runs; nothing in it outlives it
//!   chk-7/               the newest complete checkpoint; older ones are removed
//!     manifest.json      its own checksum, splits, committables, and the files with their checksums
//!     0.state 1.state    one file a worker: pieces of tables, each a header line and an Arrow IPC stream
//!     group…-….run       files of state that left memory ([`crate::disk`]): hard links
//! ```
//!
//! A checkpoint is written as `chk-7.tmp`, synchronised, and renamed, so one that is there under
//! its own name is whole. The files of state that left memory never change, so a checkpoint costs a link for
//! each, and only those that are new are bytes on their way to the disk. They are not read at a restart:
//! their size is compared here, what stands at their ends by the store that opens them, and each page when
//! it is read.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use serde::{Deserialize, Serialize};

use crate::StateTable;
use crate::checksum::Checksum;
use crate::lock::DirLock;
use crate::removal;
use crate::runs::{StateRuns, link};

/// The version of the layout; a directory of a later one is refused, and of one older than what can be read.
const VERSION: u32 = 3;
/// The oldest version that can be read: 2 had no files of state that left memory.
const VERSION_OLDEST: u32 = 2;

/// Rows of a piece: few enough that a piece stays in the cache between encoding and writing, and that no
/// second copy of the whole state is ever in memory.
const PIECE_ROWS: usize = 8192;

/// What to do about a checkpoint that cannot be read.
const BEGIN_ANEW: &str = "run once with --fresh, or remove the state directory, to start from the beginning";

/// The state of one operator instance.
#[derive(Clone, Debug)]
pub struct OperatorState {
    /// The operator's stable id.
    pub operator: String,
    /// Its tables.
    pub tables: Vec<StateTable>,
    /// Files of state that left memory; they stay where they are until the next checkpoint.
    pub runs: Vec<StateRuns>,
}

/// Everything about a checkpoint but the operators' state.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Manifest {
    /// The checksum of the manifest's text without these digits; earlier builds wrote none. First, so that no text like it comes before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Layout version.
    pub version: u32,
    /// The checkpoint's number.
    pub id: u64,
    /// Whether the job had read all of its input and written all of its output.
    pub finished: bool,
    /// For each source (by state id) its splits, as the runtime encodes them.
    pub sources: BTreeMap<String, Vec<serde_json::Value>>,
    /// For each sink (by state id) what is to be committed.
    pub sinks: BTreeMap<String, Vec<serde_json::Value>>,
    /// The files of tables with their checksums.
    pub files: Vec<(String, u64)>,
    /// For each operator (by state id) its files of state that left memory; paths are those in the checkpoint.
    #[serde(default)]
    pub runs: BTreeMap<String, Vec<StateRuns>>,
}

impl Manifest {
    /// As text, with its checksum.
    fn text(&mut self) -> Result<String, serde_json::Error> {
        self.checksum = Some(String::new());
        let without = serde_json::to_string_pretty(self)?;
        self.checksum = Some(format!("{:016x}", Checksum::of(without.as_bytes())));
        serde_json::to_string_pretty(self)
    }

    /// Whether the text that it was read from is what was written, as far as its checksum tells.
    fn is_as_written(&self, text: &str) -> bool {
        let agrees = |sum: &String| format!("{:016x}", Checksum::of(text.replacen(sum.as_str(), "", 1).as_bytes())) == *sum;
        self.checksum.as_ref().is_none_or(agrees)
    }
}

/// What went wrong with a state directory; the message is complete.
#[derive(Debug)]
pub struct CheckpointError(String);

impl std::fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckpointError {}

fn failed(doing: &str, path: &Path, why: impl std::fmt::Display) -> CheckpointError {
    CheckpointError(format!("{doing} '{}': {why}", path.display()))
}

fn another_version(version: u32) -> String {
    format!("it was written by another version (layout {version}, this one reads {VERSION_OLDEST} to {VERSION}); {BEGIN_ANEW}")
}

/// A state directory, locked by this process.
#[derive(Debug)]
pub struct CheckpointStore {
    dir: PathBuf,
    _lock: DirLock,
}

impl CheckpointStore {
    /// Opens (and creates) a state directory and locks it.
    ///
    /// # Errors
    /// The directory cannot be made, is in use by another process, or has a layout that cannot be read.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let store = Self::lock(dir)?;
        let version = store.version().filter(|version| !(VERSION_OLDEST..=VERSION).contains(version));
        match version {
            Some(other) => Err(failed("opening the state directory", dir, another_version(other))),
            None => store.current(),
        }
    }

    /// The same without what is in it, whichever version has written that.
    ///
    /// # Errors
    /// As [`CheckpointStore::open`]; a checkpoint cannot be removed.
    pub fn fresh(dir: &Path) -> Result<Self, CheckpointError> {
        let store = Self::lock(dir)?;
        store.clear()?;
        store.current()
    }

    fn lock(dir: &Path) -> Result<Self, CheckpointError> {
        let lock = DirLock::take(dir).map_err(|e| CheckpointError(e.to_string()))?;
        Ok(CheckpointStore { dir: dir.to_path_buf(), _lock: lock })
    }

    /// The version of the layout that the directory says it has.
    fn version(&self) -> Option<u32> {
        fs::read_to_string(self.dir.join("VERSION")).ok().and_then(|text| text.trim().parse().ok())
    }

    /// Has the directory say the version of what is written from now on.
    fn current(self) -> Result<Self, CheckpointError> {
        if self.version() != Some(VERSION) {
            let path = self.dir.join("VERSION");
            fs::write(&path, format!("{VERSION}\n")).map_err(|e| failed("writing", &path, e))?;
        }
        Ok(self)
    }

    /// Removes every checkpoint.
    fn clear(&self) -> Result<(), CheckpointError> {
        for (_, path) in self.list(true)? {
            removal::directory(&path).map_err(|e| failed("removing the checkpoint", &path, e))?;
        }
        Ok(())
    }

    /// The newest complete checkpoint's manifest.
    ///
    /// # Errors
    /// The manifest is damaged or of another version.
    pub fn latest(&self) -> Result<Option<Manifest>, CheckpointError> {
        let Some((_, path)) = self.list(false)?.into_iter().next_back() else { return Ok(None) };
        let path = path.join("manifest.json");
        let text = fs::read_to_string(&path).map_err(|e| failed("reading the checkpoint", &path, format!("{e}; {BEGIN_ANEW}")))?;
        let manifest: Manifest = serde_json::from_str(&text)
            .map_err(|e| failed("reading the checkpoint", &path, format!("it is damaged ({e}); {BEGIN_ANEW}")))?;
        if !(VERSION_OLDEST..=VERSION).contains(&manifest.version) {
            return Err(failed("reading the checkpoint", &path, another_version(manifest.version)));
        }
        if !manifest.is_as_written(&text) {
            return Err(failed("reading the checkpoint", &path, format!("it is damaged (its checksum does not agree); {BEGIN_ANEW}")));
        }
        Ok(Some(manifest))
    }

    /// The operators' state of the checkpoint that `manifest` describes.
    ///
    /// # Errors
    /// A file that is missing or whose checksum does not agree.
    pub fn load(&self, manifest: &Manifest) -> Result<Vec<OperatorState>, CheckpointError> {
        let dir = self.dir.join(format!("chk-{}", manifest.id));
        let mut states = Vec::new();
        for (name, checksum) in &manifest.files {
            let path = dir.join(name);
            let damaged = |why: String| failed("restoring the state file", &path, format!("{why}; {BEGIN_ANEW}"));
            let bytes = fs::read(&path).map_err(|e| damaged(e.to_string()))?;
            if Checksum::of(&bytes) != *checksum {
                return Err(damaged("its checksum does not agree with the manifest".into()));
            }
            decode(&bytes, &mut states).map_err(|e| damaged(e.to_string()))?;
        }
        Ok(states)
    }

    /// For each operator (by state id) the files of state that left memory, with their paths.
    ///
    /// # Errors
    /// A file that is missing or has another size.
    pub fn runs(&self, manifest: &Manifest) -> Result<BTreeMap<String, Vec<StateRuns>>, CheckpointError> {
        let dir = self.dir.join(format!("chk-{}", manifest.id));
        let mut all = manifest.runs.clone();
        for file in all.values_mut().flatten().flat_map(|runs| &mut runs.files) {
            file.path = dir.join(&file.name);
            let damaged = |why: String| failed("restoring the state file", &file.path, format!("{why}; {BEGIN_ANEW}"));
            let found = fs::metadata(&file.path).map_err(|e| damaged(e.to_string()))?.len();
            if found != file.bytes {
                return Err(damaged(format!("it has {found} bytes, and {} by the manifest", file.bytes)));
            }
        }
        Ok(all)
    }

    /// Where a job may keep state that left memory: on the file system of the checkpoints, so that these are
    /// links. Empty, and the caller's while it holds the store.
    ///
    /// # Errors
    /// What an earlier job left there cannot be removed.
    pub fn local(&self) -> Result<PathBuf, CheckpointError> {
        let path = self.dir.join("local");
        match removal::directory(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed("removing old state in", &path, e)),
            _ => Ok(path),
        }
    }

    /// Writes a checkpoint: `workers[i]` is the state of worker `i`. When it returns, the
    /// checkpoint is safe and the older ones are gone.
    ///
    /// # Errors
    /// What could not be written; the older checkpoint stays valid.
    pub fn write(&self, mut manifest: Manifest, workers: &[Vec<OperatorState>]) -> Result<u64, CheckpointError> {
        let temporary = self.dir.join(format!("chk-{}.tmp", manifest.id));
        // What it has already need not be made safe, or even copied, again.
        let before = self.list(false)?.pop().map(|(_, path)| path);
        let write = || -> Result<u64, std::io::Error> {
            if temporary.exists() {
                fs::remove_dir_all(&temporary)?;
            }
            fs::create_dir(&temporary)?;
            let mut total = 0;
            for (worker, states) in workers.iter().enumerate() {
                if states.iter().all(|s| s.tables.iter().all(|t| t.batch.num_rows() == 0)) {
                    continue;
                }
                let name = format!("{worker}.state");
                let mut file = Summed { file: File::create(temporary.join(&name))?, checksum: Checksum::new(), bytes: 0 };
                encode(states, &mut file)?;
                file.file.sync_all()?;
                total += file.bytes;
                manifest.files.push((name, file.checksum.finish()));
            }
            let before = before.as_deref();
            for state in workers.iter().flatten().filter(|state| !state.runs.is_empty()) {
                let mut runs = state.runs.clone();
                for file in runs.iter_mut().flat_map(|runs| &mut runs.files) {
                    let target = temporary.join(&file.name);
                    // Shards may share a file of a former one.
                    if !target.exists() {
                        let known = before.map(|dir| dir.join(&file.name)).filter(|path| path.exists());
                        let copied = link(known.as_ref().unwrap_or(&file.path), &target)?;
                        if known.is_none() || copied {
                            File::open(&target)?.sync_all()?;
                            total += file.bytes;
                        }
                    }
                    file.path = PathBuf::from(&file.name);
                }
                manifest.runs.entry(state.operator.clone()).or_default().extend(runs);
            }
            manifest.version = VERSION;
            let mut file = File::create(temporary.join("manifest.json"))?;
            file.write_all(manifest.text()?.as_bytes())?;
            file.sync_all()?;
            File::open(&temporary)?.sync_all()?;
            fs::rename(&temporary, self.dir.join(format!("chk-{}", manifest.id)))?;
            File::open(&self.dir)?.sync_all()?;
            Ok(total)
        };
        let mut write = write;
        let total = write().map_err(|e| {
            let hint =
                if e.raw_os_error() == Some(28) { "; free some space on that disk: the previous checkpoint is still valid" } else { "" };
            failed("writing the checkpoint", &temporary, format!("{e}{hint}"))
        })?;
        for (id, path) in self.list(true)? {
            if id != manifest.id {
                // An old checkpoint that can't be removed costs space, nothing else.
                let _ = removal::directory(&path);
            }
        }
        Ok(total)
    }

    /// Checkpoints by number, ascending; with `all` also those that were never completed.
    fn list(&self, all: bool) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
        let entries = fs::read_dir(&self.dir).map_err(|e| failed("reading the state directory", &self.dir, e))?;
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| failed("reading the state directory", &self.dir, e))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(rest) = name.strip_prefix("chk-") else { continue };
            match (rest.parse::<u64>(), rest.strip_suffix(".tmp").and_then(|r| r.parse::<u64>().ok())) {
                (Ok(id), _) => found.push((id, path)),
                (_, Some(id)) if all => found.push((id, path)),
                _ => {}
            }
        }
        found.sort();
        Ok(found)
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    operator: String,
    table: String,
    bytes: usize,
    /// The next piece is of the same table.
    more: bool,
}

/// A file and the checksum of what was written to it.
struct Summed {
    file: File,
    checksum: Checksum,
    bytes: u64,
}

impl Summed {
    fn write(&mut self, bytes: &[u8]) -> Result<(), std::io::Error> {
        self.checksum.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

fn encode(states: &[OperatorState], out: &mut Summed) -> Result<(), std::io::Error> {
    let (mut head, mut body) = (Vec::new(), Vec::new());
    for state in states {
        for table in &state.tables {
            let rows = table.batch.num_rows();
            for from in (0..rows.max(1)).step_by(PIECE_ROWS) {
                head.clear();
                body.clear();
                let length = PIECE_ROWS.min(rows - from);
                write_batch(&table.batch.slice(from, length), &mut body).map_err(std::io::Error::other)?;
                let (operator, table) = (state.operator.clone(), table.name.clone());
                let header = Header { operator, table, bytes: body.len(), more: from + length < rows };
                serde_json::to_writer(&mut head, &header)?;
                head.push(b'\n');
                out.write(&head)?;
                out.write(&body)?;
            }
        }
    }
    Ok(())
}

fn write_batch(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), arrow::error::ArrowError> {
    let mut writer = StreamWriter::try_new(out, &batch.schema())?;
    writer.write(batch)?;
    writer.finish()
}

fn decode(bytes: &[u8], states: &mut Vec<OperatorState>) -> Result<(), Box<dyn std::error::Error>> {
    let mut input = BufReader::new(bytes);
    let mut line = String::new();
    let mut pieces: Vec<RecordBatch> = Vec::new();
    while input.read_line(&mut line)? > 0 {
        let header: Header = serde_json::from_str(&line)?;
        line.clear();
        let mut body = vec![0; header.bytes];
        input.read_exact(&mut body)?;
        let reader = StreamReader::try_new(body.as_slice(), None)?;
        for batch in reader {
            pieces.push(batch?);
        }
        if header.more || pieces.is_empty() {
            continue;
        }
        let whole = if pieces.len() == 1 { pieces.remove(0) } else { concat_batches(&pieces[0].schema(), &pieces)? };
        pieces.clear();
        let table = StateTable { name: header.table, batch: whole };
        match states.last_mut().filter(|s| s.operator == header.operator) {
            Some(state) => state.tables.push(table),
            None => states.push(OperatorState { operator: header.operator, tables: vec![table], runs: Vec::new() }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::StateFile;
    use crate::hash;
    use crate::runs::HashRange;
    use arrow::array::{ArrayRef, Int64Array};
    use std::sync::Arc;

    fn dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("tidemill-state-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    fn state(values: Vec<i64>) -> Vec<OperatorState> {
        let hashes = values.iter().map(|v| hash::mix(*v as u64)).collect();
        let table = StateTable::keyed("sums", hashes, vec![Arc::new(Int64Array::from(values)) as ArrayRef]).unwrap();
        vec![OperatorState { operator: "agg".into(), tables: vec![table], runs: Vec::new() }]
    }

    #[test]
    fn the_newest_whole_checkpoint_comes_back_and_divides_by_hash() {
        let dir = dir("newest");
        let store = CheckpointStore::open(&dir).unwrap();
        assert!(store.latest().unwrap().is_none());
        store.write(Manifest { id: 1, ..Manifest::default() }, &[state(vec![1])]).unwrap();
        store.write(Manifest { id: 2, finished: true, ..Manifest::default() }, &[state(vec![1, 2, 3]), state(vec![4])]).unwrap();
        // A checkpoint that was never completed does not count.
        fs::create_dir(dir.join("chk-3.tmp")).unwrap();
        let manifest = store.latest().unwrap().unwrap();
        assert_eq!((manifest.id, manifest.finished), (2, true));
        assert!(!dir.join("chk-1").exists());
        let states = store.load(&manifest).unwrap();
        let rows: usize = states.iter().flat_map(|s| &s.tables).map(|t| t.batch.num_rows()).sum();
        assert_eq!(rows, 4);
        let divided: usize = (0..3)
            .map(|shard| states.iter().flat_map(|s| &s.tables).map(|t| t.of_shard(shard, 3).unwrap().batch.num_rows()).sum::<usize>())
            .sum();
        assert_eq!(divided, 4);
        fs::remove_dir_all(dir).unwrap();
    }

    /// A large table is written in pieces and is one again when it is read.
    #[test]
    fn tables_stay_whole() {
        let dir = dir("whole");
        let store = CheckpointStore::open(&dir).unwrap();
        let values: Vec<i64> = (0..3 * PIECE_ROWS as i64 + 5).collect();
        let mut states = state(values.clone());
        states[0].tables.extend(state(vec![7]).remove(0).tables);
        states[0].tables.extend(state(Vec::new()).remove(0).tables);
        store.write(Manifest { id: 1, ..Manifest::default() }, &[states.clone(), state(values)]).unwrap();
        let loaded = store.load(&store.latest().unwrap().unwrap()).unwrap();
        let tables = |states: &[OperatorState]| states.iter().flat_map(|s| s.tables.iter().map(|t| t.batch.clone())).collect::<Vec<_>>();
        let expect = [tables(&states), vec![states[0].tables[0].batch.clone()]].concat();
        assert_eq!(tables(&loaded), expect);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn damage_is_found_and_named() {
        let dir = dir("damage");
        let store = CheckpointStore::open(&dir).unwrap();
        store.write(Manifest { id: 1, ..Manifest::default() }, &[state(vec![1, 2])]).unwrap();
        let path = dir.join("chk-1/0.state");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = store.load(&store.latest().unwrap().unwrap()).unwrap_err().to_string();
        assert!(error.contains("0.state") && error.contains("checksum") && error.contains("--fresh"), "{error}");
        let manifest = dir.join("chk-1/manifest.json");
        let other_version = fs::read_to_string(&manifest).unwrap().replace("\"version\": 3", "\"version\": 9");
        for (content, why) in [("", "damaged"), ("{\"version\"", "damaged"), (other_version.as_str(), "another version (layout 9")] {
            fs::write(&manifest, content).unwrap();
            let error = store.latest().unwrap_err().to_string();
            assert!(error.contains("chk-1/manifest.json") && error.contains(why) && error.contains("--fresh"), "{error}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    /// An offset with another digit was believed: the job left rows out, or read some twice.
    #[test]
    fn no_digit_of_a_manifest_may_change() {
        let dir = dir("digits");
        let store = CheckpointStore::open(&dir).unwrap();
        let position = serde_json::json!({ "offset": 1_234_567, "text": "a\"b", "seconds": 0.1 });
        let sources = BTreeMap::from([("t".to_string(), vec![position.clone()])]);
        let sinks = BTreeMap::from([("s".to_string(), vec![position])]);
        store.write(Manifest { id: 1, sources: sources.clone(), sinks, ..Manifest::default() }, &[state(vec![1, 2])]).unwrap();
        let path = dir.join("chk-1/manifest.json");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(store.latest().unwrap().unwrap().sources, sources);
        let digits: Vec<usize> = text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_digit()).map(|(at, _)| at).collect();
        assert!(digits.len() > 20, "{text}");
        for at in digits {
            let mut bytes = text.clone().into_bytes();
            // Another digit.
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            let error = store.latest().unwrap_err().to_string();
            assert!(error.contains("chk-1/manifest.json") && error.contains("damaged") && error.contains("--fresh"), "byte {at}: {error}");
        }
        // Manifests of earlier builds have no checksum.
        let (head, rest) = text.split_once(",\n").unwrap();
        assert!(head.contains("\"checksum\""), "{head}");
        fs::write(&path, format!("{{\n{rest}")).unwrap();
        let manifest = store.latest().unwrap().unwrap();
        assert_eq!((manifest.checksum, manifest.sources), (None, sources));
        fs::remove_dir_all(dir).unwrap();
    }

    /// Files are linked, found again, dropped with the last checkpoint that names them, and missed by name.
    #[test]
    fn files_of_state_are_linked() {
        let dir = dir("links");
        let store = CheckpointStore::open(&dir).unwrap();
        let local = store.local().unwrap();
        fs::create_dir_all(&local).unwrap();
        let runs = |names: &[&str]| {
            let file = |name: &&str| {
                let path = local.join(name);
                fs::write(&path, format!("rows of {name}")).unwrap();
                StateFile { path, name: name.to_string(), bytes: 8 + name.len() as u64, checksum: String::new() }
            };
            let runs = StateRuns { hashes: HashRange::ALL, files: names.iter().map(file).collect() };
            vec![OperatorState { operator: "agg".into(), tables: Vec::new(), runs: vec![runs] }]
        };
        store.write(Manifest { id: 1, ..Manifest::default() }, &[runs(&["a", "b"])]).unwrap();
        // Both shards have `b`.
        store.write(Manifest { id: 2, ..Manifest::default() }, &[runs(&["b"]), runs(&["b", "c"])]).unwrap();
        let manifest = store.latest().unwrap().unwrap();
        let found = store.runs(&manifest).unwrap();
        let files: Vec<&StateFile> = found["agg"].iter().flat_map(|runs| &runs.files).collect();
        assert_eq!(files.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["b", "b", "c"]);
        assert!(files.iter().all(|f| fs::read_to_string(&f.path).unwrap() == format!("rows of {}", f.name)));
        let path = files[2].path.clone();
        // A link of the store's file: what is written to it now is not.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "cut").unwrap();
        let error = store.runs(&manifest).unwrap_err().to_string();
        assert!(error.contains("chk-2/c") && error.contains("3 bytes, and 9 by the manifest"), "{error}");
        fs::remove_file(&path).unwrap();
        let error = store.runs(&manifest).unwrap_err().to_string();
        assert!(error.contains("chk-2/c") && error.contains("--fresh"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    /// What the message advises helps: it did not, since `--fresh` was refused as well.
    #[test]
    fn other_layouts_are_refused_until_one_begins_anew() {
        let dir = dir("later");
        for version in ["99", "1"] {
            let store = CheckpointStore::open(&dir).unwrap();
            store.write(Manifest { id: 1, ..Manifest::default() }, &[state(vec![1])]).unwrap();
            drop(store);
            fs::write(dir.join("VERSION"), version).unwrap();
            let error = CheckpointStore::open(&dir).unwrap_err().to_string();
            assert!(error.contains(&format!("layout {version}, this one reads 2 to 3")) && error.contains("--fresh"), "{error}");
            assert!(dir.join("chk-1").exists(), "whoever can read it finds it as it was");
            assert!(CheckpointStore::fresh(&dir).unwrap().latest().unwrap().is_none());
        }
        fs::remove_dir_all(dir).unwrap();
    }

    /// State of the version before, which had no files of state that left memory.
    #[test]
    fn the_layout_before_is_read() {
        let dir = dir("before");
        let store = CheckpointStore::open(&dir).unwrap();
        store.write(Manifest { id: 4, ..Manifest::default() }, &[state(vec![1, 2, 3])]).unwrap();
        drop(store);
        fs::write(dir.join("VERSION"), "2\n").unwrap();
        let path = dir.join("chk-4/manifest.json");
        let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        manifest["version"] = 2.into();
        manifest.as_object_mut().unwrap().retain(|name, _| name != "runs" && name != "checksum");
        fs::write(&path, manifest.to_string()).unwrap();
        let store = CheckpointStore::open(&dir).unwrap();
        let manifest = store.latest().unwrap().unwrap();
        assert_eq!(store.load(&manifest).unwrap()[0].tables[0].batch.num_rows(), 3);
        assert!(store.runs(&manifest).unwrap().is_empty());
        store.write(Manifest { id: 5, ..Manifest::default() }, &[state(vec![7])]).unwrap();
        drop(store);
        assert_eq!(fs::read_to_string(dir.join("VERSION")).unwrap().trim(), "3");
        assert_eq!(CheckpointStore::open(&dir).unwrap().latest().unwrap().unwrap().id, 5);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_directory_serves_one_job() {
        let dir = dir("lock");
        let _held = CheckpointStore::open(&dir).unwrap();
        let error = CheckpointStore::open(&dir).unwrap_err().to_string();
        assert!(error.contains("another process is using it"), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }
}
