"""The trusted estimate of log Z: its cost beside plain AIS's, and what five seeds make of a model.

uv run python benchmarks/trusted.py              the archived models, 20 minutes on a CPU
uv run python benchmarks/trusted.py --temperatures 250 1000 2000      which budget repeats itself?

Plain AIS has the paper's 100 particles and 10,000 temperatures; the two take turns, seed by seed.
A range is the largest minus the smallest of the seeds' values, in nats.
"""

import os
from functools import partial

from common import LABELS, ROOT, Record, arguments, engines, key, np, seconds

from sdcpd import data, runs
from sdcpd.runs import archive
from sdcpd.device import to_host
from sdcpd.log_z import annealed_log_z
from sdcpd.trusted import trusted_log_z

SEEDS = 5
COLUMNS = ["dataset", "algorithm", "temperatures", "plain log Z", "its range", "its smallest ESS"]
COLUMNS += ["trusted log Z", "range", "smallest ESS", "agree", "bound", "smallest bound"]
COLUMNS += ["cost, of plain AIS"]


def main():
    options = arguments(
        __doc__,
        experiments={"nargs": "+", "default": ["mnist", "caltech", "kannada"]},
        temperatures={"nargs": "+", "type": int, "default": [250]},
    )
    engine = engines.select(options.backend)
    seeds, plain = (2, 500) if options.quick else (SEEDS, 10_000)
    title = f"Trusted log Z, {seeds} seeds, beside plain AIS, 100 × {plain:,}; archived models"
    record = Record("trusted", title, COLUMNS, engine, options, n_names=3)
    for experiment in options.experiments:
        for name in LABELS:
            run = runs.load(archive.FOLDER / f"runs/{experiment}/as_published/{name}-500h")
            for temperatures in options.temperatures if run.trials else ():
                measure(record, engine, (experiment, run), (seeds, temperatures, plain))
    record.close()


def measure(record, engine, model, budget):
    """A row of the record, for the best model of a run."""
    (experiment, run), (seeds, temperatures, plain_temperatures) = model, budget
    folder = os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data"
    images = engine.xp.asarray(data.load(run.settings["dataset"], folder).train)
    theta = engine.prepare(run.best()[0].map(engine.xp.asarray))
    mean = to_host(images.mean(0, dtype=float))
    found, plains, costs = [], [], {"trusted": [], "plain": []}

    def trusted(seed):
        how = {"n_temperatures": temperatures, "engine": engine}
        found.append(trusted_log_z(theta, images, key("trusted", seed), **how))

    def plain(seed):
        how = 100, plain_temperatures
        plains.append(annealed_log_z(theta, mean, [key("plain", seed)], *how, engine=engine))

    for seed in range(seeds):
        for estimate in (trusted, plain):
            costs[estimate.__name__].append(seconds(partial(estimate, seed), engine.xp))
    cost = np.median(costs["trusted"]) / np.median(costs["plain"])
    values, bounds = [f.value for f in found], [f.bound for f in found]
    of_plain = [float(p.value[0]) for p in plains]
    record.add(
        *(experiment, LABELS[run.settings["algorithm"]], temperatures),
        f"{np.mean(of_plain):.2f}",
        f"{np.ptp(of_plain):.2f}",
        f"{min(p.effective_sample_size[0] for p in plains):.0f}",
        f"{np.mean(values):.2f}",
        f"{np.ptp(values):.2f}",
        f"{min(f.effective_sample_size for f in found):.0f}",
        f"{sum(f.agrees for f in found)} of {seeds}",
        *(f"{max(bounds):.1f}", f"{min(bounds):.1f}", float(cost)),
        times=costs | {"values": values, "bounds": bounds, "values of plain": of_plain},
    )


if __name__ == "__main__":
    main()
