"""Exact log Z by brute force, annealed importance sampling against it, and its error bars."""

import math

import numpy as np
import pytest
from conftest import all_states, joint_log_weights, random_bits, random_models
from scipy.special import expit, logit, logsumexp

from sdcpd import ROOT, engines, likelihood
from sdcpd.data import bars_and_stripes
from sdcpd.engines.plain import log_ratio
from sdcpd.likelihood import (
    Evaluator,
    LogZ,
    annealed_log_z,
    average_log_likelihood,
    exact_log_z,
    mean_field,
    trusted_log_z,
)
from sdcpd.philox import Stream, key
from sdcpd.rbm import Parameters, initialize

# ------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("m", "n"), [(4, 3), (3, 5), (4, 4)])
def test_exact_log_z_is_the_sum_over_all_states(m, n, dtype):
    """Enumerating the hidden (n < m) or the visible layer: swapped biases, a lost state."""
    theta = random_models(m, n, seed=1, scale=1.5, replicas=3, dtype=dtype)
    log_z = exact_log_z(theta)
    expected = [logsumexp(joint_log_weights(theta, r)) for r in range(3)]
    np.testing.assert_allclose(log_z.value, expected, rtol=1e-12)
    assert log_z.value.dtype == np.float64
    assert (log_z.standard_error == 0).all() and np.isinf(log_z.effective_sample_size).all()


def test_exact_log_z_over_many_chunks():
    """2^15 and 2^16 states in chunks of 2^14: each counted once, whichever layer it is."""
    theta = random_models(16, 15, seed=2, scale=0.7)
    W, b, c = (array[0] for array in theta)
    v = all_states(16)
    over_v = logsumexp(v @ b + np.logaddexp(0, v @ W.T + c).sum(1))  # the larger layer
    transposed = Parameters(theta.W.transpose(0, 2, 1), theta.c, theta.b)
    assert exact_log_z(theta).value == pytest.approx(over_v, rel=1e-12)
    assert exact_log_z(transposed).value == pytest.approx(over_v, rel=1e-12)


def test_exact_log_z_does_not_depend_on_the_chunk(monkeypatch):
    theta = random_models(5, 4, seed=3, replicas=2)
    whole = exact_log_z(theta).value
    monkeypatch.setattr(likelihood, "_CHUNK", 3)
    np.testing.assert_allclose(exact_log_z(theta).value, whole, rtol=1e-13)


def test_exact_log_z_of_a_strong_model_does_not_overflow():
    """exp of the terms is inf from 710 on: log-sum-exp has to subtract the largest."""
    theta = random_models(6, 5, seed=4, scale=300)
    expected = logsumexp(joint_log_weights(theta))
    assert expected > 1000
    assert exact_log_z(theta).value == pytest.approx(expected, rel=1e-12)


def test_exact_log_z_refuses_what_it_cannot_enumerate():
    theta = random_models(30, 25, seed=5)
    with pytest.raises(ValueError, match="annealed_log_z"):
        exact_log_z(theta)


# ------------------------------------------------------------ average log-likelihood


@pytest.mark.parametrize("chunk", [2**14, 3])
def test_average_log_likelihood_by_enumeration(chunk, monkeypatch):
    """Mean of log p(v) over images that repeat, across a chunk's boundary as well."""
    monkeypatch.setattr(likelihood, "_CHUNK", chunk)
    theta = random_models(4, 3, seed=6, replicas=2)
    rows = np.array([0, 5, 5, 9, 15, 2, 5])
    images = all_states(4)[rows].astype(np.uint8)
    got = average_log_likelihood(theta, images, exact_log_z(theta).value)
    for r in range(2):
        weights = joint_log_weights(theta, r)
        log_p = logsumexp(weights, 1) - logsumexp(weights)
        assert got[r] == pytest.approx(log_p[rows].mean(), rel=1e-12)


def test_bars_and_stripes_bounds():
    """A new RBM is at −9 ln 2 = −6.23832; the best possible is −(15/4) ln 2 = −2.59930."""
    patterns = bars_and_stripes(3)
    theta = initialize(patterns.mean(0), 4, [key("init", trial) for trial in range(25)])
    got = average_log_likelihood(theta, patterns, exact_log_z(theta).value)
    np.testing.assert_allclose(got, -6.23832, atol=0.01)
    _, counts = np.unique(patterns, axis=0, return_counts=True)
    p = counts / counts.sum()
    assert (p * np.log(p)).sum() == pytest.approx(-15 / 4 * np.log(2)) == -2.59930


# ------------------------------------------------------- annealed importance sampling


def literal_ais(theta, mean, stream, n_particles, n_temperatures, moved_too_early=False):
    """Neal's algorithm for one model, unnormalised p*_β(v) written out in float64.

    ``moved_too_early`` is the mistake of rbms#6: the particles move with the parameters of the
    temperature that they are about to be weighed for.
    """
    W, b, c = (np.asarray(array[0], np.float64) for array in theta)
    base = logit(np.clip(mean, 0.001, 0.999))

    def log_p(v, beta):
        return v @ ((1 - beta) * base + beta * b) + np.logaddexp(0, beta * (v @ W.T + c)).sum(-1)

    def move(v, beta):
        h = stream.uniform(n_particles, len(c))[0] < expit(beta * (v @ W.T + c))
        p = expit((1 - beta) * base + beta * (b + h @ W))
        return (stream.uniform(n_particles, len(b))[0] < p).astype(float)

    v = (stream.uniform(n_particles, len(b))[0] < expit(base)).astype(float)
    log_weights, betas = np.zeros(n_particles), np.linspace(0, 1, n_temperatures + 1)
    for low, high in zip(betas, betas[1:], strict=False):
        if moved_too_early:
            v = move(v, high)
        log_weights += log_p(v, high) - log_p(v, low)
        if not moved_too_early:
            v = move(v, high)
    base_log_z = len(c) * np.log(2) + np.logaddexp(0, base).sum()
    log_z = base_log_z + logsumexp(log_weights) - np.log(n_particles)
    weights = np.exp(log_weights - log_weights.max())
    error = weights.std(ddof=1) / weights.mean() / np.sqrt(n_particles)
    return log_z, error, weights.sum() ** 2 / (weights**2).sum()


def test_annealed_log_z_with_few_temperatures():
    """So few that the order of moving and weighing shows: ours is the literal algorithm, which
    agrees with exact log Z; the one with the order exchanged does not."""
    theta = random_models(8, 6, seed=7, scale=0.8)
    mean, exact = np.linspace(0.2, 0.8, 8), exact_log_z(theta).value[0]
    size = {"n_particles": 4000, "n_temperatures": 6}
    stream_key = key("few temperatures")
    ours = annealed_log_z(theta, mean, [stream_key], **size)
    literal = literal_ais(theta, mean, Stream([stream_key], np), **size)
    np.testing.assert_allclose(np.ravel(ours), literal, rtol=1e-4)
    assert abs(ours.value[0] - exact) < 3 * ours.standard_error[0] < 0.15
    mutant, error, _ = literal_ais(theta, mean, Stream([stream_key], np), **size, moved_too_early=1)
    assert abs(mutant - exact) > 10 * error


@pytest.mark.parametrize(("m", "n", "scale"), [(20, 10, 0.3), (10, 14, 0.3), (12, 12, 0.15)])
def test_annealed_log_z_agrees_with_exact_over_seeds(m, n, scale):
    """60 estimates: no bias beyond 3 standard errors, and they spread as their errors say."""
    one = random_models(m, n, seed=8, scale=scale, dtype=np.float32)
    theta = one.map(lambda array: np.repeat(array, 60, axis=0))
    keys = [key("seeds", m, n, seed) for seed in range(60)]
    estimate = annealed_log_z(theta, np.linspace(0.1, 0.9, m), keys, 50, 100)
    error = estimate.value - exact_log_z(one).value
    typical = np.sqrt((estimate.standard_error**2).mean())
    assert 0 < typical < 0.1
    assert abs(error.mean()) < 3 * typical / np.sqrt(60)
    assert 0.7 < error.std(ddof=1) / typical < 1.4
    assert (estimate.effective_sample_size > 25).all()


def test_annealed_log_z_of_the_base_model_is_exact():
    """W = 0, b = base: every weight is the same. Constant pixels and hidden biases included."""
    mean = np.array([0, 0.3, 0.9, 1])
    base = logit(np.clip(mean, 0.001, 0.999))
    theta = Parameters(np.zeros((1, 2, 4)), base[None], np.array([[-1.0, 2.0]]))
    estimate = annealed_log_z(theta, mean, [key(0)], 10, 20)
    expected = np.logaddexp(0, base).sum() + np.logaddexp(0, [-1.0, 2.0]).sum()
    assert estimate.value[0] == pytest.approx(expected, abs=1e-5)
    assert estimate.standard_error[0] < 1e-5
    assert estimate.effective_sample_size[0] == pytest.approx(10)


LOG_WEIGHTS = np.array([0.0, 3.0, 700.0, 1500.0, 1501.0, 1490.0])


def with_log_weights(monkeypatch, log_weights):
    """AIS whose particles end with these weights: one temperature, base and model equal."""
    monkeypatch.setattr("sdcpd.engines.plain.log_ratio", lambda x, low, high: log_weights[None])
    theta = Parameters(np.zeros((1, 3, 2)), np.zeros((1, 2)), np.zeros((1, 3)))
    return annealed_log_z(theta, [0.5, 0.5], [key(0)], len(log_weights), 1)


def test_log_z_is_the_log_of_the_mean_weight(monkeypatch):
    """On weights of large spread: not the mean of the logs (jertubiana/PGM), no overflow."""
    estimate = with_log_weights(monkeypatch, LOG_WEIGHTS)
    weights = [math.exp(w - 1501) for w in LOG_WEIGHTS]
    mean = sum(weights) / 6
    variance = sum((w - mean) ** 2 for w in weights) / 5
    base = 5 * math.log(2)
    assert estimate.value[0] == pytest.approx(base + 1501 + math.log(mean), rel=1e-12)
    assert estimate.standard_error[0] == pytest.approx(math.sqrt(variance / 6) / mean, rel=1e-9)
    ess = sum(weights) ** 2 / sum(w**2 for w in weights)
    assert estimate.effective_sample_size[0] == pytest.approx(ess, rel=1e-9)


def test_duplicating_the_particles_leaves_log_z(monkeypatch):
    """tensorflow/probability#267: normalised by the wrong count, 1.2 nats off."""
    once = with_log_weights(monkeypatch, LOG_WEIGHTS)
    thrice = with_log_weights(monkeypatch, np.tile(LOG_WEIGHTS, 3))
    np.testing.assert_allclose(thrice.value, once.value, rtol=1e-12)
    np.testing.assert_allclose(thrice.effective_sample_size, 3 * once.effective_sample_size)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1e-4), (0.3, 0.3001), (0.9999, 1.0), (0.0, 0.2)])
def test_log_ratio_of_softplus(low, high):
    """Against float64 differences, also where softplus is ±1000 or 0."""
    rng = np.random.default_rng(9)
    x = rng.normal(0, 10, (2, 7, 50)).astype(np.float32)
    x[0, 0, :4] = [-1000, 1000, 0, 30]
    x[0, 1], x[0, 2] = -1000, 1000
    low, high = np.float32(low), np.float32(high)
    with np.errstate(all="raise", under="ignore"):
        got = log_ratio(x, low, high)
    wide = x.astype(np.float64)
    expected = np.logaddexp(0, high * wide) - np.logaddexp(0, low * wide)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected.sum(-1), rtol=1e-6, atol=5e-6)


def test_log_ratio_of_many_units_does_not_underflow():
    """500 saturated units and few temperatures: a float32 product of the factors is 0."""
    x = np.full((1, 1, 500), -40, np.float32)
    got = log_ratio(x, np.float32(0), np.float32(0.1))
    expected = 500 * (np.logaddexp(0, -4) - np.log(2))
    np.testing.assert_allclose(got, [[expected]], rtol=1e-4)


def test_each_estimate_has_its_own_numbers():
    """A trial's estimate depends on its key, not on its neighbours."""
    theta = random_models(10, 8, seed=10, dtype=np.float32)
    theta = theta.map(lambda array: np.repeat(array, 3, axis=0))
    keys, mean = [key("ais", trial) for trial in range(3)], np.full(10, 0.4)
    together = annealed_log_z(theta, mean, keys, 10, 30)
    assert len(set(together.value.tolist())) == 3
    alone = annealed_log_z(theta.select([2]), mean, keys[2:], 10, 30)
    assert [a[0] for a in alone] == [a[2] for a in together]


# ---------------------------------------------------------------- a published estimate


REFERENCE = ROOT.parent / "shared/reference/rbm_cd25_500.npz"


@pytest.fixture(scope="module")
def published_model():
    """Salakhutdinov & Murray's RBM: 784 × 500, CD-25, MNIST. Its pixels are column by column."""
    if not REFERENCE.exists():
        pytest.skip(f"{REFERENCE} is not there (it is not redistributed)")
    with np.load(REFERENCE) as file:
        W, b, c = (file[name].astype(np.float32) for name in ("W", "bv", "bh"))
    row_by_row = np.arange(784).reshape(28, 28).T.ravel()
    return Parameters(
        W[row_by_row].T.copy()[None], b.reshape(1, -1)[:, row_by_row], c.reshape(1, -1)
    )


def test_unnormalized_likelihood_of_the_published_model(published_model, real_dataset):
    """The mean of log p* over the images: orientation of W, biases, float32 against float64."""
    mnist = real_dataset("mnist")
    for images, expected in ((mnist.train, 368.1723), (mnist.test, 364.9259)):
        got = average_log_likelihood(published_model, images, np.zeros(1))
        assert got[0] == pytest.approx(expected, abs=2e-3)


def test_annealed_log_z_of_the_published_model(published_model, real_dataset):
    """log Z = 451.28 published, 451.00 by another program (10,000 temperatures, ± .17).

    A quarter of the temperatures, for time: the standard error is larger, the value the same.
    A uniform base is 4.4 nats too low.
    """
    mean = real_dataset("mnist").train.mean(0, dtype=np.float64)
    estimate = annealed_log_z(published_model, mean, [key("fixture", 1)], 100, 2500)
    assert estimate.standard_error[0] < 0.8
    assert abs(estimate.value[0] - 451.15) < 3 * estimate.standard_error[0] < 2.4


# ----------------------------------------------------------------------- the evaluator


def test_evaluator_of_small_models():
    """Exact, in float64 whatever the models' precision; test apart from train."""
    train, test = (random_bits(9, 6, seed=s, dtype=np.uint8) for s in (11, 12))
    theta = random_models(6, 4, seed=13, replicas=2, dtype=np.float32)
    points = Evaluator({"train": train, "test": test}, keys=None)(theta, np.arange(2), 5)
    wide = theta.map(lambda array: array.astype(np.float64))
    log_z = exact_log_z(wide).value
    for r, point in enumerate(points):
        assert point["train"] == average_log_likelihood(wide, train, log_z)[r]
        assert point["test"] == average_log_likelihood(wide, test, log_z)[r] != point["train"]
        assert (point["log_z"], point["log_z_se"], point["ess"]) == (log_z[r], 0, np.inf)


@pytest.mark.parametrize("ais", [None, {"n_particles": 20, "n_temperatures": 30}])
def test_evaluator_with_validation_images(ais):
    """Their average log-likelihood by the same log Z; without them no such key, not a NaN."""
    train, test, valid = (random_bits(9, 6, seed=s, dtype=np.uint8) for s in (11, 12, 16))
    theta, parts = random_models(6, 4, seed=13, replicas=2), {"train": train, "test": test}
    without = Evaluator(parts, key, ais)(theta, np.arange(2), 5)
    points = Evaluator(parts | {"valid": valid[:7]}, key, ais)(theta, np.arange(2), 5)
    for r, point in enumerate(points):
        log_z = [point["log_z"]] * 2
        assert point["valid"] == average_log_likelihood(theta, valid[:7], log_z)[r]
        assert point["valid"] not in (point["train"], point["test"])
        assert {n: value for n, value in point.items() if "valid" not in n} == without[r]
        if ais:
            trusted = [point["trusted_log_z"]] * 2
            assert point["trusted_valid"] == average_log_likelihood(theta, valid[:7], trusted)[r]


def test_evaluator_makes_plain_ais_where_it_is_asked_for():
    """And the trusted estimate always: near log Z, above its bound, alike in train and test."""
    images = random_bits(9, 6, seed=11, dtype=np.uint8)
    theta = random_models(6, 4, seed=13, replicas=2)
    ais = {"n_particles": 100, "n_temperatures": 100}
    evaluator = Evaluator({"train": images, "test": images}, key, ais, plain_at=[5, 8])
    exact = exact_log_z(theta).value
    for update, plain in ((4, False), (5, True)):
        for r, point in enumerate(evaluator(theta, np.arange(2), update)):
            assert ("train" in point) == ("log_z" in point) == ("ess" in point) == plain
            assert point["bound"] <= exact[r]
            assert abs(point["trusted_log_z"] - exact[r]) < 0.3 and point["trusted_agrees"] == 1
            assert point["trusted_train"] == point["trusted_test"]
            if plain:
                missed = point["trusted_log_z"] - point["log_z"]
                assert point["train"] - point["trusted_train"] == pytest.approx(missed, abs=1e-9)


def test_evaluator_estimates_by_replica_and_update():
    """The numbers of an estimate belong to its trial and update, whichever others are left."""
    train = random_bits(9, 6, seed=14, dtype=np.uint8)
    theta = random_models(6, 4, seed=15, replicas=3, dtype=np.float32)
    size = {"n_particles": 20, "n_temperatures": 30}
    evaluate = Evaluator({"train": train, "test": train}, key, size)
    points = evaluate(theta, np.arange(3), 5)
    assert evaluate(theta.select([0, 2]), np.array([0, 2]), 5) == [points[0], points[2]]
    assert evaluate(theta, np.arange(3), 6)[0]["log_z"] != points[0]["log_z"]
    estimate = annealed_log_z(theta, train.mean(0), [key(r, 5) for r in range(3)], **size)
    assert LogZ(*([p[k] for p in points] for k in ("log_z", "log_z_se", "ess"))) == LogZ(
        *(array.tolist() for array in estimate)
    )


# ----------------------------------------------------------------------- hidden modes


def planted(m, n_blocks, gain, weight=3.0, seed=5):
    """A model with data of few pixels, and a mode of nearly all pixels, of ``gain`` nats more.

    The first hidden unit couples to every pixel: on, it makes the mode. The others couple to a
    block of pixels each, so that log Z is a sum over blocks for each state of the first: exact.

    Returns
    -------
    Parameters (1, …) float32, images (500, m) of the data's side, log Z
    """
    rng = np.random.default_rng(seed)
    W = np.zeros((1 + n_blocks, m))
    blocks = np.array_split(np.arange(m), n_blocks)
    for i, block in enumerate(blocks):
        W[1 + i, block] = rng.normal(0, 1, len(block))
    b, c = rng.normal(-2, 0.3, m), np.r_[0.0, rng.normal(0, 1, n_blocks)]
    W[0] = weight
    W, b, c = (a.astype(np.float32).astype(float) for a in (W, b, c))

    def log_z_of_blocks(bias):
        of_blocks = [
            np.logaddexp(
                np.logaddexp(0, bias[block]).sum(),
                c[1 + i] + np.logaddexp(0, bias[block] + W[1 + i, block]).sum(),
            )
            for i, block in enumerate(blocks)
        ]
        return sum(of_blocks)

    off, on = log_z_of_blocks(b), log_z_of_blocks(b + W[0])
    c[0] = np.float32(off + gain - on)
    theta = Parameters(*(array[None].astype(np.float32) for array in (W, b, c)))
    v = np.zeros((500, m))
    for _ in range(50):  # Gibbs sampling with the first unit off
        h = rng.random((500, n_blocks)) < expit(v @ W[1:].T + c[1:])
        v = rng.random((500, m)) < expit(h @ W[1:] + b)
    return theta, v.astype(np.uint8), np.logaddexp(off, c[0] + on)


def test_log_z_of_planted_models():
    theta, _, log_z = planted(14, 3, 2)
    assert exact_log_z(theta).value == pytest.approx(log_z, rel=1e-6)


@pytest.mark.parametrize("scale", [0.3, 1, 3])
@pytest.mark.parametrize(("m", "n"), [(9, 4), (12, 8), (6, 10)])
def test_a_mean_field_bound_is_never_above_log_z(m, n, scale):
    """From images and from noise, after any number of iterations, which never lower it."""
    theta = random_models(m, n, seed=m, scale=scale, replicas=3, dtype=np.float32)
    exact = exact_log_z(theta.map(np.float64)).value[:, None]
    noise = np.random.default_rng(2).random((3, 20, m))
    starts = np.concatenate([random_bits(3, 20, m, seed=1), noise], axis=1)
    before = -np.inf
    for n_iterations in (0, 1, 5, 50):
        p, bounds = mean_field(theta, starts, n_iterations)
        assert p.dtype == bounds.dtype == np.float64 and ((p >= 0) & (p <= 1)).all()
        assert (bounds <= exact + 1e-9).all() and (bounds >= before - 1e-9).all()
        before = bounds
    if scale == 0.3:
        assert (exact[:, 0] - bounds.max(1) < 0.3).all()  # one mode dominates


def test_the_bound_of_an_image_alone_is_its_log_weight():
    theta, images = random_models(8, 5, seed=1, replicas=2), all_states(8)
    weights = logsumexp(joint_log_weights(theta, 1), axis=1)
    _, bounds = mean_field(theta, np.stack([images, images]), 0)
    np.testing.assert_allclose(bounds[1], weights, rtol=1e-12)


def test_the_bound_is_tight_where_units_are_independent():
    theta = random_models(30, 7, seed=2)._replace(W=np.zeros((1, 7, 30)))
    _, bounds = mean_field(theta, random_bits(1, 3, 30, seed=1), 1)
    np.testing.assert_allclose(bounds, exact_log_z(theta).value[0], rtol=1e-12)


@pytest.mark.parametrize(("m", "n_blocks"), [(20, 4), (784, 49)])
def test_a_planted_mode_is_found_that_plain_ais_misses(m, n_blocks):
    """Small enough to enumerate, and large: of 10 nats more than all the rest, far from data."""
    theta, images, log_z = planted(m, n_blocks, 10, weight=12 if m == 20 else 3)
    numba = engines.select("numba")
    plain = annealed_log_z(
        numba.prepare(theta), images.mean(0), [key(1)], 100, 10_000 if m == 20 else 1000,
        engine=numba,
    )  # fmt: skip
    assert plain.value[0] < log_z - 9.5 and plain.effective_sample_size[0] > 50
    for seed in range(3):
        found = trusted_log_z(numba.prepare(theta), images, key(seed), engine=numba)
        assert plain.value[0] < found.bound <= log_z + 1e-6
        assert abs(found.value - log_z) < max(0.3, 4 * found.standard_error)
        assert found.mode.mean() > images.mean() + 0.4


def test_a_mode_is_found_that_no_chain_comes_to():
    """Two blocks of pixels, a hidden unit each: on in images together, or the second one alone.

    The mode with nearly all of the weight is the first block alone. Noise turns the first on where
    it is dense and the second one off where it is thin; only what one mode has and the other has
    not leads there.
    """
    block, b, w = 30, np.array([-3.0, -6.0]), np.array([16.7, 8.0])
    c = -w * [24, 9]  # a block stays on from so many pixels on
    theta = Parameters(np.repeat(np.diag(w), block, 1)[None], np.repeat(b, block)[None], c[None])
    theta = theta.map(np.float32)
    images = np.repeat(np.eye(2, dtype=np.uint8), block, 1)
    images = np.stack([images[0] | images[1], images[1]])
    exact = exact_log_z(theta).value[0]
    for seed in range(3):
        found = trusted_log_z(theta, images, key(seed), 50, 100)
        assert (np.round(found.mode) == np.repeat([1, 0], block)).all()
        assert found.bases["data"][0] < exact - 5 and abs(found.value - exact) < 0.3


def test_without_a_hidden_mode_nothing_changes():
    theta, images, log_z = planted(784, 49, -30)
    numba = engines.select("numba")
    found = trusted_log_z(numba.prepare(theta), images, key(1), engine=numba)
    value, error, *_ = found.bases["data"]
    assert found.agrees and found.bound <= log_z
    assert abs(found.value - value) < max(0.3, 4 * error) and abs(value - log_z) < 0.3


def test_trusted_log_z_repeats_with_its_key():
    theta, images, _ = planted(20, 4, 3)
    one, two, other = (trusted_log_z(theta, images, key(seed), 10, 20) for seed in (1, 1, 2))
    assert one.bases == two.bases != other.bases
    assert one.value == pytest.approx(logsumexp([part for *_, part in one.bases.values()]))
    assert set(one.bases) >= {"data", "chains", "mode 1"}


def test_the_sum_over_cells_is_unbiased():
    """Ẑ/Z is 1 on average, also where few particles and temperatures see little of a model."""
    theta = random_models(8, 5, seed=3, scale=2, dtype=np.float32)
    images, exact = random_bits(30, 8, seed=1, dtype=np.uint8), exact_log_z(theta).value[0]
    few = {"n_particles": 10, "n_temperatures": 3}
    found = [trusted_log_z(theta, images, key("cells", seed), **few) for seed in range(300)]
    ratios = np.exp([each.value - exact for each in found])
    error = ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert error < 0.05 and abs(ratios.mean() - 1) < 4 * error
    errors = np.array([each.standard_error for each in found])
    assert 0.7 < ratios.std() / np.sqrt((ratios**2 * errors**2).mean()) < 1.4
