"""The trusted estimate of log Z: its cost beside plain AIS's, and what five seeds make of a model.

uv run python benchmarks/trusted.py              the archived models, 18 minutes on a CPU
uv run python benchmarks/trusted.py --temperatures 250 1000 2000      which budget repeats itself?

Plain AIS has the paper's 100 particles and 10,000 temperatures; the two take turns, seed by seed.
A range is the largest minus the smallest of the seeds' values, in nats.
"""

import os
from collections import defaultdict
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
            if run.trials:
                measure(record, engine, (experiment, run), seeds, options.temperatures, plain)
    record.close()


def measure(record, engine, model, seeds, temperatures, plain_temperatures):
    """Rows of the record, one for each number of temperatures: the best model of a run."""
    experiment, run = model
    folder = os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data"
    images = engine.xp.asarray(data.load(run.settings["dataset"], folder).train)
    theta = engine.prepare(run.best()[0].map(engine.xp.asarray))
    mean, how = to_host(images.mean(0, dtype=float)), {"engine": engine}
    found, costs = defaultdict(list), defaultdict(list)

    def plain(seed):
        keys = [key("plain", seed)]
        found["plain"].append(annealed_log_z(theta, mean, keys, 100, plain_temperatures, **how))

    def trusted(seed, n):
        found[n].append(trusted_log_z(theta, images, key("trusted", seed), 100, n, **how))

    for seed in range(seeds):
        costs["plain"].append(seconds(partial(plain, seed), engine.xp))
        for n in temperatures:
            costs[n].append(seconds(partial(trusted, seed, n), engine.xp))
    of_plain = [float(each.value[0]) for each in found["plain"]]
    for n in temperatures:
        values, bounds = [f.value for f in found[n]], [f.bound for f in found[n]]
        raw = {"trusted": costs[n], "values": values, "bounds": bounds}
        record.add(
            *(experiment, LABELS[run.settings["algorithm"]], n),
            *(f"{np.mean(of_plain):.2f}", f"{np.ptp(of_plain):.2f}"),
            f"{min(each.effective_sample_size[0] for each in found['plain']):.0f}",
            *(f"{np.mean(values):.2f}", f"{np.ptp(values):.2f}"),
            f"{min(f.effective_sample_size for f in found[n]):.0f}",
            f"{sum(f.agrees for f in found[n])} of {seeds}",
            *(f"{max(bounds):.1f}", f"{min(bounds):.1f}"),
            float(np.median(costs[n]) / np.median(costs["plain"])),
            times=raw | {"plain": costs["plain"], "values of plain": of_plain},
        )


if __name__ == "__main__":
    main()
