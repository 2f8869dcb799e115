//! The commands and their options.

#[cfg(feature = "network")]
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use tidemill_format::options::{ByteSize, OptionValue};
use tidemill_runtime::settings::PARALLELISM_MAX;

use crate::capacity::workload::Stored;

/// One job, written once as SQL, runs as one process over streams and files.
#[derive(Parser)]
#[command(name = "tidemill", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a job file and show how it goes.
    Run(RunArgs),
    /// Ask files and tables directly: `tidemill sql "SELECT … FROM 'logs/*.csv'"`.
    Sql(SqlArgs),
    /// Copy files to another place, format or division: checked, and gone on with after a kill.
    Copy(CopyArgs),
    /// Show what files hold: columns, rows, row groups, compression, how much the page cache has of them.
    Describe(DescribeArgs),
    /// Show how much of files the system's page cache holds.
    Cache(CacheArgs),
    /// Show how a job would run: plans, operators with exchanges and shards, and what of it Flink does not know.
    Explain(RunArgs),
    /// Keep jobs running, and let other processes publish to and subscribe from their streams.
    #[cfg(feature = "network")]
    Serve(ServeArgs),
    /// Publish what any connector reads into a stream of a server, or write a stream's rows by any
    /// connector; exactly once, by the options that tables have.
    #[cfg(feature = "network")]
    Adapter(AdapterArgs),
    /// Publish files, or standard input, into a stream of a server.
    #[cfg(feature = "network")]
    Publish(PublishArgs),
    /// Print the rows of a server's stream as they come.
    #[cfg(feature = "network")]
    Subscribe(SubscribeArgs),
    /// Run a job over every combination of some settings, or every job of a directory, and compare.
    Bench(BenchArgs),
    /// What a workload costs, from a price file.
    Capacity {
        #[command(subcommand)]
        command: CapacityCommand,
    },
    /// Print the reference of settings, connectors, formats and functions as Markdown.
    Reference,
    /// A function to try LANGUAGE PROCESS with.
    #[command(hide = true)]
    Function { name: String },
    /// Print a completion script: `tidemill completions bash > /etc/bash_completion.d/tidemill`.
    Completions { shell: clap_complete::Shell },
}

#[derive(Args, Clone)]
pub struct RunArgs {
    /// The job: a file of SQL statements, or - for standard input.
    pub job: PathBuf,
    /// A setting, as SET in the job would set it; may be given often and wins over the job's.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Replace ${NAME} in the job by a value; may be given often. The environment is not used.
    #[arg(long = "define", short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Shards to run in; the processors of the machine by default.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=PARALLELISM_MAX as u64))]
    pub parallelism: Option<usize>,
    /// Keep checkpoints here and go on from the last one.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Forget what is in the state directory and begin anew.
    #[arg(long, requires = "state_dir")]
    pub fresh: bool,
    /// Memory for the whole process, such as 2GB.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Write the summary as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// No live line and no summary.
    #[arg(long, short)]
    pub quiet: bool,
}

#[cfg(feature = "network")]
#[derive(Args)]
pub struct ServeArgs {
    /// Job files to add; a file's name is its job's. A job of that name gets the new text and keeps its
    /// state.
    pub jobs: Vec<PathBuf>,
    /// The address to listen on; port 0 lets the system choose. Other than loopback only with TLS and
    /// tokens.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7733")]
    pub listen: SocketAddr,
    /// Keep jobs, their checkpoints and the logs of streams here; without it nothing outlives the server.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The server's certificate and those that lead to a root, PEM; read anew when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Who may do what, a line each: {"token": "…", "name": "…", "read": ["*"], "write": ["trades"],
    /// "manage": false, "expires": "2030-01-01T00:00:00Z"}; read anew when it changes.
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// A setting for all jobs; may be given often and wins over what a job sets.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Replace ${NAME} in the job files by a value; may be given often. The environment is not used.
    #[arg(long = "define", short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
    /// Shards of each job; the processors of the machine by default.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=PARALLELISM_MAX as u64))]
    pub parallelism: Option<usize>,
    /// Memory for the whole process, such as 2GB; jobs fail rather than grow beyond it.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Connections at once; further ones are turned away.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub max_connections: usize,
    /// The largest block that a publisher may send at once.
    #[arg(long, value_name = "SIZE", default_value = "64MB")]
    pub max_block_bytes: String,
    /// Blocks of all publishers that are on their way or wait for a job, together; a stream has one beside them.
    #[arg(long, value_name = "SIZE", default_value = "1GB")]
    pub max_pending_bytes: String,
    /// Write what each job did as JSON to this file, when the server ends.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
}

/// How a server is reached.
#[cfg(feature = "network")]
#[derive(Args, Clone)]
pub struct RemoteArgs {
    /// The token that the server asks for; by default what TIDEMILL_TOKEN holds.
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// PEM certificates that the server's must go back to; by default those that the system trusts.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<String>,
    /// How often to try again when the server does not answer or goes away; by default for ever.
    #[arg(long, value_name = "N")]
    pub reconnect: Option<u32>,
}

#[cfg(feature = "network")]
#[derive(Args)]
pub struct AdapterArgs {
    /// What is read: a table's options, such as connector=filesystem,path=x.csv,format=csv (values with
    /// commas in quotes), or a stream, flight://HOST:PORT/STREAM.
    #[arg(long, value_name = "OPTIONS|URL")]
    pub from: String,
    /// Where it goes: a stream, or a table's options.
    #[arg(long, value_name = "URL|OPTIONS")]
    pub to: String,
    /// The adapter's name at the server, which remembers under it what was done; by default made of the
    /// options, so that the same command goes on where it stood.
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,
    /// Rows go out in whole blocks of so many while there are more, as many blocks in a message as are at
    /// hand; or auto: in any number.
    #[arg(long, value_name = "ROWS|auto")]
    pub block_size: Option<String>,
    /// When a stream is read: keep checkpoints here and go on from the last one.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// When a stream is read: a setting of the job that does it; may be given often. Checkpoints are a
    /// second apart unless execution.checkpointing.interval is set.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write the summary as JSON to this file: every ten seconds as far as it is, and at the end, also where that is an error.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// No live line and no summary.
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[cfg(feature = "network")]
#[derive(Args)]
pub struct PublishArgs {
    /// The stream: flight://HOST:PORT/STREAM, or flight+tls:// for an encrypted connection.
    pub url: String,
    /// Files, directories or patterns; without them standard input is published.
    pub files: Vec<String>,
    /// The format; by default by the file's extension, CSV for standard input.
    #[arg(long, value_enum)]
    pub format: Option<Input>,
    /// CSV begins with a line of column names, which must be the stream's.
    #[arg(long)]
    pub header: bool,
    /// The publisher's name; by default files go on where the same command stood, and each standard
    /// input is new.
    #[arg(long, value_name = "NAME")]
    pub id: Option<String>,
    /// Rows go out in whole blocks of so many while there are more, as many blocks in a message as are at
    /// hand; or auto: in any number.
    #[arg(long, value_name = "ROWS|auto")]
    pub block_size: Option<String>,
    /// Count and pass over records that cannot be read.
    #[arg(long)]
    pub skip_errors: bool,
    /// Write the summary as JSON to this file: every ten seconds as far as it is, and at the end, also where that is an error.
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// No live line and no summary.
    #[arg(long, short)]
    pub quiet: bool,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// What `tidemill publish` reads.
#[cfg(feature = "network")]
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Input {
    /// Comma-separated values.
    Csv,
    /// One JSON object a line.
    Json,
}

#[cfg(feature = "network")]
#[derive(Args)]
pub struct SubscribeArgs {
    /// The stream: flight://HOST:PORT/STREAM, or flight+tls:// for an encrypted connection.
    pub url: String,
    /// Where to begin: now, snapshot, earliest, acknowledged, or the number of a row; by default
    /// acknowledged with --name, otherwise now.
    #[arg(long, value_name = "START")]
    pub from: Option<String>,
    /// Only rows for which this SQL condition is true; the server looks.
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// Only these columns, in this order.
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// How rows are printed.
    #[arg(long, value_enum, default_value_t = Output::Json)]
    pub format: Output,
    /// The server sends no more than so many rows at once; or auto: as many as the job has written at once.
    #[arg(long, value_name = "ROWS|auto")]
    pub block_size: Option<String>,
    /// The subscriber's name: what was printed is acknowledged under it, and does not come again.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// End after so many rows. With --name and --where the last ones may come again: how far they reach is
    /// known by whole messages.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

#[derive(Args)]
pub struct SqlArgs {
    /// Statements; without them they are read from standard input, or asked for if that is a terminal.
    pub sql: Option<String>,
    /// A setting; may be given often.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// How rows are shown.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// How many files are worked on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// As many as pay.
    Auto,
    /// So many.
    Fixed(usize),
}

impl std::str::FromStr for AtOnce {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<usize>() {
            _ if text == "auto" => Ok(AtOnce::Auto),
            Ok(n) if (1..=PARALLELISM_MAX).contains(&n) => Ok(AtOnce::Fixed(n)),
            _ => Err(format!("expected auto or a number from 1 to {PARALLELISM_MAX}")),
        }
    }
}

/// How a copy is compared with what was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Verify {
    /// What was written is read again: the number of rows and a checksum of all values.
    Full,
    /// What was written is counted.
    Rows,
    /// Not at all.
    #[value(name = "none")]
    Off,
}

#[derive(Args)]
pub struct CopyArgs {
    /// Files, directories, globs, archives or URLs, and last where they go, on a disk or in a bucket: a file if its name has the extension
    /// of a format (.csv, .json, .parquet, .avro, .arrow, .orc, .xlsx, with .gz, .zst, … behind it), else a directory.
    #[arg(required = true, num_args = 2.., value_name = "FROM… TO")]
    pub paths: Vec<String>,
    /// Only rows for which this SQL condition is true.
    #[arg(long = "where", value_name = "CONDITION")]
    pub condition: Option<String>,
    /// What is written: columns and expressions as behind SELECT; all columns by default.
    #[arg(long, value_name = "A, B + 1 AS C, …")]
    pub select: Option<String>,
    /// Divide rows among directories by the values of these columns: year=2024/month=1/….
    #[arg(long, value_name = "A,B,…")]
    pub partition_by: Option<String>,
    /// Sort the rows of each file that is written, as behind ORDER BY. They are held in memory for it.
    #[arg(long, value_name = "A, B DESC, …")]
    pub sort_by: Option<String>,
    /// Write so many files into a directory; by default one for each that is read.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub files: Option<usize>,
    /// How many files are read at once; auto begins with the processors and finds out whether more or fewer pay.
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub parallel: AtOnce,
    /// Memory for the whole process, such as 1GB: near it fewer files are read at once. By default half of the
    /// machine's.
    #[arg(long, value_name = "SIZE", value_parser = <ByteSize as OptionValue>::parse)]
    pub memory: Option<ByteSize>,
    /// Go on with a copy that was killed or failed; begins one if there is none.
    #[arg(long)]
    pub resume: bool,
    /// Replace what is there, at the end and in one step; an unfinished copy is thrown away unless --resume is
    /// given, too.
    #[arg(long)]
    pub overwrite: bool,
    /// Files have different columns: put them together by name, what a file lacks is NULL.
    #[arg(long)]
    pub union_by_name: bool,
    /// How files are read, as in read_csv(…): header=false, delim=';', filename=true, csv.null-literal=NA; may be
    /// given often.
    #[arg(long, value_name = "OPTION=VALUE")]
    pub read: Vec<String>,
    /// How they are written, as in COPY … TO: format=parquet, compression=zstd, header=false; may be given often.
    #[arg(long, value_name = "OPTION=VALUE")]
    pub write: Vec<String>,
    /// How the copy is compared with what was copied. Full reads what was written once more.
    #[arg(long, value_enum, default_value_t = Verify::Full)]
    pub verify: Verify,
    /// No bars and no summary.
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
pub struct DescribeArgs {
    /// Files, directories, globs or archives.
    #[arg(required = true)]
    pub paths: Vec<String>,
    /// A JSON object a file and line.
    #[arg(long)]
    pub json: bool,
    /// How files are read, as in read_csv(…); may be given often.
    #[arg(long, value_name = "OPTION=VALUE")]
    pub read: Vec<String>,
}

#[derive(Args)]
pub struct CacheArgs {
    /// Files, directories or globs.
    #[arg(required = true)]
    pub paths: Vec<String>,
    /// A JSON object a file and line.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum CapacityCommand {
    /// What a month costs: a line for each storage of the prices and each format that is stored.
    Cost(CostArgs),
    /// Print the price file that `cost` uses where it is given none, to be edited.
    Prices,
}

#[derive(Args)]
pub struct CostArgs {
    /// The price file; by default the examples that `tidemill capacity prices` prints.
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
    /// What is kept for the month, such as parquet=200GB or 1TB; may be given often, to compare formats. A GB has 2^30 bytes.
    #[arg(long, value_name = "[FORMAT=]SIZE")]
    pub stored: Vec<Stored>,
    /// Operations that write or list.
    #[arg(long, value_name = "N")]
    pub class_a: Option<u64>,
    /// Operations that read.
    #[arg(long, value_name = "N")]
    pub class_b: Option<u64>,
    /// Bytes that leave the storage.
    #[arg(long, value_name = "SIZE", value_parser = <ByteSize as OptionValue>::parse)]
    pub egress: Option<ByteSize>,
    /// Hours of machines.
    #[arg(long, value_name = "HOURS", value_parser = hours)]
    pub hours: Option<f64>,
    /// What `tidemill run --metrics` wrote; may be given often. What no option says is taken from it: hours, bytes read over the
    /// network and written; operations are estimated.
    #[arg(long, value_name = "FILE")]
    pub summary: Vec<PathBuf>,
    /// How often a month the runs of the summaries are made.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "summary")]
    pub runs: u64,
    /// A JSON object a line of the bill.
    #[arg(long)]
    pub json: bool,
}

/// A number of hours.
fn hours(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hours) if hours.is_finite() && hours >= 0.0 => Ok(hours),
        _ => Err("expected a number of hours, 0 or more".to_string()),
    }
}

/// How rows are shown.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Output {
    /// A table for people.
    Table,
    /// Comma-separated values with a header line.
    Csv,
    /// One JSON object a line.
    Json,
}

#[derive(Args)]
pub struct BenchArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// A setting and its values; may be given often, all combinations are run:
    /// --vary block.size=1,16,auto --vary parallelism=1,2
    #[arg(long, value_name = "KEY=V1,V2,…")]
    pub vary: Vec<String>,
    /// Serve the job and feed it through an adapter process that reads from this connector, such as
    /// 'connector=filesystem,path=trades.csv,format=csv'; what both processes cost is added up. The server
    /// keeps checkpoints if there is a --state-dir, in a directory of its own for each run.
    #[arg(long, value_name = "OPTIONS", requires = "stream")]
    pub adapter: Option<String>,
    /// The stream of the job that the adapter publishes into.
    #[arg(long, value_name = "NAME", requires = "adapter")]
    pub stream: Option<String>,
    /// Runs of each combination, interleaved.
    #[arg(long, default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub runs: usize,
    /// Where results.csv and plot.svg go; for a directory, results.csv and results.md.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
