#!/usr/bin/env python3
"""An agent that was asked for partial payments and keeps each one in a table of its own."""

from editing import app, create, replace

create(
    "migrations/002_payments.sql",
    "CREATE TABLE payments (\n"
    "    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\n"
    "    invoice integer NOT NULL REFERENCES invoices,\n"
    "    amount numeric(12, 2) NOT NULL CHECK (amount > 0)\n"
    ");\n",
)
replace("invoices.py", "VERSION = 1", "VERSION = 2")
replace("invoices.py", "list, outstanding.", "list, outstanding, pay ID AMOUNT.")
replace(
    "invoices.py",
    "SELECT coalesce(sum(amount), 0) FROM invoices WHERE NOT paid",
    "SELECT coalesce(sum(amount - (SELECT coalesce(sum(p.amount), 0) FROM payments p WHERE p.invoice = i.id)), 0) FROM invoices i WHERE NOT paid",
)
replace(
    "invoices.py",
    "def outstanding():",
    "def pay(invoice, amount):\n"
    "    database.run(\"INSERT INTO payments (invoice, amount) VALUES (:'invoice', :'amount')\", invoice=invoice, amount=amount)\n\n\n"
    "def outstanding():",
)
replace("invoices.py", '    elif command == "list":', '    elif command == "pay":\n        pay(*arguments)\n    elif command == "list":')

app("migrate")
