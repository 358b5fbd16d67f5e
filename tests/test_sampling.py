"""Generated images."""

import numpy as np
from conftest import joint_probabilities, random_models
from scipy.stats import chisquare

from sdcpd.engines.plain import PLAIN
from sdcpd.philox import Stream, key
from sdcpd.rbm import Parameters
from sdcpd.sampling import generate


def test_images_are_binary_of_the_right_shape_and_reproducible():
    """The seed governs them; trials and images differ from each other."""
    theta = random_models(12, 5, seed=1, scale=0.2, dtype=np.float32)
    theta = theta.map(lambda array: np.repeat(array, 2, axis=0))
    keys = [key("samples", trial) for trial in range(2)]
    images = generate(theta, keys, n_images=7, n_steps=3)
    assert images.shape == (2, 7, 12) and images.dtype == np.uint8
    assert set(np.unique(images)) == {0, 1}
    np.testing.assert_array_equal(images, generate(theta, keys, n_images=7, n_steps=3))
    np.testing.assert_array_equal(images[1:], generate(theta.select([1]), keys[1:], 7, 3))
    assert (images[0] != images[1]).any()
    assert len(np.unique(images.reshape(14, 12), axis=0)) > 7


def test_images_are_the_end_of_one_gibbs_chain():
    """``n_steps`` transitions, neither fewer nor more, with one stream of random numbers."""
    theta = random_models(12, 5, seed=5, scale=0.2, replicas=2)
    stream = Stream([key(0), key(1)], np)
    start = (stream.uniform(7, 12) < 0.5).astype(np.float64)
    expected, _ = PLAIN.gibbs(theta, start, 5, stream)
    np.testing.assert_array_equal(generate(theta, [key(0), key(1)], 7, 5), expected)


def test_default_is_a_grid_of_25():
    theta = random_models(4, 2, seed=2, dtype=np.float32)
    reported = []
    assert generate(theta, [key(0)], report=reported.append).shape == (1, 25, 4)
    assert max(reported) > 4000  # of 5,000 steps


def test_start_is_a_fair_coin_for_each_pixel():
    images = generate(random_models(50, 2, seed=3), [key(0)], n_images=2000, n_steps=0)
    assert np.abs(images[0].mean(0) - 0.5).max() < 0.05


def test_biased_model_generates_its_mode():
    """Visible biases of ±30 decide every pixel, whatever the start."""
    mode = np.array([1, 0, 0, 1, 1, 0])
    theta = Parameters(np.zeros((1, 3, 6)), 60.0 * mode[None] - 30, np.zeros((1, 3)))
    assert (generate(theta, [key(0)], n_images=50, n_steps=1) == mode).all()


def test_images_have_the_models_distribution():
    """After enough steps: frequencies of all 8 states against p(v) by enumeration."""
    theta = random_models(3, 2, seed=4)
    images = generate(theta, [key("distribution")], n_images=20_000, n_steps=40)
    counts = np.bincount(images[0] @ [4, 2, 1], minlength=8)
    assert chisquare(counts, 20_000 * joint_probabilities(theta).sum(1)).pvalue > 1e-3
