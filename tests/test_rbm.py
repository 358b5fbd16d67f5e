"""The model against brute-force enumeration, and the Gibbs chain against exact probabilities."""

import numpy as np
import pytest
from conftest import all_states, joint_log_weights, joint_probabilities, random_bits, random_models
from scipy.special import expit, logsumexp
from scipy.stats import chisquare, kstest, norm

from sdcpd import rbm
from sdcpd.engines.plain import PLAIN
from sdcpd.philox import Stream, key
from sdcpd.rbm import initialize, sample

V, H = all_states(4), all_states(3)


@pytest.fixture
def theta():
    """Two models with 4 visible and 3 hidden units."""
    return random_models(4, 3, seed=1, replicas=2)


# ---------------------------------------------------------------------- what is computed


def test_conditional_probabilities_by_enumeration(theta):
    """p(h_i = 1 | v) = Σ_{h: h_i = 1} p(v, h) / p(v): a sign, a transpose, the wrong bias."""
    p_hidden = rbm.hidden_probability(theta, np.stack([V, V]))
    p_visible = rbm.visible_probability(theta, np.stack([H, H]))
    for r in range(2):
        p = joint_probabilities(theta, r)
        np.testing.assert_allclose(p_hidden[r], p @ H / p.sum(1, keepdims=True), rtol=1e-12)
        np.testing.assert_allclose(p_visible[r], p.T @ V / p.sum(0)[:, None], rtol=1e-12)


def test_log_unnormalized_by_enumeration(theta):
    """log Σ_h exp(−E(v, h)): both biases, all hidden units."""
    got = rbm.log_unnormalized(theta, np.stack([V, V]))
    for r in range(2):
        np.testing.assert_allclose(got[r], logsumexp(joint_log_weights(theta, r), 1), rtol=1e-12)


def test_log_unnormalized_is_summed_in_float64():
    """5,000 hidden units summed in float32 would be off by about 1e-3."""
    theta = random_models(40, 5000, seed=2, dtype=np.float32)
    v = random_bits(1, 6, 40, seed=3)
    exact = rbm.log_unnormalized(theta.map(np.float64), v)
    got = rbm.log_unnormalized(theta, v)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, exact, atol=2e-4)


def test_statistics_by_enumeration(theta):
    """−E_{p(h|v)}[∇E], averaged over a batch: for W the pairs, not the product of the means."""
    rows = np.array([[1, 6, 6, 13, 15], [0, 3, 9, 9, 10]])
    batch = V[rows]
    got = rbm.statistics(batch, rbm.hidden_probability(theta, batch))
    for r in range(2):
        p = joint_probabilities(theta, r)
        mean_h = (p @ H / p.sum(1, keepdims=True))[rows[r]]
        pairs = np.mean([np.outer(h, v) for h, v in zip(mean_h, batch[r], strict=True)], axis=0)
        np.testing.assert_allclose(got.W[r], pairs, rtol=1e-12)
        np.testing.assert_allclose(got.b[r], batch[r].mean(0), rtol=1e-12)
        np.testing.assert_allclose(got.c[r], mean_h.mean(0), rtol=1e-12)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 3e-7), (np.float64, 1e-15)])
def test_softplus_is_exact_and_never_overflows(dtype, rtol):
    """log(1 + e^x) written out is inf at 1000 (at 89 in float32)."""
    x = np.array([-1000, -89, -20, -1, -1e-3, 0, 1e-3, 1, 20, 89, 1000], dtype)
    before = x.copy()
    with np.errstate(over="raise", invalid="raise"):
        got = rbm.softplus(x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(x, before)
    # In float32 the tail e^-20 is lost beside 1: an absolute error of at most one rounding.
    atol = 6e-8 if dtype == np.float32 else 0
    np.testing.assert_allclose(got, np.logaddexp(0, before.astype(np.float64)), rtol, atol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_at_its_extremes(dtype):
    """exp(1000) must end as probability 0, silently; large activations as exactly 1."""
    x = np.array([-np.inf, -1000, -5, 0, 5, 1000, np.inf], dtype)
    with np.errstate(all="raise", under="ignore"):
        got = rbm.sigmoid(x.copy())
    np.testing.assert_allclose(got, expit(x), rtol=3e-7 if dtype == np.float32 else 1e-15)
    assert got[0] == got[1] == 0 and got[-1] == got[-2] == 1


# -------------------------------------------------------------------- initial parameters


def test_initial_weights_are_normal_with_standard_deviation_001():
    """N(0, .01²), not uniform, not .01 as variance; independent between replicas."""
    W = initialize(np.full(40, 0.3), 50, [key("init", t) for t in range(3)]).W
    assert W.shape == (3, 50, 40) and W.dtype == np.float32
    assert kstest(W.ravel().astype(np.float64), norm(0, 0.01).cdf).pvalue > 0.01
    assert np.abs(np.corrcoef(W.reshape(3, -1)) - np.eye(3)).max() < 0.1


def test_initial_biases():
    """b = logit of the train mean, clipped to [.001, .999]; c = 0; the same in every replica."""
    theta = initialize([0.0, 0.2, 0.5, 1.0], 7, [key(0), key(1)])
    expected = [np.log(0.001 / 0.999), np.log(0.25), 0, np.log(999)]
    np.testing.assert_allclose(theta.b, [expected] * 2, rtol=1e-6, atol=1e-7)
    assert theta.c.shape == (2, 7) and not theta.c.any()


# -------------------------------------------------------------------------- Gibbs chain


def test_certain_units_are_certain(monkeypatch):
    """p = 1 always gives 1 and p = 0 always 0, even at the ends of the generator's range."""
    p = np.zeros((1, 500, 2), np.float32)
    p[..., 1] = 1
    stream = Stream([key("certain")], np)
    for _ in range(200):
        np.testing.assert_array_equal(sample(p, stream), p)
    for word in (0, 2**32 - 1):
        words = np.full(p.shape, word, np.uint32)
        monkeypatch.setattr("sdcpd.philox.philox", lambda *_, words=words: words.copy())
        np.testing.assert_array_equal(sample(p, stream), p)


@pytest.mark.parametrize("n_steps", [1, 2])
def test_gibbs_transition_probabilities(n_steps):
    """Frequencies of v → h → v from one state, against the enumerated transition matrix."""
    theta = random_models(3, 2, seed=5, scale=1.5)
    p = joint_probabilities(theta)
    h_given_v, v_given_h = p / p.sum(1, keepdims=True), p.T / p.sum(0)[:, None]
    transition = np.linalg.matrix_power(h_given_v @ v_given_h, n_steps)
    start = np.tile(all_states(3)[4], (1, 40_000, 1))
    v, _ = PLAIN.gibbs(theta, start, n_steps, Stream([key("transition")], np))
    assert v.dtype == np.float32 and np.isin(v, (0, 1)).all()
    counts = np.bincount((v[0] @ [4, 2, 1]).astype(int), minlength=8)
    assert chisquare(counts, 40_000 * transition[4]).pvalue > 1e-3
