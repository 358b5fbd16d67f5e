"""Bounds and trusted estimates of log Z: against enumeration, and with modes that are planted."""

import numpy as np
import pytest
from conftest import all_states, joint_log_weights, random_bits, random_models
from scipy.special import expit, logsumexp

from sdcpd import engines, trusted
from sdcpd.log_z import annealed_log_z, exact_log_z
from sdcpd.philox import key
from sdcpd.rbm import Parameters
from sdcpd.trusted import mean_field, trusted_log_z


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
    for i, block in enumerate(blocks, 1):
        W[i, block] = rng.normal(0, 1, len(block))
    b, c = rng.normal(-2, 0.3, m), np.r_[0.0, rng.normal(0, 1, n_blocks)]
    W[0] = weight
    W, b, c = (a.astype(np.float32).astype(float) for a in (W, b, c))

    def log_z_of_blocks(bias):
        total = 0
        for i, block in enumerate(blocks, 1):
            unit_off = np.logaddexp(0, bias[block]).sum()
            unit_on = c[i] + np.logaddexp(0, bias[block] + W[i, block]).sum()
            total += np.logaddexp(unit_off, unit_on)
        return total

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
@pytest.mark.parametrize(("m", "n"), [(12, 8), (6, 10)])
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


@pytest.mark.parametrize(
    ("m", "n_blocks", "weight", "n"), [(20, 4, 12, 10_000), (784, 49, 3, 1000)]
)
def test_a_planted_mode_is_found_that_plain_ais_misses(m, n_blocks, weight, n):
    """Small enough to enumerate, and large: of 10 nats more than all the rest, far from data."""
    theta, images, log_z = planted(m, n_blocks, 10, weight)
    numba = engines.select("numba")
    theta = numba.prepare(theta)
    plain = annealed_log_z(theta, images.mean(0), [key(1)], 100, n, engine=numba)
    assert plain.value[0] < log_z - 9.5 and plain.effective_sample_size[0] > 50
    for seed in range(3):
        found = trusted_log_z(theta, images, key(seed), engine=numba)
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


def test_a_mode_is_found_that_only_the_weights_tell_of(monkeypatch):
    """A random half of the pixels on and the others off, by four hidden units that are on where it
    is nearly complete: no noise and no image leads to it, but a singular direction does."""
    signs = np.where(np.random.default_rng(1).permutation(200) < 100, 2.0, -2.0)
    W, b, c = np.tile(signs, (4, 1)), np.full(200, -3.0), np.full(4, -120.0)
    theta = Parameters(W[None], b[None], c[None]).map(np.float32)
    images = (np.random.default_rng(2).random((50, 200)) < 0.05).astype(np.uint8)
    exact = exact_log_z(theta).value[0]
    for directions, found in ((trusted.DIRECTIONS, True), (0, False)):
        monkeypatch.setattr(trusted, "DIRECTIONS", directions)
        log_z = trusted_log_z(theta, images, key(1), 50, 100)
        assert (log_z.bound > exact - 1) == found and log_z.bound < exact
        assert abs(log_z.value - exact + 10 * (not found)) < 2
        assert np.array_equal(np.round(log_z.mode), signs > 0) == found


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


def test_the_sum_over_cells_is_all_but_unbiased():
    """Ẑ/Z is 1 on average, less what the choice of the base that is run again takes from it, also
    where few temperatures see little of a model."""
    theta = random_models(8, 5, seed=3, scale=2, dtype=np.float32)
    images, exact = random_bits(30, 8, seed=1, dtype=np.uint8), exact_log_z(theta).value[0]
    few = {"n_particles": 50, "n_temperatures": 3}
    found = [trusted_log_z(theta, images, key("cells", seed), **few) for seed in range(300)]
    ratios = np.exp([each.value - exact for each in found])
    error = ratios.std(ddof=1) / np.sqrt(len(ratios))
    assert error < 0.005 and -1.5 / 50 < ratios.mean() - 1 < 4 * error
    errors = np.array([each.standard_error for each in found])
    assert 0.7 < ratios.std() / np.sqrt((ratios**2 * errors**2).mean()) < 1.4
