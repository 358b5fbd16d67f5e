"""Costs: operations by hand; all algorithms timed, the right updates, the warm-up left out."""

import types

import numpy as np
import pytest

from sdcpd import ROOT, data
from sdcpd.algorithms import ALGORITHMS
from sdcpd.engines import select
from sdcpd.rbm import Parameters
from sdcpd.study import timing
from sdcpd.study.timing import Update

SIZES = {"n_visible": 6, "n_hidden": 3, "batch_size": 5, "n_gibbs_steps": 4}
SIZES |= {"n_inner_iterations": 3, "n_gibbs_steps_inner": 2}
OF_LARGE = SIZES | {"n_gibbs_steps": 24, "n_inner_iterations": 6, "n_gibbs_steps_inner": 4}
UPDATE, LARGE = Update(**SIZES), Update(**OF_LARGE)


# ------------------------------------------------------------------------- operations


@pytest.mark.parametrize(
    ("name", "products"), [("cd", 51), ("pcd", 52), ("sdcp", 61), ("sdcp_d", 61)]
)
def test_operations_are_those_of_the_pseudo_code(name, products):
    """Claims 2 and 3: K = dK′ costs 61 products instead of 51 (PCD: its chains begin with no
    p(h | v)), the same random numbers, and the Hessian no product."""
    found = timing.operations(LARGE, algorithms=[name])[name]
    assert found["products"] == products
    assert found["random numbers"] == 24 * 5 * (6 + 3)
    assert found["all arithmetic"] > 2 * products * 5 * 6 * 3


def test_elementwise_operations_by_hand():
    """What d more steps of S-DCP-D cost than those of S-DCP: G(1 − G), its average (3), + ε, the
    quotient: seven for each parameter, and weights that are made of λ_H."""
    d, n_parameters = 6, 3 * 6 + 6 + 3
    found = timing.operations(LARGE, algorithms=["sdcp", "sdcp_d"])
    more = found["sdcp_d"]["all arithmetic"] - found["sdcp"]["all arithmetic"]
    assert more == pytest.approx(7 * d * n_parameters, abs=3 * d * 3)


# ---------------------------------------------------------------------------- seconds


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_every_algorithm_is_timed(engine):
    done = []
    seconds = timing.seconds_per_update(UPDATE, 3, range(2), select(engine), done.append)
    assert list(seconds) == list(ALGORITHMS)
    for values in seconds.values():
        assert values.shape == (2,) and (values > 0).all() and (values < 1).all()
    assert done == list(range(1, 2 * len(ALGORITHMS) + 1))


@pytest.mark.parametrize(("n_updates", "warm_up"), [(3, 1), (60, 3)])
def test_updates_of_each_algorithm(n_updates, warm_up, monkeypatch):
    """With a clock on which an update takes a known time, and the warm-up much longer."""
    calls, clock = [], [0.0]
    cost = {name: number + 1.0 for number, name in enumerate(ALGORITHMS)}

    def step_of(name):
        def step(theta, memory, v, hyper, stream, engine):
            count = memory or 0
            calls.append((name, theta, v, hyper))
            clock[0] += cost[name] if count >= warm_up else 1000
            return theta, count + 1

        return ALGORITHMS[name]._replace(step=step)

    monkeypatch.setattr(timing, "ALGORITHMS", {name: step_of(name) for name in ALGORITHMS})
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: clock[0]))
    seconds = timing.seconds_per_update(UPDATE, n_updates, range(2))
    for name, values in seconds.items():
        assert values.tolist() == [cost[name]] * 2
    # The algorithms take turns within a trial, then backwards.
    turns = [*ALGORITHMS, *reversed(ALGORITHMS)]
    assert [name for name, *_ in calls] == np.repeat(turns, warm_up + n_updates).tolist()
    for name, theta, v, hyper in calls:
        inner = name in ("sdcp", "sdcp_d")
        assert hyper.n_gibbs_steps == (2 if inner else 4)
        assert hyper.n_inner_iterations == 3
        assert theta.W.shape == (1, 3, 6) and v.shape == (1, 5, 6)  # one model at a time
        assert v.dtype == np.float32 and set(np.unique(v)) <= {0, 1}


def given_to_cd(monkeypatch, update, *arguments):
    """The parameters, memory and images that each update by CD gets while it is timed; an update
    adds one to all parameters, and counts."""
    given = []

    def step(theta, memory, v, hyper, stream, engine):
        given.append((theta, memory or 0, v[0]))
        return theta.map(lambda x: x + 1), (memory or 0) + 1

    monkeypatch.setattr(timing, "ALGORITHMS", {"cd": ALGORITHMS["cd"]._replace(step=step)})
    timing.seconds_per_update(update, *arguments, algorithms=["cd"])
    return given


def test_rows_and_memory_are_those_of_a_training(monkeypatch):
    """Each update gets what the last one left; 13 % of the pixels are on, as in MNIST."""
    given = given_to_cd(monkeypatch, UPDATE._replace(n_visible=784, batch_size=200), 3)
    seen = [(theta.b[0, 0], memory) for theta, memory, _ in given]
    start = np.log(0.13 / 0.87)
    np.testing.assert_allclose(seen, [(start + n, n) for n in range(4)], rtol=1e-5)
    assert given[0][2].mean() == pytest.approx(0.13, abs=0.005)


def test_images_and_model_that_are_given(monkeypatch):
    """The next images each time, from the first again after the last."""
    images = np.arange(42).reshape(7, 6)
    theta = Parameters(np.ones((1, 3, 6), np.float32), np.zeros((1, 6)), np.zeros((1, 3)))
    own = UPDATE._replace(images=images, theta=theta)
    given = given_to_cd(monkeypatch, own, 1, range(2))[::2]  # the first update of a trial
    rows = [v[:, 0] // 6 for _, _, v in given]
    np.testing.assert_array_equal(rows, [[0, 1, 2, 3, 4], [5, 6, 0, 1, 2]])
    assert all((theta.W == 1).all() for theta, _, _ in given)


def test_images_and_model_are_as_real_as_they_can_be(monkeypatch):
    small, said = timing._realistic(SIZES | {"n_visible": 9})
    assert small.images.shape == (16, 9) and said == "all patterns, an initial model"

    def missing(name, *where):
        raise data.DataError("not here")

    monkeypatch.setattr(timing, "load", missing)
    archived = (ROOT / "workflow/archive/runs/mnist/as_published/sdcp_d-500h/models.npz").exists()
    given, said = timing._realistic(SIZES | {"n_visible": 784, "n_hidden": 500})
    assert given.images is None and said.startswith("synthetic rows, 13% on")
    assert (given.theta is not None) == archived == ("a trained model" in said)


def test_table1_is_scaled_and_checked_by_one_trial_to_the_end(monkeypatch):
    """Two seconds an update: what is scaled and what is timed to the end agree."""
    calls, done = [], []

    def measure(update, n_updates, trials, engine, algorithms):
        (trial,) = trials
        calls.append((update.n_visible, n_updates, trial, list(algorithms)))
        return {name: np.full(1, 2.0 + trial) for name in algorithms}

    monkeypatch.setattr(timing, "seconds_per_update", measure)
    small = SIZES | {"n_updates": 10, "total_updates": 10}
    large = OF_LARGE | {"n_visible": 7, "n_updates": 3, "total_updates": 100}
    record = timing.table1(2, small, large, ["sdcp_d"], report=lambda *what: done.append(what))
    assert calls == [
        *((6, 10, 0, [*ALGORITHMS]), (6, 10, 1, [*ALGORITHMS])),
        *((7, 3, 0, [*ALGORITHMS]), (7, 3, 1, [*ALGORITHMS])),
        (7, 100, 0, ["sdcp_d"]),
    ]
    assert done == [(title, n) for title in ("Bars & Stripes", "Large datasets") for n in (5, 10)]
    assert record["seconds"]["Bars & Stripes"] == {name: [20.0, 30.0] for name in ALGORITHMS}
    assert record["seconds"]["Large datasets"] == {name: [200.0, 300.0] for name in ALGORITHMS}
    assert record["large_to_the_end"] == {"sdcp_d": 200.0}
    assert record["operations"]["Large datasets"]["cd"]["products"] == 51
    assert not record["on_gpu"] and "synthetic" in record["started"]["Large datasets"]
    assert record["settings"]["large"] == large


def test_interrupted_table1_goes_on(monkeypatch, tmp_path):
    """What was measured is kept, unless it was measured otherwise."""
    calls = []

    def measure(update, n_updates, trials, engine, algorithms):
        calls.append((n_updates, *trials))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return {name: np.full(1, float(len(calls))) for name in algorithms}

    monkeypatch.setattr(timing, "seconds_per_update", measure)
    model = SIZES | {"n_updates": 3, "total_updates": 100}
    path = tmp_path / "table1.part"
    with pytest.raises(KeyboardInterrupt):
        timing.table1(2, model, model, ["cd"], kept_in=path)
    record = timing.table1(2, model, model, ["cd"], kept_in=path)
    assert calls == [(3, 0), (3, 1), (3, 0), (3, 1), (3, 1), (100, 0)]
    assert record["seconds"]["Bars & Stripes"]["cd"] == [100, 200]
    assert record["seconds"]["Large datasets"]["cd"] == [300, 500]
    assert timing.table1(2, model, model, ["cd"], kept_in=path) == record and len(calls) == 6
    timing.table1(2, model | {"n_hidden": 4}, model, [], kept_in=path)
    assert len(calls) == 10
    path.write_text("{")
    timing.table1(1, model, model, [], kept_in=path)
    assert len(calls) == 12
