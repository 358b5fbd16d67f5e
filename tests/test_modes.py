"""What plain AIS does not see, measured of a planted model: its hidden mode has known weight."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import run_of
from test_trusted import planted

from sdcpd import data
from sdcpd.runs import archive
from sdcpd.study import modes

AIS = {"n_particles": 50, "n_temperatures": 100}


@pytest.fixture
def finished(monkeypatch):
    """CD with a mode of 10 nats more than all the rest, far from the data; PCD without it."""
    found = []
    for name, gain in (("cd", 10), ("pcd", -30)):
        theta, images, log_z = planted(100, 8, gain)
        run = run_of([0, 5], [[-60, -50]], theta, algorithm=name, ais=AIS)
        found.append((run, log_z))
    dataset = data.Dataset(images[:400], None, images[400:], (10, 10))
    monkeypatch.setattr(data, "load", lambda *arguments: dataset)
    return found


def measure(finished, folder, seeds=2):
    return modes.measure([run for run, _ in finished], folder, 7, seeds, 40, 30, "numba")


def test_a_planted_mode_is_seen_and_chains_end_there(finished, tmp_path):
    table = measure(finished, tmp_path)
    assert list(table.columns) == modes.COLUMNS
    which = list(table[["algorithm", "number"]].itertuples(index=False, name=None))
    assert which == [("cd", 0), ("cd", 1), ("pcd", 0), ("pcd", 1)]
    exact = np.repeat([log_z for _, log_z in finished], 2)
    assert (table.bound <= exact).all() and (np.abs(table.trusted_log_z - exact) < 0.4).all()
    misses = exact - table.log_z
    assert (misses[:2] > 9).all() and (np.abs(misses[2:]) < 0.5).all()
    assert table.trusted_log_z.nunique() == 4  # random numbers of its own for each
    np.testing.assert_allclose(table.test + table.log_z, table.trusted_test + table.trusted_log_z)
    hidden, plain = table[:2], table[2:]
    assert (hidden.chains == 20).all() and (hidden.from_noise > 5).all()
    assert (hidden.distance > 50).all() and (plain.distance < 20).all()


def test_all_is_written_with_its_origin_and_archived(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FOLDER", tmp_path / "archive")
    table = measure(finished, tmp_path / "modes")
    assert {path.name for path in (tmp_path / "modes").iterdir()} == set(modes.FILES)
    archive.store(tmp_path / "modes", "modes/mnist")
    for name in modes.FILES:
        stored = archive.read(tmp_path / "archive/modes/mnist" / name)
        assert stored == (tmp_path / "modes" / name).read_bytes()
    read = pd.read_csv(tmp_path / "modes/measurements.csv")
    pd.testing.assert_frame_equal(read, table, rtol=1e-9, atol=0, check_dtype=False)
    about = json.loads((tmp_path / "modes/about.json").read_text())
    assert about["how"] == {"seed": 7, "n_chains": 40, "n_steps": 30} and 0 < about["distance"] < 30
    with np.load(tmp_path / "modes/images.npz") as images:
        assert images["cd"].shape == images["pcd"].shape == (1 + modes.KEPT, 100)
        assert images["cd"][0].mean() > 0.6 > 0.4 > images["pcd"][0].mean()
        assert set(np.unique(images["cd"][1:])) <= {0, 1}


def test_an_interrupted_call_goes_on(finished, tmp_path, monkeypatch):
    measure(finished, tmp_path / "whole")
    original, calls = modes.find_modes, []

    def interrupt(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(modes, "find_modes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(finished, tmp_path / "parts")
    assert len(pd.read_csv(tmp_path / "parts/measurements.csv")) == 3
    measure(finished, tmp_path / "parts")
    for name in ("measurements.csv", "images.npz"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert len(calls) == 5
    measure(finished, tmp_path / "parts")
    assert len(calls) == 5


def test_runs_without_a_model_are_left_out(finished, tmp_path):
    run = finished[0][0]
    lost = run._replace(curve=run.curve.assign(status="diverged"))
    table = measure([(lost, 0), finished[1]], tmp_path, seeds=1)
    assert table.algorithm.tolist() == ["pcd"]
