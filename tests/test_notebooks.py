"""The notebooks opened by hand, with the parameters that stand in them."""

import papermill
from project import copy_project, environment

NAMES = ("train", "curves", "samples", "timing", "validation", "anchor", "sweep", "tune")
NAMES += ("sensitivity", "hidden_modes", "refuted", "claims")


def test_notebooks_run_by_hand_with_their_own_parameters(tmp_path, monkeypatch):
    fresh = copy_project(tmp_path / "project")
    for name, value in environment(fresh).items():
        monkeypatch.setenv(name, value)
    folder = fresh / "notebooks"
    how = {"kernel_name": "python3", "cwd": folder, "progress_bar": False, "execution_timeout": 300}
    for name in NAMES:
        papermill.execute_notebook(folder / f"{name}.ipynb", tmp_path / f"{name}.ipynb", **how)
    assert (fresh / "results/by_hand/train/run.json").exists()
