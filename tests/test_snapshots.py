"""Filters and reconstructions while a model learns."""

import numpy as np
import pytest
from conftest import random_models
from test_runs import settings

from sdcpd import data, runs
from sdcpd.engines.plain import Engine
from sdcpd.runs import snapshots
from sdcpd.runs.snapshots import Snapshots


def test_reconstruction_is_that_of_the_pseudo_code(tmp_path):
    """p(v | h) with h = p(h | v), by loops; and the filters are the rows of W."""
    theta = random_models(6, 3, seed=1, dtype=np.float32)
    images = np.array([[0, 1, 1, 0, 0, 1], [1, 1, 0, 0, 1, 0]], np.uint8)
    Snapshots(tmp_path, "a", images).take(theta, 7, 0.5)
    W, b, c = (array[0] for array in theta)
    kept = snapshots.load(tmp_path)
    for image, made in zip(images, kept["reconstructions"][0], strict=True):
        h = [
            1 / (1 + np.exp(-(c[i] + sum(W[i, j] * image[j] for j in range(6))))) for i in range(3)
        ]
        for j in range(6):
            p = 1 / (1 + np.exp(-(b[j] + sum(W[i, j] * h[i] for i in range(3)))))
            assert made[j] == pytest.approx(p, abs=1e-3)
    np.testing.assert_allclose(kept["filters"][0], W, rtol=1e-3)
    np.testing.assert_array_equal(kept["images"], images)
    assert kept["update"].tolist() == [7] and kept["epoch"].tolist() == [0.5]


def test_only_a_few_are_kept(tmp_path):
    theta = random_models(4, 40, seed=2, dtype=np.float32)
    Snapshots(tmp_path, "a", np.zeros((30, 4), np.uint8)).take(theta, 0, 0.0)
    kept = snapshots.load(tmp_path)
    assert kept["filters"].shape == (1, 25, 4) and kept["reconstructions"].shape == (1, 10, 4)


def test_an_interrupted_run_goes_on_and_another_run_starts_anew(tmp_path):
    images, theta = np.zeros((2, 4), np.uint8), random_models(4, 2, seed=3, dtype=np.float32)
    first = Snapshots(tmp_path, "a", images)
    for update in (0, 10, 20):
        first.take(theta, update, update / 10)
    again = Snapshots(tmp_path, "a", images)  # from a checkpoint at 10
    again.take(theta.map(np.negative), 20, 2.0)
    kept = snapshots.load(tmp_path)
    assert kept["update"].tolist() == [0, 10, 20]
    np.testing.assert_array_equal(kept["filters"][2], -kept["filters"][1])
    Snapshots(tmp_path, "b", images).take(theta, 5, 0.5)
    assert snapshots.load(tmp_path)["update"].tolist() == [5]


def test_a_damaged_file_is_as_none(tmp_path):
    assert snapshots.load(tmp_path) is None
    (tmp_path / snapshots.NAME).write_bytes(b"PK nothing")
    assert snapshots.load(tmp_path) is None
    theta = random_models(4, 2, seed=3, dtype=np.float32)
    Snapshots(tmp_path, "a", np.zeros((2, 4), np.uint8)).take(theta, 5, 0.5)
    assert snapshots.load(tmp_path)["update"].tolist() == [5]


def test_a_run_keeps_its_first_trial_at_every_evaluation(tmp_path):
    for name, trials in (("cd", 2), ("pcd", 3)):
        folder = tmp_path / name
        run = runs.execute(settings(name, trials=trials), folder, "numpy")
        kept = snapshots.load(folder)
        first = run.curve[run.curve.trial == 0]
        assert kept["update"].tolist() == first["update"].tolist()
        np.testing.assert_allclose(kept["epoch"], first.epoch)
        W = run.theta.W[0].astype(np.float16)
        np.testing.assert_array_equal(kept["filters"][-1], W[: snapshots.N_FILTERS])
        images = data.load(run.settings["dataset"]).test[: snapshots.N_IMAGES]
        np.testing.assert_array_equal(kept["images"], images)


def test_sweeps_keep_none(tmp_path):
    sweep = settings("cd") | {"hyperparameters": [{"learning_rate": 0.1}, {"learning_rate": 0.2}]}
    runs.execute_sweep(sweep, tmp_path / "sweep", "numpy")
    assert not list(tmp_path.rglob(snapshots.NAME))


def test_groups_of_replicas_do_not_mix(tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "capacity", lambda *_: 2)
    run = runs.execute(settings("cd", trials=3), tmp_path, "numpy")
    W = run.theta.W[0].astype(np.float16)
    np.testing.assert_array_equal(snapshots.load(tmp_path)["filters"][-1], W)
