"""The examples of CONTRIBUTING.md, carried out in a copy of the project."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from project import TOGETHER, copy_project, environment, have_data, jobs, run

from sdcpd import ROOT, runs

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the examples use sed")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return copy_project(tmp_path_factory.mktemp("contributing") / "project")


def example(title):
    """The blocks (language, content) of a section, in their order."""
    section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", TEXT, re.M | re.S)[1]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.M | re.S)


def change(project, diff):
    """What a diff says: in each hunk, the lines with − become those with +."""
    path = project / re.search(r"^\+\+\+ b/(.*)$", diff, re.M)[1]
    content = path.read_text(encoding="utf-8")
    for hunk in diff.split("@@\n")[1:]:
        lines = hunk.splitlines(keepends=True)
        old, new = ("".join(x[1:] for x in lines if x[0] in signs) for signs in (" -", " +"))
        assert content.count(old) == 1, old
        content = content.replace(old, new)
    path.write_text(content, encoding="utf-8")


def carry_out(project, title):
    """The section's blocks, one after the other; what the commands printed."""
    printed = ""
    for language, content in example(title):
        if language == "diff":
            change(project, content)
            continue
        python = sys.executable
        content = content.replace("uv run python", python).replace("uv run", f"{python} -m")
        how = {"cwd": project, "env": environment(project), "capture_output": True, "text": True}
        done = subprocess.run(["bash", "-e", "-c", content], timeout=300, **how)
        assert done.returncode == 0, done.stderr[-3000:]
        printed += done.stdout
    return printed


@pytest.mark.skipif(not have_data(), reason="no files of the large datasets")
def test_dataset(project):
    assert "300 pixels" not in carry_out(project, "A dataset")
    result = runs.load(project / "results/by_hand/mine-sdcp_d-10h")
    assert result.theta.W.shape == (1, 10, 36) and (result.curve.status == "ok").all()
    result = runs.load(project / "results/smoke/runs/kannada_dark/as_published/cd-20h")
    assert result.settings["dataset"] == "kannada_mnist_dark"
    assert (1 / (1 + np.exp(-result.theta.b)) > 0.5).mean() > 0.5  # most of an image is on


def test_algorithm(project):
    """It learns."""
    carry_out(project, "An algorithm")
    result = runs.load(project / "results/by_hand/bars_and_stripes-momentum-4h")
    assert result.settings["algorithm"] == "momentum"
    first, *_, last = result.curve.test
    assert last > first + 1.5


def test_figure(project):
    """Its training and the figure are planned; nothing else."""
    ((_, commands),) = example("A figure")
    edit, snakemake = commands.splitlines()
    subprocess.run(edit, shell=True, cwd=project, check=True)
    _, printed = run(project, "-n", snakemake.split()[-1], config=["scale=quick"])
    assert jobs(printed) == {TOGETHER.replace("4h", "6h"): 1, "curves": 1}, printed[-2000:]
