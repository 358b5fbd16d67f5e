"""What plain AIS does not see of finished models: modes far from the data that chains get to.

Of the best trial's model, with several seeds: the average log-likelihoods by plain AIS, as in the
paper, and by the trusted estimate, with the bound on log Z (``likelihood``); the mode of the
largest weight that chains from images and from noise find, and how many of both end there.
"""

from itertools import product

import numpy as np

from .. import ROOT, data, engines, philox
from ..device import to_host
from ..files import whole_file
from ..likelihood import Evaluator
from ..progress import Progress
from ..trusted import DISTINCT, TO_TELL, find_modes, mean_field
from .measurements import FILES as TABLES
from .measurements import Measurements
from .quality import Nearest

COLUMNS = [
    *("algorithm", "trial", "epochs", "number", "train", "test", "log_z", "log_z_se", "ess"),
    *("trusted_train", "trusted_test", "trusted_log_z", "trusted_log_z_se", "trusted_ess"),
    *("trusted_agrees", "bound", "chains", "from_images", "from_noise", "distance"),
]
IMAGES = "images.npz"
FILES = (*TABLES, IMAGES)
KEPT = 9  # chains whose last states are kept


def measure(
    finished, folder, seed, seeds, n_chains, n_steps, backend_name="auto", data_folder=None
):
    """Likelihoods and modes of final models, each with several seeds.

    Parameters
    ----------
    finished : list of runs.Run
        Of one dataset and with AIS; of each the model of its best trial, if there is one.
    folder : path
        Where ``measurements.Measurements`` keeps each row as soon as it is made, and ``images.npz``
        what the first seed shows: ``<algorithm>`` (1 + KEPT, m), the mean of the mode and the last
        states of chains that began in noise. ``about.json`` has the mean ``distance`` of real test
        images to the nearest training image, too.
    seed, seeds : int
        The first seed, and how many.
    n_chains, n_steps : int
        Half of the chains begin in training images, half in noise of every density.

    Returns
    -------
    DataFrame
        algorithm, trial, epochs, number (of the seed); what ``likelihood.Evaluator`` says of it;
        chains (of either kind), from_images, from_noise: how many of them end in the mode;
        distance of the mode to the nearest training image (pixels). NaN: no such images.
    """
    engine = engines.select(backend_name)
    how = {"seed": seed, "n_chains": n_chains, "n_steps": n_steps}
    kept = Measurements(folder, COLUMNS, finished, engine, **how)
    best = {run.settings["algorithm"]: (run, *run.best()) for run in finished}
    kept.rows = [row for row in kept.rows if row["trial"] == best[row["algorithm"]][2]]
    todo = [
        (*best[algorithm], number)
        for algorithm, number in product(best, range(seeds))
        if best[algorithm][1] is not None and not kept.has(algorithm=algorithm, number=number)
    ]
    if not todo and (kept.folder / IMAGES).exists():
        return kept.table()
    name, xp = finished[0].settings["dataset"], engine.xp
    dataset = data.load(name, data_folder or ROOT / "data")
    parts = {part: xp.asarray(getattr(dataset, part)) for part in ("train", "test")}
    nearest, images = Nearest(dataset.train, xp), _images(kept)
    kept.about["distance"] = float(nearest(dataset.test)[1].mean())
    progress = Progress(f"modes {name}", len(todo))
    for done, (run, theta, trial, number) in enumerate(todo):
        algorithm, ais = run.settings["algorithm"], run.settings["ais"]
        key = philox.key(seed, "modes", name, algorithm, trial, number)
        theta = engine.prepare(theta.map(xp.asarray))
        evaluate = Evaluator(parts, lambda *_, key=key: key, ais, progress.note, engine)
        (point,) = evaluate(theta, [trial], 0)
        found, bound, shown = _search(theta, parts["train"], key, how, engine, nearest)
        point |= found | {"bound": max(point["bound"], bound), "epochs": run.settings["epochs"]}
        if number == 0:
            images[algorithm] = np.float16(shown)
            with whole_file(kept.folder / IMAGES, "wb") as file:
                np.savez_compressed(file, **images)
        kept.add({"algorithm": algorithm, "trial": trial, "number": number} | point)
        progress.update(done + 1)
    progress.close()
    return kept.table()


def _search(theta, train, key, how, engine, nearest):
    """How many chains end in the mode of the largest weight, and its distance; the bound on log Z
    by all modes; the mean of that mode and the last states of some chains that began in noise."""
    n_chains = how["n_chains"]
    states, modes, bounds = find_modes(theta, train, key, n_chains, how["n_steps"], engine)
    led_to, _ = mean_field(theta, engine.xp.asarray(states)[None], TO_TELL)
    there = np.abs(np.round(to_host(led_to[0])) - np.round(modes[0])).mean(1) < DISTINCT
    half = n_chains // 2
    found = {"chains": half, "from_images": there[:half].sum(), "from_noise": there[half:].sum()}
    found["distance"] = float(nearest(np.round(modes[:1]))[1][0])
    return found, float(bounds.max()), [modes[0], *states[half : half + KEPT]]


def _images(kept):
    """Those that an earlier call left, of the models that it measured."""
    path = kept.folder / IMAGES
    if not kept.rows or not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)
