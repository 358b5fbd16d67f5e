"""What several test files share: small models and runs, brute-force oracles, the real datasets."""

import importlib
import itertools
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sdcpd import ROOT, data, device, engines, training
from sdcpd.rbm import Parameters
from sdcpd.runs import Run

STRICT = ROOT / "tests/strict"  # a stand-in for CuPy

with suppress(ImportError):  # a GPU machine need not have it
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # the tests themselves run side by side

# A minute or more each; begun first, so that at the end no process is left alone with one of them.
LONG = ("test_workflow", "test_faults", "test_study", "test_notebooks")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (*LONG, item.path.stem).index(item.path.stem))


@pytest.fixture(autouse=True)
def checkpoint_at_every_evaluation(monkeypatch):
    monkeypatch.setattr(training, "PAUSE_SECONDS", -1)  # always longer ago than that


def random_models(n_visible, n_hidden, seed, scale=1.0, replicas=1, dtype=np.float64):
    """Models with all parameters ~ N(0, scale²)."""
    rng = np.random.default_rng(seed)
    shapes = (replicas, n_hidden, n_visible), (replicas, n_visible), (replicas, n_hidden)
    return Parameters(*(rng.normal(0, scale, shape).astype(dtype) for shape in shapes))


def random_bits(*shape, seed, p=0.5, dtype=np.float32):
    return (np.random.default_rng(seed).random(shape) < p).astype(dtype)


def all_states(n_units):
    """(2^n, n): every state of n units."""
    return np.array(list(itertools.product((0.0, 1.0), repeat=n_units)))


def joint_log_weights(theta, replica=0):
    """−E(v, h) of one model for every v and every h, float64 (2^m, 2^n): eq. 2, term by term."""
    W, b, c = (np.asarray(array[replica], np.float64) for array in theta)
    v, h = all_states(len(b)), all_states(len(c))
    return np.einsum("hi,ij,vj->vh", h, W, v) + (v @ b)[:, None] + (h @ c)[None, :]


def joint_probabilities(theta, replica=0):
    """p(v, h) of one model, (2^m, 2^n)."""
    weights = np.exp(joint_log_weights(theta, replica))
    return weights / weights.sum()


def run_of(epochs, test, theta=None, **settings):
    """A run with these test log-likelihoods (trials, epochs); NaN: diverged, nothing after it.

    The train log-likelihood is one nat higher.
    """
    rows = []
    for trial, values in enumerate(np.array(test, float)):
        for epoch, value in zip(epochs, values, strict=True):
            alive = not np.isnan(value)
            value, status = (value, "ok") if alive else (-99.0, "diverged")
            rows.append((trial, epoch, round(10 * epoch), value + 1, value, status))
            if not alive:
                break
    curve = pd.DataFrame(rows, columns=["trial", "epoch", "update", "train", "test", "status"])
    curve = curve.sort_values(["update", "trial"], ignore_index=True)
    about = {"dataset": "mnist", "algorithm": "cd", "n_hidden": 500, "trials": len(test)}
    about |= {"epochs": epochs[-1], "n_inner_iterations": 1, "seed": 1, "ais": None}
    about |= {"hyperparameters": {"learning_rate": 0.1}} | settings
    wall = {"finished": "2026-01-02T03:04:05+00:00"}
    return Run(about, {"device": "CPU test"}, curve, theta, wall, tuple(range(len(test))))


def folder_with(files):
    """The folder in which all these files of the catalogue are, or None."""
    for folder in (ROOT / "data", Path(os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data")):
        if all((folder / file).exists() for file in files):
            return folder
    return None


@pytest.fixture(scope="session")
def real_dataset():
    """A function name -> Dataset that skips the test where the files cannot be had."""
    loaded = {}

    def get(name):
        if name not in loaded:
            folder = folder_with(data.files_of(name))
            if folder is None:
                pytest.skip(f"no files of {name}: set SDCPD_DATA_MIRROR, or download them to data/")
            loaded[name] = data.load(name, folder)
        return loaded[name]

    return get


@pytest.fixture(scope="session")
def strict_environment(tmp_path_factory):
    """What a process needs in its environment to find the stand-in for CuPy."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    folder = os.environ.setdefault("EMULATED_KERNELS", str(tmp_path_factory.mktemp("kernels")))
    return {"PYTHONPATH": f"{STRICT}:{ROOT / 'src'}", "EMULATED_KERNELS": folder}


@pytest.fixture
def strict_cupy(strict_environment, monkeypatch):
    """The stand-in for CuPy, which ``import cupy`` gives in this test."""

    def forget():
        for cached in (device.gpu_problem, engines.tensor_core_problem):
            cached.cache_clear()
        names = [name for name in sys.modules if name.split(".")[0] in ("cupy", "cupy_backends")]
        return {name: sys.modules.pop(name) for name in names}

    monkeypatch.syspath_prepend(STRICT)
    others = forget()  # the real one, where there is a GPU
    yield importlib.import_module("cupy")
    forget()
    sys.modules.update(others)
