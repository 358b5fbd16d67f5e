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
    assert about(folder)["finished"].startswith("20")


def test_an_interrupted_call_goes_on(tmp_path):
    measurements(tmp_path).add(*ROWS[:2])
    later = measurements(tmp_path)
    assert later.has(algorithm="cd", trial=1) and not later.has(algorithm="cd", trial=2)
    assert not later.has(algorithm="pcd", trial=1)
    later.add(ROWS[2])
    assert measurements(tmp_path).table().trial.tolist() == [0, 1, 2]
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
    assert [row["trial"] for row in measurements(tmp_path, other).rows] == [0, 2]
    assert len(measurements(tmp_path, [run]).rows) == 3
    measurements(tmp_path, other).add(ROWS[1])  # written over
    assert [row["trial"] for row in measurements(tmp_path, [run]).rows] == [0, 2]
    assert len(measurements(tmp_path, other).rows) == 3


@pytest.mark.parametrize("change", [{"epochs": 5}, {"algorithm": "pcd"}, {"trials": 2}], ids=str)
def test_rows_of_other_runs_are_not_kept(change, tmp_path):
    """Whether their models are at hand or not; with fewer trials those that it has not."""
    run = finished()
    measurements(tmp_path, [run]).add(*ROWS)
    other = run._replace(settings=run.settings | change)
    for models_of in (other, other._replace(trials=(), theta=other.theta.select([]))):
        rows = measurements(tmp_path, [models_of]).rows
        assert [row["trial"] for row in rows] == ([0, 1] if "trials" in change else [])
    assert measurements(tmp_path, [finished(seed=2)]).rows == []


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
    assert [row["trial"] for row in measurements(tmp_path, [with_none]).rows] == [0, 1, 2]
    assert set(about(tmp_path)["models"]) == {"cd 0", "cd 1", "cd 2"}


@pytest.mark.parametrize("columns", [COLUMNS[:2], [*COLUMNS, "more"], COLUMNS[::-1]], ids=str)
def test_rows_with_other_columns_are_not_kept(columns, tmp_path):
    measurements(tmp_path).add(*ROWS)
    assert measurements(tmp_path, columns=columns).rows == []
    assert len(measurements(tmp_path).rows) == 3


@pytest.mark.parametrize("missing", FILES)
def test_half_a_folder_is_begun_anew(missing, tmp_path):
    measurements(tmp_path).add(*ROWS)
    (tmp_path / missing).unlink()
    assert measurements(tmp_path).rows == []


def test_what_else_is_said_about_them_survives(tmp_path):
    """The origin is that of all calls, the date that of the last; of other models nothing does."""
    first = measurements(tmp_path)
    first.about |= {"real": {"entropy": 1.5}, "finished": "long ago"}
    first.add(*ROWS)
    stored = about(tmp_path)
    (tmp_path / "about.json").write_text(
        json.dumps(stored | {"provenance": stored["provenance"] | {"device": "another"}})
    )
    second = measurements(tmp_path)
    assert second.about["real"] == {"entropy": 1.5}
    second.write()
    assert about(tmp_path)["real"] == {"entropy": 1.5}
    device = stored["provenance"]["device"]
    assert about(tmp_path)["provenance"] == stored["provenance"] | {"device": f"another + {device}"}
    assert stored["finished"].startswith("20")
    assert "real" not in measurements(tmp_path, [finished(seed=2)]).about


def test_without_any_row_both_files_are_written(tmp_path):
    """The workflow waits for them, also where every trial diverged."""
    measurements(tmp_path).write()
    assert {p.name for p in tmp_path.iterdir()} == set(FILES)
    assert pd.read_csv(tmp_path / "measurements.csv").columns.tolist() == COLUMNS
    assert measurements(tmp_path).table().empty


def test_models_to_measure():
    """Of each run the first so many; the diverged left out, not replaced; an archived run has one
    model, whose row is not the number of its trial."""
    some = finished(trials=4)
    some.theta.W[1] = np.nan
    archived = finished(trials=1)._replace(trials=(7,))
    none = finished(trials=1)
    none.theta.W[0, 0, 0] = np.inf
    runs = [some, archived, none]
    for trials, rows in ((1, [0]), (2, [0]), (3, [0, 2]), (9, [0, 2, 3])):
        found = models(runs, trials)
        assert [row for _, row in found] == [*rows, 0]
        assert all(run is some for run, _ in found[:-1]) and found[-1][0] is archived
    kept_none = archived._replace(trials=(), theta=archived.theta.select([]))
    assert models([kept_none], 3) == []
