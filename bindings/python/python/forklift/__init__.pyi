__version__: str

def version() -> str:
    """Version of the native library, such as ``0.1.0``."""
