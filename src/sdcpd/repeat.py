"""Two tests of finished runs: log Z estimated again, and the beginning trained again."""

import numpy as np
import pandas as pd

from . import ROOT, backend, data, engine, runs
from .likelihood import annealed_log_z
from .measurements import Measurements, models

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
    mean = None
    todo = models(finished, trials)
    progress = runs.Progress("log Z again", len(todo) * (times + 2))
    for number_of_model, (run, row) in enumerate(todo):
        settings = run.settings
        trial, ais = run.trials[row], settings["ais"]
        ways = [(seed, 1), (seed, times)]
        if run.archived:
            ways.insert(0, (settings["seed"], 1))
        for number, factor in ways:
            n = ais["n_temperatures"] * factor
            same = {"algorithm": settings["algorithm"], "trial": trial}
            same |= {"n_temperatures": n, "seed": number}
            if estimates.has(**same):
                continue
            if mean is None:
                mean = data.load(settings["dataset"], data_folder or ROOT / "data").train.mean(0)
            theta = run.theta.select(slice(row, row + 1)).map(chosen.xp.asarray)
            key = backend.key(number, "log Z", settings["dataset"], *same.values())
            how = ais | {"n_temperatures": n, "engine": chosen}
            found = annealed_log_z(chosen.prepare(theta), mean, [key], **how)
            values = zip(("log_z", "log_z_se", "ess"), found, strict=True)
            estimates.add(same | {name: float(value[0]) for name, value in values})
        progress.update((number_of_model + 1) * (times + 2))
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
        for part in ("train", "test"):
            rows.append({"epoch": ours.epoch, "part": part, "archived": other[part]})
            rows[-1] |= {"here": ours[part], "difference": ours[part] - other[part]}
            rows[-1]["error"] = float(np.hypot(ours.log_z_se, other.log_z_se))
    return pd.DataFrame(rows)
