//! Plans and errors of whole scripts.

use crate::session::{InsertPlan, Outcome, Session};

/// The tables of the tests.
const TABLES: &str = "
CREATE TABLE bid (
  auction BIGINT, price INT, bidder STRING, extra STRING, tags ARRAY<STRING>, r ROW<a INT, b STRING>,
  ms BIGINT, rt AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR rt AS rt - INTERVAL '5' SECOND
) WITH ('connector' = 'datagen');
CREATE TABLE trade (symbol STRING, price DOUBLE, size INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'x', 'path' = '/a');
CREATE TABLE sink (k BIGINT NOT NULL, v INT, s STRING, f TIMESTAMP(3) METADATA, h STRING METADATA VIRTUAL, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'print');
CREATE TABLE two (k BIGINT, s STRING) WITH ('connector' = 'print');
CREATE VIEW prices (what, p) AS SELECT symbol, price FROM trade WHERE price > 2.5;
";

fn session() -> Session {
    let mut session = Session::new();
    for statement in session.parse(TABLES).expect("the tables parse") {
        session.execute(&statement).expect("a table");
    }
    session
}

/// The outcome of the last statement of a script, or the error as it is shown.
fn outcome(session: &mut Session, script: &str) -> Result<Outcome, String> {
    let show = |e: crate::SqlError| e.render("q.sql", script, false);
    let mut last = Outcome::Done;
    for statement in session.parse(script).map_err(show)? {
        last = session.execute(&statement).map_err(show)?;
    }
    Ok(last)
}

fn shown(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Query(plan) | Outcome::Copy { plan, .. } => plan.display_indent().to_string(),
        Outcome::Inserts(inserts) => {
            inserts.iter().map(|i: &InsertPlan| format!("{}\n{}", i.table.name, i.plan.display_indent())).collect::<Vec<_>>().join("\n")
        }
        other => format!("{other:?}"),
    }
}

/// The plan of a script.
#[track_caller]
pub(super) fn shown_plan(script: &str) -> String {
    match outcome(&mut session(), script) {
        Ok(outcome) => shown(&outcome),
        Err(e) => panic!("{e}"),
    }
}

/// The plan of a script must be this, or the first lines of it.
#[track_caller]
fn plan(script: &str, expect: &str) {
    let text = shown_plan(script);
    let expect: Vec<&str> = expect.trim().lines().map(str::trim).collect();
    let found: Vec<&str> = text.lines().map(str::trim).take(expect.len()).collect();
    assert!(found == expect, "{script}\n{text}");
}

/// The script must fail with this message, pointing at this text, with help that contains this, or none.
#[track_caller]
pub(super) fn fails(script: &str, message: &str, at: &str, help: &str) {
    let mut session = session();
    let error = (|| {
        for statement in session.parse(script)? {
            session.execute(&statement)?;
        }
        Ok(())
    })();
    let error: crate::SqlError = match error {
        Ok(()) => panic!("{script} is fine"),
        Err(e) => e,
    };
    assert_eq!(error.message, message, "{script}\n{error:?}");
    let place = error.span.map(|s| s.text(script)).unwrap_or_default();
    assert!(place == at || (at.ends_with('…') && place.starts_with(at.trim_end_matches('…'))), "{script}\npoints at {place:?}\n{error:?}");
    let given = error.help.clone().unwrap_or_default();
    assert!(if help.is_empty() { given.is_empty() } else { given.contains(help) }, "{script}\n{error:?}");
}

#[test]
fn queries() {
    plan(
        "SELECT symbol, COUNT(*), AVG(size), SUM(price) FROM trade GROUP BY symbol",
        "Projection: trade.symbol, count(Int64(1)) AS count(*) AS EXPR$1, avg(trade.size) AS EXPR$2, sum(trade.price) AS EXPR$3
           Projection: trade.symbol, count(Int64(1)), CAST(sum(trade.size) / count(trade.size) AS Int32) AS avg(trade.size), sum(trade.price)
             Aggregate: groupBy=[[trade.symbol]], aggr=[[count(Int64(1)), sum(trade.size), count(trade.size), sum(trade.price)]]
               SubqueryAlias: trade
                 Watermark: ts AS ts
                   TableScan: trade",
    );
    plan("SELECT AVG(price) AS a FROM trade", "Projection: avg(trade.price) AS a\nAggregate: groupBy=[[]], aggr=[[avg(trade.price)]]");
    plan(
        "SELECT AVG(size) OVER w AS a, SUM(size) OVER w AS s FROM trade WINDOW w AS (PARTITION BY symbol ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "Projection: avg(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW AS a, sum(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW AS s
         Projection: trade.symbol, trade.price, trade.size, trade.ts, CAST(sum(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW / count(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW AS Int32) AS avg(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW, sum(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW
         WindowAggr: windowExpr=[[sum(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW, count(trade.size) PARTITION BY [trade.symbol] ROWS BETWEEN 1 PRECEDING AND CURRENT ROW]]",
    );
    plan(
        "SELECT what FROM prices ORDER BY p LIMIT 3",
        "Limit: skip=0, fetch=3
           Projection: prices.what
             Sort: prices.p ASC NULLS FIRST
               Projection: prices.what, prices.p
                 SubqueryAlias: prices
                   Projection: trade.symbol AS what, trade.price AS p
                     Projection: trade.symbol, trade.price
                       Filter: trade.price > Float64(2.5)",
    );
    plan(
        "SELECT DISTINCT size + 1 FROM trade ORDER BY size + 1",
        "Sort: EXPR$0 ASC NULLS FIRST\nDistinct:\nProjection: trade.size + Int64(1) AS EXPR$0",
    );
    plan(
        "SELECT r.a, b.r.b, b.price, price, 1, 1 FROM bid b",
        "Projection: get_field(b.r, Utf8(\"a\")) AS a, get_field(b.r, Utf8(\"b\")) AS b, b.price, b.price AS price0, Int64(1) AS EXPR$4, Int64(1) AS EXPR$5",
    );
    plan(
        "SELECT symbol FROM trade QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY ts) = 1",
        "Projection: trade.symbol\nFilter: row_number() PARTITION BY [trade.symbol] ORDER BY [trade.ts ASC NULLS FIRST] RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW = Int64(1)",
    );
    plan("SELECT *, price FROM trade", "Projection: trade.symbol, trade.price, trade.size, trade.ts, trade.price AS price0");
    plan("COPY two TO 'x.csv'", "SubqueryAlias: two\nTableScan: two");
    plan(
        "SELECT * FROM default_catalog.default_database.two",
        "Projection: default_catalog.default_database.two.k, default_catalog.default_database.two.s",
    );
}

#[test]
fn functions() {
    plan(
        "SELECT CAST(size AS STRING), CAST('1' AS INT), TRY_CAST(symbol AS DOUBLE), size || 'x', CAST(size AS BIGINT), CAST(price AS INT), CAST(ts AS TIMESTAMP_LTZ(3)) FROM trade",
        "Projection: flink_cast_string(trade.size) AS EXPR$0, flink_cast(Utf8(\"1\"), Utf8(\"INT\")) AS EXPR$1, flink_try_cast(trade.symbol, Utf8(\"DOUBLE\")) AS EXPR$2, flink_cast_string(trade.size) || Utf8(\"x\") AS EXPR$3, CAST(trade.size AS Int64) AS EXPR$4, flink_cast(trade.price, Utf8(\"INT\")) AS EXPR$5, flink_cast(trade.ts, Utf8(\"TIMESTAMP_LTZ(3)\")) AS EXPR$6",
    );
    plan(
        "SELECT DATE '2024-01-01', TIMESTAMP '2024-01-01 00:00:00', TIMESTAMP '2024-01-01 00:00:00.123456'",
        "Projection: flink_cast(Utf8(\"2024-01-01\"), Utf8(\"DATE\")) AS EXPR$0, flink_cast(Utf8(\"2024-01-01 00:00:00\"), Utf8(\"TIMESTAMP(3)\")) AS EXPR$1, flink_cast(Utf8(\"2024-01-01 00:00:00.123456\"), Utf8(\"TIMESTAMP(6)\")) AS EXPR$2",
    );
    plan(
        "SELECT EXTRACT(YEAR FROM ts), FLOOR(ts TO HOUR), CEIL(ts TO DAY), SUBSTRING(symbol FROM 2 FOR 3), POSITION('a' IN symbol), FLOOR(price) FROM trade",
        "Projection: extract(Utf8(\"YEAR\"), trade.ts) AS EXPR$0, floor_time(trade.ts, Utf8(\"HOUR\")) AS EXPR$1, ceil_time(trade.ts, Utf8(\"DAY\")) AS EXPR$2, substr(trade.symbol, Int64(2), Int64(3)) AS EXPR$3, instr(trade.symbol, Utf8(\"a\")) AS EXPR$4, floor(trade.price) AS EXPR$5",
    );
    plan(
        "SELECT LISTAGG(symbol), APPROX_COUNT_DISTINCT(size), VARIANCE(price) FROM trade",
        "Projection: string_agg(trade.symbol,Utf8(\",\")) AS listagg(trade.symbol,Utf8(\",\")) AS EXPR$0, approx_distinct(trade.size) AS approx_count_distinct(trade.size) AS EXPR$1, var(trade.price) AS variance(trade.price) AS EXPR$2",
    );
    plan(
        "SELECT tags[1], ROW(1, 'a') FROM bid",
        "Projection: array_element(bid.tags, Int64(1)) AS EXPR$0, named_struct(Utf8(\"f0\"), Int64(1), Utf8(\"f1\"), Utf8(\"a\")) AS EXPR$1",
    );
}

#[test]
fn windows() {
    plan(
        "SELECT window_start, w.symbol, MAX(price) FROM TABLE(TUMBLE(TABLE trade, DESCRIPTOR(ts), INTERVAL '10' SECOND)) AS w GROUP BY window_start, window_end, w.symbol",
        "Projection: w.window_start, w.symbol, max(w.price) AS EXPR$2
           Aggregate: groupBy=[[w.window_start, w.window_end, w.symbol]], aggr=[[max(w.price)]]
             SubqueryAlias: w
               Window: Tumble { size: 10000, offset: 0 } ON trade.ts",
    );
    plan(
        "SELECT trade.size FROM HOP(TABLE trade, DESCRIPTOR(ts), INTERVAL '1:30' MINUTE TO SECOND, INTERVAL '3' MINUTES)",
        "Projection: trade.size\nWindow: Hop { slide: 90000, size: 180000, offset: 0 } ON trade.ts",
    );
    plan(
        "SELECT * FROM TUMBLE(TABLE (SELECT symbol, ts FROM trade), DESCRIPTOR(ts), INTERVAL '1' DAY, -INTERVAL '8' HOUR)",
        "Projection: trade.symbol, trade.ts, window_start, window_end, window_time\nWindow: Tumble { size: 86400000, offset: -28800000 } ON trade.ts",
    );
    plan(
        "SELECT 1 AS a FROM SESSION(TABLE trade PARTITION BY symbol, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
        "Projection: Int64(1) AS a\nWindow: Session { gap: 3600000 } ON trade.ts PARTITION BY trade.symbol",
    );
}

#[test]
fn group_windows_of_the_older_form() {
    plan(
        "SELECT TUMBLE_START(ts, INTERVAL '1' DAY) AS s, TUMBLE_ROWTIME(ts, INTERVAL '1' DAY), symbol FROM trade AS t WHERE t.price > 1 GROUP BY TUMBLE(ts, INTERVAL '1' DAY), symbol HAVING COUNT(*) > 1",
        "Projection: t.window_start AS s, t.window_time AS EXPR$1, t.symbol
           Filter: count(Int64(1)) > Int64(1)
             Aggregate: groupBy=[[t.window_start, t.window_end, t.window_time, t.symbol]], aggr=[[count(Int64(1))]]
               Filter: t.price > Int64(1)
                 SubqueryAlias: t
                   Window: Tumble { size: 86400000, offset: 0 } ON trade.ts",
    );
    // A filter decides which rows make a session.
    plan(
        "SELECT SESSION_END(ts, INTERVAL '1' HOUR), SUM(size) FROM trade WHERE price > 1 GROUP BY SESSION(ts, INTERVAL '1' HOUR), symbol",
        "Projection: trade.window_end AS EXPR$0, sum(trade.size) AS EXPR$1
           Aggregate: groupBy=[[trade.window_start, trade.window_end, trade.symbol]], aggr=[[sum(trade.size)]]
             SubqueryAlias: trade
               Window: Session { gap: 3600000 } ON trade.ts PARTITION BY trade.symbol
                 Projection: trade.symbol, trade.price, trade.size, trade.ts
                   Filter: trade.price > Int64(1)",
    );
    fails(
        "SELECT HOP_START(ts, INTERVAL '1' DAY, INTERVAL '2' DAY) FROM trade GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
        "HOP_START does not have the arguments of the TUMBLE in GROUP BY",
        "HOP_START",
        "the same column",
    );
    fails(
        "SELECT TUMBLE_START(ts, INTERVAL '1' DAY) FROM trade",
        "TUMBLE_START cannot stand here",
        "TUMBLE_START",
        "group windows are written",
    );
    fails(
        "SELECT 1 FROM trade GROUP BY TUMBLE(ts)",
        "TUMBLE in GROUP BY takes the time column and 1 INTERVAL literal",
        "TUMBLE…",
        "write TUMBLE(rt",
    );
}

#[test]
fn unnest_reads_the_left_side() {
    plan(
        "SELECT auction, t FROM bid CROSS JOIN UNNEST(tags) AS u(t) WHERE u.t = 'a'",
        "Projection: bid.auction, u.t
           Filter: u.t = Utf8(\"a\")
             Projection: bid.auction, bid.price, bid.bidder, bid.extra, bid.tags, bid.r, bid.ms, bid.rt, t AS t",
    );
}

#[test]
fn directories_of_values_are_an_option() {
    fails(
        "CREATE TABLE t (a INT, b INT) PARTITIONED BY (b, a) WITH ('connector' = 'filesystem')",
        "PARTITIONED BY is not supported",
        "b",
        "'sink.partition-by' = 'b,a'",
    );
}

#[test]
fn conflicts_need_a_key() {
    let conflict = "ON CONFLICT DO DEDUPLICATE";
    plan(&format!("INSERT INTO sink (k, v) SELECT auction, ms FROM bid {conflict}"), "sink");
    fails(
        &format!("INSERT INTO two SELECT auction, bidder FROM bid {conflict}"),
        "ON CONFLICT is about rows with one key, and table two has no PRIMARY KEY",
        conflict,
        "declare PRIMARY KEY (k) NOT ENFORCED in its CREATE TABLE, or leave ON CONFLICT out",
    );
}

#[test]
fn inserts() {
    plan(
        "INSERT INTO sink SELECT auction, ms, bidder, rt FROM bid",
        "sink\nProjection: bid.auction AS k, CAST(bid.ms AS Int32) AS v, bid.bidder AS s, flink_cast(bid.rt, Utf8(\"TIMESTAMP(3)\")) AS f",
    );
    plan(
        "INSERT INTO sink (v, k) SELECT size, 7 FROM trade",
        "sink\nProjection: EXPR$1 AS k, trade.size AS v, CAST(NULL AS Utf8) AS s, CAST(NULL AS Timestamp(ms)) AS f",
    );
    plan("INSERT INTO two VALUES (1, 'a'), (2, NULL)", "two\nProjection: column1 AS k, column2 AS s");
    plan(
        "CREATE TABLE x WITH ('connector' = 'print') AS SELECT symbol, COUNT(*) AS n FROM trade GROUP BY symbol",
        "x\nProjection: trade.symbol AS symbol, n AS n",
    );
    fails(
        "INSERT INTO sink SELECT 1",
        "the query gives 1 column, table sink takes 4",
        "INSERT INTO sink SELECT 1",
        "the query: EXPR$0 BIGINT; sink: k BIGINT, v INT, s STRING, f TIMESTAMP(3)",
    );
    fails(
        "INSERT INTO two SELECT 1, price FROM bid",
        "column s of table two is STRING, the query gives INT (price)",
        "price",
        "CAST(price AS STRING)",
    );
    fails(
        "INSERT INTO sink (v) SELECT 1",
        "column k of table sink is NOT NULL and gets no value",
        "INSERT INTO sink (v) SELECT 1",
        "list it",
    );
    fails("INSERT INTO sink (k, h) SELECT 1, 'a'", "metadata column h is VIRTUAL: it cannot be written", "h", "");
    fails("INSERT INTO bid (rt) SELECT 1", "column rt is computed: it cannot be written", "rt", "");
    fails("INSERT INTO prices SELECT 1", "prices is a view: it cannot be written", "prices", "");
    let script = "EXECUTE STATEMENT SET BEGIN INSERT INTO two SELECT 1, 'a'; INSERT OVERWRITE two SELECT 2, 'b'; END";
    let Outcome::Inserts(inserts) = outcome(&mut session(), script).expect("a set") else { panic!("inserts") };
    assert_eq!(inserts.iter().map(|i| i.overwrite).collect::<Vec<_>>(), [false, true]);
    assert_eq!(inserts[1].span.text(script), "INSERT OVERWRITE two SELECT 2, 'b'");
    assert!(inserts.iter().all(|i| {
        i.plan.schema().as_arrow().fields().iter().map(|f| f.data_type()).eq(i.table.sink_schema().fields().iter().map(|f| f.data_type()))
    }));
}

#[test]
fn errors_of_names() {
    fails("SELECT pric FROM bid", "there is no column pric", "pric", "did you mean price?");
    fails("SELECT BIDDER FROM bid", "there is no column BIDDER", "BIDDER", "case-sensitive");
    fails("SELECT b.pric FROM bid b", "there is no column pric in b", "b.pric", "price");
    fails("SELECT x.price FROM bid b", "there is no x in FROM", "x.price", "in FROM there is only b");
    fails("SELECT price FROM bid JOIN trade ON TRUE", "column price is in more than one table of FROM", "price", "t.price");
    fails("SELECT * FROM bids", "there is no table or view bids", "bids", "did you mean bid?");
    fails("SELECT * FROM x.bid", "there is no catalog or database x", "x.bid", "one catalog");
    fails("SELECT nosuchthing(1) FROM bid", "there is no function NOSUCHTHING", "nosuchthing", "tidemill reference");
    fails("SELECT UPER(bidder) FROM bid", "there is no function UPER", "UPER", "UPPER");
    fails("SELECT LAG(price) FROM bid", "LAG needs a window", "LAG", "OVER");
    fails("SELECT UPPER(bidder) OVER (ORDER BY rt) FROM bid", "UPPER is a function of one row: it has no OVER", "UPPER", "leave");
    fails("SELECT bidder FROM bid GROUP BY 1", "GROUP BY 1: a column cannot be given by its position", "1", "itself");
    fails(
        "SELECT bidder, price FROM bid GROUP BY bidder",
        "column price is neither in GROUP BY nor in an aggregate function",
        "price",
        "MAX(price)",
    );
    fails(
        "SELECT a FROM (SELECT price, price FROM bid) AS x(a, a)",
        "two columns are named a",
        "SELECT a FROM (SELECT price, price FROM bid) AS x(a, a)",
        "",
    );
}

#[test]
fn errors_of_types() {
    fails("SELECT SUM(bidder) FROM bid", "SUM does not take STRING", "SUM", "");
    fails("SELECT bidder + 1 FROM bid", "STRING + BIGINT cannot be computed", "bidder", "");
    fails("SELECT bidder FROM bid WHERE price", "WHERE needs a BOOLEAN, this is INT", "price", "");
    fails("SELECT UPPER() FROM bid", "UPPER does not take 0 arguments; it is used as UPPER(text)", "UPPER", "");
    fails("SELECT CAST(tags AS INT) FROM bid", "ARRAY<STRING> cannot be cast to INT", "SELECT CAST(tags AS INT) FROM bid", "");
}

#[test]
fn errors_of_windows() {
    fails("SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(rtt), INTERVAL '10' SECOND)", "there is no column rtt", "rtt", "did you mean rt?");
    fails(
        "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(ms), INTERVAL '10' SECOND)",
        "TUMBLE: the time column ms must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is BIGINT",
        "ms",
        "TO_TIMESTAMP_LTZ",
    );
    fails("SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ms), INTERVAL '10' SECOND)", "there is no table or view bids", "bids", "bid");
    fails(
        "SELECT * FROM HOP(TABLE bid, DESCRIPTOR(rt), INTERVAL '10' SECOND, INTERVAL '5' SECOND)",
        "HOP: the size of the windows (5 s) must be a multiple of the slide (10 s)",
        "'5'",
        "before the size",
    );
    fails(
        "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '1' MONTH)",
        "TUMBLE: the size: months and years have no fixed length; give days",
        "'1'",
        "",
    );
    fails(
        "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '0' SECOND)",
        "TUMBLE: the size must be at least a millisecond",
        "'0'",
        "",
    );
    let nested = "SELECT * FROM TUMBLE(TABLE (SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '1' SECOND)), DESCRIPTOR(rt), INTERVAL '10' SECOND)";
    fails(nested, "TUMBLE: its input has a column window_start already", "TUMBLE(TABLE (…", "rename it");
}

#[test]
fn tables() {
    fails("CREATE TABLE bid (a INT)", "there is a table bid already", "bid", "IF NOT EXISTS");
    fails("CREATE TABLE t (a INT, b AS a + 1, c AS b + 1)", "computed column c refers to b, which is computed too", "b", "in its place");
    fails("CREATE TABLE t (aa INT, b AS ab + 1)", "there is no column ab", "ab", "did you mean aa?");
    fails("CREATE TABLE t (a INT, b AS SUM(a))", "computed column b: an aggregate function cannot stand here", "b AS SUM(a)", "");
    fails(
        "CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a)",
        "the time column a of the watermark must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is TIMESTAMP(6)",
        "a",
        "declare it TIMESTAMP(3)",
    );
    fails(
        "CREATE TABLE t (a BIGINT, WATERMARK FOR a AS a)",
        "the time column a of the watermark must be a TIMESTAMP(3) or TIMESTAMP_LTZ(3), it is BIGINT",
        "a",
        "rt AS TO_TIMESTAMP_LTZ(a, 3)",
    );
    fails(
        "CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS 1)",
        "the watermark strategy must give a timestamp, it gives BIGINT",
        "1",
        "INTERVAL '5' SECOND",
    );
    fails("CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)", "table t has no column b for its primary key", "b", "there is only a");
    fails("CREATE TABLE t (k INT) LIKE two", "the table of LIKE has a physical column k already", "k INT", "leave it out");
    fails(
        "CREATE TABLE t WITH ('path' = '/b') LIKE trade (INCLUDING OPTIONS)",
        "the table of LIKE has the option 'path' already",
        "'path' = '/b'",
        "OVERWRITING OPTIONS",
    );
}

#[test]
fn like_takes_over() {
    let script = "
        CREATE TABLE t (extra2 INT, rt AS TO_TIMESTAMP_LTZ(ms, 3)) WITH ('path' = '/b') LIKE bid (OVERWRITING GENERATED EXCLUDING WATERMARKS);
        SHOW CREATE TABLE t";
    let Ok(Outcome::ShowCreate(text)) = outcome(&mut session(), script) else { panic!("a statement") };
    let expect = "CREATE TABLE `t` (
  `auction` BIGINT,
  `price` INT,
  `bidder` STRING,
  `extra` STRING,
  `tags` ARRAY<STRING>,
  `r` ROW<`a` INT, `b` STRING>,
  `ms` BIGINT,
  `rt` AS TO_TIMESTAMP_LTZ(ms, 3),
  `extra2` INT
) WITH (
  'connector' = 'datagen',
  'path' = '/b'
)";
    assert_eq!(text, expect);
    // What is shown can be read again.
    let mut session = session();
    let again = format!("{}; SHOW CREATE TABLE t2", expect.replace("`t` (", "`t2` ("));
    let Ok(Outcome::ShowCreate(text)) = outcome(&mut session, &again) else { panic!("a statement") };
    assert_eq!(text, expect.replace("`t` (", "`t2` ("));
}

#[test]
fn hints_change_a_table_for_one_statement() {
    use datafusion_common::tree_node::{TreeNode, TreeNodeRecursion};
    use datafusion_expr::LogicalPlan;
    use tidemill_plan::catalog::RawTable;
    let mut session = session();
    let script = "SELECT * FROM TUMBLE(TABLE trade /*+ OPTIONS('path'='/h') */, DESCRIPTOR(ts), INTERVAL '1' DAY) UNION ALL SELECT *, ts, ts AS b, ts AS c FROM trade";
    let Ok(Outcome::Query(plan)) = outcome(&mut session, script) else { panic!("a query") };
    let mut paths = Vec::new();
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            paths.push(scan.source.downcast_ref::<RawTable>().expect("a table").table.options["path"].clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .expect("walks");
    assert_eq!(paths, ["/h", "/a"]);
    assert_eq!(session.table("trade").expect("trade").options["path"], "/a");
    let Ok(Outcome::Inserts(inserts)) = outcome(&mut session, "INSERT INTO two /*+ OPTIONS('path'='/z') */ SELECT 1, 'a'") else {
        panic!("an insert")
    };
    assert_eq!(inserts[0].table.options["path"], "/z");
    fails("SELECT * FROM prices /*+ OPTIONS('a'='b') */", "prices is a view: it has no options", "prices", "in the view's query");
    fails(
        "SELECT /*+ OPTIONS('a'='b') */ * FROM two",
        "this hint OPTIONS belongs to no table",
        "/*+ OPTIONS('a'='b') */",
        "directly behind",
    );
    fails(
        "SELECT * FROM two /*+ STATE_TTL('two'='1d') */",
        "the hint STATE_TTL is not supported",
        "/*+ STATE_TTL('two'='1d') */",
        "table.exec.state.ttl",
    );
}

#[test]
fn files_are_tables() {
    use arrow::datatypes::DataType;
    use std::sync::Arc;
    use tidemill_plan::{Column, ColumnKind, Table};
    let mut session = session();
    session.set_file_resolver(Arc::new(|request| match request.paths[0].as_str() {
        path @ "data/*.csv" => Ok(vec![Table {
            name: path.to_string(),
            columns: vec![Column { name: "a".into(), data_type: DataType::Int64, nullable: true, kind: ColumnKind::Physical }],
            watermark: None,
            primary_key: Vec::new(),
            options: Default::default(),
        }]),
        other => Err(format!("{other}: no such file")),
    }));
    for from in ["'data/*.csv'", "`data/*.csv`", "(SELECT * FROM 'data/*.csv' AS f)"] {
        let Outcome::Query(plan) = outcome(&mut session, &format!("SELECT a FROM {from}")).expect(from) else { panic!("a query") };
        assert_eq!(plan.schema().fields().len(), 1, "{from}");
    }
    let call = "SELECT f.a FROM read_csv('data/*.csv', filename = true) AS f";
    assert!(matches!(outcome(&mut session, call), Ok(Outcome::Query(_))));
    let error = outcome(&mut session, "SELECT * FROM 'x.csv'").expect_err("no file");
    assert!(error.contains("x.csv: no such file") && error.contains("1:15"), "{error}");
    assert!(matches!(outcome(&mut session, "COPY 'data/*.csv' TO 'o.parquet' (FORMAT parquet)"), Ok(Outcome::Copy { .. })));
}

#[test]
fn settings_and_names() {
    let mut session = session();
    let script = "SET 'table.local-time-zone' = 'Asia/Tokyo'; SET 'a' = 'b'; SHOW TABLES";
    let Ok(Outcome::Tables(names)) = outcome(&mut session, script) else { panic!("names") };
    assert_eq!(names, ["bid", "prices", "sink", "trade", "two"]);
    assert_eq!(session.function_settings().time_zone, "Asia/Tokyo");
    outcome(&mut session, "RESET; DROP VIEW prices; DROP TABLE IF EXISTS nothing; EXPLAIN CREATE TABLE new AS SELECT 1 AS a")
        .expect("fine");
    assert!(session.settings().is_empty() && session.table("new").is_none());
    fails(
        "SET 'table.local-time-zone' = 'Mars'",
        "option 'table.local-time-zone': there is no time zone 'Mars'; give a name such as 'Europe/Berlin' or an offset such as '+02:00'",
        "SET 'table.local-time-zone' = 'Mars'",
        "",
    );
    fails("DROP VIEW bid", "bid is a table, not a view", "bid", "DROP TABLE bid");
    let Ok(Outcome::Describe(columns)) = outcome(&mut session, "DESCRIBE sink") else { panic!("columns") };
    assert_eq!((columns[0].key, columns[0].nullable, columns[4].extra.as_str()), (true, false, "METADATA VIRTUAL"));
}

/// Versions of a key by time.
const RATES: &str =
    "CREATE TABLE rate (k STRING, r INT, vt TIMESTAMP(3), PRIMARY KEY (k) NOT ENFORCED, WATERMARK FOR vt AS vt) WITH ('connector' = 'x'); ";

#[test]
fn temporal_joins() {
    plan(
        &format!(
            "{RATES} SELECT t.price, v.r FROM trade t LEFT JOIN rate FOR SYSTEM_TIME AS OF t.ts AS v ON v.k = t.symbol AND v.r > t.size"
        ),
        "Projection: t.price, v.r
         TemporalJoin: Left ON v.k = t.symbol AND v.r > t.size AS OF t.ts IN versions BY v.k FROM v.vt",
    );
    // A view that passes key and time on, and one that keeps the newest row of a key.
    plan(
        &format!(
            "{RATES} CREATE VIEW w AS SELECT vt AS since, UPPER(k) AS shown, k AS id FROM rate WHERE k <> 'x';
             SELECT t.price FROM trade t JOIN w FOR SYSTEM_TIME AS OF t.ts ON t.symbol = w.id"
        ),
        "Projection: t.price
         TemporalJoin: Inner ON t.symbol = w.id AS OF t.ts IN versions BY w.id FROM w.since",
    );
    plan(
        "CREATE VIEW w AS SELECT symbol, price, ts FROM (
           SELECT symbol, price, ts, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY ts DESC) AS n FROM trade) WHERE n = 1;
         SELECT t.size FROM trade t JOIN w FOR SYSTEM_TIME AS OF t.ts AS v ON t.symbol = v.symbol",
        "Projection: t.size
         TemporalJoin: Inner ON t.symbol = v.symbol AS OF t.ts IN versions BY v.symbol FROM v.ts
         SubqueryAlias: t",
    );
    let mistake = |query: &str, message: &str, at: &str| fails(&format!("{RATES}{query}"), message, at, "FOR SYSTEM_TIME AS OF a.rt AS v");
    mistake(
        "SELECT * FROM rate a JOIN trade FOR SYSTEM_TIME AS OF a.vt AS t ON a.k = t.symbol",
        "JOIN t FOR SYSTEM_TIME AS OF: t has no PRIMARY KEY … NOT ENFORCED: it says what the rows are versions of",
        "trade FOR SYSTEM_TIME AS OF a.vt",
    );
    mistake(
        "SELECT * FROM trade t JOIN sink FOR SYSTEM_TIME AS OF t.ts AS s ON t.size = s.k",
        "JOIN s FOR SYSTEM_TIME AS OF: s has no WATERMARK: the time from which a version is valid must be event time",
        "sink FOR SYSTEM_TIME AS OF t.ts",
    );
    mistake(
        "SELECT * FROM trade t JOIN rate FOR SYSTEM_TIME AS OF t.ts AS v ON t.size = v.r",
        "JOIN v FOR SYSTEM_TIME AS OF: the condition must say what the key column v.k is equal to",
        "rate FOR SYSTEM_TIME AS OF t.ts",
    );
    mistake(
        "SELECT * FROM trade t JOIN (SELECT k FROM rate) v ON t.symbol = v.k JOIN rate FOR SYSTEM_TIME AS OF v.k AS w ON w.k = v.k",
        "JOIN w FOR SYSTEM_TIME AS OF: the times of both sides must be of one type, but v.k is STRING and w.vt is TIMESTAMP(3)",
        "rate FOR SYSTEM_TIME AS OF v.k",
    );
    mistake(
        "SELECT * FROM trade t RIGHT JOIN rate FOR SYSTEM_TIME AS OF t.ts AS v ON t.symbol = v.k",
        "JOIN rate FOR SYSTEM_TIME AS OF: this is an INNER or a LEFT join",
        "rate FOR SYSTEM_TIME AS OF t.ts",
    );
    mistake(
        "SELECT * FROM rate FOR SYSTEM_TIME AS OF TIMESTAMP '2024-01-01 00:00:00'",
        "rate FOR SYSTEM_TIME AS OF: only the right side of a join can be read as of a time",
        "rate FOR SYSTEM_TIME AS OF TIMESTAMP…",
    );
    mistake(
        "CREATE VIEW w AS SELECT * FROM rate WHERE r > 3; SELECT * FROM trade t JOIN w FOR SYSTEM_TIME AS OF t.ts AS v ON t.symbol = v.k",
        "JOIN v FOR SYSTEM_TIME AS OF: v filters its versions by other columns than the key; put the condition into the ON of the join",
        "w FOR SYSTEM_TIME AS OF t.ts",
    );
}

/// A row of the left table found a partner by the columns of the right one: `b.price` was asked for
/// instead of `a.price`.
#[test]
fn subqueries_in_on() {
    for on in ["EXISTS (SELECT 1 FROM bid WHERE bid.price = a.price)", "a.price NOT IN (SELECT price FROM bid WHERE bid.price > b.price)"] {
        fails(
            &format!("SELECT a.symbol FROM trade AS a LEFT JOIN trade AS b ON a.symbol = b.symbol AND {on}"),
            "a subquery in ON cannot refer to columns of the joined tables: put it in WHERE, of this query or of one in FROM",
            "SELECT…",
            "",
        );
    }
}

const LOOKUPS: &str = "
CREATE TABLE o (id INT, kind STRING, amount DOUBLE, pt AS PROCTIME()) WITH ('connector' = 'x');
CREATE TABLE dim (id BIGINT, name STRING, up AS UPPER(name)) WITH ('connector' = 'y');
";

/// The fragments stand in the plan of a script, in this order.
#[track_caller]
fn lookup_plan(script: &str, fragments: &[&str]) {
    let text = shown_plan(&format!("{LOOKUPS}{script}"));
    let mut rest = text.as_str();
    for fragment in fragments {
        let Some((_, behind)) = rest.split_once(fragment) else { panic!("no {fragment:?} in its place\n{text}") };
        rest = behind;
    }
}

#[test]
fn lookup_joins() {
    lookup_plan(
        "SELECT o.kind, d.name, d.up FROM o JOIN dim FOR SYSTEM_TIME AS OF o.pt AS d ON o.id = d.id AND o.kind = 'a' AND d.name <> 'b'",
        &[
            "Filter: o.kind = Utf8(\"a\") AND d.name != Utf8(\"b\")",
            "d.id' AS id, d.name, upper(d.name)",
            "LookupJoin: Inner dim AS d ON id = CAST(o.id AS Int64)\n",
        ],
    );
    // The time may be the call itself, a key a constant, a number that does not fit no key at all.
    lookup_plan(
        "SELECT * FROM bid JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON dim.name = 'x' AND dim.id = auction + 1",
        &["LookupJoin: Inner dim ON name = Utf8(\"x\"), id = bid.auction + "],
    );
    lookup_plan(
        "CREATE TABLE small (id TINYINT) WITH ('connector' = 'y'); SELECT * FROM o JOIN small FOR SYSTEM_TIME AS OF o.pt ON small.id = o.id",
        &["LookupJoin: Inner small ON id = flink_try_cast(o.id"],
    );
    // What a LEFT join says of the left side decides who asks, the rest what counts as found.
    lookup_plan(
        "SELECT o.id, d.up FROM o LEFT JOIN dim FOR SYSTEM_TIME AS OF o.pt AS d ON o.id = d.id AND o.amount > 3 AND d.up <> o.kind",
        &[
            "CASE WHEN d.id' IS NOT NULL THEN upper(d.name) END AS up",
            "LookupJoin: Left dim AS d ON id = CASE WHEN o.amount > ",
            "AND upper(d.name) != o.kind",
        ],
    );
    // Through views and subqueries, several in a row, with hints.
    lookup_plan(
        "CREATE VIEW v AS SELECT id + 1 AS n, pt AS p FROM o WHERE kind IS NOT NULL;
         CREATE VIEW named AS SELECT id AS key, name FROM dim WHERE name <> '';
         SELECT /*+ LOOKUP('table'='b', 'output-mode'='allow_unordered', 'capacity'='7', 'timeout'='10s') */ * FROM (SELECT * FROM v) x
         JOIN dim FOR SYSTEM_TIME AS OF x.p AS a ON a.id = x.n
         LEFT JOIN named FOR SYSTEM_TIME AS OF x.p AS b ON b.key = a.id",
        &[
            "LookupJoin: Left dim AS b ON id = a.id AND b.name' != Utf8(\"\") LOOKUP('output-mode'='allow_unordered', 'capacity'='7', 'timeout'='10000 ms')",
            "LookupJoin: Inner dim AS a ON id = ",
        ],
    );
}

#[test]
fn lookup_joins_that_cannot_be() {
    let mistake = |query: &str, message: &str, at: &str, help: &str| fails(&format!("{LOOKUPS}{query}"), message, at, help);
    let join = "dim FOR SYSTEM_TIME AS OF o.pt";
    let on = |on: &str, message: &str| {
        let query = format!("SELECT * FROM o JOIN dim FOR SYSTEM_TIME AS OF o.pt AS d ON {on}");
        mistake(&query, message, join, "pt AS PROCTIME()");
    };
    on("d.id > o.id", "JOIN d FOR SYSTEM_TIME AS OF: the condition must say what a column of d is equal to");
    on(
        "d.id = o.amount",
        "JOIN d FOR SYSTEM_TIME AS OF: d.id is BIGINT, what it is compared with, o.amount, is DOUBLE: CAST that to the type of the column",
    );
    mistake(
        "SELECT * FROM o RIGHT JOIN dim FOR SYSTEM_TIME AS OF o.pt AS d ON d.id = o.id",
        "JOIN dim FOR SYSTEM_TIME AS OF: this is an INNER or a LEFT join",
        join,
        "FOR SYSTEM_TIME AS OF",
    );
    mistake(
        "CREATE VIEW g AS SELECT id, COUNT(*) AS n FROM dim GROUP BY id; SELECT * FROM o JOIN g FOR SYSTEM_TIME AS OF o.pt ON g.id = o.id",
        "JOIN g FOR SYSTEM_TIME AS OF: g is not a table: only a table, or a view that renames and filters its columns, can be asked for keys",
        "g FOR SYSTEM_TIME AS OF o.pt",
        "pt AS PROCTIME()",
    );
    mistake(
        "SELECT window_start FROM TUMBLE(TABLE o, DESCRIPTOR(pt), INTERVAL '1' HOUR)",
        "TUMBLE: pt is processing time, and windows are over event time",
        "pt",
        "rt AS CURRENT_TIMESTAMP, WATERMARK FOR rt AS rt",
    );
    let hint = |hint: &str, message: &str, help: &str| {
        let hint = format!("/*+ LOOKUP({hint}) */");
        let query = format!("SELECT {hint} d.id FROM o JOIN dim FOR SYSTEM_TIME AS OF o.pt AS d ON d.id = o.id");
        mistake(&query, message, &hint, help);
    };
    hint("'table'='dim'", "no lookup join of this SELECT joins dim", "by its alias");
    hint("'async'='true'", "LOOKUP: 'table' is missing: it names the table that is joined", "write SELECT /*+ LOOKUP(");
    hint("'table'='d', 'capacity'='0'", "LOOKUP: 'capacity' = '0': expected 1 to 100000", "write SELECT");
    hint("'table'='d', 'output-mode'='any'", "LOOKUP: 'output-mode' = 'any': expected ordered or allow_unordered", "write SELECT");
    hint("'table'='d', 'timout'='1s'", "LOOKUP: there is no option 'timout'", "did you mean 'timeout'?");
    hint(
        "'table'='d', 'retry-predicate'='lookup_miss'",
        "LOOKUP: asking again for what was not found takes 'retry-predicate', 'fixed-delay' and 'max-attempts'",
        "'fixed-delay' = '10 s'",
    );
}

/// DataFusion names a cast without its type: it refused such keys and aggregates, as two columns of one name, and took the
/// sum of an AVG of whole numbers for that of the same value under a cast.
#[test]
fn casts_of_one_value_are_columns_of_their_own() {
    plan(
        "SELECT CAST(trade.size AS STRING), CAST(size AS BIGINT), SUM(price) FROM trade GROUP BY CAST(size AS STRING), CAST(size AS BIGINT)",
        "Projection: CAST(trade.size AS Utf8) AS EXPR$0, CAST(trade.size AS Int64) AS EXPR$1, sum(trade.price) AS EXPR$2
         Aggregate: groupBy=[[flink_cast_string(trade.size) AS CAST(trade.size AS Utf8), CAST(trade.size AS Int64) AS CAST(trade.size AS Int64)]], aggr=[[sum(trade.price)]]",
    );
    for query in [
        "SELECT SUM(size), SUM(CAST(size AS DOUBLE)), SUM(TRY_CAST(size AS DOUBLE)) FROM trade",
        "SELECT COUNT(*) FROM trade GROUP BY CAST(size AS BIGINT) + 1, size + 1, CAST(CAST(size AS STRING) AS BIGINT) + 1",
        "SELECT CAST(size AS INTEGER) FROM trade GROUP BY CAST(size AS INT), CAST(size AS STRING) ORDER BY CAST(size AS STRING)",
        "SELECT COUNT(*) FROM trade GROUP BY CUBE (CAST(size AS INT), CAST(size AS STRING)) HAVING GROUPING(CAST(size AS INT)) = 1",
        "SELECT 1 UNION ALL SELECT CAST(size AS BIGINT) FROM trade GROUP BY CAST(size AS BIGINT), CAST(size AS STRING)",
    ] {
        let text = shown_plan(query);
        assert!(!text.contains("named_cast"), "{query}\n{text}");
    }
    // Two sums and two counts, not one of each.
    let means = shown_plan("SELECT AVG(size), AVG(CAST(size AS BIGINT)) FROM trade");
    let aggregate = means.lines().find(|line| line.contains("Aggregate:")).expect("an aggregate");
    assert_eq!(aggregate.matches("(CAST(trade.size AS Int64))").count(), 2, "{means}");
}

/// Whoever knows the connectors says which tables can be looked up.
#[test]
fn tables_that_cannot_be_looked_up() {
    let script = format!("{LOOKUPS}SELECT * FROM o JOIN dim FOR SYSTEM_TIME AS OF o.pt AS d ON d.id = o.id");
    let mut session = session();
    session.set_lookup_resolver(std::sync::Arc::new(|table: &tidemill_plan::Table| Err(format!("table '{}': no", table.name))));
    let error = outcome(&mut session, &script).expect_err("no lookup");
    assert!(error.contains("JOIN d FOR SYSTEM_TIME AS OF: table 'dim': no") && error.contains("dim FOR SYSTEM_TIME AS OF o.pt"), "{error}");
}

/// Columns that only ORDER BY needs are hash-ordered in DataFusion, and state is found again by what plans look like.
#[test]
fn a_text_has_one_plan() {
    for query in [
        "SELECT auction FROM bid ORDER BY price * ms, bidder LIMIT 6",
        "SELECT DISTINCT auction FROM (SELECT auction FROM bid ORDER BY ms + price + auction LIMIT 5)",
        "SELECT a FROM (SELECT auction AS a FROM bid WHERE EXISTS (SELECT 1 FROM trade ORDER BY price * size LIMIT 1) ORDER BY ms * price, bidder LIMIT 2)",
    ] {
        let first = shown_plan(query);
        for _ in 0..30 {
            assert_eq!(shown_plan(query), first, "{query}");
        }
    }
}
