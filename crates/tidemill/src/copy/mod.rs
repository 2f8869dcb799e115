//! `tidemill copy FROM… TO`: files converted, filtered, divided, put together or just copied.
//!
//! [`plan`] finds out what is to be done, [`pool`] does tasks side by side, each of them by [`task`] on the batch
//! executor; [`stage`] makes the target appear at once and lets a killed copy go on, on disks by [`manifest`], in buckets by
//! [`bucket`] (with [`mirror`]); [`checksum`] compares; [`progress`] shows. Formats, compression and part files are the
//! `filesystem` connector's.

mod bucket;
mod checksum;
mod manifest;
mod mirror;
mod plan;
mod pool;
mod progress;
mod stage;
mod task;

use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidemill_runtime::JobError;
use tidemill_runtime::parallel::Found;
use tidemill_store::is_remote;

use self::checksum::Checksum;
use self::manifest::{Manifest, Source, Task};
use self::plan::Plan;
use self::pool::{Parallel, Pool};
use self::progress::{Meter, Progress};
use self::stage::Stage;
use self::task::Work;
use crate::args::{AtOnce, CopyArgs, Verify};
use crate::end::interrupted;
use crate::run::failure;
use crate::show::{bytes, count};
use crate::{Failure, notice};

/// With `--parallel auto`, files at once for each processor, at most: beyond that each only gets slower.
const AT_ONCE_PER_PROCESSOR: usize = 4;
/// And at most where some of them come over a network, or all go there: such a worker mostly waits.
const AT_ONCE_REMOTE: usize = 32;

/// The manifest is not saved again for so many times as long as saving it took: of very many files it is long. What
/// is done in between, and not yet in it, is done again after a kill.
const SAVE_REST: u32 = 20;

/// Copies.
pub fn copy(args: &CopyArgs) -> Result<(), Failure> {
    let begun = Instant::now();
    let plan = Plan::new(args)?;
    let Some((stage, mut manifest)) = begin(args, &plan, Stage::open(&plan).map_err(kept)?)? else { return Ok(()) };
    tell_if_interrupted()?;
    let found = match run(&plan, &stage, &mut manifest, pool(args, &plan), args.quiet) {
        Ok(found) => found,
        Err(failure) => {
            // What nothing would be gained from is not left behind.
            if manifest.done() == 0 {
                stage.remove();
            }
            return Err(failure);
        }
    };
    // A part that was left out would not be missed by the checksums, which are those of parts.
    if manifest.done() < manifest.tasks.len() {
        let (done, all) = (manifest.done(), manifest.tasks.len());
        return Err(kept(format!("internal error: {done} of {all} parts were done, and no error was met; --resume does the others")));
    }
    let (total, compared) = sum(&manifest);
    let done = manifest.tasks.iter().filter_map(|t| t.done.as_ref());
    let outputs: Vec<u64> = done.flat_map(|d| d.outputs.iter().map(|(_, bytes)| *bytes)).collect();
    stage.finish(&mut manifest, &plan, args.overwrite).map_err(kept)?;
    if !args.quiet {
        let read: u64 = manifest.tasks.iter().flat_map(|t| &t.sources).map(|s| s.bytes).sum();
        let seconds = begun.elapsed().as_secs_f64();
        let sources: usize = manifest.tasks.iter().map(|t| t.sources.len()).sum();
        notice(&format!(
            "'{}': {} rows from {sources} {} ({}) in {} {} ({}), {seconds:.2} s, {}/s, {found}{}",
            plan.path.display(),
            count(total.rows),
            if sources == 1 { "file" } else { "files" },
            bytes(read),
            outputs.len(),
            if outputs.len() == 1 { "file" } else { "files" },
            bytes(outputs.iter().sum()),
            bytes((read as f64 / seconds.max(1e-3)) as u64),
            compared_text(&total, compared, &plan),
        ));
    }
    Ok(())
}

/// How many workers there may be.
fn pool(args: &CopyArgs, plan: &Plan) -> Pool {
    let mut paths = plan.tasks.iter().flatten().map(|source| source.path.as_str());
    let remote = is_remote(&plan.path.to_string_lossy()) || paths.any(is_remote);
    let most = AT_ONCE_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from);
    let parallel = match args.parallel {
        AtOnce::Fixed(n) => Parallel::Fixed(n),
        AtOnce::Auto => Parallel::Auto { most: if remote { most.max(AT_ONCE_REMOTE) } else { most } },
    };
    let files = plan.tasks.iter().map(Vec::len).sum();
    Pool { parallel, memory: args.memory.map(|memory| memory.0), files }
}

fn compared_text(total: &Checksum, compared: bool, plan: &Plan) -> String {
    match (compared, plan.verify) {
        (true, Verify::Full) => format!("; checksum {} on both sides", total.text()),
        (true, _) => "; the number of rows is the same on both sides".to_string(),
        (false, Verify::Off) => "; not compared".to_string(),
        (false, _) => format!("; not compared: {} does not give back the very values", plan.target.options["format"]),
    }
}

/// An error after which what was written is kept.
fn kept(message: String) -> Failure {
    Failure { message: format!("error: {message}"), code: 1 }
}

/// What is to be done, with what an earlier run has done of it; nothing if that had done all.
fn begin(args: &CopyArgs, plan: &Plan, stage: Stage) -> Result<Option<(Stage, Manifest)>, Failure> {
    let usage = |message: String, stage: Stage, fresh: bool| {
        // A directory in which nothing was done is no trace to leave.
        if fresh {
            stage.remove();
        }
        Err(Failure::usage(message))
    };
    // With --overwrite alone everything begins anew, also what cannot be read.
    let earlier = match stage.load() {
        Ok(earlier) => earlier,
        Err(_) if args.overwrite && !args.resume => None,
        Err(message) => return usage(message, stage, false),
    };
    let target = plan.path.display();
    let moved = match &earlier {
        Some(manifest) => stage.was_moved(manifest).map_err(kept)?,
        None => false,
    };
    if let (Some(earlier), true) = (&earlier, moved) {
        let same = earlier.what == plan.what;
        let forgotten = stage.forget();
        if args.resume && same {
            notice(&format!("'{target}' is whole: an earlier run had copied everything"));
            return Ok(None);
        }
        // What cannot be removed would be found again and again.
        forgotten.map_err(|e| kept(format!("'{target}' was copied by an earlier run, of which something stays behind: {e}")))?;
        return begin(args, plan, Stage::open(plan).map_err(kept)?);
    }
    let mut manifest = Manifest::new(plan.what.clone(), plan.tasks.clone());
    match earlier {
        None if args.resume && !args.overwrite && stage.in_the_way(plan, &manifest).map_err(kept)?.is_some() => {
            stage.remove();
            let advice = "--overwrite without --resume copies anew";
            notice(&format!("nothing to resume: '{target}' is there, and no copy to it was left unfinished; {advice}"));
            return Ok(None);
        }
        Some(earlier) if args.resume => {
            if earlier.what != plan.what {
                let advice = "give the same ones, or --overwrite without --resume to begin anew";
                return usage(format!("the unfinished copy to '{target}' was begun with other options or columns; {advice}"), stage, false);
            }
            manifest.take_over(&earlier);
        }
        Some(earlier) if earlier.done() > 0 && !args.overwrite => {
            let message = format!(
                "an unfinished copy to '{target}' is there ({} of {} parts are done); --resume goes on with it, --overwrite begins anew",
                earlier.done(),
                earlier.tasks.len()
            );
            return usage(message, stage, false);
        }
        _ => stage.clear().map_err(kept)?,
    }
    stage.tidy(&mut manifest).map_err(kept)?;
    if let Some(why) = stage.in_the_way(plan, &manifest).map_err(kept)? {
        let fresh = manifest.done() == 0;
        return usage(why, stage, fresh);
    }
    if let Err(message) = stage.save(&manifest) {
        // On a full disk, say, where what was begun would only take more room.
        if manifest.done() == 0 {
            stage.remove();
        }
        return Err(kept(message));
    }
    Ok(Some((stage, manifest)))
}

/// Does the tasks that are not done, and notes each that is.
fn run(plan: &Plan, stage: &Stage, manifest: &mut Manifest, pool: Pool, quiet: bool) -> Result<Found, Failure> {
    let fail = |e: JobError| match e {
        // Its place is in a query that was made for one file, and not in what the user wrote.
        JobError::Sql(e) => Failure::usage(e.to_string()),
        other => failure(&other, "copy", ""),
    };
    let work = Work::new(plan, stage.outlet(plan, manifest).map_err(fail)?);
    let (done, open): (Vec<&Task>, Vec<&Task>) = manifest.tasks.iter().partition(|t| t.done.is_some());
    let before = (done.len(), done.iter().flat_map(|t| &t.sources).map(|s: &Source| s.bytes).sum::<u64>());
    if before.0 > 0 && !quiet {
        notice(&format!("{} of {} parts were done by an earlier run", before.0, manifest.tasks.len()));
    }
    let tasks: Vec<(Task, Arc<Meter>)> = open.into_iter().map(|t| (t.clone(), Arc::new(Meter::new(&t.sources)))).collect();
    let meters: Vec<Arc<Meter>> = tasks.iter().map(|(_, meter)| meter.clone()).collect();
    // With when it may be saved again.
    let shared = Mutex::new((manifest, Instant::now()));
    let result = {
        let _progress = Progress::begin(meters.clone(), before, quiet);
        pool::run_all(
            tasks,
            pool,
            |(task, _)| task.sources.len(),
            || meters.iter().map(|meter| meter.position()).sum(),
            |(task, meter): (Task, Arc<Meter>), at_once| {
                meter.begin();
                let finished = work.run(&task, at_once, &meter)?;
                meter.end();
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (manifest, due) = &mut *shared;
                let known = manifest.tasks.iter_mut().find(|t| t.number == task.number);
                known.expect("a task of the manifest").done = Some(finished);
                let begun = Instant::now();
                if begun >= *due {
                    stage.save(manifest).map_err(JobError::failed)?;
                    *due = Instant::now() + begun.elapsed() * SAVE_REST;
                }
                Ok(())
            },
            || work.stop.store(true, Ordering::Relaxed),
        )
    };
    result.map_err(|e| {
        let (manifest, _) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        give_up(stage, manifest, fail(e))
    })
}

/// After an error: the parts that are done are noted, so that they can be gone on with, and whatever else was written is removed.
/// The error, with what there is to say of that.
fn give_up(stage: &Stage, manifest: &mut Manifest, mut failed: Failure) -> Failure {
    // Before the note is taken: on a full disk this makes room for it. What cannot be removed is found by the next run.
    let _ = stage.tidy(manifest);
    if manifest.done() > 0
        && let Err(unsaved) = stage.save(manifest)
    {
        // It may be why the copy failed.
        if !failed.message.contains(&unsaved) {
            failed.message += &format!("\n{unsaved}");
        }
        // Nobody would go on with parts of which the last note knows nothing.
        if let Ok(Some(noted)) = stage.load() {
            *manifest = noted;
            let _ = stage.tidy(manifest);
        }
    }
    if manifest.done() > 0 {
        failed.message += &format!("\n{} of {} parts are done and kept; --resume goes on", manifest.done(), manifest.tasks.len());
    }
    failed
}

/// The rows of all tasks, and whether all were compared.
fn sum(manifest: &Manifest) -> (Checksum, bool) {
    let (mut total, mut compared) = (Checksum::default(), true);
    for done in manifest.tasks.iter().filter_map(|t| t.done.as_ref()) {
        compared &= done.compared;
        total.merge(Checksum::parse(done.rows, &done.checksum).unwrap_or_default());
    }
    (total, compared)
}

/// Ctrl-C and SIGTERM end the process, as any end does, with what is finished kept; this says so.
fn tell_if_interrupted() -> Result<(), Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure { message: format!("error: listening for signals: {e}"), code: 1 })?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = writeln!(std::io::stderr(), "\ninterrupted; parts that are done are kept, and --resume goes on with them");
            interrupted();
        }
    });
    Ok(())
}
