//! The commands and their options.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use tidemill_runtime::settings::PARALLELISM_MAX;

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
    /// Show how a job would run: plans, operators, state, options that Flink lacks.
    Explain(RunArgs),
    /// Run a job over every combination of some settings, or every job of a directory, and compare.
    Bench(BenchArgs),
    /// Print the reference of settings, connectors, formats and functions as Markdown.
    Reference,
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

#[derive(Args)]
pub struct SqlArgs {
    /// Statements; without them they are read from standard input.
    pub sql: Option<String>,
    /// A setting; may be given often.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// How rows are shown.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// How `tidemill sql` shows rows.
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
    /// Runs of each combination, interleaved.
    #[arg(long, default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub runs: usize,
    /// Where results.csv and plot.svg go; for a directory, results.csv and results.md.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}
