"""What the workflow makes: every run, sweep, figure and table, with what it is made of.

Names, dependencies and the parameters of notebooks only; what is computed stands in notebooks/ and
src/sdcpd/.
"""

from functools import cached_property
from itertools import product
from pathlib import Path
from typing import NamedTuple

from snakemake.exceptions import WorkflowError

from sdcpd import data, experiments, runs
from sdcpd.runs import archive

ARCHIVE = "workflow/archive"
RUN = "runs/{experiment}/{group}/{algorithm}-{n_hidden}h"
TOGETHER = "train-{experiment}-{group}-{n_hidden}h"  # notebook of all algorithms
PART = "parts/{experiment}/{group}/{algorithm}-{n_hidden}h/{first}-{last}"
SWEEP = "sweeps/{experiment}/{kind}/{algorithm}-{n_hidden}h"
LARGE = ("mnist", "caltech", "kannada")
NUMBERED = {"bars_and_stripes": 1, "mnist": 2, "caltech": 3, "kannada": 4}  # Figures of the paper
ANCHORS = {  # experiments whose published learning rates are known -> as in published_curves_2017
    "bars_and_stripes_2017": "BarsStripes",
    "mnist_2017": "MNIST",
}
REPLAYED = f"{ARCHIVE}/runs/mnist/as_published/sdcp_d-500h"
TIMING = "results/timing/table1_timing.json"
SHOWN = {"runs", "sweeps", "variants", "groups"}  # parameters: what a notebook shows


class Kind(NamedTuple):
    """A kind of figure or table: so its notebook, its rule and its caption are called."""

    suffix: str  # svg: a figure, csv: a table
    category: str  # of Snakemake's report
    besides: dict = {}  # what the rule makes besides
    computes: bool = False  # on the GPU, where there is one


CSV = {"table": "figures/{name}.csv"}
TABLES = {"tables": ["figures/{name}.csv", "figures/{name}.md", "figures/{name}.tex"]}
MEASURED = {"measurements": ["figures/{name}_measured.csv", "figures/{name}_measured.md"]}
KINDS = {
    "curves": Kind("svg", "Likelihood curves", CSV),
    "samples": Kind("svg", "Generated samples", {"images": "figures/{name}.npz"}, True),
    "tune": Kind("svg", "Tuning", TABLES),
    "sensitivity": Kind("svg", "Sensitivity", CSV),
    "hidden_modes": Kind("svg", "Hidden modes", TABLES, True),
    "quality": Kind("csv", "Generated samples", computes=True),
    "ablation": Kind("svg", "Other choices", CSV),
    "overfitting": Kind("svg", "Other choices", CSV),
    "refuted": Kind("svg", "Hidden modes", CSV),
    "replay": Kind("csv", "Validation", computes=True),
    "anchor": Kind("svg", "Validation", CSV),
    "validation": Kind("csv", "Validation"),
    "claims": Kind("csv", "Claims", MEASURED),
    "timing": Kind("csv", "Table 1", {"seconds": "results/timing/{name}.json"}, True),
}

# The parts of the site in the paper's order: heading -> kind of what is shown
PARTS = {
    "Table 1": "timing",
    "Figures 1 to 4": "curves",
    "Figure 5": "samples",
    "Mentioned by the paper: other numbers of hidden units": "curves",
    "Mentioned by the paper: samples of the other datasets": "samples",
    "Curves when all algorithms are equally tuned": "curves",
    "Equal tuning": "tune",
    "Settings closest to the published curves": "tune",
    "Sensitivity to ε and λ_H": "sensitivity",
    "Generated images in numbers": "quality",
    "Overfitting": "overfitting",
    "Other choices about the data": "ablation",
    "Modes that plain AIS does not see": "hidden_modes",
    "When plain AIS begins to fail": "refuted",
    "An archived run trained again": "replay",
    "Validation": "validation",
    "Published curves whose learning rates are known": "anchor",
    "Claims": "claims",
}


class Item(NamedTuple):
    """A figure or table."""

    part: str  # of the site, a key of PARTS
    title: str
    sources: list  # files that it is made of, notebook and code apart
    parameters: dict  # of its notebook
    by_default: bool = True  # whether it is made without being asked for

    @property
    def kind(self):
        return PARTS[self.part]


class Catalogue:
    """All items by name, and the runs and sweeps that they are made of.

    Parameters
    ----------
    config : dict
        The workflow's configuration.
    backend : str
        Name of the engine.
    scale : str
    """

    def __init__(self, config, backend, scale):
        self.config, self.backend, self.results = config, backend, f"results/{scale}"
        self.experiments, self.group = config["experiments"], config["hyperparameters"]
        self.on_gpu = backend.startswith("cupy")
        self.uses_archive = config["runs"] == "archive" or (
            config["runs"] == "auto" and not self.on_gpu
        )
        self.paper, self.groups = experiments.read("paper"), experiments.read_hyperparameters()
        # what is computed here, as it is quick, and not only taken from the archive
        self.computes = self.on_gpu or scale == "smoke"
        timing = f"{ARCHIVE}/timing/table1.json"
        self.archived_timing = timing if self.uses_archive and Path(timing).exists() else None
        self.items = {}
        for add in (
            *(self._curves, self._samples, self._grids, self._sensitivity, self._hidden_modes),
            *(self._quality, self._overfitting, self._refuted, self._ablations, self._anchors),
            *(self._timing, self._replay, self._validation, self._claims),
        ):
            add()

    def of(self, kind):
        """The names of a kind of figure or table."""
        return [name for name, item in self.items.items() if item.kind == kind]

    def model(self, experiment, n_hidden):
        return f"{self.title(experiment)}, {n_hidden} hidden units"

    def title(self, experiment):
        return data.title_of(self.experiments[experiment]["dataset"])

    def first_size(self, experiment):
        """The hidden units of the paper's numbered figures."""
        return self.experiments[experiment]["n_hidden"][0]

    def is_small(self, experiment):
        """Whether log Z is exact, and a run takes seconds."""
        return self.experiments[experiment]["ais"] is None

    def takes_archived(self, experiment):
        """Whether its runs come from the archive: nobody is to train large models for days."""
        return self.uses_archive and not self.is_small(experiment)

    def sizes(self, *names):
        return [(name, n) for name in names for n in self.experiments[name]["n_hidden"]]

    # ------------------------------------------------------------------------ runs and sweeps

    def run_settings(self, experiment, group, algorithm, n_hidden):
        return self._settings(experiments.run_settings, experiment, group, algorithm, n_hidden)

    def sweep_settings(self, experiment, kind, algorithm, n_hidden):
        return self._settings(experiments.sweep_settings, experiment, kind, algorithm, n_hidden)

    def _settings(self, maker, *which):
        try:
            return maker(self.config, self.groups, *which)
        except experiments.ConfigError as error:
            raise WorkflowError(str(error)) from error

    def run(self, experiment, algorithm, n_hidden, group):
        """Folder of a run: in the archive, if it is to be taken from there and it has it.

        Small models are trained wherever the workflow runs, unless runs=archive.
        """
        return self._with_shorter(experiment, algorithm, n_hidden, group)[0]

    def _with_shorter(self, experiment, algorithm, n_hidden, group):
        """The same, and those with fewer epochs that the archive has besides, as ``group_40``."""
        which = {"experiment": experiment, "algorithm": algorithm, "n_hidden": n_hidden}
        places = [RUN.format(group=group, **which)]
        trained = self.is_small(experiment) and self.config["runs"] != "archive"
        if trained or not self.uses_archive:
            return [f"{self.results}/{places[0]}"]
        shorter = Path(ARCHIVE).glob(RUN.format(group=f"{group}_[0-9]*", **which))
        places += sorted(path.relative_to(ARCHIVE).as_posix() for path in shorter)
        settings = self.run_settings(experiment, group, algorithm, n_hidden)
        return self._archived(places, settings) or [f"{self.results}/{places[0]}"]

    def sweep(self, experiment, algorithm, n_hidden, kind):
        """Folder of a sweep: in the archive, if it is to be taken from there and it has it."""
        which = {"experiment": experiment, "kind": kind, "algorithm": algorithm}
        place = SWEEP.format(**which, n_hidden=n_hidden)
        if self.uses_archive:
            settings = self.sweep_settings(experiment, kind, algorithm, n_hidden)
            return (self._archived([place], settings) or [f"{self.results}/{place}"])[0]
        return f"{self.results}/{place}"

    def _archived(self, places, settings):
        """Which of these the archive has, with these hyperparameters."""
        stored = {f"{ARCHIVE}/{p}": archive.settings_of(f"{ARCHIVE}/{p}") for p in places}
        wanted = settings["hyperparameters"]
        return [
            folder for folder, has in stored.items() if has and has["hyperparameters"] == wanted
        ]

    def known(self, experiment, n_hidden, group):
        """The algorithms of an experiment for which a group has hyperparameters."""
        of_group = experiments.algorithms_of(self.groups, group, experiment, n_hidden)
        return [a for a in self.experiments[experiment]["algorithms"] if a in of_group]

    def algorithms(self, experiment, n_hidden, group):
        """Of groups for comparison those that are known, and archived where large ones are taken
        from there; else all, of which none may be missing."""
        if group == "as_published" or group not in experiments.GROUPS:
            return self.experiments[experiment]["algorithms"]
        known = self.known(experiment, n_hidden, group)
        if not self.takes_archived(experiment):
            return known
        return [a for a in known if self.run(experiment, a, n_hidden, group).startswith(ARCHIVE)]

    def runs(self, experiment, n_hidden, group=None):
        """Folders of the runs of all algorithms of an experiment."""
        group = group or self.group
        names = self.algorithms(experiment, n_hidden, group)
        return [self.run(experiment, name, n_hidden, group) for name in names]

    def sweeps(self, experiment, n_hidden, kind):
        """Of all algorithms over their grids, or the one of S-DCP-D over ε and λ_H."""
        names = self.experiments[experiment]["algorithms"]
        names = names if kind in ("tuning", "published") else ["sdcp_d"]
        return [self.sweep(experiment, name, n_hidden, kind) for name in names]

    def tuned_groups(self, experiment, n_hidden):
        """The groups of equally tuned hyperparameters that there are."""
        return [g for g in experiments.TUNED if self.algorithms(experiment, n_hidden, g)]

    def paper_budget(self, experiment):
        """What the paper spent, so that a figure can say on its face where we spent less."""
        paper = self.paper["experiments"][experiment]
        return {name: paper[name] for name in ("trials", "epochs", "ais", "samples")}

    def parts(self, which):
        """Where the trials of a run are trained apart; nowhere, if they fit into one job."""
        if self.experiments[which[0]]["one_job"]:
            return []
        n = self.run_settings(*which)["trials"]
        size = self.config["trials_per_job"] or n
        bounds = [(first, min(first + size, n) - 1) for first in range(0, n, size)]
        named = dict(zip(("experiment", "group", "algorithm", "n_hidden"), which, strict=True))
        found = [PART.format(**named, first=first, last=last) for first, last in bounds]
        return [f"{self.results}/{place}" for place in found] if len(found) > 1 else []

    def train_parameters(self, wildcards):
        """Those of notebooks/train.ipynb, for a run or, with first and last, some of its trials."""
        which = (wildcards.experiment, wildcards.group, wildcards.algorithm, wildcards.n_hidden)
        if wildcards.get("first") is None:
            place, more = RUN.format(**wildcards), {"parts": self.parts(which)}
        else:
            trials = [int(wildcards.first), int(wildcards.last)]
            place, more = PART.format(**wildcards), {"only_trials": trials}
        settings = {f"{self.results}/{place}": self.run_settings(*which)}
        return {"runs": settings, "backend": self.backend} | more

    @cached_property
    def together(self):
        """Name of the notebook -> settings by folder, where one trains all algorithms."""
        found = {}
        small = [name for name, values in self.experiments.items() if values["one_job"]]
        for (experiment, n), group in product(self.sizes(*small), self.groups):
            which = {"experiment": experiment, "group": group, "n_hidden": n}
            for algorithm in self.known(experiment, n, group):
                folder = f"{self.results}/{RUN.format(**which, algorithm=algorithm)}"
                settings = self.run_settings(experiment, group, algorithm, n)
                found.setdefault(TOGETHER.format(**which), {})[folder] = settings
        return found

    def sweep_parameters(self, wildcards):
        """Those of notebooks/sweep.ipynb."""
        which = wildcards.experiment, wildcards.kind, wildcards.algorithm, wildcards.n_hidden
        place = f"{self.results}/{SWEEP.format(**wildcards)}"
        return self.sweep_settings(*which) | {"backend": self.backend, "output": place}

    # ---------------------------------------------------------------------- figures and tables

    def _add(self, name, part, title, parameters, others=(), by_default=True):
        """An item, made of the runs and sweeps among its parameters and of ``others``; none where
        there is no run that it could show."""
        folders = folders_in(parameters)
        if folders or not SHOWN & {*parameters}:
            sources = _files_of(folders) + [*others]
            parameters = parameters | {"output": f"figures/{name}"}
            self.items[name] = Item(part, title, sources, parameters, by_default)

    def _curves(self):
        """Figures 1 to 4, those of other sizes, and those of the equally tuned groups."""
        for experiment, number in NUMBERED.items():
            n = self.first_size(experiment)
            title = f"Figure {number}: {self.model(experiment, n)}"
            which = experiment, n, self.group, number
            self._add_curves(f"fig{number}_{experiment}", "Figures 1 to 4", title, *which)
        part = "Mentioned by the paper: other numbers of hidden units"
        for experiment, n in self.sizes("bars_and_stripes")[1:]:
            name, title = f"figS_{experiment}_{n}h", self.model(experiment, n)
            self._add_curves(name, part, title, experiment, n, self.group)
        part = "Curves when all algorithms are equally tuned"
        for experiment, n in self.sizes(*NUMBERED):
            for group in self.tuned_groups(experiment, n):
                name, title = f"figS_{experiment}_{n}h_{group}", self.model(experiment, n)
                title += f", {experiments.GROUPS[group]}"
                self._add_curves(name, part, title, experiment, n, group)

    def _add_curves(self, name, part, title, experiment, n_hidden, group, number=None):
        matched = group == "tuned_speed"
        parameters = {
            "runs": self.runs(experiment, n_hidden, group),
            "step_matched": self.runs(experiment, n_hidden, "step_matched") if matched else [],
            "group": group,
            "published_figure": number,
            "paper_budget": self.paper_budget(experiment),
        }
        self._add(name, part, title, parameters)

    def _samples(self):
        """Figure 5, and the same of the other datasets."""
        for experiment in ("mnist", "caltech", "kannada", "bars_and_stripes"):
            n = self.first_size(experiment)
            name, title = f"figS_{experiment}_samples", self.model(experiment, n)
            part = "Mentioned by the paper: samples of the other datasets"
            if experiment == "mnist":
                name, part, title = "fig5_mnist_samples", "Figure 5", f"Figure 5: {title}"
            parameters = {
                "runs": self.runs(experiment, n),
                "paper_budget": self.paper_budget(experiment),
                "seed": self.config["seed"],
                "backend": self.backend,
            } | self.experiments[experiment]["samples"]
            self._add(name, part, title, parameters)

    def _grids(self):
        """Equal tuning, and the settings closest to the published curves."""
        parts = {"tuning": "Equal tuning", "published": "Settings closest to the published curves"}
        for kind, part in parts.items():
            for experiment, n in self.sizes(*self.config[kind]["experiments"]):
                sweeps = self.sweeps(experiment, n, kind)
                # the images of a tuning are not those of the published curves, but for these
                comparable = kind == "published" or experiment == "bars_and_stripes"
                number = NUMBERED.get(experiment) if n == self.first_size(experiment) else None
                parameters = {
                    "sweeps": sweeps,
                    "in_use": self._in_use(f"{experiment}_{n}h") if kind == "tuning" else {},
                    "published_figure": number if comparable else None,
                    "study_epochs": self._study_epochs(kind, experiment),
                }
                what = self.model(experiment, n), parameters
                default = self._by_default(experiment, sweeps)
                name = f"figS_{kind}_{experiment}_{n}h"
                self._add(name, part, *what, by_default=default)

    def _in_use(self, model):
        """The tuned hyperparameters; sorted, as the order of the keys must rerun nothing."""
        found = {}
        for group in experiments.BY_TUNING:
            of_model = self.groups.get(group, {}).get(model, {})
            found[group] = {name: dict(sorted(of_model[name].items())) for name in sorted(of_model)}
        return found

    def _study_epochs(self, kind, experiment):
        """Epochs that the study gives to the sweeps of an experiment."""
        of_all = self.paper["experiments"][experiment]["epochs"]
        return self.paper[kind]["experiments"][experiment].get("epochs", of_all)

    def _by_default(self, experiment, folders):
        return self.is_small(experiment) or self.on_gpu or all_archived(folders)

    def _sensitivity(self):
        """S-DCP-D over ε and λ_H, at its learning rates as published and tuned."""
        part = "Sensitivity to ε and λ_H"
        for experiment in self.config["sensitivity"]["experiments"]:
            n = self.first_size(experiment)
            groups = ["as_published", *self.tuned_groups(experiment, n)[:1]]
            sweeps = {
                group: self.sweep(experiment, "sdcp_d", n, f"sensitivity_{group}")
                for group in groups
            }
            if self.takes_archived(experiment):  # the study makes fewer
                archived = {g: sweep for g, sweep in sweeps.items() if sweep.startswith(ARCHIVE)}
                sweeps = archived or sweeps
            what = self.model(experiment, n), {"sweeps": sweeps}
            default = self._by_default(experiment, sweeps.values())
            name = f"figS_sensitivity_{experiment}"
            self._add(name, part, *what, by_default=default)

    def _hidden_modes(self):
        """What plain AIS does not see of the final models."""
        part = "Modes that plain AIS does not see"
        for experiment in LARGE:
            n = self.first_size(experiment)
            folder, inputs = self._measured("modes", experiment, n, self.group)
            parameters = self.config["hidden_modes"] | {
                "runs": self.runs(experiment, n),
                "folder": folder,
                "mirror": self.config["data_mirror"] or None,
                "backend": self.backend,
            }
            what = self.model(experiment, n), parameters, inputs
            default = self.computes or folder.startswith(ARCHIVE)
            self._add(f"figS_hidden_modes_{experiment}", part, *what, default)

    def _quality(self):
        """Images that final models generate, in numbers; for every group that was measured."""
        part = "Generated images in numbers"
        for experiment, n in self.sizes(*LARGE):
            for group in dict.fromkeys((self.group, *experiments.GROUPS)):
                name, title = f"sample_quality_{experiment}", self.model(experiment, n)
                if group != self.group:
                    name, title = f"{name}_{group}", f"{title}, {experiments.GROUPS[group]}"
                folder, inputs = self._measured("quality", experiment, n, group)
                parameters = self.config["quality"] | {
                    "runs": self.runs(experiment, n, group),
                    "group": group,
                    "folder": folder,
                    "seed": self.config["seed"],
                    "paper_budget": self.paper_budget(experiment),
                    "backend": self.backend,
                }
                default = folder.startswith(ARCHIVE) or group == self.group
                if group == "tuned_final":  # of which the archive keeps no models
                    default |= not self.takes_archived(experiment)
                self._add(name, part, title, parameters, inputs, default)

    def _measured(self, kind, experiment, n_hidden, group):
        """The folder of measurements of final models, in the archive or here, and what that takes:
        its files, or the data to measure."""
        place = f"{kind}/{experiment}-{group}-{n_hidden}h"
        stored = Path(ARCHIVE, place)
        # of other models than those that the archive holds they would say nothing
        same = all_archived(self.runs(experiment, n_hidden, group))
        if same and self.config["measurements"] == "archived" and stored.exists():
            return str(stored), sorted(map(str, stored.iterdir()))
        dataset = self.experiments[experiment]["dataset"]
        labelled = data.labelled_files_of(dataset) if kind == "quality" else []
        files = dict.fromkeys([*data.files_of(dataset), *labelled])
        return f"{self.results}/{place}", [f"data/{file}" for file in files]

    def _overfitting(self):
        """Of the dataset with validation images."""
        n = self.first_size("caltech")
        what = {"runs": self.runs("caltech", n), "paper_budget": self.paper_budget("caltech")}
        title = self.model("caltech", n)
        self._add("figS_overfitting_caltech", "Overfitting", title, what)

    def _refuted(self):
        """When plain AIS begins to fail, in every group of hyperparameters that there is."""
        part = "When plain AIS begins to fail"
        for experiment in LARGE:
            n = self.first_size(experiment)
            groups = {
                group: folders
                for group in experiments.GROUPS
                if (folders := self.runs(experiment, n, group))
            }
            parameters = {"groups": groups, "paper_budget": self.paper_budget(experiment)}
            what = self.model(experiment, n), parameters
            default = all_archived(folders_in(parameters))
            self._add(f"figS_refuted_{experiment}", part, *what, by_default=default)

    def _ablations(self):
        """The other choices about the data, beside each other."""
        part = "Other choices about the data"
        for experiment, others in self.config["ablations"].items():
            if others and self.algorithms(experiment, self.first_size(experiment), self.group):
                variants = [self.runs(e, self.first_size(e)) for e in (experiment, *others)]
                parameters = {"variants": variants, "paper_budget": self.paper_budget(experiment)}
                what = self.title(experiment), parameters
                default = self.computes or all_archived(folders_in(parameters))
                name = f"figS_ablation_{experiment}"
                self._add(name, part, *what, by_default=default)

    def _anchors(self):
        """Training with published learning rates, beside the published curves."""
        part = "Published curves whose learning rates are known"
        for experiment, published in ANCHORS.items():
            name, n = f"figS_anchor_{experiment.removesuffix('_2017')}", self.first_size(experiment)
            rates = [group for group, values in self.groups.items() if experiment in values]
            folders = [folder for group in rates for folder in self.runs(experiment, n, group)]
            budget = {"paper_budget": self.paper_budget(experiment)}
            what = self.model(experiment, n), {"runs": folders, "dataset": published} | budget
            default = self._by_default(experiment, folders)
            self._add(name, part, *what, by_default=default)

    # -------------------------------------------------------------- what there is one of

    def _timing(self):
        """Table 1."""
        parameters = self.config["timing"] | {
            "backend": self.backend,
            "archived": self.archived_timing,
            "seconds_output": TIMING,
        }
        others = [self.archived_timing] if self.archived_timing else []
        self._add("table1_timing", "Table 1", "Time of training", parameters, others)

    def _replay(self):
        """An archived run trained again."""
        parameters = {
            "archived": REPLAYED,
            "mirror": self.config["data_mirror"] or None,
            "backend": self.backend,
        }
        part = "An archived run trained again"
        # without the data the table says that nothing was compared
        how = parameters, _files_of([REPLAYED]), self.uses_archive
        self._add("replay_mnist", part, "MNIST", *how)

    def _validation(self):
        """Checks of the mathematics."""
        parameters = self.config["validation"] | {"seed": self.config["seed"]}
        self._add("validation", "Validation", "Checks of the mathematics", parameters)

    def _claims(self):
        """The verdicts, and all that they are judged by."""
        runs_ = [
            folder
            for experiment, n in self.sizes(*NUMBERED)
            for group in ("as_published", *experiments.BY_TUNING)
            for algorithm in self.algorithms(experiment, n, group)
            for folder in self._with_shorter(experiment, algorithm, n, group)
        ]
        sweeps = [f for which in self.tunings().values() for f in self.sweeps(*which)]
        sweeps += [
            folder
            for name in self._made("sensitivity")
            for folder in self.items[name].parameters["sweeps"].values()
        ]
        quality, modes = self._made("quality"), self._made("hidden_modes")
        budgets = [[n, "run", values["epochs"]] for n, values in self.paper["experiments"].items()]
        budgets += [[name, "quality", self.paper["quality"]["n_images"]] for name in LARGE]
        parameters = {
            "claims": "workflow/reference/claims.yaml",
            "runs": runs_,
            "sweeps": sweeps,
            "quality": [self.items[name].parameters["folder"] for name in quality],
            "modes": [self.items[name].parameters["folder"] for name in modes],
            "budgets": budgets,
            "timing": self.archived_timing or TIMING,
            "validation": "figures/validation.csv",
            "seed": self.config["seed"],
        }
        others = [f"figures/{name}.csv" for name in (*quality, *modes, "validation")]
        others += [parameters["timing"]]
        self._add("claims", "Claims", "The paper's claims", parameters, others)

    def _made(self, kind):
        return [name for name in self.of(kind) if self.items[name].by_default]

    def tunings(self):
        """Name in hyperparameters.yaml -> experiment, hidden units, ``tuning``, of those made."""
        sizes = self.sizes(*self.config["tuning"]["experiments"])
        named = {f"{name}_{n}h": (name, n, "tuning") for name, n in sizes}
        made = self._made("tune")
        return {name: which for name, which in named.items() if f"figS_tuning_{name}" in made}

    # --------------------------------------------------------------------------------- site

    def site(self):
        """Parameters of the site: its parts, and the runs behind them."""
        shown = {name: item for name, item in self.items.items() if item.by_default}
        titles = {part: {} for part in PARTS}
        for name, item in shown.items():
            titles[item.part][name] = item.title
        parts = [(part, kind, KINDS[kind].suffix, titles[part]) for part, kind in PARTS.items()]
        behind = [
            *dict.fromkeys(
                folder for item in shown.values() for folder in folders_in(item.parameters)
            )
        ]
        return {
            "parts": parts,
            "runs": {folder: self._trained_by(folder) for folder in behind},
            "results": self.results,
        }

    def _trained_by(self, folder):
        """The notebook of a run or sweep; None: archived."""
        if folder.startswith(ARCHIVE):
            return None
        kind, *which = Path(folder).relative_to(self.results).parts
        for name, settings in self.together.items():
            if folder in settings:
                return name
        return "-".join([{"runs": "train", "sweeps": "sweep"}[kind], *which])


def of_runs(folders):
    """The files of runs."""
    return [f"{folder}/{part}" for folder in folders for part in runs.FILES]


def of_sweeps(folders):
    """The files of sweeps."""
    return [f"{folder}/{part}" for folder in folders for part in runs.SWEEP_FILES]


def _files_of(folders):
    """The files of runs and of sweeps."""
    sweeps = [folder for folder in folders if "sweeps" in Path(folder).parts]
    return of_runs(folder for folder in folders if folder not in sweeps) + of_sweeps(sweeps)


def all_archived(folders):
    return all(folder.startswith(ARCHIVE) for folder in folders)


def folders_in(parameters):
    """The runs and sweeps among the parameters of a notebook."""
    found = [*parameters.get("runs", []), *parameters.get("step_matched", [])]
    found += sum(parameters.get("variants", []), [])
    found += sum(parameters.get("groups", {}).values(), [])
    sweeps = parameters.get("sweeps", [])
    return found + [*(sweeps.values() if isinstance(sweeps, dict) else sweeps)]
