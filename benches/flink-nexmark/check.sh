#!/usr/bin/env bash
# Does Flink's generator make the same rows as tidemill's? Compares the first rows of every table, for the default options
# and for others, byte for byte (times as times); then stops a job of Flink by a savepoint, starts it again from there at
# parallelism 1, and compares all that the two wrote. Needs a build of both: build.sh, and the binary of tidemill.
#
#   ROWS      rows of each table (default 100,000)
#   GATEWAY   a running Flink SQL Gateway (default http://127.0.0.1:18083)
#   JOBS      its JobManager's REST address (default http://127.0.0.1:18081)
#   JAR       the connector, for a Flink that has it not in its lib (default target/flink-nexmark.jar); empty if it has
set -euo pipefail
cd "$(dirname "$0")/../.."
tidemill="${CARGO_TARGET_DIR:-target}/release/tidemill"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 - "$tidemill" "$work" "${ROWS:-100000}" "${JAR-$PWD/benches/flink-nexmark/target/flink-nexmark.jar}" <<'P'
import csv, glob, itertools, json, os, re, subprocess, sys, time, urllib.error, urllib.request

tidemill, work, rows, jar = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
gateway = os.environ.get("GATEWAY", "http://127.0.0.1:18083")
jobs = os.environ.get("JOBS", "http://127.0.0.1:18081")
csv.field_size_limit(1 << 24)

PERSON = "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, `dateTime` TIMESTAMP(3), extra STRING"
AUCTION = (
    "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING"
)
BID = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING"
TABLES = {"person": PERSON, "auction": AUCTION, "bid": BID}
# All kinds in one table, a column of each.
ALL = f"event_type INT, person ROW<{PERSON}>, auction ROW<{AUCTION}>, bid ROW<{BID}>, `dateTime` TIMESTAMP(3)"
FLAT = "event_type INT, person BIGINT, extra STRING, auction BIGINT, expires TIMESTAMP(3), bid BIGINT, url STRING, `dateTime` TIMESTAMP(3)"
PARTS = "event_type, t.person.id, t.person.extra, t.auction.id, t.auction.expires, t.bid.auction, t.bid.url, t.`dateTime`"

OPTIONS = {
    "defaults": {},
    "out of order, rates by turns, another seed and time": {
        "out-of-order.max-delay": "3 s",
        "first-event.rate": "1000",
        "next-event.rate": "7777",
        "rate.period": "20 s",
        "seed": "18446744073709551615",
        "base-time": "1969-12-31 23:59:58.5",
    },
    "other shares, ratios, sizes and counts": {
        "person.proportion": "7",
        "auction.proportion": "2",
        "bid.proportion": "5",
        "first-event.rate": "333333",
        "bid.hot-ratio.auctions": "3",
        "bid.hot-ratio.bidders": "5",
        "auction.hot-ratio.sellers": "1",
        "person.avg-size": "10",
        "auction.avg-size": "2 kb",
        "bid.avg-size": "333",
        "auctions.in-flight": "13",
        "people.active": "50",
    },
}


def call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, method=method, data=data, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.loads(answer.read() or "{}")
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        causes = re.findall(r"Caused by: (.*?)(?:\\n|\n)", text)
        raise RuntimeError(causes[-1] if causes else text[:500]) from None


def events(table, options):
    """Events of which the last is the last of so many rows of a table."""
    shares = [int(options.get(f"{kind}.proportion", usual)) for kind, usual in (("person", 1), ("auction", 3), ("bid", 46))]
    place = ["person", "auction", "bid"].index(table) if table in TABLES else None
    share, skip = (sum(shares), 0) if place is None else (shares[place], sum(shares[:place]))
    return (rows - 1) // share * sum(shares) + skip + (rows - 1) % share + 1


def job(table, options, out, watermark=""):
    """The statements that write the rows of a table into files."""
    given = {"connector": "nexmark", "table": table, "events.num": str(events(table, options)), **options}
    given = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    columns, kept, select = (ALL, FLAT, PARTS) if table == "all" else (TABLES[table], TABLES[table], "*")
    file = f"'connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv', 'sink.rolling-policy.file-size' = '1 tb'"
    return [
        f"CREATE TABLE t ({columns}{watermark}) WITH ({given})",
        f"CREATE TABLE kept ({kept}) WITH ({file})",
        f"INSERT INTO kept SELECT {select} FROM t",
    ]


def begin(statements, settings):
    """Starts a job of Flink; gives its session and its id."""
    settings = {
        "table.local-time-zone": "UTC",
        "execution.runtime-mode": "streaming",
        "parallelism.default": "1",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": f"file://{work}/checkpoints",
        **settings,
    }
    session = f"{gateway}/v3/sessions/" + call("POST", f"{gateway}/v3/sessions", {"properties": settings})["sessionHandle"]
    for statement in [*([f"ADD JAR '{jar}'"] if jar else []), *statements]:
        operation = call("POST", f"{session}/statements", {"statement": statement})["operationHandle"]
        while (result := call("GET", f"{session}/operations/{operation}/result/0?rowFormat=JSON"))["resultType"] == "NOT_READY":
            time.sleep(0.02)
    return session, result["jobID"]


def end(session, job):
    while (state := call("GET", f"{jobs}/jobs/{job}")["state"]) not in ("FINISHED", "FAILED", "CANCELED"):
        time.sleep(0.1)
    call("DELETE", session)
    if state != "FINISHED":
        raise RuntimeError(f"the job is {state}: " + json.dumps(call("GET", f"{jobs}/jobs/{job}/exceptions"))[:2000])


def ours(statements):
    open(f"{work}/job.sql", "w").write(";\n".join(statements) + ";\n")
    subprocess.run([tidemill, "run", "-q", "--parallelism", "1", f"{work}/job.sql"], check=True)


TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?Z?")


def read(out):
    """The rows of the files in the order in which they were written, times in one form."""
    for part in sorted(glob.glob(f"{out}/part-*"), key=lambda path: [int(n) for n in re.findall(r"-(\d+)", path)[-2:]]):
        with open(part, newline="") as lines:
            for row in csv.reader(lines):
                yield [
                    f"{t[1]}T{t[2]}{t[3] or ':00'}{(t[4] or '').rstrip('0').rstrip('.')}" if (t := TIME.fullmatch(field)) else field
                    for field in row
                ]


def compare(what, theirs, mine, count):
    number = 0
    for number, (row, expect) in enumerate(itertools.zip_longest(theirs, mine), 1):
        if row != expect:
            print(f"{what}: DIFFERENT in row {number}\n  Flink    {row}\n  tidemill {expect}", flush=True)
            return False
    if number != count:
        print(f"{what}: {number} rows, expected {count}", flush=True)
        return False
    print(f"{what}: {number} rows are the same", flush=True)
    return True


good = True
for title, options in OPTIONS.items():
    print(f"{title}:")
    for table in (*TABLES, "all"):
        out = f"{work}/{len(os.listdir(work))}"
        end(*begin(job(table, options, f"{out}-flink"), {}))
        ours(job(table, options, f"{out}-tidemill"))
        good &= compare(f"  {table:8}", read(f"{out}-flink"), read(f"{out}-tidemill"), rows)

print("stopped by a savepoint, started again at parallelism 1:")
slots = call("GET", f"{jobs}/overview")["slots-total"]
# Three seconds and more by the clock, so that there is time to stop it; a watermark, which the source computes.
options = {"first-event.rate": str(rows // 3), "rate.limited": "true"}
statements = job("bid", options, f"{work}/again", ", WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND")
# Names of operators that are the same at another parallelism, so that they find their state.
named = {"table.exec.uid.generation": "ALWAYS", "table.exec.uid.format": "<type>_<transformation>"}
session, id = begin(statements, {**named, "parallelism.default": str(slots)})
time.sleep(2)
trigger = call("POST", f"{jobs}/jobs/{id}/stop", {"targetDirectory": f"file://{work}/savepoint", "drain": False})["request-id"]
while (state := call("GET", f"{jobs}/jobs/{id}/savepoints/{trigger}"))["status"]["id"] != "COMPLETED":
    time.sleep(0.1)
if "location" not in state["operation"]:
    sys.exit(f"no savepoint: {json.dumps(state)[:2000]}")
end(session, id)
before = sum(1 for _ in read(f"{work}/again"))
end(*begin(statements, {**named, "execution.state-recovery.path": state["operation"]["location"]}))
ours(job("bid", {**options, "rate.limited": "false"}, f"{work}/whole"))
good &= compare(f"  bid, {before} rows before, at parallelism {slots}", sorted(read(f"{work}/again")), sorted(read(f"{work}/whole")), rows)
if not 0 < before < rows:
    print("  the job was not stopped on its way")
    good = False
print("all rows are the same" if good else "rows differ")
sys.exit(0 if good else 1)
P
