//! How the process ends: without the destructors of C libraries that `exit` runs. Threads that nobody waits for, such as
//! those that leave a database, may be inside a library and must not find it taken down under them.

use std::io::Write;

/// Ends the process, with all that was printed written out.
pub fn end(code: u8) -> ! {
    // Whoever read it may be gone.
    let _ = std::io::stdout().flush();
    at_once(code)
}

/// Ends the process because it was interrupted: at once, though others may be printing and wait for whoever reads it.
pub fn interrupted() -> ! {
    /// 128 and the number of SIGINT, as shells have it.
    const INTERRUPTED: u8 = 130;
    at_once(INTERRUPTED)
}

fn at_once(code: u8) -> ! {
    // SAFETY: _exit ends the process; nothing runs after it.
    unsafe { libc::_exit(i32::from(code)) }
}
