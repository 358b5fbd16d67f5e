"""Bars & Stripes as the paper makes it: 5 algorithms × 3 sizes, 25 trials × 5,000 updates.

uv run python benchmarks/bars.py                 2 minutes on a CPU
"""

from common import LABELS, Record, arguments, engines, key, np, seconds

from sdcpd.algorithms import ALGORITHMS, Hyperparameters
from sdcpd.data import bars_and_stripes
from sdcpd.rbm import initialize
from sdcpd.training import Task, train

TRIALS, UPDATES = 25, 5000


def training(engine, algorithm, n_hidden, n_updates):
    """All trials, not evaluated."""
    xp, images = engine.xp, bars_and_stripes(3)
    keys = np.array([key("bars", trial) for trial in range(TRIALS)])
    one, inner = xp.full(TRIALS, 0.1, xp.float32), ALGORITHMS[algorithm].has_inner_loop
    mean = xp.asarray(images.mean(0), xp.float32)
    hyper = Hyperparameters(one, one, 0 * one, 2 if inner else 4, 2, 0.01, mean)
    theta = initialize(images.mean(0), n_hidden, keys, xp)
    points = [{"train": 0.0}] * TRIALS
    task = Task(algorithm, hyper, xp.asarray(images), 16, [n_updates], keys, keys, engine=engine)
    train(task, theta, lambda *_: points)


def main():
    options = arguments(__doc__)
    engine = engines.select(options.backend)
    n_updates = 50 if options.quick else UPDATES
    columns = ["hidden units", "algorithm", f"s for {UPDATES:,} updates of {TRIALS} trials"]
    title = f"Bars & Stripes 3 × 3, {TRIALS} trials side by side, not evaluated"
    record = Record("bars", title, columns, engine, options, updates=n_updates)
    total = 0.0
    for n_hidden in (4, 8, 16):
        for algorithm in LABELS:
            training(engine, algorithm, n_hidden, 10)  # compiles
            taken = seconds(lambda a=algorithm, n=n_hidden: training(engine, a, n, n_updates))
            total += taken * UPDATES / n_updates
            record.add(n_hidden, LABELS[algorithm], taken * UPDATES / n_updates, times=[taken])
    record.add("all", "all", total)
    record.close()


if __name__ == "__main__":
    main()
