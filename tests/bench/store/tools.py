"""The tools that are compared: for each the commands of a capture, a restore and a prune, with its own defaults."""

import json
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "target" / "release" / "bench-store"


class Tool:
    """One tool in one round: it has a folder for its repository and one for what it restores."""

    # What it makes durable by default, in words for the table.
    syncs = ""
    has_checkpoints = True
    steps = ("first", "unchanged", "changed", "restore", "delta", "prune")

    def __init__(self, subject, folder):
        self.subject = subject.name
        self.source = subject.source
        self.repository = folder / self.name / "repository"
        self.target = folder / self.name / "target"
        self.state = folder / self.name / "state"
        for made in (self.repository.parent, self.state):
            made.mkdir(parents=True)

    @classmethod
    def missing(cls):
        """The program that is needed and not there."""
        return None if shutil.which(cls.name) else cls.name

    def environment(self):
        return os.environ | self.variables()

    def variables(self):
        return {}

    def begin(self):
        """Makes the repository; not measured."""

    def command(self, step):
        """The command of a step and the folder to run it in."""
        commands = {
            "first": lambda: self.capture("one"),
            "unchanged": lambda: self.capture("same"),
            "changed": lambda: self.capture("two"),
            "restore": lambda: self.restore("two"),
            "delta": lambda: self.restore("one"),
            "prune": lambda: self.prune(["one", "same"]),
        }
        return commands[step]()

    def run(self, *command, cwd=None):
        subprocess.run([str(word) for word in command], cwd=cwd, env=self.environment(), check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


class Forklift(Tool):
    name = "forklift"
    syncs = "every pack, the index, the ref and their folders; a restored cluster or tree by syncfs"

    @classmethod
    def missing(cls):
        return None if PROGRAM.exists() else str(PROGRAM)

    def begin(self):
        self.run(PROGRAM, "init", self.repository)

    def capture(self, name):
        return [PROGRAM, "capture", self.subject, self.repository, f"checkpoint-{name}", self.source, self.state], self.state

    def restore(self, name):
        return [PROGRAM, "restore", self.subject, self.repository, f"checkpoint-{name}", self.target, self.state], self.state

    def prune(self, names):
        # An unchanged capture made no checkpoint of its own.
        return [PROGRAM, "prune", self.repository, f"checkpoint-{names[0]}"], self.state


class Restic(Tool):
    name = "restic"
    syncs = "every pack, index and snapshot file and its folder; nothing that it restores"

    def variables(self):
        return {"RESTIC_REPOSITORY": str(self.repository), "RESTIC_PASSWORD": "bench", "RESTIC_CACHE_DIR": str(self.state / "cache"), "RESTIC_PROGRESS_FPS": "0.1"}

    def begin(self):
        self.run("restic", "init")

    def capture(self, name):
        return ["restic", "backup", "--quiet", "--tag", name, "."], self.source

    def restore(self, name):
        return ["restic", "restore", "--quiet", "--tag", name, "--target", self.target, "latest"], self.state

    def prune(self, names):
        listed = subprocess.run(["restic", "snapshots", "--json"], env=self.environment(), check=True, capture_output=True, stdin=subprocess.DEVNULL)
        ids = [snapshot["id"] for snapshot in json.loads(listed.stdout) if set(snapshot["tags"]) & set(names)]
        return ["restic", "forget", "--quiet", "--prune", *ids], self.state


class Borg(Tool):
    name = "borg"
    syncs = "segments of the repository by fdatasync and their folders; nothing that it restores"

    def variables(self):
        return {"BORG_REPO": str(self.repository), "BORG_BASE_DIR": str(self.state), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes"}

    def begin(self):
        self.run("borg", "init", "--encryption", "none")

    def capture(self, name):
        return ["borg", "create", f"::{name}", "."], self.source

    def restore(self, name):
        self.target.mkdir(exist_ok=True)
        return ["borg", "extract", f"::{name}"], self.target

    def prune(self, names):
        return ["sh", "-c", f"borg delete :: {' '.join(names)} && borg compact"], self.state


class Git(Tool):
    """A shadow repository: its own folder, each checkpoint a commit without parents, so that one can be removed."""

    name = "git"
    syncs = "packs and refs, but no loose object; nothing that it restores"

    def variables(self):
        identity = {f"GIT_{who}_{what}": "bench" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        return identity | {"GIT_DIR": str(self.repository), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}

    def begin(self):
        self.run("git", "init", "--quiet", "--bare", self.repository)
        self.run("git", "config", "core.bare", "false")

    def capture(self, name):
        script = f"git add --all && git update-ref refs/checkpoints/{name} $(git commit-tree -m {name} $(git write-tree))"
        return ["env", f"GIT_WORK_TREE={self.source}", "sh", "-c", script], self.source

    def restore(self, name):
        self.target.mkdir(exist_ok=True)
        # An index of the target, so that a second restore touches only what differs.
        variables = [f"GIT_WORK_TREE={self.target}", f"GIT_INDEX_FILE={self.state / 'index'}"]
        return ["env", *variables, "git", "read-tree", "--reset", "-u", f"refs/checkpoints/{name}"], self.target

    def prune(self, names):
        removed = " && ".join(f"git update-ref -d refs/checkpoints/{name}" for name in names)
        return ["sh", "-c", f"{removed} && git gc --quiet --prune=now"], self.state


class Copy(Tool):
    """A plain copy, for scale: no history, no checks, nothing shared."""

    name = "cp -a"
    syncs = "nothing"
    has_checkpoints = False
    steps = ("first", "restore")

    @classmethod
    def missing(cls):
        return None

    def command(self, step):
        if step == "first":
            return ["cp", "-a", self.source, self.repository], self.state
        return ["cp", "-a", self.repository, self.target], self.state


TOOLS = [Forklift, Restic, Borg, Git, Copy]
