"""benchmarks/study.py, the archive that it fills, and the workflow that reads it."""

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from project import copy_project, environment, run

from sdcpd import ROOT


def test_study_fills_the_archive_that_the_workflow_reads(tmp_path):
    """Every piece of benchmarks/study.py on Bars & Stripes; then figures from the archive alone."""
    fresh = copy_project(tmp_path / "project")
    shutil.rmtree(fresh / "workflow/archive")

    def study(piece):
        program = [sys.executable, "benchmarks/study.py", piece, "--scale", "smoke"]
        program += ["--experiments", "bars_and_stripes", "--folder", "results/by_hand"]
        subprocess.run(program, cwd=fresh, env=environment(fresh), check=True, timeout=300)

    for piece in ("tuning", "archive", "adopt", "tuned", "as_published", "sensitivity", "log_z"):
        study(piece)
    study("archive")
    known = yaml.safe_load((fresh / "workflow/config/hyperparameters.yaml").read_text())
    tuned = known["hyperparameters"]["tuned_final"]["bars_and_stripes_4h"]
    assert set(tuned) == {"cd", "pcd", "cg", "sdcp", "sdcp_d"}
    targets = [f"figures/{name}.pdf" for name in ("fig1_bars_and_stripes",)]
    targets += ["figures/figS_bars_and_stripes_4h_tuned_speed.pdf"]
    targets += ["figures/figS_tuning_bars_and_stripes_4h.pdf"]
    targets += ["figures/figS_sensitivity_bars_and_stripes.pdf"]
    status, printed = run(fresh, *targets, config=["runs=archive"])
    assert status == 0, printed[-3000:]
    assert not list((fresh / "results/smoke").glob("runs/*"))
    assert "step-matched" in Path(fresh / targets[1]).with_suffix(".svg").read_text()
    for target in targets:
        assert "archived runs" in Path(fresh / target).with_suffix(".svg").read_text(), target
    # What is adopted is what the notebook would choose.
    path = fresh / "results/smoke/notebooks/figS_tuning_bars_and_stripes_4h.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    said = [o.get("text", "") for cell in cells for o in cell.get("outputs", [])]
    assert not [text for text in said if "snakemake --cores all adopt" in text]
    # and finished pieces are not run again
    before = {f: f.stat().st_mtime for f in (fresh / "results/by_hand").rglob("run.json")}
    study("tuning")
    assert before == {f: f.stat().st_mtime for f in (fresh / "results/by_hand").rglob("run.json")}


def test_table1_is_kept_while_it_is_measured(tmp_path, monkeypatch, capsys):
    """Beside its place; there it is whole."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    study = importlib.import_module("study")
    model = {"n_visible": 9, "n_hidden": 4, "batch_size": 5, "n_gibbs_steps": 2}
    model |= {"n_inner_iterations": 2, "n_gibbs_steps_inner": 1, "n_updates": 3}
    model["total_updates"] = 10
    timing = {"trials": 2, "bars_and_stripes": model, "large": model, "whole": ["sdcp_d"]}
    what = SimpleNamespace(folder=tmp_path, backend="numpy", config={"timing": timing})
    kept = tmp_path / "timing/table1.part"
    with monkeypatch.context() as changed, pytest.raises(FileExistsError):
        changed.setattr(study, "whole_file", lambda path: kept.mkdir())  # fails at the end
        study.table1(what)
    before = json.loads(kept.read_text())["measured"]
    assert list(before) == [
        *("Bars & Stripes, 0", "Bars & Stripes, 1", "Large datasets, 0", "Large datasets, 1"),
        "sdcp_d to the end, 0",
    ]
    study.table1(what)
    record = json.loads((tmp_path / "timing/table1.json").read_text())
    assert record["seconds"]["Large datasets"]["cd"][1] == before["Large datasets, 1"]["cd"]
    assert "to the end: {'sdcp_d'" in capsys.readouterr().out and not kept.exists()
