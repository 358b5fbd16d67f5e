"""Generated images."""

import numpy as np
from conftest import joint_probabilities, random_models
from scipy.stats import chisquare

from sdcpd.engines.plain import PLAIN
from sdcpd.philox import Stream, key
from sdcpd.sampling import generate


def test_images_are_the_end_of_one_gibbs_chain():
    """From fair coins, ``n_steps`` transitions, neither fewer nor more, with one stream of random
    numbers for each model, whatever is beside it."""
    theta = random_models(12, 5, seed=5, scale=0.2, replicas=2)
    keys = [key(0), key(1)]
    stream = Stream(keys, np)
    start = (stream.uniform(7, 12) < 0.5).astype(np.float64)
    expected, _ = PLAIN.gibbs(theta, start, 5, stream)
    reported = []
    images = generate(theta, keys, n_images=7, n_steps=5, report=reported.append)
    assert images.dtype == np.uint8 and reported
    np.testing.assert_array_equal(images, expected)
    np.testing.assert_array_equal(images[1:], generate(theta.select([1]), keys[1:], 7, 5))


def test_images_have_the_models_distribution():
    """After enough steps: frequencies of all 8 states against p(v) by enumeration."""
    theta = random_models(3, 2, seed=4)
    images = generate(theta, [key("distribution")], n_images=20_000, n_steps=40)
    counts = np.bincount(images[0] @ [4, 2, 1], minlength=8)
    assert chisquare(counts, 20_000 * joint_probabilities(theta).sum(1)).pvalue > 1e-3
