"""Tables of measurements: what is kept of them, and what belongs to other models."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import random_models, run_of

from sdcpd.engines.plain import PLAIN
from sdcpd.study.measurements import FILES, Measurements, models

COLUMNS = ["algorithm", "trial", "value"]
ROWS = [{"algorithm": "cd", "trial": t, "value": 1 / (t + 3)} for t in range(3)]


def finished(seed=1, trials=3):
    theta = random_models(4, 2, seed, replicas=trials, dtype=np.float32)
    return run_of([0, 4], [[-9, -5]] * trials, theta)


def measurements(folder, runs=None, columns=COLUMNS):
    return Measurements(folder, columns, runs or [finished()], PLAIN)


def kept_trials(folder, runs=None):
    """Of which trials a later call finds rows."""
    return [row["trial"] for row in measurements(folder, runs).rows]


def about(folder):
    return json.loads((folder / "about.json").read_text())


def test_every_row_is_in_the_file_as_soon_as_it_is_added(tmp_path):
    """A kill loses what is being measured and nothing else."""
    folder = tmp_path / "new" / "folder"
    table = measurements(folder)
    for n in (1, 2, 3):
        table.add(ROWS[n - 1])
        read = pd.read_csv(folder / "measurements.csv")
        assert list(read.columns) == COLUMNS and read.trial.tolist() == list(range(n))
        np.testing.assert_allclose(read.value, [1 / 3, 1 / 4, 1 / 5][:n], rtol=1e-9)
        assert {p.name for p in folder.iterdir()} == set(FILES)
    pd.testing.assert_frame_equal(table.table(), pd.DataFrame(ROWS))
    assert about(folder)["provenance"]["engine"] == "numpy"


def test_an_interrupted_call_goes_on(tmp_path):
    measurements(tmp_path).add(*ROWS[:2])
    later = measurements(tmp_path)
    assert later.has(algorithm="cd", trial=1) and not later.has(algorithm="cd", trial=2)
    assert not later.has(algorithm="pcd", trial=1)
    later.add(ROWS[2])
    assert kept_trials(tmp_path) == [0, 1, 2]
    once = tmp_path / "once"
    measurements(once).add(*ROWS)
    assert (once / FILES[0]).read_bytes() == (tmp_path / FILES[0]).read_bytes()


@pytest.mark.parametrize("part", ["W", "b", "c"])
def test_rows_of_other_models_are_not_kept(part, tmp_path):
    """Not even if only one number is another."""
    run = finished()
    measurements(tmp_path, [run]).add(*ROWS)
    changed = run.theta.map(np.copy)
    getattr(changed, part)[1, 0] += 1
    other = [run._replace(theta=changed)]
    assert kept_trials(tmp_path, other) == [0, 2]
    assert kept_trials(tmp_path, [run]) == [0, 1, 2]
    measurements(tmp_path, other).add(ROWS[1])  # written over
    assert kept_trials(tmp_path, [run]) == [0, 2]
    assert sorted(kept_trials(tmp_path, other)) == [0, 1, 2]


@pytest.mark.parametrize("change", [{"epochs": 5}, {"algorithm": "pcd"}, {"trials": 2}], ids=str)
def test_rows_of_other_runs_are_not_kept(change, tmp_path):
    """Whether their models are at hand or not; with fewer trials those that it has not."""
    run = finished()
    measurements(tmp_path, [run]).add(*ROWS)
    other = run._replace(settings=run.settings | change)
    for at_hand in (other, other._replace(trials=(), theta=other.theta.select([]))):
        assert kept_trials(tmp_path, [at_hand]) == ([0, 1] if "trials" in change else [])


def test_trials_that_come_later_are_added(tmp_path):
    """Of the earlier ones the archive may have one model, in half precision, or none."""
    run = finished(trials=3)
    two = run.settings | {"trials": 2}
    first = run._replace(theta=run.theta.select([0, 1]), trials=(0, 1), settings=two)
    measurements(tmp_path, [first]).add(*ROWS[:2])
    half = run.theta.map(lambda array: array.astype(np.float16).astype(np.float32))
    with_two = run._replace(theta=half.select([1, 2]), trials=(1, 2))
    later = measurements(tmp_path, [with_two])
    assert [row["trial"] for row in later.rows] == [0, 1]
    later.add(ROWS[2])
    with_none = run._replace(theta=run.theta.select([]), trials=())
    assert kept_trials(tmp_path, [with_none]) == [0, 1, 2]
    assert set(about(tmp_path)["models"]) == {"cd 0", "cd 1", "cd 2"}


def test_rows_with_other_columns_are_not_kept(tmp_path):
    measurements(tmp_path).add(*ROWS)
    assert measurements(tmp_path, columns=[*COLUMNS, "more"]).rows == []


@pytest.mark.parametrize("missing", FILES)
def test_half_a_folder_is_begun_anew(missing, tmp_path):
    measurements(tmp_path).add(*ROWS)
    (tmp_path / missing).unlink()
    assert kept_trials(tmp_path) == []


def test_what_else_is_said_about_them_survives(tmp_path):
    """The origin is that of all calls, the date that of the last; of other models nothing does."""
    first = measurements(tmp_path)
    first.about |= {"real": {"entropy": 1.5}, "finished": "long ago"}
    first.add(*ROWS)
    stored = about(tmp_path)
    assert stored["finished"].startswith("20")
    origin = stored["provenance"]
    elsewhere = stored | {"provenance": origin | {"device": "another"}}
    (tmp_path / "about.json").write_text(json.dumps(elsewhere))
    measurements(tmp_path).write()
    assert about(tmp_path)["real"] == {"entropy": 1.5}
    assert about(tmp_path)["provenance"] == origin | {"device": f"another + {origin['device']}"}
    assert "real" not in measurements(tmp_path, [finished(seed=2)]).about


def test_models_to_measure():
    """Of each run the first so many; the diverged left out, not replaced; an archived run has one
    model, whose row is not the number of its trial, or none."""
    some, infinite = finished(trials=4), finished(trials=1)
    some.theta.W[1] = np.nan
    infinite.theta.W[0, 0, 0] = np.inf
    one = finished(trials=1)._replace(trials=(7,))
    none = one._replace(trials=(), theta=one.theta.select([]))
    for trials, rows in ((1, [0]), (2, [0]), (3, [0, 2]), (9, [0, 2, 3])):
        found = models([some, one, infinite, none], trials)
        assert [row for _, row in found] == [*rows, 0]
        assert all(run is some for run, _ in found[:-1]) and found[-1][0] is one
