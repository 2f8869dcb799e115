//! Where a copy takes place until its target appears: beside it on a disk ([`Staging`]), or as uploads of its bucket
//! ([`BucketStage`]). What differs between the two is there; here is which of them it is.

use std::path::PathBuf;

use tidemill_connect::filesystem::{sink_of_copy, upload_of};
use tidemill_connect::{Committable, Sink, registry};
use tidemill_format::options::RawOptions;
use tidemill_runtime::JobError;
use tidemill_runtime::copy::check_free;
use tidemill_store::{Pending, is_remote};

use super::bucket::BucketStage;
use super::manifest::{Manifest, Staging};
use super::mirror::Mirror;
use super::plan::Plan;
use crate::args::Verify;

/// The place of a copy under way; nobody else copies to its target.
pub enum Stage {
    /// A directory beside the target.
    Local(Staging),
    /// Uploads, and what is kept of them in the bucket.
    Bucket(Box<BucketStage>),
}

/// What a copy writes into, and how what was written is found again.
pub struct Outlet {
    /// Makes the writers.
    pub sink: Box<dyn Sink>,
    /// Where the files that were written can be read. In a bucket that is a copy of them, which goes once they are compared.
    pub parts: PathBuf,
    /// That copy, removed with this.
    mirror: Option<Mirror>,
    /// In a bucket: the directory of the objects, as keys begin with it.
    directory: Option<String>,
    /// In a bucket: the copy, and the run of it, for the names of objects.
    names: Option<(String, String)>,
}

impl Stage {
    /// Begins, or goes on with, a copy to the plan's target.
    ///
    /// # Errors
    /// Somebody else writes there; the directory or bucket cannot be used.
    pub fn open(plan: &Plan) -> Result<Self, String> {
        match plan.path.to_str() {
            Some(url) if is_remote(url) => BucketStage::open(url, plan).map(|stage| Stage::Bucket(Box::new(stage))),
            _ => Staging::open(&plan.path).map(Stage::Local),
        }
    }

    /// What an earlier run left, if it was killed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(&self) -> Result<Option<Manifest>, String> {
        match self {
            Stage::Local(staging) => staging.load(),
            Stage::Bucket(bucket) => bucket.load(),
        }
    }

    /// Whether an earlier run had put everything into the target's place, and only did not come to tidy up.
    ///
    /// # Errors
    /// The bucket cannot be asked.
    pub fn was_moved(&self, manifest: &Manifest) -> Result<bool, String> {
        match self {
            Stage::Local(staging) => Ok(staging.was_moved(manifest)),
            Stage::Bucket(bucket) => bucket.was_moved(manifest),
        }
    }

    /// Why the target cannot be written: it is there already and shall stay. What the manifest's copy has put there does not
    /// count.
    ///
    /// # Errors
    /// The bucket cannot be asked.
    pub fn in_the_way(&self, plan: &Plan, manifest: &Manifest) -> Result<Option<String>, String> {
        match self {
            Stage::Local(_) => Ok(check_free(&plan.target, "--overwrite").err()),
            Stage::Bucket(bucket) => bucket.in_the_way(manifest, plan.target.overwrite),
        }
    }

    /// Keeps the manifest: the old one is there until the new one is whole.
    ///
    /// # Errors
    /// The disk, or the bucket.
    pub fn save(&self, manifest: &Manifest) -> Result<(), String> {
        match self {
            Stage::Local(staging) => staging.save(manifest),
            Stage::Bucket(bucket) => bucket.save(manifest),
        }
    }

    /// Forgets what an earlier run did.
    ///
    /// # Errors
    /// The disk, or the bucket.
    pub fn clear(&self) -> Result<(), String> {
        match self {
            Stage::Local(staging) => staging.clear(),
            Stage::Bucket(bucket) => bucket.clear(),
        }
    }

    /// Removes what no finished task has written, and forgets tasks whose files are not whole any more.
    ///
    /// # Errors
    /// The disk, or the bucket.
    pub fn tidy(&self, manifest: &mut Manifest) -> Result<(), String> {
        match self {
            Stage::Local(staging) => staging.tidy(manifest),
            Stage::Bucket(bucket) => bucket.tidy(manifest),
        }
    }

    /// Puts what was written into the target's place. Then nothing of the copy but the target is left.
    ///
    /// # Errors
    /// The target has come to be in the meantime; the disk, or the bucket. What was written is kept.
    pub fn finish(self, manifest: &mut Manifest, plan: &Plan, overwrite: bool) -> Result<(), String> {
        match self {
            Stage::Local(staging) => staging.finish(manifest, plan.file(), overwrite),
            Stage::Bucket(bucket) => bucket.finish(manifest, overwrite),
        }
    }

    /// As [`Stage::remove`], where what stays would be found again at once.
    ///
    /// # Errors
    /// The disk, or the bucket.
    pub fn forget(self) -> Result<(), String> {
        match self {
            Stage::Local(staging) => staging.forget(),
            Stage::Bucket(bucket) => bucket.forget(),
        }
    }

    /// Takes away what the copy keeps of itself.
    pub fn remove(self) {
        match self {
            Stage::Local(staging) => staging.remove(),
            Stage::Bucket(bucket) => bucket.remove(),
        }
    }

    /// What the copy writes into.
    ///
    /// # Errors
    /// An option of the target is wrong, a column cannot be written.
    pub fn outlet(&self, plan: &Plan, manifest: &Manifest) -> Result<Outlet, JobError> {
        let raw = |path: &PathBuf| {
            let mut options = plan.options(path);
            options.remove("connector");
            RawOptions::new("the copy", options)
        };
        let wrong = |e: tidemill_connect::ConnectError| JobError::usage(e.to_string());
        match self {
            Stage::Local(staging) => {
                let parts = staging.parts();
                let mut raw = raw(&plan.file().map_or_else(|| parts.clone(), |name| parts.join(name)));
                let sink = registry::find("filesystem").and_then(|connector| connector.sink(&plan.schema, &mut raw)).map_err(wrong)?;
                raw.finish()?;
                Ok(Outlet { sink, parts, mirror: None, directory: None, names: None })
            }
            Stage::Bucket(bucket) => {
                let mirror = match plan.verify {
                    Verify::Off => None,
                    _ => Some(Mirror::new().map_err(JobError::failed)?),
                };
                let parts = mirror.as_ref().map_or_else(PathBuf::new, |mirror| mirror.files());
                let mut raw = raw(&plan.path);
                let kept = mirror.is_some().then(|| parts.clone());
                let sink = sink_of_copy(&plan.schema, &mut raw, &bucket.owner(manifest), kept).map_err(wrong)?;
                raw.finish()?;
                let directory = Some(bucket.directory().to_string());
                Ok(Outlet { sink, parts, mirror, directory, names: Some((manifest.token.clone(), bucket.run())) })
            }
        }
    }
}

impl Outlet {
    /// The run id of a task's writers. It makes names such as `part-00001-0-0.parquet`, which stand in the order of the files that
    /// were read, also if some of them were written by another run.
    pub fn run_id(&self, task: usize) -> String {
        match &self.names {
            Some((copy, run)) => format!("{copy}-{task:05}-{run}"),
            None => format!("{task:05}"),
        }
    }

    /// Makes what was prepared safe: the names and lengths of the files, and, in a bucket, their uploads.
    ///
    /// # Errors
    /// The disk.
    pub fn settle(&self, prepared: &[Committable]) -> Result<(Vec<(String, u64)>, Vec<Pending>), JobError> {
        let Some(directory) = &self.directory else {
            self.sink.commit(prepared)?;
            return Ok((prepared.iter().map(|committable| self.file(committable)).collect::<Result<_, _>>()?, Vec::new()));
        };
        let (mut outputs, mut uploads) = (Vec::with_capacity(prepared.len()), Vec::with_capacity(prepared.len()));
        for committable in prepared {
            let upload = upload_of(committable).and_then(|upload| {
                let name = upload.key.strip_prefix(directory)?.to_string();
                Some((name, upload))
            });
            let (name, upload) = upload.ok_or_else(|| JobError::failed(format!("internal error: {committable} is no upload")))?;
            outputs.push((name, upload.size));
            uploads.push(upload);
        }
        Ok((outputs, uploads))
    }

    /// The name and length of a file on a disk.
    fn file(&self, committable: &Committable) -> Result<(String, u64), JobError> {
        let name = committable.get("to").and_then(|to| to.as_str());
        let name = name.ok_or_else(|| JobError::failed(format!("internal error: {committable} names no file")))?;
        let path = self.parts.join(name);
        let meta = std::fs::metadata(&path).map_err(|e| JobError::failed(format!("looking at '{}': {e}", path.display())))?;
        Ok((name.to_string(), meta.len()))
    }

    /// Told when files were compared, or will not be.
    pub fn compared(&self, outputs: &[(String, u64)]) {
        if self.mirror.is_some() {
            for (name, _) in outputs {
                // What stays goes with the directory.
                let _ = std::fs::remove_file(self.parts.join(name));
            }
        }
    }
}
