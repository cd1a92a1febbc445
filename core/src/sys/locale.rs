//! What the C library knows of locales.

use std::ffi::CString;

/// Whether the C library of this machine has the locale `name`, such as `C.UTF-8`.
#[must_use]
pub fn exists(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: `name` is a string that ends with NUL and lives through the call; no base locale is given.
    let locale = unsafe { libc::newlocale(libc::LC_COLLATE_MASK | libc::LC_CTYPE_MASK, name.as_ptr(), std::ptr::null_mut()) };
    if locale.is_null() {
        return false;
    }
    // SAFETY: `locale` came from newlocale, is not null, and is used nowhere else.
    unsafe { libc::freelocale(locale) };
    true
}

/// The version of the C library, which Postgres records as the version of its collations; `None` where it has none.
#[must_use]
pub fn library_version() -> Option<String> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: takes nothing and gives a static string that ends with NUL.
        let version = unsafe { libc::gnu_get_libc_version() };
        // SAFETY: as above: the string is static, not null, and ends with NUL.
        let version = unsafe { std::ffi::CStr::from_ptr(version) };
        version.to_str().ok().map(str::to_owned)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    {
        None
    }
}
