//! One task of a copy: files are read side by side, their rows written in the order of the files, and what was
//! written is read again and compared. Where it is written is [`super::stage`]'s.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use arrow::array::RecordBatch;
use tidemill_block::{Block, clock};
use tidemill_connect::filesystem::partition;
use tidemill_connect::{Committable, SinkContext, Writer};
use tidemill_plan::{Column, ColumnKind, Table, message};
use tidemill_runtime::JobError;
use tidemill_runtime::batch::BatchRunner;
use tidemill_runtime::parallel::meter::wrote;
use tidemill_runtime::settings::PARALLELISM_MAX;

use super::checksum::Checksum;
use super::manifest::{Done, Source, Task};
use super::plan::{self, Plan};
use super::progress::Meter;
use super::stage::Outlet;
use crate::args::Verify;
use crate::files::{THESE, query};

/// Batches of up to 8,192 rows that wait for the writer, from each file that is read ahead. Few: of wide rows each may have
/// 200 MB.
const QUEUE_BATCHES: usize = 2;

/// What the tasks of a copy share.
pub struct Work<'a> {
    pub plan: &'a Plan,
    outlet: Outlet,
    /// Set when the copy has failed: all tasks end soon.
    pub stop: AtomicBool,
}

impl<'a> Work<'a> {
    /// The work of a plan, writing into an outlet.
    pub fn new(plan: &'a Plan, outlet: Outlet) -> Self {
        Work { plan, outlet, stop: AtomicBool::new(false) }
    }

    /// Does a task, of which so many files are read at once; the number may change meanwhile.
    ///
    /// # Errors
    /// What could not be read or written; the two sides differ.
    pub fn run(&self, task: &Task, at_once: &AtomicUsize, meter: &Meter) -> Result<Done, JobError> {
        let mut writers = (0..self.plan.writers).map(|shard| self.writer(task, shard)).collect::<Result<Vec<_>, _>>()?;
        let sum = if self.plan.query.sort_by.is_some() {
            let shards = at_once.load(Ordering::Acquire).min(PARALLELISM_MAX);
            self.read_and_write(&[&task.sources], &AtomicUsize::new(1), shards, &mut writers, meter)?
        } else {
            let each: Vec<&[Source]> = task.sources.iter().map(std::slice::from_ref).collect();
            self.read_and_write(&each, at_once, 1, &mut writers, meter)?
        };
        let mut prepared: Vec<Committable> = Vec::new();
        for writer in &mut writers {
            prepared.extend(writer.prepare(true)?);
        }
        let (outputs, uploads) = self.outlet.settle(&prepared)?;
        let compared = self.plan.verify != Verify::Off && self.compare(&outputs, sum, meter)?;
        self.outlet.compared(&outputs);
        Ok(Done { rows: sum.rows, checksum: sum.text(), compared, outputs, uploads })
    }

    fn writer(&self, task: &Task, shard: usize) -> Result<Box<dyn Writer>, JobError> {
        Ok(self.outlet.sink.writer(SinkContext {
            shard,
            shards: self.plan.writers,
            schema: self.plan.schema.clone(),
            run_id: self.outlet.run_id(task.number),
            cancelled: Arc::default(),
        })?)
    }

    /// Reads files, some at once, and writes their rows in the order of `inputs`, each of which is one query.
    fn read_and_write(
        &self,
        inputs: &[&[Source]],
        at_once: &AtomicUsize,
        shards: usize,
        writers: &mut [Box<dyn Writer>],
        meter: &Meter,
    ) -> Result<Checksum, JobError> {
        std::thread::scope(|scope| {
            let mut waiting = inputs.iter();
            let mut running: VecDeque<(Receiver<RecordBatch>, _)> = VecDeque::new();
            let (mut sum, mut next) = (Checksum::default(), 0);
            loop {
                while running.len() < at_once.load(Ordering::Acquire).max(1)
                    && let Some(input) = waiting.next()
                {
                    let (send, receive) = sync_channel(QUEUE_BATCHES);
                    running.push_back((receive, scope.spawn(move || self.read(input, shards, &send, meter))));
                }
                let Some((batches, reader)) = running.pop_front() else { return Ok(sum) };
                for batch in &batches {
                    meter.wrote(batch.num_rows() as u64);
                    let begun = Instant::now();
                    writers[next].write(&Block::inserts(batch, clock::now_ns()))?;
                    wrote(begun.elapsed());
                    next = (next + 1) % writers.len();
                }
                let read = reader.join().map_err(|_| JobError::failed("internal error: a thread that read a file panicked"))?;
                sum.merge(read?);
            }
        })
    }

    /// Reads the rows of files and sends them on; gives their checksum.
    fn read(&self, sources: &[Source], shards: usize, send: &SyncSender<RecordBatch>, meter: &Meter) -> Result<Checksum, JobError> {
        let (text, tables) = self.plan.query_over(sources);
        let (plan, settings) = query(&text, tables, shards)?;
        let found = plan::schema(&plan);
        if found != self.plan.schema {
            return Err(JobError::failed(format!("'{}' gives other columns than the files before it", sources[0].path)));
        }
        let runner = BatchRunner::new(&settings)?;
        let reading = meter.reading(sources, Box::new(runner.counters()));
        let mut sum = Checksum::default();
        let mut hashes = Vec::new();
        let gone = || JobError::failed("stopped, since another part of the copy failed");
        runner.query(&plan, |batch| {
            if self.stop.load(Ordering::Relaxed) {
                return Err(gone());
            }
            let batch = RecordBatch::try_new(self.plan.schema.clone(), batch.columns().to_vec()).map_err(JobError::failed)?;
            self.add(&mut sum, &batch, &mut hashes)?;
            send.send(batch).map_err(|_| gone())
        })?;
        meter.read_to_the_end(reading);
        Ok(sum)
    }

    /// Counts rows, and adds up their hashes where they will be compared.
    fn add(&self, sum: &mut Checksum, batch: &RecordBatch, hashes: &mut Vec<u64>) -> Result<(), JobError> {
        if !self.compares_values() {
            sum.rows += batch.num_rows() as u64;
            return Ok(());
        }
        let options = &self.plan.target.options;
        let empty_is_null = options.get("format").is_some_and(|f| f == "csv") && !options.contains_key("csv.null-literal");
        sum.add(batch, empty_is_null, hashes).map_err(|e| JobError::failed(message::of_arrow(&e)))
    }

    /// Whether the target's format gives back the very values that were written, and that is looked at.
    pub fn compares_values(&self) -> bool {
        let format = self.plan.target.options.get("format").map_or("", String::as_str);
        matches!(format, "csv" | "json" | "parquet" | "avro" | "arrow" | "orc") && self.plan.verify == Verify::Full
    }

    /// Reads what was written and compares it with what was read; whether the format allows it.
    fn compare(&self, outputs: &[(String, u64)], expect: Checksum, meter: &Meter) -> Result<bool, JobError> {
        let exact = matches!(self.plan.target.options["format"].as_str(), "csv" | "json" | "parquet" | "avro" | "arrow" | "orc");
        if !exact {
            return Ok(false);
        }
        meter.comparing();
        let mut found = Checksum::default();
        let mut hashes = Vec::new();
        for (name, _) in outputs {
            let names: Vec<String> = self.plan.schema.fields().iter().map(|f| format!("`{}`", f.name().replace('`', "``"))).collect();
            // Without their values the rows of a columnar file are counted by its footer.
            let text = match self.compares_values() {
                true => format!("SELECT {} FROM '{THESE}'", names.join(", ")),
                false => format!("SELECT {} FROM '{THESE}'", self.shortest()),
            };
            let (plan, settings) = query(&text, vec![self.written(name)], 1)?;
            BatchRunner::new(&settings)?.query(&plan, |batch| {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(JobError::failed("stopped, since another part of the copy failed"));
                }
                if !self.compares_values() {
                    found.rows += batch.num_rows() as u64;
                    return Ok(());
                }
                self.add(&mut found, &batch, &mut hashes)
            })?;
        }
        if found.rows != expect.rows {
            return Err(self.differs(&format!("{} rows were read, and {} are in what was written", expect.rows, found.rows)));
        }
        if self.compares_values() && found != expect {
            return Err(self.differs(&format!(
                "the checksum of the {} rows that were read is {}, and that of those written {}",
                expect.rows,
                expect.text(),
                found.text()
            )));
        }
        Ok(true)
    }

    /// The name of a column that is quickly read.
    fn shortest(&self) -> String {
        let fields = self.plan.schema.fields();
        let field = fields.iter().find(|f| f.data_type().is_primitive()).unwrap_or(&fields[0]);
        format!("`{}`", field.name().replace('`', "``"))
    }

    fn differs(&self, how: &str) -> JobError {
        let format = &self.plan.target.options["format"];
        let advice = match format.as_str() {
            "csv" => {
                "CSV cannot hold every value (a row of one NULL is an empty line): --write csv.null-literal=NULL, or another format, can"
            }
            _ => "a disk or the memory may be faulty, or the format cannot hold the values; --verify rows compares the number of rows only",
        };
        JobError::failed(format!("the copy is not the same: {how}. Nothing was put into the target's place. {advice}"))
    }

    /// A file that was written, as a table.
    fn written(&self, name: &str) -> Table {
        let path = self.outlet.parts.join(name);
        let mut options: BTreeMap<String, String> = self.plan.options(&path);
        let by: Vec<String> = partition::pairs(name).into_iter().map(|(column, _)| column).collect();
        for key in ["sink.partition-by", "sink.single-file"] {
            options.remove(key);
        }
        let kind = |column: &str| match by.iter().any(|name| name == column) && self.plan.target.options.contains_key("sink.partition-by") {
            true => ColumnKind::Metadata { key: format!("partition.{column}"), is_virtual: true },
            false => ColumnKind::Physical,
        };
        let column = |f: &arrow::datatypes::FieldRef| Column {
            name: f.name().clone(),
            data_type: f.data_type().clone(),
            nullable: true,
            kind: kind(f.name()),
        };
        let columns = self.plan.schema.fields().iter().map(column).collect();
        Table { name: path.to_string_lossy().into_owned(), columns, watermark: None, primary_key: Vec::new(), options }
    }
}
