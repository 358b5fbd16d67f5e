"""Average log-likelihoods by enumeration, and what a curve holds."""

import numpy as np
import pytest
from conftest import all_states, joint_log_weights, random_bits, random_models
from scipy.special import logsumexp

from sdcpd import likelihood
from sdcpd.data import bars_and_stripes
from sdcpd.likelihood import Evaluator, average_log_likelihood
from sdcpd.log_z import annealed_log_z, exact_log_z
from sdcpd.philox import key
from sdcpd.rbm import initialize


@pytest.mark.parametrize("chunk", [2**14, 3])
def test_average_log_likelihood_by_enumeration(chunk, monkeypatch):
    """Mean of log p(v) over images that repeat, across a chunk's boundary as well."""
    monkeypatch.setattr(likelihood, "CHUNK", chunk)
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


# ----------------------------------------------------------------------- the evaluator


def test_evaluator_of_small_models():
    """Exact, in float64 whatever the models' precision; without validation images no such key."""
    sizes = {"train": 9, "test": 9, "valid": 7}
    parts = {p: random_bits(n, 6, seed=len(p), dtype=np.uint8) for p, n in sizes.items()}
    theta = random_models(6, 4, seed=13, replicas=2, dtype=np.float32)
    points = Evaluator(parts, keys=None)(theta, np.arange(2), 5)
    wide = theta.map(np.float64)
    log_z = exact_log_z(wide).value
    for r, point in enumerate(points):
        expected = {p: average_log_likelihood(wide, v, log_z)[r] for p, v in parts.items()}
        assert len(set(expected.values())) == 3
        assert point == expected | {"log_z": log_z[r], "log_z_se": 0, "ess": np.inf}
    del parts["valid"]
    without = Evaluator(parts, keys=None)(theta, np.arange(2), 5)
    for one, point in zip(without, points, strict=True):
        assert one == {name: value for name, value in point.items() if name != "valid"}


def test_evaluator_makes_plain_ais_where_it_is_asked_for():
    """And the trusted estimate always: near log Z, above its bound, the same for every part."""
    images, valid = (random_bits(n, 6, seed=n, dtype=np.uint8) for n in (9, 7))
    theta = random_models(6, 4, seed=13, replicas=2)
    ais = {"n_particles": 100, "n_temperatures": 100}
    parts = {"train": images, "test": images, "valid": valid}
    evaluator = Evaluator(parts, key, ais, plain_at=[5, 8])
    exact = exact_log_z(theta).value
    for update, plain in ((4, False), (5, True)):
        for r, point in enumerate(evaluator(theta, np.arange(2), update)):
            assert ("train" in point) == ("log_z" in point) == ("ess" in point) == plain
            assert point["bound"] <= exact[r]
            assert abs(point["trusted_log_z"] - exact[r]) < 0.3 and point["trusted_agrees"] == 1
            assert point["trusted_train"] == point["trusted_test"]
            for name in ("", "trusted_") if plain else ("trusted_",):
                log_z = [point[f"{name}log_z"]] * 2
                for part, of_part in parts.items():
                    expected = average_log_likelihood(theta, of_part, log_z)[r]
                    assert point[name + part] == pytest.approx(expected, abs=1e-9)


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
    for name, values in zip(("log_z", "log_z_se", "ess"), estimate, strict=True):
        assert [point[name] for point in points] == values.tolist()
