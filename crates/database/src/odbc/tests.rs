//! Statements and types, for each database; what only a driver can show is tested over real ones (`tests/suite/databases`).

use std::time::Duration;

use arrow::datatypes::{DataType, Field, TimeUnit};

use super::column::{Column, Kind, code};
use super::dialect::dialect;
use super::ffi::{Described, SqlType};
use super::system::{System, Upsert, delete, insert, look_up, update};
use crate::driver::Dialect;
use crate::types::{create_table, marks};

/// A column as a driver describes it.
pub(super) fn described(code: i16, size: usize, digits: i16, type_name: &str) -> Described {
    Described {
        name: "c".into(),
        kind: SqlType { code, size, digits },
        unsigned: type_name.contains("unsigned"),
        type_name: type_name.into(),
        nullable: true,
    }
}

fn names() -> Vec<String> {
    ["\"id\"", "\"a\"", "\"b\""].map(String::from).to_vec()
}

#[test]
fn databases_are_known_by_name() {
    #[track_caller]
    fn check(name: &str, expect: Option<System>) {
        assert_eq!(System::guess(name), expect, "{name}");
    }
    check("PostgreSQL Unicode", Some(System::Postgres));
    check("/usr/lib/odbc/psqlodbcw.so", Some(System::Postgres));
    check("MariaDB", Some(System::MySql));
    check("MySQL ODBC 8.0 Unicode Driver", Some(System::MySql));
    check("ODBC Driver 18 for SQL Server", Some(System::SqlServer));
    check("Microsoft SQL Server", Some(System::SqlServer));
    check("Oracle", Some(System::Oracle));
    check("DB2/LINUXX8664", Some(System::Db2));
    check("SQLite3", Some(System::Sqlite));
    check("Firebird", None);
}

#[test]
fn drivers_get_what_they_need() {
    let given = |name: &str, value: &str| vec![(name.to_string(), value.to_string())];
    assert_eq!(System::Postgres.attributes(&[]), given("Protocol", "7.4-0"));
    assert_eq!(System::Postgres.attributes(&given("PROTOCOL", "7.4-2")), []);
    assert_eq!(System::MySql.attributes(&[]), given("OPTION", "2"));
    assert_eq!(System::MySql.attributes(&given("Option", "65")), given("OPTION", "67"));
    assert_eq!(System::MySql.attributes(&given("option", "3")), []);
    assert_eq!(System::Standard.attributes(&[]), []);
}

#[test]
fn rows_go_in_by_key() {
    #[track_caller]
    fn check(system: System, others: bool, expect: &str) {
        let column = Column::of(described(code::INTEGER, 10, 0, "integer"), system);
        let upsert = system.upsert("\"t\"", &names(), &[0], &[&column, &column, &column], others);
        assert_eq!(upsert, Upsert::Statement(expect.into()));
    }
    check(
        System::Postgres,
        false,
        "INSERT INTO \"t\" (\"id\", \"a\", \"b\") VALUES (?, ?, ?) ON CONFLICT (\"id\") DO UPDATE SET \"a\" = excluded.\"a\", \
         \"b\" = excluded.\"b\"",
    );
    check(
        System::MySql,
        false,
        "INSERT INTO \"t\" (\"id\", \"a\", \"b\") VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE \"a\" = VALUES(\"a\"), \"b\" = VALUES(\"b\")",
    );
    let merged = "ON (t.\"id\" = s.\"id\") WHEN MATCHED THEN UPDATE SET \"a\" = s.\"a\", \"b\" = s.\"b\" WHEN NOT MATCHED THEN INSERT \
                  (\"id\", \"a\", \"b\") VALUES (s.\"id\", s.\"a\", s.\"b\")";
    check(System::SqlServer, false, &format!("MERGE INTO \"t\" t USING (SELECT ? AS \"id\", ? AS \"a\", ? AS \"b\") s {merged};"));
    check(System::Oracle, false, &format!("MERGE INTO \"t\" t USING (SELECT ? AS \"id\", ? AS \"a\", ? AS \"b\" FROM dual) s {merged}"));
    let cast = "CAST(? AS INTEGER)";
    check(
        System::Db2,
        false,
        &format!("MERGE INTO \"t\" t USING (SELECT {cast} AS \"id\", {cast} AS \"a\", {cast} AS \"b\" FROM sysibm.sysdummy1) s {merged}"),
    );
}

#[test]
fn what_has_no_statement_is_updated_and_then_inserted() {
    let long = Column::of(described(code::LONGVARCHAR, 1 << 30, 0, "clob"), System::Db2);
    for (system, others) in [(System::Standard, false), (System::MySql, true), (System::Db2, false)] {
        assert_eq!(system.upsert("t", &names(), &[0], &[&long, &long, &long], others), Upsert::UpdateThenInsert, "{system:?}");
    }
    assert_eq!(update("t", &names(), &[0]), "UPDATE t SET \"a\" = ?, \"b\" = ? WHERE \"id\" = ?");
    assert_eq!(update("t", &names()[..1], &[0]), "UPDATE t SET \"id\" = \"id\" WHERE \"id\" = ?");
    assert_eq!(insert("t", &names()[..2]), "INSERT INTO t (\"id\", \"a\") VALUES (?, ?)");
}

#[test]
fn rows_are_deleted_and_looked_up_by_key() {
    assert_eq!(delete("t", &names()[..2]), "DELETE FROM t WHERE \"id\" = ? AND \"a\" = ?");
    assert_eq!(look_up("t", &names()[1..], &names()[..1], 3), "SELECT \"a\", \"b\" FROM t WHERE \"id\" IN (?, ?, ?)");
    assert_eq!(
        look_up("t", &names()[2..], &names()[..2], 2),
        "SELECT \"b\" FROM t WHERE (\"id\" = ? AND \"a\" = ?) OR (\"id\" = ? AND \"a\" = ?)"
    );
}

#[test]
fn tables_are_created() {
    #[track_caller]
    fn check(system: System, expect: &str) {
        assert_eq!(
            create_table(dialect(system), &marks()).unwrap(),
            format!("CREATE TABLE IF NOT EXISTS \"tidemill_checkpoints\" ({expect}")
        );
    }
    let rest = "PRIMARY KEY (\"sink\", \"shard\"))";
    check(System::Postgres, &format!("\"sink\" TEXT NOT NULL, \"shard\" INTEGER NOT NULL, \"epoch\" BIGINT NOT NULL, {rest}"));
    check(System::Standard, &format!("\"sink\" VARCHAR(255) NOT NULL, \"shard\" INTEGER NOT NULL, \"epoch\" BIGINT NOT NULL, {rest}"));
    check(
        System::Oracle,
        &format!("\"sink\" VARCHAR2(255 CHAR) NOT NULL, \"shard\" NUMBER(10) NOT NULL, \"epoch\" NUMBER(19) NOT NULL, {rest}"),
    );
    check(
        System::MySql,
        &format!(
            "\"sink\" VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL, \"shard\" INTEGER NOT NULL, \"epoch\" BIGINT NOT \
             NULL, {rest} ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
        ),
    );
}

#[test]
fn columns_have_types() {
    #[track_caller]
    fn check(data_type: DataType, expect: [&str; 6]) {
        let systems = [System::Postgres, System::MySql, System::SqlServer, System::Oracle, System::Db2, System::Standard];
        for (system, expect) in systems.into_iter().zip(expect) {
            let field = Field::new("c", data_type.clone(), true);
            assert_eq!(dialect(system).column_type(&field, false).unwrap(), expect, "{system:?}");
        }
    }
    check(DataType::Boolean, ["BOOLEAN", "BOOLEAN", "BIT", "NUMBER(1)", "SMALLINT", "BOOLEAN"]);
    check(DataType::Float64, ["DOUBLE PRECISION", "DOUBLE", "FLOAT", "BINARY_DOUBLE", "DOUBLE", "DOUBLE PRECISION"]);
    let decimal = "DECIMAL(20, 3)";
    check(DataType::Decimal128(20, 3), [decimal, decimal, decimal, "NUMBER(20, 3)", decimal, decimal]);
    check(DataType::Utf8, ["TEXT", "LONGTEXT", "NVARCHAR(MAX)", "CLOB", "CLOB(1G)", "VARCHAR(4000)"]);
    check(DataType::Binary, ["BYTEA", "LONGBLOB", "VARBINARY(MAX)", "BLOB", "BLOB(1G)", "VARBINARY(4000)"]);
    let nanoseconds = ["TIMESTAMP(6)", "DATETIME(6)", "DATETIME2(7)", "TIMESTAMP(9)", "TIMESTAMP(9)", "TIMESTAMP(9)"];
    check(DataType::Timestamp(TimeUnit::Nanosecond, None), nanoseconds);
    let zoned = ["TIMESTAMP(3) WITH TIME ZONE", "DATETIME(3)", "DATETIMEOFFSET(3)", "TIMESTAMP(3)", "TIMESTAMP(3)", "TIMESTAMP(3)"];
    check(DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into())), zoned);
    check(DataType::Time32(TimeUnit::Millisecond), ["TIME(3)", "TIME(3)", "TIME(3)", "VARCHAR2(12)", "VARCHAR(12)", "TIME(3)"]);
    let nested = Field::new("c", DataType::new_list(DataType::Int32, true), true);
    let error = dialect(System::Postgres).column_type(&nested, false).unwrap_err();
    assert!(error.message.contains("'c'") && error.message.contains("ARRAY<INT>"), "{error}");
}

#[test]
fn transactions_wait_for_locks() {
    let limit = Duration::from_secs(2);
    assert_eq!(dialect(System::Postgres).limit_lock_waits(limit).as_deref(), Some("SET LOCAL lock_timeout = 2000"));
    assert_eq!(dialect(System::MySql).limit_lock_waits(limit), None);
    assert_eq!((dialect(System::SqlServer).lock_hint(), dialect(System::SqlServer).lock_rows()), (" WITH (UPDLOCK, ROWLOCK)", ""));
    assert_eq!(dialect(System::Standard).lock_rows(), " FOR UPDATE");
}

#[test]
fn columns_hold_values() {
    #[track_caller]
    fn check(system: System, described: Described, kind: Kind, type_text: &str) {
        let column = Column::of(described, system);
        assert_eq!((column.kind, column.type_text.as_str()), (kind, type_text));
    }
    check(System::Postgres, described(code::VARCHAR, 5, 0, "bool"), Kind::Boolean, "bool");
    check(System::Postgres, described(code::WVARCHAR, 255, 0, "varchar"), Kind::Text, "varchar");
    check(System::MySql, described(code::BIGINT, 19, 0, "bigint unsigned"), Kind::Unsigned, "bigint unsigned");
    check(System::MySql, described(code::TINYINT, 3, 0, "tinyint"), Kind::Integer(-128, 127), "tinyint");
    check(System::SqlServer, described(code::TINYINT, 3, 0, "tinyint unsigned"), Kind::Integer(0, 255), "tinyint unsigned");
    check(System::SqlServer, described(code::TIMESTAMP, 23, 3, "datetime"), Kind::Timestamp(2), "datetime");
    check(System::SqlServer, described(code::TIMESTAMP, 16, 0, "smalldatetime"), Kind::Minutes, "smalldatetime");
    check(System::SqlServer, described(code::SS_TIMESTAMPOFFSET, 34, 7, "datetimeoffset"), Kind::Offset(7), "datetimeoffset");
    check(System::Standard, described(code::DECIMAL, 10, 2, "decimal"), Kind::Decimal(Some((10, 2))), "decimal(10, 2)");
    check(System::Standard, described(code::BINARY, 4, 0, "binary"), Kind::Bytes { fixed: Some(4) }, "binary(4)");
    check(System::Standard, described(-98, 0, 0, ""), Kind::Text, "a type of code -98");
    let mut numeric = Column::of(described(code::NUMERIC, 28, 6, "numeric"), System::Postgres);
    numeric.named("numeric");
    assert_eq!(numeric.kind, Kind::Decimal(None));
}
