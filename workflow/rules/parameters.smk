# The names of runs, figures and tables, and the parameters of their notebooks.

# ----------------------------------------------------------------------------- names of runs


RUN = f"{RESULTS}/runs/{{experiment}}/{{group}}/{{algorithm}}-{{n_hidden}}h"
TRAIN = "train-{experiment}-{group}-{algorithm}-{n_hidden}h"


def run_folder(experiment, algorithm, n_hidden, group):
    return RUN.format(experiment=experiment, algorithm=algorithm, n_hidden=n_hidden, group=group)


def run_folders(experiment, n_hidden, group=GROUP):
    """The run files of all algorithms of an experiment."""
    algorithms = config["experiments"][experiment]["algorithms"]
    return [run_folder(experiment, algorithm, n_hidden, group) for algorithm in algorithms]


def run_files(experiment, n_hidden, group=GROUP, parts=("run.json", "curve.csv")):
    """The named parts of the run files of all algorithms of an experiment."""
    folders = run_folders(experiment, n_hidden, group)
    return [f"{folder}/{part}" for folder in folders for part in parts]


def only_n_hidden(experiment):
    """Hidden units of an experiment that the paper makes with one size only."""
    return config["experiments"][experiment]["n_hidden"][0]


def data_files(experiment):
    """Downloaded files that an experiment needs; none for Bars & Stripes."""
    return [f"data/{file}" for file in data.files_of(config["experiments"][experiment]["dataset"])]


def sources(*names):
    """Source files as inputs, so that a change in one reruns what it decides."""
    return [f"src/sdcpd/{name}" for name in names]


# ----------------------------------------------------------------------- figures and tables

# name -> experiment, hidden units, figure of the paper (None: it shows none)
CURVE_FIGURES = {
    "fig1_bars_and_stripes": ("bars_and_stripes", 4, 1),
    "fig2_mnist": ("mnist", only_n_hidden("mnist"), 2),
    "fig3_caltech": ("caltech", only_n_hidden("caltech"), 3),
    "fig4_kannada": ("kannada", only_n_hidden("kannada"), 4),
} | {
    f"figS_bars_and_stripes_{n}h": ("bars_and_stripes", n, None)
    for n in config["experiments"]["bars_and_stripes"]["n_hidden"]
    if n != 4
}
# name -> experiment, hidden units
SAMPLE_FIGURES = {
    "fig5_mnist_samples": ("mnist", only_n_hidden("mnist")),
    "figS_caltech_samples": ("caltech", only_n_hidden("caltech")),
    "figS_kannada_samples": ("kannada", only_n_hidden("kannada")),
    "figS_bars_and_stripes_samples": ("bars_and_stripes", 4),
}
VALIDATION = "bars_and_stripes_2017"  # the experiment whose published learning rates are known
KNOWN_RATES = [
    g for g, values in HYPERPARAMETERS["hyperparameters"].items() if VALIDATION in values
]


def executed(name):
    """The executed notebook behind a figure or table, and its HTML, which the report shows."""
    return {
        "notebook": f"{RESULTS}/notebooks/{name}.ipynb",
        "html": report(
            f"{RESULTS}/notebooks/{name}.html",
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


def train_parameters(wildcards):
    """The parameters of notebooks/train.ipynb; exactly what decides the run."""
    experiment = config["experiments"][wildcards.experiment]
    algorithm = wildcards.algorithm
    inner = algorithm in ("sdcp", "sdcp_d")
    try:
        groups = HYPERPARAMETERS["hyperparameters"]
        # sorted: the order of the keys in the file must not rerun anything
        values = dict(sorted(groups[wildcards.group][wildcards.experiment][algorithm].items()))
    except KeyError:
        raise WorkflowError(
            f"hyperparameters.yaml has no {algorithm} for {wildcards.experiment} "
            f"in group {wildcards.group}"
        )
    if algorithm == "cg":
        values["sliding_factor"] = experiment["sliding_factor"]
    shared = ("dataset", "trials", "epochs", "batch_size", "evaluate", "ais")
    return {name: experiment[name] for name in shared} | {
        "algorithm": algorithm,
        "n_hidden": int(wildcards.n_hidden),
        "n_gibbs_steps": experiment["n_gibbs_steps_inner" if inner else "n_gibbs_steps"],
        "n_inner_iterations": experiment["n_inner_iterations"] if inner else 1,
        "hyperparameters": values,
        "seed": config["seed"],
        "backend": BACKEND,
        "output": run_folder(wildcards.experiment, algorithm, wildcards.n_hidden, wildcards.group),
    }


def paper_budget(experiment):
    """What the paper spent, so that a figure can say on its face where we spent less."""
    paper = PAPER[experiment]
    return {name: paper[name] for name in ("trials", "epochs", "ais", "samples")}


def curve_parameters(wildcards):
    experiment, n_hidden, number = CURVE_FIGURES[wildcards.name]
    return {
        "runs": run_folders(experiment, n_hidden),
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
