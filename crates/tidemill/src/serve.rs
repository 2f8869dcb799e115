//! `serve`: jobs and streams for other processes.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tidemill_format::options::{ByteSize, OptionValue};
use tidemill_server::jobs::stored_names;
use tidemill_server::{Limits, ServeError, ServeOptions, TlsFiles};

use crate::args::ServeArgs;
use crate::run::{pair, stop_on_signals, text};
use crate::{Failure, files};

pub fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let jobs = args.jobs.iter().map(|path| job(path, &args.define)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = jobs.iter().map(|(name, _)| name.clone()).collect();
    if let Some((i, name)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return Err(Failure::usage(format!("'{}': there is a job '{name}' before it; a file's name is its job's", args.jobs[i].display())));
    }
    let options = ServeOptions {
        listen: args.listen,
        tls: args.tls_cert.clone().zip(args.tls_key.clone()).map(|(cert, key)| TlsFiles { cert, key }),
        tokens: args.tokens.clone(),
        state_dir: args.state_dir.clone(),
        jobs,
        settings: settings(args)?,
        limits: Limits {
            connections: args.max_connections,
            block_bytes: bytes("--max-block-bytes", &args.max_block_bytes)?,
            pending_bytes: bytes("--max-pending-bytes", &args.max_pending_bytes)?,
            ..Limits::default()
        },
        files: Some(Arc::new(files::resolve)),
    };
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let stop = stop_on_signals()?;
    let served = tidemill_server::serve(options, &stop, |address| ready(scheme, address, args.state_dir.as_deref(), names));
    let summaries = served.map_err(|e| {
        let code = if matches!(e, ServeError::Usage(_)) { 2 } else { 1 };
        let text = e.to_string();
        // What points into a job's text is complete.
        let message = if text.starts_with("error") { text } else { format!("error: {text}") };
        Failure { message, code }
    })?;
    let Some(path) = &args.metrics else { return Ok(()) };
    let written = serde_json::to_vec_pretty(&serde_json::json!({ "jobs": summaries }))
        .map_err(std::io::Error::other)
        .and_then(|json| std::fs::write(path, json));
    written.map_err(|e| Failure { message: format!("error: writing the metrics to '{}': {e}", path.display()), code: 1 })
}

/// Says that requests are answered, in a line that scripts can wait for. Where nobody reads it, the
/// server goes on all the same.
fn ready(scheme: &str, address: SocketAddr, state_dir: Option<&Path>, given: Vec<String>) {
    let names = state_dir.map_or(given, stored_names);
    let names = if names.is_empty() { "none".to_string() } else { names.join(", ") };
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "serving on {scheme}://{address}, jobs: {names}");
    let _ = out.flush();
}

/// A job's name and text.
fn job(path: &Path, define: &[String]) -> Result<(String, String), Failure> {
    if path == Path::new("-") {
        return Err(Failure::usage("serve wants its jobs as files: a file's name is its job's"));
    }
    let name = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
    Ok((name, text(path, define)?))
}

fn settings(args: &ServeArgs) -> Result<BTreeMap<String, String>, Failure> {
    let mut map = args.set.iter().map(|text| pair(text, "--set")).collect::<Result<BTreeMap<_, _>, _>>()?;
    if let Some(n) = args.parallelism {
        map.insert("parallelism.default".into(), n.to_string());
    }
    if let Some(memory) = &args.memory {
        map.insert("memory.limit".into(), memory.clone());
    }
    Ok(map)
}

/// The size that an option says.
fn bytes(option: &str, text: &str) -> Result<usize, Failure> {
    let wrong = |why: String| Failure::usage(format!("{option} {text}: {why}"));
    let size = ByteSize::parse(text).map_err(wrong)?;
    usize::try_from(size.0).map_err(|_| wrong("more than this machine can address".to_string()))
}
