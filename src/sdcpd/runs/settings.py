"""The settings of a run: their names, types and one canonical form; when it is evaluated."""

import numpy as np

from .. import data
from ..algorithms import ALGORITHMS
from ..training import updates_per_epoch

_NUMBER = (int, float)
#: Every setting of a run, with its type.
SETTINGS = {
    "dataset": str,
    "algorithm": str,
    "n_hidden": int,
    "trials": int,
    "epochs": _NUMBER,
    "batch_size": int,
    "evaluate": dict,
    "n_gibbs_steps": int,
    "n_inner_iterations": int,
    "hyperparameters": dict,
    "ais": (dict, type(None)),
    "seed": int,
}
_EVALUATE = {"every": _NUMBER, "also": list}
_AIS = {"n_particles": int, "n_temperatures": int}
_POSITIVE = {"n_hidden", "trials", "epochs", "batch_size", "n_gibbs_steps", "n_inner_iterations"}
_POSITIVE |= {"learning_rate", "every", "n_particles", "n_temperatures"}


class RunError(RuntimeError):
    """A run cannot be made or read; the message says why and what to do."""


def canonical(settings):
    """``settings`` in the one form that random keys, fingerprints and run files use.

    Equal settings give the same whatever the order of their names, and for 1 and 1.0.

    Raises
    ------
    RunError
        Unless ``settings`` has exactly the right names and types.
    """
    _check_names("settings", settings, SETTINGS)
    if settings["algorithm"] not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise RunError(f"unknown algorithm {settings['algorithm']!r}: choose one of {known}")
    needed = ("learning_rate", *ALGORITHMS[settings["algorithm"]].needs)
    _check_names("hyperparameters", settings["hyperparameters"], dict.fromkeys(needed, _NUMBER))
    data.files_of(settings["dataset"])
    if settings["ais"] is not None:
        _check_names("ais", settings["ais"], _AIS)
    _check_names("evaluate", settings["evaluate"], _EVALUATE)
    numbers = settings | settings["evaluate"] | (settings["ais"] or {})
    numbers["learning_rate"] = settings["hyperparameters"]["learning_rate"]
    for name in _POSITIVE & set(numbers):
        if not 0 < numbers[name] < float("inf"):
            raise RunError(f"{name} must be positive, not {numbers[name]!r}")
    if numbers.get("n_particles") == 1:
        raise RunError("n_particles must be more than 1: one has no standard error")
    for name, most in {"epsilon": np.inf, "lambda_hessian": 1, "sliding_factor": 1}.items():
        value = settings["hyperparameters"].get(name, 0)
        if not 0 <= value <= most:
            raise RunError(f"{name} must be from 0 to {most}, not {value!r}")
    also = settings["evaluate"]["also"]
    if not all(isinstance(e, _NUMBER) and 0 <= e < float("inf") for e in also):
        raise RunError("evaluate: also must list epochs, none of them negative")
    values, ais, every = settings["hyperparameters"], settings["ais"], settings["evaluate"]["every"]
    return {name: settings[name] for name in SETTINGS} | {
        "epochs": _plain(settings["epochs"]),
        "evaluate": {"every": _plain(every), "also": sorted(map(_plain, also))},
        "hyperparameters": {name: float(values[name]) for name in sorted(values)},
        "ais": ais and {name: ais[name] for name in _AIS},
    }


def _plain(number):
    return int(number) if number == int(number) else float(number)


def _check_names(what, given, types):
    unknown, missing = set(given) - set(types), set(types) - set(given)
    if unknown or missing:
        parts = [f"unknown: {', '.join(sorted(unknown))}"] if unknown else []
        parts += [f"missing: {', '.join(sorted(missing))}"] if missing else []
        raise RunError(f"{what}: {'; '.join(parts)}")
    for name, value in given.items():
        if not isinstance(value, types[name]) or isinstance(value, bool):
            raise RunError(f"{what}: {name} has the wrong type: {value!r}")


def evaluation_updates(settings, n_images):
    """After how many updates a run is evaluated; the last one ends it.

    ``evaluate`` gives them in epochs: every so many, and also at those listed.
    """
    per_epoch = updates_per_epoch(n_images, settings["batch_size"])
    last, evaluate = settings["epochs"], settings["evaluate"]
    every = max(evaluate["every"], 1 / per_epoch)
    epochs = {*np.arange(every, last, every), *evaluate["also"]}
    end = max(1, round(last * per_epoch))
    return sorted({round(epoch * per_epoch) for epoch in epochs if epoch < last} | {end})


def plain_updates(settings, n_images):
    """After how many updates plain AIS is made, too: those of ``every``, as published curves."""
    regular = settings["evaluate"] | {"also": []}
    return evaluation_updates(settings | {"evaluate": regular}, n_images)
