"""The workflow as a user runs it, in copies of the project: what several test files share."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from sdcpd import ROOT

DATA = Path(os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data")
TOGETHER = "train_bars_and_stripes_as_published_4h"  # one job of all algorithms
CD = "results/smoke/runs/bars_and_stripes/as_published/cd-4h"  # the smallest job


def copy_project(folder):
    """As a fresh clone is, though the workflow may have run in this one; with compiled kernels."""

    def ignored(place, names):
        if Path(place) == ROOT:
            made = {".git", ".venv", ".snakemake", "data", "results", "logs", "report.html"}
        else:
            made = {*names} - {"README.md"} if Path(place) == ROOT / "figures" else set()
        compiled = {name for name in names if name.endswith(".pyc")}
        return ({*names} & made) | compiled

    shutil.copytree(ROOT, folder, symlinks=True, ignore=ignored)
    return folder


def with_algorithms(project, names, epochs=40):
    """The copy, in which Bars & Stripes has only these algorithms, for so many epochs."""
    path = project / "workflow/config/smoke.yaml"
    changed = f"epochs: {epochs}\n    algorithms: [{', '.join(names)}]\n"
    path.write_text(path.read_text().replace("epochs: 40\n", changed, 1))
    return project


def command(*arguments, config=()):
    program = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor"]
    return [*program, *arguments, "--config", "scale=smoke", *config]


def environment(project, **changes):
    # The copy's own package, not the one that is installed from the checkout.
    own = {"PYTHONPATH": str(project / "src"), "SDCPD_DATA_MIRROR": str(DATA)}
    return os.environ | own | changes


def run(project, *arguments, config=(), **changes):
    """Run snakemake in the copy; its exit status and all that it printed."""
    done = subprocess.run(
        command(*arguments, config=config),
        cwd=project,
        env=environment(project, **changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    return done.returncode, done.stdout


def check_refused(words, project, *arguments, **changes):
    """Assert that a call of snakemake ends at once, for a reason that one line tells."""
    status, printed = run(project, *arguments, **changes)
    lines = [line for line in printed.splitlines() if words in line]
    assert status != 0 and len(lines) == 1 and "Traceback" not in printed, printed[-3000:]


def jobs(printed):
    """Number of jobs of each rule in a dry run."""
    table = re.search(r"Job stats:\njob +count\n[- ]+\n(.*?)\n\n", printed, re.S)
    rows = (line.split() for line in table[1].splitlines()) if table else ()
    return {name: int(count) for name, count in rows if name not in ("total", "all")}


def failures(printed):
    """What the last lines say of the jobs that failed."""
    return [line for line in printed.splitlines() if line.startswith("  failed: ")]


def have_data():
    """Whether all data files are at hand, in the mirror or already downloaded."""
    catalogue = yaml.safe_load((ROOT / "workflow/config/datasets.yaml").read_text())
    return all((DATA / file).exists() for file in catalogue["files"])
