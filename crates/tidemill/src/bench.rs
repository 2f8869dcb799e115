//! `bench`: the command line of the laboratory.

use tidemill_lab::{Adapter, Bench, Suite, Vary};

use crate::Failure;
use crate::args::BenchArgs;
use crate::run::pair;

pub fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let vary = args
        .vary
        .iter()
        .map(|text| {
            let (key, values) = pair(text, "--vary")?;
            Ok(Vary { key, values: values.split(',').map(|v| v.trim().to_string()).collect() })
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut arguments = Vec::new();
    for (flag, values) in [("--set", &args.run.set), ("--define", &args.run.define)] {
        for value in values {
            arguments.extend([flag.to_string(), value.clone()]);
        }
    }
    if let Some(memory) = &args.run.memory {
        arguments.extend(["--memory".to_string(), memory.clone()]);
    }
    if let Some(n) = args.run.parallelism {
        arguments.extend(["--parallelism".to_string(), n.to_string()]);
    }
    if let Some(dir) = args.run.state_dir.as_ref().filter(|_| args.adapter.is_none()) {
        // Checkpoints are part of what is measured; what an earlier run left is not.
        arguments.extend(["--state-dir".to_string(), dir.display().to_string(), "--fresh".to_string()]);
    }
    if args.run.job.is_dir() {
        return suite(args, arguments);
    }
    let adapter = args.adapter.as_ref().zip(args.stream.as_ref()).map(|(from, stream)| Adapter {
        from: from.clone(),
        stream: stream.clone(),
        keeps_state: args.run.state_dir.is_some(),
    });
    let bench = Bench { job: args.run.job.clone(), arguments, adapter, vary, runs: args.runs, out: args.out.clone() };
    bench
        .run(&mut |line| eprintln!("{line}"))
        .map(|table| print!("{table}"))
        .map_err(|e| Failure { message: format!("error: {e}"), code: 1 })
}

/// Every job of a directory.
fn suite(args: &BenchArgs, arguments: Vec<String>) -> Result<(), Failure> {
    let directory = args.run.job.clone();
    if !args.vary.is_empty() {
        return Err(Failure::usage(format!(
            "--vary compares runs of one job, and '{}' is a directory: name one of its jobs",
            directory.display()
        )));
    }
    // A job that counts its events calls them so; it may read fewer rows than there are events.
    let events = args.run.define.iter().rev().find_map(|d| d.strip_prefix("EVENTS=")).and_then(|n| n.trim().parse().ok());
    let suite = Suite { directory, arguments, events, runs: args.runs, out: args.out.clone() };
    let failed = |message: String| Failure { message: format!("error: {message}"), code: 1 };
    let outcome = suite.run(&mut |line| eprintln!("{line}")).map_err(failed)?;
    print!("{}", outcome.table);
    match outcome.failures.as_slice() {
        [] => Ok(()),
        failures => Err(failed(format!("{} of the jobs failed\n{}", failures.len(), failures.join("\n")))),
    }
}
