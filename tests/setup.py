#!/usr/bin/env python3
"""Installs what `make demo` and `make test` need, through the ordinary package managers.

Needed before: git, make, a C compiler, Rust, Python 3 and Node. A Postgres that is installed (13 to 18) is used as it is;
where there is none, the bundled default is put into the user's data folder by forklift itself.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORKLIFT = ROOT / "target" / "debug" / "forklift"

# Programs that some tests use and the Debian package that has each; a test whose program is missing skips by name.
TEST_PACKAGES = {"mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs", "mkfs.ext4": "e2fsprogs", "nm": "binutils", "strace": "strace"}


def missing_tools():
    need = {"git": "git", "make": "make", "cc": "a C compiler", "cargo": "Rust", "node": "Node"}
    return [what for program, what in need.items() if shutil.which(program) is None]


def install_test_packages():
    """Installs the packages of TEST_PACKAGES where we are root on Debian or Ubuntu; elsewhere the tests skip by name."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    packages = sorted({package for program, package in TEST_PACKAGES.items() if shutil.which(program, path=path) is None})
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"not installed, tests that need them will skip: {' '.join(packages)}", flush=True)
        return
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": dict(os.environ, DEBIAN_FRONTEND="noninteractive")}
    subprocess.run(["apt-get", "update", "-qq"], check=False, **quiet)
    done = subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=False, **quiet)
    if done.returncode != 0:
        print(f"could not be installed, tests that need them will skip: {' '.join(packages)}", flush=True)


def build():
    subprocess.run(["cargo", "build", "--package", "forklift", "--package", "forklift-cli"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)


def ensure_postgres():
    """Gives the installations that forklift finds, after installing the bundled default where it finds none."""
    found = installations()
    if not found:
        print("no Postgres is installed: forklift postgres install", flush=True)
        subprocess.run([FORKLIFT, "postgres", "install"], check=True, stdin=subprocess.DEVNULL)
        found = installations()
    return found


def installations():
    listed = subprocess.run([FORKLIFT, "postgres", "list", "--json"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return json.loads(listed.stdout)


def main():
    missing = missing_tools()
    if missing:
        sys.exit(f"install first: {', '.join(missing)}")
    build()
    if sys.argv[1:] == ["test"]:
        install_test_packages()
    ensure_postgres()


if __name__ == "__main__":
    main()
