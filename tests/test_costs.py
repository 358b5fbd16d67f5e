"""Costs: counts of a real training, sizes of real arrays, and schedules that can be checked."""

import numpy as np
import pytest

from sdcpd import costs, data, engine, experiments, runs
from sdcpd.costs import Job, Work

HYPERPARAMETERS = {
    "cd": {"learning_rate": 0.1},
    "sdcp": {"learning_rate": 0.1},
    "sdcp_d": {"learning_rate": 0.1, "epsilon": 0.1, "lambda_hessian": 0.0},
}
SMALL = {
    "dataset": "bars_and_stripes",
    "algorithm": "cd",
    "n_hidden": 4,
    "trials": 2,
    "epochs": 2.5,
    "batch_size": 5,
    "evaluate": {"every": 1, "also": [0]},
    "n_gibbs_steps": 3,
    "n_inner_iterations": 1,
    "hyperparameters": HYPERPARAMETERS["cd"],
    "ais": {"n_particles": 10, "n_temperatures": 7},
    "seed": 1,
}
RATES = dict.fromkeys(("gibbs", "ascent", "temperature", "image"), 1.0)
RATES |= {"small_call": 1.0, "small_replica": 1.0, "state": 1.0, "notebook": 100.0}


class Counting(engine.Engine):
    """The plain engine, counting what it is asked for."""

    def __init__(self):
        super().__init__()
        self.gibbs_steps = self.ascents = self.temperatures = self.annealed = 0

    def gibbs(self, theta, v, n_steps, *rest):
        self.gibbs_steps += n_steps
        return super().gibbs(theta, v, n_steps, *rest)

    def ascend(self, *arguments):
        self.ascents += 1
        return super().ascend(*arguments)

    def ascend_scaled(self, *arguments):
        self.ascents += 1
        return super().ascend_scaled(*arguments)

    def chain(self, theta, v, stream, base=None):
        chain = super().chain(theta, v, stream, base)
        if base is None and v.shape[1] <= SMALL["batch_size"] + 1:
            return chain  # of a training
        self.annealed += base is not None
        move = chain.step if base is None else chain.anneal  # of the search; of AIS

        def counted(*arguments):
            share = len(theta.W) / SMALL["trials"]  # of the models; the trusted estimate takes one
            self.temperatures += share * v.shape[1] / SMALL["ais"]["n_particles"]
            move(*arguments)

        chain.step, chain.anneal = counted, counted
        return chain


@pytest.mark.parametrize(("algorithm", "inner"), [("cd", 1), ("sdcp", 4), ("sdcp_d", 4)])
def test_counts_are_those_of_a_real_training(monkeypatch, algorithm, inner):
    counting = Counting()
    monkeypatch.setattr(engine, "select", lambda name: counting)
    settings = SMALL | {"algorithm": algorithm, "hyperparameters": HYPERPARAMETERS[algorithm]}
    settings |= {"n_inner_iterations": inner}
    curve = runs.execute(settings, None).curve
    work = costs.work(settings)
    assert work.updates == curve["update"].max() == 10
    assert work.evaluations == curve["update"].nunique() == 4  # at 0, 1, 2 and 2.5 epochs
    assert (counting.gibbs_steps, counting.ascents) == (work.gibbs_steps, work.ascents)
    # The most: of three plain estimates, and of eight trusted ones with two means and six modes,
    # of which each that a model does not have saves seven temperatures of one of two models.
    missing = 3 + 8 * (2 + 6) - counting.annealed
    assert counting.temperatures + missing * 7 / 2 == work.temperatures


def test_a_run_of_the_paper_by_hand():
    settings = experiments.run_settings(
        experiments.read(),
        experiments.read_hyperparameters(),
        "mnist",
        "as_published",
        "sdcp_d",
        500,
    )
    # 200 epochs × 60,000 / 200 updates, 6 × 4 Gibbs steps; at 0, 1, 5, 10, 20, 40 … 200 epochs
    # plain AIS at ten of them; each trusted estimate as if with 4,000 temperatures
    temperatures = 10 * 10_000 + 14 * 4_000
    assert costs.work(settings) == Work(60_000, 1_440_000, 360_000, 14, temperatures)
    assert costs.replicas(settings) == 10


def test_every_experiment_and_sweep_of_the_configuration_has_a_cost():
    config, groups = experiments.read(), experiments.read_hyperparameters()
    for name, experiment in config["experiments"].items():
        group = "eta_0.1" if name.endswith("2017") else "as_published"
        which = name, group, experiment["algorithms"][0], experiment["n_hidden"][0]
        job = costs.job(experiments.run_settings(config, groups, *which), RATES)
        assert job.seconds > 100 and job.memory > 3e8 and job.disk > 0
    which = "mnist", "tuning", "cd", 500
    sweep = experiments.sweep_settings(config, groups, *which)
    assert costs.replicas(sweep) == 15 and costs.sizes_of(sweep["dataset"])[1] == 50_000
    assert costs.disk(sweep) < 2e6  # keeps no models


@pytest.mark.parametrize("name", ["bars_and_stripes", "mnist", "caltech101_silhouettes"])
@pytest.mark.parametrize("valid", ["", data.VALID])
def test_sizes_are_those_of_the_datasets(real_dataset, name, valid):
    if name == "bars_and_stripes":
        dataset = data.load(name + valid)
    else:
        real_dataset(name)  # or skip
        dataset = data._hold_out(real_dataset(name)) if valid else real_dataset(name)
    n_visible, n_train, n_all = costs.sizes_of(name + valid)
    assert (n_train, n_visible) == dataset.train.shape
    others = (p for p in (dataset.valid, dataset.test) if p is not None and p is not dataset.train)
    seen = n_train + sum(map(len, others))
    assert n_all == seen + (2307 if name + valid == "caltech101_silhouettes_valid" else 0)


def test_seconds_grow_with_the_settings():
    large = SMALL | {"dataset": "mnist", "n_hidden": 500, "batch_size": 200, "epochs": 1}
    only_updates = RATES | {"temperature": 0, "image": 0}
    of_updates = costs.seconds(large, only_updates)
    assert of_updates == 2 * 300 * (3 + 1)  # trials × updates × (Gibbs steps + ascent)
    for changes, factor in (
        ({"trials": 4}, 2),
        ({"epochs": 3}, 3),
        ({"n_hidden": 250}, 0.5),
        ({"hyperparameters": [HYPERPARAMETERS["cd"]] * 5}, 5),
    ):
        assert costs.seconds(large | changes, only_updates) == pytest.approx(factor * of_updates)
    only_ais = RATES | {"gibbs": 0, "ascent": 0, "image": 0}
    twice = large | {"ais": {"n_particles": 20, "n_temperatures": 7}}
    assert costs.seconds(twice, only_ais) == pytest.approx(2 * costs.seconds(large, only_ais))
    assert costs.seconds(large, RATES, Work(gibbs_steps=9), models=3) == 27
    small = SMALL | {"ais": None, "epochs": 1}  # 4 updates of 3 steps, 2 evaluations of 2 models
    assert costs.seconds(small, RATES) == 4 * 3 * (1 + 2) + 2 * 2 * 2**4


def test_memory_and_disk_are_of_the_order_of_the_arrays():
    model = 4 * (500 * 784 + 500 + 784)
    images = 70_000 * 784
    settings = SMALL | {"dataset": "mnist", "n_hidden": 500, "trials": 10}
    assert images + 10 * model < costs.memory(settings) - costs.NOTEBOOK_MEMORY < 20 * images
    assert 10 * model < costs.disk(settings) < 10 * model + 1e6
    more = costs.memory(settings | {"trials": 1000}) - costs.memory(settings)
    assert 990 * model <= more <= 3 * 990 * model


def test_schedule():
    def jobs(**seconds):
        return {name: Job(value, memory=1) for name, value in seconds.items()}

    assert costs.schedule({}, {}, 2) == (0, 0)
    assert costs.schedule(jobs(a=3, b=2, c=1), {}, 2) == (3, 2)  # the longest first
    assert costs.schedule(jobs(a=3, b=2, c=1), {}, 1) == (6, 1)
    # a chain cannot be shared out, and its beginning comes before what nobody waits for
    needs = {"c": ["b"], "b": ["a", "there already"]}
    assert costs.schedule(jobs(a=1, b=1, c=5, d=3), needs, 2) == (7, 2)
    assert costs.schedule(jobs(a=1, b=1, c=5, d=3) | {"e": Job(2, 1, cores=2)}, {}, 2)[0] == 7
    on_gpu = {name: Job(2, memory=1, gpus=1) for name in "ab"}
    assert costs.schedule(on_gpu | jobs(c=2), {}, 3) == (4, 2)
    assert costs.schedule({"a": Job(2, 1, cores=8)}, {}, 2) == (2, 1)


def test_calibration_measures_every_rate(monkeypatch):
    """With a large model of five units, and NumPy, to be quick."""
    monkeypatch.setattr(costs, "WEIGHTS", (5, 784))
    monkeypatch.setattr(costs, "TRAINED", costs.ROOT / "none")
    monkeypatch.setenv("SDCPD_PROGRESS_LOG", "/dev/null")
    rates = costs.calibrate(engine.PLAIN)
    assert {*RATES, "cd", "sdcp_d"} == {*rates}
    assert all(np.isfinite(value) and value >= 0 for value in rates.values())
    assert rates["notebook"] > 1 > rates["cd"]
