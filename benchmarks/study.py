"""The paper-scale study, piece by piece, on a machine that need not have the workflow's packages.

    uv run --extra cuda13 python benchmarks/study.py PIECE [--folder results/paper]

    published     settings around what could explain the published curves
    tuning        every algorithm's grid, judged on held-out images
    tuned         with the settings that the tuning chose: first `study.py adopt`
    as_published  with the settings that explain the published curves
    ablations     as published, with the other choice of what the paper leaves open about the data
    table1        Table 1, one model at a time
    sensitivity   S-DCP-D over ε and λ_H
    trusted       log Z of archived models that earlier versions evaluated by plain AIS alone
    hidden_modes  what plain AIS does not see of the final models of `tuned` and `as_published`
    quality       images that these models generate: sharpness, diversity, distance
    archive       everything that is in the folder, into workflow/archive
    adopt         write what the archived tunings choose to hyperparameters.yaml

Each reads the workflow's configuration and writes the workflow's run files; those of the archive
are what `snakemake` then draws and judges. A piece that was interrupted, by `timeout 480` or
otherwise, goes on with the same command and folder; what is finished is kept. The models of all
algorithms are trained side by side. Needs python3 with numpy, scipy, pandas, pyyaml, tqdm and cupy
(without a GPU threadpoolctl); the data files in data/, or in the folder that SDCPD_DATA_MIRROR
names.
"""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from common import ROOT, engines, key

from sdcpd import archive, data, experiments, likelihood, modes, quality, runs, timing, tuning
from sdcpd.data import whole_file


class Study:
    """The configuration, and where runs lie."""

    def __init__(self, options):
        self.config = experiments.read(options.scale)
        self.groups = experiments.read_hyperparameters()
        self.folder, self.backend = Path(options.folder), options.backend
        self.data = os.environ.get("SDCPD_DATA_MIRROR") or ROOT / "data"
        self.experiments, self.algorithms = options.experiments, options.algorithms
        for experiment in self.config["experiments"].values():
            experiment |= {n: v for n in ("trials", "epochs") if (v := getattr(options, n))}

    def sizes(self):
        """Experiment, number of hidden units and algorithms of everything that is asked for."""
        for name in self.experiments:
            experiment = self.config["experiments"][name]
            for n_hidden in experiment["n_hidden"]:
                yield name, n_hidden, self.of_those(experiment["algorithms"])

    def of_those(self, algorithms):
        """Those algorithms that are asked for."""
        return [a for a in algorithms if not self.algorithms or a in self.algorithms]

    def sweep(self, kind, algorithms=None):
        """The sweeps of a kind; all algorithms of an experiment and size side by side."""
        for name, n, all_algorithms in self.sizes():
            names = algorithms or all_algorithms
            settings = [self._sweep_settings(name, kind, a, n) for a in names]
            folders = [self.folder / f"sweeps/{name}/{kind}/{a}-{n}h" for a in names]
            if not _finished(settings, folders):
                runs.execute_sweeps(settings, folders, self.backend, self.data)
                runs.clear_checkpoints(folders[0])
            say(f"{kind}, {name}, {n} hidden units", map(runs.load_sweep, folders))

    def train(self, group, sizes=None):
        """The runs of a group; all algorithms of an experiment and size side by side."""
        for name, n, _ in self.sizes() if sizes is None else sizes:
            names = self.of_those(experiments.algorithms_of(self.groups, group, name, n))
            if not names:
                sys.exit(f"hyperparameters.yaml has no {group} for {name}: see study.py adopt")
            what = [(self.config, self.groups, name, group, a, n) for a in names]
            settings = [experiments.run_settings(*each) for each in what]
            folders = [self.folder / f"runs/{name}/{group}/{a}-{n}h" for a in names]
            if not _finished(settings, folders):
                runs.execute_together(settings, folders, self.backend, self.data)
                runs.clear_checkpoints(folders[0])
            say(f"{group}, {name}, {n} hidden units", ([runs.load(f)] for f in folders))

    def _sweep_settings(self, *which):
        return experiments.sweep_settings(self.config, self.groups, *which)


def _finished(settings, folders):
    stored = [archive.settings_of(folder) for folder in folders]
    return stored == json.loads(json.dumps(settings))


def say(title, finished):
    """A line for each run: its setting, its last values and how many trials diverged."""
    print(title, flush=True)
    for run in (run for sweep in finished for run in sweep):
        values = " ".join(f"{n}={v:g}" for n, v in run.settings["hyperparameters"].items())
        end = run.curve.groupby("trial").tail(1)
        lost = f"  {(end.status != 'ok').sum()} diverged" if (end.status != "ok").any() else ""
        name = run.settings["algorithm"]
        ends = f"train {end.train.mean():9.3f} test {end.test.mean():9.3f}{lost}"
        print(f"  {name:7} {values:50} {ends}")
    taken = f"{run.wall['training_seconds']:.0f} s training"
    print(f"  {run.provenance['device']}, {taken}", flush=True)


def published(study):
    study.sweep("published")


def tuning_(study):
    study.sweep("tuning")


def tuned(study):
    for group in (*experiments.TUNED, "step_matched"):
        study.train(group)


def as_published(study):
    study.train("as_published")


def ablations(study):
    for name, n, _ in study.sizes():
        study.train("as_published", [(other, n, None) for other in study.config["ablations"][name]])


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


def sensitivity(study):
    for group in ("as_published", "tuned_speed"):
        if all(experiments.algorithms_of(study.groups, group, *s[:2]) for s in study.sizes()):
            study.sweep(f"sensitivity_{group}", ["sdcp_d"])


def hidden_modes(study):
    _measure(study, "modes", modes.measure, study.config["hidden_modes"])


def trusted(study):
    """The last point of each archived curve gets its trusted columns, from the model kept."""
    engine = engines.select(study.backend)
    for name, n, algorithms in study.sizes():
        of_size = [archive.FOLDER / f"runs/{name}/as_published/{a}-{n}h" for a in algorithms]
        for folder in (f for f in of_size if (f / "models.npz").exists()):
            run = runs.load(folder)
            theta, trial = run.best()
            if theta is not None and run.settings["ais"]:  # of small models log Z is known
                _trust(folder, run, theta, trial, engine, study.data)
    archive.write_sums()


def _trust(folder, run, theta, trial, engine, data_folder):
    dataset = data.load(run.settings["dataset"], data_folder)
    parts = [a if a is None else engine.xp.asarray(a) for a in dataset[:3]]  # train, valid, test
    fields = run.settings["seed"], "trusted", run.settings["dataset"], run.settings["algorithm"]
    evaluate = likelihood.Evaluator(
        parts[0],
        parts[2],
        lambda *where: key(*fields, *where),
        run.settings["ais"],
        engine=engine,
        valid=parts[1],
        plain_at=(),
    )
    curve, last = run.curve, run.curve["update"].max()
    theta = engine.prepare(theta.map(engine.xp.asarray))
    (point,) = evaluate(theta, [trial], int(last))
    row = curve.index[(curve.trial == trial) & (curve["update"] == last)]
    for column, value in point.items():
        if column not in curve:
            curve.insert(curve.columns.get_loc("status"), column, float("nan"))
        curve.loc[row, column] = value
    with whole_file(folder / "curve.csv") as file:
        curve.to_csv(file, index=False, float_format="%.10g")
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    about["trusted"] = {"date": f"{datetime.now(UTC):%Y-%m-%d}"} | runs.provenance(engine)
    with whole_file(folder / "run.json") as file:
        json.dump(about, file, indent=2, ensure_ascii=False)
    values = ", ".join(f"{name} {value:.2f}" for name, value in point.items())
    print(f"  {folder.relative_to(archive.FOLDER)}: {values}", flush=True)


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


PIECES = {
    "published": published,
    "tuning": tuning_,
    "tuned": tuned,
    "as_published": as_published,
    "ablations": ablations,
    "table1": table1,
    "sensitivity": sensitivity,
    "trusted": trusted,
    "hidden_modes": hidden_modes,
    "quality": quality_,
    "archive": archive_,
    "adopt": adopt,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("piece", choices=PIECES)
    parser.add_argument("--folder", default=ROOT / "results/paper", help="of the finished runs")
    parser.add_argument("--experiments", nargs="+", default=["mnist"], help="default: mnist")
    parser.add_argument("--algorithms", nargs="+", help="only these, to share out over cores")
    parser.add_argument("--trials", type=int, help="of runs; default: as configured")
    parser.add_argument("--epochs", type=float, help="of runs; default: as configured")
    parser.add_argument("--scale", default="paper", choices=("paper", "quick", "smoke"))
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args()
    PIECES[options.piece](Study(options))


if __name__ == "__main__":
    main()
