"""The choice of an engine, and the compiled one against the plain meaning of each operation.

test_training.py trains, interrupts and resumes with the compiled engine too.
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from conftest import random_bits, random_models
from scipy.special import expit
from threadpoolctl import threadpool_limits

from sdcpd import ROOT, engines
from sdcpd.algorithms import ALGORITHMS, Hyperparameters
from sdcpd.device import BackendError, blas_threads
from sdcpd.engines import choose, cpu, cpu_kernels, select
from sdcpd.engines.cpu import CompiledEngine
from sdcpd.engines.plain import PLAIN, Engine
from sdcpd.likelihood import Evaluator
from sdcpd.log_z import annealed_log_z, exact_log_z
from sdcpd.philox import Stream, key
from sdcpd.sampling import generate

# ---------------------------------------------------------------------------- the choice


@pytest.fixture
def machine(monkeypatch):
    """A function that says what is wrong with this machine's GPU, its tensor cores and Numba."""

    def describe(gpu=None, cores=None, numba=None):
        for name, problem in (("gpu", gpu), ("tensor_core", cores), ("numba", numba)):
            monkeypatch.setattr(engines, f"{name}_problem", lambda problem=problem: problem)

    return describe


NO_GPU = {"gpu": "no GPU here"}
OLD_GPU = {"cores": "no tensor cores"}
BARE = {"gpu": "no GPU here", "numba": "no Numba"}


@pytest.mark.parametrize(
    ("name", "problems", "chosen", "reason"),
    [
        ("auto", {}, "cupy", None),
        ("auto", OLD_GPU, "cupy_float32", "no tensor cores"),
        ("auto", NO_GPU, "numba", "no GPU here"),
        ("auto", BARE, "numpy", "no GPU here; no Numba"),
        ("numpy", BARE, "numpy", None),
        ("numba", NO_GPU, "numba", None),
        ("cupy", {"numba": "no Numba"}, "cupy", None),
        ("cupy_float32", OLD_GPU, "cupy_float32", None),
    ],
)
def test_choice(name, problems, chosen, reason, machine):
    """auto is the fastest that works, and says why no faster one; a name is that engine."""
    machine(**problems)
    assert choose(name) == (chosen, reason)


@pytest.mark.parametrize(
    ("name", "problems", "says"),
    [
        ("cupy", NO_GPU, "cupy asked for, but no GPU here; use backend=auto"),
        ("cupy_float32", NO_GPU, "no GPU here; use backend=auto"),
        ("cupy", OLD_GPU, "no tensor cores; use backend=cupy_float32"),
        ("numba", BARE, "no Numba; use backend=auto"),
        ("torch", {}, "unknown backend 'torch': choose auto, numpy, numba, cupy, cupy_float32"),
    ],
)
def test_engine_that_cannot_be_had(name, problems, says, machine):
    """Asked for by name it must not silently become another one."""
    machine(**problems)
    with pytest.raises(BackendError, match=f"{says}$"):
        select(name)


def test_select_gives_the_engine_of_that_name(machine, monkeypatch):
    machine()
    assert select("numpy") is PLAIN and PLAIN.xp is np
    assert type(select("numba")) is CompiledEngine
    cupy = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(engines, "_warm_up", lambda chosen: None)
    chosen = select("cupy_float32")
    assert type(chosen) is Engine and chosen.xp is cupy
    machine(**BARE)
    assert select() is PLAIN


ALL_THAT_A_RUN_DOES = """
import test_runs
from sdcpd import runs
from sdcpd.engines import cpu, cpu_kernels
from sdcpd.algorithms import ALGORITHMS
from sdcpd.engines import select
from sdcpd.sampling import generate

def compiled_for():
    return {n: len(k.signatures) for n, k in vars(cpu_kernels).items() if hasattr(k, "signatures")}

chosen = select("numba")
before = compiled_for()
for name in ALGORITHMS:
    for size in (6, 16):
        settings = test_runs.settings(name, batch_size=size, ais=test_runs.AIS)
        run = runs.execute(settings, None, "numba")
generate(run.theta.select([1]), [[0, 1]], 5, 3, engine=chosen)
assert compiled_for() == before, (before, compiled_for())
assert before["half_step"] == before["ascend_scaled"] == before["add_log_ratio"] == 1
"""


def test_select_compiles_all_that_a_run_needs():
    """A kernel compiled in the middle of a run would be timed with it, and not be announced."""
    command = [sys.executable, "-c", ALL_THAT_A_RUN_DOES]
    done = subprocess.run(command, cwd=ROOT / "tests", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("limit", "said"), [(-1, True), (1e9, False)])
def test_compiling_is_announced(limit, said, monkeypatch, capsys):
    monkeypatch.delenv("SDCPD_PROGRESS_LOG", raising=False)
    monkeypatch.setattr(engines, "COMPILING", limit)
    select("numba")
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("note: compiled the kernels in") == said


@pytest.mark.parametrize(("capability", "has_them"), [("61", False), ("70", True), ("100", True)])
def test_tensor_cores_by_compute_capability(capability, has_them, monkeypatch):
    """From 7.0 on; as text, "100" is less than "70"."""
    device = SimpleNamespace(compute_capability=capability)
    cuda = SimpleNamespace(Device=lambda: device)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    problem = engines.tensor_core_problem.__wrapped__()
    assert problem is None if has_them else f"{capability}) has no tensor cores" in problem


def test_numba_problem_is_one_line(monkeypatch):
    """Not installed, or not made for this NumPy, or told not to compile."""
    assert engines.numba_problem.__wrapped__() is None
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", 1)
        assert engines.numba_problem.__wrapped__() == "NUMBA_DISABLE_JIT is set"
    monkeypatch.setitem(sys.modules, "numba", None)
    problem = engines.numba_problem.__wrapped__()
    assert problem.startswith("Numba cannot be imported (") and "\n" not in problem


def test_damaged_kernels_are_compiled_again(tmp_path, monkeypatch):
    select("numba")  # which keeps its kernels
    kept = Path(cpu_kernels.receive.stats.cache_path)
    package = tmp_path / "sdcpd"
    shutil.copytree(ROOT / "src/sdcpd", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(kept, package / "engines/__pycache__")
    for file in package.glob("engines/__pycache__/cpu_kernels.receive*.nb[ci]"):
        file.write_bytes(file.read_bytes()[:10])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    code = "from sdcpd import engines; engines.select('numba')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") <= 2 and "are damaged: compiling them again" in done.stderr


def test_describe_names_engine_precision_and_device():
    """A run file has to say what computed it, and in which precision."""
    about = CompiledEngine().describe()
    assert about["engine"] == "numba" and about["numba"] == numba.__version__
    assert about["precision"].startswith("float32 training")
    assert about["device"].startswith("CPU ") and about["numpy"] == np.__version__
    assert about["threads"] == blas_threads() >= 1 and about["blas"]


# ------------------------------------------------------------- the compiled engine: chains


@pytest.fixture
def fast(monkeypatch):
    """With garbage in its new memory: what is read before it was written shows."""
    new = cpu._aligned

    def garbage(*shape):
        array = new(*shape)
        array[:] = np.nan
        return array

    monkeypatch.setattr(cpu, "_aligned", garbage)
    return CompiledEngine()


def make(kind, m, n, replicas=1, seed=1):
    """Models (R, n, m) in float32 of which very few, some, or all units change in a step."""
    if kind == "saturating":  # activations of ±1000 and more
        signs = random_models(m, n, seed, replicas=replicas)
        return signs.map(lambda x: np.where(x > 0, 1000, -1000).astype(np.float32))
    if kind in ("on", "off"):
        bias = 1000 if kind == "on" else -1000
        return random_models(m, n, seed, 0.1, replicas, np.float32)._replace(
            b=np.full((replicas, m), bias, np.float32), c=np.full((replicas, n), bias, np.float32)
        )
    scale = {"initial": 0.01, "moderate": 0.3, "large": 5}[kind]
    return random_models(m, n, seed, scale, replicas, np.float32)


KINDS = ("initial", "moderate", "large", "saturating", "on", "off")


def keys(replicas):
    return [key("engine", replica) for replica in range(replicas)]


def stream(replicas, position=0):
    return Stream(keys(replicas), np, position)


def exact(theta):
    return theta.map(lambda array: array.astype(np.float64))


def assert_equal(got, expected):
    """Of several arrays, to the bit."""
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_float32(got, expected, rtol, atol):
    """Of several arrays, which are float32."""
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == np.float32 and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


def assert_same_states(got, expected):
    """Equal, but for chains in which a u has fallen between the two roundings of a probability."""
    assert got.shape == expected.shape and got.dtype == expected.dtype == np.float32
    chains = (got != expected).any(-1)
    assert chains.sum() <= chains.size // 50


def assert_hidden_probability(p, theta, v):
    """p(h | v) in float64, with the rounding errors of a float32 sum."""
    W, _, c = exact(theta)
    v = v.astype(np.float64)
    x = v @ W.transpose(0, 2, 1) + c[:, None]
    size = v @ np.abs(W).transpose(0, 2, 1) + np.abs(c)[:, None]
    p_exact = expit(x)
    bound = 1e-6 * (1 + size) * np.maximum(p_exact * (1 - p_exact), 1e-6) + 2e-7
    assert p.dtype == np.float32
    np.testing.assert_array_less(np.abs(p - p_exact), bound)


@pytest.mark.parametrize(
    ("replicas", "n_rows", "m", "n"),
    [(1, 1, 1, 1), (3, 1, 7, 5), (2, 50, 64, 32), (3, 200, 33, 18), (1, 60, 784, 101)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_gibbs_is_the_plain_one(kind, replicas, n_rows, m, n, fast):
    """Same random numbers, same states: widths that fill no block of 4 or 8, one row, replicas;
    and draws whose number begins to need more than 32 bits."""
    theta = make(kind, m, n, replicas)
    v = random_bits(replicas, n_rows, m, seed=2)
    streams = stream(replicas, 2**32 - 3), stream(replicas, 2**32 - 3)
    got, p = fast.gibbs(theta, v, 5, streams[0])
    expected, _ = PLAIN.gibbs(theta, v, 5, streams[1])
    assert streams[0].position == streams[1].position == 2**32 + 7
    assert_same_states(got, expected)
    assert_hidden_probability(p, theta, got)
    if kind in ("on", "off"):
        assert (got == (kind == "on")).all()
    elif n_rows * m > 100:
        assert (got != v).any() and 0 < got.mean() < 1


def bits(state, width):
    """The units of words, as float32; beyond ``width`` none is on."""
    units = np.unpackbits(state.view(np.uint8), axis=-1, bitorder="little").astype(np.float32)
    assert not units[..., width:].any()
    return units[..., :width]


def assert_sums_are_those_of_the_states(chain, theta):
    """x = Σ W · state to float32, of the size of what is summed."""
    for sums, W in ((chain.to_visible, theta.W), (chain.to_hidden, theta.W.transpose(0, 2, 1))):
        W, states = W.astype(np.float64), bits(sums.told, W.shape[1]).astype(np.float64)
        bound = 1e-6 * (states @ np.abs(W)) + 1e-30
        np.testing.assert_array_less(np.abs(sums.sums - states @ W), bound)
    n = theta.c.shape[1]
    np.testing.assert_array_equal(bits(chain.to_visible.told, n), bits(chain.hidden, n))
    assert bits(chain.visible, theta.b.shape[1]).shape == chain.v.shape


@pytest.mark.parametrize("fresh", [1, 3, 64])
@pytest.mark.parametrize("kind", ["moderate", "large", "initial"])
def test_sums_made_anew_and_by_changes_give_the_same_states(kind, fresh, fast, monkeypatch):
    """Whichever way they are brought up to date: always anew, now and then, hardly ever. Nor do
    rounding errors add up: after all steps the activations are those of the states to float32."""
    theta, v = make(kind, 45, 30, 2), random_bits(2, 50, 45, seed=4)
    expected, _ = PLAIN.gibbs(theta, v, 150, stream(2))
    monkeypatch.setattr(cpu._Sums, "FRESH", fresh)
    chain = fast.chain(theta, v, stream(2))
    for _ in range(150):
        chain.step()
    assert_same_states(chain.v, expected)
    assert_sums_are_those_of_the_states(chain, theta)
    assert_hidden_probability(chain.hidden_probability(), theta, chain.v)
    np.testing.assert_array_equal(chain.v, bits(chain.to_hidden.told, 45))
    if fresh == 1:  # to the bit those of a chain that begins here
        again = cpu._Sums(fast, theta.W, 50).receive(chain.hidden)
        np.testing.assert_array_equal(chain.to_visible.sums, again)


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_probability(kind, fast):
    """Of any rows, of a chain before it has moved, and as often as asked."""
    theta, v = make(kind, 33, 18, 2), random_bits(2, 7, 33, seed=7)
    chain = fast.chain(theta, v, stream(2))
    for p in (fast.hidden_probability(theta, v), *(chain.hidden_probability() for _ in "ab")):
        assert_hidden_probability(p, theta, v)
    chain.step()
    moved, again = chain.hidden_probability(), chain.hidden_probability()
    assert_hidden_probability(moved, theta, chain.v)
    np.testing.assert_array_equal(moved, again)
    moved[:] = np.nan  # its own array
    assert np.isfinite(chain.hidden_probability()).all()


@pytest.mark.parametrize("word", [0, 255, 256, 2**31, 2**32 - 1])
def test_certain_units_at_the_ends_of_the_generators_range(word):
    """u = 0 and u = 1 − 2⁻²⁴, each about once in 17 million draws, against p = 0 and p = 1."""
    x = np.array([-1000, 1000, -np.inf, np.inf, -200, 200], np.float32)
    words = np.full(8, word, np.uint32)
    cpu_kernels._compare(x, np.float32(1), np.zeros(6, np.float32), words)
    assert words[:6].tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_parameters_that_are_not_finite(value, fast):
    """No crash, states that are states, no replica but its own concerned, and the mark stays."""
    theta, v = make("moderate", 33, 18, 3), random_bits(3, 70, 33, seed=10)
    spoiled = theta.map(np.copy)
    spoiled.W[1, :, 3] = value
    spoiled.c[1, 2] = -value
    got, p = fast.gibbs(spoiled, v, 70, stream(3))
    assert np.isin(got, (0, 1)).all()
    assert_same_states(got[::2], PLAIN.gibbs(theta, v, 70, stream(3))[0][::2])
    assert np.isfinite(p[::2]).all()
    for algorithm in ALGORITHMS.values():
        after, _ = algorithm.step(spoiled, None, v, hyperparameters(3, 33), stream(3), fast)
        assert np.isfinite(after.W[::2]).all()
        assert np.isfinite(value) or not np.isfinite(after.W[1]).all()


def test_replicas_are_independent_to_the_bit(fast, monkeypatch):
    """Side by side or alone, a trial gives the same numbers: also beside one whose units change
    all the time (sums are then made anew), and one whose units never do; and those that are made
    anew because of their age are so at the same steps."""
    monkeypatch.setattr(cpu._Sums, "FRESH", 5)
    theta = make("moderate", 60, 40, 3)
    theta.W[1] *= 0.01
    theta.b[1], theta.c[1] = 0, 0
    theta.b[2], theta.c[2] = -1000, -1000
    v = random_bits(3, 50, 60, seed=11)
    v[2] = 0
    together = fast.gibbs(theta, v, 12, stream(3))
    for r in range(3):
        rows = slice(r, r + 1)
        alone = fast.gibbs(theta.select(rows), v[rows], 12, stream(3).select(rows))
        assert_equal(alone, [array[rows] for array in together])


# ------------------------------------------------------- annealed importance sampling


def log_p(theta, base, v, beta):
    """log p*_β(v), written out in float64."""
    W, b, c = exact(theta)
    v = v.astype(np.float64)
    linear = v @ ((1 - beta) * base + beta * b)[:, :, None]
    x = v @ W.transpose(0, 2, 1) + c[:, None]
    return linear[..., 0] + np.logaddexp(0, beta * x).sum(-1)


@pytest.mark.parametrize("kind", ["initial", "moderate", "large", "saturating"])
def test_anneal_weighs_and_moves_as_the_plain_one(kind, fast):
    """Weighed before they move, with the ratio of p*; moved with the parameters of p_high."""
    theta = make(kind, 33, 18, 2)
    base = np.linspace(-2, 2, 33).astype(np.float32)
    v = random_bits(2, 40, 33, seed=13)
    chain, plain = (e.chain(theta, v, stream(2), base) for e in (fast, PLAIN))
    weights = np.zeros((2, 40))
    for low, high in pairwise(np.linspace(0, 1, 31, dtype=np.float32)):
        before, weights_before = chain.v.copy(), weights.copy()
        chain.anneal(low, high, weights)
        low, high = float(low), float(high)
        expected = log_p(theta, base, before, high) - log_p(theta, base, before, low)
        scale = np.abs(expected).max() + 1
        added = weights - weights_before
        np.testing.assert_allclose(added, expected, atol=3e-6 * scale, rtol=2e-6)
        plain.anneal(low, high, np.zeros((2, 40)))
        assert_same_states(chain.v, plain.v)
    assert_hidden_probability(chain.hidden_probability(), theta, chain.v)


def test_annealed_log_z_is_exact(fast):
    """40 estimates: no bias beyond 3 standard errors."""
    one = make("moderate", 14, 12)
    theta = one.map(lambda array: np.repeat(array, 40, axis=0))
    estimate = annealed_log_z(theta, np.linspace(0.1, 0.9, 14), keys(40), 50, 100, engine=fast)
    error = estimate.value - exact_log_z(one).value
    typical = np.sqrt((estimate.standard_error**2).mean())
    assert 0 < typical < 0.1
    assert abs(error.mean()) < 3 * typical / np.sqrt(40)


class Spy(CompiledEngine):
    """Counts the chains that it makes: NumPy in its place would be right, but slow."""

    made = 0

    def chain(self, *arguments):
        self.made += 1
        return super().chain(*arguments)


def test_evaluator_estimates_with_the_engine_it_is_given():
    spy = Spy()
    train = random_bits(9, 6, seed=14, dtype=np.uint8)
    theta = make("moderate", 6, 4, 2)
    given = {"train": train, "test": train}, key, {"n_particles": 20, "n_temperatures": 30}
    points = Evaluator(*given, engine=spy)(theta, np.arange(2), 5)
    assert spy.made > 2  # of plain AIS, and of each trusted estimate's search and bases
    plain = Evaluator(*given)(theta, np.arange(2), 5)
    for one, other in zip(points, plain, strict=True):
        assert one == pytest.approx(other, abs=1e-3)


def test_generated_images_are_those_of_the_plain_engine():
    theta, spy = make("moderate", 12, 9, 2), Spy()
    images = generate(theta, keys(2), 60, 20, engine=spy)
    plain = generate(theta, keys(2), 60, 20)
    assert spy.made == 1 and images.dtype == np.uint8
    assert_same_states(images.astype(np.float32), plain.astype(np.float32))


# -------------------------------------------------------------------------- algorithms


def hyperparameters(replicas, m):
    """Other values in each replica; the first λ_H is the paper's 0."""
    return Hyperparameters(
        learning_rate=np.array([0.05, 0.2, 0.1][:replicas], np.float32),
        epsilon=np.array([0.1, 0.05, 0.2][:replicas], np.float32),
        lambda_hessian=np.array([0, 0.9, 0.5][:replicas], np.float32),
        n_gibbs_steps=3,
        n_inner_iterations=3,
        sliding_factor=0.1,
        train_mean=np.linspace(0.2, 0.7, m).astype(np.float32),
    )


@pytest.mark.parametrize("kind", ["initial", "moderate"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithm_is_the_plain_one(name, kind, fast):
    """Four updates, the last mini-batch incomplete: the same models and the same memory. Nothing
    that a step is given is written over."""
    theta = make(kind, 30, 20, 3)
    hyper, results = hyperparameters(3, 30), []
    for e in (fast, PLAIN):
        after, memory, draws = theta, None, stream(3)
        for size in (16, 16, 16, 5):
            v = e.states(random_bits(3, size, 30, seed=size, dtype=np.uint8))
            given = [*after, *(memory or ()), v]
            before = [array.copy() for array in given]
            after, memory = ALGORITHMS[name].step(after, memory, v, hyper, draws, e)
            assert_equal(given, before)
        results.append(([*after, *(memory or ())], draws.position))
    (got, position), (expected, plain_position) = results
    assert position == plain_position
    assert_float32(got, expected, rtol=3e-6, atol=3e-6)
    for start, end in zip(theta, expected, strict=False):
        assert np.abs(end - start).max() > 1e-3


# ----------------------------------------------------------------------------- threads


class Counted(ThreadPoolExecutor):
    """A pool that counts what it is given."""

    given = 0

    def submit(self, *arguments):
        self.given += 1
        return super().submit(*arguments)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_threads_change_no_bit(threads, monkeypatch):
    """Each kernel, its rows shared out among threads: also more threads than rows."""
    monkeypatch.setattr(cpu_kernels, "_WORTH_SHARING", 0)
    theta = make("moderate", 33, 18, 2)
    base, v = np.linspace(-2, 2, 33).astype(np.float32), random_bits(2, 3, 33, seed=15)
    hyper, results = hyperparameters(2, 33), []
    with Counted(threads) as pool:
        for n_threads in (1, threads):
            one = CompiledEngine()
            one.threads, one.pool = n_threads, pool
            weights, chain = np.zeros((2, 3)), one.chain(theta, v, stream(2), base)
            for k in range(20):
                chain.anneal(k / 20, (k + 1) / 20, weights)
            memory, after = None, theta
            for _ in range(2):
                after, memory = ALGORITHMS["sdcp_d"].step(after, memory, v, hyper, stream(2), one)
            results.append([weights, chain.v, *after, *(memory or ())])
            results[-1] += one.ascend(theta, hyper.learning_rate, after, theta)
            assert pool.given == 0 if n_threads == 1 else pool.given > 100 * threads
    assert_equal(*results)


def test_as_many_threads_as_the_products_have():
    """A training that has one core must not take two."""
    with threadpool_limits(1, user_api="blas"):
        one = CompiledEngine()
        assert one.threads == 1 and one.pool is None
    assert CompiledEngine().threads == blas_threads()


def test_an_error_in_a_thread_is_raised(monkeypatch):
    """Not lost with the thread, and half of the rows with it."""
    monkeypatch.setattr(cpu_kernels, "_WORTH_SHARING", 0)

    def fail(first, last):
        if first:
            raise MemoryError

    with ThreadPoolExecutor(2) as pool, pytest.raises(MemoryError):
        cpu_kernels.share_out(pool, 2, fail, 10, 1)


# ----------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("n_on", [0, 1, 40, 64, 65, 69, 70])
@pytest.mark.parametrize("n_changed", [*range(10), 33, 34, 35, 36, 37, 38, 70])
def test_changes_are_added(n_changed, n_on, fast):
    """Every number of changes in the last pass, on and off; and of units that are on where the
    sums are made anew, which an error that was in them shows."""
    rng = np.random.default_rng(18)
    W = rng.normal(size=(2, 70, 41)).astype(np.float32)
    now = np.zeros((2, 3, 70), np.float32)
    before = now.copy()
    for row in np.ndindex(2, 3):
        now[row][rng.permutation(70)[:n_on]] = 1
        before[row] = now[row]
        before[row][rng.permutation(70)[:n_changed]] -= 1
    before = np.abs(before)
    for anew in (False, True):
        sums = cpu._Sums(fast, W, 3)
        sums.receive(cpu._bits(before))
        sums.x += 1
        how = cpu._bits(now), sums.told, sums.changes
        sums.changes[:] = 10**6  # not to be read as it is
        cpu_kernels.receive(0, 6, sums.x, sums.W, *how, anew)
        error = not anew and n_changed <= min(n_on, 70 - n_on) + 2
        np.testing.assert_allclose(sums.sums, now @ W + error, atol=2e-5)
        np.testing.assert_array_equal(bits(sums.told, 70), now)


@pytest.mark.parametrize(("B", "m", "n"), [(1, 1, 1), (7, 33, 18), (200, 16, 40)])
@pytest.mark.parametrize("p_on", [0, 0.2, 0.5, 0.8, 1])
def test_statistics(p_on, B, m, n, fast):
    """Means over the batch of p(h | v) vᵀ, v and p(h | v), however many are on; to float32."""
    v = random_bits(2, B, m, seed=21, p=p_on)
    p = np.random.default_rng(22).random((2, B, n), dtype=np.float32)
    got = fast.statistics(None, v, p)
    expected = PLAIN.statistics(None, v.astype(np.float64), p.astype(np.float64))
    assert_float32(got, expected, rtol=1e-7, atol=1e-6)
    strided = np.asfortranarray(v), np.asfortranarray(p)
    assert_equal(fast.statistics(None, *strided), got)


@numba.njit
def exp_of(x, out):
    for k in range(len(x)):
        out[k] = cpu_kernels._exp(x[k])


def test_exp_is_accurate():
    """To 1e-7 within ±87; beyond, clipped or inf, so that p can be 0; NaN stays NaN."""
    x = np.concatenate([np.linspace(-87, 87, 400_001), np.linspace(-1, 1, 100_001)])
    x = np.concatenate([x, np.arange(-125, 126) * np.log(2)]).astype(np.float32)
    out = np.zeros_like(x)
    exp_of(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.float64)), rtol=1.3e-7)
    assert (out[x == 0] == 1).all() and (x == 0).any()
    beyond = np.array([-np.inf, -1000, -87.5, 88.5, 1000, np.inf, np.nan], np.float32)
    out = np.zeros_like(beyond)
    exp_of(beyond, out)
    np.testing.assert_allclose(out[:6], [*np.exp([-87.0] * 3), *[np.inf] * 3], rtol=1.3e-7)
    assert np.isnan(out[6])
