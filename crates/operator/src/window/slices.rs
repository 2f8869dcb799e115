//! TUMBLE, HOP and CUMULATE: rows are aggregated once, in slices, and a window is the sum of its
//! slices (Krishnamurthy, Wu, Franklin: On-the-fly sharing for streamed aggregation, SIGMOD 2006).

use std::collections::BTreeMap;

use arrow::array::{BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use tidemill_block::{Block, NO_WATERMARK, WATERMARK_END};
use tidemill_plan::WindowKind;
use tidemill_state::{Slots, StateTable};

use super::groups::{Groups, Inputs};
use super::hop::HopWindow;
use super::{WindowSpec, time_column, times};
use crate::{BLOCK_ROWS_MAX, Operator, OperatorError, OperatorStats, Output, Progress};

/// Aggregates in windows whose bounds depend on time alone.
pub struct SliceAggregate {
    spec: WindowSpec,
    kind: WindowKind,
    /// The rows are results of the same windows: their time column holds the window's end.
    attached: bool,
    /// Width of a slice, ms.
    width: i64,
    offset: i64,
    /// Groups of each slice, by its end.
    slices: BTreeMap<i64, Groups>,
    /// Rows that are late for some of their windows and in time for others, by window end: they
    /// must not enter the slice, which the other windows share.
    stragglers: BTreeMap<i64, Groups>,
    /// HOP: the slices of the last window, merged. Made again from `slices` after a restart.
    hop: Option<HopWindow>,
    /// CUMULATE: the groups since the start of the window, and the end up to which they reach.
    cumulated: Option<(i64, Groups)>,
    /// End of the last window that was emitted.
    fired: i64,
    watermark: i64,
    emitting: Option<Emitting>,
    scratch: Slots,
    arrival_ns: u64,
    late_rows: u64,
}

struct Emitting {
    /// What the window holds; `None`: what [`SliceAggregate::hop`] holds.
    groups: Option<Groups>,
    slots: Vec<u32>,
    at: usize,
    end: i64,
    /// CUMULATE goes on with the groups when they are emitted.
    keep: bool,
}

impl SliceAggregate {
    /// Aggregates by `spec` in windows of `kind`, which is not SESSION.
    pub fn new(spec: WindowSpec, kind: WindowKind) -> Self {
        let (width, offset) = match kind {
            WindowKind::Tumble { size, offset } => (size, offset),
            WindowKind::Hop { slide, offset, .. } => (slide, offset),
            WindowKind::Cumulate { step, offset, .. } => (step, offset),
            WindowKind::Session { .. } => unreachable!("sessions have an operator of their own"),
        };
        SliceAggregate {
            spec,
            kind,
            attached: false,
            width,
            offset,
            slices: BTreeMap::new(),
            stragglers: BTreeMap::new(),
            hop: None,
            cumulated: None,
            fired: NO_WATERMARK,
            watermark: NO_WATERMARK,
            emitting: None,
            scratch: Slots::default(),
            arrival_ns: 0,
            late_rows: 0,
        }
    }

    /// Aggregates rows that are themselves results of windows of `kind`, each in its own window;
    /// the time column of `spec` is the end of that window.
    pub fn attached(spec: WindowSpec, kind: WindowKind) -> Self {
        SliceAggregate { attached: true, ..SliceAggregate::new(spec, kind) }
    }

    #[inline]
    fn slice_end(&self, t: i64) -> i64 {
        t - (t - self.offset).rem_euclid(self.width) + self.width
    }

    /// Start of the CUMULATE window that holds the slice ending at `end`.
    fn cumulate_start(&self, end: i64, size: i64) -> i64 {
        let inside = end - 1;
        inside - (inside - self.offset).rem_euclid(size)
    }

    /// End of the last window that a row of the slice ending at `end` belongs to.
    fn last_window(&self, end: i64) -> i64 {
        match self.kind {
            _ if self.attached => end,
            WindowKind::Hop { slide, size, .. } => end + size - slide,
            WindowKind::Cumulate { size, .. } => self.cumulate_start(end, size) + size,
            _ => end,
        }
    }

    fn window_start(&self, end: i64) -> i64 {
        match self.kind {
            WindowKind::Hop { size, .. } | WindowKind::Tumble { size, .. } => end - size,
            WindowKind::Cumulate { size, .. } => self.cumulate_start(end, size),
            WindowKind::Session { .. } => unreachable!(),
        }
    }

    fn inputs(&self, block: &Block) -> Result<Inputs, OperatorError> {
        let rows = block.rows();
        Ok(Inputs {
            keys: self
                .spec
                .keys
                .iter()
                .map(|k| Ok(k.evaluate(&block.batch)?.into_array(rows)?))
                .collect::<Result<Vec<_>, OperatorError>>()?,
            calls: self.spec.calls.iter().map(|c| c.evaluate(block)).collect::<Result<Vec<_>, _>>()?,
        })
    }

    /// Sorts out late rows and returns the ones that are in time for all of their windows.
    fn without_late(&mut self, block: Block, times: &mut Vec<i64>) -> Result<Block, OperatorError> {
        let behind = block.row_watermarks.is_some() || times.iter().min().is_some_and(|t| *t <= self.watermark);
        if !behind {
            return Ok(block);
        }
        let mut in_time = Vec::with_capacity(block.rows());
        let mut straggling: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        for (row, &t) in times.iter().enumerate() {
            let watermark = block.row_watermark(row).max(self.watermark);
            let slice = self.slice_end(t);
            // A window is over when the watermark reaches its last millisecond.
            if slice - 1 > watermark {
                in_time.push(true);
                continue;
            }
            in_time.push(false);
            let mut late = true;
            if self.last_window(slice) - 1 > watermark {
                self.kind.windows_of(t, |_, end| {
                    if end - 1 > watermark {
                        late = false;
                        straggling.entry(end).or_default().push(row as u32);
                    }
                });
            }
            self.late_rows += u64::from(late);
        }
        for (end, rows) in straggling {
            let part = block.take(&UInt32Array::from(rows))?;
            let inputs = self.inputs(&part)?;
            let groups = match self.stragglers.entry(end) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => e.insert(Groups::new(&self.spec)?),
            };
            groups.update(part.rows(), &inputs, &mut self.scratch)?;
        }
        if in_time.iter().all(|t| *t) {
            return Ok(block);
        }
        let mut keep = in_time.iter();
        times.retain(|_| *keep.next().expect("as many marks as times"));
        Ok(block.filter(&BooleanArray::from(in_time))?)
    }

    fn slice(&mut self, end: i64) -> Result<&mut Groups, OperatorError> {
        Ok(match self.slices.entry(end) {
            std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::btree_map::Entry::Vacant(e) => e.insert(Groups::new(&self.spec)?),
        })
    }

    fn take_in(&mut self, end: i64, rows: usize, inputs: &Inputs) -> Result<(), OperatorError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = self.slice(end)?.update(rows, inputs, &mut scratch);
        self.scratch = scratch;
        result
    }

    /// The end of the next window that has rows.
    fn next_window(&self) -> Option<i64> {
        let slice = self.slices.keys().next().copied();
        let straggler = self.stragglers.keys().next().copied();
        let own = match self.kind {
            _ if self.attached => slice,
            // The oldest slice is part of every window up to its last; those fired are behind us.
            WindowKind::Hop { slide, .. } => slice.map(|s| if self.fired == NO_WATERMARK { s } else { s.max(self.fired + slide) }),
            WindowKind::Cumulate { step, .. } => match (&self.cumulated, slice) {
                (Some((end, _)), _) => Some(end + step),
                (None, s) => s,
            },
            _ => slice,
        };
        match (own, straggler) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// The groups of the window that ends at `end`, and whether they are needed again; no groups mean
    /// those of `hop`.
    fn close(&mut self, end: i64) -> Result<(Option<Groups>, bool), OperatorError> {
        let (groups, keep) = match self.kind {
            _ if self.attached => (self.slices.remove(&end), false),
            WindowKind::Hop { slide, size, .. } => {
                let hop = match &mut self.hop {
                    Some(hop) => hop,
                    None => self.hop.insert(HopWindow::new(&self.spec)?),
                };
                let first = hop.newest().map_or(i64::MIN, |newest| newest + 1).max(end - size + slide);
                for (slice_end, slice) in self.slices.range_mut(first..=end) {
                    hop.include(*slice_end, slice)?;
                }
                self.fired = end;
                return Ok(match self.stragglers.remove(&end) {
                    None => (None, false),
                    Some(mut late) => {
                        let mut all = hop.copy(&self.spec)?;
                        all.merge(&mut late)?;
                        (Some(all), false)
                    }
                });
            }
            WindowKind::Cumulate { size, .. } => {
                let mut all = match self.cumulated.take() {
                    Some((_, groups)) => groups,
                    None => Groups::new(&self.spec)?,
                };
                if let Some(mut slice) = self.slices.remove(&end) {
                    all.merge(&mut slice)?;
                }
                (Some(all), end < self.cumulate_start(end, size) + size)
            }
            _ => (self.slices.remove(&end), false),
        };
        let mut groups = groups.map_or_else(|| Groups::new(&self.spec), Ok)?;
        self.fired = end;
        if let Some(mut late) = self.stragglers.remove(&end) {
            if keep {
                // Stragglers are listed under each of their windows, so they stay out of the sum.
                let mut with = Groups::new(&self.spec)?;
                with.merge(&mut groups)?;
                with.merge(&mut late)?;
                self.cumulated = Some((end, groups));
                return Ok((Some(with), false));
            }
            groups.merge(&mut late)?;
        }
        Ok((Some(groups), keep))
    }

    /// HOP: forgets the slices for which the window that ends at `end` was the last.
    fn forget_slices(&mut self, end: i64) -> Result<(), OperatorError> {
        let (WindowKind::Hop { slide, size, .. }, false) = (self.kind, self.attached) else { return Ok(()) };
        while let Some(oldest) = self.slices.keys().next().copied().filter(|slice| *slice <= end - size + slide) {
            if let Some(hop) = &mut self.hop {
                hop.leave(oldest, &mut self.slices, &self.spec)?;
            }
            self.slices.remove(&oldest);
        }
        Ok(())
    }
}

impl Operator for SliceAggregate {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn on_block(&mut self, _input: usize, block: Block, _out: &mut Output) -> Result<(), OperatorError> {
        self.arrival_ns = self.arrival_ns.max(block.arrival_ns);
        let mut times = times(&block, self.spec.time)?;
        if self.attached {
            times.iter_mut().for_each(|t| *t -= 1);
        }
        let block = self.without_late(block, &mut times)?;
        if times.is_empty() {
            return Ok(());
        }
        let inputs = self.inputs(&block)?;
        let (low, high) = times.iter().fold((i64::MAX, i64::MIN), |(l, h), t| (l.min(*t), h.max(*t)));
        let first = self.slice_end(low);
        if high < first {
            return self.take_in(first, times.len(), &inputs);
        }
        // Runs of rows of one slice; events mostly come in order, so there are few of them.
        let ends: Vec<i64> = times.iter().map(|t| self.slice_end(*t)).collect();
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for row in 0..ends.len() {
            match runs.last_mut() {
                Some((from, length)) if ends[*from] == ends[row] => *length += 1,
                _ => runs.push((row, 1)),
            }
        }
        let distinct = ((high - low) / self.width) as usize + 2;
        if runs.len() <= distinct.saturating_mul(4).max(16) {
            for (from, length) in runs {
                self.take_in(ends[from], length, &inputs.slice(from, length))?;
            }
            return Ok(());
        }
        let mut order: Vec<u32> = (0..ends.len() as u32).collect();
        order.sort_by_key(|r| ends[*r as usize]);
        let indices = UInt32Array::from(order.clone());
        let sorted = Inputs {
            keys: inputs.keys.iter().map(|k| take(k, &indices, None)).collect::<Result<_, _>>()?,
            calls: inputs
                .calls
                .iter()
                .map(|(values, mask)| {
                    let values = values.iter().map(|v| take(v, &indices, None)).collect::<Result<Vec<_>, _>>()?;
                    let mask = mask.as_ref().map(|m| take(m, &indices, None)).transpose()?;
                    Ok((values, mask.map(|m| arrow::array::AsArray::as_boolean(m.as_ref()).clone())))
                })
                .collect::<Result<_, OperatorError>>()?,
        };
        let mut from = 0;
        while from < order.len() {
            let end = ends[order[from] as usize];
            let length = order[from..].iter().take_while(|r| ends[**r as usize] == end).count();
            self.take_in(end, length, &sorted.slice(from, length))?;
            from += length;
        }
        Ok(())
    }

    fn on_watermark(&mut self, watermark: i64, out: &mut Output) -> Result<Progress, OperatorError> {
        self.watermark = self.watermark.max(watermark);
        if self.emitting.is_none() {
            let Some(end) = self.next_window().filter(|end| watermark == WATERMARK_END || end - 1 <= watermark) else {
                return Ok(Progress::Done);
            };
            let (groups, keep) = self.close(end)?;
            let slots = match (&groups, &self.hop) {
                (Some(groups), _) => groups.table.slots(),
                (None, Some(hop)) => hop.slots(),
                (None, None) => Vec::new(),
            };
            self.emitting = Some(Emitting { groups, slots, at: 0, end, keep });
        }
        let mut emitting = self.emitting.take().expect("set above");
        let until = (emitting.at + BLOCK_ROWS_MAX).min(emitting.slots.len());
        if emitting.at < until {
            let slots = &emitting.slots[emitting.at..until];
            let mut columns = match (&mut emitting.groups, &mut self.hop) {
                (Some(groups), _) => groups.results(slots)?,
                (None, Some(hop)) => hop.results(slots, &self.spec)?,
                (None, None) => unreachable!("a window is either of its own or a HOP"),
            };
            let width = columns.len();
            let (start, end) = (self.window_start(emitting.end), emitting.end);
            for (i, ms) in [start, end, end - 1].into_iter().enumerate() {
                columns.push(time_column(vec![ms; slots.len()], self.spec.schema.field(width + i).data_type())?);
            }
            out.emit(Block::inserts(RecordBatch::try_new(self.spec.schema.clone(), columns)?, self.arrival_ns));
        }
        emitting.at = until;
        if until < emitting.slots.len() {
            self.emitting = Some(emitting);
            return Ok(Progress::More);
        }
        self.forget_slices(emitting.end)?;
        if let (true, Some(groups)) = (emitting.keep, emitting.groups) {
            self.cumulated = Some((emitting.end, groups));
        }
        Ok(Progress::More)
    }

    fn snapshot(&mut self) -> Result<Vec<StateTable>, OperatorError> {
        assert!(self.emitting.is_none(), "a barrier follows a watermark only when its output has left");
        let mut tables = Vec::new();
        for (end, groups) in &mut self.slices {
            tables.push(groups.save(format!("slice {end}"))?);
        }
        for (end, groups) in &mut self.stragglers {
            tables.push(groups.save(format!("straggler {end}"))?);
        }
        if let Some((end, groups)) = &mut self.cumulated {
            tables.push(groups.save(format!("cumulated {end}"))?);
        }
        if self.fired != NO_WATERMARK {
            // Not keyed: every shard learns what was fired.
            tables.push(StateTable {
                name: format!("fired {}", self.fired),
                batch: RecordBatch::try_from_iter([(
                    "fired",
                    time_column(vec![self.fired], &arrow::datatypes::DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None))?,
                )])?,
            });
        }
        Ok(tables)
    }

    fn restore(&mut self, tables: Vec<StateTable>) -> Result<(), OperatorError> {
        for table in tables {
            let wrong = || OperatorError::new(format!("the checkpoint has a state table '{}' that this version does not know", table.name));
            let (what, end) = table.name.split_once(' ').ok_or_else(wrong)?;
            let end: i64 = end.parse().map_err(|_| wrong())?;
            match what {
                "slice" => {
                    let mut groups = self.slices.remove(&end).map_or_else(|| Groups::new(&self.spec), Ok)?;
                    groups.load(&self.spec, &table)?;
                    self.slices.insert(end, groups);
                }
                "straggler" => {
                    let mut groups = self.stragglers.remove(&end).map_or_else(|| Groups::new(&self.spec), Ok)?;
                    groups.load(&self.spec, &table)?;
                    self.stragglers.insert(end, groups);
                }
                "cumulated" => {
                    let (_, mut groups) = self.cumulated.take().map_or_else(|| Groups::new(&self.spec).map(|g| (end, g)), Ok)?;
                    groups.load(&self.spec, &table)?;
                    self.cumulated = Some((end, groups));
                }
                "fired" => self.fired = self.fired.max(end),
                _ => return Err(wrong()),
            }
        }
        // A shard that got no rows of a slice need not emit its windows.
        self.slices.retain(|_, g| !g.table.is_empty());
        self.stragglers.retain(|_, g| !g.table.is_empty());
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        let all = self.slices.values().chain(self.stragglers.values()).chain(self.cumulated.iter().map(|(_, g)| g));
        let (entries, memory) = all.fold((0, 0), |(n, m), g| (n + g.table.len(), m + g.memory()));
        let memory = memory + self.hop.as_ref().map_or(0, HopWindow::memory);
        OperatorStats { entries: entries as u64, memory: memory as u64, late_rows: self.late_rows, ..OperatorStats::default() }
    }
}
