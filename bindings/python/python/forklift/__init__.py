"""forklift rewinds an agent's work: files and Postgres data together."""

from ._forklift import version

__version__ = version()

__all__ = ["__version__", "version"]
