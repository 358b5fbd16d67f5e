"""Numbers about generated images: by loops, and on models that can generate two images only."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from conftest import random_bits, random_models, run_of
from scipy.special import expit

from sdcpd import data
from sdcpd.data import Dataset, Labelled
from sdcpd.engines.plain import Engine
from sdcpd.philox import Stream, key
from sdcpd.rbm import Parameters
from sdcpd.study import quality
from sdcpd.study.quality import Nearest, sharpness

# ------------------------------------------------------------------ the nearest image


def test_nearest_is_the_first_of_the_nearest(monkeypatch):
    """By a double loop over images, of which so many are alike that most have several nearest."""
    monkeypatch.setattr(quality, "_AT_ONCE", 3)
    images, others = random_bits(25, 6, seed=1), random_bits(7, 6, seed=2, dtype=np.uint8)
    found, distances = Nearest(images)(others)
    ties = 0
    for number, image in enumerate(others):
        differing = [sum(a != b for a, b in zip(image, other, strict=True)) for other in images]
        assert distances[number] == min(differing)
        assert found[number] == differing.index(min(differing))
        ties += differing.count(min(differing)) > 1
    assert ties >= 3 and len(found) == len(distances) == 7


def test_nearest_counts_pixels_of_large_images_exactly():
    """|v|² + |x|² − 2 v·x of hundreds of pixels: to the pixel."""
    images = random_bits(20, 784, seed=3, p=0.9, dtype=np.uint8)
    changed = images[[11, 4]].copy()
    changed[0, :300], changed[1, 783] = 1 - changed[0, :300], 1 - changed[1, 783]
    found, distances = Nearest(images)(changed)
    assert (found[1], distances[1]) == (4, 1)
    assert distances[0] == (changed[0] != images).sum(1).min() > 100


# -------------------------------------------------------------------------- sharpness


def test_sharpness_of_extreme_models():
    """½ where every pixel is certain, 0 where all are coins; never by its sign, or beyond ½."""
    b = np.array([[0] * 4, [60, -60, 60, -60], [60, 0, -60, 0], [1000] * 4], np.float32)
    theta = Parameters(np.zeros((4, 3, 4), np.float32), b, np.zeros((4, 3), np.float32))
    images = random_bits(4, 7, 4, seed=4, dtype=np.uint8)
    found = sharpness(theta, images, Stream([key(n) for n in range(4)], np))
    np.testing.assert_allclose(found, [0, 0.5, 0.25, 0.5], atol=1e-7)
    assert found.dtype == np.float64


def test_sharpness_by_loops():
    """h is drawn from p(h | v) of the images given, one draw; p(v | h), not p(v | p(h))."""
    theta, keys = random_models(3, 2, seed=5, scale=2, replicas=2), [key("a"), key("b")]
    images = random_bits(2, 6, 3, seed=6, dtype=np.uint8)
    uniform = Stream(keys, np).uniform(6, 2)
    expected = []
    for W, b, c, own, u in zip(*theta, images, uniform, strict=True):
        total = 0
        for number, v in enumerate(own):
            h = [u[number, i] < expit(c[i] + W[i] @ v) for i in range(2)]
            for j in range(3):
                total += abs(expit(b[j] + sum(W[i, j] * h[i] for i in range(2))) - 0.5)
        expected.append(total / 6 / 3)
    np.testing.assert_allclose(sharpness(theta, images, Stream(keys, np)), expected, rtol=1e-6)
    assert expected[0] != pytest.approx(expected[1], rel=0.01)


# ---------------------------------------------------------------------------- measured

ZEROS, ONES = [0] * 6, [1] * 6
LEFT, RIGHT = [1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]


def images_of(*rows):
    return np.array(rows, np.uint8)


# Trained on other images than those with classes, as with MNIST.
TEST = images_of(ZEROS, *[ONES] * 3, [0, 0, 0, 1, 1, 0])
DATASET = Dataset(images_of(ZEROS, ONES), None, TEST, (2, 3))
LABELLED = Labelled(
    train=images_of(LEFT, RIGHT, ONES),
    train_classes=np.array([3, 5, 3]),
    test=images_of(LEFT, ONES, RIGHT, ONES),
    test_classes=np.array([3, 5, 5, 3]),
)
#: Nearest to LEFT, so of class 3; two pixels away from ZEROS.
ONE_IMAGE = [60, 60, -60, -60, -60, -60]
#: 110110 is of class 3 and two pixels from ONES; 010110 is of class 5 and three from both.
TWO_IMAGES = [0, 60, -60, 60, 60, -60]
#: Every parameter is NaN.
DIVERGED = [np.nan] * 6


def run_with(*biases, algorithm="cd"):
    """A run whose models have these visible biases, and hidden units that do nothing, or NaN."""
    b = np.array(biases, np.float32)
    nothing = 0 * b[:, :1]
    theta = Parameters(np.tile(nothing[:, None], (1, 2, 6)), b, np.tile(nothing, (1, 2)))
    return run_of([0, 4], [[-9, -5]] * len(b), theta, algorithm=algorithm, n_hidden=2)


@pytest.fixture
def small(monkeypatch):
    """The datasets above in the place of MNIST."""
    monkeypatch.setattr(data, "load", lambda name, folder: {"mnist": DATASET}[name])
    monkeypatch.setattr(data, "load_labelled", lambda name, folder: {"mnist": LABELLED}[name])


def measure(finished, folder, seed=1, n_images=16, n_steps=3, trials=9, backend="numpy"):
    return quality.measure(finished, folder, seed, n_images, n_steps, trials, backend)


def about(folder):
    return json.loads((folder / "about.json").read_text())


def generated(monkeypatch):
    """How many models each call that generates images has, from here on."""
    seen, original = [], quality.sampling.generate

    def spy(theta, *arguments):
        seen.append(len(theta.W))
        return original(theta, *arguments)

    monkeypatch.setattr(quality.sampling, "generate", spy)
    return seen


def entropy_of(*shares):
    return -sum(share * math.log(share) for share in shares)


def test_measures_of_images_that_are_known(small, tmp_path):
    """Entropy over classes, not over images, by the images with classes; distance to those that
    were trained on."""
    finished = [run_with(ONE_IMAGE, TWO_IMAGES), run_with(TWO_IMAGES, algorithm="cg")]
    table = measure(finished, tmp_path / "new")
    assert table.algorithm.tolist() == ["cd", "cd", "cg"] and table.trial.tolist() == [0, 1, 0]
    assert set(table.n_images) == {16} and set(table.n_steps) == {3}
    np.testing.assert_allclose(table.sharpness, [0.5, 0.5 * 5 / 6, 0.5 * 5 / 6], atol=1e-7)
    assert (table.entropy[0], table.distance[0]) == (0, 2)
    for entropy, distance in zip(table.entropy[1:], table.distance[1:], strict=True):
        share = 3 - distance  # of 110110, two pixels away; the others are three away
        assert 0 < share < 1 and share * 16 == round(share * 16)
        assert entropy == pytest.approx(entropy_of(share, 1 - share))
        assert max(share, 1 - share) in table.largest.tolist()
    assert table.largest[0] == 1
    read = pd.read_csv(tmp_path / "new" / "measurements.csv")
    assert list(read.columns) == quality.COLUMNS
    pd.testing.assert_frame_equal(read, table, check_dtype=False, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("n_images", "entropy", "distance", "tested", "share"),
    [(16, entropy_of(0.8, 0.2), 0.4, 1000, 0.75), (3, entropy_of(2 / 3, 1 / 3), 2 / 3, 2, 1)],
)
def test_the_same_of_real_test_images(
    n_images, entropy, distance, tested, share, small, tmp_path, monkeypatch
):
    """Of as many, from the first to the last; and the classifier is right about the classes of so
    many, here 3, 5, 5, 3, of which it says 3, 3, 5, 3."""
    monkeypatch.setattr(quality, "TESTED", tested)
    measure([run_with(ONE_IMAGE)], tmp_path, n_images=n_images)
    assert about(tmp_path)["accuracy"] == share
    real = about(tmp_path)["real"]
    largest = real.pop("largest")
    assert entropy_of(largest, 1 - largest) == pytest.approx(entropy) and largest >= 0.5
    assert real == {"entropy": pytest.approx(entropy), "distance": pytest.approx(distance)}


def test_every_model_has_images_of_its_own(small, tmp_path):
    """Of the seed, the algorithm and the trial."""
    finished = [run_with(*[TWO_IMAGES] * 3), run_with(*[TWO_IMAGES] * 3, algorithm="cg")]
    tables = [
        measure(finished, tmp_path / str(seed), seed=seed, n_images=10_000) for seed in (1, 2)
    ]
    shares = [distance for table in tables for distance in table.distance]
    assert len(set(shares)) == 12 and np.ptp(shares) < 0.05


def test_only_models_of_the_first_trials_that_have_not_diverged(small, tmp_path):
    """An archived run's only model keeps the number of its trial."""
    finished = [
        run_with(DIVERGED, ONE_IMAGE, ONE_IMAGE, ONE_IMAGE),
        run_with(ONE_IMAGE, algorithm="cg")._replace(trials=(7,)),
        run_with(DIVERGED, algorithm="pcd"),
    ]
    table = measure(finished, tmp_path, trials=3)
    assert table.algorithm.tolist() == ["cd", "cd", "cg"] and table.trial.tolist() == [1, 2, 7]


def test_without_any_model_the_table_is_empty(small, tmp_path):
    """Where every trial has diverged; what is real is told all the same."""
    assert measure([run_with(DIVERGED, DIVERGED)], tmp_path).empty
    assert pd.read_csv(tmp_path / "measurements.csv").columns.tolist() == quality.COLUMNS
    assert {"real", "accuracy"} <= set(about(tmp_path))


# ------------------------------------------------------- interrupted, and side by side


def different():
    """Two runs of three models each, unlike each other."""
    found = []
    for seed, algorithm in ((1, "cd"), (2, "sdcp_d")):
        theta = random_models(6, 2, seed, replicas=3, dtype=np.float32)
        found.append(run_of([0, 4], [[-9, -5]] * 3, theta, algorithm=algorithm, n_hidden=2))
    return found


def test_an_interrupted_call_goes_on(small, tmp_path, monkeypatch):
    """As many models at once as the engine says, a boundary in the middle of a run: the same as
    all together. What is there is not generated again, nor is then any dataset read."""
    table = measure(different(), tmp_path / "at once")
    seen, original, asked = generated(monkeypatch), quality.sampling.generate, []
    monkeypatch.setattr(Engine, "capacity", lambda self, *size: asked.append(size) or 4)

    def fail(*arguments):
        if seen:
            raise KeyboardInterrupt
        return original(*arguments)

    folder = tmp_path / "parts"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality.sampling, "generate", fail)
        with pytest.raises(KeyboardInterrupt):
            measure(different(), folder)
    assert len(pd.read_csv(folder / "measurements.csv")) == 4
    real = about(folder)["real"]
    measure(different(), folder)
    monkeypatch.setattr(data, "load", lambda *arguments: pytest.fail("read again"))
    again = measure(different(), folder)
    assert seen == [4, 2] and about(folder)["real"] == real
    assert set(asked) == {(2, 6, 16, 0)}  # hidden units, pixels, images, none to train on
    pd.testing.assert_frame_equal(again, table, check_dtype=False, rtol=1e-9, atol=0)
    whole = (tmp_path / "at once" / "measurements.csv").read_bytes()
    assert (folder / "measurements.csv").read_bytes() == whole


def test_the_compiled_engine_measures_one_at_a_time_what_all_together_are(
    small, tmp_path, monkeypatch
):
    """And what NumPy does, but for roundings."""
    plain = measure(different(), tmp_path / "numpy")
    seen = generated(monkeypatch)
    together = measure(different(), tmp_path / "together", backend="numba")
    monkeypatch.setattr("sdcpd.engines.cpu.IN_CACHE", 11)  # of 12 weights
    alone = measure(different(), tmp_path / "alone", backend="numba")
    assert seen == [6, *[1] * 6]
    pd.testing.assert_frame_equal(alone, together)
    pd.testing.assert_frame_equal(alone, plain, rtol=1e-5)


def test_images_made_otherwise_are_not_kept(small, tmp_path):
    """Of another number, after other steps or from another seed."""
    changes = [{}, {"n_images": 17}, {"n_steps": 5}, {"seed": 8}]
    found = set()
    for change in changes:
        table = measure(different(), tmp_path, **change)
        assert len(table) == 6
        found.add(tuple(table.sharpness))
    assert len(found) == len(changes)
