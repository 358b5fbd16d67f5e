"""The GPU engine: with the stand-in for CuPy of tests/strict, and on a GPU where there is one."""

import shutil
import subprocess

import numpy as np
import pytest
from conftest import random_bits, random_models

from sdcpd import ROOT, device
from sdcpd.algorithms import ALGORITHMS, Hyperparameters
from sdcpd.data import bars_and_stripes
from sdcpd.device import to_host
from sdcpd.engines import select
from sdcpd.engines.gpu import SplitEngine
from sdcpd.engines.plain import PLAIN, SHARE, Engine, replica_bytes
from sdcpd.likelihood import Evaluator
from sdcpd.log_z import annealed_log_z, exact_log_z
from sdcpd.philox import Stream, key
from sdcpd.rbm import initialize
from sdcpd.sampling import generate
from sdcpd.training import Checkpoint, Task, train

R, B, N, M = 3, 7, 13, 19  # none a multiple of anything
KEYS = [key("split", replica) for replica in range(R)]
NO_GPU = device.gpu_problem()
GPU = pytest.param("gpu", marks=pytest.mark.skipif(bool(NO_GPU), reason=f"needs a GPU: {NO_GPU}"))


@pytest.fixture(params=["strict", GPU])
def engine(request):
    if request.param == "strict":
        request.getfixturevalue("strict_cupy")
    return select("cupy")


def model(scale=0.5, n=N, m=M, replicas=R):
    return random_models(m, n, seed=1, scale=scale, replicas=replicas, dtype=np.float32)


def on(engine, theta):
    return engine.prepare(theta.map(engine.xp.asarray))


def bits(engine, *shape, seed):
    images = random_bits(*shape, seed=seed, dtype=np.uint8)
    return images.astype(np.float32), engine.states(engine.xp.asarray(images))


def stream(engine, position=0):
    return Stream(KEYS, engine.xp, position)


def hyperparameters(xp=np, m=M):
    arrays = [0.1, 0.2, 0.05], [0.1, 0.2, 0.3], [0.0, 0.5, 0.9]
    arrays = (xp.asarray(values, xp.float32) for values in arrays)
    return Hyperparameters(*arrays, 3, 2, 0.01, xp.full(m, 0.4, xp.float32))


def joined(p):
    """Probabilities (R, B, 2, N) in two parts, as one number each."""
    p = to_host(p).astype(np.float64)
    return p[:, :, 0] + p[:, :, 1] / 2048


def assert_equal(got, expected):
    """Of several arrays, to the bit."""
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(to_host(one), other)


# ----------------------------------------------------------------------------- the split


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 300.0])
def test_halves_are_the_weights_to_22_bits(engine, scale):
    """hi + lo / 2^11, also where lo alone would be too small for fp16; zero in the padding."""
    theta = model(scale)
    halves = to_host(on(engine, theta).halves).astype(np.float64)
    assert halves.shape == (R, 64, 2, 24)
    got = halves[:, :, 0] + halves[:, :, 1] / 2048
    np.testing.assert_allclose(got[:, :N, :M], theta.W, rtol=2.0**-21, atol=1e-10)
    assert not halves[:, N:].any() and not halves[..., M:].any()


@pytest.mark.parametrize("scale", [0.01, 1.0])
@pytest.mark.parametrize(("n", "m", "rows"), [(N, M, B), (64, 8, 1), (500, 784, 200)])
def test_products_against_float64(engine, n, m, rows, scale):
    """Within 2⁻²⁰ of what is summed up, which a product of single halves is far from.

    An H100 was five times as far from float64 as its float32 product, and a hundred times as close
    as single halves: tensor cores cut off what float32 would round.
    """
    theta = model(scale, n, m)
    v, both = bits(engine, R, rows, m, seed=3)
    split_theta = on(engine, theta)
    exact = v.astype(np.float64) @ theta.W.transpose(0, 2, 1).astype(np.float64)
    got = to_host(engine.hidden_sums(split_theta, both))
    bound = 2.0**-20 * (v @ np.abs(theta.W).transpose(0, 2, 1))
    assert (np.abs(got[..., :n] - exact) <= bound).all()
    assert not got[..., n:].any()  # padded units: no weights, no sum
    single = v @ theta.W.transpose(0, 2, 1).astype(np.float16).astype(np.float32)
    assert (np.abs(single - exact) > 10 * bound).any()


# ------------------------------------------------------------------- chains and algorithms


@pytest.mark.parametrize("given", [False, True])
def test_gibbs_draws_the_states_of_numpy(engine, given):
    """The same random numbers in the kernels, the same states; the start is not written over.
    Units with p = 1 and p = 0 are certain."""
    theta, (v, both) = model(), bits(engine, R, B, M, seed=5)
    theta.b[:, :2] = theta.c[:, :2] = 1e4, -1e4
    split_theta, before = on(engine, theta), to_host(both).copy()
    p = engine.hidden_probability(split_theta, both) if given else None
    numbers, plain = stream(engine, 2**32 - 3), Stream(KEYS, np, 2**32 - 3)
    got, p_got = engine.gibbs(split_theta, both, 5, numbers, p)
    expected, p_expected = PLAIN.gibbs(theta, v, 5, plain)
    np.testing.assert_array_equal(to_host(got)[:, :, 0, :M], expected)
    assert (expected[:, :, 0] == 1).all() and (expected[:, :, 1] == 0).all()
    np.testing.assert_array_equal(to_host(got)[:, :, 1], to_host(got)[:, :, 0] / 2048)
    np.testing.assert_allclose(joined(p_got)[..., :N], p_expected, rtol=5e-6, atol=1e-7)
    assert not joined(p_got)[..., N:].any()
    assert numbers.position == plain.position
    np.testing.assert_array_equal(to_host(both), before)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_as_with_numpy(engine, name):
    """Four updates with all that an algorithm keeps. A step writes over nothing: training keeps
    the old state for a checkpoint."""
    theta = model()
    plain, ours = (theta, None), (on(engine, theta), None)
    numbers, plain_numbers = stream(engine), Stream(KEYS, np)
    for update in range(4):
        v, both = bits(engine, R, B, M, seed=10 + update)
        plain = ALGORITHMS[name].step(*plain, v, hyperparameters(), plain_numbers)
        given = [*ours[0], *(ours[1] or ()), both]
        before = [to_host(array).copy() for array in given]
        ours = ALGORITHMS[name].step(*ours, both, hyperparameters(engine.xp), numbers, engine)
        assert_equal(given, before)
    for got, expected in zip(ours[0], plain[0], strict=False):
        np.testing.assert_allclose(to_host(got), expected, atol=2e-5)
    assert type(ours[1]) is type(plain[1]) and numbers.position == plain_numbers.position
    halves = to_host(engine.prepare(ours[0]).halves)  # made in the same pass as the update
    np.testing.assert_array_equal(to_host(ours[0].halves), halves)


# ------------------------------------------------------------------------------------ AIS


def test_annealing_weighs_as_numpy(engine):
    theta, arguments = model(), (np.linspace(0.1, 0.9, M), KEYS, 6, 50)
    ours = annealed_log_z(on(engine, theta), *arguments, engine=engine)
    plain = annealed_log_z(theta, *arguments)
    for got, expected in zip(ours, plain, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_annealing_against_enumeration(engine):
    """DsysDML/rbms#6; and padded units would each add ln 2: 51 of them, 35 nats."""
    theta = model(0.3, n=13, m=9, replicas=4)
    keys = [key("ais", replica) for replica in range(4)]
    estimate = annealed_log_z(on(engine, theta), np.full(9, 0.5), keys, 25, 50, engine=engine)
    error = estimate.value - exact_log_z(theta.map(lambda a: a.astype(np.float64))).value
    assert np.abs(error / estimate.standard_error).max() < 5


# ------------------------------------------------------------------- training and sampling


def training(engine, name, batch_size, points, checkpoint=None):
    xp, images = engine.xp, bars_and_stripes(3)
    theta = initialize(images.mean(0), 4, KEYS, xp)
    device_images = xp.asarray(images)
    evaluate = Evaluator({"train": device_images, "test": device_images}, key, engine=engine)
    hyper = hyperparameters(xp, images.shape[1])
    how = batch_size, points, np.array(KEYS), np.array(KEYS)
    task = Task(name, hyper, device_images, *how, engine=engine)
    return train(task, theta, evaluate, checkpoint and Checkpoint(checkpoint))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("batch_size", [5, 16])
def test_training_is_as_with_numpy_and_resumed(engine, name, batch_size, tmp_path):
    """Mini-batches and full batches, evaluated on the way. Chains, offsets and Hessians come back
    from a checkpoint in the engine's own form."""
    plain = training(PLAIN, name, batch_size, (0, 3, 8))
    for each in (engine, Engine(engine.xp)):
        ours = training(each, name, batch_size, (0, 3, 8))
        for got, expected in zip(ours.theta, plain.theta, strict=True):
            np.testing.assert_allclose(got, expected, atol=2e-5)
        for got, expected in zip(ours.curve, plain.curve, strict=True):
            assert got["train"] == pytest.approx(expected["train"], abs=1e-4)
        checkpoint = tmp_path / f"{each.name}.npz"
        training(each, name, batch_size, (0, 3), checkpoint)
        resumed = training(each, name, batch_size, (0, 3, 8), checkpoint)
        assert resumed.resumed_at == 3 and resumed.curve == ours.curve
        assert_equal(resumed.theta, ours.theta)


def test_generated_images(engine):
    theta = model()
    ours = generate(theta.map(engine.xp.asarray), KEYS, 5, 4, engine=engine)
    np.testing.assert_array_equal(ours, generate(theta, KEYS, 5, 4))


# -------------------------------------------------------------------------------- memory


def test_jobs_that_share_a_gpu_share_its_memory(strict_cupy, monkeypatch):
    """All may begin at once, when all of it is still free; and what is taken already counts."""
    engine, size = select("cupy"), (500, 784, 200, 60_000)
    alone = engine.capacity(*size)
    monkeypatch.setenv("SDCPD_GPU_SHARE", "0.25")
    assert 4 * engine.capacity(*size) < alone < 4.2 * (engine.capacity(*size) + 1)
    own, free = strict_cupy.zeros(10**7), device.free_memory(strict_cupy)
    assert free == pytest.approx(0.25 * strict_cupy.TOTAL - own.nbytes, rel=1e-3)
    monkeypatch.setattr(strict_cupy.cuda.runtime, "memGetInfo", lambda: (10**9, 80 * 10**9))
    assert device.free_memory(strict_cupy) == 10**9  # the others took more than theirs


def most_memory(engine, name, replicas, n_updates=3):
    """Bytes that a training of models as large as the paper's takes at its height."""
    xp, images = engine.xp, random_bits(2000, 784, seed=1, p=0.13, dtype=np.uint8)
    keys = np.array([key(number) for number in range(replicas)])
    one, device_images = xp.full(replicas, 0.01, xp.float32), xp.asarray(images)
    mean = xp.asarray(images.mean(0), xp.float32)
    steps = (1, 2) if ALGORITHMS[name].has_inner_loop else (2, 1)
    hyper = Hyperparameters(one, one, one, *steps, 0, mean)
    pool = xp.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    task = Task(name, hyper, device_images, 200, [n_updates], keys, keys, engine=engine)
    theta = initialize(images.mean(0), 500, keys, xp)
    train(task, theta, lambda _, who, at: [{"train": 0.0}] * len(who))
    return pool.total_bytes() - before


@pytest.mark.parametrize("name", ["cupy", "cupy_float32"])
def test_memory_estimate_is_just_above_what_lives(strict_cupy, name):
    """S-DCP-D takes most."""
    engine, estimate = select(name), replica_bytes(500, 784, 200, 2000)
    each = most_memory(engine, "sdcp_d", 2) - most_memory(engine, "sdcp_d", 1)
    assert 0.8 * estimate < each < estimate
    for other in ALGORITHMS:
        assert most_memory(engine, other, 1) - 4e6 < each


@pytest.mark.parametrize("n_rows", [100, 1000])
def test_memory_estimate_holds_for_annealing(strict_cupy, n_rows):
    engine, keys = select("cupy"), [key(number) for number in range(2)]
    theta, pool = on(engine, model(n=500, m=784, replicas=2)), strict_cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    annealed_log_z(theta, np.full(784, 0.1), keys, n_rows, 2, engine=engine)
    assert pool.total_bytes() - before < 2 * replica_bytes(500, 784, n_rows, 0)


@pytest.mark.skipif(bool(NO_GPU), reason=f"needs a GPU: {NO_GPU}")
def test_memory_estimate_holds_on_a_gpu():
    """Its pool, which takes more than what lives, fits, and does not grow with the updates."""
    engine, replicas = select("cupy"), 20
    peaks = [most_memory(engine, "sdcp_d", replicas, n_updates) for n_updates in (10, 200)]
    assert peaks[1] <= 1.05 * peaks[0]  # cupy#7678
    assert peaks[1] < replicas * replica_bytes(500, 784, 200, 2000) / SHARE


# ------------------------------------------------------------------------------- compiling


@pytest.mark.parametrize("architecture", ["75", "80", "90"])
def test_kernels_compile_for_a_gpu(architecture, tmp_path):
    """By the CUDA compiler, where there is one: what the emulator cannot see."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    source = ROOT / "src/sdcpd/engines/kernels.cu"
    command = ["nvcc", f"-arch=sm_{architecture}", "-cubin", "-o", tmp_path / "k.cubin", source]
    subprocess.run(command, check=True)


def test_constants_agree_with_the_kernels():
    source = (ROOT / "src/sdcpd/engines/kernels.cu").read_text()
    assert SplitEngine.threads <= 256 and "#define MAX_THREADS 256" in source
