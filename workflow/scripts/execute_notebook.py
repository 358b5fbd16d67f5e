"""Run a rule's notebook through papermill and make its HTML.

The rule gives ``input.notebook``, ``output.notebook``, ``output.html``, ``params.parameters`` and
a log. The notebook is executed beside the log, where it survives a failure with the failing cell
in it, and is moved to its place when it has succeeded.
"""

import logging
import os
import sys
import tempfile
import threading
from pathlib import Path

import devices
import papermill
from failures import fail
from pages import notebook_page
from traitlets.config import Config

ROOT = Path.cwd()
log = Path(snakemake.log[0])
log.unlink(missing_ok=True)
name = log.stem
working = log.with_suffix(".ipynb")
parameters = dict(snakemake.params.parameters)
os.environ["PYTHONPATH"] = str(ROOT / "src")
os.environ["SDCPD_PROGRESS_LOG"] = str(ROOT / log)
# Figures come out byte-identical, and the kernel needs nothing from the user's home folder, which
# may hold other settings, or not be writable.
os.environ |= {"SOURCE_DATE_EPOCH": "0", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
os.environ["MPLCONFIGDIR"] = str(ROOT / ".snakemake/matplotlib")
os.environ |= {"JUPYTER_PLATFORM_DIRS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


def echo_progress(done):
    """Copy progress lines, which the notebook writes to the log, to the terminal."""
    position = 0
    while not done.wait(1):
        if log.exists():
            with log.open() as file:
                file.seek(position)
                fresh = file.read()
                position = file.tell()
            sys.stderr.writelines(
                ln for ln in fresh.splitlines(True) if "%|" in ln or ln.startswith("note: ")
            )


devices.take(snakemake.resources.get("gpu", 0))
known = papermill.inspect_notebook(snakemake.input.notebook)
unknown = sorted(set(parameters) - set(known))
if unknown:
    fail(name, f"{snakemake.input.notebook} has no parameter {', '.join(unknown)}")

logging.basicConfig(filename=log, level=logging.WARNING, format="%(asctime)s %(message)s")
logging.getLogger("papermill").setLevel(logging.INFO)
done = threading.Event()
threading.Thread(target=echo_progress, args=[done], daemon=True).start()
try:
    # The kernel is talked to through files: of TCP ports, kernels that start at once may take the
    # same. The system allows their names 100 characters or so.
    short = tempfile.gettempdir() if len(tempfile.gettempdir()) < 60 else "/tmp"
    with tempfile.TemporaryDirectory(prefix="sdcpd-", dir=short) as folder:
        files = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
        os.environ["IPYTHONDIR"] = folder
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
except papermill.PapermillExecutionError as error:
    fail(name, f"{name}: {error.ename}: {error.evalue} (the failing cell: {working})")
finally:
    done.set()

Path(snakemake.output.html).write_text(notebook_page(working, name), encoding="utf-8")
working.replace(snakemake.output.notebook)
