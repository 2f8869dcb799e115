//! Plans and errors of patterns.

use crate::query::tests::{fails, shown_plan};

/// The node's line in the plan of a pattern over `trade` (symbol, price, size, ts).
fn node(clause: &str) -> String {
    let text = shown_plan(&format!("SELECT * FROM trade MATCH_RECOGNIZE ({clause}) AS m"));
    let line = text.lines().map(str::trim).find(|l| l.starts_with("MatchRecognize:"));
    line.unwrap_or_else(|| panic!("{clause}\n{text}")).to_string()
}

/// The node must be shown with all of these.
#[track_caller]
fn has(clause: &str, parts: &[&str]) {
    let text = node(clause);
    for part in parts {
        assert!(text.contains(part), "{clause}\n{text}\nlacks {part}");
    }
}

#[test]
fn columns_of_other_rows() {
    has(
        "PARTITION BY symbol ORDER BY ts MEASURES A.price AS a, LAST(B.price, 1) AS b PATTERN (A B+ C) WITHIN INTERVAL '10' SECOND
         DEFINE B AS price > A.price AND B.price > LAST(B.price, 1)",
        &[
            "MatchRecognize: PARTITION BY trade.symbol ORDER BY trade.ts PATTERN (A B+ C) WITHIN 10000 ms ONE ROW PER MATCH SKIP TO NEXT ROW DEFINE A AS TRUE, B AS ",
            ", C AS TRUE WHERE $navigation0 = RUNNING LAST(trade.price, 0) OF A, $navigation1 = RUNNING LAST(trade.price, 1) OF B, $navigation2 = LAST(trade.price, 0) OF A, $navigation3 = LAST(trade.price, 1) OF B OUTPUT trade.symbol AS symbol, $navigation2 AS a, $navigation3 AS b",
        ],
    );
    // The row that is tried is the current row, under whatever name.
    let own = node(
        "ORDER BY ts MEASURES symbol AS s PATTERN (A B) SUBSET S = (A, B) DEFINE A AS A.price > 1e0 AND S.price < LAST(price) AND LAST(A.price) > 2e0",
    );
    assert!(!own.contains("$navigation"), "{own}");
    has(
        "ORDER BY ts MEASURES MATCH_ROWTIME() AS t PATTERN (A) DEFINE A AS PREV(A.price) < price AND PREV(price, 1) < 5e0 AND NEXT(price, 2) > price",
        &[
            "$navigation0 = RUNNING PREV(LAST(trade.price, 0), 1), $navigation1 = RUNNING NEXT(LAST(trade.price, 0), 2), $navigation2 = LAST(trade.ts, 0) OUTPUT $navigation2 AS t",
        ],
    );
    has(
        "ORDER BY ts MEASURES PREV(FIRST(B.price + 1e0, 1), 2) AS x, CLASSIFIER(S) AS c, MATCH_NUMBER() AS n PATTERN (A | B) SUBSET S = (B, A) DEFINE A AS price > 1e0",
        &["PREV(FIRST(trade.price + Float64(1), 1), 2) OF B", "LAST(CLASSIFIER(), 0) OF A, B", "MATCH_NUMBER()", "PATTERN ((A | B))"],
    );
}

#[test]
fn aggregates() {
    has(
        "ORDER BY ts MEASURES SUM(A.price * 2e0) AS s, COUNT(A.*) AS n, COUNT(*) AS m, AVG(A.size) AS w, AVG(A.price) AS d PATTERN (A+ B) DEFINE A AS COUNT(A.size) < 3",
        &[
            "RUNNING count(trade.size) OF A",
            " sum(trade.price * Float64(2)) OF A",
            " count(Int64(1)) OF A",
            " count(Int64(1)), ",
            " avg(trade.price) OF A",
        ],
    );
}

#[test]
fn all_rows() {
    has(
        "PARTITION BY symbol ORDER BY ts, size DESC MEASURES A.price AS a, FINAL LAST(A.price) AS f, RUNNING COUNT(*) AS n, PREV(FINAL FIRST(A.price)) AS p
         ALL ROWS PER MATCH WITH UNMATCHED ROWS AFTER MATCH SKIP TO LAST B PATTERN (A {- B -}) DEFINE B AS B.price > 1e0",
        &[
            "ORDER BY trade.ts, trade.size DESC PATTERN (A {- B -}) ALL ROWS PER MATCH WITH UNMATCHED ROWS SKIP TO LAST B",
            "$navigation0 = RUNNING LAST(trade.price, 0) OF A, $navigation1 = LAST(trade.price, 0) OF A, $navigation2 = RUNNING count(Int64(1)), $navigation3 = PREV(FIRST(trade.price, 0), 1) OF A",
            "OUTPUT trade.symbol AS symbol, trade.price AS price, trade.size AS size, trade.ts AS ts, $navigation0 AS a",
        ],
    );
}

/// The clause must fail with this message at this text.
#[track_caller]
fn wrong(clause: &str, message: &str, at: &str, help: &str) {
    fails(&format!("SELECT * FROM trade MATCH_RECOGNIZE ({clause})"), message, at, help);
}

#[test]
fn errors_of_columns() {
    wrong(
        "MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 1",
        "MATCH_RECOGNIZE needs ORDER BY a time column",
        "MATCH_RECOGNIZE",
        "WATERMARK FOR",
    );
    wrong(
        "ORDER BY price MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 1",
        "MATCH_RECOGNIZE: ORDER BY begins with a TIMESTAMP(3) or TIMESTAMP_LTZ(3) column, price is DOUBLE",
        "price",
        "WATERMARK FOR",
    );
    wrong(
        "ORDER BY ts DESC MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 1",
        "MATCH_RECOGNIZE: ORDER BY ts must be ascending: rows come in order of time",
        "ts",
        "leave DESC out",
    );
    wrong(
        "PARTITION BY size + 1 ORDER BY ts MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 1",
        "MATCH_RECOGNIZE: PARTITION BY takes columns, not size + 1",
        "size + 1",
        "compute it before",
    );
    wrong("PARTITION BY symbl ORDER BY ts PATTERN (A) DEFINE A AS price > 1", "there is no column symbl", "symbl", "did you mean symbol?");
    wrong(
        "PARTITION BY symbol ORDER BY ts MEASURES A.price AS symbol PATTERN (A) DEFINE A AS price > 1",
        "MATCH_RECOGNIZE would have two columns named symbol",
        "symbol",
        "another name",
    );
    wrong("ORDER BY ts PATTERN (A) DEFINE A AS price > 1", "MATCH_RECOGNIZE would have no columns", "MATCH_RECOGNIZE", "MEASURES");
    wrong("ORDER BY ts MEASURES A.pric AS p PATTERN (A) DEFINE A AS price > 1", "there is no column pric", "pric", "did you mean price?");
}

#[test]
fn errors_of_variables() {
    let clause = |measure: &str, condition: &str| format!("ORDER BY ts MEASURES {measure} AS p PATTERN (A B) DEFINE A AS {condition}");
    wrong(&clause("Z.price", "price > 1"), "there is no pattern variable Z", "Z", "there are A, B");
    wrong(&clause("trade.price", "price > 1"), "there is no pattern variable trade", "trade", "columns have pattern variables in front");
    wrong(&clause("A.price", "A.price"), "the condition of A must be BOOLEAN, it is DOUBLE", "A.price", "compare");
    wrong(&clause("A.price", "FINAL LAST(A.price) > 1"), "FINAL stands in MEASURES only", "FINAL", "up to the current one");
    wrong(&clause("A.price", "MATCH_ROWTIME() > ts"), "MATCH_ROWTIME stands in MEASURES only", "MATCH_ROWTIME", "is ts");
    wrong(&clause("MATCH_ROWTIME(price)", "price > 1"), "MATCH_ROWTIME gives the time that orders the rows, ts", "MATCH_ROWTIME", "LAST");
    wrong(&clause("LAST(A.price - B.price)", "price > 1"), "LAST is over the rows of one variable, here are A and B", "B", "SUBSET");
    wrong(
        &clause("SUM(A.price * size)", "price > 1"),
        "SUM is over the rows of one variable, here are A and all rows",
        "size",
        "same variable",
    );
    wrong(&clause("LAST(PREV(A.price))", "price > 1"), "PREV cannot stand in LAST", "PREV", "PREV(LAST(A.price, 1), 2)");
    wrong(&clause("SUM(LAST(A.price))", "price > 1"), "LAST cannot stand in SUM", "LAST", "over its columns");
    wrong(&clause("LAST(A.price, B.size)", "price > 1"), "LAST: how many rows is a whole number, not B.size", "B.size", "LAST(A.price, 1)");
    wrong(&clause("CLASSIFIER(Q)", "price > 1"), "there is no pattern variable Q", "Q", "there are");
    wrong(
        &clause("SUM(A.price) OVER (ORDER BY ts)", "price > 1"),
        "OVER cannot stand in MATCH_RECOGNIZE",
        "SUM",
        "over the rows of the match",
    );
    wrong(
        "ORDER BY ts MEASURES A.price AS p PATTERN (A) DEFINE X AS price > 1",
        "DEFINE names X, which does not occur in PATTERN",
        "X",
        "A",
    );
    wrong("ORDER BY ts MEASURES A.price AS p PATTERN (A) DEFINE A AS price > 1, A AS price < 2", "A is defined twice", "A", "AND");
    wrong(
        "ORDER BY ts MEASURES A.price AS p PATTERN (A) SUBSET S = (A, C) DEFINE A AS price > 1",
        "SUBSET names C, which does not occur in PATTERN",
        "C",
        "A",
    );
}

#[test]
fn errors_of_patterns() {
    let clause = |skip: &str, pattern: &str| format!("ORDER BY ts MEASURES COUNT(*) AS n {skip} PATTERN ({pattern}) DEFINE A AS price > 1");
    wrong(&clause("", "A* B?"), "this pattern matches without any row", "A* B?", "A+ in place of A*");
    wrong(&clause("", "A B+"), "B matches every row and is repeated without end: a match with it is never decided", "B", "WITHIN INTERVAL");
    wrong(&clause("", "A (A | B)* A"), "B matches every row and is repeated without end: a match with it is never decided", "B", "B*?");
    for fine in ["A B*? A", "A (B A)+", "A+", "A B{0,5}"] {
        node(&clause("", fine));
    }
    node("ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A B+) WITHIN INTERVAL '1' HOUR DEFINE A AS price > 1");
    wrong(
        &clause("", "A{200,} (B{100} A){200}"),
        "this pattern has 20400 steps when its counts and PERMUTEs are written out, at most 10000 can be",
        "A{200,} (B{100} A){200}",
        "fewer times",
    );
    wrong(
        &clause("AFTER MATCH SKIP TO FIRST A", "A B"),
        "every match begins with A: the search would come back to the same row for ever",
        "A",
        "NEXT ROW",
    );
    wrong(
        &clause("AFTER MATCH SKIP TO LAST A", "A B C"),
        "every match begins with A: the search would come back to the same row for ever",
        "A",
        "PAST LAST ROW",
    );
    node(&clause("AFTER MATCH SKIP TO LAST A", "A+ B"));
    wrong(&clause("AFTER MATCH SKIP TO LAST C", "A B"), "AFTER MATCH SKIP TO: there is no pattern variable C", "C", "there are A, B");
    wrong(
        "ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A) WITHIN INTERVAL '1' MONTH DEFINE A AS price > 1",
        "WITHIN: months and years have no fixed length; give days",
        "'1'",
        "WITHIN INTERVAL '10' SECOND",
    );
}
