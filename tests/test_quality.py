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

NAN = np.nan

# ------------------------------------------------------------------ the nearest image


@pytest.mark.parametrize("at_once", [3, 200])
def test_nearest_is_the_first_of_the_nearest(at_once, monkeypatch):
    """By a double loop over images, of which so many are alike that most have several nearest."""
    monkeypatch.setattr(quality, "_AT_ONCE", at_once)
    images, others = random_bits(25, 6, seed=1), random_bits(7, 6, seed=2, dtype=np.uint8)
    found, distances = Nearest(images)(others)
    ties = 0
    for number, image in enumerate(others):
        differing = [sum(a != b for a, b in zip(image, other, strict=True)) for other in images]
        assert distances[number] == min(differing)
        assert found[number] == differing.index(min(differing))
        ties += differing.count(min(differing)) > 1
    assert ties >= 3 and len(found) == len(distances) == 7 and len(set(distances)) > 1


def test_nearest_counts_pixels_of_large_images_exactly():
    """|v|² + |x|² − 2 v·x of hundreds of pixels: to the pixel."""
    images = random_bits(20, 784, seed=3, p=0.9, dtype=np.uint8)
    changed = images[[11, 4]].copy()
    changed[0, :300], changed[1, 783] = 1 - changed[0, :300], 1 - changed[1, 783]
    found, distances = Nearest(images)(changed)
    assert found.tolist()[1] == 4 and distances.tolist()[1] == 1
    assert distances[0] == (changed[0] != images).sum(1).min() > 100
    assert Nearest(images)(images)[1].tolist() == [0] * 20


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
DATASET = Dataset(
    images_of(ZEROS, ONES), None, images_of(ZEROS, *[ONES] * 3, [0, 0, 0, 1, 1, 0]), (2, 3)
)
LABELLED = Labelled(
    *(images_of(LEFT, RIGHT, ONES), np.array([3, 5, 3])),
    *(images_of(LEFT, ONES, RIGHT, ONES), np.array([3, 5, 5, 3])),
)
#: Nearest to LEFT, so of class 3; two pixels away from ZEROS.
ONE_IMAGE = [60, 60, -60, -60, -60, -60]
#: 110110 is of class 3 and two pixels from ONES; 010110 is of class 5 and three from both.
TWO_IMAGES = [0, 60, -60, 60, 60, -60]
#: Every parameter is NaN.
DIVERGED = [NAN] * 6


def run_with(*biases, algorithm="cd", trials=None, **changes):
    """A run whose models have these visible biases, and hidden units that do nothing."""
    b = np.array(biases, np.float32)
    theta = Parameters(np.zeros((len(b), 2, 6)) + b[:, None], b, b[:, :2])
    theta = theta._replace(W=0 * theta.W, c=0 * theta.c).map(np.float32)
    run = run_of([0, 4], [[-9, -5]] * len(b), theta, algorithm=algorithm, n_hidden=2, **changes)
    return run if trials is None else run._replace(trials=trials)


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
    assert list(table.columns) == quality.COLUMNS
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
    pd.testing.assert_frame_equal(read, table, check_dtype=False, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("n_images", "entropy", "distance"),
    [(16, entropy_of(0.8, 0.2), 0.4), (2, math.log(2), 1), (3, entropy_of(2 / 3, 1 / 3), 2 / 3)],
)
def test_the_same_of_real_test_images(n_images, entropy, distance, small, tmp_path):
    """Of as many, from the first to the last."""
    measure([run_with(ONE_IMAGE)], tmp_path, n_images=n_images)
    real = about(tmp_path)["real"]
    largest = real.pop("largest")
    assert entropy_of(largest, 1 - largest) == pytest.approx(entropy) and largest >= 0.5
    assert real == {"entropy": pytest.approx(entropy), "distance": pytest.approx(distance)}


@pytest.mark.parametrize(("tested", "share"), [(1000, 0.75), (2, 1)])
def test_accuracy_of_the_classifier(tested, share, small, tmp_path, monkeypatch):
    """On test images with classes, here 3, 5, 5, 3, of which it says 3, 3, 5, 3; or first and
    last."""
    monkeypatch.setattr(quality, "TESTED", tested)
    measure([run_with(ONE_IMAGE)], tmp_path)
    assert about(tmp_path)["accuracy"] == share


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
        run_with(ONE_IMAGE, algorithm="cg", trials=(7,)),
        run_with(DIVERGED, algorithm="pcd"),
    ]
    table = measure(finished, tmp_path, trials=3)
    found = list(table[["algorithm", "trial"]].itertuples(index=False, name=None))
    assert found == [("cd", 1), ("cd", 2), ("cg", 7)]
    assert np.isfinite(table.sharpness).all()


def test_without_any_model_the_table_is_empty(small, tmp_path):
    """Where every trial has diverged, or the archive keeps no model; what is real is told all the
    same."""
    table = measure([run_with(DIVERGED, DIVERGED)], tmp_path)
    assert list(table.columns) == quality.COLUMNS and table.empty
    assert pd.read_csv(tmp_path / "measurements.csv").columns.tolist() == quality.COLUMNS
    assert set(about(tmp_path)) == {
        *("provenance", "runs", "models", "how"),
        "finished",
        "real",
        "accuracy",
    }


# ------------------------------------------------------- interrupted, and side by side


def different(n_visible=6, replicas=3):
    """Two runs with models unlike each other."""
    return [
        run_of(
            [0, 4],
            [[-9, -5]] * replicas,
            random_models(n_visible, 2, seed, replicas=replicas, dtype=np.float32),
            **{"algorithm": algorithm, "n_hidden": 2},
        )
        for seed, algorithm in ((1, "cd"), (2, "sdcp_d"))
    ]


def test_what_is_there_is_not_generated_again(small, tmp_path, monkeypatch):
    """Nor is any dataset read; what is missing gives what it would have given."""
    table = measure(different(), tmp_path)
    path = tmp_path / "measurements.csv"
    whole, real = path.read_bytes(), about(tmp_path)["real"]
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-2]))
    seen = generated(monkeypatch)
    measure(different(), tmp_path)
    assert seen == [2] and path.read_bytes() == whole and about(tmp_path)["real"] == real
    monkeypatch.setattr(data, "load", lambda *arguments: pytest.fail("read again"))
    again = measure(different(), tmp_path)
    assert seen == [2] and path.read_bytes() == whole
    pd.testing.assert_frame_equal(again, table, check_dtype=False, rtol=1e-9, atol=0)


def test_other_numbers_of_images_or_steps_are_measured_anew(small, tmp_path, monkeypatch):
    seen = generated(monkeypatch)
    finished = different()
    for changes in ({}, {"n_images": 17}, {"n_steps": 4}):
        table = measure(finished, tmp_path, **changes)
    assert seen == [6, 6, 6]
    assert ((table.n_images == 16) & (table.n_steps == 4)).sum() == 6


def test_every_model_is_kept_as_soon_as_it_is_measured(small, tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "capacity", lambda self, *size: 1)
    seen, original = [], quality.sampling.generate

    def fail(*arguments):
        seen.append(arguments)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality.sampling, "generate", fail)
        with pytest.raises(KeyboardInterrupt):
            measure(different(), tmp_path / "interrupted")
    assert len(pd.read_csv(tmp_path / "interrupted" / "measurements.csv")) == 2
    assert {"real", "accuracy"} <= set(about(tmp_path / "interrupted"))
    measure(different(), tmp_path / "interrupted")
    measure(different(), tmp_path / "at once")
    one, other = (tmp_path / name / "measurements.csv" for name in ("interrupted", "at once"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("capacity", [1, 4, 99])
def test_models_side_by_side_are_those_alone(capacity, small, tmp_path, monkeypatch):
    """As many at once as the engine says, a boundary in the middle of a run: the same numbers."""
    measure(different(), tmp_path / "all")
    seen, asked = generated(monkeypatch), []
    monkeypatch.setattr(Engine, "capacity", lambda self, *size: asked.append(size) or capacity)
    measure(different(), tmp_path / "some")
    assert seen == {1: [1] * 6, 4: [4, 2], 99: [6]}[capacity]
    assert asked == [(2, 6, 16, 0)]  # hidden units, pixels, images, none to train on
    one, other = (tmp_path / name / "measurements.csv" for name in ("all", "some"))
    assert one.read_bytes() == other.read_bytes()


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
    runs_ = different()[:1]
    changes = [{}, {"n_images": 17}, {"n_steps": 5}, {"seed": 8}]
    tables = [measure(runs_, tmp_path, **change) for change in changes]
    assert len({len(table) for table in tables}) == 1
    sharpness = [tuple(table.sharpness) for table in tables]
    assert len(set(sharpness)) == len(changes)
