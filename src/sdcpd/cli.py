"""The command line: train, evaluate, sample and bench without the workflow, also on own data.

Each command calls the functions that the notebooks call. What takes long to import is imported
where it is used, so that ``sdcpd --help`` is there at once.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

from . import ROOT, __version__

DATA = ROOT / "data"
AIS = {"n_particles": 100, "n_temperatures": 1000}
EXACT = 20  # units of the smaller layer: with so many log Z is exact, unless AIS is asked for
EPOCHS = 20  # but for Bars & Stripes; the paper's 200 take days without a GPU
HYPERPARAMETERS = ("learning_rate", "epsilon", "lambda_hessian", "sliding_factor")


class CommandError(Exception):
    """A command cannot be carried out; the message says why and what to do."""


class Patient:
    """Standard output or error that ends no training by being closed, full or of few letters."""

    def __init__(self, stream):
        self.problem = None
        if not stream:  # its number is the next that is free, and children need it as well
            os.set_inheritable(number := os.open(os.devnull, os.O_WRONLY), True)
            stream = os.fdopen(number, "w", encoding="utf-8")
        self.stream = stream
        if hasattr(self.stream, "reconfigure"):
            self.stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        return self._try(self.stream.write, text)

    def writelines(self, lines):
        self.write("".join(lines))

    def flush(self):
        self._try(self.stream.flush)

    def _try(self, function, *arguments):
        try:
            return function(*arguments)
        except OSError as error:
            self.problem = error
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())  # for what is to come


def main(arguments=None):
    """Carry out a command, by default that of the command line.

    Returns
    -------
    int
        Exit status: 1 where all trials diverged, 2 where the input is wrong or the output was lost,
        130 after Ctrl-C.
    """
    output = Patient(sys.stdout)
    with redirect_stdout(output), redirect_stderr(Patient(sys.stderr)):
        try:
            status = _main(arguments)
        finally:
            output.flush()
        if output.problem and not isinstance(output.problem, BrokenPipeError):  # as of `| head`
            return _fail(f"what was printed is lost: {output.problem.strerror}")
        return status


def _main(arguments):
    options = None
    try:
        options = _parser().parse_args(arguments)
        _check_place()
        return options.command(options)
    except KeyboardInterrupt:
        training = options is not None and options.command is train
        return _fail("interrupted" + ": the same command goes on" * training, 130)
    except MemoryError:
        return _fail("not enough memory: use fewer images, hidden units or particles")
    except OSError as error:
        return _fail(f"{error.filename or 'a file'}: {error.strerror or error}; check the path")
    except Exception as error:
        if not type(error).__module__.startswith("sdcpd."):
            raise  # a bug
        return _fail(error)  # every error of this package is a line that says what to do


def _fail(message, status=2):
    from .progress import columns

    over_progress = "\r\033[K" if columns() else ""
    sys.stderr.write(f"{over_progress}sdcpd: {' '.join(str(message).splitlines())}\n")
    return status


# ------------------------------------------------------------------------------ commands


def train(options):
    """Train all trials, or go on with them: run file, curve and samples."""
    import numpy as np

    from . import figures, runs
    from .study.compare import summarize

    _check_options(options)
    dataset = _load_data(options.dataset)
    settings = runs.canonical(_settings(options, dataset))
    stem = f"{Path(options.dataset).stem}-{options.algorithm}-{settings['n_hidden']}h"
    folder = options.output or Path("results/by_hand") / stem
    _check_writable(folder)
    sizes = f"{len(dataset.train):,} training and {len(dataset.test):,} test images"
    shape = " × ".join(map(str, dataset.image_shape))
    held_out = " (the last tenth of the rows is held out as test images)" * bool(dataset.held_out)
    print(f"{options.dataset}: {sizes} of {shape} pixels{held_out}", flush=True)
    if (folder / "run.json").exists():
        run = runs.load(folder)
        if (run.settings, _sha256(run)) != (settings, dataset.sha256):
            raise CommandError(f"{folder} holds another run: choose another --output or delete it")
        print(f"{folder} holds this run already; delete it to train again")
    else:
        with np.errstate(all="ignore"):  # a trial that diverges is marked in the run file
            run = runs.execute(settings, folder, options.backend, DATA, refuse_used=True)
        runs.clear_checkpoints(folder)
    values = ", ".join(f"{name} {value:g}" for name, value in settings["hyperparameters"].items())
    print(f"{_title(run)}: {values}; {run.provenance['device']}, {run.provenance['engine']}")
    bases = " at most, from each of several bases" * bool(settings["ais"])
    print(f"average log-likelihood in nats, mean over trials; log Z {_how(settings['ais'])}{bases}")
    table = summarize(run, trusted=True).rename(columns=lambda name: name.removesuffix("_mean"))
    shown = np.unique(np.linspace(0, len(table) - 1, min(len(table), 12)).round().astype(int))
    _print(table.iloc[shown], "epoch", "trials", "train", "valid", "test", "ess")
    figure = figures.trial_curves(run)
    figure.suptitle(_title(run), y=1.04, parse_math=False)
    figure.savefig(folder / "curve.png", bbox_inches="tight")
    if run.best()[0] is None:
        return _fail(f"every trial diverged, see {folder}: use a smaller --learning-rate", 1)
    images = _generate(run, 25, options.sample_steps, settings["seed"], options.backend)
    _draw(run, images, options.sample_steps, folder / "samples.png")
    print(f"In {folder}: {', '.join(runs.FILES)} (the run file), curve.png, samples.png")
    return 0


def evaluate(options):
    """Average log-likelihood of the final models of a run, with random numbers of its own."""
    import pandas as pd

    from . import engines, philox
    from .likelihood import Evaluator
    from .progress import Progress
    from .study.measurements import models, side_by_side, stack

    run = _load_run(options.run)
    settings, name = run.settings, options.data or run.settings["dataset"]
    dataset = _load_data(name)
    if name == settings["dataset"] and dataset.sha256 != _sha256(run):
        raise CommandError(f"{name} has changed since {options.run} was trained on it: train again")
    visible, pixels = run.theta.W.shape[2], dataset.train.shape[1]
    if visible != pixels:
        has = f"images of {name} have {pixels} pixels, but the models {visible} visible units"
        raise CommandError(f"{has}: give other --data")
    ais, chosen = _ais(options, settings["ais"]), engines.select(options.backend)
    train, valid, test = (a if a is None else chosen.xp.asarray(a) for a in dataset[:3])
    fields = "evaluate", _sha256(run) or settings["dataset"], settings["algorithm"]
    progress = Progress(f"{Path(name).name} log Z", len(run.trials))

    def keys(trial, _):
        return philox.key(options.seed, *fields, trial)

    evaluator = Evaluator(train, test, keys, ais, progress.note, chosen, valid)
    alive, found = models([run], len(run.trials)), {}
    for part in side_by_side(alive, chosen, (ais or AIS)["n_particles"], on_cpu=1):
        trials = [run.trials[row] for _, row in part]
        theta = chosen.prepare(stack(part, chosen.xp))
        found |= zip(trials, evaluator(theta, trials, 0), strict=True)
        progress.update(len(found))
    rows = [{"trial": trial} | found.get(trial, {}) for trial in run.trials]
    progress.close()
    how = _how(ais) + f", seed {options.seed}" * bool(ais)
    print(f"{_title(run)}: average log-likelihood of {name} in nats; log Z {how}")
    columns = "trial", "log_z", "log_z_se", "ess", "train", "valid", "test", "bound"
    trusted = "trusted_log_z", "trusted_train", "trusted_valid", "trusted_test"
    _print(pd.DataFrame(rows), *columns, *trusted)
    for trial, point in found.items() if ais else ():
        _warn(trial, point)
    return 0


def _warn(trial, point):
    """Say in plain words where AIS from the data's mean and the other ways disagree."""
    from .likelihood import missed

    names = "log_z", "log_z_se", "trusted_log_z", "trusted_log_z_se", "bound"
    log_z, _, trusted, _, bound = values = [point[name] for name in names]
    if missed(*values):
        rigorous = f", certainly by {bound - log_z:.1f}"
        print(
            f"trial {trial}: AIS misses a mode far from the data: log Z is too small by about "
            f"{max(trusted, bound) - log_z:.1f}{rigorous * (bound > log_z)} nats, and the "
            "likelihoods are too large by as much"
        )
    elif not point["trusted_agrees"]:
        print(f"trial {trial}: no two ways to estimate log Z agree: doubtful")


def sample(options):
    """Images that the best model of a run generates, as a picture or as an array."""
    import numpy as np

    path = options.output
    if path.suffix not in (".png", ".npz"):
        raise CommandError(f"--output must end in .png or .npz, not {path.name!r}")
    run = _load_run(options.run)
    _check_writable(path.parent)
    images = _generate(run, options.images, options.steps, options.seed, options.backend)
    if path.suffix == ".npz":
        np.savez_compressed(path, images=images)
    else:
        _draw(run, images, options.steps, path)
    print(f"{path}: {len(images)} images after {options.steps:,} Gibbs steps; {_title(run)}")
    return 0


def bench(options):
    """Milliseconds that an update of each algorithm, and AIS, take on this machine."""
    import numpy as np
    import pandas as pd

    from . import engines
    from .algorithms import LABELS
    from .device import synchronize
    from .likelihood import annealed_log_z
    from .philox import key
    from .progress import Progress
    from .rbm import initialize
    from .study import timing

    chosen, K = engines.select(options.backend), options.n_gibbs_steps
    d = next(n for n in (6, 5, 4, 3, 2, 1) if K % n == 0)  # the paper's 6 where K = 24
    sizes = options.visible, options.n_hidden, options.batch_size
    update = timing.Update(*sizes, K, d, K // d)
    mean = np.full(options.visible, timing.ON)
    theta = chosen.prepare(initialize(mean, options.n_hidden, [key("bench")], chosen.xp))

    def of_update(n, name):
        how = {"engine": chosen, "algorithms": [name]}
        return timing.seconds_per_update(update, n, **how)[name][0]

    def of_temperature(n, _):
        started = time.perf_counter()
        annealed_log_z(theta, mean, [key("bench")], AIS["n_particles"], n, engine=chosen)
        synchronize(chosen.xp)
        return (time.perf_counter() - started) / n

    what = [(f"{LABELS[name]}, an update", of_update, name, 1) for name in LABELS]
    what.append(("AIS, 100 particles × 1,000 temperatures", of_temperature, None, 1000))
    progress, rows = Progress("bench", len(what)), []
    for label, seconds, name, times in what:
        n = max(1, round(options.seconds / seconds(2, name)))
        rows.append((label, 1000 * times * seconds(n, name)))
        progress.update(len(rows))
    progress.close()
    about = chosen.describe()
    threads = f", threads: {about['threads']}" if "threads" in about else ""
    print(f"engine {chosen.name}, {about['device']}{threads}; one model at a time")
    size = f"{options.visible} × {options.n_hidden}, mini-batches of {options.batch_size}"
    print(f"{size}, K = {K}, d = {d}, K′ = {K // d}")
    _print(pd.DataFrame(rows, columns=["what", "ms"]), "what", "ms")
    return 0


# ------------------------------------------------------------------------------- helpers


def _check_place():
    """The package needs its checkout, and is not to be used in the folder of another one."""
    if not (ROOT / "workflow/config").is_dir():
        without = "this sdcpd is installed without its project, whose workflow/config it reads"
        raise CommandError(f"{without}: `uv run sdcpd` in the project's folder, not --no-editable")
    for folder in (Path.cwd(), *Path.cwd().parents):
        package = folder / "src/sdcpd"
        if package.is_dir() and not package.samefile(Path(__file__).parent):
            raise CommandError(f"this sdcpd is that of {ROOT}: use `uv run sdcpd` in {folder}")


def _load_data(name):
    """A dataset; what is not there of a built-in one is fetched."""
    from . import data

    for file in data.files_of(name):
        data.fetch(file, DATA)
    return data.load(name, DATA)


def _load_run(folder):
    """A run with at least one model."""
    from . import runs

    if not (folder / "run.json").exists():
        raise CommandError(f"{folder} is no run: give a folder that `sdcpd train` has written")
    run = runs.load(folder)
    if run.best()[0] is None:
        raise CommandError(f"{folder} has no model: all trials diverged, or none was kept")
    return run


def _check_options(options):
    """Before the data are fetched."""
    from .algorithms import ALGORITHMS

    if any("\ud800" <= letter <= "\udfff" for letter in options.dataset):  # no run file can name it
        raise CommandError(
            f"{options.dataset}: not a name in this locale's letters: rename the file"
        )
    if options.algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise CommandError(f"unknown --algorithm {options.algorithm!r}: choose one of {known}")
    for name in ("epsilon", "lambda_hessian", "sliding_factor", "n_inner_iterations"):
        algorithms = [a for a, its in ALGORITHMS.items() if name in its.options]
        if vars(options)[name] is not None and options.algorithm not in algorithms:
            option = name.removeprefix("n_").replace("_", "-")
            only = f"--{option} is an option of {' and '.join(algorithms)} only"
            raise CommandError(f"{only}: leave it out, or choose another --algorithm")


def _settings(options, dataset):
    """The settings of a run: those of the paper's experiment, but for the options given."""
    from . import experiments

    given = {name: value for name, value in vars(options).items() if value is not None}
    config, groups = experiments.read(), experiments.read_hyperparameters()
    name, known = options.dataset.removesuffix("_valid"), config["experiments"]
    experiment = next((n for n in known if known[n]["dataset"] == name), "mnist")
    n_hidden = options.n_hidden or known[experiment]["n_hidden"][0]
    which = experiment, "as_published", options.algorithm, n_hidden
    of_group = groups["as_published"][experiment]
    if options.algorithm not in of_group and options.learning_rate:  # not one of the paper's
        of_group[options.algorithm] = {"learning_rate": options.learning_rate}
    settings = experiments.run_settings(config, groups, *which)
    if experiment != "bars_and_stripes":
        settings["epochs"] = EPOCHS
    settings |= {name: given[name] for name in settings if name in given}
    settings["hyperparameters"] |= {n: given[n] for n in HYPERPARAMETERS if n in given}
    evaluation = {"every": options.evaluate_every or settings["epochs"] / 10, "also": [0]}
    exact = min(n_hidden, dataset.train.shape[1]) <= EXACT
    return settings | {"evaluate": evaluation, "ais": _ais(options, None if exact else AIS)}


def _ais(options, default):
    given = {name: vars(options)[name] for name in AIS if vars(options)[name] is not None}
    return (default or AIS) | given if given else default


def _how(ais):
    if ais is None:
        return "exact"
    return f"by AIS with {ais['n_particles']} particles × {ais['n_temperatures']:,} temperatures"


def _sha256(run):
    """Of the own file that a run was trained on; None: a built-in dataset."""
    return run.provenance.get("data_sha256")


def _title(run):
    from .algorithms import LABELS

    s = run.settings
    return f"{LABELS[s['algorithm']]} on {Path(s['dataset']).name}, {s['n_hidden']} hidden units"


def _check_writable(folder):
    """Before hours of training, not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        problem = f"cannot write to {folder}: {error.strerror}"
        raise CommandError(f"{problem}; choose another place with --output") from error


def _generate(run, n_images, n_steps, seed, backend_name):
    """Images (N, rows, columns) of the best model."""
    from . import engines, philox, sampling
    from .progress import Progress

    chosen, s = engines.select(backend_name), run.settings
    theta = run.best()[0].map(chosen.xp.asarray)
    named = _sha256(run) or s["dataset"]
    key = philox.key(seed, "samples", named, s["algorithm"], s["n_hidden"])  # as the notebook's
    progress = Progress("samples", n_steps)
    (images,) = sampling.generate(theta, [key], n_images, n_steps, progress.update, chosen)
    progress.update(n_steps)
    progress.close()
    return images.reshape(-1, *run.image_shape)


def _draw(run, images, n_steps, path):
    from . import figures

    figure, axis = figures.plt.subplots(figsize=(5, 5))
    picture = figures.tile(images, images.shape[1:])
    axis.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    title = f"{_title(run)}\n{len(images)} images after {n_steps:,} Gibbs steps"
    axis.set_title(title, parse_math=False)  # a name may have $ in it
    axis.set_axis_off()
    figure.savefig(path, bbox_inches="tight")


def _print(table, *columns):
    """Those of the columns that the table has."""
    from .likelihood import MIN_ESS

    table = table[[name for name in columns if name in table]]
    names = {"log_z": "log Z", "log_z_se": "standard error", "ess": "ESS"}
    names["trusted_log_z"] = "trusted"
    forms = {"epoch": "{:g}".format, "ms": "{:.4g}".format}
    forms["ESS"] = lambda ess: "exact" if ess == math.inf else f"{ess:.0f}"
    how = {"float_format": "{:.3f}".format, "na_rep": "diverged", "formatters": forms}
    print(table.rename(columns=names).to_string(index=False, **how))
    if "ess" in table and table["ess"].min() < MIN_ESS:
        print(f"ESS below {MIN_ESS}: doubtful; more --ais-temperatures are better")


# ------------------------------------------------------------------------------- options


class _Parser(argparse.ArgumentParser):
    """One line for what is wrong, as for all other errors."""

    def error(self, message):
        raise CommandError(f"{message}; see {self.prog} --help")


def _number(convert, what, holds):
    """A type of argparse: a number for which ``holds``."""

    def parse(text):
        try:
            value = convert(text)
        except ValueError:
            value = math.nan
        if not holds(value):
            raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")
        return value

    return parse


WHOLE = _number(int, "a whole number", lambda n: n == n)
COUNT = _number(int, "a whole number above 0", lambda n: n > 0)
SEVERAL = _number(int, "a whole number above 1", lambda n: n > 1)
POSITIVE = _number(float, "a number above 0", lambda x: 0 < x < math.inf)
SHARE = _number(float, "a number from 0 to 1", lambda x: 0 <= x <= 1)

SETTINGS = {  # that are not called as their options
    "--hidden": "n_hidden",
    "--gibbs-steps": "n_gibbs_steps",
    "--inner-iterations": "n_inner_iterations",
    "--ais-particles": "n_particles",
    "--ais-temperatures": "n_temperatures",
}
TRAIN = """\
examples:
  sdcpd train bars_and_stripes
  sdcpd train digits.npz --hidden 100 --epochs 50
  sdcpd train digits.npz --hidden 100 --epochs 50 --algorithm cd --learning-rate 0.1
  sdcpd train mnist --trials 3 --output results/by_hand/mnist

your own data:
  digits.npy   training images: rows of pixels (N, m), or images (N, rows, columns)
  digits.npz   the same as array `train`, and optionally `test` and `valid`; or as its only array
Every pixel is 0 or 1. Where there are no test images, the last tenth of the rows is held out.

Defaults that are not in brackets are of the experiment with these data, else of mnist, in
workflow/config/paper.yaml; those of η, ε and λ_H are as_published in its hyperparameters.yaml.

A training that was interrupted goes on when the same command is given again."""
EVALUATE = """\
examples:
  sdcpd evaluate results/by_hand/digits-sdcp_d-100h
  sdcpd evaluate results/by_hand/digits-sdcp_d-100h --ais-temperatures 10000 --seed 8"""
SAMPLE = """\
examples:
  sdcpd sample results/by_hand/digits-sdcp_d-100h --images 100 --output images.png
  sdcpd sample results/by_hand/digits-sdcp_d-100h --images 1000 --output images.npz"""
BENCH = """\
examples:
  sdcpd bench
  sdcpd bench --visible 9 --hidden 4 --batch-size 16 --gibbs-steps 4 --seconds 1"""


def _parser():
    """The options; those of train without a default take that of the paper's experiment."""
    form = partial(argparse.RawDescriptionHelpFormatter, max_help_position=30, width=100)
    how = {"formatter_class": form, "allow_abbrev": False}
    about = "Restricted Boltzmann machines by CD, PCD, centered gradient, S-DCP and S-DCP-D."
    more = "`sdcpd COMMAND --help` explains a command. The paper's figures: README.md."
    parser = _Parser(prog="sdcpd", description=about, epilog=more, **how)
    parser.add_argument("--version", action="version", version=f"sdcpd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")

    def command(function, line, epilog):
        about = f"{line[0].upper()}{line[1:]}. In brackets: the default."
        own = commands.add_parser(
            function.__name__, help=line, description=about, epilog=epilog, **how
        )
        own.set_defaults(command=function)

        def add(option, kind, unit, text, **more):
            if option in SETTINGS:
                more["dest"] = SETTINGS[option]
            own.add_argument(option, type=kind, metavar=unit, help=text, **more)

        return add

    add = command(train, "train on a dataset: run file, likelihood curve, samples", TRAIN)
    add("dataset", str, "DATA", "bars_and_stripes, mnist, …, or a .npy or .npz file of 0 and 1")
    text = "cd, pcd, cg, sdcp or sdcp_d (sdcp_d)"
    add("--algorithm", str, "NAME", text, default="sdcp_d")
    add("--hidden", COUNT, "N", "hidden units")
    add(
        "--epochs",
        POSITIVE,
        "X",
        f"visits of every training image ({EPOCHS}; Bars & Stripes: as below)",
    )
    add("--batch-size", COUNT, "N", "images of an update")
    add("--learning-rate", POSITIVE, "X", "η")
    add("--epsilon", POSITIVE, "X", "ε of sdcp_d")
    add("--lambda-hessian", SHARE, "X", "λ_H of sdcp_d, memory of the averaged diagonal")
    add("--gibbs-steps", COUNT, "N", "K, K′ of sdcp and sdcp_d")
    add("--inner-iterations", COUNT, "N", "d of sdcp and sdcp_d")
    add("--sliding-factor", SHARE, "X", "ν of cg")
    add("--trials", COUNT, "N", "models, each with random numbers of its own (1)", default=1)
    add("--seed", WHOLE, "N", "of all random numbers")
    add("--evaluate-every", POSITIVE, "X", "epochs between points of the curve (a tenth of all)")
    exact = f"exact if a layer has at most {EXACT} units"
    text = f"AIS with so many particles ({AIS['n_particles']}; {exact})"
    add("--ais-particles", SEVERAL, "N", text)
    text = f"AIS with so many temperatures ({AIS['n_temperatures']}; {exact})"
    add("--ais-temperatures", COUNT, "N", text)
    add("--sample-steps", COUNT, "N", "Gibbs steps from random pixels (1000)", default=1000)
    add("--output", Path, "FOLDER", "(results/by_hand/DATA-ALGORITHM-HIDDENh)")
    backends = "numpy, numba, cupy, cupy_float32 or auto, the fastest that works (auto)"
    add("--backend", str, "NAME", backends, default="auto")

    a_run = "folder of a run file, which `sdcpd train` or the workflow has written"
    add = command(evaluate, "average log-likelihood of the final models of a run", EVALUATE)
    add("run", Path, "RUN", a_run)
    add("--data", str, "DATA", "other images, or where the file lies now (what was trained on)")
    add("--seed", WHOLE, "N", "of the random numbers of AIS (7)", default=7)
    add("--ais-particles", SEVERAL, "N", "AIS with so many particles (as in the run)")
    add("--ais-temperatures", COUNT, "N", "AIS with so many temperatures (as in the run)")
    add("--backend", str, "NAME", backends, default="auto")

    add = command(sample, "images that the best model of a run generates", SAMPLE)
    add("run", Path, "RUN", a_run)
    add("--images", COUNT, "N", "how many (25)", default=25)
    add("--steps", COUNT, "N", "Gibbs steps from random pixels (5000)", default=5000)
    add("--seed", WHOLE, "N", "of all random numbers (2019)", default=2019)
    text = "a picture .png, or an .npz with the array `images` (samples.png)"
    add("--output", Path, "FILE", text, default=Path("samples.png"))
    add("--backend", str, "NAME", backends, default="auto")

    add = command(bench, "milliseconds of an update, and of AIS, on this machine", BENCH)
    add("--hidden", COUNT, "N", "hidden units (500)", default=500)
    add("--visible", COUNT, "N", "visible units (784)", default=784)
    add("--batch-size", COUNT, "N", "images of an update (200)", default=200)
    add("--gibbs-steps", COUNT, "N", "K = dK′ (24)", default=24)
    add("--seconds", POSITIVE, "X", "of each measurement, about (5)", default=5)
    add("--backend", str, "NAME", backends, default="auto")
    return parser
