"""Two tests of finished runs: log Z estimated again, and the beginning trained again."""

import numpy as np
import pandas as pd

from . import ROOT, backend, data, engine, runs
from .likelihood import annealed_log_z
from .measurements import Measurements, models, side_by_side, stack

COLUMNS = ["algorithm", "trial", "n_temperatures", "seed", "log_z", "log_z_se", "ess"]


def estimate_log_z(finished, folder, seed, times, trials, backend_name="auto", data_folder=None):
    """log Z of final models, with another seed and with ``times`` the temperatures.

    AIS can be far off with a small error bar; two more estimates of a model show where it is.

    Parameters
    ----------
    finished : list of runs.Run
        Of one dataset; those of the archive hold their best trial only, in half precision, so that
        the first estimate is made again for them, with the seed of the run.
    folder : path
        Where ``measurements.Measurements`` keeps each as soon as it is made.
    trials : int
        Of each run the first so many that have a model.

    Returns
    -------
    DataFrame
        algorithm, trial, n_temperatures, seed, log_z, log_z_se, ess.
    """
    chosen = engine.select(backend_name)
    estimates = Measurements(folder, COLUMNS, finished, chosen)
    mean, done = None, 0
    todo = models(finished, trials)
    progress = runs.Progress("log Z again", len(todo) * (times + 2))

    def what(run, row, number, factor):  # of an estimate
        n = run.settings["ais"]["n_temperatures"] * factor
        same = {"algorithm": run.settings["algorithm"], "trial": run.trials[row]}
        return same | {"n_temperatures": n, "seed": number}

    particles = max((run.settings["ais"]["n_particles"] for run, _ in todo), default=0)

    def alike(run):
        return run.archived, run.settings["seed"], run.settings["ais"]

    # On a CPU one at a time, which stays in the cache.
    for part in side_by_side(todo, chosen, particles, 1, alike):
        settings = part[0][0].settings
        first = [(settings["seed"], 1)] if part[0][0].archived else []
        for way in [*first, (seed, 1), (seed, times)]:
            missing = [model for model in part if not estimates.has(**what(*model, *way))]
            if not missing:
                continue
            if mean is None:
                mean = data.load(settings["dataset"], data_folder or ROOT / "data").train.mean(0)
            rows = [what(*model, *way) for model in missing]
            keys = [
                backend.key(way[0], "log Z", settings["dataset"], *row.values()) for row in rows
            ]
            how = settings["ais"] | {"n_temperatures": rows[0]["n_temperatures"], "engine": chosen}
            theta = chosen.prepare(stack(missing, chosen.xp))
            found = zip(*annealed_log_z(theta, mean, keys, **how), strict=True)
            for row, values in zip(rows, found, strict=True):
                row |= zip(("log_z", "log_z_se", "ess"), map(float, values), strict=True)
            estimates.add(*rows)
        done += len(part)
        progress.update(done * (times + 2))
    estimates.write()  # where there is no model at all
    return estimates.table()


def train_beginning(archived, epochs, backend_name="auto", data_folder=None):
    """The first trial of an archived run once more, as far as ``epochs``.

    Returns
    -------
    DataFrame
        epoch, part (train, test), archived, here, difference, error: that of the difference of two
        AIS estimates with independent random numbers.
    """
    settings = archived.settings | {"trials": 1, "epochs": epochs}
    run = runs.execute(settings, None, backend_name, data_folder or ROOT / "data")
    theirs = archived.curve[archived.curve.trial == 0].set_index("update")
    rows = []
    for update, ours in run.curve.set_index("update").iterrows():
        if update not in theirs.index:
            continue
        other = theirs.loc[update]
        here, there = (  # the trusted estimate where there is no plain one
            "" if np.isfinite(point.log_z) else "trusted_" for point in (ours, other)
        )
        error = float(np.hypot(ours[f"{here}log_z_se"], other[f"{there}log_z_se"]))
        for part in ("train", "test"):
            values = {"archived": other[there + part], "here": ours[here + part]}
            rows.append({"epoch": ours.epoch, "part": part} | values)
            rows[-1] |= {"difference": values["here"] - values["archived"], "error": error}
    return pd.DataFrame(rows)
