//! Logins with TLS and reads against pysqlbridge, a server of somebody else's that serves files as tables of SQL
//! Server. It is a package of PyPI (`pip install pysqlbridge`); where it is missing, and `PYSQLBRIDGE` names none, the
//! test says that it did not run. It takes no writes.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use arrow::datatypes::DataType;
use tempfile::TempDir;

use super::{TIMEOUT, read, schema};
use crate::driver::{Connection, DbError, DbErrorKind, Target};
use crate::not_run::not_run;
use crate::url::Url;

/// The server, with the table `items`.
struct Bridge {
    process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Bridge {
    /// Starts it; `None` if it is not installed.
    fn start() -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("items.csv"), "id,name,price\n1,apple,10.5\n2,bärne,\n3,,2.25\n").unwrap();
        let config = serde_json::json!({
            "logins": [{"user": "sa", "password": "${env:TEST_PASSWORD}"}],
            "tables": [{"name": "items", "csv": path("items.csv")}],
        });
        std::fs::write(path("config.json"), config.to_string()).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let program = std::env::var("PYSQLBRIDGE").unwrap_or_else(|_| "pysqlbridge".into());
        let mut command = Command::new(program);
        command.arg("--config").arg(path("config.json")).args(["--port", &address.port().to_string()]);
        command.env("TEST_PASSWORD", "right").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(process) => Some(Bridge { process, address, _directory: directory }),
            Err(_) => {
                not_run("reads over pysqlbridge: it is not installed (pip install pysqlbridge)");
                None
            }
        }
    }

    fn connect(&self, properties: &str) -> Result<Box<dyn Connection>, DbError> {
        let url = format!("jdbc:sqlserver://{};databaseName=master;user=sa;{properties}", self.address);
        crate::sqlserver::driver(&Url::parse(&url).unwrap())?.connect(TIMEOUT)
    }

    /// Connects as soon as it listens.
    fn patiently(&self, properties: &str) -> Box<dyn Connection> {
        let begun = Instant::now();
        loop {
            match self.connect(properties) {
                Ok(connection) => return connection,
                Err(e) if e.kind == DbErrorKind::Connection && begun.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(e) => panic!("{e}"),
            }
        }
    }
}

#[test]
fn files_are_read_as_tables() {
    let Some(bridge) = Bridge::start() else { return };
    let mut connection = bridge.patiently("encrypt=true;trustServerCertificate=true;password=right");
    let items = schema(&[("id", DataType::Int64), ("name", DataType::Utf8), ("price", DataType::Float64)]);
    let sql = "SELECT [id], [name], [price] FROM [items] ORDER BY [id]";
    assert_eq!(read(connection.as_mut(), sql, None, &items).unwrap(), ["1 apple 10.5", "2 bärne ", "3  2.25"]);
    let columns = connection.table_columns("items").unwrap().unwrap();
    assert_eq!(columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["id", "name", "price"]);
    assert_eq!(connection.table_columns("nothing").unwrap(), None);
    let asked = arrow::array::RecordBatch::try_from_iter([(
        "id",
        std::sync::Arc::new(arrow::array::Int64Array::from(vec![1])) as arrow::array::ArrayRef,
    )]);
    let asked = asked.unwrap();
    let sql = "SELECT [id], [name], [price] FROM [items] WHERE [id] > @P1 ORDER BY [id]";
    assert_eq!(read(connection.as_mut(), sql, Some(&asked), &items).unwrap(), ["2 bärne ", "3  2.25"]);
    let target = Target { table: "items".into(), schema: items.clone(), key: vec![0] };
    let found = connection.look_up(&target, &asked, &items).unwrap();
    assert_eq!(found.num_rows(), 1);
    assert!(connection.alive());

    let error = bridge.connect("encrypt=true;trustServerCertificate=true;password=hidden").err().unwrap();
    assert!(error.kind == DbErrorKind::Fatal && !error.message.contains("hidden"), "{error}");
    // Its certificate is its own.
    let error = bridge.connect("password=right").err().unwrap();
    assert!(error.kind == DbErrorKind::Fatal && error.message.contains("ertificate"), "{error}");
    let error = bridge.connect("ssl-mode=disable;password=right").err();
    assert!(error.is_none_or(|e| e.message.contains("encryption")));
}
