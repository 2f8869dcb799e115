//! What the kernel is asked, and told, about the files of a store and the threads that tidy it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How many bytes of a file are in the kernel's cache, of `bytes` from `offset` on, which begins a page.
///
/// # Errors
/// The kernel does not say: it is older than Linux 6.5, or something forbids it.
pub(crate) fn cached(file: &File, offset: u64, bytes: u64) -> io::Result<u64> {
    /// The number of `cachestat(2)`, the same on all machines that there are stores for.
    const CACHESTAT: libc::c_long = 451;

    let range = [offset, bytes];
    // In the cache, dirty, being written, evicted, evicted a short time ago.
    let mut pages = [0u64; 5];
    // SAFETY: the descriptor is open as long as `file` is borrowed; the kernel reads one struct and fills the other, which are
    // nothing but two and five numbers of 64 bits. The other call reads a number.
    let (answer, page) = unsafe {
        let answer = libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0);
        (answer, libc::sysconf(libc::_SC_PAGESIZE))
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pages[0].saturating_mul(u64::try_from(page).unwrap_or(4096)).min(bytes))
}

/// Has the system begin to write a part of a file to the disk; 0 bytes: to its end. Only a hint: failure changes nothing.
pub(crate) fn begin_writing(file: &File, offset: u64, bytes: u64) {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is passed.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset as i64, bytes as i64, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Waits until a part of a file has been written. It is not safe then: the file was not synced.
///
/// # Errors
/// The disk's. A later sync would not tell of them again.
pub(crate) fn wait_written(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: as above.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset as i64, bytes as i64, all) } == 0 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // Some file systems cannot; then a sync does all of it.
        e if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::ESPIPE)) => Ok(()),
        e => Err(e),
    }
}

/// Less of a machine's memory than this part, as its divisor, that is used by nobody is little.
const FREE_DIVISOR: u64 = 16;

/// Whether little memory is used by nobody, caches included, so that what is read next makes something else go. So it is taken to be
/// where the system does not tell.
pub(crate) fn is_full() -> bool {
    fs::read_to_string("/proc/meminfo").ok().and_then(|told| is_full_by(&told)).unwrap_or(true)
}

/// The same by the text of `/proc/meminfo`.
fn is_full_by(meminfo: &str) -> Option<bool> {
    Some(bytes_of("MemFree:", meminfo)? < bytes_of("MemTotal:", meminfo)? / FREE_DIVISOR)
}

/// How many bytes can be had without anything being swapped out: others may lose what they have in the cache. 0 where the system does
/// not tell.
pub(crate) fn available() -> u64 {
    fs::read_to_string("/proc/meminfo").ok().and_then(|told| bytes_of("MemAvailable:", &told)).unwrap_or(0)
}

/// A number of `/proc/meminfo` (`proc_meminfo(5)`), in bytes.
fn bytes_of(name: &str, meminfo: &str) -> Option<u64> {
    let kilobytes = meminfo.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| kilobytes.saturating_mul(1024))
}

/// What the kernel is told about the use of a file.
#[derive(Clone, Copy)]
pub(crate) enum Advice {
    /// Reads come here and there: do not read ahead.
    Random,
    /// This part will be read soon.
    Soon,
    /// This part will not be read again.
    Done,
}

/// Tells the kernel how a part of a file is used; 0 bytes: to its end. Only a hint: failure changes nothing.
pub(crate) fn advise(file: &File, offset: u64, bytes: u64, advice: Advice) {
    let advice = match advice {
        Advice::Random => libc::POSIX_FADV_RANDOM,
        Advice::Soon => libc::POSIX_FADV_WILLNEED,
        Advice::Done => libc::POSIX_FADV_DONTNEED,
    };
    // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is passed.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset as libc::off_t, bytes as libc::off_t, advice) };
}

/// Whether a file is open for nobody but this descriptor, which may write. It is asked for a lease, which only such a one is given,
/// and which is given back.
///
/// # Errors
/// The system does not tell: the file system has no leases, or the file is another user's.
pub(crate) fn is_open_once(file: &File) -> io::Result<bool> {
    /// `F_SETSIG` of `fcntl(2)`, the same on all machines that there are stores for.
    const SET_SIGNAL: libc::c_int = 10;

    // SAFETY: the descriptor is open as long as `file` is borrowed, and no memory is passed.
    let ask = |what: libc::c_int, value: libc::c_int| match unsafe { libc::fcntl(file.as_raw_fd(), what, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    };
    // Who opens the file in this moment has a signal sent to us, which would be one that ends the process; this one is ignored.
    ask(SET_SIGNAL, libc::SIGURG)?;
    match ask(libc::F_SETLEASE, libc::F_WRLCK as libc::c_int) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        given => given?,
    }
    ask(libc::F_SETLEASE, libc::F_UNLCK as libc::c_int)?;
    Ok(true)
}

/// How many bytes are free for us where a file lies.
///
/// # Errors
/// The system does not tell.
pub(crate) fn free_bytes(file: &File) -> io::Result<u64> {
    // SAFETY: the struct is numbers, for which zeros are values; the descriptor is open as long as `file` is borrowed, and the call
    // fills the struct that it is given.
    let (answer, told) = unsafe {
        let mut told: libc::statvfs = std::mem::zeroed();
        (libc::fstatvfs(file.as_raw_fd(), &raw mut told), told)
    };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(told.f_bavail.saturating_mul(told.f_frsize))
}

/// Time of a processor that this thread has used; none if the system does not tell.
pub(crate) fn processor_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the struct that it is given.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (answer == 0).then(|| Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

/// Lets other threads go first: what this one does is for rows that need less time.
pub(crate) fn step_back(by: i32) {
    // SAFETY: no memory is passed. On Linux this is about the calling thread; where it fails nothing changes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, by) };
}

#[cfg(test)]
mod tests {
    use super::{bytes_of, is_full_by};

    #[test]
    fn what_the_system_tells_of_memory() {
        let told = |free: u64| format!("MemTotal:       16000000 kB\nMemFree:        {free} kB\nMemAvailable:   15000000 kB\n");
        assert_eq!(is_full_by(&told(1_000_000)), Some(false));
        assert_eq!(is_full_by(&told(999_999)), Some(true));
        assert_eq!(is_full_by("MemTotal: 16000000 kB"), None);
        assert_eq!(bytes_of("MemAvailable:", &told(1)), Some(15_000_000 << 10));
    }
}
