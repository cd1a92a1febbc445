"""What a scripted agent does: edit files of the folder it works in, run the app there."""

import pathlib
import subprocess
import sys


def replace(path, old, new):
    """Replaces the one occurrence of a piece of text in a file."""
    path = pathlib.Path(path)
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{path} does not have once what was to be edited: {old!r}")
    path.write_text(text.replace(old, new))


def create(path, text):
    """Writes a new file."""
    with open(path, "x") as file:
        file.write(text)


def app(*arguments):
    """Runs the app."""
    subprocess.run([sys.executable, "invoices.py", *arguments], check=True)
