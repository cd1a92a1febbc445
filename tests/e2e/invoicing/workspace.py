"""A temporary folder with a store, an application's repository and its worktrees, driven through the forklift program alone."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent


class Mismatch(Exception):
    """What is there is not what must be there."""


class Workspace:
    """Everything that one run of the demo makes; `close` takes all of it away again."""

    def __init__(self, forklift, verbose):
        self.forklift_program = forklift
        self.verbose = verbose
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="forklift-demo-")).resolve()
        # Where root has no user namespaces its servers run under another account, which must be able to pass.
        self.root.chmod(0o711)
        self.store = self.root / "store"
        foreign = ("GIT_", "PG", "FORKLIFT_RUN", "FORKLIFT_STORE", "DATABASE_URL")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        self.environment.update(PYTHONDONTWRITEBYTECODE="1", GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", GIT_OPTIONAL_LOCKS="0")
        for who in ("AUTHOR", "COMMITTER"):
            self.environment.update({f"GIT_{who}_NAME": "Demo", f"GIT_{who}_EMAIL": "demo@example.invalid"})
        self.postgres = None

    def find_postgres(self):
        """Takes the best installation that has psql, for the app, and uses it for everything."""
        found = self.forklift("postgres", "list", json=True)
        usable = [one for one in found if (pathlib.Path(one["bin"]) / "psql").exists()]
        if not usable:
            names = ", ".join(one["bin"] for one in found) or "none"
            raise SystemExit(f"demo: no Postgres with the psql program (found: {names}); `forklift postgres install` puts one into your data folder")
        self.postgres = usable[0]["bin"]
        self.environment["PSQL"] = str(pathlib.Path(self.postgres) / "psql")
        if usable[0]["library_path"]:
            self.environment["PSQL_LIBRARY_PATH"] = usable[0]["library_path"]
        return usable[0]["name"]

    def forklift(self, *arguments, folder=None, json=False):
        """Runs one forklift command; gives its output, or the facts in it."""
        command = [self.forklift_program, "-C", str(folder or self.root), "--store", str(self.store)]
        command += (["--postgres", self.postgres] if self.postgres else []) + (["--json"] if json else [])
        output = self.run(*command, *arguments, folder=self.root)
        return parse(output) if json else output

    def in_project(self, folder, *command):
        """Runs a command with the project's database, as a person would."""
        return self.forklift("project", "run", "--", *command, folder=folder)

    def git(self, folder, *arguments):
        return self.run("git", *arguments, folder=folder)

    def run(self, *command, folder, environment=None):
        if self.verbose:
            print("+ " + " ".join(map(str, command)), file=sys.stderr)
        with subprocess.Popen(command, cwd=folder, env=environment or self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            try:
                out, err = child.communicate()
            except KeyboardInterrupt:
                # Asked, not killed: it takes what it had begun back and its children with it.
                child.terminate()
                child.communicate()
                raise
        if child.returncode != 0:
            raise Mismatch(f"`{' '.join(map(str, command))}` ended with {child.returncode}:\n{out}{err}".rstrip())
        if self.verbose and err:
            print(err.rstrip(), file=sys.stderr)
        return out

    def make_repository(self, name):
        """The application under version control, with a stash: Git's state has every part that a restore could harm."""
        folder = self.root / name
        shutil.copytree(HERE / "app", folder, copy_function=shutil.copy)
        self.git(folder, "init", "--quiet", "--initial-branch=main")
        self.git(folder, "add", ".")
        self.git(folder, "commit", "--quiet", "--message=Invoicing, version 1")
        with open(folder / "README.md", "a") as readme:
            readme.write("\nAn idea for later.\n")
        self.git(folder, "stash", "push", "--quiet")
        return folder

    def leave_work_open(self, folder):
        """A staged edit, one that is not staged, and a file that Git does not know."""
        (folder / "README.md").write_text((folder / "README.md").read_text() + "\nAmounts are in dollars.\n")
        self.git(folder, "add", "README.md")
        (folder / ".gitignore").write_text((folder / ".gitignore").read_text() + "*.tmp\n")
        (folder / "notes.txt").write_text("Ask Globex about the second invoice.\n")
        (folder / "notes.txt").chmod(0o640)

    def seed(self, name, folder, amounts):
        """A branch that the application's own migrations and commands fill."""
        python = sys.executable
        steps = [f"'{python}' invoices.py migrate"]
        for customer, amount, paid in zip(("Acme", "Globex", "Initech"), amounts, ("", "", " paid")):
            steps.append(f"'{python}' invoices.py add {customer} {amount}{paid}")
        return self.forklift("branch", "create", name, "--seed", " && ".join(steps), folder=folder, json=True)

    def look(self, folder):
        """The app and its database, read live through `project run`."""
        return json.loads(self.in_project(folder, sys.executable, str(HERE / "look.py"), "--app"))

    def look_at_branch(self, name):
        """A branch's database, read by its URL; its server is left as it was."""
        was_running = self.forklift("branch", "inspect", name, json=True)["state"] == "running"
        self.forklift("branch", "start", name)
        url = urllib.parse.urlsplit(self.forklift("branch", "url", name).strip())
        host = urllib.parse.parse_qs(url.query)["host"][0]
        environment = {**self.environment, "PGHOST": host, "PGUSER": urllib.parse.unquote(url.username), "PGDATABASE": urllib.parse.unquote(url.path[1:])}
        environment["PGPASSWORD"] = urllib.parse.unquote(url.password)
        seen = json.loads(self.run(sys.executable, str(HERE / "look.py"), folder=self.root, environment=environment))
        if not was_running:
            self.forklift("branch", "stop", name)
        return seen

    def git_state(self, folder):
        """What Git knows, its index byte for byte."""
        where = pathlib.Path(self.git(folder, "rev-parse", "--path-format=absolute", "--git-path", "index").strip())
        state = {what: self.git(folder, *what.split()) for what in ("symbolic-ref HEAD", "rev-parse HEAD", "for-each-ref", "stash list")}
        return {**state, "index": hashlib.sha256(where.read_bytes()).hexdigest(), "status": self.git(folder, "status", "--porcelain")}

    def state(self, folder):
        """Everything: files with their modes, database, app, Git."""
        return {"files": files(folder), "git": self.git_state(folder), **self.look(folder)}

    def close(self):
        """Stops every server and removes the folder, whatever state the run ended in."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        problems = []
        try:
            branches = self.forklift("branch", "list", json=True) if self.store.exists() else []
        except Mismatch as problem:
            branches = []
            problems.append(str(problem))
        for branch in branches:
            try:
                self.forklift("branch", "stop", branch["name"])
            except Mismatch as problem:
                problems.append(str(problem))
        if problems:
            # A folder is not taken away from under a server that may still run.
            raise Mismatch("\n".join([f"{self.root} is left: its servers could not be stopped", *problems]))
        shutil.rmtree(self.root)


def parse(text):
    return json.loads(text)


def files(folder):
    """Path to kind, mode and content of everything below a folder but Git's own."""
    found = {}
    for parent, names, plain in os.walk(folder):
        if ".git" in names:
            names.remove(".git")
        for name in names + [name for name in plain if name != ".git"]:
            path = pathlib.Path(parent) / name
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                content = ""
            found[str(path.relative_to(folder))] = [oct(status.st_mode), content]
    return found


def same(what, expected, found):
    """Fails unless both are equal, and says where they differ."""
    if expected == found:
        return
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            same(f"{what}: {key}", expected.get(key), found.get(key))
    raise Mismatch(f"{what} should be {expected!r} and is {found!r}")
