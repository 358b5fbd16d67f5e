"""How a job says that it failed: one line for the summary at the end, and exit status 1."""

import sys
from contextlib import suppress
from pathlib import Path


def fail(name, message):
    """Leave the line where the Snakefile's summary finds it, print it, and end the job."""
    folder = Path("logs/failures")
    with suppress(OSError):  # a full disk, which the message tells of
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name.replace('/', '-')}.txt").write_text(message + "\n", encoding="utf-8")
    sys.exit(message)
