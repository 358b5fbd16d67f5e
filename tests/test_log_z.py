"""Exact log Z by brute force, annealed importance sampling against it, and its error bars."""

import math

import numpy as np
import pytest
from conftest import joint_log_weights, random_models
from scipy.special import expit, logit, logsumexp

from sdcpd import ROOT, engines, log_z
from sdcpd.engines.plain import log_ratio
from sdcpd.likelihood import average_log_likelihood
from sdcpd.log_z import annealed_log_z, exact_log_z
from sdcpd.philox import Stream, key
from sdcpd.rbm import Parameters

# ------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("chunk", [log_z.CHUNK, 9])
@pytest.mark.parametrize(("m", "n"), [(4, 3), (3, 5), (4, 4)])
def test_exact_log_z_is_the_sum_over_all_states(m, n, chunk, dtype, monkeypatch):
    """Enumerating the hidden (n < m) or the visible layer, all at once or in chunks of 3 states,
    the last one smaller: swapped biases, a state that is lost or counted twice."""
    monkeypatch.setattr(log_z, "CHUNK", chunk)
    theta = random_models(m, n, seed=1, scale=1.5, replicas=3, dtype=dtype)
    found = exact_log_z(theta)
    expected = [logsumexp(joint_log_weights(theta, r)) for r in range(3)]
    np.testing.assert_allclose(found.value, expected, rtol=1e-12)
    assert found.value.dtype == np.float64
    assert (found.standard_error == 0).all() and np.isinf(found.effective_sample_size).all()


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


# ------------------------------------------------------- annealed importance sampling


def literal_ais(theta, mean, stream, n_particles, n_temperatures):
    """Neal's algorithm for one model, unnormalised p*_β(v) written out in float64."""
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
        log_weights += log_p(v, high) - log_p(v, low)
        v = move(v, high)
    base_log_z = len(c) * np.log(2) + np.logaddexp(0, base).sum()
    value = base_log_z + logsumexp(log_weights) - np.log(n_particles)
    weights = np.exp(log_weights - log_weights.max())
    error = weights.std(ddof=1) / weights.mean() / np.sqrt(n_particles)
    return value, error, weights.sum() ** 2 / (weights**2).sum()


def test_annealed_log_z_with_few_temperatures():
    """So few that the order shows: moved before they are weighed, with the parameters that they
    are weighed for (rbms#6), the particles are off by more than 10 standard errors."""
    theta = random_models(8, 6, seed=7, scale=0.8)
    mean, exact = np.linspace(0.2, 0.8, 8), exact_log_z(theta).value[0]
    size = {"n_particles": 4000, "n_temperatures": 6}
    stream_key = key("few temperatures")
    ours = annealed_log_z(theta, mean, [stream_key], **size)
    literal = literal_ais(theta, mean, Stream([stream_key], np), **size)
    np.testing.assert_allclose(np.ravel(ours), literal, rtol=1e-4)
    assert abs(ours.value[0] - exact) < 3 * ours.standard_error[0] < 0.15


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


def test_log_z_is_the_log_of_the_mean_weight(monkeypatch):
    """On weights of large spread, with one temperature, base and model equal: not the mean of the
    logs (jertubiana/PGM), normalised by the right count (tensorflow/probability#267), no overflow.
    """
    log_weights = np.array([0.0, 3.0, 700.0, 1500.0, 1501.0, 1490.0])
    monkeypatch.setattr("sdcpd.engines.plain.log_ratio", lambda x, low, high: log_weights[None])
    theta = Parameters(np.zeros((1, 3, 2)), np.zeros((1, 2)), np.zeros((1, 3)))
    estimate = annealed_log_z(theta, [0.5, 0.5], [key(0)], 6, 1)
    weights = [math.exp(w - 1501) for w in log_weights]
    mean = sum(weights) / 6
    variance = sum((w - mean) ** 2 for w in weights) / 5
    base = 5 * math.log(2)
    assert estimate.value[0] == pytest.approx(base + 1501 + math.log(mean), rel=1e-12)
    assert estimate.standard_error[0] == pytest.approx(math.sqrt(variance / 6) / mean, rel=1e-9)
    ess = sum(weights) ** 2 / sum(w**2 for w in weights)
    assert estimate.effective_sample_size[0] == pytest.approx(ess, rel=1e-9)


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


@pytest.mark.parametrize("name", ["numpy", "numba"])
def test_log_z_of_thousands_of_units_does_not_underflow(name):
    """Of independent units, so saturated that a float64 product of all factors is 0."""
    engine, n = engines.select(name), 2000
    theta = Parameters(np.zeros((1, n, 3)), np.zeros((1, 3)), np.full((1, n), -20.0))
    theta, exact = theta.map(np.float32), 3 * np.log(2) + n * np.logaddexp(0, -20)
    found = annealed_log_z(engine.prepare(theta), [0.5] * 3, [key(1)], 20, 10, engine=engine)
    assert found.value[0] == pytest.approx(exact, abs=0.01)


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
    assert abs(estimate.value[0] - 451.15) < 3 * estimate.standard_error[0] < 2.4
