"""The trusted estimate of log Z: its cost beside plain AIS's, and what five seeds make of a model.

uv run python benchmarks/trusted.py              the archived models, 10 minutes on a CPU
uv run python benchmarks/trusted.py --temperatures 250 1000 2000      which budget repeats itself?

Plain AIS has the paper's 100 particles and 10,000 temperatures; its cost is measured right after.
"""

import os

from common import LABELS, ROOT, Record, arguments, engines, key, np, seconds

from sdcpd import data, runs
from sdcpd.runs import archive
from sdcpd.device import to_host
from sdcpd.log_z import annealed_log_z
from sdcpd.trusted import trusted_log_z

SEEDS = 5
COLUMNS = ["dataset", "algorithm", "temperatures", "plain log Z", "its ESS", "trusted log Z"]
COLUMNS += ["smallest … largest", "smallest ESS", "agree", "bound", "smallest bound"]
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
    found, costs, plains = [], [], []

    def trusted(seed):
        how = {"n_temperatures": temperatures, "engine": engine}
        found.append(trusted_log_z(theta, images, key("trusted", seed), **how))

    def plain():
        how = 100, plain_temperatures
        plains.append(annealed_log_z(theta, mean, [key("plain")], *how, engine=engine))

    for seed in range(seeds):
        costs.append(seconds(lambda seed=seed: trusted(seed), engine.xp))
    cost = np.median(costs) / seconds(plain, engine.xp)
    values, bounds = [f.value for f in found], [f.bound for f in found]
    record.add(
        *(experiment, LABELS[run.settings["algorithm"]], temperatures),
        f"{plains[0].value[0]:.2f}",
        f"{plains[0].effective_sample_size[0]:.0f}",
        f"{np.mean(values):.2f}",
        f"{min(values):.2f} … {max(values):.2f}",
        f"{min(f.effective_sample_size for f in found):.0f}",
        f"{sum(f.agrees for f in found)} of {seeds}",
        *(f"{max(bounds):.1f}", f"{min(bounds):.1f}", float(cost)),
        times={"trusted": costs, "values": values, "bounds": bounds},
    )


if __name__ == "__main__":
    main()
