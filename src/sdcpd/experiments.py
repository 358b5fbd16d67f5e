"""From the configuration to the settings of runs: which experiment, which hyperparameters.

``workflow/config/`` holds the experiments with the paper's numbers, what the other scales change in
them, and the hyperparameters in named groups. The workflow's rules and the scripts that train
without it ask here, so that both mean the same.
"""

from itertools import product

import yaml

from . import ROOT
from .algorithms import ALGORITHMS

CONFIG = ROOT / "workflow/config"
TUNED = ("tuned_speed", "tuned_final")  # groups that notebooks/tune.ipynb chooses
BY_TUNING = (*TUNED, "step_matched")  # and that the target adopt writes
GROUPS = {  # of hyperparameters, for readers
    "as_published": "hyperparameters as published",
    "tuned_speed": "each algorithm tuned for speed",
    "tuned_final": "each algorithm tuned for its final value",
    "step_matched": "with the smallest step of S-DCP-D",
    "lambda_0.9": "as published, λ_H = 0.9",
}


class ConfigError(ValueError):
    """The configuration asks for something that is not there; the message says what to do."""


def read(scale="paper"):
    """The configuration of a scale, as the workflow puts it together."""
    config = {}
    for name in ("config", "paper", *([scale] if scale != "paper" else [])):
        _merge(config, yaml.safe_load((CONFIG / f"{name}.yaml").read_text(encoding="utf-8")))
    return config


def _merge(into, changes):
    for name, value in changes.items():
        if isinstance(value, dict):
            # copied: what YAML anchors name is one object in several places
            into[name] = dict(into[name]) if isinstance(into.get(name), dict) else {}
            _merge(into[name], value)
        else:
            into[name] = value


def read_hyperparameters():
    """hyperparameters.yaml: group -> experiment -> algorithm -> values."""
    text = (CONFIG / "hyperparameters.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)["hyperparameters"]


def algorithms_of(groups, group, experiment, n_hidden):
    """The values of a group, for each algorithm that it has; {} where it has none.

    An entry for a number of hidden units, ``bars_and_stripes_8h``, comes before the general one.
    """
    of_group = groups.get(group, {})
    return of_group.get(f"{experiment}_{n_hidden}h", of_group.get(experiment, {}))


def run_settings(config, groups, experiment, group, algorithm, n_hidden):
    """The settings of a run, see ``runs.SETTINGS``.

    Raises
    ------
    ConfigError
        If the group has no values for this experiment and algorithm.
    """
    known = algorithms_of(groups, group, experiment, n_hidden)
    if algorithm not in known:
        raise ConfigError(
            f"hyperparameters.yaml has no {algorithm} for {experiment} in group {group} "
            f"({n_hidden} hidden units): choose another group, or tune first"
        )
    settings = _settings(config, experiment, algorithm, n_hidden)
    values = _complete(config, experiment, algorithm, known[algorithm])
    return settings | {"hyperparameters": values}


def sweep_settings(config, groups, experiment, kind, algorithm, n_hidden):
    """The settings of a sweep, see ``tuning.execute``.

    Parameters
    ----------
    kind : str
        ``tuning``: the grid of the algorithm, judged on images held out of training.
        ``published``: a grid around what could explain the published curve.
        ``sensitivity_GROUP``: the grid of ε and λ_H, at the learning rate of S-DCP-D in that group.
    """
    part, changes = config[kind.partition("_")[0]], {}
    budget = dict(part["experiments"][experiment])
    if "grids" in part:
        of_rates = part["grids"][experiment][algorithm]
    else:
        group = kind.removeprefix("sensitivity_")
        base = run_settings(config, groups, experiment, group, algorithm, n_hidden)
        grid = {name: budget.pop(name, values) for name, values in part["grid"].items()}
        of_rates = {"learning_rate": [base["hyperparameters"]["learning_rate"]]} | grid
    settings = _settings(config, experiment, algorithm, n_hidden)
    if kind == "tuning":
        changes = {"dataset": settings["dataset"] + "_valid", "seed": part["seed"]}
    values = [dict(zip(of_rates, each, strict=True)) for each in product(*of_rates.values())]
    values = [_complete(config, experiment, algorithm, each) for each in values]
    settings |= budget | changes | {"hyperparameters": values}
    return {name: v for name, v in settings.items() if name != "rounds" or v}


def smallest_step(values):
    """η/(¼ + ε): as H ≤ ¼, S-DCP-D multiplies the gradient by at least that."""
    return values["learning_rate"] / (0.25 + values["epsilon"])


def step_matched(values, n_inner_iterations):
    """Learning rates of S-DCP and CG whose steps are as long as S-DCP-D's are at least.

    CG, which makes one step where they make d, gets d times that of S-DCP.
    """
    rate = smallest_step(values)
    return {
        "cg": {"learning_rate": round(n_inner_iterations * rate, 6)},
        "sdcp": {"learning_rate": round(rate, 6)},
    }


def _settings(config, experiment, algorithm, n_hidden):
    """What an experiment says of a run, hyperparameters apart."""
    experiment, inner = config["experiments"][experiment], ALGORITHMS[algorithm].has_inner_loop
    shared = ("dataset", "trials", "epochs", "batch_size", "evaluate", "ais")
    return {name: experiment[name] for name in shared} | {
        "algorithm": algorithm,
        "n_hidden": int(n_hidden),
        "n_gibbs_steps": experiment["n_gibbs_steps_inner" if inner else "n_gibbs_steps"],
        "n_inner_iterations": experiment["n_inner_iterations"] if inner else 1,
        "seed": config["seed"],
    }


def _complete(config, experiment, algorithm, values):
    """Hyperparameters in one form: the order of keys in the file, or 1 for 1.0, reruns nothing."""
    values = {name: float(values[name]) for name in sorted(values)}
    if algorithm == "cg":
        values["sliding_factor"] = config["experiments"][experiment]["sliding_factor"]
    return values
