//! The cage itself, without a server: a shell or Python inside, and what it is refused.

use std::process::Command;

use super::*;
use crate::postgres::{Installation, Origin, Version};

/// What the program said inside, in a folder that it may write, with one beside that it may not.
fn inside(program: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let [data, socket, run, outside] = ["data", "socket", "run", "outside"].map(|name| folder.path().join(name));
    for place in [&data, &socket, &run, &outside] {
        std::fs::create_dir(place).unwrap();
    }
    crate::sys::fs::replace(&outside.join("secret"), b"x", 0o600, &crate::sys::fs::Syncs::new()).unwrap();
    let installation = Installation {
        bin: "/usr/bin".into(),
        library_path: None,
        share: "/usr/share".into(),
        version: Version { major: 15, minor: 1 },
        origin: Origin::Explicit,
    };
    let with = Containment { filter: true, landlock: Some(1), namespaces: false, closed: Vec::new() };
    let places = Places { installation: &installation, data: &data, socket: &socket, run: &run };
    let mut command = Command::new(python().unwrap());
    command.args(["-c", program]).current_dir(&data).env("OUT", &outside).env("RUN", &run).env("DATA", &data);
    cage(&with, &places).unwrap().apply_to(&mut command);
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A Python of the system: one in a home cannot be read inside.
fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|path| std::path::Path::new(path).exists())
}

/// Python that fails unless the call answers with this errno.
fn answers(call: &str, errno: &str) {
    let program = format!(
        "import ctypes, errno, os\nc = ctypes.CDLL(None, use_errno=True)\ndef sys(*a):\n    r = c.syscall(*a)\n    return ctypes.get_errno() if r == -1 else 0\n\
         found = {call}\nassert found == errno.{errno}, (found, errno.errorcode.get(found))"
    );
    let (done, said) = inside(&program);
    assert!(done, "{call}: {said}");
}

fn missing() -> bool {
    let report = layers(&RunAs::Caller, &Environment::of::<&str, &str>([]));
    let missing = report.layers.iter().any(|layer| !layer.holds && layer.name != "namespaces");
    if missing {
        println!("SKIPPED contain: {report:?}");
    }
    if python().is_none() {
        println!("SKIPPED contain: no python3 in /usr/bin or /usr/local/bin");
    }
    missing || python().is_none()
}

#[test]
fn what_names_no_file_is_refused_by_the_filter() {
    if missing() {
        return;
    }
    for (number, arguments) in [
        (libc::SYS_connect, "3, 0, 0"),
        (libc::SYS_io_uring_setup, "1, 0"),
        (libc::SYS_ptrace, "16, os.getppid(), 0, 0"),
        (libc::SYS_unshare, "0x10000000"),
        (libc::SYS_prlimit64, "os.getppid(), 0, 0, 0"),
        (libc::SYS_socket, "2, 1, 0"),
        (libc::SYS_socket, "1, 2 | 0o2000000, 0"),
        (libc::SYS_socket, "1, 5, 0"),
        (libc::SYS_sendto, "3, 0, 0, 0, os.getpid(), 4"),
        (libc::SYS_mq_open, "b'x', 0"),
        (libc::SYS_clone, "0x10000000, 0, 0, 0, 0"),
        (libc::SYS_fchmodat, "-100, os.environb[b'OUT'], 0"),
    ] {
        answers(&format!("sys({number}, {arguments})"), "EACCES");
    }
    answers(&format!("sys({}, 0, 0)", libc::SYS_clone3), "ENOSYS");
    // What a server needs.
    answers("(sys(41, 1, 1 | 0o2000000, 0), 0)[1]", "E2BIG - errno.E2BIG");
    let (done, said) =
        inside("import socket, os\na, b = socket.socketpair()\na.send(b'x')\nassert b.recv(1) == b'x'\nassert os.fork() >= 0");
    assert!(done, "{said}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn other_abis_are_unknown_inside() {
    if missing() {
        return;
    }
    // getpid, and connect, which the filter knows by its own number only.
    for number in [39, 42] {
        answers(&format!("sys({}, 0, 0, 0)", 0x4000_0000 + number), "ENOSYS");
    }
    // 32 bits: `mov eax, 20; int 0x80; ret` asks for the pid.
    let code = "import ctypes, mmap, errno\nm = mmap.mmap(-1, 4096, prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\n\
                f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nfound = f()\nassert found == -errno.ENOSYS, found";
    let (done, said) = inside(code);
    assert!(done, "{said}");
}

#[test]
fn files_outside_are_neither_read_nor_written() {
    if missing() {
        return;
    }
    for (refused, errno) in [
        ("open(os.environ['OUT'] + '/secret')", "EACCES"),
        ("open(os.environ['OUT'] + '/new', 'w')", "EACCES"),
        ("open(os.environ['RUN'] + '/new', 'w')", "EACCES"),
        ("os.listdir(os.environ['OUT'])", "EACCES"),
        ("os.unlink(os.environ['OUT'] + '/secret')", "EACCES"),
        ("os.rename(os.environ['OUT'] + '/secret', 'stolen')", "EACCES"),
        ("os.link(os.environ['OUT'] + '/secret', 'stolen')", "EXDEV"),
        ("os.mkdir(os.environ['OUT'] + '/new')", "EACCES"),
        ("os.symlink('x', os.environ['OUT'] + '/new')", "EACCES"),
        ("os.chmod(os.environ['OUT'] + '/secret', 0)", "EACCES"),
        ("os.chown(os.environ['OUT'] + '/secret', -1, -1)", "EACCES"),
        ("os.utime(os.environ['OUT'] + '/secret', (1, 1))", "EACCES"),
        ("os.setxattr(os.environ['OUT'] + '/secret', 'user.x', b'x')", "EACCES"),
    ] {
        let program = format!(
            "import os, errno\ntry:\n    {refused}\nexcept OSError as e:\n    assert e.errno == errno.{errno}, e\nelse:\n    assert False"
        );
        let (done, said) = inside(&program);
        assert!(done, "{refused}: {said}");
    }
    let allowed = "import os\nos.mkdir('d')\nopen('d/f', 'w').write('x')\nos.rename('d/f', 'g')\nos.link('g', 'h')\nos.chmod('g', 0o700)\nos.utime('g')\nos.unlink('h')\nopen('/dev/null', 'w').write('x')\nassert open('/proc/self/status').read()";
    let (done, said) = inside(allowed);
    assert!(done, "{said}");
}

#[test]
fn what_is_missing_is_named_and_what_stays_open() {
    let layer = |name: &str, holds: bool| Layer { name: name.to_owned(), holds, detail: "why".to_owned() };
    let report =
        SafeReport { layers: vec![layer("seccomp", true), layer("landlock", false), layer("namespaces", false)], open: Vec::new() };
    assert_eq!(report.decide(SafeMode::Off).unwrap(), None);
    let error = report.decide(SafeMode::Strict).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("landlock (why)") && !error.message().contains("seccomp"), "{error}");
    assert!(error.hint_text().unwrap().contains("best-effort"));
    let taken = report.decide(SafeMode::BestEffort).unwrap().unwrap();
    assert_eq!(taken, Containment { filter: true, landlock: None, namespaces: false, closed: Vec::new() });
    let open = |filter, landlock, namespaces| open(&Containment { filter, landlock, namespaces, closed: Vec::new() });
    assert_eq!(open(true, Some(6), true), Vec::<String>::new());
    assert!(open(true, Some(5), true).iter().all(|open| open.starts_with("signals")));
    assert_eq!(open(true, Some(2), true).len(), 2);
    assert!(open(false, None, false).iter().any(|open| open.starts_with("network")));
}
