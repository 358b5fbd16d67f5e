"""benchmarks/study.py, the archive that it fills, and the workflow that reads it."""

import importlib
import json
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
import yaml
from project import copy_project, environment, run, with_algorithms

from sdcpd import ROOT, runs


def command(project, name, *arguments):
    where = "--scale smoke --folder results/by_hand --nice 0 --experiments bars_and_stripes"
    program = [sys.executable, "benchmarks/study.py", name, *where.split(), *arguments]
    return {"args": program, "cwd": project, "env": environment(project), "text": True}


def study(*arguments):
    done = subprocess.run(**command(*arguments), check=True, timeout=600, stdout=subprocess.PIPE)
    return done.stdout


def test_study_fills_the_archive_that_the_workflow_reads(tmp_path):
    """On Bars & Stripes with two algorithms, killed once; then figures from the archive alone."""
    algorithms = "cg", "sdcp_d"
    fresh = with_algorithms(copy_project(tmp_path / "project"), algorithms)
    shutil.rmtree(fresh / "workflow/archive")
    made = fresh / "results/by_hand"
    with subprocess.Popen(**command(fresh, "run", "--cores", "2")) as killed:
        while not list(made.glob("sweeps/*/tuning/*/run.json")):
            time.sleep(0.1)
        killed.send_signal(signal.SIGSTOP)  # or a fast machine is done before it is killed
        with pytest.raises(subprocess.CalledProcessError):  # it is at work there
            study(fresh, "run")
        killed.kill()
    time.sleep(1)  # for its pieces, which end with it
    stopped = study(fresh, "status")
    lines = stopped.splitlines()
    assert "running" not in stopped and lines[-1].endswith("hours of one core")
    assert any("1 of 1 done" in line for line in lines)
    assert any("0 of 1 done, 1 left" in line for line in lines)
    *lines, last = study(fresh, "run", "--cores", "2").splitlines()  # and then its status
    lines = [line for line in lines if "1 of 1 done, 0.0" in line]
    assert len(lines) == 4 * 2 + 1 + 2 and last.endswith(" 0.0 hours of one core")

    for name in ("archive", "adopt"):
        study(fresh, name)
    known = yaml.safe_load((fresh / "workflow/config/hyperparameters.yaml").read_text())
    tuned = known["hyperparameters"]["tuned_final"]["bars_and_stripes_4h"]
    assert set(tuned) == {*algorithms}
    names = ("fig1_bars_and_stripes", "figS_bars_and_stripes_4h_tuned_speed")
    names += ("figS_tuning_bars_and_stripes_4h", "figS_sensitivity_bars_and_stripes")
    targets = [f"figures/{name}.svg" for name in names]
    status, printed = run(fresh, *targets, config=["runs=archive"])
    assert status == 0, printed[-3000:]
    assert not list((fresh / "results/smoke").glob("runs/*"))
    said = [(fresh / target).read_text() for target in targets]
    assert all("archived runs" in text for text in said) and "step-matched" in said[1]
    # What is adopted is what the notebook would choose.
    path = fresh / "results/notebooks/figS_tuning_bars_and_stripes_4h.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output.get("text", "") for cell in cells for output in cell.get("outputs", [])]
    assert not [text for text in outputs if "snakemake --cores all adopt" in text]


RATES = {"learning_rate": [0.1, 0.3, 0.5]}
SMALL = {"n_hidden": [3], "algorithms": ["cd", "pcd"], "trials": 3, "epochs": 6}
SMALL |= {"evaluate": {"every": 2, "also": [0]}, "ais": {"n_particles": 5, "n_temperatures": 10}}


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """The module, and a function entries -> Study of these entries on small models with AIS."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("study")
    monkeypatch.setattr(module.tuning.compare, "doubts", lambda run: "")  # AIS of 5 particles

    def make(*entries):
        options = {"scale": "smoke", "folder": tmp_path, "backend": "numpy"}
        options |= {"nice": 0, "cores": 1}
        made = module.Study(SimpleNamespace(experiments=["bars_and_stripes"], **options))
        made.config["experiments"]["bars_and_stripes"] |= SMALL
        changes = {"trials": 1, "epochs": 4, "rounds": [[2, 1]], "evaluate": SMALL["evaluate"]}
        made.config["tuning"]["experiments"]["bars_and_stripes"] = changes
        made.config["tuning"]["grids"]["bars_and_stripes"] = {"cd": RATES, "pcd": RATES}
        made.config["study"] = {"models_at": [4], "experiments": {"bars_and_stripes": [*entries]}}
        return made

    return module, make


def make_all(module, study):
    """Every piece, as `run` makes them, in this process; their names."""
    names = []
    while todo := [p for p in study.pieces() if p.is_known and not p.is_done]:
        names.append(todo[0].name)
        module.make(study, todo[0])
        module.collect(study.pieces())
    return names


def test_trials_come_one_by_one_and_more_and_longer_ones_cost_only_what_is_new(planned):
    module, make = planned
    short = {"groups": ["as_published"], "algorithms": ["cd", "pcd"], "epochs": 2, "trials": 2}
    long = {"groups": ["as_published"], "algorithms": ["cd"], "trials": 1}
    cd, short_cd = "bars_and_stripes 3h as_published cd", "bars_and_stripes 3h as_published_2 cd"
    first = make(short, long)
    names = make_all(module, first)
    short_pcd = short_cd.replace("cd", "pcd")
    both = [f"{line}, trial {t}" for t in (0, 1) for line in (short_cd, short_pcd)]
    assert names == [*both, f"{cd}, trial 0"]
    place = first.folder / "runs/bars_and_stripes"
    one = runs.load(place / "as_published/cd-3h")
    assert one.wall["resumed_at_update"] == 2 and one.curve["update"].max() == 6
    assert len(list(first.folder.rglob("model-4-0.npz"))) == 1
    more = make(short, long, short | {"trials": 3}, long | {"trials": 2})
    assert len(more.pieces()) == 8
    names = make_all(module, more)
    assert names == [f"{short_cd}, trial 2", f"{short_pcd}, trial 2", f"{cd}, trial 1"]
    for group, epochs, trials in (("as_published", 6, 2), ("as_published_2", 2, 3)):
        which = "bars_and_stripes", "as_published", "cd", 3
        straight = module.experiments.run_settings(more.config, more.written, *which)
        straight |= {"epochs": epochs, "trials": trials}
        whole = first.folder / "whole"
        runs.execute(straight, whole, "numpy")
        for name in ("curve.csv", "models.npz", "run.json"):
            found = place / group / "cd-3h" / name
            assert found.read_bytes() == (whole / name).read_bytes()


def test_what_is_archived_is_not_made_again_on_another_machine(planned, tmp_path, monkeypatch):
    """Trials go on after those of the archive, which keeps one model; a sweep comes from there.

    A group with the values of one that is archived has its trials from there, too.
    """
    module, make = planned
    monkeypatch.setattr(module.archive, "FOLDER", tmp_path / "archive")
    tuning, group = {"sweep": "tuning"}, {"groups": ["as_published"], "algorithms": ["cd"]}
    first = make(tuning, group | {"trials": 2})
    make_all(module, first)
    module.archive_(first)
    other = make(tuning, group | {"trials": 4, "groups": ["as_published", "again"]})
    other.written |= {"again": other.written["as_published"]}
    other.folder = tmp_path / "other"
    module.collect(other.pieces())
    names = make_all(module, other)
    assert names == [f"bars_and_stripes 3h as_published cd, trial {trial}" for trial in (2, 3)]
    place = "runs/bars_and_stripes/as_published/cd-3h"
    settings = module.archive.settings_of(other.folder / place)
    whole = runs.execute(settings, tmp_path / "whole", "numpy")
    assert settings["trials"] == 4
    again = other.folder / place.replace("as_published", "again")
    assert settings == module.archive.settings_of(again)
    made = (other.folder / place / "curve.csv").read_bytes()
    assert made == (tmp_path / "whole/curve.csv").read_bytes()
    rows = module.archive.FOLDER / "quality/bars_and_stripes-as_published-3h/measurements.csv"
    rows.parent.mkdir(parents=True)
    rows.write_text("of earlier trials")
    found = []

    def add_rows(finished, folder, **how):
        found.append((folder / rows.name).read_text())
        return pd.DataFrame()

    module.measure(other, "quality", ["as_published", "tuned_final"], add_rows, {})
    assert found == ["of earlier trials"]
    merged = runs.load(other.folder / place)
    assert len(merged.trials) == 3 and {2, 3} < {*merged.trials}
    module.archive_(other)
    theta, trial = runs.load(module.archive.FOLDER / place).best()
    assert trial == whole.best()[1]
    np.testing.assert_allclose(theta.W, whole.best()[0].W, rtol=1e-3, atol=1e-3)


def test_tuned_runs_wait_for_their_tuning_and_share_what_is_equal(planned, capsys):
    module, make = planned
    study = make({"sweep": "tuning"}, {"groups": ["tuned_speed", "tuned_final"], "trials": 1})
    assert [piece.is_known for piece in study.pieces()] == [True] * 2 + [False] * 4
    module.print_status(study)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("0 of 1 done, 1 left")
    assert printed[2].endswith("0 of 1 done, 1 left, waits for the tuning")
    names = make_all(module, study)
    assert names[:2] == ["bars_and_stripes 3h tuning cd", "bars_and_stripes 3h tuning pcd"]
    place = study.folder / "sweeps/bars_and_stripes/tuning"
    sweeps = [runs.load_sweep(place / f"{algorithm}-3h") for algorithm in ("cd", "pcd")]
    chosen = module.tuning.choose(module.tuning.table(sweeps), 2)
    different = {(a, *v.values()) for g in module.experiments.TUNED for a, v in chosen[g].items()}
    assert len(names) == 2 + len(different)
    for group in module.experiments.TUNED:
        for algorithm, values in chosen[group].items():
            run = runs.load(study.folder / f"runs/bars_and_stripes/{group}/{algorithm}-3h")
            assert run.settings["hyperparameters"] == values
    module.print_status(study)
    assert capsys.readouterr().out.count("1 of 1 done") == 6


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
    study.table1(what)
    record = json.loads((tmp_path / "timing/table1.json").read_text())
    assert record["seconds"]["Large datasets"]["cd"][1] == before["Large datasets, 1"]["cd"]
    assert "to the end: {'sdcp_d'" in capsys.readouterr().out and not kept.exists()
