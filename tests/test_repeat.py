"""log Z estimated again, and the beginning of a run trained again."""

import json

import numpy as np
import pandas as pd
import pytest
from test_runs import settings

from sdcpd import archive, measurements, repeat, runs
from sdcpd.likelihood import exact_log_z

AIS = {"n_particles": 50, "n_temperatures": 60}
COLUMNS = ["algorithm", "trial", "n_temperatures", "seed", "log_z", "log_z_se", "ess"]


@pytest.fixture(scope="module")
def finished():
    """Two trials of CD and three of S-DCP-D, trained long enough to have something to estimate."""
    longer = {"epochs": 60, "evaluate": {"every": 30, "also": [0]}, "ais": AIS, "seed": 5}
    given = settings("cd", **longer), settings("sdcp_d", **longer, trials=3)
    return [runs.execute(each, None, "numpy") for each in given]


def estimate(finished, folder, trials=9, times=3):
    return repeat.estimate_log_z(finished, folder, 7, times, trials, "numpy")


def calls(monkeypatch):
    """The keyword arguments of every estimate from here on."""
    seen, original = [], repeat.annealed_log_z

    def spy(theta, mean, keys, **how):
        seen.append(how)
        return original(theta, mean, keys, **how)

    monkeypatch.setattr(repeat, "annealed_log_z", spy)
    return seen


# --------------------------------------------------------------------------------- log Z


def test_log_z_is_estimated_twice_for_each_model(finished, tmp_path):
    table = estimate(finished, tmp_path / "new" / "log_z")
    assert list(table.columns) == COLUMNS
    models = [("cd", 0), ("cd", 1), ("sdcp_d", 0), ("sdcp_d", 1), ("sdcp_d", 2)]
    expected = [(*model, n, 7) for model in models for n in (60, 180)]
    assert list(table[COLUMNS[:4]].itertuples(index=False, name=None)) == expected
    exact = np.concatenate([exact_log_z(run.theta).value for run in finished]).repeat(2)
    assert np.ptp(exact) > 0.5
    assert (np.abs(table.log_z - exact) < 4 * table.log_z_se).all()
    assert (table.log_z_se < 0.2).all() and (table.ess > 20).all()
    assert table.log_z.nunique() == len(table)  # random numbers of its own for each
    assert table.log_z_se[1::2].mean() < table.log_z_se[::2].mean()


def test_estimates_are_written_with_their_origin(finished, tmp_path):
    table = estimate(finished[:1], tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(measurements.FILES)
    read = pd.read_csv(tmp_path / "measurements.csv")
    pd.testing.assert_frame_equal(read, table, rtol=1e-9, atol=0)
    about = json.loads((tmp_path / "about.json").read_text())
    assert about["provenance"]["engine"] == "numpy" and about["finished"].startswith("20")


def test_only_the_first_trials_are_estimated(finished, tmp_path):
    table = estimate(finished, tmp_path, trials=1)
    assert table.algorithm.tolist() == ["cd", "cd", "sdcp_d", "sdcp_d"]
    assert table.trial.tolist() == [0] * 4


def test_an_archived_model_is_estimated_with_the_seed_of_its_run_too(
    finished, tmp_path, monkeypatch
):
    monkeypatch.setattr(archive, "FOLDER", tmp_path / "archive")
    runs.save(finished[1], tmp_path / "run")
    archive.store(tmp_path / "run", "runs/sdcp_d")
    archived = runs.load(tmp_path / "archive/runs/sdcp_d")
    table = estimate([archived], tmp_path / "log_z")
    trial = finished[1].best()[1]
    found = list(table[COLUMNS[1:4]].itertuples(index=False, name=None))
    assert found == [(trial, 60, 5), (trial, 60, 7), (trial, 180, 7)]
    exact = exact_log_z(archived.theta).value[0]
    assert (np.abs(table.log_z - exact) < 4 * table.log_z_se).all()


def test_an_interrupted_call_goes_on(finished, tmp_path, monkeypatch):
    estimate(finished, tmp_path)
    path = tmp_path / "measurements.csv"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    seen = calls(monkeypatch)
    table = estimate(finished, tmp_path)
    assert [how["n_temperatures"] for how in seen] == [180, 60, 180]
    assert path.read_bytes() == whole and len(table) == 10
    seen.clear()
    estimate(finished, tmp_path)
    assert seen == [] and path.read_bytes() == whole


def test_every_estimate_is_kept_as_soon_as_it_is_made(finished, tmp_path, monkeypatch):
    original, keys = repeat.annealed_log_z, []

    def fail(theta, mean, key, **how):
        keys.append(key)
        if len(keys) == 3:
            raise KeyboardInterrupt
        return original(theta, mean, key, **how)

    monkeypatch.setattr(repeat, "annealed_log_z", fail)
    with pytest.raises(KeyboardInterrupt):
        estimate(finished[:1], tmp_path)
    assert len(pd.read_csv(tmp_path / "measurements.csv")) == 2
    assert {p.name for p in tmp_path.iterdir()} == set(measurements.FILES)


def test_diverged_models_are_left_out(finished, tmp_path, monkeypatch):
    theta = finished[1].theta.map(np.copy)
    theta.W[1] = np.nan
    seen = calls(monkeypatch)
    table = estimate([finished[1]._replace(theta=theta)], tmp_path)
    assert table.trial.tolist() == [0, 0, 2, 2] and len(seen) == 4


def test_without_any_model_the_table_is_empty(finished, tmp_path):
    theta = finished[0].theta.map(lambda array: np.full_like(array, np.nan))
    table = estimate([finished[0]._replace(theta=theta)], tmp_path)
    assert list(table.columns) == COLUMNS and table.empty
    assert pd.read_csv(tmp_path / "measurements.csv").columns.tolist() == COLUMNS


# -------------------------------------------------------------------------- the beginning


@pytest.mark.parametrize("ais", [None, AIS])
def test_the_beginning_is_the_same_to_the_bit(ais):
    run = runs.execute(settings("pcd", epochs=6, ais=ais, trials=3), None, "numpy")
    table = repeat.train_beginning(run, 3, "numpy")
    first = run.curve[(run.curve.trial == 0) & (run.curve.epoch <= 3)]
    if ais:  # at the start no plain AIS
        assert first.train.isna().tolist() == [True, False, False, False]
        names = ("train", "test", "log_z_se")
        first = first.assign(
            **{name: first[name].fillna(first[f"trusted_{name}"]) for name in names}
        )
    assert table.epoch.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.part.tolist() == ["train", "test"] * 4
    for column in ("archived", "here"):
        values = table[column].to_numpy().reshape(4, 2)
        np.testing.assert_array_equal(values, first[["train", "test"]])
    assert (table.difference == 0).all()
    np.testing.assert_allclose(table.error[::2], np.sqrt(2) * first.log_z_se)


def test_a_changed_curve_is_noticed():
    run = runs.execute(settings("pcd", epochs=4, ais=AIS), None, "numpy")
    changed = run.curve.copy()
    place = changed["update"].eq(3) & changed.trial.eq(0)
    changed.loc[place, "test"] += 0.25
    changed.loc[changed.trial == 1, ["train", "test"]] = -99.0  # another trial
    table = repeat.train_beginning(run._replace(curve=changed), 2, "numpy")
    different = table[table.difference != 0]
    assert different[["epoch", "part"]].values.tolist() == [[1, "test"]]
    assert different.difference.tolist() == pytest.approx([-0.25])


def test_only_common_evaluations_are_compared():
    """The end of the beginning need not be one of the archived run's."""
    evaluate = {"every": 2, "also": [0]}
    run = runs.execute(settings(epochs=6, evaluate=evaluate), None, "numpy")
    table = repeat.train_beginning(run, 3, "numpy")
    assert table.epoch.tolist() == [0, 0, 2, 2] and (table.difference == 0).all()


def test_estimates_of_other_models_are_not_kept(finished, tmp_path, monkeypatch):
    """A run that was trained anew in the same place gets estimates of its own."""
    before = estimate(finished[:1], tmp_path)
    theta = finished[0].theta.map(lambda array: array * 2)
    seen = calls(monkeypatch)
    after = estimate([finished[0]._replace(theta=theta)], tmp_path)
    assert len(seen) == len(before) == len(after)
    assert (after.log_z != before.log_z).all()
