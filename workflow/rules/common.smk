# Settings, names and helpers that the other rule files share.
import sys
import time
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from snakemake.exceptions import WorkflowError

from sdcpd import backend, data, runs

# ------------------------------------------------------------------------------ configuration

SCALES = ("auto", "paper", "quick", "smoke")
if config["scale"] not in SCALES:
    raise WorkflowError(f"scale={config['scale']} is unknown: choose one of {', '.join(SCALES)}")
if config["backend"] == "cupy" and backend.gpu_problem():
    raise WorkflowError(f"backend=cupy asked for, but {backend.gpu_problem()}")

GPU = config["backend"] != "numpy" and backend.gpu_problem() is None
BACKEND = "cupy" if GPU else "numpy"
SCALE = config["scale"] if config["scale"] != "auto" else ("paper" if GPU else "quick")
RESULTS = f"results/{SCALE}"
GROUP = config["hyperparameters"]
ENVIRONMENT = "../../envs/environment.yaml"

with open("workflow/config/paper.yaml") as file:
    PAPER = yaml.safe_load(file)["experiments"]
with open("workflow/config/hyperparameters.yaml") as file:
    HYPERPARAMETERS = yaml.safe_load(file)
with open("workflow/config/datasets.yaml") as file:
    DATASETS = yaml.safe_load(file)


def check_schema(name, values):
    """One line for the first violation; snakemake's own validate() prints the whole schema."""
    with open(f"workflow/schemas/{name}.schema.yaml") as file:
        error = best_match(Draft202012Validator(yaml.safe_load(file)).iter_errors(values))
    if error:
        where = ".".join(str(part) for part in error.absolute_path)
        raise WorkflowError(f"{name}: {where + ': ' if where else ''}{error.message}")


def check_config():
    """Unknown keys, wrong types and missing hyperparameters are errors, each in one line."""
    check_schema("hyperparameters", HYPERPARAMETERS)
    check_schema("datasets", DATASETS)
    check_schema("config", config)
    groups = HYPERPARAMETERS["hyperparameters"]
    if GROUP not in groups:
        raise WorkflowError(f"hyperparameters={GROUP} is unknown: choose one of {', '.join(groups)}")
    for name, experiment in config["experiments"].items():
        data.files_of(experiment["dataset"])  # an unknown dataset is an error here


def announce():
    """What this call will do, in a few lines."""
    device = "GPU (CuPy)" if GPU else "CPU (NumPy)"
    why = backend.gpu_problem() if not GPU and config["backend"] == "auto" else None
    print(f"scale {SCALE}, {device}{f': {why}' if why else ''}", file=sys.stderr)


# ----------------------------------------------------------------------------- names of runs


def run_folder(experiment, algorithm, n_hidden, group):
    return f"{RESULTS}/runs/{experiment}/{group}/{algorithm}-{n_hidden}h"


def run_files(experiment, n_hidden, group=None, parts=("run.json", "curve.csv")):
    """The named parts of the run files of all algorithms of an experiment."""
    return [
        f"{run_folder(experiment, algorithm, n_hidden, group or GROUP)}/{part}"
        for algorithm in config["experiments"][experiment]["algorithms"]
        for part in parts
    ]


def run_folders(experiment, n_hidden, group=None):
    return [str(Path(f).parent) for f in run_files(experiment, n_hidden, group, ["run.json"])]


def large_n_hidden(experiment):
    """Hidden units of an experiment that the paper makes with one size only."""
    return config["experiments"][experiment]["n_hidden"][0]


def data_files(experiment):
    """Downloaded files that an experiment needs; none for Bars & Stripes."""
    return [f"data/{file}" for file in data.files_of(config["experiments"][experiment]["dataset"])]


def sources(*modules):
    """Source files as inputs, so that a change in one reruns what it decides."""
    return [f"src/sdcpd/{module}.py" for module in modules]


# --------------------------------------------------------------------------------- failures

STARTED = time.time()
FAILURES = Path("logs/failures")


def summarize_failures():
    """The last words after a failure: what failed, why and what could therefore not be made."""
    failures = [f for f in sorted(FAILURES.glob("*.txt")) if f.stat().st_mtime > STARTED]
    lines = ["", "Some jobs failed; everything that does not depend on them was made."]
    lines += [f"  failed: {failure.read_text().strip()}" for failure in failures]
    wanted = [f for f in rules.all.input if not Path(f).exists()]
    if wanted:
        lines += [f"  not made: {', '.join(wanted)}"]
    lines += ["Run the same command again afterwards: what is finished is kept."]
    print("\n".join(lines), file=sys.stderr)
