"""The command line: train, evaluate, sample and bench without the workflow, also on own data.

Each command calls the functions that the notebooks call; its docstring is its help. What takes long
to import is imported where it is used, so that ``sdcpd --help`` is there at once.
"""

import math
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from . import ROOT
from .options import AIS, CommandError, ais_of, check, parse, settings_of
from .progress import Patient, Progress, columns

DATA = ROOT / "data"


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
        options = parse(arguments, [train, evaluate, sample, bench])
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
    over_progress = "\r\033[K" if columns() else ""
    sys.stderr.write(f"{over_progress}sdcpd: {' '.join(str(message).splitlines())}\n")
    return status


# ------------------------------------------------------------------------------ commands


def train(options):
    """Train on a dataset: run file, likelihood curve, samples.

    examples:
      sdcpd train bars_and_stripes
      sdcpd train digits.npz --hidden 100 --epochs 50
      sdcpd train digits.npz --hidden 100 --epochs 50 --algorithm cd --learning-rate 0.1
      sdcpd train mnist --trials 3 --output results/by_hand/mnist

    your own data:
      digits.npy   training images: rows of pixels (N, m), or images (N, rows, columns)
      digits.npz   the same as array `train`, perhaps with `test` and `valid`; or as its only array
    Every pixel is 0 or 1. Where there are no test images, the last tenth of the rows is held out.

    Defaults that are not in brackets are of the experiment with these data, else of mnist, in
    workflow/config/paper.yaml; those of η, ε and λ_H are as_published in its hyperparameters.yaml.

    A training that was interrupted goes on when the same command is given again.
    """
    import numpy as np

    from . import figures, runs
    from .study.compare import summarize

    check(options)
    dataset = _load_data(options.dataset)
    settings = runs.canonical(settings_of(options, dataset.train.shape[1]))
    stem = f"{Path(options.dataset).stem}-{options.algorithm}-{settings['n_hidden']}h"
    folder = options.output or Path("results/by_hand") / stem
    _check_writable(folder)
    sizes = f"{len(dataset.train):,} training and {len(dataset.test):,} test images"
    shape = " × ".join(map(str, dataset.image_shape))
    held_out = " (the last tenth of the rows is held out as test images)" * bool(dataset.held_out)
    print(f"{options.dataset}: {sizes} of {shape} pixels{held_out}", flush=True)
    if (folder / "run.json").exists():
        run = runs.load(folder)
        if run.settings != settings or _trained_on(run) != (dataset.sha256 or options.dataset):
            raise CommandError(f"{folder} holds another run: choose another --output or delete it")
        print(f"{folder} holds this run already; delete it to train again")
    else:
        with np.errstate(all="ignore"):  # a trial that diverges is marked in the run file
            run = runs.execute(settings, folder, options.backend, DATA, refuse_used=True)
        runs.clear_checkpoints(folder)
    values = ", ".join(f"{name} {value:g}" for name, value in settings["hyperparameters"].items())
    print(f"{_title(run)}: {values}; {run.provenance['device']}, {run.provenance['engine']}")
    bases = ", and from several bases" * bool(settings["ais"])
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
    """Average log-likelihood of the final models of a run.

    examples:
      sdcpd evaluate results/by_hand/digits-sdcp_d-100h
      sdcpd evaluate results/by_hand/digits-sdcp_d-100h --ais-temperatures 10000 --seed 8
    """
    import numpy as np
    import pandas as pd

    from . import engines, philox
    from .likelihood import Evaluator, images_of

    run = _load_run(options.run)
    name = options.data or run.settings["dataset"]
    dataset = _load_data(name)
    if name == run.settings["dataset"] and (dataset.sha256 or name) != _trained_on(run):
        raise CommandError(f"{name} has changed since {options.run} was trained on it: train again")
    visible, pixels = run.theta.W.shape[2], dataset.train.shape[1]
    if visible != pixels:
        has = f"images of {name} have {pixels} pixels, but the models {visible} visible units"
        raise CommandError(f"{has}: give other --data")
    ais, engine = ais_of(options, run.settings["ais"]), engines.select(options.backend)
    progress = Progress(f"{Path(name).name} log Z", len(run.trials))

    def key(trial, _):
        of_run = "evaluate", _trained_on(run), run.settings["algorithm"]
        return philox.key(options.seed, *of_run, trial)

    images = images_of(dataset, engine.xp)
    evaluator = Evaluator(images, key, ais, progress.note, engine)
    rows = []
    for row, trial in enumerate(run.trials):
        theta, found = run.theta.select(slice(row, row + 1)), {}
        if np.isfinite(theta.W).all():
            theta = engine.prepare(theta.map(engine.xp.asarray))
            (found,) = evaluator(theta, [trial], 0)
        rows.append({"trial": trial} | found)
        progress.update(len(rows))
    progress.close()
    how = _how(ais) + f", seed {options.seed}" * bool(ais)
    print(f"{_title(run)}: average log-likelihood of {name} in nats; log Z {how}")
    plain = "trial", "log_z", "log_z_se", "ess", "train", "valid", "test", "bound"
    trusted = "trusted_log_z", "trusted_train", "trusted_valid", "trusted_test"
    _print(pd.DataFrame(rows), *plain, *trusted)
    for point in rows:
        if "bound" in point:
            _warn(**point)
    return 0


def _warn(trial, log_z, log_z_se, trusted_log_z, trusted_log_z_se, bound, trusted_agrees, **_):
    """Say in plain words where AIS from the data's mean and the other ways disagree."""
    from .trusted import missed

    if missed(log_z, log_z_se, trusted_log_z, trusted_log_z_se, bound):
        rigorous = f", certainly by {bound - log_z:.1f}" * (bound > log_z)
        print(
            f"trial {trial}: AIS misses a mode far from the data: log Z is too small by about "
            f"{max(trusted_log_z, bound) - log_z:.1f}{rigorous} nats, and the likelihoods are too "
            "large by as much"
        )
    elif missed(trusted_log_z, trusted_log_z_se, log_z, log_z_se):
        more = f"finds {log_z - trusted_log_z:.1f} nats more of log Z than the other bases"
        print(f"trial {trial}: AIS {more}: go by its likelihoods")
    elif not trusted_agrees:
        print(f"trial {trial}: no two ways to estimate log Z agree: doubtful")


def sample(options):
    """Images that the best model of a run generates.

    examples:
      sdcpd sample results/by_hand/digits-sdcp_d-100h --images 100 --output images.png
      sdcpd sample results/by_hand/digits-sdcp_d-100h --images 1000 --output images.npz
    """
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
    """Milliseconds of an update, and of AIS, on this machine.

    examples:
      sdcpd bench
      sdcpd bench --visible 9 --hidden 4 --batch-size 16 --gibbs-steps 4 --seconds 1
    """
    import numpy as np
    import pandas as pd

    from . import engines
    from .algorithms import LABELS
    from .device import synchronize
    from .log_z import annealed_log_z
    from .philox import key
    from .rbm import initialize
    from .study import timing

    engine, K = engines.select(options.backend), options.n_gibbs_steps
    d = next(n for n in (6, 5, 4, 3, 2, 1) if K % n == 0)  # the paper's 6 where K = 24
    sizes = options.visible, options.n_hidden, options.batch_size
    update = timing.Update(*sizes, K, d, K // d)
    mean = np.full(options.visible, timing.ON)
    theta = engine.prepare(initialize(mean, options.n_hidden, [key("bench")], engine.xp))

    def of_update(name, n):
        how = {"engine": engine, "algorithms": [name]}
        return timing.seconds_per_update(update, n, **how)[name][0]

    def of_temperature(_, n):
        started = time.perf_counter()
        annealed_log_z(theta, mean, [key("bench")], AIS["n_particles"], n, engine=engine)
        synchronize(engine.xp)
        return (time.perf_counter() - started) / n

    measured = [(f"{LABELS[name]}, an update", of_update, name, 1) for name in LABELS]
    measured.append(("AIS, 100 particles × 1,000 temperatures", of_temperature, None, 1000))
    progress, rows = Progress("bench", len(measured)), []
    for label, seconds, name, times in measured:
        n = max(1, round(options.seconds / seconds(name, 2)))
        rows.append((label, 1000 * times * seconds(name, n)))
        progress.update(len(rows))
    progress.close()
    about = engine.describe()
    threads = f", threads: {about['threads']}" if "threads" in about else ""
    print(f"engine {engine.name}, {about['device']}{threads}; one model at a time")
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


def _check_writable(folder):
    """Before hours of training, not after."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        problem = f"cannot write to {folder}: {error.strerror}"
        raise CommandError(f"{problem}; choose another place with --output") from error


def _trained_on(run):
    """What random keys name the data by: an own file by its checksum, wherever it lies."""
    return run.provenance.get("data_sha256") or run.settings["dataset"]


def _title(run):
    from .algorithms import LABELS

    s = run.settings
    return f"{LABELS[s['algorithm']]} on {Path(s['dataset']).name}, {s['n_hidden']} hidden units"


def _how(ais):
    if ais is None:
        return "exact"
    return f"by AIS with {ais['n_particles']} particles × {ais['n_temperatures']:,} temperatures"


def _generate(run, n_images, n_steps, seed, backend_name):
    """Images (N, rows, columns) of the best model."""
    from . import engines, philox, sampling

    engine, s = engines.select(backend_name), run.settings
    theta = run.best()[0].map(engine.xp.asarray)
    of_run = "samples", _trained_on(run), s["algorithm"], s["n_hidden"]  # as the notebook's
    progress, keys = Progress("samples", n_steps), [philox.key(seed, *of_run)]
    (images,) = sampling.generate(theta, keys, n_images, n_steps, progress.update, engine)
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
    from .log_z import MIN_ESS

    table = table[[name for name in columns if name in table]]
    names = {"log_z": "log Z", "log_z_se": "standard error", "ess": "ESS"}
    names["trusted_log_z"] = "trusted"
    forms = {"epoch": "{:g}".format, "ms": "{:.4g}".format}
    forms["ESS"] = lambda ess: "exact" if ess == math.inf else f"{ess:.0f}"
    how = {"float_format": "{:.3f}".format, "na_rep": "diverged", "formatters": forms}
    print(table.rename(columns=names).to_string(index=False, **how))
    if "ess" in table and table["ess"].min() < MIN_ESS:
        print(f"ESS below {MIN_ESS}: doubtful; more --ais-temperatures are better")
