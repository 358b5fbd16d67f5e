"""Run a rule's notebook through papermill and make its HTML.

The rule gives ``input.notebook``, ``output.notebook``, ``output.html``, ``params.parameters`` and
a log. The notebook is executed beside the log, where it survives a failure with the failing cell
in it, and is moved to its place when it has succeeded.
"""

import logging
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import devices
import papermill
import psutil
from failures import fail
from ipykernel.kernelspec import write_kernel_spec
from pages import notebook_page
from traitlets.config import Config

from sdcpd.progress import Patient

sys.stdout, sys.stderr = map(Patient, (sys.stdout, sys.stderr))
ROOT = Path.cwd()
AGAIN = "run the same command again, which goes on from where it was"
log = Path(snakemake.log[0])
log.unlink(missing_ok=True)
name = log.stem
working = log.with_suffix(".ipynb")
parameters = dict(snakemake.params.parameters)
os.environ["PYTHONPATH"] = str(ROOT / "src")  # and nothing of another environment
os.environ["SDCPD_PROGRESS_LOG"] = str(ROOT / log)
# Figures come out byte-identical, and the kernel needs nothing from the user's home folder, which
# may hold other settings, or not be writable.
os.environ |= {"SOURCE_DATE_EPOCH": "0", "MPLCONFIGDIR": str(ROOT / ".snakemake/matplotlib")}
os.environ |= {"JUPYTER_PLATFORM_DIRS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def owner_lives():
    """Whether the snakemake that started this job is still there."""
    try:
        return psutil.Process(int(os.environ["SDCPD_SNAKEMAKE"])).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def watch(done, folder):
    """Copy progress lines, which the notebook writes to the log, to the terminal.

    And end this job with its kernel once its snakemake is gone, however: the same command may be
    given again at once, and must not find anybody at work.
    """
    position = 0
    while not done.wait(1):
        if not owner_lives():
            for kernel in psutil.Process().children(recursive=True):
                kernel.kill()
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(1)
        if log.exists():
            with log.open(encoding="utf-8", errors="replace") as file:
                file.seek(position)
                fresh = file.read()
                position = file.tell()
            sys.stderr.writelines(
                ln for ln in fresh.splitlines(True) if "%|" in ln or ln.startswith("note: ")
            )


known = papermill.inspect_notebook(snakemake.input.notebook)
unknown = sorted(set(parameters) - set(known))
if unknown:
    fail(name, f"{snakemake.input.notebook} has no parameter {', '.join(unknown)}")

form = "%(asctime)s %(message)s"
logging.basicConfig(filename=log, encoding="utf-8", level=logging.WARNING, format=form)
logging.getLogger("papermill").setLevel(logging.INFO)
done = threading.Event()
# The kernel is talked to through files: of TCP ports, kernels that start at once may take the same.
# The system allows their names 100 characters or so.
short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"
try:
    with tempfile.TemporaryDirectory(prefix="sdcpd-", dir=short) as folder:
        threading.Thread(target=watch, args=[done, folder], daemon=True).start()
        devices.take(snakemake.resources.get("gpu", 0))
        files = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
        os.environ["IPYTHONDIR"] = os.environ["JUPYTER_PATH"] = folder
        # this Python, whatever kernels of the same name the user or the machine has
        write_kernel_spec(Path(folder, "kernels/python3"))
        papermill.execute_notebook(
            snakemake.input.notebook,
            working,
            parameters=parameters,
            kernel_name="python3",
            cwd=ROOT,
            progress_bar=False,
            log_output=True,
            config=Config(KernelManager=files),
            extra_arguments=["--log-level=CRITICAL"],  # errors of cells are seen anyway
        )
    page = notebook_page(working, name)
    Path(snakemake.output.html).write_text(page, encoding="utf-8")
    shutil.move(working, snakemake.output.notebook)  # perhaps to another file system
    # Only now: had anything failed before, snakemake would have deleted the finished training.
    for folder in {Path(file).parent for file in snakemake.output}:
        for checkpoint in folder.glob("checkpoint-*"):
            checkpoint.unlink()
except papermill.PapermillExecutionError as error:
    fail(name, f"{name}: {error.ename}: {error.evalue} (the failing cell: {working})")
except RuntimeError as error:
    if "Kernel died" not in str(error):
        raise
    fail(name, f"{name}: its kernel was killed, as happens when memory runs out; {AGAIN}")
except OSError as error:
    where = f" to {error.filename}" if error.filename else ""
    fail(name, f"{name}: cannot write{where}: {error.strerror}; mend that, then {AGAIN}")
finally:
    done.set()
