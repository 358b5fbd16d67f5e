"""What runs cost, before they run: for ``workflow/scripts/plan.py``, deciding nothing.

How often a run does what follows exactly from its settings (``work``). The seconds of each come
from ten seconds of measuring, here and with the engine that would be used (``calibrate``). Memory
and disk follow from the sizes of arrays.
"""

import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np

from . import ROOT, data, experiments, runs, sampling, training
from .algorithms import Hyperparameters
from .backend import key, to_host
from .likelihood import annealed_log_z, average_log_likelihood, trusted_temperatures
from .rbm import initialize

#: Pixels, training images, and images of all parts, which an evaluation visits; see data.py.
SIZES = {
    "bars_and_stripes": (9, 16, 16),
    "mnist": (784, 60_000, 70_000),
    "caltech101_silhouettes_merged": (784, 6_364, 8_671),
    "caltech101_silhouettes": (784, 4_100, 8_671),
    "kannada_mnist": (784, 60_000, 70_000),
}
# The large model of the paper and the small one, which the rates are of.
WEIGHTS, ROWS, PARTICLES, STEPS, INNER = (500, 784), 200, 100, 24, 6
SMALL_HIDDEN, SMALL_STEPS, SMALL_TRIALS = 8, 4, 25
TRAINED = ROOT / "workflow/archive/runs/mnist/as_published/sdcp_d-500h"
# Measured: of a job with its kernel; of a pixel, while files are read and checked; of a notebook,
# its HTML and its figure.
NOTEBOOK_MEMORY, PIXEL_MEMORY, NOTEBOOK_DISK = 0.33e9, 11, 0.8e6


class Work(NamedTuple):
    """How often a run does what, for each of its replicas."""

    updates: int = 0
    gibbs_steps: int = 0
    ascents: int = 0  # steps of the parameters: d an update
    evaluations: int = 0
    temperatures: int = 0  # of annealed importance sampling, in all evaluations


class Job(NamedTuple):
    """What a job of the workflow takes."""

    seconds: float
    memory: float = NOTEBOOK_MEMORY  # bytes, as the following
    disk: float = NOTEBOOK_DISK
    download: float = 0
    cores: int = 1
    gpus: int = 0


def sizes_of(dataset):
    """Pixels, training images and images of all parts of a dataset, also of ``..._valid``."""
    name = dataset.removesuffix(data.VALID)
    family = next((family for family in SIZES if name.startswith(family)), None)
    if family is None:  # a file of the reader's own: only it can tell
        parts = [part for part in data.load(dataset)[:3] if part is not None]
        return parts[0].shape[1], len(parts[0]), sum(map(len, parts))
    n_visible, n_train, n_all = SIZES[family]
    if name == dataset or "mnist" not in family:  # some 2,300 too many of CalTech's, if held out
        return n_visible, n_train, n_all
    held_out = n_train // data.HELD_OUT
    return n_visible, n_train - held_out, n_all - held_out


def replicas(settings):
    """How many models a run, or a sweep with its list of hyperparameters, trains."""
    values = settings["hyperparameters"]
    return settings["trials"] * (len(values) if isinstance(values, list) else 1)


def work(settings):
    """The ``Work`` of a run or sweep."""
    points = runs.evaluation_updates(settings, sizes_of(settings["dataset"])[1])
    ascents = points[-1] * settings["n_inner_iterations"]  # 1 for the algorithms without any
    temperatures = 0
    if ais := settings["ais"]:
        plain = len(runs.plain_updates(settings, sizes_of(settings["dataset"])[1]))
        temperatures = plain * ais["n_temperatures"] + len(points) * trusted_temperatures(**ais)
    steps = ascents * settings["n_gibbs_steps"]
    return Work(points[-1], steps, ascents, len(points), temperatures)


def seconds(settings, rates, each=None, models=None):
    """Of a run or sweep; or of other ``Work`` with so many of its models."""
    if rounds := settings.get("rounds"):  # of halving: what goes on is trained no second time
        ends, total = [0, *(end for end, _ in rounds), settings["epochs"]], 0.0
        going_on = [len(settings["hyperparameters"]), *(n + 1 for _, n in rounds)]
        for start, end, n in zip(ends, ends[1:], going_on, strict=False):
            parts = [settings | {"epochs": e, "rounds": None} for e in (end, start) if e]
            until = [seconds(part, rates, models=n * settings["trials"]) for part in parts]
            total += until[0] - sum(until[1:])
        return total
    each, models = each or work(settings), models or replicas(settings)
    n_visible, n_train, n_all = sizes_of(settings["dataset"])
    if settings["ais"] is None:  # small: models side by side, log Z by enumeration
        states = models * 2 ** min(n_visible, settings["n_hidden"])
        step = rates["small_call"] + rates["small_replica"] * models
        return each.gibbs_steps * step + each.evaluations * states * rates["state"]
    size = n_visible * settings["n_hidden"] / np.prod(WEIGHTS)
    rows = min(settings["batch_size"], n_train) / ROWS
    particles = settings["ais"]["n_particles"] / PARTICLES
    of_updates = rows * each.gibbs_steps * rates["gibbs"] + each.ascents * rates["ascent"]
    log_z = particles * each.temperatures * rates["temperature"]
    return models * size * (of_updates + log_z + each.evaluations * n_all * rates["image"])


def job(settings, rates):
    """The ``Job`` that makes a run or sweep."""
    return Job(rates["notebook"] + seconds(settings, rates), memory(settings), disk(settings))


def memory(settings):
    """Bytes at the peak: the notebook, the images, the models, and the hidden activations."""
    n_visible, _, n_all = sizes_of(settings["dataset"])
    models = 2 * replicas(settings) + 8  # 8: what one update holds
    activations = 3 * 4 * min(n_all, 2**14) * settings["n_hidden"]  # of so many images at once
    return (
        NOTEBOOK_MEMORY
        + PIXEL_MEMORY * n_all * n_visible
        + models * _bytes_of_model(settings)
        + activations
    )


def disk(settings):
    """Bytes of the results: the notebook, the curve and, of a run, the final models."""
    kept = 0 if isinstance(settings["hyperparameters"], list) else _bytes_of_model(settings)
    return NOTEBOOK_DISK + replicas(settings) * (kept + 90 * work(settings).evaluations)


def _bytes_of_model(settings):
    n_visible, n_hidden = sizes_of(settings["dataset"])[0], settings["n_hidden"]
    return 4 * (n_hidden * n_visible + n_hidden + n_visible)


def schedule(jobs, needs, cores):
    """Wall time (s) and peak memory (bytes) of jobs that start as soon as they can.

    Of several the one with the longest way to the end comes first. Those on the GPU are counted one
    after the other, though they may share it.

    Parameters
    ----------
    jobs : dict of name -> Job
    needs : dict of name -> collection of names
        Those that are not in ``jobs`` are there already.
    cores : int
    """
    needed = {name: {n for n in needs.get(name, ()) if n in jobs} for name in jobs}
    way = {}

    def way_from(name):
        if name not in way:
            after = [way_from(other) for other in jobs if name in needed[other]]
            way[name] = jobs[name].seconds + max(after, default=0)
        return way[name]

    waiting, running, done = sorted(jobs, key=way_from, reverse=True), {}, set()
    now = peak = 0.0
    while waiting or running:
        for name in [name for name in waiting if needed[name] <= done]:
            beside = [jobs[name], *(jobs[other] for other in running)]
            fits = sum(min(job.cores, cores) for job in beside) <= cores
            if fits and (not jobs[name].gpus or sum(job.gpus for job in beside) == 1):
                running[name] = now + jobs[name].seconds
                waiting.remove(name)
        peak = max(peak, sum(jobs[name].memory for name in running))
        first = min(running, key=running.get)
        now = running.pop(first)
        done.add(first)
    return now, peak


# ---------------------------------------------------------------------------- calibration


def calibrate(engine):
    """The rates of ``seconds``, in seconds, measured here in about ten.

    Returns
    -------
    dict of str -> float
        cd, sdcp_d: an update of the large model; gibbs, ascent: one of their steps; temperature: of
        AIS; image: its likelihood; small_call + small_replica × models: a Gibbs step of Bars &
        Stripes; state: enumerated for log Z; notebook: from its start to its HTML.
    """
    side_by_side = min(10, engine.capacity(*WEIGHTS, ROWS, ROWS) or 1)  # cheaper so, on a GPU
    keys = [key("calibration", number) for number in range(side_by_side)]
    theta = _large_model().map(lambda a: engine.xp.asarray(np.repeat(a, side_by_side, axis=0)))
    images = engine.xp.asarray(sampling.generate(theta, keys, ROWS, 100, engine=engine)[0])
    rates, n = {}, 6
    for name, inner in (("cd", 1), ("sdcp_d", INNER)):
        each = engine.xp.full(side_by_side, 0.001, engine.xp.float32)
        hyper = each, each * 100, each * 0, STEPS // inner, inner, 0, images.mean(0)
        how = ROWS, [n], lambda _, who, at: [{"train": 0, "test": 0} for _ in who], keys, keys
        done = training.train(name, theta, Hyperparameters(*hyper), images, *how, engine=engine)
        rates[name] = done.seconds / n / side_by_side
    rates["ascent"] = max(0.0, (rates["sdcp_d"] - rates["cd"]) / (INNER - 1))
    rates["gibbs"] = (rates["cd"] - rates["ascent"]) / STEPS
    mean, n, theta_ = to_host(images).mean(0), 200, engine.prepare(theta)
    taken = _timed(annealed_log_z, theta_, mean, keys, PARTICLES, n, engine=engine)
    rates["temperature"] = taken / n / side_by_side
    many = engine.xp.concatenate([images] * 10)
    taken = _timed(average_log_likelihood, theta, many, np.zeros(side_by_side))
    rates["image"] = taken / len(many) / side_by_side

    groups, which = experiments.read_hyperparameters(), ("bars_and_stripes", "as_published", "cd")
    small = experiments.run_settings(experiments.read(), groups, *which, SMALL_HIDDEN)
    small |= {"epochs": 400, "evaluate": {"every": 100, "also": []}, "trials": SMALL_TRIALS}
    one, many = (
        runs.execute(small | {"trials": trials}, None, engine.name).wall
        for trials in (1, SMALL_TRIALS)
    )
    more = many["training_seconds"] - one["training_seconds"]
    rates["small_replica"] = max(0.0, more / (SMALL_TRIALS - 1)) / work(small).gibbs_steps
    whole = many["training_seconds"] / work(small).gibbs_steps
    rates["small_call"] = whole - SMALL_TRIALS * rates["small_replica"]
    states = work(small).evaluations * SMALL_TRIALS * 2**SMALL_HIDDEN
    rates["state"] = many["evaluation_seconds"] / states

    with tempfile.TemporaryDirectory() as folder:
        program = [sys.executable, "-c", _NOTEBOOK, folder, _CELL, ROOT / "workflow/scripts"]
        rates["notebook"] = _timed(subprocess.run, program, check=True, stderr=subprocess.DEVNULL)
    return rates


def _large_model():
    """An archived one, if any: most updates are of trained models, which on a CPU are faster."""
    if (TRAINED / "models.npz").exists():
        return runs.load(TRAINED).theta.select(slice(1))
    return initialize(np.full(WEIGHTS[1], 0.13), WEIGHTS[0], [key("calibration", "init")])


def _timed(function, *arguments, **named):
    started = time.perf_counter()
    function(*arguments, **named)
    return time.perf_counter() - started


# One cell, and what executes it as workflow/scripts/execute_notebook.py does.
_CELL = """
from sdcpd import engine, plots, runs
engine.select()
figure, axes = plots.plt.subplots(2, 3)
for axis in axes.flat:
    axis.plot(range(9))
for suffix in ("pdf", "png", "svg"):
    figure.savefig(f"{folder}/figure.{suffix}", dpi=200)
"""
_NOTEBOOK = """
import sys, nbformat, papermill
folder, cell, scripts = sys.argv[1:]
sys.path.insert(0, scripts)
from pages import notebook_page
cells = [nbformat.v4.new_code_cell(text) for text in (f"folder = {folder!r}", cell)]
book = nbformat.v4.new_notebook(cells=cells)
book.metadata.kernelspec = {"name": "python3", "display_name": "python3", "language": "python"}
nbformat.write(book, folder + "/a.ipynb")
how = {"kernel_name": "python3", "progress_bar": False}
papermill.execute_notebook(folder + "/a.ipynb", folder + "/b.ipynb", **how)
notebook_page(folder + "/b.ipynb", "b")
"""
