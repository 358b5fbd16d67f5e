"""Training: resume to the bit, divergence, epochs, and the published Bars & Stripes curves."""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import random_bits

from sdcpd import training
from sdcpd.algorithms import ALGORITHMS, Hyperparameters
from sdcpd.data import bars_and_stripes
from sdcpd.engines import select
from sdcpd.likelihood import Evaluator
from sdcpd.philox import Stream, key
from sdcpd.rbm import initialize
from sdcpd.training import Checkpoint, Task, train, updates_per_epoch

IMAGES = random_bits(10, 6, seed=1, p=0.4, dtype=np.uint8)
BATCH = 4  # so three updates an epoch, the last with two images
POINTS = (0, 4, 7, 12)  # evaluations, within and at the end of epochs
ALL = (0, 1, 2)


class Interruption(Exception):
    """What a kill looks like from the inside."""


def setup(trials=ALL, seed=1, images=IMAGES, n_hidden=5, rates=(0.05, 0.2, 0.1), **changes):
    """The arguments of ``train`` for some of the trials of a run."""

    def keys(*fields):
        return np.array([key(seed, *fields, trial) for trial in trials])

    def each(values):
        return np.array([values[trial % 3] for trial in trials], np.float32)

    mean = images.mean(0, dtype=np.float64)
    hyper = Hyperparameters(
        learning_rate=each(rates),
        epsilon=each((0.1, 0.05, 0.2)),
        lambda_hessian=each((0, 0.9, 0.5)),
        n_gibbs_steps=2,
        n_inner_iterations=2,
        sliding_factor=0.01,
        train_mean=mean.astype(np.float32),
    )
    arguments = {
        "theta": initialize(mean, n_hidden, keys("init")),
        "hyper": hyper,
        "images": images,
        "batch_size": BATCH,
        "evaluation_updates": POINTS,
        "evaluate": Evaluator({"train": images, "test": images}, key),
        "order_keys": keys("order"),
        "chain_keys": keys("chain"),
    }
    return SimpleNamespace(**arguments | changes)


def fresh(grey, trials=ALL, pixel_seed=1, **changes):
    """The arguments of a training on grey images, evaluated on black and white ones."""
    arguments = setup(trials, images=(grey > 127).astype(np.uint8), **changes)
    arguments.images = grey
    arguments.pixel_keys = np.array([key(pixel_seed, "pixels", trial) for trial in trials])
    return arguments


def run(algorithm, arguments, report=lambda done: None):
    given = vars(arguments)
    task = Task(algorithm, **{name: given[name] for name in Task._fields if name in given})
    checkpoint = Checkpoint(given["checkpoint"]) if "checkpoint" in given else None
    return train(task, given["theta"], given["evaluate"], checkpoint, report)


def kill(algorithm, arguments, at):
    """Begin or go on with a training, until after this update."""

    def report(done):
        if done == at:
            raise Interruption

    with pytest.raises(Interruption):
        run(algorithm, arguments, report)


def curve(result, replicas=ALL):
    """Of some replicas, numbered anew; as text, in which NaN equals NaN and names have an order."""
    points = [point for point in result.curve if point["replica"] in replicas]
    return json.dumps([point | {"replica": replicas.index(point["replica"])} for point in points])


def assert_equal(one, other):
    """To the bit: final models, and every number of the curves."""
    for a, b in zip(one.theta, other.theta, strict=True):
        np.testing.assert_array_equal(a, b)
    assert curve(one) == curve(other)


@pytest.fixture
def checkpoint_at_every_update(monkeypatch):
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1)  # always longer ago than that


# ---------------------------------------------------------------- reproducible, resumed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_seed_governs_everything(algorithm):
    """Equal commands give equal weights and curves (rbms 0.6); order of the images and chains have
    a part in it, not the initial weights alone."""
    result = run(algorithm, setup())
    assert_equal(result, run(algorithm, setup()))
    for name in ("order_keys", "chain_keys"):
        changed = setup(**{name: getattr(setup(seed=2), name)})
        assert (result.theta.W != run(algorithm, changed).theta.W).any()


GREY = np.random.default_rng(1).integers(0, 256, (10, 6)).astype(np.uint8)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("batch_size", [BATCH, 100])
@pytest.mark.parametrize("is_grey", [False, True], ids=["binary", "grey"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resumed_is_undisturbed(
    algorithm, is_grey, batch_size, engine, tmp_path, checkpoint_at_every_update
):
    """Killed at any update and started again: the same to the bit (rbms 0.6 lost its optimizer,
    its learning rate and part of its generator state). Also killed several times in one run."""
    how = {"batch_size": batch_size, "engine": select(engine)}
    arguments = fresh(GREY, **how) if is_grey else setup(**how)
    undisturbed = run(algorithm, arguments)
    for killed_at in (1, 4, 9) if is_grey or batch_size > BATCH else range(1, 13):
        arguments.checkpoint = tmp_path / f"{killed_at}.npz"
        kill(algorithm, arguments, killed_at)
        result = run(algorithm, arguments)
        assert result.resumed_at == killed_at - 1  # only the last update was lost
        assert_equal(result, undisturbed)
    arguments.checkpoint = tmp_path / "often.npz"
    for killed_at in (2, 3, 5, 9, 12):
        kill(algorithm, arguments, killed_at)
    assert_equal(run(algorithm, arguments), undisturbed)


def test_finished_training_is_not_done_again(tmp_path):
    """Started again after its end, it gives its result from the checkpoint."""
    arguments = setup(checkpoint=tmp_path / "checkpoint.npz")
    result = run("pcd", arguments)

    def fail(*_):
        raise AssertionError("nothing is left to do")

    arguments.evaluate = fail
    again = run("pcd", arguments, report=fail)
    assert_equal(result, again)
    assert again.seconds == result.seconds > 0
    assert again.evaluation_seconds == result.evaluation_seconds > 0


def test_evaluations_at_short_intervals_are_not_stored_one_by_one(tmp_path, monkeypatch):
    """But the last is, from which the finished training is given again."""
    stored, save = [], training._save

    def counted(checkpoint, state):
        stored.append(state.update)
        save(checkpoint, state)

    monkeypatch.setattr(training, "_save", counted)
    monkeypatch.setattr(training, "PAUSE_SECONDS", 1000)
    run("cd", setup(checkpoint=tmp_path / "checkpoint.npz"))
    assert stored == [POINTS[0], POINTS[-1]] and len(POINTS) > 2


DAMAGES = {
    "empty": lambda whole: b"",
    "a few bytes": lambda whole: whole[:100],
    "half": lambda whole: whole[: len(whole) // 2],
    "all but the end": lambda whole: whole[:-9],
    "one byte wrong": lambda whole: whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
    "not a checkpoint": lambda whole: b"a line of text",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_not_used(damage, tmp_path):
    """A file cut short at any place means starting anew, not a traceback."""
    path = tmp_path / "checkpoint.npz"
    run("cd", setup(checkpoint=path))
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    result = run("cd", setup(checkpoint=path))
    assert_equal(result, run("cd", setup()))


def test_checkpoint_is_moved_into_place_whole(tmp_path):
    """No partial file stays behind, and a failed write leaves the last checkpoint as it was."""
    path = tmp_path / "folder/checkpoint.npz"
    run("cd", setup(checkpoint=path))
    before = path.read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "savez", lambda file, **_: file.write(b"half") and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run("cd", setup(checkpoint=path, evaluation_updates=(*POINTS, 13)))
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.npz"]


# --------------------------------------------------------------------------- divergence


def nan_weights(arguments, replica):
    arguments.theta.W[replica, 0, 0] = np.nan


def huge_rate(arguments, replica):
    arguments.hyper.learning_rate[replica] = 1e30


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("batch_size", [BATCH, 100])
@pytest.mark.parametrize("spoil", [nan_weights, huge_rate])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_diverged_replica_is_marked_and_disturbs_no_other(algorithm, spoil, batch_size, engine):
    """One bad trial must neither end the run, nor change the others, nor pass as a result."""
    how = {"batch_size": batch_size, "engine": select(engine)}
    arguments = setup(**how)
    spoil(arguments, 1)
    result = run(algorithm, arguments)
    status = [[p["status"] for p in result.curve if p["replica"] == r] for r in ALL]
    assert status[0] == status[2] == ["ok"] * len(POINTS)
    assert status[1][-1] == "diverged" and status[1].count("diverged") == 1
    assert all(np.isnan(array[1]).all() for array in result.theta)
    others = run(algorithm, setup((0, 2), **how))
    for array, expected in zip(result.theta, others.theta, strict=True):
        np.testing.assert_array_equal(array[[0, 2]], expected)
    assert curve(result, (0, 2)) == curve(others)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resumed_after_a_divergence(algorithm, tmp_path, checkpoint_at_every_update):
    """The checkpoint knows which trials are left, and their streams and memory."""
    arguments = setup()
    huge_rate(arguments, 0)
    undisturbed = run(algorithm, arguments)
    arguments.checkpoint = tmp_path / "checkpoint.npz"
    kill(algorithm, arguments, 6)
    assert_equal(run(algorithm, arguments), undisturbed)


@pytest.mark.parametrize("factor", [1.99, 2.01])
def test_divergence_is_twice_the_uniform_distributions_distance(factor):
    """Diverged: below −2 m ln 2, and only then; a dive in the first updates is none."""

    def evaluate(theta, replicas, update):
        return [{"train": -factor * 6 * np.log(2), "test": 0.0} for _ in replicas]

    result = run("cd", setup(evaluate=evaluate))
    diverged = {point["status"] for point in result.curve} == {"diverged"}
    assert diverged == np.isnan(result.theta.W).all() == (factor > 2)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_all_replicas_diverged(tmp_path):
    """It ends, with a marked curve, NaN models, no more updates, and so again when resumed."""
    arguments = setup(checkpoint=tmp_path / "checkpoint.npz")
    for replica in ALL:
        nan_weights(arguments, replica)
    updates = []
    for _ in range(2):
        result = run("sdcp_d", arguments, report=updates.append)
        assert [(p["update"], p["status"]) for p in result.curve] == [(0, "diverged")] * 3
        assert result.theta.W.shape == (3, 5, 6)
        assert all(np.isnan(array).all() for array in result.theta)
    assert updates == []


# ------------------------------------------------------------- epochs and mini-batches


@pytest.fixture
def batches_seen(monkeypatch):
    """Replaces CD by a step that only notes its mini-batches."""
    seen = []

    def spy(theta, memory, v, hyper, stream, engine):
        seen.append(v.copy())
        return theta, memory

    monkeypatch.setitem(training.ALGORITHMS, "cd", ALGORITHMS["cd"]._replace(step=spy))
    return seen


NUMBERED = (np.arange(10)[:, None] >> np.arange(6) & 1).astype(np.uint8)  # image i is i in binary


def numbers(v):
    """Which images a mini-batch (R, B, m) has, (R, B)."""
    return (v @ 2 ** np.arange(6)).astype(int)


def test_every_image_once_an_epoch(batches_seen):
    """⌈N/B⌉ mini-batches, the last incomplete; no image left out, none twice. Another order in
    every epoch and every trial; the same at every start."""
    assert updates_per_epoch(10, BATCH) == 3
    for _ in range(2):
        run("cd", setup(images=NUMBERED))
    assert [v.shape for v in batches_seen] == [(3, 4, 6), (3, 4, 6), (3, 2, 6)] * 8
    assert all(v.dtype == np.float32 for v in batches_seen)
    seen = numbers(np.concatenate(batches_seen, axis=1)).reshape(3, 2, 4, 10)
    np.testing.assert_array_equal(seen[:, 0], seen[:, 1])
    orders = seen[:, 0].reshape(12, 10)
    assert (np.sort(orders, axis=1) == np.arange(10)).all()
    assert len({tuple(order) for order in orders.tolist()}) == 12
    assert not any((order == np.arange(10)).all() for order in orders)


def test_orders_share_no_random_numbers(batches_seen, monkeypatch):
    """An epoch's draw is its own: used twice, the epochs would have the same order in part."""
    drawn = []

    class Spy(Stream):
        def next(self):
            drawn.extend((*k, self.position) for k in self.keys.tolist())
            return super().next()

    monkeypatch.setattr(training, "Stream", Spy)
    run("cd", setup(images=NUMBERED))
    assert len(drawn) == len(set(drawn)) == 3 * 4
    assert {tuple(k) for *k, _ in drawn} == {tuple(k.tolist()) for k in setup().order_keys}


def test_full_batch_is_all_images_at_every_update(batches_seen):
    """Bars & Stripes: B ≥ N is one update an epoch with every image."""
    run("cd", setup(images=NUMBERED, batch_size=10))
    assert len(batches_seen) == 12
    assert all((numbers(v) == np.arange(10)).all() for v in batches_seen)


def test_curve_has_a_point_for_each_trial_and_evaluation(batches_seen):
    """Update and epoch of each point; the models are those of that moment."""
    asked = []

    def evaluate(theta, replicas, update):
        asked.append((update, replicas.tolist(), len(batches_seen)))
        return [{"train": -1.0, "test": -2.0} for _ in replicas]

    result = run("cd", setup(evaluate=evaluate, evaluation_updates=(7, 0, 4, 7)))
    assert asked == [(0, [0, 1, 2], 0), (4, [0, 1, 2], 4), (7, [0, 1, 2], 7)]
    points = [(p["replica"], p["update"], p["epoch"]) for p in result.curve]
    assert points == [(r, u, u / 3) for u in (0, 4, 7) for r in range(3)]


# ---------------------------------------------------- images drawn anew at every visit


LEVELS = np.array([0, 255, 64, 128, 254], np.uint8)


@pytest.mark.parametrize("batch_size", [300, 400])
def test_a_pixel_is_on_as_often_as_it_is_bright(batch_size, batches_seen):
    """Level 0 never, 255 always: not level / 256, not once for a whole training."""
    run("cd", fresh(np.tile(LEVELS, (400, 1)), batch_size=batch_size))
    drawn = np.concatenate(batches_seen, axis=1)
    assert drawn.dtype == np.float32 and set(np.unique(drawn)) == {0, 1}
    n = 400 * (12 if batch_size == 400 else 6)
    assert drawn.shape == (3, n, 5)
    assert not drawn[..., 0].any() and drawn[..., 1].all()
    error = 4 * np.sqrt(LEVELS / 255 * (1 - LEVELS / 255) / (3 * n))
    assert (np.abs(drawn.mean((0, 1)) - LEVELS / 255) <= error).all()


@pytest.mark.parametrize(("uniform", "expected"), [(0, [0, 1, 1, 1, 1]), (1, [0, 1, 0, 0, 0])])
def test_extreme_random_numbers_leave_black_and_white_as_they_are(
    uniform, expected, batches_seen, monkeypatch
):
    """0 occurs once in 2^24 numbers; times 255 the largest must not round up to 255."""

    class Extreme(Stream):
        def uniform(self, *shape):
            largest = np.float32(1 - 2.0**-24)
            return np.full((len(self.keys), *shape), uniform * largest, np.float32)

    monkeypatch.setattr(training, "Stream", Extreme)
    run("cd", fresh(np.tile(LEVELS, (4, 1))))
    assert (np.concatenate(batches_seen) == expected).all()


NUMBERED_GREY = np.concatenate([NUMBERED[:, :4] * 255, np.full((10, 30), 128)], 1).astype(np.uint8)


@pytest.mark.parametrize("batch_size", [BATCH, 10])
def test_every_visit_of_an_image_is_another_draw(batch_size, batches_seen):
    """In every epoch and trial; the same at every start. Black and white pixels tell the image."""
    for seed in (1, 1, 2):
        run("cd", fresh(NUMBERED_GREY, pixel_seed=seed, batch_size=batch_size))
    seen = np.concatenate(batches_seen, axis=1).reshape(3, 3, -1, 34).swapaxes(0, 1)
    one, same, other = seen  # (trial, visit, pixel)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one[..., :4], other[..., :4])  # no other order of the images
    number = one[..., :4] @ 2 ** np.arange(4)
    assert (np.sort(number.reshape(3, -1, 10), -1) == np.arange(10)).all()
    draws = np.concatenate([one, other], 1)[..., 4:].reshape(-1, 30)
    n_epochs = 4 if batch_size == BATCH else 12
    assert len(np.unique(draws, axis=0)) == len(draws) == 2 * 3 * 10 * n_epochs


def test_images_drawn_for_a_trial_do_not_depend_on_the_others(batches_seen):
    """Nor on which have diverged: then each has the keys of its own number."""

    def without_the_first(theta, replicas, update):
        return [{"train": np.nan if r == 0 else -1.0, "test": 0.0} for r in replicas]

    run("cd", fresh(GREY))
    run("cd", fresh(GREY, evaluate=without_the_first))
    run("cd", fresh(GREY, trials=(1, 2)))
    all_three, left, alone = batches_seen[:12], batches_seen[12:24], batches_seen[24:]
    for one, two, three in zip(all_three, left, alone, strict=True):
        assert len(one) == 3
        np.testing.assert_array_equal(one[1:], two)
        np.testing.assert_array_equal(one[1:], three)


# --------------------------------------------------------------------- published curves


# Mean over 25 trials of the average log-likelihood at these updates, η = .1, K = 12, d = 3,
# K′ = 4, 4 hidden units; read off the figure of Upadhya & Sastry (2017), PMLR v77, upadhya17a.
UPDATES = (550, 1050, 2050)
PUBLISHED = {
    "cd": (-6.06, -5.75, -5.38),
    "cg": (-5.75, -5.67, -4.55),
    "sdcp": (-5.63, -4.67, -3.85),
}
ENTROPY = 15 / 4 * np.log(2)  # of the 16 patterns, the two uniform ones twice


@pytest.mark.parametrize("algorithm", PUBLISHED)
def test_bars_and_stripes_as_published(algorithm):
    """The whole chain from initial weights to exact likelihood, against independent numbers.

    With the engine that is used where there is no GPU; test_engine.py compares it with NumPy.
    """
    arguments = setup(
        range(25),
        images=bars_and_stripes(3),
        n_hidden=4,
        rates=(0.1,) * 3,
        batch_size=16,
        evaluation_updates=UPDATES,
        engine=select("numba"),
    )
    n_gibbs_steps = 4 if algorithm == "sdcp" else 12
    arguments.hyper = arguments.hyper._replace(n_gibbs_steps=n_gibbs_steps, n_inner_iterations=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(algorithm, arguments)
    train_ll = np.array([point["train"] for point in result.curve]).reshape(3, 25)
    assert (train_ll < -ENTROPY).all()
    np.testing.assert_allclose(train_ll.mean(1), PUBLISHED[algorithm], atol=0.1)
