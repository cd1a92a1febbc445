#!/usr/bin/env python3
"""Invoices: version, migrate, add CUSTOMER AMOUNT [paid], list, outstanding."""

import pathlib
import sys

import database

VERSION = 1


def migrate():
    database.run("SET client_min_messages = warning; CREATE TABLE IF NOT EXISTS migrations (name text PRIMARY KEY);")
    done = {row[0] for row in database.run("SELECT name FROM migrations")}
    for path in sorted(pathlib.Path("migrations").glob("*.sql")):
        if path.name not in done:
            database.run(path.read_text() + "INSERT INTO migrations VALUES (:'name');", name=path.name)


def add(customer, amount, paid=""):
    database.run("INSERT INTO invoices (customer, amount, paid) VALUES (:'customer', :'amount', :'paid' = 'paid')", customer=customer, amount=amount, paid=paid)


def listed():
    return database.run("SELECT id, customer, amount, CASE WHEN paid THEN 'paid' ELSE 'open' END FROM invoices ORDER BY id")


def outstanding():
    return database.run("SELECT coalesce(sum(amount), 0) FROM invoices WHERE NOT paid")[0][0]


def main(command="", *arguments):
    if command == "version":
        print(VERSION)
    elif command == "migrate":
        migrate()
    elif command == "add":
        add(*arguments)
    elif command == "list":
        for row in listed():
            print("\t".join(row))
    elif command == "outstanding":
        print(outstanding())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
