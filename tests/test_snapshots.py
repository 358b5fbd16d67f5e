"""Filters and reconstructions while a model learns."""

import numpy as np
from conftest import random_bits, random_models
from scipy.special import expit
from test_runs import settings

from sdcpd import data, runs
from sdcpd.engines.plain import Engine
from sdcpd.runs import snapshots
from sdcpd.runs.snapshots import Snapshots


def test_reconstruction_is_that_of_the_pseudo_code(tmp_path):
    """p(v | h) with h = p(h | v), by loops; and the filters are the rows of W."""
    theta = random_models(6, 3, seed=1, dtype=np.float32)
    images = random_bits(2, 6, seed=2, dtype=np.uint8)
    Snapshots(tmp_path, "a", images).take(theta, 7, 0.5)
    kept = snapshots.load(tmp_path)
    W, b, c = (array[0] for array in theta)
    for image, made in zip(images, kept["reconstructions"][0], strict=True):
        h = [expit(c[i] + sum(W[i, j] * image[j] for j in range(6))) for i in range(3)]
        p = [expit(b[j] + sum(W[i, j] * h[i] for i in range(3))) for j in range(6)]
        np.testing.assert_allclose(made, p, rtol=0, atol=1e-3)
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
    (tmp_path / snapshots.NAME).write_bytes(b"PK\x03\x04 nothing")
    assert snapshots.load(tmp_path) is None
    theta = random_models(4, 2, seed=3, dtype=np.float32)
    Snapshots(tmp_path, "a", np.zeros((2, 4), np.uint8)).take(theta, 5, 0.5)
    assert snapshots.load(tmp_path)["update"].tolist() == [5]
    path, damaged = tmp_path / snapshots.NAME, 0
    whole = path.read_bytes()
    for place in range(len(whole)):  # zlib has errors of its own
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        damaged += snapshots.load(tmp_path) is None
    assert damaged > len(whole) / 2


def test_a_run_keeps_its_first_trial_at_every_evaluation(tmp_path, monkeypatch):
    """Also where not all trials are trained at once."""
    monkeypatch.setattr(Engine, "capacity", lambda *_: 2)
    run = runs.execute(settings("cd", trials=3), tmp_path, "numpy")
    kept = snapshots.load(tmp_path)
    first = run.curve[run.curve.trial == 0]
    assert kept["update"].tolist() == first["update"].tolist()
    np.testing.assert_allclose(kept["epoch"], first.epoch)
    np.testing.assert_array_equal(kept["filters"][-1], run.theta.W[0].astype(np.float16))
    images = data.load(run.settings["dataset"]).test[: snapshots.N_IMAGES]
    np.testing.assert_array_equal(kept["images"], images)
