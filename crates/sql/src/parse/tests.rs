//! Scripts in, statements or errors out.

use sqlparser::ast::Query;

use super::parse_script;
use crate::ast::{CopySource, CreateTable, HintKind, Insert, ItemKind, Statement, StatementKind};
use crate::types::flink_type;

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn show_query(query: &Query) -> String {
    query.to_string()
}

fn show_insert(insert: &Insert) -> String {
    let verb = if insert.overwrite { "overwrite" } else { "insert" };
    let conflict = insert.deduplicate.map_or("", |_| " deduplicated");
    format!("{verb} {}({}) {}{conflict}", insert.table, list(&insert.columns), show_query(&insert.query))
}

fn show_table(table: &CreateTable) -> String {
    let mut out = String::from("table ");
    if table.temporary {
        out += "temporary ";
    }
    if table.if_not_exists {
        out += "if-not-exists ";
    }
    let null = |nullable: &bool| if *nullable { "" } else { " not-null" };
    let note = |comment: &Option<String>| comment.as_ref().map(|c| format!(" '{c}'")).unwrap_or_default();
    let items: Vec<_> = table
        .items
        .iter()
        .map(|item| match &item.kind {
            ItemKind::Physical { name, data_type, nullable, primary_key, comment } => {
                format!("{name} {}{}{}{}", flink_type(data_type), null(nullable), if *primary_key { " pk" } else { "" }, note(comment))
            }
            ItemKind::Metadata { name, data_type, nullable, key, is_virtual, comment } => {
                format!(
                    "{name} {}{} <- {key}{}{}",
                    flink_type(data_type),
                    null(nullable),
                    if *is_virtual { " virtual" } else { "" },
                    note(comment)
                )
            }
            ItemKind::Computed { name, expr, comment } => format!("{name} := {expr}{}", note(comment)),
            ItemKind::Watermark { column, expr } => format!("watermark {column} {expr}"),
            ItemKind::PrimaryKey { columns } => format!("key {}", list(columns)),
        })
        .collect();
    out += &format!("{}[{}]", table.name, items.join("; "));
    out += &note(&table.comment);
    if !table.partitioned_by.is_empty() {
        out += &format!(" by {}", list(&table.partitioned_by));
    }
    for option in &table.options {
        out += &format!(" {}={}", option.key, option.value);
    }
    if let Some(like) = &table.like {
        out += &format!(" like {}", like.table);
        for o in &like.options {
            out += &format!(" {:?}-{:?}", o.strategy, o.feature);
        }
    }
    if let Some(query) = &table.query {
        out += &format!(" as {}", show_query(query));
    }
    out
}

fn show(statement: &Statement) -> String {
    match &statement.kind {
        StatementKind::CreateTable(table) => show_table(table),
        StatementKind::CreateView { temporary, if_not_exists, name, columns, query } => {
            format!("view {temporary} {if_not_exists} {name}({}) {}", list(columns), show_query(query))
        }
        StatementKind::DropTable { if_exists, name } => format!("drop-table {if_exists} {name}"),
        StatementKind::DropView { if_exists, name } => format!("drop-view {if_exists} {name}"),
        StatementKind::Insert(insert) => show_insert(insert),
        StatementKind::StatementSet(inserts) => format!("set[{}]", inserts.iter().map(show_insert).collect::<Vec<_>>().join("; ")),
        StatementKind::Set { key, value } => format!("set {key}={value}"),
        StatementKind::Reset { key } => format!("reset {key:?}"),
        StatementKind::Query(query) => show_query(query),
        StatementKind::Explain { details, statement } => format!("explain[{}] {}", list(details), show(statement)),
        StatementKind::Describe { name } => format!("describe {name}"),
        StatementKind::CreateFunction(function) => format!("function {function:?}"),
        StatementKind::DropFunction { .. } => format!("{:?}", statement.kind),
        StatementKind::ShowTables => "show-tables".into(),
        StatementKind::ShowCreateTable { name } => format!("show-create {name}"),
        StatementKind::Copy { source, to, options } => {
            let source = match source {
                CopySource::Table(name) => name.to_string(),
                CopySource::Query(query) => format!("({query})"),
            };
            format!("copy {source} to {to} {options:?}")
        }
    }
}

fn outcome(script: &str) -> String {
    match parse_script(script) {
        Ok(statements) => statements.iter().map(show).collect::<Vec<_>>().join(" | "),
        Err(e) => {
            let span = e.span.unwrap_or_else(|| panic!("no place: {e}"));
            // Every error can be drawn.
            e.render("f.sql", script, true);
            format!("{} @ {}", e.message, span.text(script))
        }
    }
}

#[track_caller]
fn check(script: &str, expect: &str) {
    assert_eq!(outcome(script), expect, "{script}");
}

/// A query whose text is its tree's text.
#[track_caller]
fn check_same(query: &str) {
    check(query, query);
}

#[track_caller]
fn check_help(script: &str, expect: &str) {
    let error = parse_script(script).expect_err("an error");
    assert_eq!(error.help.as_deref(), Some(expect), "{script}: {error}");
}

#[test]
fn scripts() {
    check("", "");
    check(";;; -- nothing\n /* at all */ ;", "");
    check("SELECT 1", "SELECT 1");
    check("SELECT 1; SELECT ';' AS `;`;", "SELECT 1 | SELECT ';' AS `;`");
    check("-- first\nSHOW TABLES; /* ; */ show tables;", "show-tables | show-tables");
    let statements = parse_script("  SELECT 1 ; -- c\n SELECT\n 2;").expect("parses");
    let script = "  SELECT 1 ; -- c\n SELECT\n 2;";
    assert_eq!(statements.iter().map(|s| s.span.text(script)).collect::<Vec<_>>(), ["SELECT 1", "SELECT\n 2"]);
}

#[test]
fn create_table_columns() {
    check("CREATE TABLE t (a INT)", "table t[a INT]");
    check(
        "create temporary table if not exists c.d.`my t` (a int not null comment 'x')",
        "table temporary if-not-exists c.d.`my t`[a INT not-null 'x']",
    );
    check("CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED, b STRING NULL)", "table t[a INT not-null pk; b STRING]");
    check("CREATE TABLE t (a INT CONSTRAINT k PRIMARY KEY NOT ENFORCED)", "table t[a INT not-null pk]");
    check("CREATE TABLE t (a INT, b INT, PRIMARY KEY (a, b) NOT ENFORCED)", "table t[a INT; b INT; key a, b]");
    check("CREATE TABLE t (a INT, CONSTRAINT k PRIMARY KEY (a) NOT ENFORCED)", "table t[a INT; key a]");
    check(
        "CREATE TABLE t (`offset` BIGINT METADATA VIRTUAL, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp')",
        "table t[`offset` BIGINT <- offset virtual; ts TIMESTAMP_LTZ(3) <- timestamp]",
    );
    check(
        "CREATE TABLE t (h MAP<STRING, BYTES> NOT NULL METADATA FROM 'headers' VIRTUAL COMMENT 'h')",
        "table t[h MAP<STRING, BYTES> not-null <- headers virtual 'h']",
    );
    check("CREATE TABLE t (a INT, b AS a * 2, pt AS PROCTIME() COMMENT 'now')", "table t[a INT; b := a * 2; pt := PROCTIME() 'now']");
    check(
        "CREATE TABLE t (ms BIGINT, rt AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR rt AS rt - INTERVAL '5' SECOND)",
        "table t[ms BIGINT; rt := TO_TIMESTAMP_LTZ(ms, 3); watermark rt rt - INTERVAL '5' SECOND]",
    );
    check(
        "CREATE TABLE t (a ROW<b ARRAY<MAP<STRING, ARRAY<INT>>>, c INT>, watermark INT, primary INT, `constraint` INT)",
        "table t[a ROW<`b` ARRAY<MAP<STRING, ARRAY<INT>>>, `c` INT>; watermark INT; primary INT; `constraint` INT]",
    );
    check("CREATE TABLE t (a AS CAST(b AS TIMESTAMP(3) WITH LOCAL TIME ZONE))", "table t[a := CAST(b AS TIMESTAMP_LTZ(3))]");
}

#[test]
fn create_table_clauses() {
    check("CREATE TABLE t (a INT) WITH ('connector' = 'print', 'k'='it''s')", "table t[a INT] connector=print k=it's");
    check("CREATE TABLE t (a INT, dt STRING) COMMENT 'c' PARTITIONED BY (dt) WITH ()", "table t[a INT; dt STRING] 'c' by dt");
    check("CREATE TABLE t WITH ('path' = 'x') AS SELECT a FROM s", "table t[] path=x as SELECT a FROM s");
    check("CREATE TABLE t LIKE s", "table t[] like s");
    check(
        "CREATE TABLE t (a INT) WITH ('k'='v') LIKE c.s (INCLUDING ALL EXCLUDING OPTIONS OVERWRITING WATERMARKS)",
        "table t[a INT] k=v like c.s Including-All Excluding-Options Overwriting-Watermarks",
    );
    check(
        "CREATE TABLE t LIKE s (EXCLUDING CONSTRAINTS EXCLUDING GENERATED EXCLUDING METADATA EXCLUDING PARTITIONS EXCLUDING DISTRIBUTION)",
        "table t[] like s Excluding-Constraints Excluding-Generated Excluding-Metadata Excluding-Partitions Excluding-Distribution",
    );
}

#[test]
fn create_table_errors() {
    check(
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "a primary key must be declared NOT ENFORCED: it is a promise about the data that nobody checks @ PRIMARY KEY",
    );
    check(
        "CREATE TABLE t (a INT, PRIMARY KEY (a) ENFORCED)",
        "a primary key must be declared NOT ENFORCED: it is a promise about the data that nobody checks @ ENFORCED",
    );
    check(
        "CREATE TABLE t (a INT, PRIMARY KEY (a))",
        "a primary key must be declared NOT ENFORCED: it is a promise about the data that nobody checks @ PRIMARY KEY (a)",
    );
    check("CREATE TABLE t (a INT, a STRING)", "column a is defined twice @ a STRING");
    check(
        "CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED)",
        "a table has at most one primary key @ PRIMARY KEY (a) NOT ENFORCED",
    );
    check("CREATE TABLE t (WATERMARK FOR a AS a, WATERMARK FOR b AS b)", "a table has at most one watermark @ WATERMARK FOR b AS b");
    check("CREATE TABLE t (WATERMARK FOR a.b AS b)", "the time column of a watermark stands on its own, not inside a ROW @ .");
    check("CREATE TABLE t (a TEXT)", "TEXT is not a type @ TEXT");
    check("CREATE TABLE t (a ARRAY<TEXT>)", "TEXT is not a type @ TEXT");
    check("CREATE TABLE t (a MULTISET<INT>)", "MULTISET is not supported @ MULTISET");
    check("CREATE TABLE t (a)", "expected the type of column a, or AS and an expression, found ) @ )");
    check("CREATE TABLE t (a INT,)", "expected another column after the comma, found ) @ )");
    check("CREATE TABLE t (a INT b INT)", "expected ',' or ')' after the definition of a column, found b @ b");
    check("CREATE TABLE t (a INT DEFAULT 1)", "DEFAULT is not part of a column in Flink SQL @ DEFAULT");
    check("CREATE TABLE t (a INT, UNIQUE (a))", "the only constraint of a table is its primary key @ UNIQUE");
    check(
        "CREATE TABLE t (a INT) DISTRIBUTED BY HASH(a) INTO 4 BUCKETS",
        "DISTRIBUTED BY is not supported: rows are distributed by the keys of the query that reads them @ DISTRIBUTED",
    );
    check("CREATE TABLE t (a INT) WITH ('k' = 1)", "expected the value of 'k' in single quotes, found 1 @ 1");
    check("CREATE TABLE t (a INT) WITH (k = 'v')", "expected the key of an option in single quotes, found k @ k");
    check("CREATE TABLE t (a INT) WITH ('k'='v', 'k'='w')", "option 'k' is there twice @ 'k'='w'");
    check("CREATE TABLE t (a INT) WITH ('k'='v'", "this '(' is never closed @ (");
    check("CREATE TABLE t LIKE s (OVERWRITING ALL)", "only GENERATED, METADATA, OPTIONS and WATERMARKS can be overwritten @ OVERWRITING");
    check("CREATE TABLE t LIKE s AS SELECT 1", "a table has either LIKE or AS, not both @ AS");
    check("CREATE TABLE t (a INT) WITH ('a'='b') garbage", "expected the end of the statement, found garbage @ garbage");
    check("CREATE TABLE", "expected the name of the table, found the end of the statement @ ");
    check("CREATE TABLE t (a AS )", "expected an expression, found ) @ )");
    check_help("CREATE TABLE t (a TEXT)", "Flink calls it STRING");
    check_help("CREATE TABLE t (a BIGNIT)", "did you mean BIGINT?");
}

#[test]
fn views_and_drops() {
    check("CREATE VIEW v AS SELECT a FROM t", "view false false v() SELECT a FROM t");
    check(
        "CREATE TEMPORARY VIEW IF NOT EXISTS c.v (x COMMENT 'c', y) COMMENT 'v' AS SELECT a, b FROM t",
        "view true true c.v(x, y) SELECT a, b FROM t",
    );
    check("DROP TABLE t; DROP TEMPORARY TABLE IF EXISTS c.t", "drop-table false t | drop-table true c.t");
    check("DROP VIEW IF EXISTS v", "drop-view true v");
    check("DROP SEQUENCE s", "expected TABLE, VIEW or FUNCTION, found SEQUENCE @ SEQUENCE");
    check("CREATE TRIGGER x", "expected TABLE, VIEW or FUNCTION, found TRIGGER @ TRIGGER");
}

#[test]
fn inserts() {
    check("INSERT INTO s SELECT * FROM t", "insert s() SELECT * FROM t");
    check("INSERT OVERWRITE c.d.s (a, `b`) VALUES (1, 'x'), (2, NULL)", "overwrite c.d.s(a, `b`) VALUES (1, 'x'), (2, NULL)");
    check("INSERT INTO s (SELECT 1)", "insert s() (SELECT 1)");
    check("INSERT INTO s WITH w AS (SELECT 1 AS a) SELECT a FROM w", "insert s() WITH w AS (SELECT 1 AS a) SELECT a FROM w");
    for refused in ["ON CONFLICT DO NOTHING", "ON CONFLICT DO ERROR"] {
        let message = format!("{refused} is not supported: of rows with one key the newest stays @ {refused}");
        check(&format!("INSERT INTO s SELECT * FROM t {refused}"), &message);
    }
    check_help(
        "INSERT INTO s SELECT * FROM t ON CONFLICT DO NOTHING",
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt) = 1 at the end of the query keeps the first of each key",
    );
    check(
        "INSERT INTO s SELECT a, COUNT(*) FROM t GROUP BY a ON CONFLICT DO DEDUPLICATE",
        "insert s() SELECT a, COUNT(*) FROM t GROUP BY a deduplicated",
    );
    check("EXECUTE INSERT INTO s SELECT 1", "insert s() SELECT 1");
    check("INSERT INTO s SELECT 1 ON CONFLICT DO MAYBE", "expected DEDUPLICATE, found MAYBE @ MAYBE");
    check("INSERT INTO s PARTITION (dt='x') SELECT 1", "INSERT … PARTITION (…) is not supported @ PARTITION");
    check("INSERT s SELECT 1", "expected INTO or OVERWRITE, found s @ s");
    check("INSERT INTO s SELECT 1\nINSERT INTO s SELECT 2", "expected the end of the statement, found INSERT @ INSERT");
    check_help("INSERT INTO s SELECT a FROM t\nSELECT 2", "is a ';' missing before SELECT?");
}

#[test]
fn statement_sets() {
    let set = "set[insert a() SELECT 1; insert b() SELECT CASE WHEN x THEN 1 END FROM t]";
    check("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN x THEN 1 END FROM t; END", set);
    check(
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN x THEN 1 END FROM t; END; SHOW TABLES;",
        &format!("{set} | show-tables"),
    );
    check("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; INSERT INTO b SELECT CASE WHEN x THEN 1 END FROM t; END;", set);
    check("EXPLAIN STATEMENT SET BEGIN INSERT INTO a SELECT 1; END", "explain[] set[insert a() SELECT 1]");
    check("EXPLAIN EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; END; SELECT 2", "explain[] set[insert a() SELECT 1] | SELECT 2");
    check("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;", "this statement set is never closed @ EXECUTE STATEMENT SET BEGIN");
    check("BEGIN STATEMENT SET; END;", "this statement set is empty @ BEGIN STATEMENT SET");
    check("BEGIN STATEMENT SET; SELECT 1; END;", "expected INSERT or END, found SELECT @ SELECT");
    check("EXECUTE STATEMENT SET INSERT INTO a SELECT 1", "expected BEGIN, found INSERT @ INSERT");
    check("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1 END;", "expected the end of the statement, found END @ END");
    check("END;", "END without a BEGIN STATEMENT SET @ END");
    let script = "SHOW TABLES; BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END ;";
    let statements = parse_script(script).expect("parses");
    assert_eq!(statements[1].span.text(script), "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END");
}

#[test]
fn set_and_reset() {
    check("SET 'table.exec.state.ttl' = '1 d'", "set table.exec.state.ttl=1 d");
    check("SET table.exec.state.ttl = 1 d ;", "set table.exec.state.ttl=1 d");
    check("SET execution.runtime-mode=batch; SET 'a'=b", "set execution.runtime-mode=batch | set a=b");
    check("RESET 'a.b'; RESET; RESET a.b-c", "reset Some(\"a.b\") | reset None | reset Some(\"a.b-c\")");
    check("SET", "SET needs a key, '=' and a value @ SET");
    check("SET 'a' =", "SET: the value is missing @ SET 'a' =");
    check("SET = 'a'", "SET: the key is missing @ SET = 'a'");
    check("SET 'a' = 'b' 'c'", "SET: the value is either one text in quotes or has none @ 'b' 'c'");
}

#[test]
fn explain_show_describe() {
    check("EXPLAIN SELECT 1", "explain[] SELECT 1");
    check("EXPLAIN PLAN FOR INSERT INTO s SELECT 1", "explain[] insert s() SELECT 1");
    check("EXPLAIN ESTIMATED_COST, CHANGELOG_MODE SELECT 1", "explain[ESTIMATED_COST, CHANGELOG_MODE] SELECT 1");
    check("EXPLAIN json_execution_plan (SELECT 1)", "explain[JSON_EXECUTION_PLAN] (SELECT 1)");
    check("EXPLAIN", "expected a query, an INSERT or a statement set, found the end of the statement @ ");
    check("EXPLAIN SHOW TABLES", "only a query, an INSERT, a CREATE TABLE … AS or a statement set can be explained @ SHOW TABLES");
    check("EXPLAIN EXPLAIN SELECT 1", "a statement cannot begin with EXPLAIN @ EXPLAIN");
    check("SHOW TABLES", "show-tables");
    check("SHOW CREATE TABLE c.t", "show-create c.t");
    check("DESCRIBE t; DESC EXTENDED c.t; DESC TABLE t; DESCRIBE job", "describe t | describe c.t | describe t | describe job");
}

#[test]
fn copy() {
    check("COPY t TO 'a.csv'", "copy t to a.csv []");
    check("COPY 'in/*.csv' TO 'out.parquet'", "copy 'in/*.csv' to out.parquet []");
    check(
        "COPY (SELECT a FROM t) TO 'a.csv' (FORMAT csv, HEADER, DELIMITER '|', ROW_GROUP_SIZE 100, PARTITION_BY (a, b))",
        "copy (SELECT a FROM t) to a.csv [(\"format\", \"csv\"), (\"header\", \"true\"), (\"delimiter\", \"|\"), (\"row_group_size\", \"100\"), (\"partition_by\", \"a,b\")]",
    );
    check("COPY t TO 'a' WITH ('compression' = 'zstd')", "copy t to a [(\"compression\", \"zstd\")]");
    check("COPY t FROM 'a'", "COPY … FROM is not supported @ FROM");
    check("COPY t TO a", "expected the path or URL to write in single quotes, found a @ a");
    check("COPY t TO 'a' (format csv, FORMAT json)", "option format is there twice @ FORMAT");
}

#[test]
fn queries_that_stay_as_they_are() {
    check_same("SELECT a, `b c` FROM t WHERE a > 1 AND `Value` LIKE 'x%'");
    check_same("SELECT * FROM 'logs/*.zip' WHERE a = 1");
    check_same("SELECT k, COUNT(*) FILTER (WHERE a > 1) FROM t GROUP BY k HAVING COUNT(*) > 2");
    check_same("SELECT k FROM t GROUP BY GROUPING SETS ((k), ())");
    check_same("SELECT TUMBLE_START(rt, INTERVAL '1' DAY), COUNT(*) FROM t GROUP BY TUMBLE(rt, INTERVAL '1' DAY)");
    check_same("SELECT FLOOR(ts TO HOUR), CEIL(ts TO DAY), EXTRACT(YEAR FROM ts) FROM t");
    check_same("SELECT SUM(a) OVER (PARTITION BY k ORDER BY rt RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) FROM t");
    check_same("SELECT SUM(a) OVER w FROM t WINDOW w AS (PARTITION BY k ORDER BY rt ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)");
    check_same("SELECT a, ROW_NUMBER() OVER (PARTITION BY k ORDER BY rt) AS rn FROM t QUALIFY rn = 1");
    check_same("SELECT * FROM a JOIN b ON a.k = b.k AND a.rt BETWEEN b.rt - INTERVAL '2' SECOND AND b.rt");
    check_same("SELECT * FROM o JOIN r FOR SYSTEM_TIME AS OF o.rt ON o.k = r.k");
    check_same("SELECT * FROM t CROSS JOIN UNNEST(t.items) AS i (x, y)");
    check_same("SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS t (a, b)");
    check_same("WITH w AS (SELECT 1 AS a) SELECT a FROM w UNION ALL SELECT 2 INTERSECT SELECT 3");
    check_same("SELECT a FROM t WHERE a IN (SELECT b FROM u) AND EXISTS (SELECT 1 FROM v)");
    check_same("SELECT ARRAY[1, 2][1], ROW(1, 'a'), t.r.f, PROCTIME(), CURRENT_TIMESTAMP FROM t");
    check_same(
        "SELECT INTERVAL '1:30' MINUTE TO SECOND, INTERVAL '5' MINUTES, INTERVAL '10' SECOND (3), DATE '2024-01-01', TIMESTAMP '2024-01-01 00:00:00'",
    );
    check_same("SELECT a FROM t ORDER BY a DESC NULLS LAST LIMIT 10");
    check_same("SELECT LISTAGG(a, ',') FROM t GROUP BY k");
    check_same("SELECT 'it''s', 'ünï', U&'\\00C4' FROM `päth`");
}

#[test]
fn casts() {
    check_same("SELECT CAST(a AS TIMESTAMP_LTZ(3)), TRY_CAST(b AS STRING) FROM t");
    check("SELECT CAST(a AS TIMESTAMP(3) WITH LOCAL TIME ZONE)", "SELECT CAST(a AS TIMESTAMP_LTZ(3))");
    check("SELECT CAST(a AS ROW<x INT, y ARRAY<STRING>>)", "SELECT CAST(a AS STRUCT<x INT, y ARRAY<STRING>>)");
    check("SELECT CAST(a AS MAP<STRING, INT>)", "SELECT CAST(a AS Map(STRING, INT))");
    check("SELECT CAST(CAST(a AS DECIMAL(10, 2)) AS DOUBLE PRECISION)", "SELECT CAST(CAST(a AS DECIMAL(10,2)) AS DOUBLE)");
    check("SELECT CAST(a AS TEXT)", "TEXT is not a type @ TEXT");
    check("SELECT * FROM (SELECT CAST(a AS TEXT) AS b, c FROM t) AS x", "TEXT is not a type @ TEXT");
    check("SELECT CAST(a)", "expected AS, found ) @ )");
    check("SELECT a::INT FROM t", "Flink has no :: operator @ ::");
}

#[test]
fn rewrites() {
    check(
        "SELECT TIMESTAMPADD(HOUR, 1, ts), timestampdiff(SQL_TSI_DAY, a, b)",
        "SELECT timestampadd('HOUR', 1, ts), timestampdiff('DAY', a, b)",
    );
    check("SELECT TIMESTAMPADD(FORTNIGHT, 1, ts)", "FORTNIGHT is not a unit of time @ FORTNIGHT");
    check("SELECT a IS JSON AND b IS NOT JSON VALUE, c IS NOT NULL", "SELECT is_json(a) AND NOT is_json(b), c IS NOT NULL");
    check("SELECT a IS JSON OBJECT", "IS JSON OBJECT is not supported @ OBJECT");
    check("SELECT JSON_VALUE(x, '$.a')", "SELECT json_value(x, '$.a')");
    check("SELECT JSON_VALUE(x, '$.a' RETURNING BIGINT NULL ON EMPTY NULL ON ERROR)", "SELECT json_value_as_bigint(x, '$.a')");
    check(
        "SELECT JSON_VALUE(x, '$.a' RETURNING DOUBLE), JSON_VALUE(x, '$.a' RETURNING BOOLEAN)",
        "SELECT json_value_as_double(x, '$.a'), json_value_as_boolean(x, '$.a')",
    );
    check(
        "SELECT JSON_VALUE(x, '$.a' RETURNING VARCHAR(5)), JSON_VALUE(x, '$.a' RETURNING INT)",
        "SELECT json_value_as_string(x, '$.a'), TRY_CAST(json_value_as_bigint(x, '$.a') AS INT)",
    );
    check("SELECT JSON_VALUE(x, '$.a' RETURNING DATE)", "JSON_VALUE cannot return DATE @ DATE");
    check("SELECT JSON_VALUE(x, '$.a' DEFAULT 1 ON EMPTY)", "JSON_VALUE: DEFAULT … ON … is not supported @ DEFAULT");
    check("SELECT JSON_VALUE(x, '$.a' ERROR ON ERROR)", "JSON_VALUE: ERROR ON … is not supported @ ERROR");
    check("SELECT MAP['a', 1]", "MAP[…] values are not supported @ MAP");
    check("SELECT INTERVAL '5'", "expected the unit of the interval, found the end of the statement @ ");
    check(
        "SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(rt), INTERVAL '1' DAY))",
        "SELECT * FROM TABLE(TUMBLE(__TABLE(t), DESCRIPTOR(rt), INTERVAL '1' DAY))",
    );
}

#[test]
fn refusals() {
    check("SELECT * FROM r VERSION AS OF 3", "a version of a table is not chosen like this @ r");
    check("SELECT * FROM t FETCH FIRST 3 ROWS ONLY", "FETCH FIRST … ROWS ONLY is not supported @ FETCH FIRST");
    check_help("SELECT * FROM t FETCH NEXT 3 ROWS ONLY", "write LIMIT 10, and OFFSET behind it");
    check("SELECT a, COUNT(*) FROM t GROUP BY a WITH ROLLUP", "WITH ROLLUP and WITH CUBE are not part of Flink SQL @ WITH ROLLUP");
    check("SELECT a, COUNT(*) FROM t GROUP BY a EMIT CHANGES", "EMIT is not part of Flink SQL @ EMIT CHANGES");
    check_same("SELECT emit FROM emit WHERE emit > 1");
    check_same("WITH cube (a) AS (SELECT b FROM t) SELECT a FROM cube");
    check(
        "WITH RECURSIVE n AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM n) SELECT a FROM n",
        "WITH RECURSIVE is not supported: a query cannot read its own result @ WITH",
    );
    check(
        "SELECT JSON_OBJECT('a' VALUE v) FROM t",
        "JSON_OBJECT takes keys and values with commas between them, not KEY … VALUE … @ JSON_OBJECT",
    );
    check("SELECT FIRST_VALUE(a) WITHIN GROUP (ORDER BY b) FROM t", "FIRST_VALUE has no WITHIN GROUP @ FIRST_VALUE");
    check(
        "SELECT * FROM t, LATERAL TABLE(f(a)) AS x(b)",
        "LATERAL TABLE is not supported: a function is not called for each row of a table @ LATERAL TABLE",
    );
    check("SELECT TOP 3 a FROM t", "TOP is not part of Flink SQL @ SELECT");
    check("SELECT a INTO x FROM t", "SELECT … INTO is not part of Flink SQL @ SELECT");
    check("SELECT DISTINCT ON (a) a, b FROM t", "DISTINCT ON is not part of Flink SQL @ SELECT");
    check("SELECT a FROM t SEMI JOIN u ON t.a = u.a", "SEMI JOIN and ANTI JOIN are not part of Flink SQL @ u");
    check("SELECT a FROM t WHERE a IN (SELECT b FROM u CROSS APPLY v)", "CROSS APPLY and OUTER APPLY are not part of Flink SQL @ v");
    check("SELECT a FROM t WHERE (a, b) IN (SELECT a, b FROM u)", "IN (SELECT …) compares one column, not several at once @ a, b");
    check("SELECT a FROM t FOR UPDATE", "FOR UPDATE and its like are not supported: nothing is locked @ SELECT a FROM t");
    for (script, place) in [
        ("CREATE TEMPORARY SYSTEM FUNCTION f AS 'x'", "CREATE TEMPORARY SYSTEM"),
        ("CREATE CATALOG c WITH ('type'='x')", "CREATE CATALOG"),
        ("CREATE DATABASE d", "CREATE DATABASE"),
        ("CREATE MODEL m", "CREATE MODEL"),
        ("CREATE MATERIALIZED TABLE m AS SELECT 1", "CREATE MATERIALIZED"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE OR REPLACE"),
        ("DROP DATABASE d", "DROP DATABASE"),
        ("ALTER TABLE t SET ('a'='b')", "ALTER"),
        ("UPDATE t SET a = 1", "UPDATE"),
        ("DELETE FROM t", "DELETE"),
        ("MERGE INTO t USING s ON TRUE", "MERGE"),
        ("TRUNCATE TABLE t", "TRUNCATE"),
        ("ANALYZE TABLE t COMPUTE STATISTICS", "ANALYZE"),
        ("USE CATALOG c", "USE"),
        ("LOAD MODULE m", "LOAD"),
        ("ADD JAR 'x'", "ADD JAR"),
        ("CALL p()", "CALL"),
        ("COMPILE PLAN 'x' FOR INSERT INTO s SELECT 1", "COMPILE"),
        ("EXECUTE PLAN 'x'", "EXECUTE PLAN"),
        ("STOP JOB 'x'", "STOP"),
        ("BEGIN", "BEGIN"),
        ("COMMIT", "COMMIT"),
        ("SHOW JOBS", "SHOW JOBS"),
        ("SHOW CREATE VIEW v", "SHOW CREATE VIEW"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE"),
        ("FROM t", "FROM"),
        ("PRAGMA x", "PRAGMA"),
    ] {
        let error = parse_script(script).expect_err(script);
        assert_eq!(error.span.expect("a place").text(script), place, "{script}");
        assert!(error.help.is_some(), "{script}");
    }
}

#[test]
fn places_of_errors() {
    check("SELEC 1", "a statement cannot begin with SELEC @ SELEC");
    check_help("SELEC 1", "did you mean SELECT?");
    check("SELECT a FROM t WHERE", "expected an expression, found the end of the statement @ ");
    check("SELECT a,\n  b +\nFROM t", "expected an expression, found FROM @ FROM");
    check("SELECT FROM t", "expected an expression, found FROM @ FROM");
    check("SELECT a FROM WHERE x", "expected a table, found WHERE @ WHERE");
    check("INSERT INTO SELECT 1", "expected the name of a table, found SELECT @ SELECT");
    check("SELECT * FROM (SELECT a, b FROM t WHERE x = = 3) AS s", "expected an expression, found = @ =");
    check("SELECT * FROM (SELECT a, b FROM (SELECT c FROM) AS x) AS s", "expected identifier, found ) @ )");
    check("SELECT * FROM (SELECT a b c FROM t) AS s", "expected ), found c @ c");
    check("SELECT \"a\" FROM t", "double quotes are not used in Flink SQL @ \"a\"");
    check_help("SELECT \"a\" FROM t", "a name is written `a`, a text 'a'");
    check("SELECT 'abc", "this ' is never closed @ '");
    check("SELECT `abc", "this ` is never closed @ `");
    check("SELECT \"abc", "double quotes are not used in Flink SQL @ \"");
    check("SELECT 1 /* abc", "the comment /* is never closed with */ @ ");
    check("SELECT (1 + (2)", "this '(' is never closed @ (");
    check("SELECT 1)", "this ')' closes nothing @ )");
    check("SELECT (ARRAY[1)]", "this ')' closes nothing @ )");
    check("SELECT 'é' FROM t WHERE ü = = 1", "expected an expression, found = @ =");
    check_help("SELECT floor, a FROM t", "FLOOR is a reserved word; if it is meant as a name, write it in backticks: `floor`");
    check_help("SELECT order FROM t", "ORDER is a reserved word; if it is meant as a name, write it in backticks: `order`");
}

#[track_caller]
fn check_hints(script: &str, expect: &str) {
    let shown = match parse_script(script) {
        Ok(statements) => {
            let hints: Vec<_> = statements
                .iter()
                .flat_map(|s| &s.hints)
                .map(|h| {
                    let kind = match &h.kind {
                        HintKind::Options(map) => format!("options {map:?}"),
                        HintKind::StateTtl(map) => format!("ttl {map:?}"),
                        HintKind::Lookup(map) => format!("lookup {map:?}"),
                        HintKind::Other(name) => name.clone(),
                    };
                    format!("{}@{}:{} {kind}", h.table, h.at.line, h.at.column)
                })
                .collect();
            hints.join("; ")
        }
        Err(e) => format!("{} @ {}", e.message, e.span.expect("a place").text(script)),
    };
    assert_eq!(shown, expect, "{script}");
}

#[test]
fn hints() {
    check_hints("SELECT * FROM t /*+ OPTIONS('k'='v', 'a' = 'b') */ AS x", "t@1:15 options {\"a\": \"b\", \"k\": \"v\"}");
    check_hints(
        "SELECT * FROM c.`d e`.t /*+ OPTIONS('k'='v') */, t /*+options('k'='w')*/",
        "c.d e.t@1:15 options {\"k\": \"v\"}; t@1:50 options {\"k\": \"w\"}",
    );
    check_hints(
        "SELECT /*+ STATE_TTL('a'='1d'), LOOKUP('table'='c') */ * FROM a",
        "@1:1 ttl {\"a\": \"1d\"}; @1:1 lookup {\"table\": \"c\"}",
    );
    check_hints("SELECT /*+ BROADCAST(a) */ * FROM a", "@1:1 BROADCAST");
    check_hints("INSERT INTO s /*+ OPTIONS('k'='v') */ SELECT 1; SELECT 2", "s@1:13 options {\"k\": \"v\"}");
    check_hints("SELECT * FROM 'x.csv' /*+ OPTIONS('k'='v') */", "x.csv@1:15 options {\"k\": \"v\"}");
    check_hints("SELECT 1 /* no hint */ -- nor /*+ this */", "");
    check_hints(
        "SELECT * FROM t AS x /*+ OPTIONS('k'='v') */",
        "a hint stands directly behind the name of a table, before its alias @ /*+ OPTIONS('k'='v') */",
    );
    check_hints(
        "/*+ OPTIONS('k'='v') */ SELECT 1",
        "a hint stands behind SELECT or behind the name of a table, not before a statement @ /*+ OPTIONS('k'='v') */",
    );
    check_hints("SELECT * FROM t /*+ OPTIONS('k') */", "cannot read the hint: 'k' has no value @ /*+ OPTIONS('k') */");
    check_hints("SELECT * FROM t /*+ OPTIONS('k'='v' */", "cannot read the hint: a ) is missing @ /*+ OPTIONS('k'='v' */");
    check_hints("SELECT * FROM t /*+ */", "cannot read the hint: it is empty @ /*+ */");
    let statements = parse_script("SELECT * FROM t /*+ OPTIONS('k'='v') */").expect("parses");
    let StatementKind::Query(query) = &statements[0].kind else { panic!("a query") };
    let sqlparser::ast::TableFactor::Table { name, .. } = &query.body.as_select().expect("a select").from[0].relation else {
        panic!("a table")
    };
    assert_eq!(name.0[0].as_ident().expect("a name").span.start, statements[0].hints[0].at);
}

/// Deep and long inputs end in an error or a tree, never in a crash.
#[test]
fn limits() {
    let deep = |open: &str, close: &str, n: usize| outcome(&format!("SELECT {}1{}", open.repeat(n), close.repeat(n)));
    for (open, close) in [
        ("(", ")"),
        ("f(", ")"),
        ("CAST(", " AS INT)"),
        ("NULLABLE(", ")"),
        ("ARRAY[", "]"),
        ("CASE WHEN ", " THEN 1 END"),
        ("- ", ""),
        ("NOT ", ""),
    ] {
        assert!(deep(open, close, 5_000).contains(" @ "), "{open}");
    }
    assert!(deep("ARRAY<", ">", 5_000).contains(" @ "));
    assert!(outcome(&format!("SELECT * FROM {}", "(SELECT * FROM ".repeat(60))).contains("never closed"));
    let nested = format!("SELECT * FROM {}t WHERE{}", "(SELECT * FROM ".repeat(20), ")".repeat(20));
    assert!(outcome(&nested).contains("expected"), "{}", outcome(&nested));
    assert!(outcome(&format!("SELECT 1{}", " + 1".repeat(50_000))).contains("more than 8000 words"));
    assert!(outcome(&format!("SELECT 1{}", " UNION SELECT 1, 2".repeat(50_000))).contains("set operations"));
    let long = format!("VALUES {}", vec!["(1, 'a')"; 20_000].join(", "));
    assert!(outcome(&long).starts_with("VALUES"), "a long list is no problem");
    assert!(parse_script(&format!("SELECT 1{}", " + 1".repeat(3_000))).is_ok());
}

/// Every prefix of a script that has everything, and the script with each token missing: only
/// results and errors.
#[test]
fn torn_scripts() {
    let script = "CREATE TABLE t (a ROW<b ARRAY<INT>> METADATA FROM 'x' VIRTUAL, c AS a.b, WATERMARK FOR c AS c - INTERVAL '5' SECOND, \
        PRIMARY KEY (a) NOT ENFORCED) PARTITIONED BY (a) WITH ('k' = 'é') LIKE s (EXCLUDING ALL); \
        EXECUTE STATEMENT SET BEGIN INSERT INTO s /*+ OPTIONS('k'='v') */ (a) SELECT JSON_VALUE(x, '$.a' RETURNING INT NULL ON ERROR), \
        CASE WHEN a IS NOT JSON THEN 1 END FROM SESSION(DATA => TABLE t PARTITION BY (k), TIMECOL => DESCRIPTOR(rt), GAP => INTERVAL '5' MINUTE) \
        WHERE a IN (SELECT CAST(b AS MAP<STRING, INT>) FROM (VALUES (1)) AS v(b)) ON CONFLICT DO DEDUPLICATE; END; \
        SET 'a' = 'b'; EXPLAIN CHANGELOG_MODE SELECT TIMESTAMPADD(DAY, 1, x) FROM t; COPY (SELECT 1) TO 'x' (FORMAT csv); DESC t";
    assert!(parse_script(script).is_ok(), "{}", outcome(script));
    for (at, _) in script.char_indices() {
        outcome_or_panic(&script[..at]);
    }
    let words: Vec<_> = script.split_inclusive([' ', '(', ')', ',', '<', '>', ';']).collect();
    for i in 0..words.len() {
        outcome_or_panic(&[&words[..i], &words[i + 1..]].concat().concat());
        outcome_or_panic(&[&words[..i], &["("], &words[i..]].concat().concat());
        outcome_or_panic(&[&words[i..i + 1], &words[..i]].concat().concat());
    }
}

fn outcome_or_panic(script: &str) {
    if let Err(error) = parse_script(script) {
        assert!(!error.message.is_empty() && !error.message.contains(" at Line"), "{error}: {script}");
        error.render("f", script, false);
    }
}
