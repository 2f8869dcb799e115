//! What is asked of the system about the pages of a file: which are in its cache, which shall come, which may go.
//! The only unsafe code of this connector. When any of it is asked is decided in [`super::cache`].

use std::fs::File;
use std::io;

/// The memory of the machine, bytes.
pub(super) fn memory_bytes() -> u64 {
    // SAFETY: sysconf takes a number and gives one.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(4096)
}

/// How many of these bytes of a file are in the cache.
///
/// # Errors
/// The system does not say.
pub(super) fn cached(file: &File, from: u64, length: u64) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    match counted(file, from, length) {
        // Older kernels lack the call, and so do some sandboxes. One that refuses has its reasons: there
        // mincore would say that everything is in memory.
        Err(e) if e.raw_os_error() != Some(libc::EPERM) => mapped(file, from, length),
        answer => answer,
    }
}

/// As `cachestat(2)` counts them, Linux 6.5 and later.
#[cfg(target_os = "linux")]
fn counted(file: &File, from: u64, length: u64) -> io::Result<u64> {
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The number of the call, the same on all machines.
    const CACHESTAT: libc::c_long = 451;
    /// Whether the system was found not to have it.
    static MISSING: AtomicBool = AtomicBool::new(false);

    if MISSING.load(Ordering::Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::ENOSYS));
    }
    let range = [from, length];
    // In the cache, dirty, being written, evicted, evicted a short time ago.
    let mut pages = [0u64; 5];
    // SAFETY: the descriptor is open as long as the file; the system reads one struct and fills the other, which are
    // nothing but two and five numbers of 64 bits.
    let answer = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if answer != 0 {
        let e = io::Error::last_os_error();
        if e.raw_os_error() == Some(libc::ENOSYS) {
            MISSING.store(true, Ordering::Relaxed);
        }
        return Err(e);
    }
    Ok(pages[0].saturating_mul(page_bytes()).min(length))
}

#[cfg(not(target_os = "linux"))]
fn counted(_file: &File, _from: u64, _length: u64) -> io::Result<u64> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf takes a number and gives one.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

/// As `mincore(2)` sees them in a mapping of the file.
#[cfg(target_os = "linux")]
pub(super) fn mapped(file: &File, from: u64, length: u64) -> io::Result<u64> {
    use std::os::fd::AsRawFd;

    /// Bytes mapped at once: their map of pages takes 256 KB at most.
    const MAPPED_BYTES: u64 = 1 << 30;

    let page = page_bytes();
    let end = from.saturating_add(length).min(file.metadata()?.len());
    let (mut at, mut pages) = (from / page * page, 0);
    let mut seen = Vec::new();
    while at < end {
        let part = (end - at).min(MAPPED_BYTES);
        let bytes = part as usize;
        seen.resize(part.div_ceil(page) as usize, 0u8);
        // SAFETY: a new mapping that nobody else knows; it is never read, only asked about, and unmapped below with
        // the same length. `seen` has a byte for each of its pages.
        let asked = unsafe {
            let map = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), at as libc::off_t);
            if map == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let asked = libc::mincore(map, bytes, seen.as_mut_ptr());
            let asked = if asked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
            libc::munmap(map, bytes);
            asked
        };
        asked?;
        pages += seen.iter().filter(|page| **page & 1 == 1).count() as u64;
        at += part;
    }
    Ok((pages * page).min(length))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn mapped(_file: &File, _from: u64, _length: u64) -> io::Result<u64> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Asks the system to fetch these bytes, without waiting for them.
pub(super) fn fetch(file: &File, from: u64, length: u64) {
    #[cfg(target_os = "linux")]
    advise(file, from, length, libc::POSIX_FADV_WILLNEED);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, from, length);
}

/// Tells the system that nobody here will read these bytes again. Pages that others have mapped or changed stay.
pub(super) fn give_back(file: &File, from: u64, length: u64) {
    #[cfg(target_os = "linux")]
    advise(file, from, length, libc::POSIX_FADV_DONTNEED);
    #[cfg(not(target_os = "linux"))]
    let _ = (file, from, length);
}

#[cfg(target_os = "linux")]
fn advise(file: &File, from: u64, length: u64, advice: libc::c_int) {
    use std::os::fd::AsRawFd;
    if let (Ok(from), Ok(length)) = (i64::try_from(from), i64::try_from(length)) {
        // SAFETY: the descriptor is open as long as the file, and no memory is passed. It is advice: whether it is taken
        // does not matter.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), from, length, advice) };
    }
}
