//! Real clusters and servers in temporary folders, stopped on drop whatever happens.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use forklift::postgres::{
    Address, Credentials, Installation, Limits, Origin, Role, RunAs, Server, ServerSpec, ServerStatus, StopMode, status,
};
use forklift::{Control, Environment, Result};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The folder that `FORKLIFT_POSTGRES` names, else the newest installation of the distribution.
pub(crate) fn installation() -> Installation {
    static FOUND: OnceLock<Installation> = OnceLock::new();
    let newest = || {
        let majors = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let major: Option<u32> =
            majors.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).filter(|major| (13..=18).contains(major)).max();
        PathBuf::from(format!(
            "/usr/lib/postgresql/{}/bin",
            major.expect("these tests need Debian's Postgres, 13 to 18, or FORKLIFT_POSTGRES")
        ))
    };
    let find = || Installation::at(&std::env::var_os("FORKLIFT_POSTGRES").map_or_else(newest, PathBuf::from), Origin::Explicit).unwrap();
    FOUND.get_or_init(find).clone()
}

/// As whom servers run here.
pub(crate) fn run_as() -> RunAs {
    RunAs::detect(&Environment::of::<&str, &str>([])).unwrap()
}

/// A cluster with all it takes to start it.
pub(crate) struct Cluster {
    /// How it is started.
    pub(crate) spec: ServerSpec,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// A new cluster: superuser `forklift`, passwords not yet set; role and database `app` come with them.
    pub(crate) fn new() -> Self {
        Self::with(run_as())
    }

    /// The same under another identity.
    pub(crate) fn with(run_as: RunAs) -> Self {
        let cluster = Self::empty(run_as);
        copy(&template(), &cluster.spec.data);
        cluster.spec.run_as.give(&cluster.spec.data).unwrap();
        cluster
    }

    /// All but the data folder.
    pub(crate) fn empty(run_as: RunAs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to_others(folder.path());
        let root = folder.path().canonicalize().unwrap();
        let credentials =
            Credentials { ours: Role::random("forklift").unwrap(), url: Role::random("app").unwrap(), database: "app".to_owned() };
        credentials.save(&root.join("credentials.json")).unwrap();
        std::fs::write(root.join("run_as.json"), serde_json::to_vec(&run_as).unwrap()).unwrap();
        Self { spec: spec_at(&root), folder }
    }

    /// The temporary folder that all of it is in.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Starts it.
    pub(crate) fn start(&self) -> Result<Server> {
        Server::start(&self.spec, |_| Ok(()), &Control::silent())
    }

    /// What is known about it.
    pub(crate) fn status(&self) -> ServerStatus {
        status(&self.spec.run, &self.spec.data).unwrap()
    }

    /// Waits until nobody has the data folder any more.
    pub(crate) fn wait_until_stopped(&self) {
        wait_for("the server to stop", || self.status() == ServerStatus::Stopped);
    }

    /// A session as the URL's role by the public socket, as a user's program would make it.
    pub(crate) fn client(&self) -> std::result::Result<postgres::Client, postgres::Error> {
        let Credentials { url, database, .. } = &self.spec.credentials;
        postgres::Config::new()
            .host_path(&self.spec.address.public)
            .port(5432)
            .user(&url.name)
            .password(&url.password)
            .dbname(database)
            .connect(postgres::NoTls)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Found anew: the test may have failed between any two steps, and only what works in this data folder is signalled.
        for _ in 0..200 {
            let pids = match status(&self.spec.run, &self.spec.data) {
                Ok(ServerStatus::Stopped) | Err(_) => break,
                Ok(ServerStatus::Running { pid, .. } | ServerStatus::Orphaned { pid } | ServerStatus::Foreign { pid }) => vec![pid],
                Ok(ServerStatus::InTransition { pids }) => pids,
            };
            for pid in pids {
                signal(pid, libc::SIGCONT);
                signal(pid, libc::SIGQUIT);
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }
}

/// Stops a server cleanly.
pub(crate) fn stop(server: Server) {
    server.stop(StopMode::Fast, PATIENCE, &Control::silent()).unwrap();
}

/// Waits for a condition, and fails by name when it does not come.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process that this test started.
pub(crate) fn signal(pid: u32, signal: i32) {
    Command::new("kill").arg(format!("-{signal}")).arg(pid.to_string()).stderr(std::process::Stdio::null()).status().unwrap();
}

/// How the cluster of such a folder is started: also in a child of the test that made it.
pub(crate) fn spec_at(root: &Path) -> ServerSpec {
    ServerSpec {
        installation: installation(),
        run_as: serde_json::from_slice(&std::fs::read(root.join("run_as.json")).unwrap()).unwrap(),
        // Named where these tests run as a user who cannot reach the build's folder.
        keeper: std::env::var_os("FORKLIFT_KEEPER").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_forklift-keeper")), PathBuf::from),
        data: root.join("data"),
        run: root.join("run"),
        address: Address::new(&root.join("s"), &root.display().to_string(), false).unwrap(),
        credentials: Credentials::load(&root.join("credentials.json")).unwrap(),
        set_passwords: true,
        settings: vec![("fsync".to_owned(), "off".to_owned()), ("shared_buffers".to_owned(), "4MB".to_owned())],
        contain: None,
        limits: Limits::default(),
        bound_to_owner: false,
        patience: PATIENCE,
    }
}

/// A cluster that was made once, in the build's folder, and is only copied.
fn template() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let installation = installation();
        let mut base = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        if tempfile::tempfile_in(&base).is_err() {
            base = std::env::temp_dir();
        }
        let user = rustix::process::geteuid().as_raw();
        let path = base.join(format!("forklift-test-cluster-{}-{user}", installation.version.major));
        if !path.exists() {
            // Made elsewhere and renamed: another run of these tests may do the same now.
            let folder = tempfile::tempdir().unwrap();
            open_to_others(folder.path());
            let data = folder.path().join("data");
            initdb(&data, "forklift");
            let beside = tempfile::tempdir_in(&base).unwrap();
            copy(&data, &beside.path().join("data"));
            if let Err(error) = std::fs::rename(beside.path().join("data"), &path) {
                assert!(path.exists(), "{error}");
            }
        }
        path
    };
    MADE.get_or_init(make).clone()
}

/// Makes a cluster with this superuser.
pub(crate) fn initdb(data: &Path, superuser: &str) {
    let run_as = run_as();
    run_as.make_folder(data).unwrap();
    let mut command = run_as.command(&installation(), "initdb").unwrap();
    command.args(["-U", superuser, "--no-sync", "-A", "trust", "--locale=C.UTF-8", "-E", "UTF8", "-D"]).arg(data);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Copies a tree with all modes.
pub(crate) fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

/// A hash of every file below a folder, by path.
pub(crate) fn fingerprint(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((path.clone(), blake3::hash(&std::fs::read(&path).unwrap()).to_hex().to_string()));
            }
        }
    }
    files.sort();
    files
}

/// Runs one test of this binary in a process of its own, with a cluster's folder as its argument.
pub(crate) fn child(test: &str, root: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ARGUMENT, root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The folder that [`child`] was given; `None` where the test was not started by it.
pub(crate) fn argument() -> Option<PathBuf> {
    std::env::var_os(ARGUMENT).map(PathBuf::from)
}

const ARGUMENT: &str = "FORKLIFT_TEST_CLUSTER";

fn open_to_others(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711)).unwrap();
}
