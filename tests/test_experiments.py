"""From the configuration to the settings of runs and sweeps."""

import copy
import json
from itertools import product
from math import prod

import pytest
import yaml
from snakemake.common.configfile import load_configfile
from snakemake.utils import update_config

from sdcpd import data, experiments, runs
from sdcpd.experiments import CONFIG, ConfigError, run_settings, sweep_settings
from sdcpd.runs.settings import evaluation_updates

SCALES = ("paper", "quick", "smoke")
GROUPS = experiments.read_hyperparameters()
PAPER = experiments.read()


def combinations(config):
    """Every experiment, hidden size and algorithm of a configuration."""
    for name, experiment in config["experiments"].items():
        for n_hidden, algorithm in product(experiment["n_hidden"], experiment["algorithms"]):
            yield name, n_hidden, algorithm


def group_of(experiment):
    return {"bars_and_stripes_2017": "eta_0.1", "mnist_2017": "eta_0.01"}.get(
        experiment, "as_published"
    )


def check_sweep(settings):
    """Each setting of a sweep is one that a run accepts; none twice."""
    values = settings["hyperparameters"]
    data.files_of(settings["dataset"])
    of_run = {name: value for name, value in settings.items() if name != "rounds"}
    for each in values:  # a dataset without files: no catalogue is read each time
        runs.canonical(of_run | {"dataset": "bars_and_stripes", "hyperparameters": each})
    assert len({json.dumps(each) for each in values}) == len(values)
    return values


# ------------------------------------------------------------------- the configuration


def leaves(tree, path=()):
    """Path -> value of everything that is not itself a mapping."""
    if not isinstance(tree, dict):
        return {path: tree}
    return {p: v for name, part in tree.items() for p, v in leaves(part, (*path, name)).items()}


@pytest.mark.parametrize("scale", SCALES)
def test_a_scale_changes_what_it_names_and_nothing_else(scale):
    expected = {}
    for name in ("config", "paper", scale):
        expected |= leaves(yaml.safe_load((CONFIG / f"{name}.yaml").read_text()))
    assert leaves(experiments.read(scale)) == expected


@pytest.mark.parametrize("scale", SCALES)
def test_the_workflow_reads_the_same_configuration(scale):
    config = {}
    for name in dict.fromkeys(("config", "paper", scale)):
        update_config(config, load_configfile(str(CONFIG / f"{name}.yaml")))
    assert config == experiments.read(scale)


def test_reading_a_scale_leaves_no_traces():
    experiments.read("smoke")
    assert experiments.read() == PAPER and PAPER["experiments"]["mnist"]["epochs"] == 200


# -------------------------------------------------------------------------------- runs


@pytest.mark.parametrize("scale", SCALES)
def test_settings_of_every_run_are_accepted(scale):
    config = experiments.read(scale)
    seen = set()
    for name, n_hidden, algorithm in combinations(config):
        found = run_settings(config, GROUPS, name, group_of(name), algorithm, n_hidden)
        runs.canonical(found)
        assert (found["algorithm"], found["n_hidden"]) == (algorithm, n_hidden)
        assert found["seed"] == config["seed"]
        experiment = config["experiments"][name]
        for key in ("dataset", "trials", "epochs", "batch_size", "evaluate", "ais"):
            assert found[key] == experiment[key]
        seen.add(name)
    assert seen == set(config["experiments"])


def test_every_algorithm_makes_the_same_number_of_gibbs_steps():
    """K = d K′; only S-DCP and S-DCP-D have an inner loop."""
    expected = {"bars_and_stripes": (4, 2, 2), "bars_and_stripes_2017": (12, 3, 4)}
    for name, n_hidden, algorithm in combinations(PAPER):
        found = run_settings(PAPER, GROUPS, name, group_of(name), algorithm, n_hidden)
        steps = found["n_inner_iterations"], found["n_gibbs_steps"]
        k, d, k_inner = expected.get(name, (24, 6, 4))
        assert steps == ((d, k_inner) if algorithm.startswith("sdcp") else (1, k))
        assert prod(steps) == k


def test_hyperparameters_are_those_of_the_group():
    groups = {"mine": {"mnist": {"cd": {"learning_rate": 0.3}, "cg": {"learning_rate": 0.4}}}}
    for algorithm, expected in (
        ("cd", {"learning_rate": 0.3}),
        ("cg", {"learning_rate": 0.4, "sliding_factor": 0.01}),
    ):
        found = run_settings(PAPER, groups, "mnist", "mine", algorithm, 500)
        assert found["hyperparameters"] == expected
    assert groups["mine"]["mnist"]["cg"] == {"learning_rate": 0.4}  # not written into


def test_an_entry_for_a_hidden_size_comes_before_the_general_one():
    general, own = {"cd": {"learning_rate": 0.1}}, {"cd": {"learning_rate": 0.2}}
    groups = {"mine": {"bars_and_stripes": general, "bars_and_stripes_8h": own}}
    for n_hidden, rate in ((4, 0.1), (8, 0.2), (16, 0.1)):
        found = run_settings(PAPER, groups, "bars_and_stripes", "mine", "cd", n_hidden)
        assert found["hyperparameters"] == {"learning_rate": rate}
    only = {"mine": {"bars_and_stripes_8h": own}}
    with pytest.raises(ConfigError):
        run_settings(PAPER, only, "bars_and_stripes", "mine", "cd", 4)
    with pytest.raises(ConfigError):  # an own entry without the algorithm: no mixture of the two
        run_settings(PAPER, {"mine": {"mnist": own, "mnist_500h": {}}}, "mnist", "mine", "cd", 500)


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
    both = (PAPER, GROUPS), (backwards(PAPER), backwards(GROUPS))
    assert list(both[0][0]) != list(both[1][0])
    settings = [run_settings(*b, "mnist", "as_published", algorithm, 500) for b in both]
    assert json.dumps(settings[0]["hyperparameters"]) == json.dumps(settings[1]["hyperparameters"])
    assert list(settings[0]) == list(settings[1])


# --------------------------------------------------------------------------- ablations


@pytest.mark.parametrize("scale", SCALES)
def test_an_ablation_differs_from_its_base_in_one_choice(scale):
    """Else it would not be known what makes the difference; trials and evaluations apart, which
    are for time. Trained with the values of its base."""
    config = experiments.read(scale)
    every = config["experiments"]
    assert set(config["ablations"]) == {"mnist", "caltech", "kannada"}
    seen = []
    for base, others in config["ablations"].items():
        for other in others:
            assert set(every[other]) == set(every[base])
            differ = {name for name in every[base] if every[other][name] != every[base][name]}
            assert len(differ & {"dataset", "batch_size"}) == 1
            assert differ <= {"dataset", "batch_size", "trials", "evaluate"}
            assert every[other]["trials"] == 1 or scale != "paper"
            data.files_of(every[other]["dataset"])
            for algorithm in every[other]["algorithms"]:
                here, there = (
                    run_settings(config, GROUPS, name, "as_published", algorithm, 500)
                    for name in (other, base)
                )
                assert here["hyperparameters"] == there["hyperparameters"]
            seen.append(other)
    assert len(seen) == len(set(seen)) and not set(seen) & set(config["ablations"])
    if scale == "paper":
        assert len(seen) == 6


def test_an_ablation_has_the_hyperparameters_of_its_base():
    """All of them, also those of algorithms that a scale leaves out, and no others."""
    groups = GROUPS["as_published"]
    for base, others in PAPER["ablations"].items():
        for other in others:
            assert groups[other] == groups[base]
            assert not any(name.startswith(f"{other}_") for name in groups)


def test_evaluations_of_an_ablation_are_among_those_of_its_base():
    """They are shown beside each other, and their last points compared."""
    every = PAPER["experiments"]
    for base, others in PAPER["ablations"].items():
        for other in others:
            updates = [
                evaluation_updates(
                    run_settings(PAPER, GROUPS, name, "as_published", "cd", 500)
                    | {"batch_size": every[base]["batch_size"]},
                    4100,
                )
                for name in (other, base)
            ]
            assert set(updates[0]) <= set(updates[1]) and updates[0][-1] == updates[1][-1]


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
            data.files_of(sweep["dataset"])


def test_a_sweep_is_the_run_but_for_what_its_study_changes():
    changed = {"trials", "epochs", "evaluate", "ais", "hyperparameters"}
    for kind in ("tuning", "published", "sensitivity_as_published"):
        run = run_settings(PAPER, GROUPS, "mnist", "as_published", "sdcp_d", 500)
        sweep = sweep_settings(PAPER, GROUPS, "mnist", kind, "sdcp_d", 500)
        own = changed | ({"dataset", "seed"} if kind == "tuning" else set())
        assert set(sweep) - {"rounds"} == set(run)
        assert {n: v for n, v in sweep.items() if n not in {*own, "rounds"}} == {
            n: v for n, v in run.items() if n not in own
        }
        study = PAPER[kind.partition("_")[0]]["experiments"]["mnist"]
        assert {n: sweep[n] for n in study if n != "lambda_hessian"} == {
            n: v for n, v in study.items() if n != "lambda_hessian"
        }
        assert sweep["epochs"] == study.get("epochs", run["epochs"])


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


def test_sensitivity_without_the_values_of_the_group():
    with pytest.raises(ConfigError, match="no sdcp_d for mnist in group tuned_by_nobody"):
        sweep_settings(PAPER, GROUPS, "mnist", "sensitivity_tuned_by_nobody", "sdcp_d", 500)


def test_step_matched():
    """S-DCP-D multiplies the gradient by η/(H + ε), and H ≤ ¼."""
    found = experiments.step_matched({"learning_rate": 0.06, "epsilon": 0.05}, 6)
    assert found == {"sdcp": {"learning_rate": 0.2}, "cg": {"learning_rate": 1.2}}
    for algorithm, values in found.items():
        groups = {"step_matched": {"mnist": {algorithm: values}}}
        runs.canonical(run_settings(PAPER, groups, "mnist", "step_matched", algorithm, 500))
