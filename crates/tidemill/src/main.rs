//! The command line. The only place that knows exit codes: 0, 1 (the job failed), 2 (bad usage),
//! 130 (interrupted twice).

mod args;
mod bench;
mod files;
mod run;
mod show;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Sql(args) => run::sql(&args),
        Command::Explain(args) => run::explain(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Reference => {
            print!("{}", tidemill_runtime::reference::page());
            Ok(())
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tidemill", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

/// Why the process ends with an error.
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The user's input is wrong.
    fn usage(message: impl Into<String>) -> Self {
        Failure { message: format!("error: {}", message.into()), code: 2 }
    }
}
