"""Sweeps: each setting is the run made alone; their files, and how damaged ones are refused."""

import json

import pandas as pd
import pytest
from test_runs import execute, execute_sweep, killed_at, run_files, settings, sweep_of

from sdcpd import runs

SWEEPS = {
    "cd": sweep_of("cd", 0.1, 0.3, n_gibbs_steps=2),
    "sdcp_d": sweep_of("sdcp_d", 0.2, 0.05, 0.4, trials=1),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_each_setting_of_a_sweep_is_the_run_made_alone(name, tmp_path):
    """And comes back from its file."""
    given, folder = SWEEPS[name], tmp_path / "new"
    sweep = execute_sweep(given, folder)
    assert len(sweep) == len(given["hyperparameters"])
    for run, values in zip(sweep, given["hyperparameters"], strict=True):
        alone = given | {"hyperparameters": values}
        assert run.settings == alone and run.theta is None
        expected = runs.execute(alone, None, "numpy").curve
        pd.testing.assert_frame_equal(run.curve, expected, check_exact=True)
    assert sorted(run_files(folder)) == sorted(runs.SWEEP_FILES)
    assert json.loads((folder / "run.json").read_text())["settings"] == given
    for run, loaded in zip(sweep, runs.load_sweep(folder), strict=True):
        assert loaded.settings == run.settings and loaded.theta is None
        assert (loaded.provenance, loaded.wall) == (run.provenance, run.wall)
        curve = loaded.curve.reset_index(drop=True)  # seven digits
        pd.testing.assert_frame_equal(run.curve, curve, check_dtype=False, rtol=1e-6, atol=0)


def test_interrupted_sweep_goes_on(tmp_path):
    given = SWEEPS["sdcp_d"]
    undisturbed = execute_sweep(given, tmp_path)
    written = (tmp_path / "curve.csv.gz").read_bytes()
    folder = tmp_path / "again"
    with killed_at(5):
        execute_sweep(given, folder)
    resumed = execute_sweep(given, folder)
    assert resumed[0].wall["resumed_at_update"] == 3
    for one, other in zip(resumed, undisturbed, strict=True):
        pd.testing.assert_frame_equal(one.curve, other.curve, check_exact=True)
    assert (folder / "curve.csv.gz").read_bytes() == written


def test_a_sweep_over_the_sliding_factor_is_refused():
    values = [{"learning_rate": 0.1, "sliding_factor": nu} for nu in (0.01, 0.1)]
    with pytest.raises(runs.RunError, match="sliding_factor"):
        execute_sweep(settings("cg", hyperparameters=values, n_inner_iterations=1))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_setting_that_diverges_disturbs_no_other(tmp_path):
    given = sweep_of("cd", 0.1, 1e3, 0.3)
    sweep = execute_sweep(given, tmp_path)
    for number in (0, 2):
        alone = given | {"hyperparameters": given["hyperparameters"][number]}
        expected = runs.execute(alone, None, "numpy").curve
        pd.testing.assert_frame_equal(sweep[number].curve, expected, check_exact=True)
    loaded = runs.load_sweep(tmp_path)
    diverged = [(run.curve.status == "diverged").sum() for run in loaded]
    assert diverged == [0, 2, 0] and len(loaded[1].curve) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda content: b"",
        lambda content: content[:-20],
        lambda content: content[:10] + b"\xff" + content[11:],
        lambda content: content[:-40] + bytes(4) + content[-36:],
    ],
    ids=["empty", "cut", "no such compression", "wrong values"],
)
def test_damaged_sweep(change, tmp_path):
    execute_sweep(sweep_of("cd", 0.1, 0.3), tmp_path)
    path = tmp_path / "curve.csv.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(runs.RunError, match="damaged") as error:
        runs.load_sweep(tmp_path)
    assert str(tmp_path) in str(error.value) and "\n" not in str(error.value)
    path.unlink()
    with pytest.raises(runs.RunError, match="curve.csv.gz is missing"):
        runs.load_sweep(tmp_path)


def test_a_run_is_no_sweep_and_a_sweep_no_run(tmp_path):
    execute(folder=tmp_path / "run")
    with pytest.raises(runs.RunError):
        runs.load_sweep(tmp_path / "run")
    execute_sweep(sweep_of("cd", 0.1), tmp_path)
    with pytest.raises(runs.RunError):
        runs.load(tmp_path)
