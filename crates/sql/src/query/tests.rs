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
        Outcome::Inserts(inserts) => inserts.iter().map(|i: &InsertPlan| format!("{}\n{}", i.table.name, i.plan.display_indent())).collect::<Vec<_>>().join("\n"),
        other => format!("{other:?}"),
    }
}

/// The plan of a script must be this, or the first lines of it.
#[track_caller]
fn plan(script: &str, expect: &str) {
    let text = match outcome(&mut session(), script) {
        Ok(outcome) => shown(&outcome),
        Err(e) => panic!("{e}"),
    };
    let expect: Vec<&str> = expect.trim().lines().map(str::trim).collect();
    let found: Vec<&str> = text.lines().map(str::trim).take(expect.len()).collect();
    assert!(found == expect, "{script}\n{text}");
}

/// The script must fail with this message, pointing at this text, with help that contains this.
#[track_caller]
fn fails(script: &str, message: &str, at: &str, help: &str) {
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
fn look() {
    for q in [
        "SELECT * FROM bid",
        "SELECT bidder, COUNT(*), AVG(price), SUM(price) FROM bid GROUP BY bidder",
        "SELECT AVG(price) OVER (PARTITION BY bidder ORDER BY rt) FROM bid",
        "SELECT window_start, w.bidder, MAX(price) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '10' SECOND)) AS w GROUP BY window_start, window_end, w.bidder",
        "SELECT bid.auction FROM HOP(TABLE bid, DESCRIPTOR(rt), INTERVAL '1:30' MINUTE TO SECOND, INTERVAL '3' MINUTES)",
        "SELECT TUMBLE_START(ts, INTERVAL '1' DAY) AS s, TUMBLE_ROWTIME(ts, INTERVAL '1' DAY), symbol, SUM(size) FROM trade AS t WHERE t.price > 1 GROUP BY TUMBLE(ts, INTERVAL '1' DAY), symbol HAVING COUNT(*) > 1",
        "SELECT SESSION_END(ts, INTERVAL '1' HOUR), symbol, SUM(size) FROM trade WHERE price > 1 GROUP BY SESSION(ts, INTERVAL '1' HOUR), symbol",
        "SELECT bidder, SUM(price) FROM bid GROUP BY bidder HAVING SUM(price) > 1 ORDER BY SUM(price) DESC",
        "SELECT price + 1, COUNT(*) FROM bid GROUP BY price + 1",
        "SELECT DISTINCT price + 1 FROM bid ORDER BY price + 1",
        "SELECT r.a, b.r.b, b.price, price, 1, 1 FROM bid b",
        "SELECT auction, t FROM bid LEFT JOIN UNNEST(tags) AS u(t) ON TRUE WHERE u.t = 'a'",
        "SELECT auction, t FROM bid, UNNEST(tags) AS u(t)",
        "INSERT INTO two VALUES (1, 'a'), (2, NULL)",
        "INSERT INTO two SELECT 1, 'a' UNION ALL SELECT price, bidder FROM bid",
        "SELECT auction FROM bid UNION SELECT size FROM trade",
        "WITH q AS (SELECT symbol AS s, price FROM trade) SELECT s, MAX(price) FROM q GROUP BY s",
        "SELECT * FROM TUMBLE(TABLE (SELECT symbol, ts FROM trade), DESCRIPTOR(ts), INTERVAL '1' DAY, -INTERVAL '8' HOUR)",
        "SELECT * FROM TABLE(CUMULATE(DATA => TABLE trade, TIMECOL => DESCRIPTOR(ts), STEP => INTERVAL '1' HOUR, SIZE => INTERVAL '1' DAY))",
        "SELECT window_start, window_end, k, SUM(n) FROM (SELECT window_start AS ws, window_time AS wt, symbol AS k, COUNT(*) AS n FROM TUMBLE(TABLE trade, DESCRIPTOR(ts), INTERVAL '1' MINUTE) GROUP BY window_start, window_end, window_time, symbol) AS m GROUP BY n",
        "COPY two TO 'x.csv'",
        "DESCRIBE bid",
        "SHOW CREATE TABLE bid",
        "SHOW CREATE TABLE sink",
        "EXPLAIN INSERT INTO two SELECT 1, 'a'",
        "SELECT CAST(price AS STRING), CAST('1' AS INT), TRY_CAST(extra AS DOUBLE), price || 'x', CAST(price AS BIGINT), CAST(ms AS INT), DATE '2024-01-01', TIMESTAMP '2024-01-01 00:00:00' FROM bid",
        "SELECT EXTRACT(YEAR FROM rt), FLOOR(rt TO HOUR), SUBSTRING(extra FROM 2 FOR 3), POSITION('a' IN extra), CEIL(price), LISTAGG(extra), r.a, tags[1] FROM bid GROUP BY rt, extra, price, r, tags",
        "INSERT INTO sink SELECT auction, price, bidder, CAST(rt AS TIMESTAMP(3)) FROM bid",
        "INSERT INTO sink (v, k) SELECT price, 7 FROM bid",
        "SELECT * FROM prices",
        "SELECT b.auction FROM bid b JOIN trade t ON b.bidder = t.symbol AND t.ts BETWEEN CAST(b.rt AS TIMESTAMP(3)) - INTERVAL '1' HOUR AND CAST(b.rt AS TIMESTAMP(3))",
        "SELECT auction, t FROM bid CROSS JOIN UNNEST(tags) AS u(t)",
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY ts DESC) AS rn FROM trade) WHERE rn = 1",
        "SELECT symbol FROM trade WHERE price > (SELECT AVG(size) FROM trade) AND symbol IN (SELECT bidder FROM bid)",
        "CREATE TABLE x WITH ('connector' = 'print') AS SELECT symbol, COUNT(*) AS n FROM trade GROUP BY symbol",
        "SELECT path FROM (VALUES (1, ROW(1, 'a'))) AS v(path, b)",
        "SELECT symbol, CURRENT_TIMESTAMP, NOW(), LOCALTIMESTAMP FROM trade ORDER BY symbol LIMIT 3",
        "SELECT symbol FROM trade QUALIFY ROW_NUMBER() OVER (PARTITION BY symbol ORDER BY ts) = 1",
        "SELECT COUNT(DISTINCT symbol) FILTER (WHERE price > 1), STDDEV_POP(price), FIRST_VALUE(symbol), PERCENTILE(price, 0.5), APPROX_COUNT_DISTINCT(symbol) FROM trade",
    ] {
        match outcome(&mut session(), q) {
            Ok(o) => println!("-- {q}\n{}\n", shown(&o)),
            Err(e) => println!("-- {q}\nERR {e}\n"),
        }
    }
    for q in [
        "SELECT pric FROM bid",
        "SELECT b.price FROM bid",
        "SELECT BIDDER FROM bid",
        "SELECT b.pric FROM bid b",
        "SELECT * FROM bids",
        "SELECT * FROM Bid",
        "SELECT nosuch(1) FROM bid",
        "SELECT UPER(bidder) FROM bid",
        "SELECT bidder FROM bid GROUP BY 1",
        "SELECT bidder, price FROM bid GROUP BY bidder",
        "SELECT price FROM bid JOIN trade ON TRUE",
        "SELECT TUMBLE_START(ts, INTERVAL '1' DAY) FROM trade",
        "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(rtt), INTERVAL '10' SECOND)",
        "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(ms), INTERVAL '10' SECOND)",
        "SELECT * FROM TUMBLE(TABLE bids, DESCRIPTOR(ms), INTERVAL '10' SECOND)",
        "SELECT * FROM HOP(TABLE bid, DESCRIPTOR(rt), INTERVAL '10' SECOND, INTERVAL '5' SECOND)",
        "SELECT * FROM TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '1' MONTH)",
        "SELECT SUM(bidder) FROM bid",
        "SELECT price, price FROM bid",
        "SELECT bidder FROM bid WHERE bidder > INTERVAL '1' DAY",
        "SELECT COALESCE(bidder, tags) FROM bid",
        "SELECT LAG(price) FROM bid",
        "SELECT UPPER(bidder) OVER (ORDER BY rt) FROM bid",
        "SELECT REGEXP_EXTRACT(bidder) FROM bid",
        "SELECT bidder + 1 FROM bid",
        "SELECT bidder FROM bid WHERE price",
        "SELECT UPPER() FROM bid",
        "SELECT COUNT(price, 1, 2) FROM bid",
        "SELECT price FROM bid WHERE SUM(price) > 1",
        "SELECT * FROM default_catalog.default_database.bid UNION ALL SELECT 1",
        "SELECT * FROM x.bid",
        "SELECT * FROM 'a.csv'",
        "INSERT INTO sink SELECT 1",
        "INSERT INTO two SELECT 'a', 'b'",
        "INSERT INTO sink (v) SELECT 1",
        "INSERT INTO sink (k, h) SELECT 1, 'a'",
        "INSERT INTO prices SELECT 1",
        "CREATE TABLE t (a INT, b AS a + 1, c AS b + 1)",
        "CREATE TABLE t (a INT, b AS z + 1)",
        "CREATE TABLE t (a INT, b AS SUM(a))",
        "CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a)",
        "CREATE TABLE t (a BIGINT, WATERMARK FOR a AS a)",
        "CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR b AS a)",
        "CREATE TABLE t (a TIMESTAMP(3), WATERMARK FOR a AS 1)",
        "CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)",
        "CREATE TABLE bid (a INT)",
        "CREATE TABLE t (k INT) LIKE two",
        "CREATE TABLE t LIKE prices",
        "DROP VIEW bid",
        "SET 'table.local-time-zone' = 'Mars'",
        "SELECT * FROM bid /*+ OPTIONS('a'='b') */ WHERE 1 = 0; SELECT 1; SELECT * FROM (SELECT 1) AS z; SELECT * FROM prices /*+ OPTIONS('a'='b') */",
        "SELECT a FROM (SELECT price, price FROM bid) AS x(a, a)",
        "SELECT CAST(tags AS INT) FROM bid",
        "WITH RECURSIVE q AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM q) SELECT * FROM q",
        "SELECT * FROM bid WHERE price IN (SELECT price, auction FROM bid)",
        "SELECT CASE WHEN price THEN 1 ELSE 'a' END FROM bid",
    ] {
        match outcome(&mut session(), q) {
            Ok(o) => println!("-- {q}\nFINE {}\n", shown(&o)),
            Err(e) => println!("{e}\n"),
        }
    }
}
