#!/usr/bin/env bash
# The queries of examples/nexmark against Apache Flink 2.3 on the same machine, with the same events, in the same SQL.
#
#   benches/nexmark-against-flink.sh check   do both give the same final result? Writes benches/runs/DATE/nexmark-flink-check.txt
#   benches/nexmark-against-flink.sh speed   how fast are they, into blackhole, with checkpoints? Writes …/nexmark-flink.txt
#
#   SOURCE    where events come from: generator, which makes the same events within each engine (the default for speed; Flink's
#             is benches/flink-nexmark, built before), or files, CSV that both read (the default to check); other than the
#             default it is a part of the name of the file that is written
#   EVENTS    events of all kinds together (default 50,000 to check; for speed 10,000,000 generated ones, 2,000,000 from files)
#   RATE      events a second of event time (default 200 to check, so that there are many windows; 10,000 for speed)
#   DELAY     how far events are out of order (default 2 s to check, 0 s for speed); beyond 4 s some are late
#   QUERIES   which queries, such as "q0 q5" (default all; for speed with a generator also g0: all columns of all bids, and none
#             passes a filter, which is what making events costs; g1: all columns of all bids into blackhole)
#   RUNS      runs of each query, of which the median counts (default 3)
#   TIMEOUT   seconds after which a query of Flink is cancelled; its rate is then that of the rows it read so far (default 60)
#   GATEWAY   a running Flink SQL Gateway (default http://127.0.0.1:18083)
#   JOBS      its JobManager's REST address (default http://127.0.0.1:18081)
#   PARALLELISM  shards of both engines (default 1 for speed, to check as many as Flink has slots)
#   PIDS      process ids of JobManager and TaskManager, to add up their CPU time
#   JAR       Flink's generator, for a Flink that has it not in its lib (default benches/flink-nexmark/target/flink-nexmark.jar)
#
# Flink's time is what the JobManager says the job took: reading and planning the SQL does not count, starting a process
# for tidemill does. Both are warm: Flink's processes run one query after the other and keep their memory, and the first
# query runs once before; tidemill runs each query twice, and the second time counts, since the pages of a new process may be
# such as a virtual machine has to ask its host for, which can take longer than the query. Flink is warmer
# with the generator in its lib than with a jar that comes with each job, whose classes are compiled anew each time.
set -euo pipefail
cd "$(dirname "$0")/.."
mode="${1:-}"
case "$mode" in
  check) name="nexmark-flink-check" usual=files ;;
  speed) name="nexmark-flink" usual=generator ;;
  *) echo "usage: $0 check|speed" >&2; exit 2 ;;
esac
export SOURCE="${SOURCE:-$usual}"
[ "$SOURCE" = "$usual" ] || name="$name-$SOURCE"
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
out="benches/runs/$(date +%F)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
python3 - "$tidemill" "$mode" "$work" <<'P' | tee "$out/$name.txt"
import collections, glob, json, math, os, re, resource, shutil, statistics, subprocess, sys, time, urllib.error, urllib.request
from decimal import Decimal

tidemill, mode, work = sys.argv[1:]
source = os.environ["SOURCE"]
if source not in ("generator", "files"):
    sys.exit(f"SOURCE is '{source}': expected generator or files")
events = int(os.environ.get("EVENTS", {"check": 50_000, "speed": {"generator": 10_000_000, "files": 2_000_000}[source]}[mode]))
rate = os.environ.get("RATE", {"check": "200", "speed": "10000"}[mode])
delay = os.environ.get("DELAY", {"check": "2 s", "speed": "0 s"}[mode])
runs, timeout_s = int(os.environ.get("RUNS", 3)), float(os.environ.get("TIMEOUT", 60))
gateway = os.environ.get("GATEWAY", "http://127.0.0.1:18083")
jobs = os.environ.get("JOBS", "http://127.0.0.1:18081")
pids = os.environ.get("PIDS", "").split()
jar = os.path.abspath(os.environ.get("JAR", "benches/flink-nexmark/target/flink-nexmark.jar"))
# What making events costs, for speed alone: all columns of all bids, filtered or not.
GENERATING = {"g0": " WHERE price < 0", "g1": ""}
queries = os.environ.get("QUERIES", "").split() or [
    *(GENERATING if (mode, source) == ("speed", "generator") else ()),
    *sorted((os.path.basename(path)[:-4] for path in glob.glob("examples/nexmark/q*.sql")), key=lambda name: int(name[1:])),
]
TABLE = re.compile(r"CREATE TABLE (person|auction|bid) \((.*?)\n\) WITH \((.*?)\n\);", re.S)
SINK = re.compile(r"(CREATE TABLE nexmark_q\d+ \(.*?\n\)) WITH \(.*?\);", re.S)


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read() or "{}", parse_float=Decimal)
    except urllib.error.HTTPError as error:
        errors = "\n".join(json.load(error).get("errors", []))
        causes = re.findall(r"^Caused by: (.*)", errors, re.M)
        raise RuntimeError(causes[-1] if causes else errors[:500] or str(error)) from None


slots = call("GET", f"{jobs}/overview")["slots-total"]
parallelism = int(os.environ.get("PARALLELISM", {"check": slots, "speed": 1}[mode]))


def ours(path, *options):
    """Runs a job of ours; gives its standard output, seconds and CPU seconds."""
    command = [tidemill, "run", "-q", "--parallelism", str(parallelism), *options, path]
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    elapsed, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_tables():
    """The generator's tables as files, in the order of the events. Gives how many rows each has."""
    text = "".join(open(f"examples/nexmark/{name}.sql").read() for name in ("q0", "q3"))
    job, inserts = "", ""
    for name, columns, options in TABLE.findall(text):
        plain = re.sub(r",\s*WATERMARK FOR .*", "", columns)
        job += f"CREATE TABLE {name} ({columns}) WITH ({options});\n"
        file = f"'connector' = 'filesystem', 'path' = '{work}/{name}', 'format' = 'csv', 'sink.rolling-policy.file-size' = '1 tb'"
        job += f"CREATE TABLE {name}_file ({plain}) WITH ({file});\n"
        inserts += f"INSERT INTO {name}_file SELECT * FROM {name};\n"
    open(f"{work}/tables.sql", "w").write(f"{job}EXECUTE STATEMENT SET BEGIN\n{inserts}END;\n")
    values = ["-D", f"EVENTS={events}", "-D", f"RATE={rate}", "-D", f"DELAY={delay}"]
    subprocess.run([tidemill, "run", "-q", "--parallelism", "1", *values, f"{work}/tables.sql"], check=True)
    rows = {}
    for name in ("person", "auction", "bid"):
        (part,) = glob.glob(f"{work}/{name}/*")
        os.rename(part, f"{work}/{name}.csv")
        rows[name] = sum(1 for _ in open(f"{work}/{name}.csv", "rb"))
    return rows


def count_rows():
    """How many rows the generator's tables have: of 50 events the first is a person, the next three are auctions."""
    rounds, rest = divmod(events, 50)
    shares = {"person": (0, 1), "auction": (1, 3), "bid": (4, 46)}
    return {name: rounds * share + min(max(rest - skip, 0), share) for name, (skip, share) in shares.items()}


def generating(name):
    """All columns of all bids into blackhole."""
    bids = TABLE.search(open("examples/nexmark/q0.sql").read())
    columns = re.sub(r",\s*WATERMARK FOR .*", "", bids[2])
    sink = f"CREATE TABLE nexmark_{name} ({columns}) WITH ('connector' = 'blackhole');"
    return f"{bids[0]}\n{sink}\nINSERT INTO nexmark_{name} SELECT * FROM bid{GENERATING[name]};"


def query(name, out, sink=None):
    """The statements of an example, its tables read from files or generated."""
    text = generating(name) if name in GENERATING else open(f"examples/nexmark/{name}.sql").read()
    text = re.sub(r"^--.*\n", "", text, flags=re.M)
    if source == "files":
        file = f"'connector' = 'filesystem', 'path' = '{work}/\\1.csv', 'format' = 'csv'"
        text = TABLE.sub(f"CREATE TABLE \\1 (\\2\n) WITH ({file});", text)
    if sink:
        text = SINK.sub(f"\\1 WITH ('connector' = '{sink}');", text)
    values = {"EVENTS": str(events), "RATE": rate, "DELAY": delay}
    values.update(OUT=out, SIDE=os.path.abspath("examples/nexmark/side_input.csv"))
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: values.get(m[1], m[2]), text)
    return [statement for statement in (part.strip() for part in text.split(";")) if statement]


def submit(statements, settings):
    """Runs statements in a session of the gateway; gives the session, the last operation's results and its job."""
    settings = {"table.local-time-zone": "UTC", "parallelism.default": str(parallelism), **settings}
    session = f"{gateway}/v3/sessions/" + call("POST", f"{gateway}/v3/sessions", {"properties": settings})["sessionHandle"]
    for statement in (*preparation, *statements):
        operation = call("POST", f"{session}/statements", {"statement": statement})["operationHandle"]
        while (result := call("GET", f"{session}/operations/{operation}/result/0?rowFormat=JSON"))["resultType"] == "NOT_READY":
            time.sleep(0.02)
    return session, result


preparation = []


def prepare_flink():
    """Sees to it that Flink has its generator: gives the statement that a session must begin with, if any."""
    table = "CREATE TABLE bid (auction BIGINT) WITH ('connector' = 'nexmark', 'table' = 'bid')"
    try:
        session, _ = submit([table, "EXPLAIN SELECT * FROM bid"], {})
        call("DELETE", session)
        return []
    except RuntimeError as error:
        if "Could not find any factory" not in str(error):
            raise
    if not os.path.exists(jar):
        sys.exit(f"Flink has no connector 'nexmark' in its lib, and there is no {jar}: make it by benches/flink-nexmark/build.sh")
    return [f"ADD JAR '{jar}'"]


# ---- do they give the same?

# A change as a print sink shows it, with several shards that of its shard before it.
PRINTED = re.compile(r"(?:\d+> )?([+-][IUD])\[(.*)\]")
KINDS = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?")


def same_times(text):
    return TIME.sub(lambda m: f"{m[1]}T{m[2]}{m[3] or ':00'}{(m[4] or '').rstrip('0').rstrip('.')}", text)


def shown(value, column):
    """A value of the gateway as a print sink shows it."""
    if value is None:
        return "null"
    if isinstance(value, Decimal) or column["logicalType"]["type"] == "DECIMAL":
        return f"{Decimal(value):.{column['logicalType'].get('scale', 6)}f}"
    return str(value)


def fold(changes):
    """What a changelog leaves: rows and how often each is there, and rows that it takes back more often than it has them.

    Flink takes the ranking of q9 for one that never changes a row and shows new versions (+U) without the old ones (-U).
    Of such a changelog the newest row for each value of the first column counts, which is the key of q9.
    """
    kinds = {kind for kind, _ in changes}
    if "+U" in kinds and not kinds & {"-U", "-D"}:
        changes = [("+I", row) for row in {row.split(", ", 1)[0]: row for _, row in changes}.values()]
    table = collections.Counter()
    for kind, row in changes:
        table[same_times(row)] += 1 if kind in ("+I", "+U") else -1
    return +table, -table


def flink_result(name):
    *tables, insert = query(name, work, "print")
    select = re.sub(r"^INSERT INTO \w+\s", "", insert)
    session, result = submit([*tables, select], {"execution.runtime-mode": "streaming"})
    try:
        changes, columns = [], result["results"]["columns"]
        while result["resultType"] != "EOS":
            for row in result.get("results", {}).get("data", []):
                changes.append((KINDS[row["kind"]], ", ".join(map(shown, row["fields"], columns))))
            following = result["nextResultUri"]
            result = call("GET", gateway + following[following.index("/v") :])
    finally:
        call("DELETE", session)
    return changes


def our_result(name):
    open(f"{work}/{name}.sql", "w").write(";\n".join(query(name, work, "print")) + ";\n")
    text, _, _ = ours(f"{work}/{name}.sql")
    return [PRINTED.fullmatch(line).groups() for line in text.splitlines()]


def check():
    print(f"{events} events, {rate} a second, out of order by {delay}, parallelism {parallelism}:")
    print(f"final results of Flink and of tidemill from {'the same files' if source == 'files' else 'their generators'}")
    different = []
    for name in queries:
        try:
            theirs = flink_result(name)
        except RuntimeError as error:
            print(f"{name:4} Flink cannot: {error}", flush=True)
            continue
        mine = our_result(name)
        (expect, expect_less), (got, got_less) = fold(theirs), fold(mine)
        same = expect == got and not expect_less and not got_less
        changes = f"{len(theirs)} changes in Flink, {len(mine)} in tidemill"
        print(f"{name:4} {'same' if same else 'DIFFERENT'}  {sum(expect.values())} rows, {changes}", flush=True)
        if not same:
            different.append(name)
            parts = {"only in Flink": expect - got, "only in tidemill": got - expect, "taken back too often": expect_less + got_less}
            for title, rows in parts.items():
                print(f"     {title}: {sum(rows.values())}", *sorted(rows)[:5], sep="\n       ", flush=True)
    print(f"different: {' '.join(different) or 'none'}")
    return 1 if different else 0


# ---- how fast are they?


def cpu_of_flink():
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def share_read(job, rows):
    """How much of its input a job has read, between 0 and 1; None as long as the JobManager does not know."""
    read, there = 0, 0
    for vertex in call("GET", f"{jobs}/jobs/{job}")["vertices"]:
        metrics = f"{jobs}/jobs/{job}/vertices/{vertex['id']}/metrics"
        for metric in (m["id"] for m in call("GET", metrics)):
            source = re.fullmatch(r"(\d+)\.Source__(\w+).*\.numRecordsOut", metric)
            if source and source[2] in rows:
                read += sum(int(m["value"]) for m in call("GET", f"{metrics}?get={urllib.request.quote(metric)}"))
                there += rows[source[2]] if source[1] == "0" else 0
    return read / there if there else None


def stopped(job, rows, state):
    """Cancels a job that takes too long; gives the share that it had read, or None if it came to its end.

    The JobManager asks for the figures of a job every ten seconds: they are true at the moment at which they come or change.
    """
    first, deadline = share_read(job, rows), time.perf_counter() + 15
    while state["state"] == "RUNNING":
        share = share_read(job, rows)
        if share not in (None, first) or time.perf_counter() > deadline:
            call("PATCH", f"{jobs}/jobs/{job}?mode=cancel")
            return share or math.nan
        time.sleep(0.1)
        state = call("GET", f"{jobs}/jobs/{job}")
    return None


def flink_speed(name, rows, run):
    """Seconds, CPU seconds, the share of the input that was read in them, whether the job was stopped."""
    out = f"{work}/flink-{name}-{run}"
    settings = {
        "execution.runtime-mode": "streaming",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{work}/flink-checkpoints",
    }
    cpu, share = cpu_of_flink(), None
    session, result = submit(query(name, out), settings)
    job = result["jobID"]
    while (state := call("GET", f"{jobs}/jobs/{job}"))["state"] not in ("FINISHED", "FAILED", "CANCELED"):
        if share is None and state["duration"] > timeout_s * 1000:
            share = stopped(job, rows, state)
            if share is not None:
                begin = state["start-time"] / 1000
                elapsed, cpu = time.time() - begin, cpu_of_flink() - cpu
        time.sleep(0.2)
    if share is None:
        if state["state"] != "FINISHED":
            raise RuntimeError(f"the job {state['state']}: {call('GET', f'{jobs}/jobs/{job}/exceptions')}"[:500])
        elapsed, cpu = state["duration"] / 1000, cpu_of_flink() - cpu
    call("DELETE", session)
    shutil.rmtree(out, ignore_errors=True)
    shutil.rmtree(f"{work}/flink-checkpoints", ignore_errors=True)
    return elapsed, cpu, 1.0 if share is None else share, share is not None


def our_speed(name, run):
    out = f"{work}/tidemill-{name}-{run}"
    open(f"{work}/{name}.sql", "w").write(";\n".join(query(name, out)) + ";\n")
    for _ in range(2):
        _, elapsed, cpu = ours(f"{work}/{name}.sql", "--set", "execution.checkpointing.interval=1 s", "--state-dir", f"{out}-state")
        shutil.rmtree(out, ignore_errors=True)
        shutil.rmtree(f"{out}-state", ignore_errors=True)
    return elapsed, cpu, 1.0, False


def speed(rows):
    origin = "CSV" if source == "files" else "generated,"
    print(f"{events} events, {origin} into blackhole, parallelism {parallelism}, exactly-once checkpoints every second")
    print(f"medians of {runs} runs; events are those of all kinds, of which a query reads some; CPU of Flink: JobManager and TaskManager")
    print(f"a rate with < is that of what Flink had read when it was stopped, {timeout_s:g} s after it began or a little later")
    if set(queries) & set(GENERATING):
        print("g0 makes all columns of all bids, of which none passes a filter; g1 has them all in blackhole; the mean is without them")
    if source == "generator":
        print(f"Flink's generator comes {'with each job' if preparation else 'from its lib'}")
    print("        Flink                                     tidemill                                  ratio of")
    print("query       s    events/s   CPU-s  events/CPU-s       s    events/s   CPU-s  events/CPU-s    rates  per CPU-s")
    flink_speed(queries[0], rows, "warm")
    ratios, failed = [], 0
    for name in queries:
        figures = {"flink": [], "tidemill": []}
        try:
            for run in range(runs):
                figures["flink"].append(flink_speed(name, rows, run))
                figures["tidemill"].append(our_speed(name, run))
                if figures["flink"][-1][3]:
                    break
        except RuntimeError as error:
            print(f"{name:5} Flink cannot: {error}", flush=True)
            failed += 1
            continue
        rates, per_cpu, line = {}, {}, f"{name:5}"
        for engine, measured in figures.items():
            elapsed, cpu, share, _ = (statistics.median(column) for column in zip(*measured))
            rates[engine], per_cpu[engine] = events * share / elapsed, events * share / max(cpu, 0.01)
            bound = "<" if any(run[3] for run in measured) else " "
            line += f" {elapsed:7.2f} {bound}{rates[engine]:10,.0f} {cpu:7.2f} {bound}{per_cpu[engine]:12,.0f} "
        ratio = (rates["tidemill"] / rates["flink"], per_cpu["tidemill"] / per_cpu["flink"])
        print(f"{line} {ratio[0]:7.1f} {ratio[1]:10.1f}", flush=True)
        if name not in GENERATING and not math.isnan(ratio[0]):
            ratios.append(ratio)
    print(f"load of the machine at the end, of all that runs on it: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores")
    if ratios:
        means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*ratios)]
        print(f"geometric mean of {len(ratios)} queries: rates {means[0]:.1f}, events per CPU-second {means[1]:.1f}")
    return 1 if failed else 0


if source == "files":
    rows = write_tables()
else:
    rows = count_rows()
    preparation = prepare_flink()
sys.exit(check() if mode == "check" else speed(rows))
P
