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


def executed():
    """The executed notebook behind a figure or table, and its HTML, which the report shows.

    Where they lie, as figures and tables do, depends on no configuration: of a job that has an
    output for each, Snakemake knows what made it for some only, and then nothing of all.
    """
    shown = {"caption": "../report/notebook.rst", "category": "Executed notebooks"}
    html = report("results/notebooks/{name}.html", labels={"notebook": "{name}"}, **shown)
    return {"notebook": "results/notebooks/{name}.ipynb", "html": html}


def figure(category, caption):
    """The output files of a figure, marked for the report."""
    shown = {"caption": f"../report/{caption}.rst", "category": category}
    svg = report("figures/{name}.svg", labels={"figure": "{name}"}, **shown)
    return {"svg": svg, "files": ["figures/{name}.pdf", "figures/{name}.png"]} | executed()


def table(category, caption):
    """The output files of a table, marked for the report."""
    shown = {"caption": f"../report/{caption}.rst", "category": category}
    csv = report("figures/{name}.csv", labels={"table": "{name}"}, **shown)
    return {"csv": csv, "files": ["figures/{name}.md", "figures/{name}.tex"]} | executed()
