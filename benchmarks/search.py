"""How often the search for modes misses one: kept models of a study, several seeds each.

uv run python benchmarks/search.py --models results/paper/parts/caltech --epochs 40 100 200

A search has missed what the log-sum of its modes' weights is less than that of the best search of
the same model, in nats. The models are those that benchmarks/study.py keeps on the way.
"""

import os
from pathlib import Path

from common import LABELS, ROOT, Record, arguments, engines, key, np

from sdcpd import data
from sdcpd.device import to_host
from sdcpd.rbm import Parameters
from sdcpd.runs.archive import settings_of
from sdcpd.trusted import STEPS, find_modes, mean_field, weights_of

COLUMNS = ["dataset", "algorithm", "models", "searches", "missed .5 nats", "1 nat", "most (nats)"]


def main():
    options = arguments(
        __doc__,
        models={"type": Path, "required": True, "help": "folder of a dataset in parts/ of a study"},
        epochs={"nargs": "+", "type": int, "default": [40, 100, 200]},
        seeds={"type": int, "default": 3},
    )
    engine = engines.select(options.backend)
    epochs = ", ".join(map(str, options.epochs))
    title = f"The search for modes, {options.seeds} seeds a model; models at epochs {epochs}"
    record = Record("search", title, COLUMNS, engine, options)
    for algorithm, label in LABELS.items():
        missed, name = {}, None
        for folder in sorted(options.models.glob(f"{algorithm}-*/*/*/[0-9]*")):
            settings = settings_of(folder)
            for path in sorted(folder.glob("model-*.npz")):
                if settings and int(path.stem.split("-")[1]) in options.epochs:
                    name = settings["dataset"]
                    found = weights(engine, path, name, options.seeds)
                    missed[str(path.relative_to(options.models))] = max(found) - found
        if missed:
            every = np.concatenate([*missed.values()])
            counts = (f"{(every > nats).sum()} ({(every > nats).mean():.1%})" for nats in (0.5, 1))
            row = name, label, len(missed), len(every), *counts, f"{every.max():.1f}"
            record.add(*row, times=missed)
    record.close()


def weights(engine, path, name, seeds):
    """For each seed, the log-sum of the weights of the modes that are found."""
    with np.load(path, allow_pickle=False) as arrays:
        theta = Parameters(*(engine.xp.asarray(arrays[part][None]) for part in "Wbc"))
    theta, found = engine.prepare(theta), []
    images = data.load(name, os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data").train
    for seed in range(seeds):
        how = key("search", seed), 100, 250 * STEPS, engine
        _, modes, _ = find_modes(theta, engine.xp.asarray(images), *how)
        p, bounds = mean_field(theta, engine.xp.asarray(modes)[None], 0)
        found.append(float(np.logaddexp.reduce(to_host(weights_of(theta, p, bounds)[0]))))
    return np.array(found)


if __name__ == "__main__":
    main()
