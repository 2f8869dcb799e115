//! Bills, whole.

use clap::Parser;

use super::bill;
use super::prices::{EXAMPLE, Prices};
use crate::args::{CapacityCommand, Cli, Command, CostArgs};

fn args(line: &[&str]) -> CostArgs {
    let all = ["tidemill", "capacity", "cost"].iter().chain(line);
    match Cli::try_parse_from(all).unwrap_or_else(|e| panic!("{e}")).command {
        Command::Capacity { command: CapacityCommand::Cost(args) } => args,
        _ => panic!("another command"),
    }
}

/// A file of a test, removed when dropped.
struct Written(std::path::PathBuf);

impl Written {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidemill-capacity-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("writing a test's file");
        Written(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a path in UTF-8")
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The month of experiment E2: 2,560 GB and two million operations, $768 on the filer and $57 in the bucket. The sum of two
/// prices, each times what there is of it, worked out by hand: 2560 * 0.02 + 100 * 0.05 + 100 * 0.004 = 56.60.
#[test]
fn a_month_of_2560_gb() {
    let text =
        bill(&args(&["--stored", "csv=2560GB", "--stored", "parquet=366gb", "--class-a", "1000000", "--class-b", "1000000"])).unwrap();
    let expect = "\
storage  format      stored   space  operations  network  machine   month
-------  -------  ---------  ------  ----------  -------  -------  ------
bucket   csv      2560.0 GB   51.20        5.40     0.00     0.00   56.60
bucket   parquet   366.0 GB    7.32        5.40     0.00     0.00   12.72
filer    csv      2560.0 GB  768.00        0.00     0.00     0.00  768.00
filer    parquet   366.0 GB  768.00        0.00     0.00     0.00  768.00
s3       csv      2560.0 GB   58.88        5.40     0.00     0.00   64.28
s3       parquet   366.0 GB    8.42        5.40     0.00     0.00   13.82

USD for a month; not in it: taxes, discounts, free allowances
bucket: Google Cloud Storage, class Standard, region us-central1; 2024-06; https://cloud.google.com/storage/pricing
filer: managed NFS on SSD (Filestore Basic SSD), paid by provisioned space; 2024-06; https://cloud.google.com/filestore/pricing
filer: 2560 GB are paid for at least
s3: Amazon S3, class Standard, region us-east-1; 2024-06; https://aws.amazon.com/s3/pricing
";
    assert_eq!(text, expect);
}

const OWN: &str =
    "currency = \"EUR\"\n[storage.shelf]\ngb-month = 1\nclass-a-10000 = 10\nclass-b-10000 = 1\negress-gb = 2\n[machine]\nhour = 3\n";

/// Ten runs a month, each half an hour, 10 GB read over the network (2,560 requests), 2 GB written (256 parts and 4 more).
#[test]
fn a_month_of_runs() {
    let prices = Written::new("prices.toml", OWN);
    let run = r#"{"elapsed_s": 1800.0, "read": {"cache": 1, "disk": 2, "network": 10737418240},
        "nodes": [{"name": "Source t", "bytes": 5}, {"name": "Sink s", "bytes": 2147483648}]}"#;
    let summary = Written::new("summary.json", run);
    let text = bill(&args(&["--prices", prices.path(), "--summary", summary.path(), "--runs", "10"])).unwrap();
    let expect = "\
storage  format   stored  space  operations  network  machine   month
-------  ------  -------  -----  ----------  -------  -------  ------
shelf    output  20.0 GB  20.00        5.16   200.00    15.00  240.16

EUR for a month; not in it: taxes, discounts, free allowances
2600 operations of class A: estimated, parts of 8 MB of what was written, and 4 for each sink
25600 operations of class B: estimated, pieces of 4 MB of what was read over the network
107374182400 bytes out: what was read over the network; within a region --egress 0
21474836480 bytes stored: what was written
";
    assert_eq!(text, expect);
    let several = Written::new("several.json", &format!("[{run}, {run}]"));
    let line = [
        "--prices",
        prices.path(),
        "--summary",
        several.path(),
        "--stored",
        "1gb",
        "--egress",
        "0",
        "--class-a",
        "0",
        "--class-b",
        "0",
        "--json",
    ];
    let told: serde_json::Value = serde_json::from_str(&bill(&args(&line)).unwrap()).unwrap();
    let expect = serde_json::json!({
        "storage": "shelf", "format": "files", "stored_bytes": 1_073_741_824u64, "currency": "EUR",
        "space": 1.0, "operations": 0.0, "network": 0.0, "machine": 3.0, "month": 4.0,
    });
    assert_eq!(told, expect);
}

#[track_caller]
fn wrong(prices: &str, expect: &str) {
    let why = Prices::parse(prices).unwrap_err();
    assert!(why.contains(expect), "{why}");
}

#[test]
fn prices_that_are_none() {
    assert!(Prices::parse(EXAMPLE).is_ok());
    wrong("", "no currency");
    wrong("currency = \"EUR\"", "no storage");
    wrong("currency = 1", "line 1: 'currency' is a text");
    wrong(&OWN.replace("gb-month = 1", "gb-mont = 1"), "line 2: [storage.shelf] has no 'gb-month'; write gb-month = 0");
    wrong(&OWN.replace("[machine]", "least = 1\n[machine]"), "'least' is not known here");
    wrong(&OWN.replace("hour = 3", "hour = -3"), "line 8: 'hour' is a number, 0 or more");
    wrong(&OWN.replace("[machine]", "[machines]"), "line 7: there is no table [machines]");
}

#[test]
fn workloads_that_are_none() {
    assert!(bill(&args(&[])).unwrap_err().contains("--stored parquet=200GB"));
    let other = Written::new("other.json", "{\"a\": 1}");
    assert!(bill(&args(&["--summary", other.path()])).unwrap_err().contains("has no 'elapsed_s'"));
    let prices = Written::new("no-machine.toml", OWN.split("[machine]").next().expect("what stands before it"));
    assert!(bill(&args(&["--prices", prices.path(), "--stored", "1gb", "--hours", "2"])).unwrap_err().contains("no [machine]"));
    assert!(Cli::try_parse_from(["tidemill", "capacity", "cost", "--stored", "csv=lots"]).is_err());
}
