//! The filter of system calls. It lets everything through but what reaches outside without naming a file: Landlock has the files.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter,
};

use crate::error::{Error, ErrorKind, Result};
use crate::sys::cage;

/// Refused whatever their arguments are.
const REFUSED: &[i64] = &[
    libc::SYS_connect,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // Other namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    // Message queues and keys, which name no file.
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Changes of files that Landlock does not know.
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fchmod,
    SYS_FCHMODAT2,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    libc::SYS_flock,
];

/// Newer than some of the constants of libc; the numbers are the same on every processor.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[libc::SYS_chown, libc::SYS_lchown];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// The mode that a postmaster gives its socket, and a new tablespace folder: the one that can be given, since it takes nothing
/// away from a file's owner.
const OWNERS: u64 = 0o700;

/// Whether the kernel and this processor have it: what it is, or why not.
pub(super) fn available() -> std::result::Result<String, String> {
    TargetArch::try_from(std::env::consts::ARCH).map_err(|_| format!("not known for the processor {}", std::env::consts::ARCH))?;
    cage::filters_exist().map(|()| "system calls that reach outside are refused".to_owned()).map_err(|error| error.to_string())
}

/// The program for the kernel.
pub(super) fn compile() -> Result<BpfProgram> {
    let failed = |error: seccompiler::BackendError| Error::new(ErrorKind::Internal, format!("the system call filter: {error}"));
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let refuse = SeccompAction::Errno(libc::EACCES.unsigned_abs());
    let filter = SeccompFilter::new(rules().map_err(failed)?, SeccompAction::Allow, refuse, architecture).map_err(failed)?;
    let mut program = foreign(architecture);
    program.extend(BpfProgram::try_from(filter).map_err(failed)?);
    Ok(program)
}

fn rules() -> std::result::Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().chain(REFUSED_HERE).map(|number| (*number, Vec::new())).collect();
    let mut refuse = |number: i64, argument: u8, length: SeccompCmpArgLen, compare: SeccompCmpOp, value: u64| {
        let condition = SeccompCondition::new(argument, length, compare, value)?;
        rules.entry(number).or_default().push(SeccompRule::new(vec![condition])?);
        Ok::<(), seccompiler::BackendError>(())
    };
    // A stream is of no use without connect; a datagram has its address with it.
    let (family, stream) = (u64::from(libc::AF_UNIX.unsigned_abs()), u64::from(libc::SOCK_STREAM.unsigned_abs()));
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        refuse(call, 0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)?;
        for kind in (0..=SOCKET_KINDS).filter(|kind| *kind != stream) {
            refuse(call, 1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(SOCKET_KINDS), kind)?;
        }
    }
    refuse(libc::SYS_sendto, 4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    // Limits and priorities of others; 0 is the caller itself.
    for (call, who) in OF_A_PROCESS {
        refuse(*call, *who, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?;
    }
    // A user namespace gives privileges inside it. The clone that takes its flags in memory is unknown here.
    for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWPID] {
        let flag = u64::from(flag.unsigned_abs());
        refuse(libc::SYS_clone, 0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
    }
    refuse(libc::SYS_fchmodat, 2, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, OWNERS)?;
    // Only "now" is a time that a file may get.
    refuse(libc::SYS_utimensat, 2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    #[cfg(target_arch = "x86_64")]
    {
        refuse(libc::SYS_chmod, 1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, OWNERS)?;
        refuse(libc::SYS_utime, 1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
        refuse(libc::SYS_utimes, 1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
        refuse(libc::SYS_futimesat, 2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
    }
    Ok(rules)
}

/// The bits of a socket's type that are not flags.
const SOCKET_KINDS: u64 = 0xf;

/// Calls that change a process, and which argument says whose.
const OF_A_PROCESS: &[(i64, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_migrate_pages, 0),
    (libc::SYS_move_pages, 0),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_setpriority, 1),
];

/// Answers "no such call" to those of other ABIs (x32, 32 bits), which have other numbers, and to clone3, whose flags a filter
/// cannot see: libraries then use clone. Everything else goes on to the instructions after it.
fn foreign(architecture: TargetArch) -> BpfProgram {
    let native = match architecture {
        TargetArch::x86_64 => 0xc000_003e,
        TargetArch::aarch64 => 0xc000_00b7,
        TargetArch::riscv64 => 0xc000_00f3,
    };
    let step = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k };
    let (load, jump) = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, libc::BPF_JMP | libc::BPF_K);
    let unknown = step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs());
    vec![
        // struct seccomp_data: the number, then the architecture.
        step(load, 0, 0, 4),
        step(jump | libc::BPF_JEQ, 1, 0, native),
        unknown.clone(),
        step(load, 0, 0, 0),
        step(jump | libc::BPF_JGE, 0, 1, X32),
        unknown.clone(),
        step(jump | libc::BPF_JEQ, 0, 1, u32::try_from(libc::SYS_clone3).unwrap_or(u32::MAX)),
        unknown,
    ]
}

/// The bit in the number of every x32 call, whose architecture is that of 64 bits.
const X32: u32 = 0x4000_0000;
