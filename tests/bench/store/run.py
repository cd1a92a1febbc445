#!/usr/bin/env python3
"""The store beside restic, borg, a shadow Git repository and `cp -a`, in interleaved rounds; writes RESULTS.md.

A round takes each step with every tool, one tool after the other, before the next step, and each round begins with another
tool. Environment: ROUNDS (5; at least 30 for a result that is published), OTHERS (2: borg and Git, which no target is about
and which take most of the time, take part in so many rounds), SUBJECTS ("cluster tree"), SCALE of pgbench (50), FILES of the
tree (50000), SMALL=1 (or `--quick`: scale 2, 2000 files, one round), TOOLS (all, by commas), STEPS (all; a step needs those
before it), FOLDER to work in (.test/bench-store), RESULTS for the page (target/bench-store.md),
TRACED=no to leave out the round that counts syncs and compares what was restored.
"""

import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import measure
import report
import subjects
import tools

ROOT = tools.ROOT
SCRATCH = pathlib.Path(os.environ.get("FOLDER", ROOT / ".test" / "bench-store"))
RESULTS = ROOT / "target" / "bench-store.md"
# Debian's packages of the tools that are compared.
PACKAGES = {"restic": "restic", "borg": "borgbackup", "git": "git"}
QUICK = bool(os.environ.get("SMALL")) or "--quick" in sys.argv[1:]
# A file that changed less than two seconds ago is read again by every capture of forklift's, as by design.
SETTLE = 2.2
# Files that a server makes anew, and that forklift leaves out.
LEFT_OUT = {"postmaster.opts", "pg_internal.init", "pgsql_tmp"}
# Folders of a cluster of which forklift takes only what a start needs.
IN_PART = {"pg_wal", "pg_subtrans", "pg_notify", "pg_serial", "pg_snapshots", "pg_dynshmem", "pg_stat_tmp"}


class Round:
    """All steps of one round."""

    def __init__(self, subject, chosen, number, results):
        self.subject = subject
        self.results = results
        self.traced = number < 0
        folder = SCRATCH / "round"
        subprocess.run(["rm", "-rf", folder], check=True)
        turn = number % len(chosen)
        self.tools = [tool(subject, folder) for tool in chosen[turn:] + chosen[:turn]]

    def run(self, steps, extra):
        self.subject.switch("base")
        for tool in self.tools:
            tool.begin()
        time.sleep(SETTLE)
        for step in steps:
            if step == "changed":
                self.subject.switch("changed")
                time.sleep(SETTLE)
            for tool in self.tools:
                if step in tool.steps:
                    self.step(step, tool, extra)
            if self.traced and step in ("restore", "delta"):
                self.check(step)
        if self.traced and self.subject.name == "cluster" and "delta" in steps:
            self.start_restored()

    def step(self, step, tool, extra):
        before = measure.size_of(tool.repository)
        command, cwd = tool.command(step)
        if self.traced:
            if shutil.which("strace"):
                self.results.syncs[self.subject.name, step, tool.name] = measure.count_syncs(command, cwd, tool.environment())
            return
        sample = measure.run(command, cwd, tool.environment())
        after = measure.size_of(tool.repository)
        sample.stored = after if step in ("first", "prune") else after - before
        if tool.name == "forklift" and step == "unchanged":
            extra[f"opened {self.subject.name}"] = json.loads(sample.output).get("files_opened", 0)
        self.results.add(self.subject.name, step, tool.name, sample)

    def check(self, step):
        """Whatever a tool restored is what was captured, byte for byte; what it leaves out by design is left out of this too."""
        if step == "delta":
            self.subject.switch("base")
        for tool in self.tools:
            if not tool.has_checkpoints:
                continue
            listed = subprocess.run(["diff", "-rq", "--no-dereference", ".", tool.target], cwd=self.subject.source, capture_output=True, text=True, check=False)
            found = [line for line in listed.stdout.splitlines() if not self.expected(line, tool)]
            if found or listed.returncode > 1:
                sys.exit(f"{tool.name}: {step} is not what was captured: {found[:5]} {listed.stderr}")
        if step == "delta":
            self.subject.switch("changed")

    def expected(self, line, tool):
        """Whether a difference is by design: what forklift leaves out, what Git cannot keep, what restic and borg do not remove."""
        only = re.match(r"Only in ([^:]*): (.*)", line)
        if not only:
            return False
        where, name = only.groups()
        in_target = where.startswith(str(tool.target))
        parts = pathlib.Path(os.path.relpath(where, tool.target) if in_target else where, name).parts
        if in_target:
            return tool.name in ("restic", "borg") or name in LEFT_OUT
        empty_folder = self.subject.source.joinpath(*parts).is_dir() and not any(self.subject.source.joinpath(*parts).rglob("*"))
        return name in LEFT_OUT or (tool.name == "forklift" and parts[0] in IN_PART) or (tool.name == "git" and empty_folder)

    def start_restored(self):
        """A server runs on what forklift restored, and has the rows."""
        target = next(tool.target for tool in self.tools if tool.name == "forklift")
        print(f"rows of the restored cluster: {' '.join(self.subject.summary(target).split())}", flush=True)


def stalls():
    """The longest small capture, alone and while prunes run beside it, in milliseconds; and how many prunes were done."""
    folder = SCRATCH / "round" / "stalls"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store = folder / "store"
    program = tools.PROGRAM
    tree = SCRATCH / "tree" / "source"
    cluster = SCRATCH / "cluster" / "source"
    what, source = ("cluster", cluster) if cluster.exists() else ("tree", tree)
    call = lambda *words: subprocess.run([program, *words], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    call("init", store)
    call("capture", what, store, "checkpoint-one", source, folder)
    alone = json.loads(call("turns", store, "1500").stdout)["ms"]
    beside = subprocess.Popen([program, "turns", store, "4000"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    done = 0
    for number in range(1000):
        if beside.poll() is not None:
            break
        removed = "checkpoint-one" if number == 0 else min(path.name for path in (store / "refs").iterdir())
        done += subprocess.run([program, "prune", store, removed], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode == 0
        time.sleep(0.1)
    with_prune = json.loads(beside.stdout.read())["ms"]
    return max(alone), max(with_prune), done


def index_memory():
    """Megabytes that opening a store with a million chunks takes above opening an empty one."""
    folder = SCRATCH / "round" / "index"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run = lambda *words: measure.run([tools.PROGRAM, *words], folder, os.environ)
    run("init", folder / "empty")
    run("chunks", folder / "large", "1000000")
    return (run("open", folder / "large").memory - run("open", folder / "empty").memory) / 1e6


def versions(chosen):
    says = {"restic": ["restic", "version"], "borg": ["borg", "--version"], "git": ["git", "--version"]}
    for tool in chosen:
        if tool.name in says:
            yield subprocess.run(says[tool.name], capture_output=True, text=True, check=False).stdout.split("\n")[0].split(" compiled")[0]


def page(results, chosen, measured, extra, rounds):
    lines = ["# The store beside restic, borg and Git", ""]
    lines += ["Written by `make bench-store`; see `tests/bench/store/run.py` for how it measures.", ""]
    if any(tool.name in ("borg", "git") for tool in chosen) and rounds > int(os.environ.get("OTHERS", "2")):
        lines += [f"borg and Git took part in the first {os.environ.get('OTHERS', '2')} rounds.", ""]
    lines += [f"{counted(rounds, 'interleaved round')} on {file_system(SCRATCH)}, {os.cpu_count()} cores, Linux {platform.release().split('-')[0]}; {', '.join(versions(chosen))}.", ""]
    for subject in measured:
        size = measure.size_of(subject.source)
        lines += [f"## {subject.name}: {describe(subject)}, {report.mega(size)}", "", results.table(subject.name), ""]
    lines += ["`seconds`: median of the wall times of the command. `on disk`: until a sync of everything after it has ended as well. `processor`: user and system time."]
    lines += ["`stored`: bytes of the repository after a first capture and a prune, bytes added by the other captures. Ratios are of medians,"]
    lines += ["with the interval that holds 95 % of resampled rounds. Sources and repositories are in the page cache.", ""]
    lines += ["What each makes durable by its own defaults, which is what was measured:", ""]
    lines += [f"- {tool.name}: {tool.syncs}" for tool in chosen]
    lines += ["", "## Targets", ""]
    for subject in measured:
        lines += [f"### {subject.name}", "", report.verdicts(results.targets(subject.name, extra)), ""]
    general = []
    if "stall" in extra:
        alone, beside, prunes = extra["stall"]
        general.append((f"longest small capture while {prunes} prunes ran beside it (alone: {alone:.0f} ms): under 300 ms", f"{beside:.0f} ms", beside < 300, beside < 300))
    if "index" in extra:
        general.append(("memory for the index of a million chunks: at most 64 MB", f"{extra['index']:.0f} MB", extra["index"] <= 64, extra["index"] <= 64))
    if general:
        lines += ["### Both", "", report.verdicts(general), ""]
    return "\n".join(lines)


def install(chosen):
    """Installs what is missing where we may; what cannot be had is skipped by name."""
    wanted = [PACKAGES[tool.name] for tool in chosen if tool.missing() and tool.name in PACKAGES]
    if not wanted or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"installing {' '.join(wanted)}", flush=True)
    quietly = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "check": False, "env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}}
    if subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *wanted], **quietly).returncode != 0:
        subprocess.run(["apt-get", "update"], **quietly)
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *wanted], **quietly)


def counted(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


def file_system(folder):
    """Its type, as the kernel lists it."""
    mounts = [line.split()[:3] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    device, _, kind = max((mount for mount in mounts if folder.is_relative_to(mount[1])), key=lambda mount: len(mount[1]))
    return f"{kind} on a loop device" if device.startswith("/dev/loop") else kind


def describe(subject):
    return f"pgbench scale {subject.size}, stopped" if subject.name == "cluster" else f"about {subject.size} files"


def main():
    rounds = int(os.environ.get("ROUNDS", "1" if QUICK else "5"))
    others = int(os.environ.get("OTHERS", "2"))
    names = os.environ.get("TOOLS", "").split(",") if os.environ.get("TOOLS") else [tool.name for tool in tools.TOOLS]
    steps = os.environ.get("STEPS", "").split() or list(report.STEPS)
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "forklift-tests", "--bin", "bench-store"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
    chosen = [tool for tool in tools.TOOLS if tool.name in names]
    install(chosen)
    for tool in list(chosen):
        if tool.missing():
            print(f"SKIPPED {tool.name}: {tool.missing()} is not installed", flush=True)
            chosen.remove(tool)
    measured = []
    for name in os.environ.get("SUBJECTS", "cluster tree").split():
        sizes = {"cluster": ("SCALE", 2 if QUICK else 50, subjects.Cluster), "tree": ("FILES", 2000 if QUICK else 50_000, subjects.Tree)}
        variable, default, kind = sizes[name]
        measured.append(kind(SCRATCH / name, int(os.environ.get(variable, default))))
    results, extra = report.Results(), {}
    out = pathlib.Path(os.environ.get("RESULTS", RESULTS))
    try:
        for subject in measured:
            subject.ensure()
        if "prune" in steps and any(tool.name == "forklift" for tool in chosen):
            extra["stall"] = stalls()
            extra["index"] = index_memory()
        for number in range(-1 if shutil.which("strace") and os.environ.get("TRACED", "yes") == "yes" else 0, rounds):
            for subject in measured:
                print(f"{subject.name}: {'counting syncs' if number < 0 else f'round {number + 1} of {rounds}'}", flush=True)
                taking_part = [tool for tool in chosen if number < others or tool.name not in ("borg", "git")]
                Round(subject, taking_part, number, results).run(steps, extra)
                if number >= 0:
                    # After each round, so that a run that is broken off has its results too.
                    out.parent.mkdir(exist_ok=True)
                    out.write_text(page(results, chosen, measured, extra, number + 1))
    finally:
        shutil.rmtree(SCRATCH / "round", ignore_errors=True)
    if rounds:
        print(out.read_text())


if __name__ == "__main__":
    main()
