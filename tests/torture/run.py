#!/usr/bin/env python3
"""Tortures the store for some minutes, 15 by default: builds what that needs, runs it, and leaves nothing but what failed.

--kinds A,B runs some kinds only, --seed N throws the same dice again. What fails is kept below .test/torture.
"""

import argparse
import os
import pathlib
import signal
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import run as suites
import setup as preparation


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--kinds")
    parser.add_argument("--seed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    preparation.install_test_packages()
    preparation.build()
    preparation.ensure_postgres()
    subprocess.run(["cargo", "build", "--package", "forklift-tests", "--bins"], cwd=preparation.ROOT, check=True, stdin=subprocess.DEVNULL)
    core_tests = next(program for manifest, target, program in suites.test_programs() if manifest.name == "core" and target == "forklift")
    # Short: the paths of Postgres' sockets below it have 107 bytes.
    work = tempfile.mkdtemp(prefix="forklift-torture-", dir="/tmp")
    # Copies, which no build replaces meanwhile; not in `work`, where disks are mounted.
    programs = tempfile.mkdtemp(prefix="forklift-torture-programs-", dir="/tmp")
    program, core_tests = (shutil.copy2(path, programs) for path in (suites.TARGET / "forklift-torture", core_tests))
    command = [
        program, "run", "--work", work, "--keep", suites.WORK / "torture",
        "--seconds", str(max(1, round(options.minutes * 60))), "--core-tests", core_tests,
    ]
    command += [word for name in ("kinds", "seed") if getattr(options, name) for word in (f"--{name}", getattr(options, name))]
    torture = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=dict(os.environ, RUST_BACKTRACE="0"))
    try:
        sys.exit(torture.wait())
    finally:
        # All that it started and mounted is in namespaces that end with it.
        torture.kill()
        torture.wait()
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(programs, ignore_errors=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
