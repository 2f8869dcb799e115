//! The driver as a whole: statements against expected text and writes against a server of the tests' own
//! ([`server`]), logins and reads against another's ([`bridge`]).

mod bridge;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::array_value_to_string;

use self::server::{Reply, Server, both, done, error, result, rolled_back, types};
use super::bulk::insert_bulk;
use super::encode::{Sent, prepare};
use super::statement::{as_columns, as_key, delete, listed, look_up, make_stage, merge};
use super::types::{Kind, TableColumn};
use crate::driver::{Connection, DbError, DbErrorKind, Target};
use crate::url::Url;

const TIMEOUT: Duration = Duration::from_secs(20);

fn connect(address: std::net::SocketAddr, password: &str) -> Result<Box<dyn Connection>, DbError> {
    let url = format!("jdbc:sqlserver://{address};databaseName=shop;encrypt=false;user=u;password={{{password}}}");
    super::driver(&Url::parse(&url).unwrap())?.connect(TIMEOUT)
}

/// Answers to descriptions of the table `dbo.t (id int, name nvarchar(50))` and to everything else by `other`.
fn table_and(other: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(move |sql| match sql {
        "SELECT TOP 0 * FROM [dbo].[t]" => result(&[("id", types::INT), ("Name", types::NVARCHAR_50)], &[]),
        sql => other(sql),
    })
}

fn target() -> Target {
    let fields = vec![Field::new("id", DataType::Int32, false), Field::new("name", DataType::Utf8, true)];
    Target { table: "dbo.t".into(), schema: Arc::new(Schema::new(fields)), key: vec![0] }
}

/// Rows of the target: numbers from 1, and names.
fn rows(names: &[Option<&str>]) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(1..=names.len() as i32));
    RecordBatch::try_new(target().schema, vec![ids, Arc::new(StringArray::from(names.to_vec()))]).unwrap()
}

const DESCRIBE: &str = "SELECT TOP 0 * FROM [dbo].[t]";
const BEGIN: &str = "SET LOCK_TIMEOUT -1; BEGIN TRANSACTION";

#[test]
fn logins() {
    let server = Server::start(|_| done());
    let mut connection = connect(server.address, "p;w").unwrap();
    assert_eq!(server.told(), ["login u p;w tidemill shop"]);
    assert!(connection.alive());
    let error = connect(server.address, "wrong").err().unwrap();
    assert_eq!(error.kind, DbErrorKind::Fatal);
    assert_eq!(error.message, "logging in: Login failed for user 'u' (error 18456); check 'username' and 'password'");
    // The server does not encrypt, which is asked for by default.
    let url = format!("jdbc:sqlserver://{};user=u;password=hidden", server.address);
    let error = super::driver(&Url::parse(&url).unwrap()).and_then(|d| d.connect(TIMEOUT)).err();
    let error = error.unwrap();
    assert!(error.message.contains("does not encrypt") || error.message.contains("certificates"), "{error}");
    assert!(!error.message.contains("hidden"), "{error}");
}

#[test]
fn nobody_is_there() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(connect(address, "x").err().unwrap().kind, DbErrorKind::Connection);
}

#[test]
fn what_urls_say_is_checked() {
    #[track_caller]
    fn check(properties: &str, says: &str) {
        let url = Url::parse(&format!("sqlserver://h;user=u;{properties}")).unwrap();
        let error = super::driver(&url).err().unwrap();
        assert!(error.message.contains(says) && !error.message.contains("hidden"), "{error}");
    }
    check("encrypt=strict", "TDS 8.0");
    check("encrypt=perhaps", "expected true or false");
    check("trustServerCertificate=1", "expected true or false");
    check("integratedSecurity=true", "a name and a password");
    check("authentication=ActiveDirectoryPassword", "a name and a password");
    check("databasName=x;password=hidden", "'databasName' is not known");
    check("password=x;hidden=x", "behind the password (a password with ';'");
    check("password=x;encrypt=hidden", "encrypt: expected");
    check("encrypt=true;ssl-ca=/nowhere.pem", "/nowhere.pem");
    let nobody = Url::parse("sqlserver://h;encrypt=false").unwrap();
    assert!(super::driver(&nobody).err().unwrap().message.contains("'username'"));
}

#[test]
fn rows_are_appended_by_bulk_loads() {
    let server = table_and(|_| done());
    let mut connection = connect(server.address, "x").unwrap();
    server.told();
    connection.begin().unwrap();
    connection.append(&target(), &rows(&[Some("aö"), None])).unwrap();
    // More than a packet holds.
    let long = "x".repeat(50);
    connection.append(&target(), &rows(&[Some(long.as_str()); 40])).unwrap();
    connection.commit().unwrap();
    let bulk = "INSERT BULK [dbo].[t] ([id] int, [Name] nvarchar(50)) WITH (KEEP_NULLS, CHECK_CONSTRAINTS, FIRE_TRIGGERS)";
    let many: Vec<String> = (1..=40).map(|n| format!("{n} {long}")).collect();
    let many = format!("bulk id Name: {}", many.join(" | "));
    let expect = [BEGIN, DESCRIBE, bulk, "bulk id Name: 1 aö | 2 NULL", bulk, &many, "COMMIT TRANSACTION"];
    assert_eq!(server.told(), expect);
}

#[test]
fn a_few_rows_are_merged_as_parameters() {
    let server = table_and(|_| done());
    let mut connection = connect(server.address, "x").unwrap();
    server.told();
    connection.upsert(&target(), &rows(&[Some("a"), None])).unwrap();
    connection.delete(&target(), &rows(&[None]).project(&[0]).unwrap()).unwrap();
    let expect = [
        DESCRIBE,
        "call MERGE INTO [dbo].[t] AS t USING (VALUES (CAST(@P1 AS int),CAST(@P2 AS nvarchar(50))),\
         (CAST(@P3 AS int),CAST(@P4 AS nvarchar(50)))) AS s ([id], [Name]) ON t.[id] = s.[id] \
         WHEN MATCHED THEN UPDATE SET [Name] = s.[Name] \
         WHEN NOT MATCHED BY TARGET THEN INSERT ([id], [Name]) VALUES (s.[id], s.[Name]);",
        "call DELETE t FROM [dbo].[t] AS t JOIN (VALUES (CAST(@P1 AS int))) AS s ([id]) ON t.[id] = s.[id]",
    ];
    assert_eq!(server.told(), expect);
}

#[test]
fn many_rows_are_merged_through_a_temporary_table() {
    let server = table_and(|_| done());
    let mut connection = connect(server.address, "x").unwrap();
    server.told();
    let many = rows(&[None; 65]);
    connection.begin().unwrap();
    connection.upsert(&target(), &many).unwrap();
    connection.upsert(&target(), &many).unwrap();
    let begins = |told: Vec<String>| -> Vec<String> { told.iter().map(|s| s.chars().take(48).collect()).collect() };
    let first = [
        BEGIN,
        DESCRIBE,
        "SELECT TOP 0 [id], [Name] INTO #tidemill_stage_0",
        "INSERT BULK #tidemill_stage_0 ([id] int, [Name] ",
        "bulk id Name: 1 NULL | 2 NULL | 3 NULL | 4 NULL ",
        "MERGE INTO [dbo].[t] AS t USING #tidemill_stage_",
        "TRUNCATE TABLE #tidemill_stage_0",
        "INSERT BULK #tidemill_stage_0 ([id] int, [Name] ",
        "bulk id Name: 1 NULL | 2 NULL | 3 NULL | 4 NULL ",
        "MERGE INTO [dbo].[t] AS t USING #tidemill_stage_",
    ];
    assert_eq!(begins(server.told()), first);
    // With the transaction the table is gone.
    connection.rollback().unwrap();
    connection.begin().unwrap();
    connection.delete(&target(), &many.project(&[0]).unwrap()).unwrap();
    let second = [
        "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION",
        BEGIN,
        "SELECT TOP 0 [id] INTO #tidemill_stage_1 FROM [d",
        "INSERT BULK #tidemill_stage_1 ([id] int) WITH (K",
        "bulk id: 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 ",
        "DELETE t FROM [dbo].[t] AS t JOIN #tidemill_stag",
    ];
    assert_eq!(begins(server.told()), second);
}

#[test]
fn a_refused_row_can_be_passed_over() {
    let server = table_and(|sql| match sql {
        "bulk" => error(2627, "Violation of PRIMARY KEY constraint 'k'. Cannot insert duplicate key."),
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    connection.begin().unwrap();
    connection.savepoint().unwrap();
    server.told();
    let error = connection.append(&target(), &rows(&[None])).unwrap_err();
    assert_eq!(error.kind, DbErrorKind::Data);
    assert!(error.message.contains("duplicate key (error 2627)"), "{error}");
    // Until it is rolled back nothing is taken.
    assert_eq!(connection.commit().unwrap_err().kind, DbErrorKind::Retry);
    connection.roll_back_to_savepoint().unwrap();
    connection.release_savepoint().unwrap();
    connection.commit().unwrap();
    assert_eq!(server.told()[3..], ["ROLLBACK TRANSACTION tidemill", "COMMIT TRANSACTION"]);
}

/// Each refused row left its temporary table behind, with the rows in it, as long as the session lasted.
#[test]
fn temporary_tables_outlive_a_savepoint() {
    let loads = AtomicUsize::new(0);
    let server = table_and(move |sql| match sql {
        "bulk" if loads.fetch_add(1, Ordering::Relaxed) == 1 => error(2627, "Cannot insert duplicate key."),
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    let many = rows(&[None; 65]);
    connection.begin().unwrap();
    connection.upsert(&target(), &many).unwrap();
    connection.savepoint().unwrap();
    assert_eq!(connection.upsert(&target(), &many).unwrap_err().kind, DbErrorKind::Data);
    connection.roll_back_to_savepoint().unwrap();
    server.told();
    connection.upsert(&target(), &many).unwrap();
    assert_eq!(server.told()[..2], [DESCRIBE, "TRUNCATE TABLE #tidemill_stage_0"]);
    // One that was made behind the savepoint is gone.
    connection.savepoint().unwrap();
    connection.delete(&target(), &many.project(&[0]).unwrap()).unwrap();
    connection.roll_back_to_savepoint().unwrap();
    server.told();
    connection.delete(&target(), &many.project(&[0]).unwrap()).unwrap();
    assert!(server.told()[0].starts_with("SELECT TOP 0 [id] INTO #tidemill_stage_2"));
}

#[test]
fn a_connection_that_goes_in_a_savepoint_is_one_that_went() {
    let server = table_and(|sql| match sql {
        "bulk" => error(2627, "Cannot insert duplicate key."),
        sql if sql.starts_with("ROLLBACK") => Reply::Gone,
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    connection.begin().unwrap();
    connection.savepoint().unwrap();
    assert_eq!(connection.append(&target(), &rows(&[None])).unwrap_err().kind, DbErrorKind::Data);
    assert_eq!(connection.roll_back_to_savepoint().unwrap_err().kind, DbErrorKind::Connection);
}

#[test]
fn a_transaction_that_is_gone_is_not_gone_on_with() {
    let server = table_and(|sql| match sql {
        "bulk" => both(error(3609, "The transaction ended in the trigger."), rolled_back()),
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    connection.begin().unwrap();
    assert_eq!(connection.append(&target(), &rows(&[None])).unwrap_err().kind, DbErrorKind::Fatal);
    connection.rollback().unwrap();
    // The client believes that the transaction is open.
    assert_eq!(connection.begin().unwrap_err().kind, DbErrorKind::Connection);
    assert!(!connection.alive());
}

#[test]
fn errors_have_their_kinds() {
    #[track_caller]
    fn check(number: u32, kind: DbErrorKind) {
        let server = Server::start(move |sql| if sql == "x" { error(number, "no") } else { done() });
        let mut connection = connect(server.address, "x").unwrap();
        let error = connection.execute("x").unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.starts_with(&format!("running 'x': no (error {number})")), "{error}");
    }
    check(1205, DbErrorKind::Retry);
    check(1222, DbErrorKind::Retry);
    check(2601, DbErrorKind::Data);
    check(2628, DbErrorKind::Data);
    check(8152, DbErrorKind::Data);
    check(3906, DbErrorKind::Fatal);
    check(6005, DbErrorKind::Connection);
}

#[test]
fn a_server_that_goes_is_noticed() {
    let server = table_and(|sql| if sql == "bulk" || sql == "x" { Reply::Gone } else { done() });
    let mut connection = connect(server.address, "x").unwrap();
    assert_eq!(connection.append(&target(), &rows(&[None])).unwrap_err().kind, DbErrorKind::Connection);
    assert_eq!(connection.execute("y").unwrap_err().kind, DbErrorKind::Connection);
    connection.rollback().unwrap();
    let mut connection = connect(server.address, "x").unwrap();
    assert_eq!(connection.execute("x").unwrap_err().kind, DbErrorKind::Connection);
}

#[test]
fn tables_are_described() {
    let server = table_and(|sql| if sql.contains("nothing") { error(208, "Invalid object name.") } else { done() });
    let mut connection = connect(server.address, "x").unwrap();
    assert_eq!(connection.table_columns("nothing").unwrap(), None);
    let columns = connection.table_columns("dbo.t").unwrap().unwrap();
    assert_eq!(columns, [("id".to_string(), "int".to_string()), ("Name".into(), "nvarchar(50)".into())]);
    let missing = Target { table: "nothing".into(), ..target() };
    assert!(connection.append(&missing, &rows(&[None])).unwrap_err().message.contains("sink.create-table"));
    let other = Schema::new(vec![Field::new("other", DataType::Int32, true)]);
    let batch = RecordBatch::try_new(Arc::new(other), vec![Arc::new(Int32Array::from(vec![1]))]).unwrap();
    let error = connection.append(&target(), &batch).unwrap_err();
    assert!(error.message.contains("no column 'other'; it has id, Name"), "{error}");
}

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(name, t)| Field::new(*name, t.clone(), true)).collect::<Vec<_>>()))
}

/// All rows of a query, each as text.
fn read(connection: &mut dyn Connection, sql: &str, parameters: Option<&RecordBatch>, schema: &SchemaRef) -> Result<Vec<String>, DbError> {
    let mut lines = Vec::new();
    connection.query(sql, parameters, schema, 2, &mut |batch| {
        assert!(batch.num_rows() <= 2);
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|c| array_value_to_string(c.as_ref(), row).unwrap());
            lines.push(values.collect::<Vec<_>>().join(" "));
        }
        Ok(())
    })?;
    Ok(lines)
}

#[test]
fn results_are_read() {
    let server = Server::start(|sql| match sql {
        "rows" => {
            let columns = [("i", types::INT), ("s", types::NVARCHAR_50), ("m", types::MONEY), ("t", types::DATETIME2_7)];
            let moment = [8, 0x80, 0x96, 0x98, 0, 0, 0x3A, 0xF9, 0x0A];
            let first = [&[4, 5, 0, 0, 0][..], &[2, 0, 0xF6, 0], &[8, 0, 0, 0, 0, 0x98, 0x3A, 0, 0], &moment].concat();
            let second = [0, 0xFF, 0xFF, 0, 0];
            result(&columns, &[&first, &second, &first])
        }
        "call bounds @P1" => result(&[("n", types::INT)], &[&[4, 7, 0, 0, 0]]),
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    let timestamp = DataType::Timestamp(TimeUnit::Millisecond, None);
    let all = schema(&[("i", DataType::Int64), ("s", DataType::Utf8), ("m", DataType::Decimal128(19, 4)), ("t", timestamp)]);
    let row = "5 ö 1.5000 1970-01-01T00:00:01";
    assert_eq!(read(connection.as_mut(), "rows", None, &all).unwrap(), [row, "   ", row]);
    let asked = RecordBatch::try_from_iter([("p", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
    assert_eq!(read(connection.as_mut(), "bounds @P1", Some(&asked), &schema(&[("n", DataType::Int64)])).unwrap(), ["7"]);
    // A value that does not fit is named, and the rest of the result is not read.
    let narrow = schema(&[("i", DataType::Int64), ("s", DataType::Int32), ("m", DataType::Utf8), ("t", DataType::Utf8)]);
    let error = read(connection.as_mut(), "rows", None, &narrow).unwrap_err();
    assert!(error.kind == DbErrorKind::Data && error.message.contains("column 's'"), "{error}");
    assert_eq!(connection.execute("y").unwrap_err().kind, DbErrorKind::Connection);
}

#[test]
fn keys_are_looked_up() {
    let server = table_and(|sql| match sql.starts_with("call SELECT") {
        true => result(&[("name", types::NVARCHAR_50), ("id", types::INT)], &[&[2, 0, 97, 0, 4, 2, 0, 0, 0]]),
        false => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    server.told();
    let keys = rows(&[None, None, None]).project(&[0]).unwrap();
    let wanted = schema(&[("name", DataType::Utf8), ("id", DataType::Int32)]);
    let found = connection.look_up(&target(), &keys, &wanted).unwrap();
    assert_eq!((found.num_rows(), found.schema()), (1, wanted));
    let expect = "call SELECT t.[name], t.[id] FROM [dbo].[t] AS t WHERE EXISTS (SELECT 1 FROM \
                  (VALUES (@P1),(@P2),(@P3),(@P4)) AS s ([id]) WHERE t.[id] = s.[id])";
    assert_eq!(server.told(), [DESCRIBE, expect]);
}

#[test]
fn text_in_a_code_page_goes_through_a_bulk_load() {
    let server = Server::start(|sql| match sql {
        DESCRIBE => result(&[("id", types::INT), ("name", types::VARCHAR_9)], &[]),
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    connection.upsert(&target(), &rows(&[Some("a")])).unwrap();
    assert!(server.told().last().unwrap().starts_with("call MERGE"));
    connection.upsert(&target(), &rows(&[Some("ä")])).unwrap();
    let told = server.told();
    assert!(told.contains(&"bulk id name: 1 ä".to_string()) && told.last().unwrap().starts_with("MERGE"), "{told:?}");
    let error = connection.upsert(&target(), &rows(&[Some("日")])).unwrap_err();
    assert!(error.kind == DbErrorKind::Data && error.message.contains("varchar(9)"), "{error}");
}

#[test]
fn text_is_compared_by_the_collation_of_the_column() {
    let server = table_and(|sql| match sql {
        "SELECT name, collation_name FROM sys.columns WHERE object_id = OBJECT_ID(N'[dbo].[t]')" => {
            let row = |name: &[u8], collation: &[u8]| {
                let wide = |text: &[u8]| text.iter().flat_map(|b| [*b, 0]).collect::<Vec<u8>>();
                [&[2 * name.len() as u8, 0][..], &wide(name)[..], &[2 * collation.len() as u8, 0][..], &wide(collation)[..]].concat()
            };
            let columns = [("name", types::NVARCHAR_50), ("collation_name", types::NVARCHAR_50)];
            result(&columns, &[&row(b"Name", b"Latin1_General_BIN2"), &row(b"id", b"'; x")])
        }
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    connection.upsert(&target(), &rows(&[Some("a")])).unwrap();
    let told = server.told();
    let list = "(VALUES (CAST(@P1 AS int),CAST(@P2 AS nvarchar(50)) COLLATE Latin1_General_BIN2)) AS s ([id], [Name])";
    assert!(told.last().unwrap().contains(list), "{told:?}");
}

/// The transaction ended with it, and what came then was written without one.
#[test]
fn a_deadlock_over_the_catalog_is_one() {
    let server = table_and(|sql| match sql {
        sql if sql.starts_with("SELECT name, collation_name") => both(error(1205, "Transaction was deadlocked."), rolled_back()),
        _ => done(),
    });
    let mut connection = connect(server.address, "x").unwrap();
    connection.begin().unwrap();
    assert_eq!(connection.append(&target(), &rows(&[None])).unwrap_err().kind, DbErrorKind::Retry);
    assert_eq!(connection.commit().unwrap_err().kind, DbErrorKind::Retry);
    assert!(!server.told().iter().any(|sql| sql.starts_with("INSERT") || sql.starts_with("COMMIT")));
}

#[test]
fn statements_are_made() {
    let columns =
        [TableColumn::parameter("a", Kind::Int(8)), TableColumn::parameter("b]", Kind::Char { fixed: false, max: Some(9), utf8: false })];
    let arrays: [(&str, ArrayRef); 2] = [("a", Arc::new(Int32Array::from(vec![1]))), ("b", Arc::new(StringArray::from(vec!["x"])))];
    let sent = prepare(&RecordBatch::try_from_iter(arrays).unwrap(), &[&columns[0], &columns[1]]).unwrap();
    let around = as_columns(&sent);
    assert_eq!(
        listed(&sent, 2, &around),
        "(VALUES (CAST(@P1 AS bigint),CAST(@P2 AS varchar(9))),(CAST(@P3 AS bigint),CAST(@P4 AS varchar(9)))) AS s ([a], [b]]])"
    );
    #[track_caller]
    fn check(sent: &Sent<'_>, kind: Kind, expect: &str) {
        let column = TableColumn { collation_name: Some("Latin1_General_BIN2".into()), ..TableColumn::parameter("c", kind) };
        let list = listed(std::slice::from_ref(sent), 1, &[as_key(sent, &column)]);
        assert!(list.starts_with(&format!("(VALUES ({expect})) AS s (")), "{list}");
    }
    check(&sent[1], Kind::Char { fixed: true, max: Some(3), utf8: false }, "CAST(@P1 AS varchar(8000)) COLLATE Latin1_General_BIN2");
    check(&sent[1], Kind::NChar { fixed: false, max: None }, "@P1 COLLATE Latin1_General_BIN2");
    check(&sent[0], Kind::DateTime, "CAST(@P1 AS datetime)");
    check(&sent[0], Kind::Int(4), "@P1");
    assert_eq!(insert_bulk("#s", &sent, false), "INSERT BULK #s ([a] bigint, [b]]] varchar(9)) WITH (KEEP_NULLS, TABLOCK)");
    assert_eq!(
        make_stage("#s", "[t]", ["a", "b"].into_iter()),
        "SELECT TOP 0 [a], [b] INTO #s FROM [t] UNION ALL SELECT TOP 0 [a], [b] FROM [t]"
    );
    assert_eq!(
        merge("[t]", "#s AS s", &["a", "b"], &[0, 1]),
        "MERGE INTO [t] AS t USING #s AS s ON t.[a] = s.[a] AND t.[b] = s.[b] \
         WHEN NOT MATCHED BY TARGET THEN INSERT ([a], [b]) VALUES (s.[a], s.[b]);"
    );
    assert_eq!(delete("[t]", "#s AS s", ["a"].into_iter()), "DELETE t FROM [t] AS t JOIN #s AS s ON t.[a] = s.[a]");
    assert_eq!(
        look_up("[t]", "#s AS s", ["a"].into_iter(), "t.[b]"),
        "SELECT t.[b] FROM [t] AS t WHERE EXISTS (SELECT 1 FROM #s AS s WHERE t.[a] = s.[a])"
    );
}
