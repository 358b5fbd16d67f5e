"""Runs: what decides their numbers, checkpoints, progress, and errors in one line."""

import json
import re
import types
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from conftest import random_bits

from sdcpd import ROOT, data, runs
from sdcpd.algorithms import ALGORITHMS
from sdcpd.engines.plain import Engine
from sdcpd.progress import Progress
from sdcpd.runs import folders, setup, snapshots, trainer
from sdcpd.runs.settings import evaluation_updates
from sdcpd.sources import source_hash

HYPER = {name: {"learning_rate": 0.1} for name in ALGORITHMS}
HYPER["cg"] |= {"sliding_factor": 0.01}
HYPER["sdcp_d"] |= {"epsilon": 0.1, "lambda_hessian": 0.5}
AIS = {"n_particles": 5, "n_temperatures": 3}


def settings(algorithm="cd", **changes):
    """Three mini-batches an epoch, of 6, 6 and 4 of the 16 patterns."""
    return {
        "dataset": "bars_and_stripes",
        "algorithm": algorithm,
        "n_hidden": 3,
        "trials": 2,
        "epochs": 2,
        "batch_size": 6,
        "evaluate": {"every": 1, "also": [0]},
        "n_gibbs_steps": 1,
        "n_inner_iterations": 2,
        "hyperparameters": HYPER.get(algorithm, {}),
        "ais": None,
        "seed": 1,
    } | changes


def execute(algorithm="cd", folder=None, refuse_used=False, **changes):
    given = settings(algorithm, **changes)
    return runs.execute(given, folder, "numpy", refuse_used=refuse_used)


def sweep_of(algorithm, *values, **changes):
    """Settings of a sweep over learning rates."""
    grid = [HYPER[algorithm] | {"learning_rate": value} for value in values]
    return settings(algorithm, hyperparameters=grid, ais=AIS, **changes)


def execute_sweep(given, folder=None):
    return runs.execute_sweep(given, folder, "numpy")


def run_files(folder):
    """The files that a run leaves, but for what the end of its job deletes."""
    return {p.name for p in folder.iterdir() if not p.match("checkpoint-*.npz")} - {".lock"}


def rate(value):
    return {"hyperparameters": {"learning_rate": value}}


def assert_equal(one, other):
    """To the bit: curves and final models (NaN equals NaN)."""
    pd.testing.assert_frame_equal(one.curve, other.curve, check_exact=True)
    for a, b in zip(one.theta, other.theta, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_same_files(folder, other, names=("curve.csv", "models.npz", "run.json")):
    for name in names:
        assert (folder / name).read_bytes() == (other / name).read_bytes(), name


def at(run, update):
    return run.curve[run.curve["update"] == update]


# ------------------------------------------------------------- what decides the numbers


@pytest.mark.parametrize(("algorithm", "ais"), [*((a, AIS) for a in ALGORITHMS), ("cd", None)])
def test_seed_and_trial_decide_everything_else_nothing(algorithm, ais):
    run = execute(algorithm, trials=3, ais=ais)
    assert_equal(run, execute(algorithm, trials=3, ais=ais))
    other = execute(algorithm, trials=3, ais=ais, seed=2)
    assert (other.curve.train != run.curve.train).all()
    for ours, others in zip(run.theta, other.theta, strict=True):
        models = {model.tobytes() for model in [*ours, *others]}
        assert len(models) == 6  # trials, too, differ from each other
    # How many trials run side by side is of no consequence to one of them.
    two = execute(algorithm, trials=2, ais=ais)
    first = run.curve[run.curve.trial < 2].reset_index(drop=True)
    assert_equal(two, run._replace(curve=first, theta=run.theta.select(slice(2))))


def calls_of_train(monkeypatch):
    """The arguments of every training from here on, as it is called."""
    seen, original = [], trainer.train

    def spy(*arguments):
        seen.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(trainer, "train", spy)
    return seen


def test_streams_of_a_run(monkeypatch):
    """One start and one order of the images for all algorithms of a trial; chains and AIS of their
    own, on which what belongs neither to the model nor to the training has no influence."""
    seen, given, original = calls_of_train(monkeypatch), [], trainer.Evaluator

    def spy(images, keys, *arguments):
        given.append(keys)
        return original(images, keys, *arguments)

    monkeypatch.setattr(trainer, "Evaluator", spy)
    variants = [{}, rate(0.2), {"n_gibbs_steps": 2}, {"algorithm": "pcd"}, {"n_hidden": 4}]
    for changes in [*variants, {"ais": AIS, "epochs": 1}]:
        execute(**changes)
    *tasks, last = [task for task, *_ in seen]
    models = [theta.W.tobytes() for _, theta, *_ in seen]
    assert len(set(models[:4])) == 1 and models[4] != models[0]
    assert not np.array_equal(*seen[0][1].W)  # the trials' own
    assert len({task.order_keys.tobytes() for task in tasks}) == 1
    chains = {key.tobytes() for task in tasks for key in task.chain_keys}
    assert len(chains) == 2 * len(variants)
    np.testing.assert_array_equal(last.chain_keys, tasks[0].chain_keys)
    points = [(trial, update) for trial in (0, 1) for update in (0, 3)]
    ais = {keys(*point).tobytes() for keys in given[:-1] for point in points}
    assert len(ais) == 4 * len(variants) and not ais & chains


# -------------------------------------------------------------------- evaluation points


@pytest.mark.parametrize(
    ("epochs", "batch_size", "every", "also", "expected"),
    [
        (5, 16, 2, [0], [0, 2, 4, 5]),  # the end, too
        (4, 100, 2, [], [2, 4]),  # … and not twice
        (2, 6, 1, [0, 1], [0, 3, 6]),
        (1.5, 4, 0.5, [0.25], [1, 2, 4, 6]),  # fractions of an epoch
        (0.3, 1, 0.1, [], [2, 3, 5]),
        (3, 16, 50, [0, 3.001, 10], [0, 3]),  # no point beyond the end
    ],
)
def test_evaluation_updates(epochs, batch_size, every, also, expected):
    evaluate = {"every": every, "also": also}
    changes = {"epochs": epochs, "batch_size": batch_size, "evaluate": evaluate}
    assert evaluation_updates(settings(**changes), 16) == expected
    curve = execute(**changes).curve
    assert curve["update"].tolist() == [u for u in expected for _ in range(2)]
    np.testing.assert_allclose(curve.epoch * -(-16 // batch_size), curve["update"])


# ----------------------------------------------------------------------------- settings


POSITIVE = ("n_hidden", "trials", "epochs", "batch_size", "n_gibbs_steps", "n_inner_iterations")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"b": 1, "a": 1, "seed": ...}, "settings: unknown: a, b; missing: seed"),
        ({"n_hidden": 3.0}, "n_hidden has the wrong type: 3.0"),
        ({"trials": True}, "trials has the wrong type: True"),
        ({"ais": 100}, "ais has the wrong type: 100"),
        ({"hyperparameters": HYPER["sdcp_d"]}, "hyperparameters: unknown: epsilon, lambda_hessian"),
        ({"algorithm": "cg", **rate(0.1)}, "hyperparameters: missing: sliding_factor"),
        (rate("1e-3"), "learning_rate has the wrong type: '1e-3'"),  # what YAML reads as a text
        ({"algorithm": "adam"}, "unknown algorithm 'adam': choose one of cd, pcd, cg, sdcp"),
        ({"dataset": "cifar"}, "unknown dataset 'cifar': choose one of bars_and_stripes, mnist"),
        *(({name: 0}, f"{name} must be positive, not 0") for name in POSITIVE),
        ({"epochs": -0.5}, "epochs must be positive, not -0.5"),
        ({"evaluate": {"every": 1, "also": [-1]}}, "also must list epochs"),
        ({"ais": AIS | {"n_particles": 1}}, "n_particles must be more than 1"),
        (
            {"algorithm": "sdcp_d", "hyperparameters": HYPER["sdcp_d"] | {"lambda_hessian": 7}},
            "lambda_hessian must be from 0 to 1, not 7",
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_line(changes, words, tmp_path):
    given = {name: v for name, v in settings(**changes).items() if v is not ...}
    kind = data.DataError if "dataset" in changes else runs.RunError
    with pytest.raises(kind) as error:
        runs.execute(given, tmp_path / "run", "numpy")
    assert words in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


# ----------------------------------------------------------------- failures and resuming


class OutOfMemoryError(Exception):
    """As CuPy's is called."""


@pytest.mark.parametrize("error", [MemoryError, OutOfMemoryError])
def test_out_of_memory_is_explained(error, monkeypatch):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(trainer, "train", fail)
    words = "not enough memory for 7 trials of bars_and_stripes with 5 hidden units"
    with pytest.raises(runs.RunError, match=words):
        execute(trials=7, n_hidden=5)
    monkeypatch.setattr(Engine, "capacity", lambda self, *size: 0)
    with pytest.raises(runs.RunError, match="not enough memory for 1 trials"):
        execute()


def test_what_cannot_be_enumerated_is_refused_before_training(monkeypatch):
    monkeypatch.setattr(setup, "MAX_ENUMERATED", 8)
    assert execute(n_hidden=8) and execute(n_hidden=9, ais=AIS)
    with pytest.raises(runs.RunError, match="enumerates a layer of 9 units, at most 8"):
        execute(n_hidden=9)


class Interruption(Exception):
    """What a kill looks like from the inside."""


@contextmanager
def killed(owner, name, when=lambda *arguments: True):
    """Within this ``owner.name`` fails where ``when`` holds for its arguments, and it does."""
    original = getattr(owner, name)

    def wrapper(*arguments):
        if when(*arguments):
            raise Interruption
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interruption):
        patch.setattr(owner, name, wrapper)
        yield


def killed_at(update):
    return killed(Progress, "update", lambda self, done: done == update)


@pytest.mark.parametrize(
    ("owner", "name", "when", "resumed_at"),
    [
        (Progress, "update", lambda self, done: done == 5, 3),
        (trainer.Evaluator, "__call__", lambda self, theta, rows, update: update == 6, 3),
        (trainer, "save", lambda run, folder: True, 6),  # a full disk: training is not repeated
    ],
    ids=["training", "evaluation", "saving"],
)
def test_interrupted_run_goes_on(owner, name, when, resumed_at, tmp_path):
    undisturbed = execute("sdcp_d", tmp_path / "undisturbed")
    folder = tmp_path / "run"
    with killed(owner, name, when):
        execute("sdcp_d", folder)
    (checkpoint,) = folder.glob("checkpoint-*.npz")
    assert run_files(folder) == {snapshots.NAME}
    run = execute("sdcp_d", folder)
    assert run.wall["resumed_at_update"] == resumed_at
    assert undisturbed.wall["resumed_at_update"] == 0
    assert_equal(run, undisturbed)
    assert_same_files(folder, tmp_path / "undisturbed")


LONGER = {"ais": AIS, "evaluate": {"every": 2, "also": [0, 0.7]}}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_prolonged_runs_are_those_made_at_once(algorithm, tmp_path):
    """To the bit, with memories and random streams, in steps and through an interruption; plain AIS
    that was made at an end which now is none, or no point at all, is not there."""
    stages = [
        {"epochs": 1, "trials": 3},
        {"epochs": 3, "trials": 3, "evaluate": {"every": 2, "also": [0, 0.7, 1]}},
        {"epochs": 4, "trials": 3},
        {"epochs": 7, "trials": 3, "evaluate": {"every": 2, "also": [0, 0.7, 5]}},
    ]
    straight = execute(algorithm, tmp_path / "straight", **LONGER | stages[-1])
    resumed_at = []
    for stage in stages[:-1]:
        resumed_at.append(execute(algorithm, tmp_path, **LONGER | stage).wall["resumed_at_update"])
    assert resumed_at == [0, 3, 9]
    with killed_at(17):
        execute(algorithm, tmp_path, **LONGER | stages[-1])
    prolonged = execute(algorithm, tmp_path, **LONGER | stages[-1])
    assert prolonged.wall["resumed_at_update"] == 15
    assert_equal(prolonged, straight)
    assert_same_files(tmp_path, tmp_path / "straight")
    # what was shorter is still there
    shorter = execute(algorithm, tmp_path, **LONGER | stages[0])
    assert shorter.wall["resumed_at_update"] == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluate": {"every": 2, "also": [0, 0.4, 0.7]}},  # a point that was not evaluated
        {"evaluate": {"every": 1, "also": [0, 0.7]}},  # a point that got no plain AIS
        {"epochs": 2},  # shorter
    ],
    ids=str,
)
def test_a_checkpoint_that_lacks_a_point_is_neither_used_nor_lost(changes, tmp_path):
    given = LONGER | {"epochs": 3, "evaluate": {"every": 2, "also": [0, 0.7, 1]}}
    execute("pcd", tmp_path, **given)
    (theirs,) = tmp_path.glob("checkpoint-*.npz")
    content, given = theirs.read_bytes(), given | {"epochs": 4} | changes
    run = execute("pcd", tmp_path, **given)
    assert run.wall["resumed_at_update"] == 0 and theirs.read_bytes() == content
    assert_equal(run, execute("pcd", **given))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("every", [2, 3])
def test_divergence_seen_at_an_end_that_is_none_in_a_longer_run(every, tmp_path):
    """There it goes on: another training, from the start."""
    given = {"trials": 2, "evaluate": {"every": every, "also": [0]}, **rate(1e3)}
    execute(folder=tmp_path, **given | {"epochs": 2})
    run = execute(folder=tmp_path, **given | {"epochs": 5})
    assert run.wall["resumed_at_update"] == (6 if every == 2 else 0)
    assert_equal(run, execute(**given | {"epochs": 5}))


def test_code_that_decides_no_model_voids_no_checkpoint(tmp_path, monkeypatch):
    """But the run file names both versions."""
    execute(folder=tmp_path, epochs=1)
    first, hashes = source_hash("runs"), {"runs": "other", "training": source_hash("training")}
    monkeypatch.setattr(setup, "source_hash", hashes.get)
    run = execute(folder=tmp_path)
    assert run.wall["resumed_at_update"] == 3 and run.provenance["source"] == f"{first} + other"
    hashes["training"] = "other"
    again = execute(folder=tmp_path, epochs=3)
    assert again.wall["resumed_at_update"] == 0 and again.provenance["source"] == "other"


def test_models_on_the_way_are_kept(tmp_path):
    """And where the weights of AIS come from; not where it is not asked for."""
    one = {"trials": range(1, 2)}
    runs.execute(settings(epochs=4, ais=AIS), tmp_path, "numpy", keep=(2, 3, 40), **one)
    lines = [json.loads(line) for line in (tmp_path / "bases.jsonl").read_text().splitlines()]
    curve = runs.load(tmp_path).curve
    assert [(line["trial"], line["update"]) for line in lines] == [(1, u) for u in curve["update"]]
    for line, log_z in zip(lines, curve.trusted_log_z, strict=True):
        assert np.logaddexp.reduce([b[3] for b in line["bases"].values()]) == pytest.approx(log_z)
    runs.execute(settings(ais=AIS), tmp_path / "other", "numpy", **one)
    assert run_files(tmp_path / "other") == {*runs.FILES}
    assert {p.name for p in tmp_path.glob("model-*")} == {"model-2-1.npz", "model-3-1.npz"}
    expected = execute(epochs=2).theta
    with np.load(tmp_path / "model-2-1.npz") as kept:
        for name in "Wbc":
            np.testing.assert_array_equal(kept[name], getattr(expected, name)[1])


@pytest.mark.parametrize(
    ("changes", "engine"), [(rate(0.2), "numpy"), ({"seed": 2}, "numpy"), ({}, "numba")], ids=str
)
def test_checkpoint_of_another_training_is_neither_used_nor_lost(changes, engine, tmp_path):
    """Engines round differently: half a run of each is no run that anyone can repeat."""
    with killed_at(5):
        execute(folder=tmp_path)
    (theirs,) = tmp_path.glob("checkpoint-*.npz")
    content, given = theirs.read_bytes(), settings(**changes)
    with pytest.raises(runs.RunError, match="interrupted: choose another folder, or delete it"):
        runs.execute(given, tmp_path, engine, refuse_used=True)
    run = runs.execute(given, tmp_path, engine)
    assert run.wall["resumed_at_update"] == 0
    assert run.provenance["engine"] == engine and ("numba" in run.provenance) == (engine == "numba")
    assert_equal(run, runs.execute(given, None, engine))
    assert theirs.read_bytes() == content


def test_a_run_is_there_until_its_checkpoints_are_cleared(tmp_path):
    """A folder with its own checkpoint only is not refused; and what fails after a training, such
    as its picture, does not cost it."""
    with killed_at(5):
        execute(folder=tmp_path)
    first = execute(folder=tmp_path, refuse_used=True)
    assert first.wall["resumed_at_update"] == 3
    with pytest.raises(runs.RunError, match="holds a run already"):
        execute(folder=tmp_path, refuse_used=True)
    (tmp_path / "run.json").unlink()
    again = execute(folder=tmp_path)
    assert again.wall["resumed_at_update"] == first.curve["update"].max()
    assert_equal(again, first)
    runs.clear_checkpoints(tmp_path)
    assert not list(tmp_path.glob("checkpoint-*"))
    assert execute(folder=tmp_path).wall["resumed_at_update"] == 0


def test_two_trainings_into_one_folder(tmp_path, monkeypatch):
    """The second is refused, and the first is undisturbed."""
    monkeypatch.setattr(folders.time, "sleep", lambda seconds: None)
    told = []

    def look(self, done):
        if not told:
            with pytest.raises(runs.RunError, match="another process trains into this") as error:
                execute(folder=tmp_path, seed=5)
            told.append(str(error.value))

    monkeypatch.setattr(Progress, "update", look)
    assert_equal(execute(folder=tmp_path), execute())
    assert str(tmp_path) in told[0] and "\n" not in told[0]


def test_a_folder_spelled_in_two_ways_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = settings()
    runs.execute(given, "here", "numpy", checkpoints_in=tmp_path / "here")
    assert runs.load("here").settings == given


def test_equal_settings_train_the_same_model(tmp_path):
    """Whatever the order of their names, and with 1 or 1.0: one goes on where the other stopped."""
    values = HYPER["sdcp_d"] | {"learning_rate": 1}
    given = settings("sdcp_d", ais=AIS, hyperparameters=values)
    other = {name: given[name] for name in reversed(given)} | {
        "hyperparameters": {"lambda_hessian": 0.5, "epsilon": 0.1, "learning_rate": 1.0},
        "ais": {"n_temperatures": 3, "n_particles": 5},
        "epochs": 2.0,
        "evaluate": {"also": [0.0], "every": 1.0},
    }
    runs.execute(given, tmp_path / "given", "numpy")
    with killed_at(5):
        runs.execute(given, tmp_path / "other", "numpy")
    resumed = runs.execute(other, tmp_path / "other", "numpy")
    assert resumed.wall["resumed_at_update"] == 3
    assert_same_files(tmp_path / "other", tmp_path / "given")


# -------------------------------------------------- validation images and grey levels


@pytest.fixture
def small_dataset(monkeypatch):
    """A function that gives every dataset's name to a small one, with these parts."""

    def make(**parts):
        train, test = (random_bits(n, 9, seed=n, dtype=np.uint8) for n in (16, 7))
        dataset = data.Dataset(train, None, test, (3, 3))._replace(**parts)
        monkeypatch.setattr(data, "load", lambda name, folder: dataset)
        return dataset

    return make


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("eta", "n_ok"), [(0.1, 6), (1e39, 2)])
def test_validation_likelihood_is_in_the_curve(eta, n_ok, small_dataset, tmp_path):
    """Of its own images, in run file and checkpoint; NaN at the point where a trial diverges."""
    valid = random_bits(5, 9, seed=3, dtype=np.uint8)
    test = small_dataset(valid=valid).test
    undisturbed = execute(folder=tmp_path / "undisturbed", **rate(eta))
    loaded = runs.load(tmp_path / "undisturbed").curve
    columns = ["trial", "epoch", "update", "train", "test", "valid", "log_z", "log_z_se", "ess"]
    assert list(loaded.columns) == [*columns, "status"]
    pd.testing.assert_frame_equal(loaded, undisturbed.curve, check_dtype=False, rtol=1e-9, atol=0)
    ok = loaded.status == "ok"
    assert ok.sum() == n_ok
    assert np.isfinite(loaded.valid[ok]).all() and loaded.valid[~ok].isna().all()
    with killed(trainer, "save"):
        execute(folder=tmp_path / "run", **rate(eta))
    assert_equal(execute(folder=tmp_path / "run", **rate(eta)), undisturbed)
    assert_same_files(tmp_path / "run", tmp_path / "undisturbed", ["curve.csv"])
    small_dataset(valid=test, test=valid)
    np.testing.assert_array_equal(execute(**rate(eta)).curve.test, undisturbed.curve.valid)
    small_dataset()
    assert "valid" not in execute().curve


def test_grey_levels_are_trained_on_and_images_evaluated(small_dataset, monkeypatch):
    """Pixels of a trial drawn with a key of its own, the same for every algorithm and size."""
    seen = calls_of_train(monkeypatch)
    small_dataset()
    start = at(execute(), 0)
    grey = np.random.default_rng(4).integers(0, 256, (16, 9)).astype(np.uint8)
    small_dataset(grey=grey)
    pd.testing.assert_frame_equal(at(execute(), 0), start, check_exact=True)  # as without grey
    execute("pcd", n_hidden=4)
    without, *tasks = [task for task, *_ in seen]
    assert without.pixel_keys is None and set(np.unique(without.images)) == {0, 1}
    for task in tasks:
        np.testing.assert_array_equal(task.images, grey)
        np.testing.assert_array_equal(task.pixel_keys, tasks[0].pixel_keys)
    keys = [*tasks[0].pixel_keys, *tasks[0].order_keys, *tasks[0].chain_keys]
    assert len({key.tobytes() for key in keys}) == 6


# ----------------------------------------------------------- replicas, in groups or apart


def test_settings_reach_the_training(monkeypatch):
    """To compare runs with each other would not show a setting that is ignored by all."""
    seen = calls_of_train(monkeypatch)
    cg = {"learning_rate": 0.3, "sliding_factor": 0.02}
    d = {"learning_rate": 0.5, "epsilon": 0.6, "lambda_hessian": 0.7}
    execute("cg", n_gibbs_steps=6, n_inner_iterations=1, trials=1, hyperparameters=cg)
    execute("sdcp_d", n_gibbs_steps=2, n_inner_iterations=3, hyperparameters=d)
    (first, *_), (second, *_) = seen
    assert (first.algorithm, second.algorithm) == ("cg", "sdcp_d")
    hypers = first.hyper, second.hyper
    assert [(h.n_gibbs_steps, h.n_inner_iterations) for h in hypers] == [(6, 1), (2, 3)]
    assert [h.sliding_factor for h in hypers] == [0.02, 0]
    assert [h.learning_rate.tolist() for h in hypers] == [[np.float32(0.3)], [0.5, 0.5]]
    assert hypers[1].epsilon.tolist() == [np.float32(0.6)] * 2
    assert hypers[1].lambda_hessian.tolist() == [np.float32(0.7)] * 2
    mean = data.load("bars_and_stripes", ROOT / "data").train.mean(0)
    for h in hypers:
        np.testing.assert_allclose(h.train_mean, mean, rtol=1e-6)


def test_more_replicas_than_memory_holds(monkeypatch):
    """Some after others: the same numbers, also where a boundary lies in a setting of a sweep."""
    sweep = sweep_of("sdcp_d", 0.1, 0.3, trials=3)
    whole = [execute("pcd", trials=5), *execute_sweep(sweep)]
    monkeypatch.setattr(Engine, "capacity", lambda self, *size: 2)
    seen = calls_of_train(monkeypatch)
    parts = [execute("pcd", trials=5), *execute_sweep(sweep)]
    assert [len(theta.W) for _, theta, *_ in seen] == [2, 2, 1, 2, 2, 2]
    for part, expected in zip(parts, whole, strict=True):
        pd.testing.assert_frame_equal(part.curve, expected.curve, check_exact=True)


def test_interrupted_between_groups(tmp_path, monkeypatch):
    """Each group has a checkpoint: the first is not trained again, the second goes on."""
    monkeypatch.setattr(Engine, "capacity", lambda self, *size: 2)
    undisturbed = execute("pcd", tmp_path / "undisturbed", trials=4)
    done = []

    def fail(self, done_now):
        done.append(done_now)
        if len(done) == 11:  # 6 updates of the first group, 5 of the second
            raise Interruption

    monkeypatch.setattr(Progress, "update", fail)
    folder = tmp_path / "run"
    with pytest.raises(Interruption):
        execute("pcd", folder, trials=4)
    assert len(list(folder.glob("checkpoint-*.npz"))) == 2
    run = execute("pcd", folder, trials=4)
    assert done == [*range(1, 12), *range(10, 13)]
    assert run.wall["resumed_at_update"] == 6 + 3
    assert_equal(run, undisturbed)
    runs.clear_checkpoints(folder)
    assert {p.name for p in folder.iterdir()} == {*runs.FILES, snapshots.NAME, ".lock"}


@pytest.mark.parametrize("trials", [range(0), range(1, 3), range(2, 4), range(-1, 1)])
def test_trials_that_a_run_has_not(trials):
    with pytest.raises(runs.RunError, match="are not among the 2 of the run"):
        runs.execute(settings(), None, "numpy", trials=trials)


# ----------------------------------------------------------------------------- progress


def test_progress_says_share_and_time_left(tmp_path, monkeypatch, capsys):
    clock = types.SimpleNamespace(now=0.0)
    time = types.SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr("sdcpd.progress.time", time)
    monkeypatch.setenv("SDCPD_PROGRESS_LOG", str(tmp_path / "log"))
    progress = Progress("a title", 100, every=10)
    for done in range(41, 51):  # goes on from 40 after an interruption; one update a second
        clock.now += 1
        progress.update(done)
    clock.now += 9
    progress.note(0.25)  # too early
    clock.now += 1
    progress.note(0.75)
    progress.close()
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == 3 and all(line.startswith("a title: ") for line in lines)
    assert "50%" in lines[0] and "50/100 [00:10<00:50" in lines[0]
    assert "25%" not in "".join(lines) and lines[1].endswith("evaluation 75%")
    assert lines[2].endswith("finished")
    assert capsys.readouterr() == ("", "")


def test_progress_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("SDCPD_PROGRESS_LOG", raising=False)
    execute()
    printed = capsys.readouterr()
    words = r"^bars_and_stripes cd 3h: 100%.* 6/6 .*finished$"
    assert printed.out == "" and re.search(words, printed.err)
    monkeypatch.setenv("SDCPD_PROGRESS_LOG", str(tmp_path / "log"))
    execute()
    execute("pcd")
    assert capsys.readouterr() == ("", "")
    assert re.findall(r"(\w+) 3h: 100%", (tmp_path / "log").read_text()) == ["cd", "pcd"]
