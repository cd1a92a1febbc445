"""The two scenarios; each gives the table it prints, every cell of it read live and checked."""

import sys

from workspace import HERE, same

PAYMENT = 25


def money(amount):
    """An amount of dollars as people write it."""
    text = f"{float(amount):.2f}"
    return "$" + text.removesuffix(".00")


def one_agent(workspace, amounts):
    """An agent changes code and schema and archives an invoice; one restore takes all of it back."""
    app = workspace.make_repository("invoicing")
    workspace.seed("invoicing-seed", app, amounts)
    workspace.leave_work_open(app)
    branch = workspace.forklift("project", "setup", "--from", "invoicing-seed", folder=app, json=True)["branch"]
    workspace.forklift("branch", "start", branch)

    before = workspace.state(app)
    capture = workspace.forklift("project", "capture", "before-the-agent", folder=app, json=True)
    workspace.in_project(app, sys.executable, str(HERE / "agents" / "archive.py"))
    after = workspace.state(app)
    restore = workspace.forklift("project", "restore", "before-the-agent", folder=app, json=True)
    restored = workspace.state(app)

    same("after the restore", before, restored)
    report = workspace.forklift("project", "run", "report", folder=app).split("\n")
    same("the named command `report`", before["app"]["version"], report[0])
    third = f"3,Initech,{float(amounts[2]):.2f},t"
    for name, seen, version, ids, archived, row in (
        ("before", before, "1", "1 2 3", "no", f"({third})"),
        ("after the agent", after, "2", "1 2", "yes", f"({third},t)"),
        ("after the restore", restored, "1", "1 2 3", "no", f"({third})"),
    ):
        same(name, [version, ids, archived, row], [cells[1](seen) for cells in ONE_AGENT])
    lines = [[name, *(cell(seen) for seen in (before, after, restored))] for name, cell in ONE_AGENT]
    times = (
        f"captured in {capture['total_ms']} ms ({capture['mode']}, {capture['downtime_ms']} ms without a server),"
        f" restored in {restore['total_ms']} ms ({restore['downtime_ms']} ms without a server)"
    )
    return ["", "before", "after the agent", "after the restore"], lines, times


ONE_AGENT = [
    ("app version", lambda seen: seen["app"]["version"]),
    ("listed invoices", lambda seen: " ".join(line.split("\t")[0] for line in seen["app"]["list"].split("\n"))),
    ("column archived", lambda seen: "yes" if "archived" in seen["columns"] else "no"),
    ("row of invoice 3", lambda seen: seen["invoice 3"]),
]


def two_agents(workspace, amounts):
    """Two agents change the same code and schema in ways that exclude each other; the restore of one is nothing to the other."""
    main = workspace.make_repository("shared")
    workspace.seed("shared-seed", main, amounts)
    folders = {}
    for name in ("a", "b"):
        folder = workspace.root / f"agent-{name}"
        workspace.git(main, "worktree", "add", "--quiet", "-b", f"agent-{name}", str(folder))
        workspace.leave_work_open(folder)
        workspace.forklift("project", "setup", "--from", "shared-seed", "--branch", f"agent-{name}", folder=folder)
        workspace.forklift("branch", "start", f"agent-{name}")
        workspace.forklift("project", "capture", "start", folder=folder)
        folders[name] = folder
    seed = workspace.look_at_branch("shared-seed")
    start = {name: workspace.state(folder) for name, folder in folders.items()}
    for name in folders:
        same(f"database of agent {name} at the start", seed["rows"], start[name]["rows"])

    workspace.in_project(folders["a"], sys.executable, str(HERE / "agents" / "partial_column.py"))
    workspace.in_project(folders["b"], sys.executable, str(HERE / "agents" / "partial_table.py"))
    built = {name: workspace.state(folder) for name, folder in folders.items()}
    workspace.in_project(folders["b"], sys.executable, "invoices.py", "pay", "2", str(PAYMENT))
    worked = {"a": built["a"], "b": workspace.state(folders["b"])}
    git = workspace.git_state(main)
    workspace.forklift("project", "restore", "start", folder=folders["a"])
    restored = {name: workspace.state(folder) for name, folder in folders.items()}

    same("agent A after its restore", start["a"], restored["a"])
    same("agent B after the restore of A", worked["b"], restored["b"])
    same("the seed branch", seed, workspace.look_at_branch("shared-seed"))
    same("Git in the main worktree", git, workspace.git_state(main))
    for name in folders:
        for part in ("symbolic-ref HEAD", "rev-parse HEAD", "for-each-ref", "stash list", "index"):
            same(f"Git of agent {name}: {part}", start[name]["git"][part], restored[name]["git"][part])
    total = float(amounts[0]) + float(amounts[1])
    full, less = money(total), money(total - PAYMENT)
    same("outstanding of A", [full, full, full], [money(seen["a"]["app"]["outstanding"]) for seen in (start, worked, restored)])
    same("outstanding of B", [full, full, less, less], [money(seen["b"]["app"]["outstanding"]) for seen in (start, built, worked, restored)])
    same("versions of A", ["1", "2", "1"], [seen["a"]["app"]["version"] for seen in (start, worked, restored)])
    same("versions of B", ["1", "2", "2"], [seen["b"]["app"]["version"] for seen in (start, worked, restored)])
    same("payments of A", ["not kept", "a column", "not kept"], [how_kept(seen["a"]) for seen in (start, worked, restored)])
    same("payments of B", ["not kept", "a table", "a table"], [how_kept(seen["b"]) for seen in (start, worked, restored)])
    same("paid on invoice 2 in B", money(PAYMENT), paid(restored["b"]))

    lines = []
    for name in folders:
        for title, cell in TWO_AGENTS:
            lines.append([f"{name.upper()}: {title}", *(cell(seen[name]) for seen in (start, worked, restored))])
    return ["", "at the start", "after both agents", "after A's restore"], lines, "the seed branch and both worktrees' Git states are unchanged"


def how_kept(seen):
    """How the application keeps partial payments, by its schema."""
    if "paid_amount" in seen["columns"]:
        return "a column"
    return "a table" if "public.payments" in seen["rows"] else "not kept"


def paid(seen):
    """What was paid on invoice 2 in part."""
    return money(seen["paid on invoice 2"]) if "paid on invoice 2" in seen else "-"


TWO_AGENTS = [
    ("app version", lambda seen: seen["app"]["version"]),
    ("partial payments are", how_kept),
    ("paid on invoice 2", paid),
    ("outstanding", lambda seen: money(seen["app"]["outstanding"])),
]
