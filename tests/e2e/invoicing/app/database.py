"""The database, through psql: no driver to install."""

import os
import subprocess
import sys


def run(sql, **values):
    """Runs statements in one transaction and gives the rows as lists of text. A value is :'name' in the statements."""
    psql = os.environ.get("PSQL", "psql")
    environment = dict(os.environ)
    if os.environ.get("PSQL_LIBRARY_PATH"):
        environment["LD_LIBRARY_PATH"] = os.environ["PSQL_LIBRARY_PATH"]
    command = [psql, "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--single-transaction", "--set=ON_ERROR_STOP=1", "--field-separator=\t"]
    command += [f"--set={name}={value}" for name, value in values.items()]
    # From a file, not by --command, which knows no variables.
    done = subprocess.run(command + ["--file=-"], input=sql, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"psql failed: {done.stderr.strip()}")
    return [line.split("\t") for line in done.stdout.splitlines()]
