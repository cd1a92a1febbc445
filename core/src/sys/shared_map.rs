//! For tests: a shared, writable mapping of a file. Its first store moves the file's ctime, later ones change the content
//! without moving it, until the page is written back: what a slow write looks like to a reader, whenever the test wants it.

use std::fs::File;
use std::os::fd::AsRawFd;

/// One page of a file.
pub struct SharedPage(*mut u8);

const LENGTH: usize = 4096;

impl SharedPage {
    /// Maps the first page of `file`.
    pub fn of(file: &File) -> Self {
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses, of an open file; it overlaps nothing.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, read_write, shared, file.as_raw_fd(), 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Self(address.cast())
    }

    /// Fills it.
    pub fn fill(&mut self, byte: u8) {
        // SAFETY: the mapping has LENGTH writable bytes and lives as long as `self`.
        unsafe { std::ptr::write_bytes(self.0, byte, LENGTH) };
    }

    /// Writes at its start.
    pub fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= LENGTH);
        // SAFETY: the mapping has LENGTH writable bytes, not fewer than are copied, and lives as long as `self`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len()) };
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping that `of` made, which nothing refers to any more.
        unsafe { libc::munmap(self.0.cast(), LENGTH) };
    }
}
