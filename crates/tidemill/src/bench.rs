//! `bench`: the command line of the laboratory.

use tidemill_lab::{Bench, Vary};

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
    let bench = Bench { job: args.run.job.clone(), arguments, vary, runs: args.runs.max(1), out: args.out.clone() };
    bench
        .run(&mut |line| eprintln!("{line}"))
        .map(|table| print!("{table}"))
        .map_err(|e| Failure { message: format!("error: {e}"), code: 1 })
}
