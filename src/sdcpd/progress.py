"""What is said to whoever waits, and that it ends no work if nobody can hear it."""

import os
import shutil
import sys
import time
from contextlib import suppress


def columns():
    """Of the terminal that ``say`` writes to; None where it is none."""
    live = not os.environ.get("SDCPD_PROGRESS_LOG") and sys.stderr.isatty()
    return shutil.get_terminal_size().columns if live else None


def say(line, passing=False):
    """A line for whoever waits: to the file that SDCPD_PROGRESS_LOG names, else to standard error.

    A notebook's own output is for its reader. On a terminal the next line takes the place of one
    that is ``passing``.
    """
    if log := os.environ.get("SDCPD_PROGRESS_LOG"):
        with suppress(OSError), open(log, "a", encoding="utf-8") as file:  # it ends no training
            file.write(line + "\n")
        return
    width = columns()
    if width:
        line = "\r\033[K" + (line[: width - 1] if passing else line)
    sys.stderr.write(line + ("" if width and passing else "\n"))
    sys.stderr.flush()


class Progress:
    """A line now and then with the share done and the time left.

    Where it goes: see ``say``.

    Parameters
    ----------
    title : str
    total : int
    every : float, optional
        Seconds between lines. Default: 10, and less on a terminal, where one takes another's place.
    """

    def __init__(self, title, total, every=None):
        width = columns()
        self.width = max(width - len(title) - 20, 20) if width else 70  # of the meter
        self.title, self.total, self.every = title, total, every or (0.5 if width else 10)
        self.started = self.last = time.monotonic()
        self.first = None  # where this session began: an interrupted run does not begin at 0
        self.done = 0

    def update(self, done):
        """Say that ``done`` of ``total`` are done."""
        self.first = done - 1 if self.first is None else self.first
        self.done = done
        self._line()

    def note(self, share):
        """Say how much of an evaluation is done."""
        self._line(f"evaluation {share:.0%}")

    def close(self):
        """The last line."""
        self._line("finished", force=True)

    def _line(self, note="", force=False):
        now = time.monotonic()
        if not force and now - self.last < self.every:
            return
        from tqdm import tqdm  # which takes time, and an error message needs none

        self.last = now
        elapsed, first = now - self.started, self.first or 0
        meter = tqdm.format_meter(self.done, self.total, elapsed, ncols=self.width, initial=first)
        say(f"{self.title}: {meter} {note}".rstrip(), passing=not force)


class Patient:
    """Standard output or error that ends no work by being closed, full or of few letters.

    ``problem`` is the error that lost what was written, or None.
    """

    def __init__(self, stream):
        self.problem = None
        if not stream:  # its number is the next that is free, and children need it as well
            number = os.open(os.devnull, os.O_WRONLY)
            os.set_inheritable(number, True)
            stream = os.fdopen(number, "w", encoding="utf-8")
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        return self._try(self.stream.write, text)

    def writelines(self, lines):
        self.write("".join(lines))

    def flush(self):
        self._try(self.stream.flush)

    def _try(self, function, *arguments):
        try:
            return function(*arguments)
        except OSError as error:
            self.problem = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # for what is to come
