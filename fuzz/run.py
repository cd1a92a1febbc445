#!/usr/bin/env python3
"""Runs every fuzz target for a number of seconds: run.py SECONDS [TARGET...].

Inputs that are found lie below fuzz/target/corpus; an input that fails something is named and lies in fuzz/artifacts:
mend the cause and move the input into fuzz/corpus, whose files every `make test` runs.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

FUZZ = pathlib.Path(__file__).resolve().parent
# No parser may take more at once, whatever an input of at most 64 KiB declares.
LIMITS = ["-max_len=65536", "-malloc_limit_mb=16", "-rss_limit_mb=1024", "-timeout=10"]


def answers(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    seconds, wanted = int(sys.argv[1]), sys.argv[2:]
    if not answers("cargo", "+nightly", "--version"):
        sys.exit("fuzzing needs a nightly compiler: rustup toolchain install nightly")
    if not answers("cargo", "fuzz", "--version"):
        subprocess.run(["cargo", "install", "--locked", "cargo-fuzz"], check=True)
    targets = sorted(path.stem for path in (FUZZ / "targets").glob("*.rs"))
    subprocess.run(["cargo", "+nightly", "fuzz", "build", "--fuzz-dir", FUZZ], cwd=FUZZ, check=True)
    version = subprocess.run(["cargo", "+nightly", "--version", "--verbose"], stdout=subprocess.PIPE, text=True, check=True).stdout
    programs = FUZZ / "target" / re.search(r"^host: (\S+)$", version, re.M)[1] / "release"
    (FUZZ / "artifacts").mkdir(exist_ok=True)
    failed = []
    for target in targets:
        if wanted and target not in wanted:
            continue
        found = FUZZ / "target" / "corpus" / target
        found.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="forklift-fuzz-") as folder:
            run = subprocess.run(
                [programs / target, f"-artifact_prefix={FUZZ / 'artifacts'}/{target}-", f"-max_total_time={seconds}", "-print_final_stats=1",
                 *LIMITS, found, FUZZ / "corpus" / target],
                cwd=FUZZ, env=dict(os.environ, TMPDIR=folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
            )
        executed = re.search(r"number_of_executed_units: +(\d+)", run.stdout)
        coverage = re.findall(r"cov: (\d+)", run.stdout)
        print(f"{target:<16} {executed[1] if executed else '?':>12} inputs  {coverage[-1] if coverage else '?':>6} edges  "
              f"{'clean' if run.returncode == 0 else 'FAILED'}", flush=True)
        if run.returncode != 0:
            failed.append(target)
            print(*run.stdout.splitlines()[-40:], sep="\n", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
