"""From the configuration to the settings of runs and sweeps."""

import copy
import json
from itertools import product

import pytest
import schema
from snakemake.common.configfile import load_configfile
from snakemake.utils import update_config

from sdcpd import data, experiments, runs
from sdcpd.experiments import CONFIG, ConfigError, run_settings, sweep_settings
from sdcpd.runs.settings import evaluation_updates

SCALES = ("paper", "quick", "smoke")
GROUPS = experiments.read_hyperparameters()
PAPER = experiments.read()


def run_of(experiment, algorithm, n_hidden=500, config=PAPER):
    """The settings of a run, with hyperparameters of a group that has some for it."""
    others = {"bars_and_stripes_2017": "eta_0.1", "mnist_2017": "eta_0.01"}
    group = others.get(experiment, "as_published")
    return run_settings(config, GROUPS, experiment, group, algorithm, n_hidden)


def every_run(config):
    """Experiment and settings of each run of a configuration."""
    for name, experiment in config["experiments"].items():
        for n_hidden, algorithm in product(experiment["n_hidden"], experiment["algorithms"]):
            yield name, run_of(name, algorithm, n_hidden, config)


def check_sweep(settings):
    """Each setting of a sweep is one that a run accepts; none twice."""
    values = settings["hyperparameters"]
    data.files_of(settings["dataset"])
    of_run = {name: value for name, value in settings.items() if name != "rounds"}
    for each in values:  # a dataset without files: no catalogue is read each time
        runs.canonical(of_run | {"dataset": "bars_and_stripes", "hyperparameters": each})
    assert len({json.dumps(each) for each in values}) == len(values)
    return values


@pytest.mark.parametrize("scale", SCALES)
def test_the_workflow_reads_the_same_configuration(scale):
    config = {}
    for name in dict.fromkeys(("config", "paper", scale)):
        update_config(config, load_configfile(str(CONFIG / f"{name}.yaml")))
    assert config == experiments.read(scale)


# -------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("scale", SCALES)
def test_settings_of_every_run_are_accepted(scale):
    config = experiments.read(scale)
    assert schema.violation("config", config) is None
    for name, found in every_run(config):
        runs.canonical(found)
        expected = config["experiments"][name] | {"seed": config["seed"]}
        for key in ("dataset", "trials", "epochs", "batch_size", "evaluate", "ais", "seed"):
            assert found[key] == expected[key]


def test_every_algorithm_makes_the_same_number_of_gibbs_steps():
    """K = d K′; only S-DCP and S-DCP-D have an inner loop."""
    expected = {"bars_and_stripes": (4, 2, 2), "bars_and_stripes_2017": (12, 3, 4)}
    for name, found in every_run(PAPER):
        k, d, k_inner = expected.get(name, (24, 6, 4))
        inner = found["algorithm"].startswith("sdcp")
        steps = found["n_inner_iterations"], found["n_gibbs_steps"]
        assert steps == ((d, k_inner) if inner else (1, k))


def test_an_entry_for_a_hidden_size_comes_before_the_general_one():
    general, own = {"cg": {"learning_rate": 0.1}}, {"cg": {"learning_rate": 0.2}}
    groups = {"mine": {"bars_and_stripes": general, "bars_and_stripes_8h": own}}
    for n_hidden, rate in ((4, 0.1), (8, 0.2), (16, 0.1)):
        found = run_settings(PAPER, groups, "bars_and_stripes", "mine", "cg", n_hidden)
        assert found["hyperparameters"] == {"learning_rate": rate, "sliding_factor": 0.01}
    assert general == {"cg": {"learning_rate": 0.1}}  # not written into
    only = {"mine": {"bars_and_stripes_8h": own}}
    with pytest.raises(ConfigError):
        run_settings(PAPER, only, "bars_and_stripes", "mine", "cg", 4)
    without = {"mine": {"mnist": general, "mnist_500h": {}}}
    with pytest.raises(ConfigError):  # no mixture of the two
        run_settings(PAPER, without, "mnist", "mine", "cg", 500)


@pytest.mark.parametrize(
    ("experiment", "group", "algorithm"),
    [
        ("mnist", "tuned_by_nobody", "cd"),  # no such group
        ("mnist", "eta_0.1", "cd"),  # not this experiment
        ("bars_and_stripes_2017", "eta_0.1", "sdcp_d"),  # not this algorithm
    ],
)
def test_missing_values_are_named_in_one_line(experiment, group, algorithm):
    with pytest.raises(ConfigError) as error:
        run_settings(PAPER, GROUPS, experiment, group, algorithm, 7)
    message = str(error.value)
    assert f"no {algorithm} for {experiment} in group {group} (7 hidden units)" in message
    assert "choose another group, or tune first" in message and "\n" not in message


def backwards(tree):
    if not isinstance(tree, dict):
        return tree
    return {name: backwards(tree[name]) for name in reversed(tree)}


@pytest.mark.parametrize("algorithm", ["cg", "sdcp_d"])
def test_order_of_keys_does_not_matter(algorithm):
    """Settings are compared as text: another order would train everything anew."""
    one = run_settings(PAPER, GROUPS, "mnist", "as_published", algorithm, 500)
    turned = backwards(PAPER), backwards(GROUPS)
    other = run_settings(*turned, "mnist", "as_published", algorithm, 500)
    assert json.dumps(one["hyperparameters"]) == json.dumps(other["hyperparameters"])
    assert list(one) == list(other)


# --------------------------------------------------------------------------- ablations


@pytest.mark.parametrize("scale", SCALES)
def test_an_ablation_differs_from_its_base_in_one_choice(scale):
    """Else it would not be known what makes the difference; trials and evaluations apart, which
    are for time. Trained with the values of its base."""
    config = experiments.read(scale)
    every, ablations = config["experiments"], config["ablations"]
    assert set(ablations) == {"mnist", "caltech", "kannada"}
    for base, others in ablations.items():
        for other in others:
            differ = {name for name in every[base] if every[other][name] != every[base][name]}
            assert len(differ & {"dataset", "batch_size"}) == 1
            assert differ <= {"dataset", "batch_size", "trials", "evaluate"}
            for algorithm in every[other]["algorithms"]:
                here, there = (run_of(name, algorithm, config=config) for name in (other, base))
                assert here["hyperparameters"] == there["hyperparameters"]


def test_evaluations_of_an_ablation_are_among_those_of_its_base():
    """They are shown beside each other, and their last points compared."""
    assert sum(map(len, PAPER["ablations"].values())) == 6
    for base, others in PAPER["ablations"].items():
        of_base = evaluation_updates(run_of(base, "cd") | {"batch_size": 200}, 4100)
        for other in others:
            updates = evaluation_updates(run_of(other, "cd") | {"batch_size": 200}, 4100)
            assert set(updates) <= set(of_base) and updates[-1] == of_base[-1]


# ------------------------------------------------------------------------------ sweeps


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", ["tuning", "published"])
def test_every_algorithm_gets_the_same_number_of_settings(kind, scale):
    config = experiments.read(scale)
    assert set(config[kind]["grids"]) == set(config[kind]["experiments"])
    for experiment, grids in config[kind]["grids"].items():
        assert set(grids) == set(config["experiments"]["mnist"]["algorithms"])
        sizes = {
            len(check_sweep(sweep_settings(config, GROUPS, experiment, kind, algorithm, 4)))
            for algorithm in grids
        }
        assert len(sizes) == 1
        if scale == "paper":
            extended = experiment in ("bars_and_stripes", "caltech")
            assert sizes == {{"tuning": 24 if extended else 15, "published": 9}[kind]}


@pytest.mark.parametrize("scale", SCALES)
def test_tuning_never_sees_the_test_images_nor_the_seed_of_the_runs(scale):
    config = experiments.read(scale)
    for name, grids in config["tuning"]["grids"].items():
        for algorithm in grids:
            sweep = sweep_settings(config, GROUPS, name, "tuning", algorithm, 4)
            assert sweep["dataset"] == config["experiments"][name]["dataset"] + "_valid"
            assert sweep["seed"] == config["tuning"]["seed"] != config["seed"]


@pytest.mark.parametrize("kind", ["tuning", "published", "sensitivity_as_published"])
def test_a_sweep_is_the_run_but_for_what_its_study_changes(kind):
    sweep = sweep_settings(PAPER, GROUPS, "mnist", kind, "sdcp_d", 500)
    expected = run_of("mnist", "sdcp_d") | PAPER[kind.partition("_")[0]]["experiments"]["mnist"]
    expected.pop("lambda_hessian", None)  # of the grid
    for name in ("hyperparameters", *(("dataset", "seed") if kind == "tuning" else ())):
        del sweep[name], expected[name]
    assert sweep == expected


def test_a_grid_means_every_combination():
    config = copy.deepcopy(PAPER)
    grid = {"lambda_hessian": [0.0, 0.5], "learning_rate": [0.1, 0.2], "epsilon": [0.3]}
    config["tuning"]["grids"]["mnist"]["sdcp_d"] = grid
    sweep = sweep_settings(config, GROUPS, "mnist", "tuning", "sdcp_d", 500)
    found = [(v["learning_rate"], v["epsilon"], v["lambda_hessian"]) for v in check_sweep(sweep)]
    assert sorted(found) == [(r, 0.3, h) for r in (0.1, 0.2) for h in (0.0, 0.5)]


@pytest.mark.parametrize(("experiment", "rate"), [("bars_and_stripes", 0.07), ("mnist", 0.3)])
def test_sensitivity_keeps_the_learning_rate_of_the_group(experiment, rate):
    groups = copy.deepcopy(GROUPS)
    groups["as_published"][experiment] |= {
        "sdcp_d": {"learning_rate": rate, "epsilon": 0.25, "lambda_hessian": 0.125}
    }
    sweep = sweep_settings(PAPER, groups, experiment, "sensitivity_as_published", "sdcp_d", 4)
    values = check_sweep(sweep)
    assert {each["learning_rate"] for each in values} == {rate}
    grid = PAPER["sensitivity"]["grid"] | PAPER["sensitivity"]["experiments"][experiment]
    expected = set(product(grid["epsilon"], grid["lambda_hessian"]))
    assert {(each["epsilon"], each["lambda_hessian"]) for each in values} == expected
    assert len(values) == (14 if experiment == "mnist" else 28) and sweep["seed"] == PAPER["seed"]


def test_step_matched():
    """S-DCP-D multiplies the gradient by η/(H + ε), and H ≤ ¼."""
    found = experiments.step_matched({"learning_rate": 0.06, "epsilon": 0.05}, 6)
    assert found == {"sdcp": {"learning_rate": 0.2}, "cg": {"learning_rate": 1.2}}
    for algorithm, values in found.items():
        groups = {"step_matched": {"mnist": {algorithm: values}}}
        runs.canonical(run_settings(PAPER, groups, "mnist", "step_matched", algorithm, 500))
