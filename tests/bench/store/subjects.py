"""What is captured: a stopped cluster and a tree of files, each in two states between which it is switched in place."""

import contextlib
import json
import os
import pathlib
import pwd
import random
import shutil
import subprocess
import tempfile

PAGE = 8192


class Subject:
    """A folder `source` in a state, and what differs between its states: `base` and `changed`."""

    def __init__(self, folder, size):
        self.folder = folder
        self.source = folder / "source"
        self.size = size

    def ensure(self):
        """Makes it once; the next run finds it."""
        ready = self.folder / "ready.json"
        if ready.exists() and json.loads(ready.read_text()).get("size") == self.size:
            self.paths = json.loads(ready.read_text())["paths"]
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self.source.mkdir(parents=True)
        print(f"making the {self.name} ({self.size})", flush=True)
        self.make()
        self.paths = self.keep_both_states()
        ready.write_text(json.dumps({"size": self.size, "paths": self.paths}))

    def keep_both_states(self):
        before = self.folder / "before"
        subprocess.run(["cp", "-a", self.source, before], check=True)
        self.change()
        paths = sorted(path for path in files_in(before) | files_in(self.source) if not same(before / path, self.source / path))
        for state, origin in (("base", before), ("changed", self.source)):
            for path in paths:
                if (origin / path).exists():
                    (self.folder / state / path).parent.mkdir(parents=True, exist_ok=True)
                    subprocess.run(["cp", "-a", origin / path, self.folder / state / path], check=True)
        shutil.rmtree(before)
        return paths

    def switch(self, state):
        """Writes what differs, in place and page by page, as its owner would."""
        for path in self.paths:
            kept, there = self.folder / state / path, self.source / path
            if not kept.exists():
                there.unlink(missing_ok=True)
            elif not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-a", kept, there], check=True)
            else:
                overwrite(kept, there)


class Cluster(Subject):
    """pgbench tables of a scale, cleanly stopped. WAL is kept small, so that leaving out recycled segments gains little."""

    name = "cluster"

    def make(self):
        self.source.chmod(0o700)
        self.give(self.source)
        self.postgres("initdb", "-D", self.source, "-U", "bench", "-A", "trust", "--no-sync")
        with (self.source / "postgresql.conf").open("a") as settings:
            settings.write("max_wal_size = 128MB\nmin_wal_size = 80MB\nlisten_addresses = ''\n")
        with self.server() as sql:
            self.postgres("pgbench", "-h", sql, "-U", "bench", "-i", "-q", "-s", str(self.size), "postgres")

    def change(self):
        rows = random.Random(1).sample(range(1, 100_000 * self.size), 100)
        script = ";".join(
            [f"update pgbench_accounts set abalance = abalance + 1 where aid = {row}" for row in rows]
            + ["alter table pgbench_branches add column note text default 'none'"]
            + ["insert into pgbench_history select 1, 1, n, n, now(), 'note' from generate_series(1, 1000) n"]
        )
        with self.server() as sql:
            self.query(sql, script)

    def query(self, host, script):
        return self.postgres("psql", "-h", host, "-U", "bench", "-At", "-v", "ON_ERROR_STOP=1", "-c", script, "postgres")

    @contextlib.contextmanager
    def server(self, data=None):
        """A server on the folder, with its socket in a folder of its own; stopped cleanly at the end."""
        data = data or self.source
        socket = tempfile.mkdtemp(prefix="bench-")
        self.give(socket)
        self.postgres("pg_ctl", "-D", data, "-w", "-l", f"{socket}/log", "-o", f"-k {socket} -c listen_addresses=''", "start")
        try:
            yield socket
        finally:
            self.postgres("pg_ctl", "-D", data, "-w", "-m", "fast", "stop")
            shutil.rmtree(socket, ignore_errors=True)

    def postgres(self, program, *arguments):
        """Runs a program of Postgres, as an account that may where we are root."""
        options = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        command = [programs() / program, *map(str, arguments)]
        done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, **options)
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}")
        return done.stdout.strip()

    def give(self, path):
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            for where, folders, names in os.walk(path):
                for name in [".", *folders, *names]:
                    os.chown(os.path.join(where, name), account.pw_uid, account.pw_gid)

    def summary(self, data):
        """What a server on a restored folder says of the rows."""
        self.give(data)
        with self.server(data) as sql:
            return self.query(sql, "select count(*), sum(abalance) from pgbench_accounts; select count(*) from pgbench_history; select count(*) from pg_class")


class Tree(Subject):
    """Files of the sizes that source trees have: most small text, a tenth that does not compress, some of many megabytes."""

    name = "tree"

    def make(self):
        rng = random.Random(2)
        self.text = words(rng)
        folders = [self.source]
        for number in range(max(self.size // 12, 8)):
            parent = rng.choice(folders[-64:])
            depth = len(parent.relative_to(self.source).parts)
            folder = (parent if depth < 8 else self.source) / f"part{number}"
            folder.mkdir()
            folders.append(folder)
        for number in range(self.size):
            self.write(rng, rng.choice(folders) / f"file{number}.{rng.choice(['py', 'rs', 'ts', 'md', 'json'])}", min(int(rng.lognormvariate(8.0, 1.4)), 4 << 20))
        for number in range(max(self.size // 5000, 1)):
            self.write(rng, rng.choice(folders) / f"asset{number}.bin", rng.randrange(4 << 20, 16 << 20))

    def write(self, rng, path, size):
        if path.suffix == ".bin" or rng.random() < 0.1:
            path.write_bytes(rng.randbytes(size))
            return
        head = f"# {path.name} {rng.random()}\n".encode()
        start = rng.randrange(len(self.text))
        body = self.text[start : start + size]
        while len(body) < size:
            body += self.text[: size - len(body)]
        path.write_bytes((head + body)[: max(size, 16)])

    def change(self):
        """A turn of an agent: some files edited, some made, some removed, one large one with a few bytes changed inside."""
        rng = random.Random(3)
        self.text = words(rng)
        paths = sorted(files_in(self.source))
        for path in rng.sample([path for path in paths if not path.endswith(".bin")], min(60, len(paths) // 4)):
            full = self.source / path
            if rng.random() < 0.2:
                full.unlink()
            else:
                content = full.read_bytes()
                at = rng.randrange(len(content) + 1)
                full.write_bytes(content[:at] + b"edited line\n" + content[at:])
        folder = self.source / "made"
        folder.mkdir()
        for number in range(30):
            self.write(rng, folder / f"new{number}.py", int(rng.lognormvariate(8.0, 1.0)))
        large = self.source / next(path for path in paths if path.endswith(".bin"))
        with large.open("r+b") as file:
            file.seek(large.stat().st_size // 2)
            file.write(b"changed")


def words(rng):
    """Eight megabytes that compress like source text."""
    pool = ["".join(rng.choices("etaoinshrdlucmfw_", k=rng.randrange(2, 11))) for _ in range(4000)]
    ends = [" ", " ", " ", " ", "(", ")", ", ", ".", " = ", "\n    ", "\n"]
    text = []
    for _ in range(1_200_000):
        text.append(pool[min(int(rng.expovariate(1 / 600)), 3999)])
        text.append(rng.choice(ends))
    return "".join(text).encode()[: 8 << 20]


def files_in(folder):
    """Paths of all files, relative."""
    return {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}


def same(first, second):
    if not (first.exists() and second.exists()):
        return False
    if first.stat().st_size != second.stat().st_size:
        return False
    with first.open("rb") as one, second.open("rb") as other:
        while True:
            left, right = one.read(1 << 20), other.read(1 << 20)
            if left != right:
                return False
            if not left:
                return True


def overwrite(kept, there):
    with kept.open("rb") as source, there.open("r+b") as target:
        at = 0
        while page := source.read(PAGE):
            target.seek(at)
            if target.read(len(page)) != page:
                target.seek(at)
                target.write(page)
            at += len(page)
        target.truncate(at)


def programs():
    """The folder of the newest Postgres programs."""
    if shutil.which("pg_ctl"):
        return pathlib.Path(shutil.which("pg_ctl")).resolve().parent
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise RuntimeError("no Postgres programs; install postgresql")
    return found[-1].parent
