#!/usr/bin/env python3
"""Prints, as JSON, all that can be seen through the environment's database and, with `--app`, through the app of this folder."""

import json
import os
import pathlib
import subprocess
import sys

ENVIRONMENT = {**os.environ, **({"LD_LIBRARY_PATH": os.environ["PSQL_LIBRARY_PATH"]} if os.environ.get("PSQL_LIBRARY_PATH") else {})}

TABLES = "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
SEQUENCES = "SELECT format('%I.%I', schemaname, sequencename) FROM pg_sequences ORDER BY 1"
# What stands in for pg_dump where a client package comes without it.
CATALOGUE = """
SELECT table_name, ordinal_position, column_name, data_type, is_nullable, column_default, identity_generation FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2;
SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2;
SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2;
SELECT rolname, rolsuper, rolcanlogin FROM pg_roles WHERE rolname !~ '^pg_' ORDER BY 1;
SELECT extname, extversion FROM pg_extension ORDER BY 1;
"""


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr.strip()}")
    return done.stdout


def sql(statements):
    return run(os.environ["PSQL"], "--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1", "--file=-", text=statements)


def schema():
    pg_dump = pathlib.Path(os.environ["PSQL"]).with_name("pg_dump")
    if not pg_dump.exists():
        return sql(CATALOGUE)
    dump = run(str(pg_dump), "--schema-only", "--no-password")
    # A guard word that differs from dump to dump.
    return "\n".join(line for line in dump.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))) + sql(CATALOGUE)


def look():
    seen = {
        "schema": schema(),
        "rows": {table: sql(f"SELECT * FROM {table} AS r ORDER BY r") for table in sql(TABLES).split()},
        "sequences": {name: sql(f"SELECT last_value, is_called FROM {name}") for name in sql(SEQUENCES).split()},
        "columns": sql("SELECT column_name FROM information_schema.columns WHERE table_name = 'invoices' ORDER BY ordinal_position").split(),
        "invoice 3": sql("SELECT i FROM invoices i WHERE id = 3").strip(),
    }
    if "payments" in {table.split(".")[-1] for table in seen["rows"]}:
        seen["paid on invoice 2"] = sql("SELECT coalesce(sum(amount), 0) FROM payments WHERE invoice = 2").strip()
    elif "paid_amount" in seen["columns"]:
        seen["paid on invoice 2"] = sql("SELECT paid_amount FROM invoices WHERE id = 2").strip()
    if "--app" in sys.argv:
        seen["app"] = {command: run(sys.executable, "invoices.py", command).strip() for command in ("version", "list", "outstanding")}
    return seen


json.dump(look(), sys.stdout)
