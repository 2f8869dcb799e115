//! The command line. Exit codes: 0, and those of [`Failure`]: 1 (the job failed) and 2 (bad usage). Whoever listens to
//! signals ends the process with 130 when it is interrupted twice. A reader of standard output that goes away ends the process by SIGPIPE.

#[cfg(feature = "network")]
mod adapter;
mod allocator;
mod args;
mod bench;
mod cache;
mod capacity;
mod copy;
mod define;
mod describe;
mod end;
mod files;
mod function;
mod prompt;
mod run;
#[cfg(feature = "network")]
mod serve;
mod show;
#[cfg(feature = "network")]
mod subscribe;

use std::io::Write;

use clap::{CommandFactory, Parser};

use args::{Cli, Command};
use end::end;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Whoever reads notices may be gone, which must not end what goes on.
fn notice(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn main() {
    allocator::begin_with_small_pages();
    allocator::keep_what_is_free();
    tidemill_state::on_much_state(allocator::want_large_pages);
    tidemill_state::on_durable_state(allocator::stay_with_small_pages);
    tidemill_hub::register();
    tidemill_connect::notices(notice);
    tidemill_runtime::at_rest(allocator::collect_at_times);
    tidemill_runtime::when_short(allocator::give_back);
    #[cfg(feature = "network")]
    tidemill_remote::register();
    #[cfg(feature = "kafka")]
    tidemill_kafka::register();
    #[cfg(feature = "mqtt")]
    tidemill_mqtt::register();
    #[cfg(feature = "redis")]
    tidemill_redis::register();
    #[cfg(feature = "databases")]
    tidemill_database::register();
    let cli = Cli::parse();
    // A server outlives those who read its log.
    #[cfg(feature = "network")]
    let serves = matches!(cli.command, Command::Serve(_));
    #[cfg(not(feature = "network"))]
    let serves = false;
    if !serves {
        end_with_the_reader();
    }
    let result = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Sql(args) => run::sql(&args),
        Command::Copy(args) => copy::copy(&args),
        Command::Describe(args) => describe::describe(&args),
        Command::Cache(args) => cache::cache(&args),
        Command::Explain(args) => run::explain(&args),
        #[cfg(feature = "network")]
        Command::Serve(args) => serve::serve(&args),
        #[cfg(feature = "network")]
        Command::Adapter(args) => adapter::adapter(&args),
        #[cfg(feature = "network")]
        Command::Publish(args) => adapter::publish(&args),
        #[cfg(feature = "network")]
        Command::Subscribe(args) => subscribe::subscribe(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Capacity { command } => capacity::capacity(&command),
        Command::Function { name } => function::function(&name),
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
        Ok(()) => end(0),
        Err(failure) => {
            notice(&failure.message);
            end(failure.code)
        }
    }
}

/// When whoever reads our output goes away (`tidemill … | head`), the process ends as other tools do:
/// by SIGPIPE and without a word, where Rust's `println!` would panic. A peer that closes its socket
/// raises the same signal where several buffers are written at once, and is an error like any other.
/// A job that is ended so goes on from its last checkpoint, as after any other end.
fn end_with_the_reader() {
    use signal_hook::consts::SIGPIPE;
    use signal_hook::low_level::{emulate_default_handler, register};
    // SAFETY: the handler does what the default action does, which is async-signal-safe.
    let registered = unsafe {
        register(SIGPIPE, || {
            if reader_is_gone() {
                drop(emulate_default_handler(SIGPIPE))
            }
        })
    };
    // Without the handler a broken pipe is an error like any other.
    drop(registered);
}

/// Whether nobody reads standard output any more.
fn reader_is_gone() -> bool {
    let mut out = libc::pollfd { fd: libc::STDOUT_FILENO, events: 0, revents: 0 };
    // SAFETY: one valid pollfd, and poll is async-signal-safe.
    unsafe { libc::poll(&raw mut out, 1, 0) > 0 && out.revents & libc::POLLERR != 0 }
}

/// Why the process ends with an error.
#[derive(Debug)]
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
