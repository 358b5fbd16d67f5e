"""The notebooks opened by hand, with the parameters that stand in them."""

import subprocess
import sys

from project import copy_project, environment


def test_notebooks_run_by_hand_with_their_own_parameters(tmp_path):
    fresh = copy_project(tmp_path / "project")
    folder = fresh / "notebooks"
    names = ("train", "curves", "samples", "timing", "validation", "anchor", "sweep", "tune")
    for name in (*names, "sensitivity", "hidden_modes", "refuted", "claims"):
        papermill = [sys.executable, "-m", "papermill", "-k", "python3", "--no-progress-bar"]
        subprocess.run(
            [*papermill, f"{name}.ipynb", tmp_path / f"{name}.ipynb"],
            cwd=folder,
            env=environment(fresh),
            check=True,
            capture_output=True,
            timeout=300,
        )
    assert (fresh / "results/by_hand/train/run.json").exists()
