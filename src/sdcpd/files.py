"""Files that are there whole or not at all."""

import glob
import os
from contextlib import contextmanager, suppress


@contextmanager
def whole_file(path, mode="w"):
    """A file that appears under its name only when it has been written to the end."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    with suppress(ImportError):  # without psutil, as on a bare GPU machine, they stay
        for other in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
            import psutil

            pid = other.suffixes[-2].removeprefix(".")
            if pid.isdigit() and not psutil.pid_exists(int(pid)):  # killed while it wrote
                other.unlink(missing_ok=True)
