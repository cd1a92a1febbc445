#!/usr/bin/env python3
"""An agent that was asked for partial payments and keeps their sum in a column of the invoice."""

from editing import app, create, replace

create(
    "migrations/002_partial_payments.sql",
    "ALTER TABLE invoices ADD COLUMN paid_amount numeric(12, 2) NOT NULL DEFAULT 0;\nUPDATE invoices SET paid_amount = amount WHERE paid;\nALTER TABLE invoices DROP COLUMN paid;\n",
)
replace("invoices.py", "VERSION = 1", "VERSION = 2")
replace("invoices.py", "list, outstanding.", "list, outstanding, pay ID AMOUNT.")
replace(
    "invoices.py",
    "\"INSERT INTO invoices (customer, amount, paid) VALUES (:'customer', :'amount', :'paid' = 'paid')\"",
    "\"INSERT INTO invoices (customer, amount, paid_amount) VALUES (:'customer', :'amount', CASE WHEN :'paid' = 'paid' THEN :'amount'::numeric ELSE 0 END)\"",
)
replace("invoices.py", "CASE WHEN paid THEN", "CASE WHEN paid_amount = amount THEN")
replace("invoices.py", "sum(amount), 0) FROM invoices WHERE NOT paid", "sum(amount - paid_amount), 0) FROM invoices")
replace(
    "invoices.py",
    "def outstanding():",
    "def pay(invoice, amount):\n"
    "    database.run(\"UPDATE invoices SET paid_amount = paid_amount + :'amount'::numeric WHERE id = :'invoice'\", invoice=invoice, amount=amount)\n\n\n"
    "def outstanding():",
)
replace("invoices.py", '    elif command == "list":', '    elif command == "pay":\n        pay(*arguments)\n    elif command == "list":')

app("migrate")
