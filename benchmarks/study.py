"""The paper-scale study, piece by piece; workflow/study.md says what it is and why.

    uv run python benchmarks/study.py status [--experiments caltech] [--folder results/paper]
    uv run python benchmarks/study.py run --experiments caltech --cores 2

    status        a line for each sweep and group of runs: done, running, left, hours taken
    run           all pieces that are not done, so many at a time, each a process at low priority
    archive       everything that is finished in the folder, into workflow/archive
    adopt         write what the archived tunings choose to hyperparameters.yaml
    table1        Table 1, one model at a time
    hidden_modes  what plain AIS does not see of the final models, as published
    quality       images that final models generate, of every group

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
from functools import cache
from itertools import product, takewhile
from pathlib import Path
from typing import NamedTuple

from common import ROOT, engines

from sdcpd import experiments, runs
from sdcpd.files import whole_file
from sdcpd.runs import archive
from sdcpd.study import modes, quality, timing, tuning

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
        return f"{self.line}, trial {self.trials[0]}" if self.trials else self.line

    @property
    def archived(self):
        """Where the archive has what this belongs to, perhaps in a group of the same values."""
        own = archive.FOLDER / Path(*self.goal.parts[-4:])
        stored = {f: archive.settings_of(f) for f in own.parent.parent.glob(f"*/{own.name}")}
        trials = {f: each["trials"] for f, each in stored.items() if self.has_settings(each)}
        return max(trials, key=trials.get, default=own)

    @property
    def n_archived(self):
        """How many trials the archive has of the run to which this belongs."""
        stored = archive.settings_of(self.archived)
        return stored["trials"] if self.has_settings(stored) else 0

    @property
    def is_done(self):
        """Whether its run file is there, or the run in the archive has it."""
        if self.trials and self.trials[-1] < self.n_archived:
            return True
        return self.has_settings(archive.settings_of(self.folder))

    def has_settings(self, stored):
        """Whether stored settings are its own but for the number of trials."""
        if not stored or not self.is_known:
            return False
        return stored | {"trials": 0} == as_stored(self.settings | {"trials": 0})

    def hours(self):
        """What it took; None where it is in the archive alone."""
        try:
            wall = json.loads((self.folder / "wall.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return (wall["training_seconds"] + wall["evaluation_seconds"]) / 3600


def as_stored(settings):
    """As they are when they have been written and read."""
    return json.loads(json.dumps(settings))


class Study:
    """The configuration, where runs lie, and the pieces in their order."""

    def __init__(self, options):
        self.config, self.scale = experiments.read(options.scale), options.scale
        self.written = experiments.read_hyperparameters()
        self.folder, self.backend = Path(options.folder).resolve(), options.backend
        self.data = os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data"
        self.experiments, self.cores = options.experiments, options.cores
        self.nice = options.nice

    def sizes(self):
        """Experiment and number of hidden units of everything that is asked for."""
        for name in self.experiments:
            for n_hidden in self.config["experiments"][name]["n_hidden"]:
                yield name, n_hidden

    def algorithms(self, name):
        return self.config["experiments"][name]["algorithms"]

    def entries(self, name):
        """What ``study`` of the configuration asks for of an experiment."""
        return self.config["study"]["experiments"].get(name, [])

    def pieces(self):
        """Every ``Piece``, in the order in which they are made: entry by entry, of its runs trial 0
        of all of them first. Of entries that have a piece in common the last one counts."""
        found = {}  # goal and trials -> piece
        for name in self.experiments:
            for entry in self.entries(name):
                for n in self.config["experiments"][name]["n_hidden"]:
                    pieces = (self._sweeps if "sweep" in entry else self._runs)(name, n, entry)
                    pieces = sorted(pieces, key=lambda piece: (piece.trials or [0])[0])
                    found |= {(piece.goal, piece.trials): piece for piece in pieces}
        return [*found.values()]

    def _sweeps(self, name, n, entry):
        kind = entry["sweep"]
        sensitivity = kind.startswith("sensitivity")
        for algorithm in ["sdcp_d"] if sensitivity else self.algorithms(name):
            folder = self.folder / f"sweeps/{name}/{kind}/{algorithm}-{n}h"
            try:
                what = name, kind, algorithm, n
                settings = experiments.sweep_settings(self.config, self.groups(name, n), *what)
            except experiments.ConfigError:
                settings = {"hyperparameters": []}
            yield Piece(f"{name} {n}h {kind} {algorithm}", settings, None, folder, folder, folder)

    def _runs(self, tuned_as, n, entry):
        name = entry.get("experiment", tuned_as)
        experiment = self.config["experiments"][name]
        trials, epochs = (entry.get(what, experiment[what]) for what in ("trials", "epochs"))
        # Small models, and all on a GPU, are faster side by side.
        together = not experiment["ais"] or self.backend.startswith("cupy")
        parts = [range(trials)] if together else [range(t, t + 1) for t in range(trials)]
        short = f"_{epochs:g}" if epochs != experiment["epochs"] else ""
        groups = self.groups(tuned_as, n)
        algorithms = entry.get("algorithms", self.algorithms(name))
        for group, algorithm in product(entry["groups"], algorithms):
            try:
                settings = experiments.run_settings(self.config, groups, name, group, algorithm, n)
            except experiments.ConfigError:
                if not self._will_be_tuned(tuned_as, group, algorithm):
                    continue
                known = self.config, self.written, name, "as_published"
                settings = experiments.run_settings(*known, algorithm, n) | {"hyperparameters": {}}
            settings |= {"trials": trials, "epochs": epochs}
            values = ",".join(f"{k}={v}" for k, v in settings["hyperparameters"].items())
            line = f"{name} {n}h {group}{short} {algorithm}"
            goal = self.folder / f"runs/{name}/{group}{short}/{algorithm}-{n}h"
            for part in parts:  # groups that have the same values share their trials
                place = f"parts/{name}/{algorithm}-{n}h/{values or group}/{part[0]}-{part[-1]}"
                work = self.folder / place
                yield Piece(line, settings, part, work, work / f"{epochs:g}", goal)

    def _will_be_tuned(self, name, group, algorithm):
        matched = group == "step_matched"
        return self._is_tuned_here(name) and (
            group in experiments.TUNED or matched and algorithm in ("cg", "sdcp")
        )

    def _is_tuned_here(self, name):
        return {"sweep": "tuning"} in self.entries(name)

    def groups(self, name, n):
        """The groups of hyperparameters; what is to be tuned in this study only from its sweeps."""
        if not self._is_tuned_here(name):
            return self.written
        found = sorted((self.folder / f"sweeps/{name}/tuning").glob(f"*-{n}h/run.json"))
        d = self.config["experiments"][name]["n_inner_iterations"]
        tuned = chosen_by(tuple(path.parent for path in found), d)
        groups = {group: dict(values) for group, values in self.written.items()}
        for group in experiments.BY_TUNING:
            groups.setdefault(group, {})[f"{name}_{n}h"] = tuned.get(group, {})
        return groups

    def log(self, piece):
        return self.folder / f"logs/{piece.name.replace(', ', '-').replace(' ', '-')}.log"

    def is_at_work(self, piece):
        """Whether a process holds the lock of its log, which it does as long as it lives."""
        try:
            with open(self.log(piece), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return False


@cache
def chosen_by(folders, n_inner_iterations):
    """What these tuning sweeps choose: group -> algorithm -> values."""
    sweeps = [runs.load_sweep(folder) for folder in folders]
    return tuning.choose(tuning.table(sweeps), n_inner_iterations) if sweeps else {}


def make(study, piece):
    """Make a piece, in this process."""
    where = piece.folder, study.backend, study.data
    if piece.trials is None:
        tuning.execute(piece.settings, *where)
    else:
        how = {"trials": piece.trials, "keep": study.config["study"]["models_at"]}
        runs.execute(piece.settings, *where, **how, checkpoints_in=piece.work)


def collect(pieces):
    """Put the finished trials of every run together that has more of them than it had.

    What the archive has, made in another folder or on another machine, is taken from there.
    """
    for goal, parts in by(pieces, "goal").items():
        first = parts[0]
        if first.trials is None:
            if not first.is_done and first.has_settings(archive.settings_of(first.archived)):
                shutil.copytree(first.archived, goal, dirs_exist_ok=True)
            continue
        done = [*takewhile(lambda part: part.is_done, parts)]
        trials = sum(len(part.trials) for part in done)
        if trials and archive.settings_of(goal) != as_stored(first.settings | {"trials": trials}):
            archived = first.n_archived
            folders = [part.folder for part in done if part.trials[-1] >= archived]
            runs.merge([first.archived] * bool(archived) + folders, goal, trials)


def by(pieces, name):
    """Pieces by one of their attributes."""
    found = {}
    for piece in pieces:
        found.setdefault(getattr(piece, name), []).append(piece)
    return found


# ---------------------------------------------------------------------------------- run


def run(study):
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
                    if len(at_work) < study.cores and idle and piece.is_known and not piece.is_done:
                        at_work[piece.work] = piece, start(study, piece)
                        say(f"{piece.name}: started")
                if not at_work:
                    break
                while all(process.poll() is None for _, process in at_work.values()):
                    time.sleep(1)
                for piece, process in [*at_work.values()]:
                    if (status := process.poll()) is not None:
                        del at_work[piece.work]
                        lost = status or not piece.is_done
                        failed |= {piece.name} if lost else set()
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
        says_to = {"SDCPD_PROGRESS_LOG": str(study.log(piece))}
        how = {"stdout": log, "stderr": log, "env": os.environ | says_to}
        return subprocess.Popen([*map(str, command)], preexec_fn=low, **how)


def say(text):
    print(f"{datetime.now():%H:%M:%S} {text}", flush=True)


# ------------------------------------------------------------------------------- status


def print_status(study):
    """A line for each sweep and group of runs, and one for all."""
    pieces = study.pieces()
    lines, total = by(pieces, "line"), 0.0
    width = max(map(len, lines), default=0)
    waits = not all(piece.is_done for piece in pieces if "tuning" in piece.folder.parts)
    for line, parts in lines.items():
        done = [part for part in parts if part.is_done]
        others = [part for part in parts if part not in done]
        at_work = [part for part in others if study.is_at_work(part)]
        states = [f"{len(done)} of {len(parts)} done"]
        states += [f"running ({last_line(study.log(part))})" for part in at_work]
        states += [f"{len(others) - len(at_work)} left"] if others else []
        if others and not others[0].is_known:
            states.append("waits for the tuning" if waits else "the tuning chose none")
        taken = [hours for part in done if (hours := part.hours()) is not None]
        total += sum(taken)
        states += [f"{sum(taken) / len(taken):.2f} h each"] if taken else []
        print(f"{line:{width}}  {', '.join(states)}")
    print(f"{'finished here':{width}}  {total:.1f} hours of one core")


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
    measure(study, "modes", ["as_published"], modes.measure, study.config["hidden_modes"])


def quality_(study):
    how = study.config["quality"] | {"seed": study.config["seed"]}
    measure(study, "quality", experiments.GROUPS, quality.measure, how)


def measure(study, kind, groups, function, how):
    """What is measured of final models of large datasets, added to what the archive has of it."""
    for group in groups:
        for name, n in study.sizes():
            folders = [
                study.folder / f"runs/{name}/{group}/{a}-{n}h" for a in study.algorithms(name)
            ]
            found = [runs.load(f) for f in folders if (f / "run.json").exists()]
            if found and found[0].settings["ais"]:  # of small models log Z is known
                goal = study.folder / f"{kind}/{name}-{group}-{n}h"
                archived = archive.FOLDER / kind / goal.name
                if archived.exists() and not goal.exists():
                    shutil.copytree(archived, goal)
                where = {"backend_name": study.backend, "data_folder": study.data}
                print(goal.name, function(found, goal, **how, **where).to_string(), sep="\n")


def archive_(study):
    """Only what is finished: a folder with run.json, or a whole record."""
    finished = "*/*/*/*/run.json", "*/*/about.json", "timing/table1.json"
    places = {path.parent for pattern in finished for path in study.folder.glob(pattern)}
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
    tunings, places = {}, archive.FOLDER.glob("sweeps/*/tuning/*-*h")
    found = [(f.parts[-3], int(f.name.rpartition("-")[2][:-1]), f) for f in places]
    for name, n_hidden, folder in sorted(found):
        tunings.setdefault(f"{name}_{n_hidden}h", []).append(runs.load_sweep(folder))
    tuning.adopt(tunings)
    print(f"chosen: {', '.join(tunings)}")


COMMANDS = {
    "run": run,
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
    parser.add_argument("command", choices=[*COMMANDS, "piece"])
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
        if options.command == "piece":
            make(study, next(piece for piece in study.pieces() if piece.name == options.name))
        else:
            COMMANDS[options.command](study)
    except runs.RunError as error:  # a line that says what to do
        sys.exit(str(error))


if __name__ == "__main__":
    main()
