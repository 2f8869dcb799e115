//! What is asked of the system about the pages of a file: which are in its cache, which shall come, which may go; and
//! files as memory ([`Map`]). The only unsafe code of this connector. When any of it is asked is decided in
//! [`super::cache`], and in [`super::ipc`] which files are mapped.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::buffer::Buffer;

/// The memory of the machine, bytes.
pub(super) fn memory_bytes() -> u64 {
    // SAFETY: sysconf takes a number and gives one.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(4096)
}

/// Bytes of a file, read into memory that nobody has written zeros to before.
///
/// # Errors
/// They cannot be read, or the file ends before the last of them.
pub(super) fn read(file: &File, from: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = from + bytes.len() as u64;
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    // The vector may have room for more than it was made for.
    bytes.truncate(length);
    Ok(bytes)
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

/// Has what was written to a part of a file go to the disk while more is written, so that little is left to wait for when it is
/// made safe. It promises nothing, and nothing depends on it.
pub(super) fn write_back(file: &File, from: u64, length: u64) {
    #[cfg(target_os = "linux")]
    if let (Ok(from), Ok(length)) = (from.try_into(), length.try_into()) {
        // SAFETY: a system call on an open file, without memory of ours.
        unsafe { libc::sync_file_range(file.as_raw_fd(), from, length, libc::SYNC_FILE_RANGE_WRITE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, from, length);
}

#[cfg(target_os = "linux")]
fn advise(file: &File, from: u64, length: u64, advice: libc::c_int) {
    if let (Ok(from), Ok(length)) = (i64::try_from(from), i64::try_from(length)) {
        // SAFETY: the descriptor is open as long as the file, and no memory is passed. It is advice: whether it is taken
        // does not matter.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), from, length, advice) };
    }
}

/// Whether somebody has a file open for writing at this moment; `false` where the system does not say: the file is
/// somebody else's, or lies on a server. A lease on a file that is only read is refused while somebody writes; it is
/// given back at once.
#[cfg(target_os = "linux")]
pub(super) fn being_written(file: &File) -> bool {
    /// Which signal comes when somebody opens the file for writing while the lease is held; the same on all machines.
    const F_SETSIG: libc::c_int = 10;

    let descriptor = file.as_raw_fd();
    // SAFETY: the descriptor is open as long as the file, and no memory is passed. The signal that would come in the
    // microsecond between the calls is one that is ignored unless somebody wants it, not the default, which ends the process.
    unsafe {
        if libc::fcntl(descriptor, F_SETSIG, libc::SIGURG) != 0 {
            return false;
        }
        if libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_RDLCK) != 0 {
            return io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN);
        }
        libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK);
    }
    false
}

#[cfg(not(target_os = "linux"))]
pub(super) fn being_written(_file: &File) -> bool {
    false
}

/// A file as memory, to be read only.
///
/// What the system cannot promise: that the bytes stay. If somebody cuts the file, touching what is gone ends the process
/// (SIGBUS); if somebody writes to it, what was checked may change. Who maps a file looks first whether it is written to,
/// and before each part whether it was.
pub(super) struct Map {
    begin: NonNull<u8>,
    length: usize,
    file: File,
}

// SAFETY: memory that nobody writes to by way of this mapping, and that stays mapped until the value is dropped.
unsafe impl Send for Map {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `length` bytes of a file, of which it has so many.
    ///
    /// # Errors
    /// The system refuses: no memory for its tables, a file that cannot be mapped.
    pub fn new(file: File, length: u64) -> io::Result<Self> {
        let length = usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: a new mapping at a place that the system chooses, of an open file, so no other memory is touched.
        let begin = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast::<u8>()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Map { begin, length, file })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// These parts as buffers that point to where they lie. When the last of them is dropped, the process lets go of the
    /// pages and, if so wished, gives them back.
    ///
    /// # Panics
    /// A part beyond the end.
    pub fn parts(self: &Arc<Self>, parts: &[Range<u64>], give_back: bool) -> Vec<Buffer> {
        let from = parts.iter().map(|part| part.start).min().unwrap_or(0);
        let to = parts.iter().map(|part| part.end).max().unwrap_or(0);
        assert!(to <= self.length as u64 && parts.iter().all(|part| part.start <= part.end), "parts of what is mapped");
        let used = Arc::new(Used { map: self.clone(), from: from as usize, to: to as usize, give_back });
        let buffer = |part: &Range<u64>| {
            let length = (part.end - part.start) as usize;
            // SAFETY: the part lies within the mapping (`start <= end <= to`, looked at above), which `used` keeps for as long
            // as the buffer, or a slice of it, is there. Copying the columns instead would cost as much as all else that
            // reading them does.
            unsafe { Buffer::from_custom_allocation(self.begin.add(part.start as usize), length, used.clone()) }
        };
        parts.iter().map(buffer).collect()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: what `new` has mapped, and no buffer points there any more: each keeps the mapping.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.length) };
    }
}

/// A stretch of a mapping that buffers point into.
struct Used {
    map: Arc<Map>,
    from: usize,
    to: usize,
    give_back: bool,
}

impl Drop for Used {
    /// Lets go of the whole pages of the stretch, so that a long file is not counted as memory of this process.
    fn drop(&mut self) {
        let page = page_bytes() as usize;
        let (from, to) = (self.from.next_multiple_of(page), self.to / page * page);
        if from >= to {
            return;
        }
        // SAFETY: whole pages within the mapping, of which nothing is lost: whoever touches them again (the neighbour of a
        // stretch that shares them) finds them in the file.
        unsafe { libc::madvise(self.map.begin.add(from).as_ptr().cast(), to - from, libc::MADV_DONTNEED) };
        if self.give_back {
            give_back(&self.map.file, from as u64, (to - from) as u64);
        }
    }
}
