//! The join against a scripted other side, whose answers come when and in what order the test wants, on a
//! clock that the test moves.

use std::cell::Cell;
use std::sync::Mutex;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::Operator as Symbol;
use datafusion_physical_expr::expressions::{Column, binary};
use tidemill_block::{WATERMARK_END, text};

use super::*;
use crate::call::{Answered, Failure, Found};

const MS: u64 = 1_000_000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(MS) };
}

fn now() -> u64 {
    NOW.with(Cell::get)
}

fn wait(ms: u64) {
    NOW.with(|n| n.set(n.get() + ms * MS));
}

/// The other side: calls that have not been answered, and answers that have not been fetched.
#[derive(Default)]
struct Remote {
    open: Vec<(u64, Vec<i64>)>,
    done: Vec<Answered>,
    cancelled: usize,
    asked: Vec<i64>,
    prepares: bool,
    /// What is prepared becomes ready as soon as answers have been looked for.
    ready_next: bool,
    wake: Option<Wake>,
}

#[derive(Clone, Default)]
struct Side(Arc<Mutex<Remote>>);

impl Calls for Side {
    fn start(&mut self, call: u64, keys: &RecordBatch) -> Result<(), OperatorError> {
        let keys = keys.column(0).as_primitive::<Int64Type>().values().to_vec();
        let mut remote = self.0.lock().unwrap();
        remote.asked.extend(&keys);
        remote.open.push((call, keys));
        Ok(())
    }

    fn cancel(&mut self, call: u64) {
        let mut remote = self.0.lock().unwrap();
        remote.cancelled += 1;
        remote.open.retain(|(c, _)| *c != call);
    }

    fn prepares(&self) -> bool {
        self.0.lock().unwrap().prepares
    }

    fn finished(&mut self, into: &mut Vec<Answered>) {
        let mut remote = self.0.lock().unwrap();
        into.append(&mut remote.done);
        if std::mem::take(&mut remote.ready_next) {
            remote.prepares = false;
        }
    }
}

impl Side {
    fn open(&self) -> usize {
        self.0.lock().unwrap().open.len()
    }

    /// Answers the call at a place, or lets it fail.
    fn answer(&self, place: usize, failure: Option<Failure>) {
        let mut remote = self.0.lock().unwrap();
        let (call, keys) = remote.open.remove(place);
        remote.done.push(Answered { call, result: failure.map_or_else(|| Ok(found(&keys)), Err) });
        let wake = remote.wake.clone().unwrap();
        drop(remote);
        wake();
    }

    fn asked(&self) -> Vec<i64> {
        std::mem::take(&mut self.0.lock().unwrap().asked)
    }
}

/// What there is for a key: none, one or two rows.
fn rows_of(key: i64) -> Vec<(i64, i64)> {
    (0..key.rem_euclid(3)).map(|n| (key, key * 10 + n)).collect()
}

fn found(keys: &[i64]) -> Found {
    let of_key = |(i, key): (usize, &i64)| rows_of(*key).into_iter().map(move |row| (i as u32, row));
    let rows: Vec<(u32, (i64, i64))> = keys.iter().enumerate().flat_map(of_key).collect();
    let column = |f: fn(&(i64, i64)) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(rows.iter().map(|(_, r)| f(r)))) };
    let batch = RecordBatch::try_new(schema(&["key", "v"]), vec![column(|r| r.0), column(|r| r.1)]).unwrap();
    Found { rows: batch, origins: rows.iter().map(|(origin, _)| *origin).collect() }
}

fn schema(names: &[&str]) -> SchemaRef {
    Arc::new(Schema::new(names.iter().map(|n| Field::new(*n, DataType::Int64, true)).collect::<Vec<_>>()))
}

fn spec() -> LookupSpec {
    LookupSpec {
        name: "table 't'".into(),
        input: schema(&["id", "k"]),
        columns: schema(&["key", "v"]),
        schema: schema(&["id", "k", "key", "v"]),
        keys: vec![Arc::new(Column::new("k", 1))],
        key_columns: schema(&["key"]),
        residual: None,
        left: true,
        ordered: true,
        by_key: false,
        cache: None,
        asking: AskSpec {
            keys_max: 1,
            capacity: Some(4),
            per_partition: None,
            timeout: Duration::from_secs(10),
            retries: 3,
            retry_delay: Duration::from_millis(100),
            misses: None,
            fail: true,
        },
    }
}

fn join(spec: &LookupSpec) -> (LookupJoin, Side) {
    let side = Side::default();
    let theirs = side.clone();
    let open: OpenCalls = Arc::new(move |wake, _, _| {
        theirs.0.lock().unwrap().wake = Some(wake);
        Ok(Box::new(theirs.clone()) as Box<dyn Calls>)
    });
    let mut join = LookupJoin::new(spec.clone(), open).unwrap().with_clock(now);
    join.attach(Arc::new(|| {}));
    (join, side)
}

fn lines(out: &mut Output) -> Vec<String> {
    out.blocks.drain(..).flat_map(|b| text::format(&b).lines().map(str::to_string).collect::<Vec<_>>()).collect()
}

/// Gives rows to a join; what came out.
fn give(join: &mut LookupJoin, rows: &str) -> Vec<String> {
    let mut out = Output::default();
    join.on_block(0, text::parse(&schema(&["id", "k"]), rows), &mut out).unwrap();
    lines(&mut out)
}

fn poll(join: &mut LookupJoin) -> Vec<String> {
    let mut out = Output::default();
    join.poll(&mut out).unwrap();
    lines(&mut out)
}

fn failure(join: &mut LookupJoin) -> String {
    join.poll(&mut Output::default()).unwrap_err().to_string()
}

fn watermark(join: &mut LookupJoin, watermark: i64) -> Progress {
    join.on_watermark(watermark, &mut Output::default()).unwrap()
}

// ---- in order, whatever comes when -------------------------------------------------------------

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// What a look-up of each row at once would give.
fn expected(spec: &LookupSpec, rows: &[(RowKind, i64, Option<i64>)]) -> Vec<String> {
    let mut expect = Vec::new();
    for (kind, id, key) in rows {
        let matches = key.map(rows_of).unwrap_or_default();
        let passes = |r: &&(i64, i64)| spec.residual.is_none() || r.1 > *id;
        let before = expect.len();
        for (k, v) in matches.iter().filter(passes) {
            expect.push(format!("{kind} {id} {k} {k} {v}"));
        }
        if expect.len() == before && spec.left {
            expect.push(format!("{kind} {id} {} NULL NULL", key.map_or("NULL".into(), |k| k.to_string())));
        }
    }
    expect
}

fn random_spec(random: &mut Random) -> LookupSpec {
    let mut spec = spec();
    (spec.left, spec.ordered) = (random.below(2) == 0, random.below(3) > 0);
    if random.below(2) == 0 {
        let predicate = binary(Arc::new(Column::new("v", 1)), Symbol::Gt, Arc::new(Column::new("id", 0)), &Schema::empty()).unwrap();
        spec.residual = Some(Residual { predicate, columns: vec![0, 3], schema: schema(&["id", "v"]) });
    }
    if random.below(2) == 0 {
        let ttl = |random: &mut Random| (random.below(2) == 0).then_some(50 * MS);
        let (rows_max, missing) = (Some(1 + random.below(20) as usize), random.below(2) == 0);
        spec.cache = Some(CacheSpec { rows_max, after_write_ns: ttl(random), after_access_ns: ttl(random), missing });
    }
    spec.asking.keys_max = [1, 3][random.below(2) as usize];
    spec.asking.capacity = [None, Some(1), Some(5)][random.below(3) as usize];
    spec.asking.per_partition = [None, Some(2)][random.below(2) as usize];
    (spec.asking.retries, spec.asking.timeout) = (1000, Duration::from_secs(100_000));
    spec
}

/// Answers come in any order, calls fail, blocks are of any size, of one partition or of several, and the state is taken and given back
/// at any moment: what comes out is what look-ups at once would give, in the order of each partition if order is kept.
#[test]
fn output_is_that_of_synchronous_look_ups() {
    for seed in 1..=400_u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let spec = random_spec(&mut random);
        let kinds = [RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];
        let changes = random.below(2) * 3 + 1;
        let rows: Vec<(RowKind, i64, Option<i64>)> = (0..20 + random.below(200) as i64)
            .map(|id| (kinds[random.below(changes) as usize], id, (random.below(8) > 0).then(|| random.below(25) as i64)))
            .collect();
        let (mut join, mut side) = join(&spec);
        let (mut got, mut at) = (Vec::new(), 0);
        let mut partitions = Vec::new();
        // A few, or many of which each is soon over.
        let few = random.below(3) > 0;
        let pick = |random: &mut Random, at: usize| random.below(3) as u32 + if few { 0 } else { at as u32 };
        let mut ending = false;
        for step in 0.. {
            assert!(step < 100_000, "seed {seed}: no end");
            match random.below(10) {
                0..=3 if at < rows.len() && !join.full() => {
                    let size = ([1, 1, 5, 60][random.below(4) as usize]).min(rows.len() - at);
                    let line = |(kind, id, key): &(RowKind, i64, Option<i64>)| {
                        format!("{kind} {id} {}\n", key.map_or("NULL".into(), |k| k.to_string()))
                    };
                    let block = text::parse(&spec.input, &rows[at..at + size].iter().map(line).collect::<String>());
                    let mut out = Output::default();
                    // A block of no partition has rows of several.
                    let block = if random.below(4) == 0 {
                        partitions.extend((at..at + size).map(|at| pick(&mut random, at)));
                        block
                    } else {
                        let partition = pick(&mut random, at);
                        partitions.resize(at + size, partition);
                        block.in_partition(partition)
                    };
                    join.on_block(0, block, &mut out).unwrap();
                    got.extend(lines(&mut out));
                    at += size;
                }
                4..=7 if side.open() > 0 => {
                    let fails = random.below(5) == 0;
                    let failure = Failure { reason: "busy".into(), retry: true, after: None };
                    side.answer(random.below(side.open() as u64) as usize, fails.then_some(failure));
                }
                8 => wait(random.below(40)),
                9 if random.below(6) == 0 => {
                    let tables = join.snapshot().unwrap();
                    (join, side) = self::join(&spec);
                    join.restore(tables).unwrap();
                    ending = false;
                }
                _ => {}
            }
            got.extend(poll(&mut join));
            if at == rows.len() && (ending || random.below(4) == 0) {
                ending = true;
                if watermark(&mut join, WATERMARK_END) == Progress::Done {
                    break;
                }
                wait(10);
            }
        }
        assert_eq!((join.order.rows(), side.open(), join.holds()), (0, 0, false), "seed {seed}");
        let mut expect = expected(&spec, &rows);
        if spec.ordered {
            // Stable: within a partition the order stays as it is.
            let partition = |line: &String| {
                let id = line.split(' ').nth(1).expect("behind the kind");
                partitions[id.parse::<usize>().expect("a number")]
            };
            got.sort_by_key(partition);
            expect.sort_by_key(partition);
        } else {
            got.sort();
            expect.sort();
        }
        assert!(got == expect, "seed {seed}:\n{}\ninstead of\n{}", got.join("\n"), expect.join("\n"));
        let kept = join.asks.len();
        assert!(spec.cache.is_some() || kept == 0, "seed {seed}: {kept} answers stay");
    }
}

#[test]
fn rows_leave_in_order_or_as_answers_come() {
    let mut of = spec();
    let (mut ordered, side) = join(&of);
    assert_eq!(give(&mut ordered, "1 4\n2 7"), Vec::<String>::new());
    side.answer(1, None);
    assert_eq!(poll(&mut ordered), Vec::<String>::new());
    side.answer(0, None);
    assert_eq!(poll(&mut ordered), ["+I 1 4 4 40", "+I 2 7 7 70"]);
    of.ordered = false;
    let (mut unordered, side) = join(&of);
    give(&mut unordered, "1 4\n2 7");
    side.answer(1, None);
    assert_eq!(poll(&mut unordered), ["+I 2 7 7 70"]);
    side.answer(0, None);
    assert_eq!(poll(&mut unordered), ["+I 1 4 4 40"]);
}

#[test]
fn no_row_overtakes_a_watermark() {
    for ordered in [true, false] {
        let (mut join, side) = join(&LookupSpec { ordered, ..spec() });
        assert_eq!((watermark(&mut join, 5), join.output_watermark(5)), (Progress::Done, 5));
        give(&mut join, "1 4\n2 7");
        assert_eq!((watermark(&mut join, 10), join.output_watermark(10)), (Progress::Done, 5));
        give(&mut join, "3 1");
        assert_eq!((watermark(&mut join, 20), join.output_watermark(20)), (Progress::Done, 5));
        side.answer(2, None);
        assert_eq!((poll(&mut join), join.output_watermark(20)), (Vec::new(), 5), "ordered: {ordered}");
        side.answer(0, None);
        side.answer(0, None);
        assert_eq!(poll(&mut join), ["+I 1 4 4 40", "+I 2 7 7 70", "+I 3 1 1 10"]);
        assert_eq!((join.output_watermark(20), join.holds()), (20, false));
        give(&mut join, "4 4");
        assert_eq!((watermark(&mut join, WATERMARK_END), join.holds()), (Progress::Waiting, true));
        side.answer(0, None);
        assert_eq!(poll(&mut join).len(), 1);
        assert_eq!(watermark(&mut join, WATERMARK_END), Progress::Done);
    }
}

/// Else later rows of the same split, or of the same upstream key, would overtake them after a restart.
#[test]
fn rows_that_wait_stay_together_in_a_checkpoint() {
    for (shards, shard) in [(1, 0), (2, 1), (3, 1), (3, 2), (7, 6)] {
        let (mut join, _side) = join(&spec());
        join.place(shard, shards);
        give(&mut join, "1 4\n2 7\n3 8");
        let state = join.snapshot().unwrap();
        assert!(state[0].hashes().iter().all(|h| hash::shard(*h, shards) == shard), "{shard} of {shards}");
        let split = text::parse(&schema(&["id", "k"]), "4 1\n5 2").in_partition(9);
        join.on_block(0, split, &mut Output::default()).unwrap();
        let state = join.snapshot().unwrap();
        assert_eq!((state[0].name.as_str(), &state[0].hashes()[3..]), (WAITING, &[split_hash(9); 2][..]));
    }
}

// ---- what is asked -----------------------------------------------------------------------------

#[test]
fn rows_of_a_key_share_a_call_while_it_is_under_way() {
    let (mut join, side) = join(&spec());
    give(&mut join, "1 4\n2 4\n3 7\n4 NULL");
    give(&mut join, "5 7");
    assert_eq!(side.asked(), [4, 7]);
    side.answer(0, None);
    poll(&mut join);
    // Without a cache an answer is good for those that waited for it.
    give(&mut join, "6 4");
    assert_eq!(side.asked(), [4]);
    let calls = join.stats().calls;
    assert_eq!((calls.calls, calls.in_flight, calls.asked, calls.hits), (3, 2, 5, 2));
}

#[test]
fn calls_are_bounded_and_carry_many_keys() {
    let mut of = spec();
    (of.asking.keys_max, of.asking.capacity) = (3, Some(2));
    let (mut join, side) = join(&of);
    give(&mut join, "1 1\n2 2\n3 3\n4 4\n5 5\n6 6\n7 7");
    let keys = |side: &Side| side.0.lock().unwrap().open.iter().map(|(_, keys)| keys.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&side), [vec![1, 2, 3], vec![4, 5, 6]]);
    side.answer(0, None);
    assert_eq!(poll(&mut join).len(), 4);
    assert_eq!(keys(&side), [vec![4, 5, 6], vec![7]]);
}

#[test]
fn partitions_have_bounds_of_their_own() {
    let mut of = spec();
    (of.asking.per_partition, of.asking.capacity) = (Some(1), Some(100));
    let (mut join, side) = join(&of);
    for (partition, rows) in [(1, "1 1\n2 2"), (2, "3 3"), (1, "4 4")] {
        let block = text::parse(&of.input, rows).in_partition(partition);
        join.on_block(0, block, &mut Output::default()).unwrap();
    }
    assert_eq!(side.asked(), [1, 3]);
    side.answer(0, None);
    poll(&mut join);
    assert_eq!(side.asked(), [2]);
}

/// Rows of a partition wait for each other, and a watermark for all of them.
#[test]
fn a_slow_answer_holds_up_its_own_partition_only() {
    let of = spec();
    let (mut join, side) = join(&of);
    let in_partition = |join: &mut LookupJoin, partition: u32, rows: &str| {
        join.on_block(0, text::parse(&of.input, rows).in_partition(partition), &mut Output::default()).unwrap();
    };
    assert_eq!(watermark(&mut join, 5), Progress::Done);
    in_partition(&mut join, 1, "1 1");
    in_partition(&mut join, 1, "2 4");
    assert_eq!(watermark(&mut join, 10), Progress::Done);
    in_partition(&mut join, 2, "3 7");
    // Of the second and the third row.
    side.answer(2, None);
    side.answer(1, None);
    let mut out = Output::default();
    join.poll(&mut out).unwrap();
    assert_eq!(out.blocks.iter().map(|block| block.partition()).collect::<Vec<_>>(), [Some(2)]);
    assert_eq!((lines(&mut out), join.output_watermark(10)), (vec!["+I 3 7 7 70".to_string()], 5));
    side.answer(0, None);
    assert_eq!((poll(&mut join).len(), join.output_watermark(10), join.holds()), (2, 10, false));
}

/// `block.linger` puts rows of several partitions into one block, which is then of none: a row of one of them overtook those of
/// its own partition that were in there, a deletion its insertion. So did rows that came after a restart.
#[test]
fn rows_of_no_partition_overtake_none_and_are_not_overtaken() {
    let of = spec();
    for restarted in [false, true] {
        let (mut join, mut side) = join(&of);
        let blocks = [(Some(1), "1 1"), (None, "2 4\n3 7"), (Some(1), "4 10"), (Some(2), "5 13")];
        for (number, (partition, rows)) in blocks.into_iter().enumerate() {
            if restarted && number == 2 {
                let tables = join.snapshot().unwrap();
                (join, side) = self::join(&of);
                join.restore(tables).unwrap();
                assert_eq!(poll(&mut join), Vec::<String>::new());
            }
            let block = text::parse(&of.input, rows);
            let block = match partition {
                Some(partition) => block.in_partition(partition),
                None => block,
            };
            join.on_block(0, block, &mut Output::default()).unwrap();
        }
        let answer = |key: i64| {
            let place = side.0.lock().unwrap().open.iter().position(|(_, keys)| keys[0] == key);
            side.answer(place.expect("it was asked"), None);
        };
        answer(4);
        assert_eq!(poll(&mut join), Vec::<String>::new());
        answer(10);
        assert_eq!(poll(&mut join), Vec::<String>::new());
        answer(1);
        assert_eq!(poll(&mut join), ["+I 1 1 1 10", "+I 2 4 4 40"]);
        answer(13);
        assert_eq!(poll(&mut join), Vec::<String>::new());
        answer(7);
        assert_eq!(poll(&mut join), ["+I 3 7 7 70", "+I 4 10 10 100", "+I 5 13 13 130"]);
        assert_eq!((join.order.rows(), join.holds()), (0, false));
    }
}

/// A directory has a partition for each of its files, and each was kept for ever.
#[test]
fn partitions_leave_nothing_behind() {
    let of = spec();
    let (mut join, side) = join(&of);
    let in_partition = |join: &mut LookupJoin, partition: u32, rows: &str| {
        join.on_block(0, text::parse(&of.input, rows).in_partition(partition), &mut Output::default()).unwrap();
    };
    // It waits all the time.
    in_partition(&mut join, 0, "0 1");
    let before = join.order.memory();
    for partition in 1..2000 {
        in_partition(&mut join, partition, "1 4");
        side.answer(1, None);
        assert_eq!(poll(&mut join).len(), 1);
    }
    let (after, rows) = (join.order.memory(), join.order.rows());
    assert!(rows == 1 && after < before + 4096, "{rows} rows, {before} bytes, then {after}");
    // All at once, for the same answer, and one behind each.
    for partition in 1..2000 {
        in_partition(&mut join, partition, "1 4\n2 NULL");
    }
    let peak = join.order.memory();
    side.answer(1, None);
    assert_eq!((poll(&mut join).len(), join.order.rows()), (2 * 1999, 1));
    side.answer(0, None);
    assert_eq!((poll(&mut join).len(), join.order.rows(), join.order.bytes()), (1, 0, 0));
    let after = join.order.memory();
    assert!(peak > 100_000 && after < 4096, "{peak} bytes, then {after}");
}

#[test]
fn it_is_full_when_more_than_a_round_of_calls_waits() {
    let (mut join, side) = join(&spec());
    let rows: String = (0..80).map(|n| format!("{n} {n}\n")).collect();
    give(&mut join, &rows);
    assert!(join.full());
    for _ in 0..20 {
        side.answer(0, None);
        poll(&mut join);
    }
    assert!(!join.full());
    assert_eq!(join.asking.waiting(), 80 - 4 - 20);
}

/// What all calls wait for may take longer than one of them may.
#[test]
fn the_time_of_a_call_begins_when_all_is_ready() {
    let (mut join, side) = join(&spec());
    side.0.lock().unwrap().prepares = true;
    give(&mut join, "1 4");
    for _ in 0..5 {
        wait(10_000);
        assert_eq!((poll(&mut join), side.open()), (Vec::new(), 1));
    }
    side.0.lock().unwrap().prepares = false;
    wait(9_000);
    assert_eq!((poll(&mut join), side.open()), (Vec::new(), 1));
    wait(1_000);
    assert!(failure(&mut join).contains("no answer within 10s"));
}

/// The table was ready when its calls were looked at, but not yet when their answers were: the job failed.
#[test]
fn what_becomes_ready_at_the_last_moment_is_not_late() {
    let (mut join, side) = join(&spec());
    side.0.lock().unwrap().prepares = true;
    give(&mut join, "1 4");
    wait(10_000);
    side.0.lock().unwrap().ready_next = true;
    assert_eq!((poll(&mut join), side.open(), side.0.lock().unwrap().prepares), (Vec::new(), 1, false));
    side.answer(0, None);
    assert_eq!(poll(&mut join), ["+I 1 4 4 40"]);
}

#[test]
fn keys_without_a_row_are_asked_again_if_that_is_wanted() {
    let mut of = spec();
    of.asking.misses = Some((2, Duration::from_millis(50)));
    let (mut join, side) = join(&of);
    give(&mut join, "1 3");
    for attempt in 0..2 {
        side.answer(0, None);
        assert_eq!((poll(&mut join), side.open()), (Vec::new(), 0), "attempt {attempt}");
        assert_eq!(join.due(), Some(now() + 50 * MS));
        wait(50);
        poll(&mut join);
        assert_eq!(side.open(), 1, "attempt {attempt}");
    }
    side.answer(0, None);
    assert_eq!(poll(&mut join), ["+I 1 3 NULL NULL"]);
}

// ---- what fails --------------------------------------------------------------------------------

fn busy() -> Option<Failure> {
    Some(Failure { reason: "503".into(), retry: true, after: None })
}

#[test]
fn failed_calls_are_made_again_after_a_pause_that_doubles() {
    let (mut join, side) = join(&spec());
    give(&mut join, "1 4");
    for pause in [100, 200, 400] {
        side.answer(0, busy());
        assert_eq!(poll(&mut join), Vec::<String>::new());
        let due = join.due().unwrap() - now();
        assert!((pause * MS / 2..=pause * MS).contains(&due), "{due} of {pause} ms");
        wait(pause);
        poll(&mut join);
        assert_eq!(side.open(), 1);
    }
    side.answer(0, busy());
    let error = failure(&mut join);
    assert!(error.starts_with("looking up key = 4 in table 't': 503 (4 attempts);"), "{error}");
    let calls = join.stats().calls;
    assert_eq!((calls.calls, calls.retries, calls.failures), (4, 3, 1));
}

#[test]
fn a_server_may_ask_for_a_longer_pause_and_refuse_for_good() {
    let (mut join, side) = join(&spec());
    give(&mut join, "1 4");
    side.answer(0, Some(Failure { reason: "429".into(), retry: true, after: Some(Duration::from_secs(5)) }));
    poll(&mut join);
    assert_eq!(join.due(), Some(now() + 5000 * MS));
    wait(5000);
    poll(&mut join);
    side.answer(0, Some(Failure { reason: "403".into(), retry: false, after: None }));
    assert!(failure(&mut join).contains("403"));
}

#[test]
fn no_answer_in_time_is_a_failure_that_may_be_passed_over() {
    let mut of = spec();
    of.asking.fail = false;
    of.cache = Some(CacheSpec { rows_max: None, after_write_ns: None, after_access_ns: None, missing: true });
    let (mut join, side) = join(&of);
    give(&mut join, "1 4\n2 7");
    side.answer(1, None);
    wait(9_999);
    assert_eq!(poll(&mut join), Vec::<String>::new());
    wait(1);
    assert_eq!(poll(&mut join), ["+I 1 4 NULL NULL", "+I 2 7 7 70"]);
    assert_eq!((side.0.lock().unwrap().cancelled, join.stats().calls.failures), (1, 1));
    // What failed is not kept.
    side.asked();
    give(&mut join, "3 4\n4 7");
    assert_eq!(side.asked(), [4]);
    // An attempt that would come too late is not made.
    wait(9_950);
    side.answer(0, busy());
    assert_eq!(poll(&mut join), ["+I 3 4 NULL NULL", "+I 4 7 7 70"]);
}

#[test]
fn an_answer_of_another_shape_is_an_error() {
    let (mut join, side) = join(&spec());
    give(&mut join, "1 4");
    {
        let mut remote = side.0.lock().unwrap();
        let (call, _) = remote.open.remove(0);
        let rows = RecordBatch::new_empty(schema(&["key"]));
        remote.done.push(Answered { call, result: Ok(Found { rows, origins: Vec::new() }) });
    }
    let wake = side.0.lock().unwrap().wake.clone().unwrap();
    wake();
    let error = failure(&mut join);
    assert!(error.starts_with("table 't': internal error: 1 keys were asked"), "{error}");
}
