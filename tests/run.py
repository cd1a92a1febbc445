#!/usr/bin/env python3
"""Runs every suite and prints one closing line over all of them: N passed, N failed, N skipped.

The output of each suite goes to .test/logs; a suite that fails shows its end. A test that cannot have a part it needs
prints `SKIPPED <name>: <why>` and is counted as skipped. Name suites as arguments to run only those.
"""

import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import setup as preparation

ROOT = preparation.ROOT
WORK = ROOT / ".test"
LOGS = WORK / "logs"
TARGET = ROOT / "target" / "debug"


class Suite:
    """What one suite printed and how it ended."""

    def __init__(self, name):
        self.name = name
        self.passed = self.failed = self.skipped = 0
        self.skips = []
        self.started = time.monotonic()
        self.log = LOGS / f"{name}.log"
        self.log.unlink(missing_ok=True)

    def run(self, command, **options):
        """Runs a command with its output in the log; gives exit code and what it printed."""
        options.setdefault("cwd", ROOT)
        with self.log.open("ab") as log:
            log.write(f"$ {' '.join(map(str, command))}\n".encode())
            log.flush()
            start = log.tell()
            try:
                code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False, **options).returncode
            except OSError as error:
                log.write(f"{error}\n".encode())
                code = 127
        with self.log.open("rb") as log:
            log.seek(start)
            return code, log.read().decode(errors="replace")

    def step(self, command, **options):
        """A command that counts as one test."""
        code, output = self.run(command, **options)
        self.passed += code == 0
        self.failed += code != 0
        return code == 0

    def skip(self, what, why):
        self.skipped += 1
        self.skips.append(f"{what}: {why}")

    def libtest(self, command, **options):
        """A test program of cargo: counts its tests, with those that skipped themselves taken out of the passed ones."""
        code, output = self.run([*command, "--show-output"], **options)
        # The last line is the program's own; those before it are of children that its tests started.
        results = re.findall(r"^test result: \S+ (\d+) passed; (\d+) failed", output, re.M)[-1:]
        skips = sorted(set(re.findall(r"^SKIPPED (.+)$", output, re.M)))
        passed, failed = (sum(int(result[column]) for result in results) for column in (0, 1))
        self.skips += skips
        self.skipped += len(skips)
        self.passed += max(passed - len(skips), 0)
        # A program that died before it could count is one failure.
        self.failed += failed if failed or code == 0 else 1

    def close(self):
        seconds = time.monotonic() - self.started
        print(f"{self.name:<12} {self.passed:>5} passed {self.failed:>4} failed {self.skipped:>4} skipped {seconds:>7.1f} s", flush=True)
        for skip in self.skips:
            print(f"    SKIPPED {skip}", flush=True)
        if self.failed:
            tail = self.log.read_text(errors="replace").splitlines()[-120:]
            print(f"    the end of {self.log.relative_to(ROOT)}:", *(f"    | {line}" for line in tail), sep="\n", flush=True)


def test_programs():
    """Builds the test programs and gives (package, target, path) of each."""
    built = subprocess.run(
        ["cargo", "test", "--no-run", "--message-format", "json-render-diagnostics"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True,
    )
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    programs = []
    for message in messages:
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            manifest = pathlib.Path(message["manifest_path"]).parent
            programs.append((manifest, message["target"]["name"], pathlib.Path(message["executable"])))
    return programs


def rust(suite):
    for manifest, _, program in test_programs():
        suite.libtest([program], cwd=manifest)


def files_only(suite):
    """The library without the Postgres parts."""
    suite.step(["cargo", "check", "--package", "forklift", "--no-default-features"])


def lint(suite):
    installed = lambda tool: subprocess.run(["cargo", tool, "--version"], capture_output=True, check=False).returncode == 0
    for tool, command in [("fmt", ["fmt", "--check"]), ("clippy", ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])]:
        if installed(tool):
            suite.step(["cargo", *command])
        else:
            suite.skip(f"cargo {tool}", "the component is not installed")
    suite.step(["cargo", "doc", "--no-deps", "--workspace", "--quiet"], env=dict(os.environ, RUSTDOCFLAGS="-D warnings"))


def python(suite):
    environment = WORK / "venv"
    if not (environment / "bin" / "python").exists():
        suite.run([sys.executable, "-m", "venv", environment])
    # Debian splits ensurepip from Python: without it pip itself cannot be had in a venv.
    pip = environment / "bin" / "pip"
    if not pip.exists():
        suite.skip("python", "python3 -m venv makes no pip here; install python3-venv")
        return
    code, _ = suite.run([pip, "install", "--quiet", "maturin>=1.9,<2"])
    if code != 0:
        suite.skip("python", "pip cannot install maturin")
        return
    if suite.step([environment / "bin" / "maturin", "develop", "--quiet"], cwd=ROOT / "bindings" / "python",
                  env=dict(os.environ, VIRTUAL_ENV=str(environment))):
        code, output = suite.run([environment / "bin" / "python", "-m", "unittest", "discover", "-s", "tests"], cwd=ROOT / "bindings" / "python")
        ran = re.search(r"^Ran (\d+) test", output, re.M)
        failed = sum(map(int, re.findall(r"(?:failures|errors)=(\d+)", output)))
        suite.failed += failed if failed or code == 0 else 1
        suite.passed += int(ran.group(1)) - failed if ran else 0


def node(suite):
    folder = ROOT / "bindings" / "node"
    if suite.step(["node", "build.mjs"], cwd=folder):
        code, output = suite.run(["node", "--test", "tests/"], cwd=folder)
        count = lambda word: int((re.search(rf"^# {word} (\d+)", output, re.M) or re.search(rf"^ℹ {word} (\d+)", output, re.M) or [0, 0])[1])
        suite.passed += count("pass")
        suite.failed += count("fail") if count("fail") or code == 0 else 1


def demo(suite):
    for amounts in ["50 125 40", "80 200 15"]:
        suite.step([sys.executable, "tests/e2e/invoicing/demo", "--forklift", TARGET / "forklift"], env=dict(os.environ, INVOICE_AMOUNTS=amounts))


def ordinary_user(suite):
    """The demo and the Postgres and project tests as an account without privileges, with the built programs copied to where it can run them."""
    if os.geteuid() != 0:
        suite.skip("ordinary_user", "this run is by an ordinary user already")
        return
    account = pwd.getpwnam("nobody")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="forklift-user-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        for program in ["forklift", "forklift-keeper"]:
            shutil.copy2(TARGET / program, folder / program)
        shutil.copytree(ROOT / "tests" / "e2e", folder / "e2e")
        home = folder / "home"
        home.mkdir()
        os.chown(home, account.pw_uid, account.pw_gid)
        bundled = preparation.installations()
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8", "FORKLIFT_KEEPER": str(folder / "forklift-keeper"),
        }
        if bundled and bundled[0]["origin"] == "bundled":
            copy = folder / "postgres"
            shutil.copytree(pathlib.Path(bundled[0]["bin"]).parent, copy, symlinks=True)
            environment["FORKLIFT_POSTGRES"] = str(copy / "bin")
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "env": environment, "cwd": home}
        suite.step(["/usr/bin/python3" if pathlib.Path("/usr/bin/python3").exists() else "python3", folder / "e2e" / "invoicing" / "demo", "--forklift", folder / "forklift"], **options)
        for manifest, target, program in test_programs():
            if manifest.name == "core" and target == "all":
                copy = folder / "core-tests"
                shutil.copy2(program, copy)
                suite.libtest([copy], **options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def account(suite):
    """As root where user namespaces are refused: servers run under an unprivileged account."""
    if os.geteuid() != 0:
        suite.skip("account", "only root needs an account for its servers")
        return
    suite.step([sys.executable, "tests/e2e/invoicing/demo", "--forklift", TARGET / "forklift"], env=dict(os.environ, FORKLIFT_NO_USER_NAMESPACE="1"))


SUITES = [rust, files_only, lint, python, node, demo, account, ordinary_user]


def main():
    # An interrupt reaches every suite's own clean-up, since all of them are in this process group.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    LOGS.mkdir(parents=True, exist_ok=True)
    missing = preparation.missing_tools()
    if missing:
        sys.exit(f"install first: {', '.join(missing)}")
    preparation.install_test_packages()
    preparation.build()
    preparation.ensure_postgres()
    wanted = sys.argv[1:]
    done = []
    for body in SUITES:
        if wanted and body.__name__ not in wanted:
            continue
        suite = Suite(body.__name__)
        done.append(suite)
        try:
            body(suite)
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            suite.failed += 1
            print(f"    {body.__name__}: {error}", flush=True)
        suite.close()
    passed, failed, skipped = (sum(getattr(suite, count) for suite in done) for count in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
