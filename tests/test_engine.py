"""The choice of an engine, and the compiled one against the plain meaning of each operation.

test_training.py trains, interrupts and resumes with the compiled engine too.
"""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
from sdcpd.device import BackendError, blas_threads, gpu_problem
from sdcpd.engines import choose, cpu, cpu_kernels, select
from sdcpd.engines.cpu import CompiledEngine
from sdcpd.engines.plain import PLAIN, Engine
from sdcpd.likelihood import Evaluator
from sdcpd.log_z import annealed_log_z, exact_log_z
from sdcpd.philox import Stream, key, philox
from sdcpd.rbm import Parameters
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
        ("numpy", {}, "numpy", None),
        ("numpy", BARE, "numpy", None),
        ("numba", {}, "numba", None),
        ("numba", NO_GPU, "numba", None),
        ("cupy", {"numba": "no Numba"}, "cupy", None),
        ("cupy_float32", {}, "cupy_float32", None),
        ("cupy_float32", OLD_GPU, "cupy_float32", None),
    ],
)
def test_choice(name, problems, chosen, reason, machine):
    """auto is the fastest that works, and says why no faster one; a name is that engine."""
    machine(**problems)
    assert choose(name) == (chosen, reason)


@pytest.mark.parametrize(
    ("name", "problems", "instead"),
    [
        ("cupy", NO_GPU, "no GPU here; use backend=auto"),
        ("cupy_float32", NO_GPU, "no GPU here; use backend=auto"),
        ("cupy", OLD_GPU, "no tensor cores; use backend=cupy_float32"),
        ("numba", BARE, "no Numba; use backend=auto"),
    ],
)
def test_engine_that_cannot_be_had(name, problems, instead, machine):
    """Asked for by name it must not silently become another one; one line that says what to do."""
    machine(**problems)
    for refuse in (choose, select):
        with pytest.raises(BackendError) as error:
            refuse(name)
        assert str(error.value) == f"backend {name} asked for, but {instead}"


def test_unknown_engine_is_refused():
    with pytest.raises(BackendError) as error:
        select("torch")
    expected = "unknown backend 'torch': choose auto, numpy, numba, cupy, cupy_float32"
    assert str(error.value) == expected


def test_select_gives_the_engine_of_that_name(machine, monkeypatch):
    machine()
    assert select("numpy") is PLAIN and PLAIN.xp is np
    assert type(select("numba")) is CompiledEngine
    cupy = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(engines, "_warm_up", lambda chosen: None)
    chosen = select("cupy_float32")
    assert type(chosen) is Engine and chosen.xp is cupy
    machine(**NO_GPU)
    assert type(select()) is CompiledEngine
    machine(**BARE)
    assert select() is PLAIN


def test_select_auto_on_this_machine():
    """What is installed here does work."""
    assert select().name == ("numba" if gpu_problem() else choose()[0])


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


@pytest.mark.parametrize(
    ("capability", "has_them"), [("35", False), ("61", False), ("70", True), ("100", True)]
)
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
    plain, fast = PLAIN.describe(), CompiledEngine().describe()
    assert (plain.pop("engine"), fast.pop("engine")) == ("numpy", "numba")
    assert fast.pop("numba") == numba.__version__
    assert plain == fast
    assert plain["device"].startswith("CPU ") and plain["precision"].startswith("float32 training")


# ------------------------------------------------------------- the compiled engine: chains


@pytest.fixture(scope="module")
def fast():
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


def assert_close_activation(x, W, states):
    """x = Σ W · state to float32, of the size of what is summed."""
    W, states = W.astype(np.float64), states.astype(np.float64)
    np.testing.assert_array_less(np.abs(x - states @ W), 1e-6 * (states @ np.abs(W)) + 1e-30)


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
    [(1, 1, 1, 1), (3, 1, 7, 5), (2, 5, 16, 24), (3, 200, 33, 18), (1, 60, 784, 101)],
)
@pytest.mark.parametrize("kind", KINDS)
def test_gibbs_is_the_plain_one(kind, replicas, n_rows, m, n, fast):
    """Same random numbers, same states: widths that fill no block of 4 or 8, one row, replicas."""
    theta = make(kind, m, n, replicas)
    v = random_bits(replicas, n_rows, m, seed=2)
    streams = stream(replicas, 3), stream(replicas, 3)
    got, p = fast.gibbs(theta, v, 5, streams[0])
    expected, _ = PLAIN.gibbs(theta, v, 5, streams[1])
    assert streams[0].position == streams[1].position == 13
    assert_same_states(got, expected)
    assert_hidden_probability(p, theta, got)
    if kind in ("on", "off"):
        assert (got == (kind == "on")).all()
    elif n_rows * m > 100:
        assert (got != v).any() and 0 < got.mean() < 1


@pytest.mark.parametrize("n_steps", [1, 2, 7])
def test_gibbs_with_the_hidden_probability_given(n_steps, fast):
    """p(h | v), handed over as the algorithms do, changes nothing."""
    theta, v = make("moderate", 30, 20, 2), random_bits(2, 9, 30, seed=3)
    given = fast.hidden_probability(theta, v)
    with_p = fast.gibbs(theta, v, n_steps, stream(2), given)
    without = fast.gibbs(theta, v, n_steps, stream(2))
    for one, other in zip(with_p, without, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("position", [0, 2**32 - 3, 2**40])
def test_gibbs_at_a_late_draw(position, fast):
    """The number of the draw has 64 bits."""
    theta, v = make("moderate", 30, 20), random_bits(1, 40, 30, seed=3)
    got, _ = fast.gibbs(theta, v, 3, stream(1, position))
    assert_same_states(got, PLAIN.gibbs(theta, v, 3, stream(1, position))[0])


def bits(state, width):
    """The units of words, as float32; beyond ``width`` none is on."""
    units = np.unpackbits(state.view(np.uint8), axis=-1, bitorder="little").astype(np.float32)
    assert not units[..., width:].any()
    return units[..., :width]


def assert_sums_are_those_of_the_states(chain, theta):
    m, n = theta.b.shape[1], theta.c.shape[1]
    for sums, W in ((chain.to_visible, theta.W), (chain.to_hidden, theta.W.transpose(0, 2, 1))):
        assert_close_activation(sums.sums, W, bits(sums.told, W.shape[1]))
    np.testing.assert_array_equal(bits(chain.to_visible.told, n), bits(chain.hidden, n))
    assert bits(chain.visible, m).shape == chain.v.shape


@pytest.mark.parametrize("fresh", [1, 3, 64])
@pytest.mark.parametrize("kind", ["moderate", "large", "initial"])
def test_sums_made_anew_and_by_changes_give_the_same_states(kind, fresh, fast, monkeypatch):
    """Whichever way they are brought up to date: always anew, now and then, hardly ever."""
    theta, v = make(kind, 45, 30, 2), random_bits(2, 50, 45, seed=4)
    expected, _ = PLAIN.gibbs(theta, v, 21, stream(2))
    monkeypatch.setattr(cpu._Sums, "FRESH", fresh)
    chain = fast.chain(theta, v, stream(2))
    for _ in range(21):
        chain.step()
    assert_same_states(chain.v, expected)
    assert_sums_are_those_of_the_states(chain, theta)
    if fresh == 1:  # to the bit those of a chain that begins here
        again = cpu._Sums(fast, theta.W, 50).receive(chain.hidden)
        np.testing.assert_array_equal(chain.to_visible.sums, again)


@pytest.mark.parametrize("fresh", [1, 64])
def test_rounding_errors_do_not_add_up(fresh, fast, monkeypatch):
    """After 500 steps the activations are those of the states to float32."""
    monkeypatch.setattr(cpu._Sums, "FRESH", fresh)
    theta, v = make("moderate", 50, 30, 2), random_bits(2, 20, 50, seed=5)
    chain = fast.chain(theta, v, stream(2))
    for _ in range(500):
        chain.step()
    p = chain.hidden_probability()
    assert_sums_are_those_of_the_states(chain, theta)
    np.testing.assert_array_equal(chain.v, bits(chain.to_hidden.told, 50))
    assert_hidden_probability(p, theta, chain.v)


def test_sums_are_made_anew_now_and_then(fast, monkeypatch):
    """What is wrong in them is gone after FRESH updates, and not before."""
    sums = cpu._Sums(fast, make("moderate", 50, 30).W, 20)
    states = cpu._bits(random_bits(1, 20, 30, seed=6))
    right = sums.receive(states).copy()
    sums.x += 0.01
    for _ in range(cpu._Sums.FRESH - 1):
        np.testing.assert_array_equal(sums.receive(states), right + np.float32(0.01))
    np.testing.assert_allclose(sums.receive(states), right, atol=1e-6)


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


def test_gibbs_writes_over_nothing(fast):
    """Model, data and p(h | v) stay as they were, and so do states once handed out."""
    theta, v = make("moderate", 33, 18, 2), random_bits(2, 7, 33, seed=7)
    p = fast.hidden_probability(theta, v)
    end, p_end = fast.gibbs(theta, v, 3, stream(2), p)
    given = [*theta, v, p, end, p_end]
    before = [array.copy() for array in given]
    fast.gibbs(theta, v, 3, stream(2), p)
    fast.gibbs(theta, end, 3, stream(2, 6))
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert not any(array is not x and np.shares_memory(array, x) for x in given)


def in_other_layouts(theta):
    """The same numbers: W stored transposed, b with gaps between its numbers."""
    return theta._replace(
        W=np.ascontiguousarray(theta.W.transpose(0, 2, 1)).transpose(0, 2, 1),
        b=np.repeat(theta.b, 2, axis=1)[:, ::2],
    )


def test_gibbs_with_arrays_of_any_layout(fast):
    """A transposed W, and a batch that is broadcast, with gaps."""
    theta = make("moderate", 30, 20, 2)
    v = np.broadcast_to(random_bits(9, 60, seed=8)[:, ::2], (2, 9, 30))
    got = fast.gibbs(in_other_layouts(theta), v, 3, stream(2))
    for one, other in zip(got, fast.gibbs(theta, v.copy(), 3, stream(2)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_certain_units_are_certain(fast):
    """p = 1 always gives 1 and p = 0 always 0, whatever the other layer does."""
    m, n = 23, 11
    theta = make("initial", m, n)
    theta.b[:], theta.c[:] = np.where(np.arange(m) % 2, 1000, -1000), -np.inf
    theta.c[:, ::2] = np.inf
    chain = fast.chain(theta, random_bits(1, 300, m, seed=9), stream(1))
    for _ in range(50):
        chain.step()
        assert (chain.v == np.arange(m) % 2).all()
        assert (bits(chain.hidden, n) == (np.arange(n) + 1) % 2).all()


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
    hyper = hyperparameters(3, 33)
    for name in ALGORITHMS:
        after, _ = ALGORITHMS[name].step(spoiled, None, v, hyper, stream(3), fast)
        assert np.isfinite(after.W[::2]).all()
        if not np.isfinite(value):
            assert not np.isfinite(after.W[1]).all()


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
        for one, all_three in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], all_three[r])


# ---------------------------------------------------------------------------- ascents


def assert_unchanged(given, before):
    """Of several Parameters: a step is a pure function."""
    for x, copy in zip(given, before, strict=True):
        for one, other in zip(x, copy, strict=True):
            np.testing.assert_array_equal(one, other)


def gradients(m, n, replicas):
    """θ, ∇g, f̂′ and H of plausible sizes."""
    theta = make("moderate", m, n, replicas)
    rng = np.random.default_rng(12)
    g, f, H = (theta.map(lambda x: rng.random(x.shape, dtype=np.float32)) for _ in range(3))
    return theta, g, f, H.map(lambda x: x / 4)


RATE, WEIGHT, EPSILON = (
    np.array(values, np.float32) for values in ((0.5, 1e-3, 2), (0.9, 0, 0.5), (0.1, 1e-4, 3))
)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (33, 18), (64, 7)])
def test_ascend(m, n, fast):
    """θ + η (∇g − f̂′), each replica with its η; and θ + η ∇g."""
    theta, g, f, _ = given = gradients(m, n, 3)
    before = [x.map(np.copy) for x in given]
    for second in ((f,), ()):
        got = fast.ascend(theta, RATE, g, *second)
        expected = PLAIN.ascend(exact(theta), RATE, *map(exact, (g, *second)))
        for one, other in zip(got, expected, strict=True):
            assert one.dtype == np.float32 and one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=2e-7, atol=5e-7)
    assert_unchanged(given, before)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (33, 18), (64, 7)])
def test_ascend_scaled(m, n, first, fast):
    """The average and the step divided by it, each replica with its λ_H and ε. The first estimate
    is the average itself, whatever λ_H."""
    theta, g, f, H = given = gradients(m, n, 3)
    before = [x.map(np.copy) for x in given]
    hessian = None if first else H
    got = fast.ascend_scaled(theta, RATE, g, f, hessian, WEIGHT, EPSILON)
    wide = [exact(x) if x else None for x in (theta, g, f, hessian)]
    scale = WEIGHT.astype(float), EPSILON.astype(float)
    expected = PLAIN.ascend_scaled(wide[0], RATE.astype(float), *wide[1:], *scale)
    for one, other in zip(got, expected, strict=True):
        assert isinstance(one, Parameters)
        for a, b in zip(one, other, strict=True):
            assert a.dtype == np.float32 and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    assert_unchanged(given, before)


@pytest.mark.parametrize("which", range(4))
def test_ascents_with_arrays_of_any_layout(which, fast):
    """θ, ∇g, f̂′ or H."""
    given = list(gradients(33, 18, 3))
    expected = fast.ascend(given[0], RATE, *given[1:3])
    expected_scaled = fast.ascend_scaled(given[0], RATE, *given[1:], WEIGHT, EPSILON)
    given[which] = in_other_layouts(given[which])
    got = fast.ascend(given[0], RATE, *given[1:3])
    got_scaled = fast.ascend_scaled(given[0], RATE, *given[1:], WEIGHT, EPSILON)
    pairs = zip((got, *got_scaled), (expected, *expected_scaled), strict=True)
    for one, other in pairs:
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


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
    weights, plain_weights = np.zeros((2, 40)), np.zeros((2, 40))
    betas = np.linspace(0, 1, 31, dtype=np.float32)
    for low, high in zip(betas, betas[1:], strict=False):
        step = np.zeros((2, 40))
        before = chain.v.copy()
        chain.anneal(low, high, step)
        low, high = float(low), float(high)
        expected = log_p(theta, base, before, high) - log_p(theta, base, before, low)
        scale = np.abs(expected).max() + 1
        np.testing.assert_allclose(step, expected, atol=3e-6 * scale, rtol=2e-6)
        weights += step
        plain.anneal(low, high, plain_weights)
        assert_same_states(chain.v, plain.v)
    same = (chain.v == plain.v).all(-1)
    np.testing.assert_allclose(weights[same], plain_weights[same], rtol=1e-5, atol=1e-4)
    assert_hidden_probability(chain.hidden_probability(), theta, chain.v)


def test_anneal_adds_to_the_weights(fast):
    theta, v = make("moderate", 12, 9), random_bits(1, 5, 12, seed=14)
    once, twice = np.zeros((1, 5)), np.full((1, 5), 7.0)
    for weights in (once, twice):
        fast.chain(theta, v, stream(1), np.zeros(12, np.float32)).anneal(0, 0.5, weights)
    np.testing.assert_allclose(twice, once + 7, rtol=1e-12)
    assert (once != 0).all()


def test_ratio_of_many_units_does_not_underflow(fast):
    """500 saturated units and few temperatures: a float32 product of the factors is 0."""
    theta = Parameters(
        np.zeros((1, 500, 3), np.float32), np.zeros((1, 3), np.float32), np.full((1, 500), -40.0)
    )
    theta = theta.map(lambda x: x.astype(np.float32))
    weights = np.zeros((1, 1))
    base = np.zeros(3, np.float32)
    fast.chain(theta, np.zeros((1, 1, 3), np.float32), stream(1), base).anneal(0, 0.1, weights)
    np.testing.assert_allclose(weights, [[500 * (np.logaddexp(0, -4) - np.log(2))]], rtol=1e-4)


@pytest.mark.parametrize("kind", ["initial", "moderate"])
def test_annealed_log_z_is_exact_and_the_plain_one(kind, fast):
    """40 estimates: no bias beyond 3 standard errors; those of NumPy but for rounding."""
    one = make(kind, 14, 12)
    theta = one.map(lambda array: np.repeat(array, 40, axis=0))
    how = np.linspace(0.1, 0.9, 14), keys(40), 50, 100
    estimate, plain = (annealed_log_z(theta, *how, engine=e) for e in (fast, PLAIN))
    np.testing.assert_allclose(np.median(np.abs(estimate.value - plain.value)), 0, atol=1e-5)
    np.testing.assert_allclose(estimate.value, plain.value, atol=0.1)
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
    how = {"n_particles": 20, "n_temperatures": 30}
    given = {"train": train, "test": train}, key, how
    points = Evaluator(*given, engine=spy)(theta, np.arange(2), 5)
    assert spy.made > 2  # of plain AIS, and of each trusted estimate's search and bases
    plain = Evaluator(*given)(theta, np.arange(2), 5)
    for one, other in zip(points, plain, strict=True):
        assert one == pytest.approx(other, abs=1e-3)


def test_generated_images_are_those_of_the_plain_engine():
    theta, spy = make("moderate", 12, 9, 2), Spy()
    images = generate(theta, keys(2), 60, 20, engine=spy)
    assert spy.made == 1
    plain = generate(theta, keys(2), 60, 20)
    assert images.dtype == np.uint8
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
    """Four updates, the last mini-batch incomplete: the same models and the same memory."""
    theta = make(kind, 30, 20, 3)
    hyper, states = hyperparameters(3, 30), {}
    for e in (fast, PLAIN):
        state, draws = (theta, None), stream(3)
        for size in (16, 16, 16, 5):
            v = e.states(random_bits(3, size, 30, seed=size, dtype=np.uint8))
            state = ALGORITHMS[name].step(*state, v, hyper, draws, e)
        states[e] = [*state[0], *(state[1] or ())], draws.position
    assert states[fast][1] == states[PLAIN][1]
    for got, expected, start in zip(*(states[e][0] for e in (fast, PLAIN)), theta, strict=False):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=3e-6, rtol=3e-6)
        assert np.abs(expected - start).max() > 1e-3 if start.shape == expected.shape else True
    assert len(states[fast][0]) == len(states[PLAIN][0])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_step_writes_over_nothing(name, fast):
    """A pure function: models, data and memory given to it stay as they are."""
    theta, v = make("moderate", 30, 20, 2), random_bits(2, 8, 30, seed=1)
    hyper, draws = hyperparameters(2, 30), stream(2)
    middle, memory = ALGORITHMS[name].step(theta, None, v, hyper, draws, fast)
    given = [*middle, *(memory or ()), v]
    before = [array.copy() for array in given]
    ALGORITHMS[name].step(middle, memory, v, hyper, draws, fast)
    for array, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(array, copy)


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
            results[-1] += [*one.gibbs(theta, v, 5, stream(2)), one.hidden_probability(theta, v)]
            results[-1] += [*one.ascend(theta, hyper.learning_rate, after, theta)]
            assert pool.given == 0 if n_threads == 1 else pool.given > 100 * threads
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


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


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("rows", [1, 2, 7, 16])
def test_every_row_is_shared_out_once(rows, threads, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "_WORTH_SHARING", 0)
    done = np.zeros(rows, int)

    def kernel(first, last, array):
        array[first:last] += 1

    with ThreadPoolExecutor(threads) as pool:
        cpu_kernels.share_out(pool, threads, kernel, rows, 5, done)
    assert (done == 1).all()


# ----------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("draw", [0, 1, 2**32 - 1, 2**32, 2**45 + 12345])
def test_compiled_philox_is_philox(draw):
    """Word by word: halves of key and draw, block, row."""
    some = np.array([0, 2**64 - 1, 0x299F31D0A4093822], np.uint64)
    expected = philox(some, draw, 7, 24)
    for k, words in zip(some, expected, strict=True):
        for row in (0, 1, 6):
            got = np.zeros(24, np.uint32)
            cpu_kernels._philox(k, row, np.uint64(draw), got)
            np.testing.assert_array_equal(got, words[row])


def draw(x, *how):
    """Half a step in which no unit of the other layer has changed."""
    n_replicas, n_rows, width = x.shape
    W = np.zeros((n_replicas, width // cpu_kernels.LANES, 3, cpu_kernels.LANES), np.float32)
    state, changes = np.zeros((n_replicas, n_rows, 1), np.uint64), np.zeros((*x.shape[:2], 5))
    received = x, W, state, state.copy(), changes.astype(np.uint32), False
    cpu_kernels.half_step(0, n_replicas * n_rows, received, *how)


@pytest.mark.parametrize("width", [1, 3, 4, 5, 31, 32, 33, 63, 64, 65, 130])
def test_compiled_uniforms_are_the_streams(width):
    """A unit is on where u < ½, for a threshold that rounds nothing; no bit beyond the last."""
    draws = stream(3, 2**32 + 1)
    state = np.full((3, 6, -(-width // 64)), 2**64 - 1, np.uint64)  # to be written over
    x = np.zeros((3, 6, cpu_kernels.LANES * 5), np.float32)
    how = np.float32(1), np.zeros((3, width), np.float32), draws.device_keys, draws.position
    draw(x, *how, state)
    np.testing.assert_array_equal(bits(state, width), draws.uniform(6, width) < 0.5)


def test_scale_and_offset_of_a_draw():
    """p = σ(scale · x + offset), the offset a unit's own, and a replica's."""
    x = np.zeros((2, 2000, cpu_kernels.LANES), np.float32)
    x[:, :, :9] = random_models(9, 4, 17, replicas=2).W.repeat(500, axis=1)
    draws, offset = stream(2), random_models(9, 1, 18, replicas=2, dtype=np.float32).b
    state = np.zeros((2, 2000, 1), np.uint64)
    how = np.float32(0.3), offset, draws.device_keys, draws.position
    draw(x, *how, state)
    p = expit(0.3 * x[:, :, :9].astype(np.float64) + offset[:, None])
    assert (bits(state, 9) != (draws.uniform(2000, 9) < p)).mean() < 1e-3


@pytest.mark.parametrize(("M", "N"), [(1, 1), (3, 32), (64, 33), (65, 100), (130, 31)])
def test_packed_weights(M, N):
    """Every column once, whole or in pieces; then the sum of the rows, and zeros."""
    W = np.random.default_rng(20).random((3, M, N), dtype=np.float32)
    blocks, lanes = -(-N // cpu_kernels.LANES), cpu_kernels.LANES
    whole, other = (np.full((3, blocks, M + 2, lanes), np.nan, np.float32) for _ in "ab")
    cpu_kernels.pack(0, 3 * blocks, W, False, whole)
    cpu_kernels.pack(0, 3 * blocks, np.ascontiguousarray(W.transpose(0, 2, 1)), True, other)
    np.testing.assert_array_equal(whole, other)
    columns = whole.transpose(0, 2, 1, 3).reshape(3, M + 2, blocks * lanes)
    np.testing.assert_array_equal(columns[:, :M, :N], W)
    np.testing.assert_allclose(columns[:, M, :N], W.sum(1), rtol=1e-5)
    assert not columns[:, :, N:].any() and not columns[:, M + 1].any()
    piece = np.zeros_like(whole)
    cpu_kernels.pack(blocks, 2 * blocks, W, False, piece)
    np.testing.assert_array_equal(piece[1], whole[1])
    assert not piece[::2].any()


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
    before = v.copy(), p.copy()
    got = fast.statistics(None, v, p)
    expected = PLAIN.statistics(None, v.astype(np.float64), p.astype(np.float64))
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == np.float32 and one.shape == other.shape
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_array_equal(before[0], v)
    np.testing.assert_array_equal(before[1], p)
    strided = np.asfortranarray(v), np.asfortranarray(p)
    for one, other in zip(fast.statistics(None, *strided), got, strict=True):
        np.testing.assert_array_equal(one, other)


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
    assert out[x == 0].tolist() == [1] * (x == 0).sum()
    beyond = np.array([-np.inf, -1000, -87.5, 88.5, 1000, np.inf, np.nan], np.float32)
    out = np.zeros_like(beyond)
    exp_of(beyond, out)
    np.testing.assert_allclose(out[:6], [*np.exp([-87.0] * 3), *[np.inf] * 3], rtol=1.3e-7)
    assert np.isnan(out[6])
