# The names of runs, figures and tables, and the parameters of their notebooks.

# ----------------------------------------------------------------------------- names of runs


USES_ARCHIVE = config["runs"] == "archive" or (config["runs"] == "auto" and not GPU)
RUN = f"{RESULTS}/runs/{{experiment}}/{{group}}/{{algorithm}}-{{n_hidden}}h"
SWEEP = f"{RESULTS}/sweeps/{{experiment}}/{{kind}}/{{algorithm}}-{{n_hidden}}h"
PART = f"{RESULTS}/parts/{{experiment}}/{{group}}/{{algorithm}}-{{n_hidden}}h/{{first}}-{{last}}"
TRAIN = "train-{experiment}-{group}-{algorithm}-{n_hidden}h"
SWEPT = "sweep-{experiment}-{kind}-{algorithm}-{n_hidden}h"


def settings_of(maker, *which):
    """``experiments.run_settings`` or ``sweep_settings`` of the present configuration."""
    try:
        return maker(config, GROUPS, *which)
    except experiments.ConfigError as error:
        raise WorkflowError(str(error))


def archived(folder, settings):
    """Where the archive has this run or sweep, with these hyperparameters; None if it has not."""
    found = folder.replace(RESULTS, ARCHIVE)
    known = archive.settings_of(found)
    same = known and known["hyperparameters"] == settings["hyperparameters"]
    return found if same else None


def run_folder(experiment, algorithm, n_hidden, group):
    """Folder of a run: in the archive, if it is to be taken from there and it has it.

    Small models are trained wherever the workflow runs, unless runs=archive.
    """
    here = RUN.format(experiment=experiment, algorithm=algorithm, n_hidden=n_hidden, group=group)
    large = config["experiments"][experiment]["ais"] is not None
    if USES_ARCHIVE and (large or config["runs"] == "archive"):
        which = experiment, group, algorithm, n_hidden
        return archived(here, settings_of(experiments.run_settings, *which)) or here
    return here


def sweep_folder(experiment, algorithm, n_hidden, kind):
    """Folder of a sweep: in the archive, if it is to be taken from there and it has it."""
    here = SWEEP.format(experiment=experiment, algorithm=algorithm, n_hidden=n_hidden, kind=kind)
    if USES_ARCHIVE:
        which = experiment, kind, algorithm, n_hidden
        return archived(here, settings_of(experiments.sweep_settings, *which)) or here
    return here


def algorithms_of(experiment, n_hidden, group):
    """The algorithms of an experiment for which a group has hyperparameters."""
    known = experiments.algorithms_of(GROUPS, group, experiment, n_hidden)
    if group in (*experiments.TUNED, "step_matched"):
        return [a for a in config["experiments"][experiment]["algorithms"] if a in known]
    return config["experiments"][experiment]["algorithms"]


def run_folders(experiment, n_hidden, group=GROUP):
    """The runs of all algorithms of an experiment."""
    algorithms = algorithms_of(experiment, n_hidden, group)
    return [run_folder(experiment, algorithm, n_hidden, group) for algorithm in algorithms]


def sweep_folders(experiment, n_hidden, kind):
    """The sweeps of all algorithms over their grids, or the one of S-DCP-D over ε and λ_H."""
    algorithms = config["experiments"][experiment]["algorithms"]
    algorithms = algorithms if kind in ("tuning", "published") else ["sdcp_d"]
    return [sweep_folder(experiment, algorithm, n_hidden, kind) for algorithm in algorithms]


def files(folders, parts):
    """The named parts of these runs or sweeps."""
    return [f"{folder}/{part}" for folder in folders for part in parts]


def only_n_hidden(experiment):
    """Hidden units of an experiment that the paper makes with one size only."""
    return config["experiments"][experiment]["n_hidden"][0]


def data_files(experiment):
    """Downloaded files that an experiment needs; none for Bars & Stripes."""
    return [f"data/{file}" for file in data.files_of(config["experiments"][experiment]["dataset"])]


def run_by(notebook):
    """Inputs of a rule: a notebook and the package's modules that it uses.

    A notebook that Jupyter has saved is another file; it is ``content_of`` that counts.
    """
    path = f"notebooks/{notebook}.ipynb"
    return {"notebook": ancient(path), "sources": sources_of(path)}


# ----------------------------------------------------------------------- figures and tables


def tuned_groups(experiment, n_hidden):
    """The groups of equally tuned hyperparameters that hyperparameters.yaml has for this."""
    return [g for g in experiments.TUNED if algorithms_of(experiment, n_hidden, g)]


def sizes(experiment):
    return [(experiment, n) for n in config["experiments"][experiment]["n_hidden"]]


LARGE = ("mnist", "caltech", "kannada")
# name -> experiment, hidden units, group, figure of the paper (None: it shows none)
CURVE_FIGURES = {
    "fig1_bars_and_stripes": ("bars_and_stripes", 4, GROUP, 1),
    "fig2_mnist": ("mnist", only_n_hidden("mnist"), GROUP, 2),
    "fig3_caltech": ("caltech", only_n_hidden("caltech"), GROUP, 3),
    "fig4_kannada": ("kannada", only_n_hidden("kannada"), GROUP, 4),
} | {
    f"figS_bars_and_stripes_{n}h": ("bars_and_stripes", n, GROUP, None)
    for n in config["experiments"]["bars_and_stripes"]["n_hidden"]
    if n != 4
}
CURVE_FIGURES |= {
    f"figS_{experiment}_{n}h_{group}": (experiment, n, group, None)
    for name in ("bars_and_stripes", *LARGE)
    for experiment, n in sizes(name)
    for group in tuned_groups(experiment, n)
}
CURVE_FIGURES = {n: what for n, what in CURVE_FIGURES.items() if algorithms_of(*what[:3])}
# name -> experiment, hidden units
SAMPLE_FIGURES = {
    "fig5_mnist_samples": ("mnist", only_n_hidden("mnist")),
    "figS_caltech_samples": ("caltech", only_n_hidden("caltech")),
    "figS_kannada_samples": ("kannada", only_n_hidden("kannada")),
    "figS_bars_and_stripes_samples": ("bars_and_stripes", 4),
}
SAMPLE_FIGURES = {n: what for n, what in SAMPLE_FIGURES.items() if algorithms_of(*what, GROUP)}
# name -> experiment, hidden units, kind of the sweeps
GRID_FIGURES = {
    f"figS_{kind}_{experiment}_{n}h": (experiment, n, kind)
    for kind in ("tuning", "published")
    for name in config[kind]["experiments"]
    for experiment, n in sizes(name)
}
# name -> experiment, hidden units, groups from which S-DCP-D's learning rate is taken
SENSITIVITY_FIGURES = {
    f"figS_sensitivity_{name}": (
        name,
        only_n_hidden(name),
        ["as_published", *tuned_groups(name, only_n_hidden(name))[:1]],
    )
    for name in config["sensitivity"]["experiments"]
}
# name -> experiment, hidden units, group
HIDDEN_MODES = {
    f"figS_hidden_modes_{name}": (name, only_n_hidden(name), GROUP)
    for name in LARGE
    if algorithms_of(name, only_n_hidden(name), GROUP)
}
QUALITY = {
    f"sample_quality_{name}{'' if group == GROUP else f'_{group}'}": (name, n, group)
    for name in LARGE
    for _, n in sizes(name)
    for group in dict.fromkeys((GROUP, *tuned_groups(name, n)))
    if algorithms_of(name, n, group) and group != "tuned_speed"
}
# name -> experiments beside each other
ABLATIONS = {
    f"figS_ablation_{name}": [name, *others]
    for name, others in config["ablations"].items()
    if others and algorithms_of(name, only_n_hidden(name), GROUP)
}
# name -> experiment and hidden units; of a dataset with validation images
OVERFITTING = {
    n: what
    for n, what in {"figS_overfitting_caltech": ("caltech", only_n_hidden("caltech"))}.items()
    if algorithms_of(*what, GROUP)
}
VALIDATION = "bars_and_stripes_2017"  # the experiment whose published learning rates are known
KNOWN_RATES = [g for g, values in GROUPS.items() if VALIDATION in values]


def made_by_default(experiment, folders):
    """Whether sweeps are made without being asked for: small models, archived, or on a GPU."""
    return experiment == "bars_and_stripes" or GPU or all(f.startswith(ARCHIVE) for f in folders)


def study():
    """What of all this is made without being asked for, by name."""
    names = [
        n
        for n, (e, size, kind) in GRID_FIGURES.items()
        if made_by_default(e, sweep_folders(e, size, kind))
    ]
    names += [
        n
        for n, (e, size, groups) in SENSITIVITY_FIGURES.items()
        if made_by_default(e, [sweep_folder(e, "sdcp_d", size, f"sensitivity_{g}") for g in groups])
    ]
    quick = GPU or SCALE == "smoke"  # to be made here; archived ones always are
    names += [n for n in HIDDEN_MODES if quick or measured("modes", n).startswith(ARCHIVE)]
    names += [
        n
        for n, folders in ((n, sum(ablation_runs(n), [])) for n in ABLATIONS)
        if quick or all(folder.startswith(ARCHIVE) for folder in folders)
    ]
    return [*names, *QUALITY, *OVERFITTING]


def measured(kind, name):
    """The folder of measurements of final models, in the archive or here."""
    experiment, n_hidden, group = {"modes": HIDDEN_MODES, "quality": QUALITY}[kind][name]
    here = f"{RESULTS}/{kind}/{experiment}-{group}-{n_hidden}h"
    stored = here.replace(RESULTS, ARCHIVE)
    # of other models than those that the archive holds they would say nothing
    same = all(folder.startswith(ARCHIVE) for folder in run_folders(experiment, n_hidden, group))
    archived_ = same and config["measurements"] == "archived" and Path(stored).exists()
    return stored if archived_ else here


def measured_input(kind, name):
    """The archived measurements, where they are to be taken from there; else the data to measure."""
    folder = measured(kind, name)
    if folder.startswith(ARCHIVE):
        return sorted(map(str, Path(folder).iterdir()))
    experiment, *_ = {"modes": HIDDEN_MODES, "quality": QUALITY}[kind][name]
    dataset = config["experiments"][experiment]["dataset"]
    labelled = data.labelled_files_of(dataset) if kind == "quality" else []
    return [f"data/{f}" for f in dict.fromkeys([*data.files_of(dataset), *labelled])]


def ablation_runs(name):
    """The runs of each choice of an ablation."""
    return [run_folders(experiment, only_n_hidden(experiment)) for experiment in ABLATIONS[name]]


def one_of(names):
    """Constraint of a wildcard; without any name it matches none, where "" would match all."""
    return "|".join(names) or "none"


def executed(name):
    """The executed notebook behind a figure or table, and its HTML, which the report shows.

    Where they lie, as figures and tables do, depends on no configuration: of a job that has an
    output for each, Snakemake knows what made it for some only, and then nothing of all.
    """
    return {
        "notebook": f"results/notebooks/{name}.ipynb",
        "html": report(
            f"results/notebooks/{name}.html",
            caption="../report/notebook.rst",
            category="Executed notebooks",
            labels={"notebook": name},
        ),
    }


def figure(category, caption):
    """The output files of a figure, marked for the report."""
    return {
        "svg": report(
            "figures/{name}.svg",
            caption=caption,
            category=category,
            labels={"figure": "{name}"},
        ),
        "files": ["figures/{name}.pdf", "figures/{name}.png"],
    } | executed("{name}")


def table(name, category, caption):
    """The output files of a table, marked for the report."""
    return {
        "csv": report(
            f"figures/{name}.csv",
            caption=caption,
            category=category,
            labels={"table": name},
        ),
        "files": [f"figures/{name}.md", f"figures/{name}.tex"],
    } | executed(name)


# ---------------------------------------------------------------- parameters of the notebooks


def train_settings(wildcards):
    names = wildcards.experiment, wildcards.group, wildcards.algorithm, wildcards.n_hidden
    return settings_of(experiments.run_settings, *names)


def part_folders(wildcards):
    """Where the trials of a run are trained apart; nowhere, if they fit into one job."""
    n_trials = train_settings(wildcards)["trials"]
    size = config["trials_per_job"] or n_trials
    bounds = [(first, min(first + size, n_trials) - 1) for first in range(0, n_trials, size)]
    parts = [PART.format(**wildcards, first=first, last=last) for first, last in bounds]
    return parts if len(parts) > 1 else []


def train_parameters(wildcards):
    """The parameters of notebooks/train.ipynb; exactly what decides the run."""
    own = {"backend": BACKEND, "output": RUN.format(**wildcards), "parts": part_folders(wildcards)}
    return train_settings(wildcards) | own


def part_parameters(wildcards):
    """The same for some of the trials."""
    only = [int(wildcards.first), int(wildcards.last)]
    own = {"backend": BACKEND, "output": PART.format(**wildcards), "only_trials": only}
    return train_settings(wildcards) | own


def sweep_parameters(wildcards):
    """The parameters of notebooks/sweep.ipynb."""
    names = wildcards.experiment, wildcards.kind, wildcards.algorithm, wildcards.n_hidden
    settings = settings_of(experiments.sweep_settings, *names)
    return settings | {"backend": BACKEND, "output": SWEEP.format(**wildcards)}


def paper_budget(experiment):
    """What the paper spent, so that a figure can say on its face where we spent less."""
    paper = PAPER["experiments"][experiment]
    return {name: paper[name] for name in ("trials", "epochs", "ais", "samples")}


def curve_runs(name):
    """The runs of a figure, and the step-matched baselines beside them."""
    experiment, n_hidden, group, _ = CURVE_FIGURES[name]
    baselines = group == "tuned_speed"
    return (
        run_folders(experiment, n_hidden, group),
        run_folders(experiment, n_hidden, "step_matched") if baselines else [],
    )


def curve_parameters(wildcards):
    experiment, _, group, number = CURVE_FIGURES[wildcards.name]
    folders, baselines = curve_runs(wildcards.name)
    return {
        "runs": folders,
        "step_matched": baselines,
        "group": group,
        "published_figure": number,
        "paper_budget": paper_budget(experiment),
        "output": f"figures/{wildcards.name}",
    }


def sample_parameters(wildcards):
    experiment, n_hidden = SAMPLE_FIGURES[wildcards.name]
    return {
        "runs": run_folders(experiment, n_hidden),
        "paper_budget": paper_budget(experiment),
        "seed": config["seed"],
        "backend": BACKEND,
        "output": f"figures/{wildcards.name}",
    } | config["experiments"][experiment]["samples"]


def tune_parameters(wildcards):
    experiment, n_hidden, kind = GRID_FIGURES[wildcards.name]
    number = {e: f for e, n, _, f in CURVE_FIGURES.values() if f and n == n_hidden}.get(experiment)
    # the images of a tuning are not those of the published curves, but for Bars & Stripes
    comparable = kind == "published" or experiment == "bars_and_stripes"
    in_use = {}
    for group in CHOSEN if kind == "tuning" else ():
        known = GROUPS.get(group, {}).get(f"{experiment}_{n_hidden}h", {})
        # sorted: the order of the keys in the file must not rerun anything
        in_use[group] = {a: dict(sorted(known[a].items())) for a in sorted(known)}
    return {
        "sweeps": sweep_folders(experiment, n_hidden, kind),
        "in_use": in_use,
        "published_figure": number if comparable else None,
        "study_epochs": study_epochs(kind, experiment),
        "output": f"figures/{wildcards.name}",
    }


CHOSEN = (*experiments.TUNED, "step_matched")


def sensitivity_parameters(wildcards):
    experiment, n_hidden, groups = SENSITIVITY_FIGURES[wildcards.name]
    return {
        "sweeps": {
            group: sweep_folder(experiment, "sdcp_d", n_hidden, f"sensitivity_{group}")
            for group in groups
        },
        "output": f"figures/{wildcards.name}",
    }


def hidden_modes_parameters(wildcards):
    return config["hidden_modes"] | {
        "runs": run_folders(*HIDDEN_MODES[wildcards.name]),
        "folder": measured("modes", wildcards.name),
        "mirror": config["data_mirror"] or None,
        "backend": BACKEND,
        "output": f"figures/{wildcards.name}",
    }


def quality_parameters(wildcards):
    experiment, *_ = QUALITY[wildcards.name]
    return config["quality"] | {
        "runs": run_folders(*QUALITY[wildcards.name]),
        "folder": measured("quality", wildcards.name),
        "seed": config["seed"],
        "paper_budget": paper_budget(experiment),
        "backend": BACKEND,
        "output": f"figures/{wildcards.name}",
    }


def ablation_parameters(wildcards):
    return {
        "variants": ablation_runs(wildcards.name),
        "paper_budget": paper_budget(ABLATIONS[wildcards.name][0]),
        "output": f"figures/{wildcards.name}",
    }


def overfitting_parameters(wildcards):
    experiment, n_hidden = OVERFITTING[wildcards.name]
    return {
        "runs": run_folders(experiment, n_hidden),
        "paper_budget": paper_budget(experiment),
        "output": f"figures/{wildcards.name}",
    }


# ---------------------------------------------------------------------- evidence of the claims


def claim_runs():
    """Every run that claims are judged by: as published and, where there are, equally tuned."""
    return [
        folder
        for name in ("bars_and_stripes", *LARGE)
        for experiment, n in sizes(name)
        for group in ("as_published", *CHOSEN)
        for folder in run_folders(experiment, n, group)
    ]


def claim_sweeps():
    """Every sweep that claims are judged by, of those that are made without being asked for."""
    sensitivities = [
        (experiment, n, f"sensitivity_{group}")
        for name, (experiment, n, groups) in SENSITIVITY_FIGURES.items()
        for group in groups
        if name in STUDY
    ]
    which = [*tunings().values(), *sensitivities]
    return [folder for each in which for folder in sweep_folders(*each)]


def tunings():
    """Name in hyperparameters.yaml -> experiment, hidden units, ``tuning``."""
    return {
        f"{experiment}_{n}h": (experiment, n, kind)
        for name, (experiment, n, kind) in GRID_FIGURES.items()
        if name in STUDY and kind == "tuning"
    }


def claim_budgets():
    """The paper's epochs, of which a verdict says how many there were; and images of a model."""
    runs_ = [[name, "run", values["epochs"]] for name, values in PAPER["experiments"].items()]
    return runs_ + [[name, "quality", PAPER["quality"]["n_images"]] for name in LARGE]


def study_epochs(kind, experiment):
    """Epochs that the study gives to the sweeps of an experiment."""
    of_all = PAPER["experiments"][experiment]["epochs"]
    return PAPER[kind]["experiments"][experiment].get("epochs", of_all)


TIMING = "results/timing/table1.json"
ARCHIVED_TIMING = f"{ARCHIVE}/timing/table1.json"
if not (USES_ARCHIVE and Path(ARCHIVED_TIMING).exists()):
    ARCHIVED_TIMING = None
STUDY = study()
MEASURED_MODES = [name for name in HIDDEN_MODES if name in STUDY]  # judge a claim
