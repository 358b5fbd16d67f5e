"""The options of the command line, and the settings of a run that they mean.

An option without a default here takes that of the paper's experiment with these data.
"""

import argparse
import inspect
import math
from contextlib import suppress
from functools import partial
from pathlib import Path

from . import __version__

AIS = {"n_particles": 100, "n_temperatures": 1000}
EXACT = 20  # units of the smaller layer: with so many log Z is exact, unless AIS is asked for
EPOCHS = 20  # but for Bars & Stripes; the paper's 200 take days without a GPU
HYPERPARAMETERS = ("learning_rate", "epsilon", "lambda_hessian", "sliding_factor")


class CommandError(Exception):
    """A command cannot be carried out; the message says why and what to do."""


def _number(convert, what, holds):
    """A type of argparse: a number for which ``holds``."""

    def number(text):
        with suppress(ValueError):
            if holds(value := convert(text)):
                return value
        raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")

    return number


WHOLE = _number(int, "a whole number", lambda n: True)
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
RUN = ("run", Path, "RUN", "folder of a run file, which `sdcpd train` or the workflow has written")
ENGINES = "numpy, numba, cupy, cupy_float32 or auto, the fastest that works"
BACKEND = ("--backend", str, "NAME", ENGINES, "auto")
VISITS = f"visits of every training image ({EPOCHS}; Bars & Stripes: as below)"
UNLESS = f"exact if a layer has at most {EXACT} units"
PARTICLES = f"AIS with so many particles ({AIS['n_particles']}; {UNLESS})"
TEMPERATURES = f"AIS with so many temperatures ({AIS['n_temperatures']}; {UNLESS})"
OUTPUT = "a picture .png, or an .npz with the array `images`"

# command -> option, type, unit, what it is; and its default, if that is the same for all data
OPTIONS = {
    "train": [
        ("dataset", str, "DATA", "bars_and_stripes, mnist, …, or a .npy or .npz file of 0 and 1"),
        ("--algorithm", str, "NAME", "cd, pcd, cg, sdcp or sdcp_d", "sdcp_d"),
        ("--hidden", COUNT, "N", "hidden units"),
        ("--epochs", POSITIVE, "X", VISITS),
        ("--batch-size", COUNT, "N", "images of an update"),
        ("--learning-rate", POSITIVE, "X", "η"),
        ("--epsilon", POSITIVE, "X", "ε of sdcp_d"),
        ("--lambda-hessian", SHARE, "X", "λ_H of sdcp_d, memory of the averaged diagonal"),
        ("--gibbs-steps", COUNT, "N", "K, K′ of sdcp and sdcp_d"),
        ("--inner-iterations", COUNT, "N", "d of sdcp and sdcp_d"),
        ("--sliding-factor", SHARE, "X", "ν of cg"),
        ("--trials", COUNT, "N", "models, each with random numbers of its own", 1),
        ("--seed", WHOLE, "N", "of all random numbers"),
        ("--evaluate-every", POSITIVE, "X", "epochs between points of the curve (a tenth of all)"),
        ("--ais-particles", SEVERAL, "N", PARTICLES),
        ("--ais-temperatures", COUNT, "N", TEMPERATURES),
        ("--sample-steps", COUNT, "N", "Gibbs steps from random pixels", 1000),
        ("--output", Path, "FOLDER", "(results/by_hand/DATA-ALGORITHM-HIDDENh)"),
        BACKEND,
    ],
    "evaluate": [
        RUN,
        ("--data", str, "DATA", "other images, or where the file lies now (what was trained on)"),
        ("--seed", WHOLE, "N", "of the random numbers of AIS", 7),
        ("--ais-particles", SEVERAL, "N", "AIS with so many particles (as in the run)"),
        ("--ais-temperatures", COUNT, "N", "AIS with so many temperatures (as in the run)"),
        BACKEND,
    ],
    "sample": [
        RUN,
        ("--images", COUNT, "N", "how many", 25),
        ("--steps", COUNT, "N", "Gibbs steps from random pixels", 5000),
        ("--seed", WHOLE, "N", "of all random numbers", 2019),
        ("--output", Path, "FILE", OUTPUT, Path("samples.png")),
        BACKEND,
    ],
    "bench": [
        ("--hidden", COUNT, "N", "hidden units", 500),
        ("--visible", COUNT, "N", "visible units", 784),
        ("--batch-size", COUNT, "N", "images of an update", 200),
        ("--gibbs-steps", COUNT, "N", "K = dK′", 24),
        ("--seconds", POSITIVE, "X", "of each measurement, about", 5),
        BACKEND,
    ],
}


class _Parser(argparse.ArgumentParser):
    """One line for what is wrong, as for all other errors."""

    def error(self, message):
        raise CommandError(f"{message}; see {self.prog} --help")


def parse(arguments, functions):
    """The options given, and in ``command`` which of the ``functions`` is to be called with them.

    A function is called as its command, and its docstring is the command's help.
    """
    form = partial(argparse.RawDescriptionHelpFormatter, max_help_position=30, width=100)
    how = {"formatter_class": form, "allow_abbrev": False}
    about = "Restricted Boltzmann machines by CD, PCD, centered gradient, S-DCP and S-DCP-D."
    more = "`sdcpd COMMAND --help` explains a command. The paper's figures: README.md."
    parser = _Parser(prog="sdcpd", description=about, epilog=more, **how)
    parser.add_argument("--version", action="version", version=f"sdcpd {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for function in functions:
        about, more = inspect.getdoc(function).split("\n\n", 1)
        texts = {"description": f"{about} In brackets: the default.", "epilog": more}
        texts["help"] = about[0].lower() + about[1:-1]
        command = commands.add_parser(function.__name__, **texts, **how)
        command.set_defaults(command=function)
        for option, kind, unit, text, *default in OPTIONS[function.__name__]:
            setting = {"dest": SETTINGS[option]} if option in SETTINGS else {}
            for value in default:
                setting["default"] = value
                text += f" ({value})"
            command.add_argument(option, type=kind, metavar=unit, help=text, **setting)
    return parser.parse_args(arguments)


def check(options):
    """Raise CommandError where options do not go together: before the data are fetched."""
    from .algorithms import ALGORITHMS

    if any("\ud800" <= letter <= "\udfff" for letter in options.dataset):  # no run file can name it
        named = "not a name in this locale's letters: rename the file"
        raise CommandError(f"{options.dataset}: {named}")
    if options.algorithm not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise CommandError(f"unknown --algorithm {options.algorithm!r}: choose one of {known}")
    for name in ("epsilon", "lambda_hessian", "sliding_factor", "n_inner_iterations"):
        algorithms = [a for a, its in ALGORITHMS.items() if name in its.options]
        if vars(options)[name] is not None and options.algorithm not in algorithms:
            option = name.removeprefix("n_").replace("_", "-")
            only = f"--{option} is an option of {' and '.join(algorithms)} only"
            raise CommandError(f"{only}: leave it out, or choose another --algorithm")


def settings_of(options, n_visible):
    """The settings of a run: those of the paper's experiment, but for the options given."""
    from . import experiments

    given = {name: value for name, value in vars(options).items() if value is not None}
    config, groups = experiments.read(), experiments.read_hyperparameters()
    name, known = options.dataset.removesuffix("_valid"), config["experiments"]
    experiment = next((n for n in known if known[n]["dataset"] == name), "mnist")
    n_hidden = options.n_hidden or known[experiment]["n_hidden"][0]
    of_group = groups["as_published"][experiment]
    if options.algorithm not in of_group and options.learning_rate:  # not one of the paper's
        of_group[options.algorithm] = {"learning_rate": options.learning_rate}
    which = experiment, "as_published", options.algorithm, n_hidden
    settings = experiments.run_settings(config, groups, *which)
    if experiment != "bars_and_stripes":
        settings["epochs"] = EPOCHS
    hyperparameters = settings["hyperparameters"]
    settings |= {name: given[name] for name in settings if name in given}
    hyperparameters |= {name: given[name] for name in HYPERPARAMETERS if name in given}
    evaluate = {"every": options.evaluate_every or settings["epochs"] / 10, "also": [0]}
    exact = min(n_hidden, n_visible) <= EXACT
    return settings | {"evaluate": evaluate, "ais": ais_of(options, None if exact else AIS)}


def ais_of(options, default):
    """Particles and temperatures, those that are not given as by default; None: log Z is exact."""
    given = {name: vars(options)[name] for name in AIS if vars(options)[name] is not None}
    return (default or AIS) | given if given else default
