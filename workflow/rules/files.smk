# Which files the rules take and make.
from catalogue import PART, RUN, SWEEP, of_runs, of_sweeps

RUN_NAME = "train-{experiment}-{group}-{algorithm}-{n_hidden}h"
PART_NAME = f"{RUN_NAME}-{{first}}-{{last}}"
SWEEP_NAME = "sweep-{experiment}-{kind}-{algorithm}-{n_hidden}h"


def parts_of(wildcards):
    """Where the trials of a run are trained apart."""
    names = "experiment", "group", "algorithm", "n_hidden"
    return CATALOGUE.parts([wildcards[name] for name in names])


def data_files(wildcards):
    """Downloaded files that an experiment needs; none for Bars & Stripes."""
    dataset = config["experiments"][wildcards.experiment]["dataset"]
    return [f"data/{file}" for file in data.files_of(dataset)]


def notebook_of(kind):
    return f"notebooks/{kind}.ipynb"


def made_from(kind):
    """The inputs of a rule: what its items are made of, their notebook, the code that it uses.

    A notebook that Jupyter has saved is another file; it is ``content_of``, a parameter, that counts.
    """
    return {
        "results": lambda wildcards: CATALOGUE.items[wildcards.name].sources,
        "sources": sources_of(notebook_of(kind)),
        "notebook": ancient(notebook_of(kind)),
    }


def one_of(kind):
    """Constraint of a wildcard; without any name it matches none, where "" would match all."""
    return "|".join(CATALOGUE.of(kind)) or "none"


def written(kind):
    """The outputs of a rule: a figure or a table, marked for the report, and its executed notebook.

    Where that lies, as figures and tables do, depends on no configuration: of a job that has an
    output for each, Snakemake knows what made it for some only, and then nothing of all.
    """
    suffix, category, besides, _ = catalogue.KINDS[kind]
    what, others = ("figure", ("pdf", "png")) if suffix == "svg" else ("table", ("md", "tex"))
    of_item = {"caption": f"../report/{kind}.rst", "category": category, "labels": {what: "{name}"}}
    of_notebook = {"caption": "../report/notebook.rst", "category": "Executed notebooks"}
    html = "results/notebooks/{name}.html"
    return {
        suffix: report(f"figures/{{name}}.{suffix}", **of_item),
        "files": [f"figures/{{name}}.{other}" for other in others],
        "notebook": "results/notebooks/{name}.ipynb",
        "html": report(html, labels={"notebook": "{name}"}, **of_notebook),
        **besides,
    }
