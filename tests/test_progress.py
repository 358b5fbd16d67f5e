"""What is said on a terminal. To a file, and when: test_runs.py; lost output: test_cli.py."""

import io
import sys

from sdcpd import cli
from sdcpd.progress import Progress


def test_progress_on_a_terminal(monkeypatch):
    """One line that is written again and again; whole lines where it is no terminal."""

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("SDCPD_PROGRESS_LOG", raising=False)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "60")
    progress = Progress("a title", 100, every=1e-9)
    for done in (1, 2):
        progress.update(done)
    progress.note(0.5)
    progress.close()
    cli.main(["train", "nothing.npy"])
    *passing, last, error = terminal.getvalue().split("\r\033[K")[1:]
    assert len(passing) == 3 and all(len(line) < 60 and "\n" not in line for line in passing)
    assert passing[-1].endswith("evaluation 50%") and last.endswith("finished\n")
    assert error.startswith("sdcpd: nothing.npy")
