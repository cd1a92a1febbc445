"""The table: medians, ratios of medians with a bootstrap interval, and how the targets stand."""

import random
import statistics

STEPS = {
    "first": "first capture",
    "unchanged": "unchanged capture",
    "changed": "changed capture",
    "restore": "restore to an empty folder",
    "delta": "delta restore",
    "prune": "prune",
}
RESAMPLES = 2000


def ratio(ours, theirs, rng):
    """Ratio of medians, and the interval that holds 95 % of the ratios of resampled rounds: rounds, not samples, are drawn."""
    middle = statistics.median
    rounds = range(len(ours))
    drawn = []
    for _ in range(RESAMPLES):
        picked = rng.choices(rounds, k=len(ours))
        drawn.append(middle([ours[at] for at in picked]) / middle([theirs[at] for at in picked]))
    drawn.sort()
    return middle(ours) / middle(theirs), drawn[int(RESAMPLES * 0.025)], drawn[int(RESAMPLES * 0.975) - 1]


class Results:
    """Samples by subject, step and tool, in the order of the rounds; and the syncs that each step did in its traced run."""

    def __init__(self):
        self.samples = {}
        self.syncs = {}

    def add(self, subject, step, tool, sample):
        self.samples.setdefault((subject, step), {}).setdefault(tool, []).append(sample)

    def column(self, subject, step, tool, field):
        return [getattr(sample, field) for sample in self.samples.get((subject, step), {}).get(tool, [])]

    def median(self, subject, step, tool, field):
        values = self.column(subject, step, tool, field)
        return statistics.median(values) if values else None

    def table(self, subject):
        """One row for each step and tool."""
        rng = random.Random(4)
        rows = ["| work | tool | seconds | on disk | processor | stored | peak memory | syncs | forklift / tool |", "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
        for step, words in STEPS.items():
            tools = self.samples.get((subject, step), {})
            for tool in tools:
                times = self.column(subject, step, tool, "seconds")
                compared = ""
                if tool != "forklift" and "forklift" in tools:
                    # The other tools may have taken part in the first rounds only.
                    ours = self.column(subject, step, "forklift", "seconds")[: len(times)]
                    compared = "{:.2f} ({:.2f} to {:.2f})".format(*ratio(ours, times, rng))
                stored = self.median(subject, step, tool, "stored")
                rows.append(
                    f"| {words} | {tool} | {seconds(statistics.median(times))} | {seconds(self.median(subject, step, tool, 'durable'))} | {seconds(self.median(subject, step, tool, 'processor'))} "
                    f"| {mega(stored) if step not in ('restore', 'delta') else ''} | {mega(self.median(subject, step, tool, 'memory'))} | {self.count(subject, step, tool)} | {compared} |"
                )
        return "\n".join(rows)

    def count(self, subject, step, tool):
        counted = self.syncs.get((subject, step, tool))
        return "?" if counted is None else str(sum(counted.values()))

    def targets(self, subject, extra):
        """Rows of target, value and verdict, for one subject."""
        rng = random.Random(5)
        rows = []

        def against(step, tool, limit, field="seconds", words=None):
            ours, theirs = self.column(subject, step, "forklift", field), self.column(subject, step, tool, field)
            ours = ours[: len(theirs)]
            if ours and theirs and statistics.median(theirs):
                value, low, high = ratio(ours, theirs, rng)
                rows.append((words or f"{STEPS[step]}: at most {limit} of {tool}'s time", f"{value:.3f} ({low:.3f} to {high:.3f})", high <= limit, value <= limit))

        def at_most(words, value, limit, unit=""):
            if value is not None:
                rows.append((words, f"{value:g}{unit}", value <= limit, value <= limit))

        against("first", "restic", 0.35)
        against("changed", "restic", 0.25)
        against("changed", "restic", 0.5, "stored", "bytes that a changed capture adds: at most 0.5 of restic's")
        against("unchanged", "restic", 0.1)
        against("restore", "restic", 0.5)
        against("restore", "cp -a", 2.0)
        for step in STEPS:
            against(step, "restic", 1.0, "memory", f"peak memory of {STEPS[step]}: at most restic's")
        for step, limit in (("changed", 6), ("unchanged", 0)):
            counted = self.syncs.get((subject, step, "forklift"))
            at_most(f"syncs of {STEPS[step]}: at most {limit}", None if counted is None else sum(counted.values()), limit)
        at_most("files opened by an unchanged capture: none", extra.get(f"opened {subject}"), 0)
        return rows


def verdicts(rows):
    lines = ["| target | measured | |", "| --- | ---: | --- |"]
    for words, value, surely, roughly in rows:
        lines.append(f"| {words} | {value} | {'met' if surely else 'met at the median, the interval reaches over' if roughly else 'missed'} |")
    return "\n".join(lines)


def seconds(value):
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def mega(value):
    return "" if value is None else f"{value / 1e6:.3g} MB" if value < 1e9 else f"{value / 1e9:.3g} GB"
