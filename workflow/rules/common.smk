# The configuration and its checks; what is said at the start and after a failure.
import fcntl
import getpass
import os
import shlex
import shutil
import sys
import time
from math import prod
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError

import sdcpd
from sdcpd import data, engines, experiments
from sdcpd.sources import content_of, sources_of, sources_of_module

sys.path[:0] = ["workflow", "workflow/scripts"]
import catalogue
import schema

# Snakemake fills in braces, and a colon ends an entry of PYTHONPATH.
if {*"{}:"} & {*os.getcwd()}:
    raise WorkflowError(f"{os.getcwd()}: rename the folder, its path must not have {{, }} or :")
if sdcpd.ROOT != Path.cwd().resolve():
    raise WorkflowError(
        f"the package in use is that of {sdcpd.ROOT}, not of this folder: where this is a copy, "
        "delete its .venv; leave out --no-editable; then run the same command again"
    )


# On a cluster it runs where the workflow does: there is the internet.
localrules:
    download,


# Snakemake asks for the user's name, and a user id of a container may have none.
try:
    getpass.getuser()
except (KeyError, OSError):
    os.environ.update(LOGNAME="nobody")

# ------------------------------------------------------------------------------ configuration

SCALES = ("auto", "paper", "quick", "smoke")
if config["scale"] not in SCALES:
    raise WorkflowError(f"scale={config['scale']} is unknown: choose one of {', '.join(SCALES)}")


def choose_engine():
    """The engine that the jobs use, and why it is not a faster one (a line, or None).

    One that is named is tried here only where the jobs run here too: not where they are submitted
    to other machines (--jobs, as in profiles/slurm), and not in a job, which will find out.
    """
    name = config["backend"]
    if not workflow.is_main_process:
        name = os.environ.get("SDCPD_BACKEND", name)
    if name in engines.NAMES and (SUBMITTED or not workflow.is_main_process):
        return name, "as named, not tried on this machine"
    try:
        return engines.choose_apart(name)
    except engines.BackendError as error:
        raise WorkflowError(str(error))


SUBMITTED = workflow.resource_settings.nodes is not None
BACKEND, WHY_NOT_FASTER = choose_engine()
if workflow.is_main_process:
    # For the jobs. One that is submitted has a GPU of its own.
    at_once = 1 if SUBMITTED else workflow.global_resources.get("gpu").value or 1
    os.environ |= {"SDCPD_BACKEND": BACKEND, "SDCPD_GPU_JOBS": str(at_once)}
sys.executable = shlex.quote(sys.executable)  # snakemake gives it to a shell as it is
GPU_JOBS = int(os.environ.get("SDCPD_GPU_JOBS", 1))
GPU = BACKEND.startswith("cupy")
SCALE = config["scale"] if config["scale"] != "auto" else ("paper" if GPU else "quick")
RESULTS = f"results/{SCALE}"
GROUP = config["hyperparameters"]
ENVIRONMENT = "../../envs/environment.yaml"

GROUPS = experiments.read_hyperparameters()
with open("workflow/config/datasets.yaml", encoding="utf-8") as file:
    DATASETS = yaml.safe_load(file)


def check_schema(name, values):
    if (found := schema.violation(name, values)) is not None:
        raise WorkflowError(found)


def check_config():
    """Unknown keys, wrong types and missing hyperparameters are errors, each in one line."""
    check_schema("hyperparameters", {"hyperparameters": GROUPS})
    check_schema("datasets", DATASETS)
    check_schema("config", config)
    if GROUP not in GROUPS:
        raise WorkflowError(
            f"hyperparameters={GROUP} is unknown: choose one of {', '.join(GROUPS)}"
        )
    for experiment in config["experiments"].values():
        data.files_of(experiment["dataset"])  # an unknown dataset is an error here
    for experiment, grids in config["tuning"]["grids"].items():
        sizes = {prod(map(len, grid.values())) for grid in grids.values()}
        if len(sizes) > 1:
            raise WorkflowError(
                f"tuning.grids.{experiment}: every algorithm must get the same number of settings, "
                f"not {' and '.join(map(str, sorted(sizes)))}"
            )


def announce():
    """What this call will do, in a few lines."""
    if config["backend"] == "auto" and not workflow.local_exec:
        # file names and parameters depend on it: every machine must find the same
        raise WorkflowError(
            "the jobs run on other machines: name their engine, --config backend=cupy (a GPU) or "
            "backend=numba (none)"
        )
    why = f" ({WHY_NOT_FASTER})" if WHY_NOT_FASTER else ""
    print(
        f"scale {SCALE}, on the {'GPU' if GPU else 'CPU'}, engine {BACKEND}{why}", file=sys.stderr
    )
    if CATALOGUE.uses_archive:
        print(
            "finished runs are taken from workflow/archive where it has them; "
            "--config runs=train trains them",
            file=sys.stderr,
        )


NEEDED = 100e6  # bytes of disk: enough for everything that is made without a GPU


def check_folders():
    """Refuse, before any work is done, a disk that is full and a folder that cannot be written to."""
    for name in (".snakemake", "logs", "data", "results", "figures"):
        path = Path(name).resolve()
        while not path.exists():
            path = path.parent
        if not os.access(path, os.W_OK | os.X_OK):
            raise WorkflowError(
                f"{path} cannot be written to: make it writable, or copy the project to a folder "
                "of your own"
            )
        free = shutil.disk_usage(path).free
        if free < NEEDED:
            raise WorkflowError(
                f"the disk is full: {free / 1e6:.0f} MB are left in {path}, at least "
                f"{NEEDED / 1e6:.0f} MB are needed; make room and run the same command again"
            )


def clear_stale_locks():
    """Remove the locks that a killed snakemake left behind, unless another one is running.

    A running one holds a file lock, which the system takes away when the process dies, however.
    """
    Path(".snakemake").mkdir(exist_ok=True)
    handle = open(".snakemake/running", "a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.seek(0)
        print(
            f"note: another snakemake is at work in this folder (process {handle.read()}): wait for "
            "it, or stop it",
            file=sys.stderr,
        )
        return None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    for lock in Path(".snakemake/locks").glob("*"):
        lock.unlink()
    return handle


os.environ.update(SDCPD_SNAKEMAKE=str(os.getpid()))  # when it is gone, its jobs must end

# Not in the processes of the jobs: on another machine they may not see that this one holds the lock.
if workflow.is_main_process:
    check_folders()
    RUNNING = clear_stale_locks()  # held until this process ends

# --------------------------------------------------------------------------------- failures

STARTED = time.time()
FAILURES = Path("logs/failures")


def summarize_failures():
    """The last words after a failure: what failed, why and what could therefore not be made."""
    failures = [f for f in sorted(FAILURES.glob("*.txt")) if f.stat().st_mtime > STARTED]
    lines = ["", "Some jobs failed; everything that does not depend on them was made."]
    said = [failure.read_text(encoding="utf-8").strip() for failure in failures]
    lines += [f"  failed: {text}" for text in said]
    asked = {str(file) for job in workflow.dag.jobs for file in job.output}
    wanted = [f for f in rules.all.input if f in asked and not Path(f).exists()]
    if wanted:
        lines += [f"  not made: {', '.join(wanted)}"]
    lines += ["Run the same command again afterwards: what is finished is kept."]
    print("\n".join(lines), file=sys.stderr)
