"""The paper-scale study, piece by piece; workflow/study.md says what it is and why.

    uv run python benchmarks/study.py status [--experiments caltech] [--folder results/paper]
    uv run python benchmarks/study.py run --experiments caltech --cores 2

    status        a line for each sweep and group of runs: done, running, left, hours taken
    run           all pieces that are not done, so many at a time, each a process at low priority
    archive       everything that is finished in the folder, into workflow/archive
    adopt         write what the archived tunings choose to hyperparameters.yaml
    table1        Table 1, one model at a time
    hidden_modes  what plain AIS does not see of the final models, as published and tuned
    quality       images that these models generate: sharpness, diversity, distance

Each reads the workflow's configuration, of which `study` lists the pieces, and writes the
workflow's run files; those of the archive are what `snakemake` then draws and judges. `run` can be
killed at any moment: it goes on with the same command and folder, and what is finished is kept.
Runs with tuned values take them from the tuning sweeps in the folder, as soon as these are there.

In the folder, sweeps/ and runs/ are as in results/ of the workflow; runs/ has as many trials as are
finished. parts/ has each trial by itself with its checkpoints, which stay, so that it can be
prolonged, and its models on the way; logs/ what each piece said.

Needs python3 with numpy, scipy, pandas, pyyaml, tqdm and cupy (without a GPU numba and
threadpoolctl); the data files in data/, or in the folder that SDCPD_DATA_MIRROR names.
"""

import argparse
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from common import ROOT, engines

from sdcpd import experiments, runs
from sdcpd.files import whole_file
from sdcpd.runs import archive
from sdcpd.study import modes, quality, timing, tuning

CHOSEN = (*experiments.TUNED, "step_matched")
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS")


class Piece(NamedTuple):
    """What one process makes: a sweep, or trials of a run."""

    line: str  # of the status to which it belongs
    settings: dict  # without hyperparameters where they are not known yet
    trials: range  # None: a sweep
    work: Path  # where its checkpoints are
    folder: Path  # of its run file
    goal: Path  # of the run to which its trials belong

    @property
    def is_known(self):
        return bool(self.settings["hyperparameters"])

    @property
    def name(self):
        trials = f", trial {self.trials[0]}" if self.trials else ""
        return f"{self.line}{trials}"


class Study:
    """The configuration, where runs lie, and the pieces in their order."""

    def __init__(self, options):
        self.config, self.scale = experiments.read(options.scale), options.scale
        self.written = experiments.read_hyperparameters()
        self.folder, self.backend = Path(options.folder).resolve(), options.backend
        self.data = os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data"
        self.experiments, self.nice = options.experiments, options.nice
        self.chosen = {}  # experiment, hidden units -> finished tunings, groups chosen by them

    def sizes(self):
        """Experiment, number of hidden units and algorithms of everything that is asked for."""
        for name in self.experiments:
            experiment = self.config["experiments"][name]
            for n_hidden in experiment["n_hidden"]:
                yield name, n_hidden, experiment["algorithms"]

    def pieces(self):
        """Every ``Piece``, in the order in which they are made: sweeps, and then the runs, trial 0
        of all of them first."""
        found = []
        for name in self.experiments:
            for number, entry in enumerate(self.config["study"]["experiments"].get(name, [])):
                for n in self.config["experiments"][name]["n_hidden"]:
                    make = self._sweeps if "sweep" in entry else self._runs
                    found += [(number, piece) for piece in make(name, n, entry)]
        order = sorted(found, key=lambda each: (each[1].trials or [-1])[0])
        return [piece for _, piece in order]

    def _sweeps(self, name, n, entry):
        kind = entry["sweep"]
        algorithms = self.config["experiments"][name]["algorithms"]
        for algorithm in ["sdcp_d"] if kind.startswith("sensitivity") else algorithms:
            folder = self.folder / f"sweeps/{name}/{kind}/{algorithm}-{n}h"
            try:
                what = name, kind, algorithm, n
                settings = experiments.sweep_settings(self.config, self.groups(name, n), *what)
            except experiments.ConfigError:
                settings = {"hyperparameters": []}
            yield Piece(f"{name} {n}h {kind} {algorithm}", settings, None, folder, folder, folder)

    def _runs(self, name, n, entry):
        base, name = name, entry.get("experiment", name)
        experiment = self.config["experiments"][name]
        trials = entry.get("trials", experiment["trials"])
        epochs = entry.get("epochs", experiment["epochs"])
        # Small models, and all on a GPU, are faster side by side.
        together = not experiment["ais"] or self.backend.startswith("cupy")
        parts = [range(trials)] if together else [range(t, t + 1) for t in range(trials)]
        groups = self.groups(base, n)
        for group in entry["groups"]:
            short = f"_{epochs:g}" if epochs != experiment["epochs"] else ""
            for algorithm in self._algorithms_of(groups, group, base, name, n, entry):
                goal = self.folder / f"runs/{name}/{group}{short}/{algorithm}-{n}h"
                what = algorithm, n
                try:
                    settings = experiments.run_settings(self.config, groups, name, group, *what)
                except experiments.ConfigError:  # a line of the status
                    known = self.config, self.written, name, "as_published"
                    settings = experiments.run_settings(*known, *what) | {"hyperparameters": {}}
                settings |= {"trials": trials, "epochs": epochs}
                values = ",".join(f"{k}={v}" for k, v in settings["hyperparameters"].items())
                for part in parts:  # groups that have the same values share their trials
                    place = f"parts/{name}/{algorithm}-{n}h/{values or group}/{part[0]}-{part[-1]}"
                    work = self.folder / place
                    line = f"{name} {n}h {group}{short} {algorithm}"
                    yield Piece(line, settings, part, work, work / f"{epochs:g}", goal)

    def _algorithms_of(self, groups, group, base, name, n, entry):
        """Those that a group has, or will have once they are tuned."""
        every = entry.get("algorithms", self.config["experiments"][name]["algorithms"])
        if group in CHOSEN and self._is_tuned_here(base):
            return [a for a in every if group != "step_matched" or a in ("cg", "sdcp")]
        return [a for a in every if a in experiments.algorithms_of(groups, group, name, n)]

    def _is_tuned_here(self, name):
        return {"sweep": "tuning"} in self.config["study"]["experiments"].get(name, [])

    def groups(self, name, n):
        """The groups of hyperparameters; what is to be tuned in this study only from its sweeps."""
        if not self._is_tuned_here(name):
            return self.written
        place = self.folder / f"sweeps/{name}/tuning"
        folders = [f.parent for f in sorted(place.glob(f"*-{n}h/run.json"))]
        known, chosen = self.chosen.get((name, n), (None, {}))
        if known != folders:
            sweeps = [runs.load_sweep(folder) for folder in folders]
            d = self.config["experiments"][name]["n_inner_iterations"]
            chosen = tuning.choose(tuning.table(sweeps), d) if sweeps else {}
            self.chosen[name, n] = folders, chosen
        groups = {group: dict(values) for group, values in self.written.items()}
        for group in CHOSEN:
            groups.setdefault(group, {})[f"{name}_{n}h"] = chosen.get(group, {})
        return groups

    def log(self, piece):
        return self.folder / f"logs/{piece.name.replace(', ', '-').replace(' ', '-')}.log"


def is_done(piece):
    """Whether its run file is there, or the run in the archive has it."""
    if piece.trials and piece.trials[-1] < n_archived(piece):
        return True
    return has_settings(piece, archive.settings_of(piece.folder))


def has_settings(piece, stored):
    """Whether stored settings are those of a piece but for the number of trials."""
    known = json.loads(json.dumps(piece.settings))
    return bool(stored and piece.is_known) and stored | {"trials": 0} == known | {"trials": 0}


def archived(piece):
    """Where the archive has what a piece belongs to, if it has it."""
    return archive.FOLDER / Path(*piece.goal.parts[-4:])


def n_archived(piece):
    """How many trials the archive has of the run to which a piece belongs."""
    stored = archive.settings_of(archived(piece))
    return stored["trials"] if has_settings(piece, stored) else 0


def is_at_work(study, piece):
    """Whether a process holds the lock of its log, which it does as long as it lives."""
    try:
        with open(study.log(piece), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def make(study, piece):
    """Make a piece, in this process."""
    if piece.trials is None:
        tuning.execute(piece.settings, piece.folder, study.backend, study.data)
        return
    how = {"trials": piece.trials, "keep": study.config["study"]["models_at"]}
    how |= {"checkpoints_in": piece.work}
    runs.execute(piece.settings, piece.folder, study.backend, study.data, **how)


def collect(pieces):
    """Put the finished trials of every run together that has more of them than it had.

    What the archive has, made in another folder or on another machine, is taken from there.
    """
    for goal, parts in by(pieces, "goal").items():
        first = parts[0]
        if first.trials is None:
            place = archived(first)
            if not is_done(first) and has_settings(first, archive.settings_of(place)):
                shutil.copytree(place, goal, dirs_exist_ok=True)
            continue
        n = next((i for i, part in enumerate(parts) if not is_done(part)), len(parts))
        trials = sum(len(part.trials) for part in parts[:n])
        if trials:
            stored = archive.settings_of(goal)
            if stored != json.loads(json.dumps(first.settings | {"trials": trials})):
                of_archive = n_archived(first)
                folders = [archived(first)] if of_archive else []
                folders += [p.folder for p in parts[:n] if p.trials[-1] >= of_archive]
                runs.merge(folders, goal, trials)


def by(pieces, name):
    """Pieces by one of their attributes."""
    found = {}
    for piece in pieces:
        found.setdefault(getattr(piece, name), []).append(piece)
    return found


# ---------------------------------------------------------------------------------- run


def run(study, cores):
    """Make everything that is not done; a piece that fails is said, and the others go on."""
    os.environ |= dict.fromkeys(ONE_THREAD, "1")
    (study.folder / "logs").mkdir(parents=True, exist_ok=True)
    with runs.alone_in(study.folder):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        at_work, failed = {}, set()  # work -> piece and its process
        try:
            while True:
                pieces = study.pieces()
                collect(pieces)
                for piece in pieces:
                    idle = piece.work not in at_work and piece.name not in failed
                    if len(at_work) < cores and idle and piece.is_known and not is_done(piece):
                        at_work[piece.work] = piece, start(study, piece)
                        say(f"{piece.name}: started")
                if not at_work:
                    break
                while all(process.poll() is None for _, process in at_work.values()):
                    time.sleep(1)
                for piece, process in [*at_work.values()]:
                    if (status := process.poll()) is not None:
                        del at_work[piece.work]
                        failed |= {piece.name} if status or not is_done(piece) else set()
                        lost = piece.name in failed
                        say(f"{piece.name}: {'FAILED, see logs/' if lost else 'done'}")
        finally:
            for _, process in at_work.values():
                process.terminate()
                process.wait()
    print_status(study)
    if failed:
        sys.exit(f"failed: {', '.join(sorted(failed))}; the same command tries again")


def start(study, piece):
    """The process of a piece: it has a low priority, and ends when this one does."""

    def low():
        os.nice(study.nice)
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, Linux

    command = [sys.executable, __file__, "piece", piece.name, "--folder", study.folder]
    command += ["--backend", study.backend, "--scale", study.scale]
    command += ["--experiments", *study.experiments]
    with open(study.log(piece), "ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        own = {"SDCPD_PROGRESS_LOG": str(study.log(piece))}
        how = {"stdout": log, "stderr": log, "env": os.environ | own}
        return subprocess.Popen([*map(str, command)], preexec_fn=low, **how)


def say(text):
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


# ------------------------------------------------------------------------------- status


def print_status(study):
    """A line for each sweep and group of runs, and one for all."""
    pieces = study.pieces()
    lines, total = by(pieces, "line"), 0.0
    width = max(map(len, lines), default=0)
    waits = not all(is_done(piece) for piece in pieces if "tuning" in piece.folder.parts)
    for line, parts in lines.items():
        done = [part for part in parts if is_done(part)]
        others = [part for part in parts if part not in done]
        at_work = [part for part in others if is_at_work(study, part)]
        states = [f"{len(done)} of {len(parts)} done"]
        states += [f"running ({last_line(study.log(part))})" for part in at_work]
        states += [f"{len(others) - len(at_work)} left"] if others else []
        if others and not others[0].is_known:
            states.append("waits for the tuning" if waits else "the tuning chose none")
        taken = [hours for part in done if (hours := hours_of(part)) is not None]
        total += sum(taken)
        states += [f"{sum(taken) / len(taken):.2f} h each"] if taken else []
        print(f"{line:{width}}  {', '.join(states)}")
    print(f"{'finished here':{width}}  {total:.1f} hours of one core")


def hours_of(piece):
    """What a finished piece took; None where it is in the archive alone."""
    try:
        wall = json.loads((piece.folder / "wall.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return (wall["training_seconds"] + wall["evaluation_seconds"]) / 3600


def last_line(path):
    """What a piece has said last: how far it is."""
    return next(reversed(path.read_text(encoding="utf-8").splitlines()), "begins")


# ------------------------------------------------------------------------------- others


def table1(study):
    path = study.folder / "timing/table1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"engine": engines.select(study.backend), "kept_in": path.with_suffix(".part")}
    record = timing.table1(**study.config["timing"], **how)
    with whole_file(path) as file:
        json.dump(record, file, indent=1)
    how["kept_in"].unlink(missing_ok=True)
    for dataset, seconds in record["seconds"].items():
        for name, values in seconds.items():
            print(f"  {dataset:15} {name:7} {sum(values) / len(values):10.3f} s")
    print(f"  to the end: {record['large_to_the_end']}")


def hidden_modes(study):
    _measure(study, "modes", modes.measure, study.config["hidden_modes"])


def quality_(study):
    how = study.config["quality"] | {"seed": study.config["seed"]}
    _measure(study, "quality", quality.measure, how)


def _measure(study, kind, measure, how):
    """What is measured of the final models of large datasets."""
    for group in ("as_published", *experiments.TUNED):
        for name, n, algorithms in study.sizes():
            folders = [study.folder / f"runs/{name}/{group}/{a}-{n}h" for a in algorithms]
            found = [runs.load(f) for f in folders if (f / "run.json").exists()]
            if found and found[0].settings["ais"]:  # of small models log Z is known
                goal = study.folder / f"{kind}/{name}-{group}-{n}h"
                where = {"backend_name": study.backend, "data_folder": study.data}
                print(goal.name, measure(found, goal, **how, **where).to_string(), sep="\n")


def archive_(study):
    """Only what is finished: a folder with run.json, or a whole record."""
    places = [path.parent for path in study.folder.glob("*/*/*/*/run.json")]
    places += [p.parent for p in study.folder.glob("*/*/about.json")]
    places += [p.parent for p in study.folder.glob("timing/table1.json")]
    others = sum(study.config["ablations"].values(), [])
    for place in sorted(places):
        target = place.relative_to(study.folder)
        # Models for the sample figures; the images of the tuned ones are measured beforehand.
        shown = "as_published" in target.parts and not {*others} & {*target.parts}
        archive.store(place, target, keep_model=shown)
        print(f"  {target}")
    size = sum(f.stat().st_size for f in archive.FOLDER.rglob("*") if f.is_file())
    print(f"workflow/archive: {size / 1e6:.1f} MB")


def adopt(study):
    tunings = {}
    for place in sorted(archive.FOLDER.glob("sweeps/*/tuning")):
        sizes = dict.fromkeys(f.name.rsplit("-", 1)[1] for f in sorted(place.iterdir()))
        for size in sorted(sizes, key=lambda name: int(name[:-1])):
            of_size = [runs.load_sweep(f) for f in sorted(place.glob(f"*-{size}"))]
            tunings[f"{place.parent.name}_{size}"] = of_size
    tuning.adopt(tunings)
    print(f"chosen: {', '.join(tunings)}")


COMMANDS = {
    "status": print_status,
    "table1": table1,
    "hidden_modes": hidden_modes,
    "quality": quality_,
    "archive": archive_,
    "adopt": adopt,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["run", *COMMANDS, "piece"])
    parser.add_argument("name", nargs="?", help="of a piece, which `run` gives to a process")
    parser.add_argument("--folder", default=ROOT / "results/paper", help="of the finished runs")
    parser.add_argument("--experiments", nargs="+", default=["caltech"], help="default: caltech")
    parser.add_argument("--cores", type=int, default=1, help="pieces at a time; default: 1")
    parser.add_argument("--nice", type=int, default=19, help="of the pieces; default: 19, lowest")
    parser.add_argument("--scale", default="paper", choices=("paper", "quick", "smoke"))
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    study = Study(options)
    try:
        if options.command == "run":
            run(study, options.cores)
        elif options.command == "piece":
            make(study, next(piece for piece in study.pieces() if piece.name == options.name))
        else:
            COMMANDS[options.command](study)
    except runs.RunError as error:  # a line that says what to do
        sys.exit(str(error))


if __name__ == "__main__":
    main()
