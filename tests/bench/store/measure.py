"""Runs one command of one tool: wall time, processor time, peak memory, and what it leaves for the kernel to write."""

import ctypes
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

LAUNCHER = pathlib.Path(__file__).resolve().parent / "launch.py"
# What makes content durable; sync_file_range only starts writing.
SYNC_CALLS = "fsync,fdatasync,syncfs,sync,msync"


@dataclasses.dataclass
class Sample:
    """Seconds, bytes and counts of one run."""

    seconds: float
    # Until what it wrote is on disk: the run, and a sync of everything after it.
    durable: float
    processor: float
    memory: int
    stored: int = 0
    output: str = ""


def run(command, cwd, environment):
    """Runs it to its end; a failure ends the benchmark with what it printed. Everything older is on disk before it starts."""
    command = [str(word) for word in command]
    sync(cwd)
    with tempfile.TemporaryFile() as output, tempfile.NamedTemporaryFile("r") as result:
        begin = time.perf_counter()
        launcher = [sys.executable, "-I", "-S", LAUNCHER, result.name]
        subprocess.run([*launcher, *command], cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False)
        ended = time.perf_counter() - begin
        sync(cwd)
        after = time.perf_counter() - begin - ended
        output.seek(0)
        text = output.read().decode(errors="replace")
        seconds, processor, memory, code = map(float, result.read().split() or [0, 0, 0, -1])
    if code != 0:
        sys.exit(f"{' '.join(command)}\nended with {code:.0f}:\n{text}")
    return Sample(seconds, seconds + after, processor, int(memory) * 1024, output=text)


def sync(folder):
    """Everything on the file system that holds a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            sys.exit(f"syncfs: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)


def count_syncs(command, cwd, environment):
    """Runs it under strace and counts its syncs, in all of its processes and threads."""
    with tempfile.TemporaryDirectory() as folder:
        summary = pathlib.Path(folder) / "summary"
        trace = ["strace", "-f", "--seccomp-bpf", "-qq", "-c", "-e", f"trace={SYNC_CALLS}", "-o", summary]
        run([*trace, *command], cwd, environment)
        rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary.read_text(), re.M)
        return {call: int(calls) for calls, call in rows if call != "total"}


def size_of(folder):
    """Bytes of all files below a folder."""
    total = 0
    for where, _, names in os.walk(folder):
        total += sum(os.lstat(os.path.join(where, name)).st_size for name in names)
    return total
