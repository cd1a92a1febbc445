//! Who listens on a local TCP port, for error messages.

use std::path::Path;

/// Pid and program name of the listener, where this user may see it.
#[must_use]
pub fn listener(port: u16) -> Option<(u32, String)> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().find_map(|table| inode_of(table, port))?;
    let wanted = format!("socket:[{inode}]");
    super::process::all().into_iter().find_map(|pid| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        descriptors
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .any(|link| link.as_os_str() == wanted.as_str())
            .then(|| (pid, super::process::stat(pid).map(|stat| stat.name).unwrap_or_default()))
    })
}

fn inode_of(table: &str, port: u16) -> Option<u64> {
    let bytes = super::fs::read(Path::new(table)).ok()?;
    String::from_utf8_lossy(&bytes).lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let local = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
        // State 0A is LISTEN.
        (local == port && *fields.get(3)? == "0A").then(|| fields.get(9)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn our_own_listener_is_found() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(super::listener(port).unwrap().0, std::process::id());
        drop(socket);
        assert_eq!(super::listener(port), None);
    }
}
