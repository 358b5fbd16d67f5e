"""What the benchmarks share: the model, the clock, the record.

The model is 784 × 500 with mini-batches of 200 rows, as in the paper. The CPU engine's time depends
on the states: its models are first trained on MNIST, for as many updates as the record says, or on
synthetic blobs where MNIST is not there.

A record is three files under benchmarks/records/: every single time (.json), the table (.md) and
its picture (.png).
"""

import argparse
import json
import os
import sys
import textwrap
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))  # on a machine where sdcpd is not installed

from sdcpd import engines, rbm  # noqa: E402
from sdcpd.algorithms import ALGORITHMS, LABELS, Hyperparameters  # noqa: E402
from sdcpd.philox import Stream, key  # noqa: E402
from sdcpd.device import blas_threads, synchronize  # noqa: E402
from sdcpd.data import DataError, load  # noqa: E402
from sdcpd.rbm import initialize  # noqa: E402

M, N, BATCH, K, D = 784, 500, 200, 24, 6  # visible, hidden, rows, Gibbs steps, inner iterations
UPDATES = 60_000  # of the paper's 200 epochs
PRODUCTS = {"cd": 51, "pcd": 52, "cg": 51, "sdcp": 61, "sdcp_d": 61}  # B × m × n, an update
RECORDS = ROOT / "benchmarks/records"


def hyperparameters(algorithm, replicas, xp=np, steps=K, n_visible=M):
    """So small a learning rate that the model stays what it is."""
    inner = ALGORITHMS[algorithm].has_inner_loop
    one = xp.ones(replicas, xp.float32)
    mean = xp.full(n_visible, 0.13, xp.float32)
    d = D if inner and steps % D == 0 else 1
    return Hyperparameters(1e-7 * one, 0.1 * one, 0 * one, steps // d, d, 0.01, mean)


def blobs(n_rows, n_visible=M):
    """Rows of {0, 1} with about 13 % on: a few discs each on a square of pixels."""
    rng = np.random.default_rng(0)
    side = int(np.ceil(np.sqrt(n_visible)))
    y, x = np.mgrid[:side, :side]
    rows = np.zeros((n_rows, side, side), bool)
    for row in rows:
        for cy, cx in rng.uniform(0.2, 0.8, (4, 2)) * side:
            row |= (y - cy) ** 2 + (x - cx) ** 2 < (0.12 * side) ** 2
    return rows.reshape(n_rows, -1)[:, :n_visible].astype(np.uint8)


def training_rows():
    """MNIST's training images, or blobs, and which of the two."""
    try:
        folder = os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data"
        return load("mnist", folder).train, "MNIST"
    except (DataError, ImportError):
        return blobs(2000), "synthetic blobs"


def trained_model(engine, images, updates, n_hidden=N):
    """A model after so many S-DCP updates (η = .05): plain parameters on the host."""
    images = engine.xp.asarray(images)
    theta = initialize(images.mean(0).tolist(), n_hidden, [key("benchmark")], engine.xp)
    theta, state, stream = engine.prepare(theta), None, Stream([key("benchmark")], engine.xp)
    hyper = hyperparameters("sdcp", 1, engine.xp, n_visible=images.shape[1])
    hyper = hyper._replace(learning_rate=engine.xp.full(1, 0.05, engine.xp.float32))
    for update in range(updates):
        rows = slice(update * BATCH % (len(images) - BATCH + 1), None)
        v = engine.states(images[rows][:BATCH][None])
        theta, state = ALGORITHMS["sdcp"].step(theta, state, v, hyper, stream, engine)
    return theta


def replicate(engine, theta, replicas):
    """The same model so many times side by side."""
    xp = engine.xp
    return engine.prepare(
        type(theta)(*(xp.ascontiguousarray(xp.repeat(a, replicas, axis=0)) for a in theta))
    )


def share_of_changes(theta, images):
    """Which share of the visible and of the hidden units a Gibbs step changes, on the host."""
    v = images[None, :BATCH].astype(np.float32)
    stream, changed = Stream([key("changes")], np), []
    theta = rbm.Parameters(*(np.asarray(getattr(a, "get", lambda a=a: a)()) for a in theta[:3]))
    h = None
    for _ in range(6):
        new_h = rbm.sample(rbm.hidden_probability(theta, v), stream)
        new_v = rbm.sample(rbm.visible_probability(theta, new_h), stream)
        if h is not None:
            changed.append(((new_v != v).mean(), (new_h != h).mean()))
        v, h = new_v, new_h
    return np.mean(changed, axis=0)


def seconds(function, xp=np):
    """Of one call, until the device has finished."""
    synchronize(xp)
    start = time.perf_counter()
    function()
    synchronize(xp)
    return time.perf_counter() - start


def take_turns(tasks, xp=np, at_least=0.2, repetitions=5, budget=60.0):
    """Seconds a call of each task: name -> list, one value a repetition.

    The tasks take turns, so that a machine that gets slower does so for all of them. A repetition
    calls a task as often as it takes for ``at_least`` seconds; all end after ``budget`` seconds.
    With ``repetitions`` = 0 each task is called once, and not warmed up.
    """
    if not repetitions:
        return {name: [seconds(task, xp)] for name, task in tasks.items()}
    end = time.perf_counter() + budget
    calls = {}
    for name, task in tasks.items():
        task()  # compiles, and warms up
        calls[name] = max(1, int(at_least / max(seconds(task, xp), 1e-9)))
    times = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            if times[name] and time.perf_counter() > end:
                continue

            def many(task=task, n=calls[name]):
                for _ in range(n):
                    task()

            times[name].append(seconds(many, xp) / calls[name])
    return times


def update_task(engine, algorithm, theta, images, steps=K, batch=BATCH):
    """One update of all replicas of ``theta``, as training makes it, as a function."""
    replicas = len(theta.W)
    hyper = hyperparameters(algorithm, replicas, engine.xp, steps, theta.W.shape[2])
    stream = Stream([key(algorithm, replica) for replica in range(replicas)], engine.xp)
    rows = engine.xp.asarray(images[np.arange(replicas * batch) % len(images)])
    v = rows.reshape(replicas, batch, -1)
    state, step = [theta, None], ALGORITHMS[algorithm].step

    def update():
        state[:] = step(*state, engine.states(v), hyper, stream, engine)

    return update


def product_seconds(engine, rows=BATCH, n=N, m=M):
    """Of one product of the chain at this device's best rate: its limit.

    CPU: the product itself, float32, by NumPy. GPU: twice its operations (the exact split) at the
    rate of an 8192³ product of halves.
    """
    xp = engine.xp
    if xp is np:
        a, b = np.ones((rows, n), np.float32), np.ones((n, m), np.float32)
        out = np.empty((rows, m), np.float32)
        return min(seconds(lambda: np.matmul(a, b, out=out)) for _ in range(30))
    size = 8192
    a = xp.random.random((size, size), dtype=xp.float32).astype(xp.float16)
    xp.matmul(a, a)
    rate = 2 * size**3 / min(seconds(lambda: xp.matmul(a, a), xp) for _ in range(5))
    return 2 * (2 * rows * n * m) / rate


def arguments(description, **more):
    """The command line that the benchmarks share."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--backend", default="auto", help="auto, or the name of an engine")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; noisy")
    parser.add_argument("--record", action="store_true", help="write benchmarks/records/")
    parser.add_argument("--folder", type=Path, default=RECORDS, help="where, instead of there")
    for name, options in more.items():
        parser.add_argument(f"--{name}", **options)
    return parser.parse_args()


class Record:
    """Rows of a benchmark, printed as they come, and written with everything behind them."""

    def __init__(self, name, title, columns, engine, options, n_names=2, **about):
        self.n_names = n_names  # the first columns that together name a row
        self.name, self.title, self.columns, self.options = name, title, columns, options
        self.about = engine.describe() | {"cores": os.cpu_count()} | about
        self.about["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
        self.rows, self.times, self.start = [], {}, time.perf_counter()
        print(f"\n{title}\n{self.where()}\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")

    def where(self):
        """Device, versions and date in a line."""
        names = ("numpy", "numba", "cupy", "cuda", "blas", "threads", "rows", "torch")
        versions = [f"{n} {self.about[n]}" for n in names if n in self.about]
        device = f"{self.about['device']}, {self.about['cores']} cores"
        return (
            f"{device}; engine {self.about['engine']}; {', '.join(versions)}; {self.about['date']}"
        )

    def add(self, *values, times=None):
        """A row, and the single times that it comes from."""
        self.rows.append(values)
        if times is not None:
            self.times[" ".join(map(str, values[: self.n_names]))] = times
        print(f"| {' | '.join(_text(v) for v in values)} |", flush=True)

    def close(self, draw=None):
        """Write the record if that was asked for; ``draw(axes, rows)`` makes its picture."""
        self.about["seconds"] = round(time.perf_counter() - self.start)
        print(f"took {self.about['seconds']} s", flush=True)
        if not self.options.record:
            return
        device = "gpu" if self.about["device"].startswith("GPU") else "cpu"
        path = self.options.folder / f"{self.name}-{device}-{self.about['date']}"
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"about": self.about, "columns": self.columns, "rows": self.rows}
        raw = json.dumps(about | {"seconds": self.times}, indent=1, default=_plain)
        path.with_suffix(".json").write_text(raw + "\n", encoding="utf-8")
        lines = [f"{self.title}\n", f"{self.where()}; took {self.about['seconds']} s\n"]
        lines += [
            f"| {' | '.join(self.columns)} |",
            "|---" + "|---:" * (len(self.columns) - 1) + "|",
        ]
        lines += [f"| {' | '.join(_text(v) for v in row)} |" for row in self.rows]
        path.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")
        if draw:
            with suppress(ImportError):  # matplotlib need not be there
                picture(path, f"{self.title}\n{self.where()}", draw, self.rows)


def picture(path, title, draw, rows):
    """What ``draw(axes, rows)`` draws, as a PNG beside the record."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    draw(axes, rows)
    figure.suptitle(
        textwrap.fill(title, 130, replace_whitespace=False), fontsize=7, x=0.01, ha="left"
    )
    figure.savefig(path.with_suffix(".png"), dpi=120)
    plt.close(figure)


def _plain(value):
    """NumPy's numbers and arrays, for JSON."""
    return np.asarray(value).tolist()


def _text(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)
