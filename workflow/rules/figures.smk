# Figures 1–5 and those of results that the paper only mentions; each as PDF, PNG and SVG.

# name -> experiment, hidden units, figure of the paper (None: it shows none)
CURVE_FIGURES = {
    "fig1_bars_and_stripes": ("bars_and_stripes", 4, 1),
    "fig2_mnist": ("mnist", large_n_hidden("mnist"), 2),
    "fig3_caltech": ("caltech", large_n_hidden("caltech"), 3),
    "fig4_kannada": ("kannada", large_n_hidden("kannada"), 4),
} | {
    f"figS_bars_and_stripes_{n}h": ("bars_and_stripes", n, None)
    for n in config["experiments"]["bars_and_stripes"]["n_hidden"]
    if n != 4
}
# name -> experiment, hidden units
SAMPLE_FIGURES = {
    "fig5_mnist_samples": ("mnist", large_n_hidden("mnist")),
    "figS_caltech_samples": ("caltech", large_n_hidden("caltech")),
    "figS_kannada_samples": ("kannada", large_n_hidden("kannada")),
    "figS_bars_and_stripes_samples": ("bars_and_stripes", 4),
}
FORMATS = ["pdf", "png", "svg"]


def figure(category, caption):
    """The output files of a figure, marked for the report."""
    return {
        "svg": report(
            "figures/{name}.svg", caption=caption, category=category, labels={"figure": "{name}"}
        ),
        "files": ["figures/{name}.pdf", "figures/{name}.png"],
        "notebook": RESULTS + "/notebooks/{name}.ipynb",
        "html": report(
            RESULTS + "/notebooks/{name}.html",
            caption="../report/notebook.rst",
            category="Executed notebooks",
            labels={"notebook": "{name}"},
        ),
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


rule curves:
    input:
        lambda wildcards: run_files(*CURVE_FIGURES[wildcards.name][:2]),
        sources("runs", "plots"),
        "workflow/reference/published_curves_2019.csv",
        notebook="notebooks/curves.ipynb",
    output:
        **figure("Likelihood curves", "../report/curves.rst"),
        table="figures/{name}.csv",
    log:
        "logs/" + SCALE + "/{name}.log",
    benchmark:
        "logs/benchmarks/" + SCALE + "/{name}.tsv"
    params:
        parameters=curve_parameters,
    wildcard_constraints:
        name="|".join(CURVE_FIGURES),
    conda:
        ENVIRONMENT
    message:
        "Draw {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


def sample_parameters(wildcards):
    experiment, n_hidden = SAMPLE_FIGURES[wildcards.name]
    return {
        "runs": run_folders(experiment, n_hidden),
        "paper_budget": paper_budget(experiment),
        "seed": config["seed"],
        "backend": BACKEND,
        "output": f"figures/{wildcards.name}",
    } | config["experiments"][experiment]["samples"]


rule samples:
    input:
        lambda wildcards: run_files(
            *SAMPLE_FIGURES[wildcards.name], parts=("run.json", "models.npz")
        ),
        sources("runs", "plots", "sampling", "rbm", "backend", "kernels"),
        notebook="notebooks/samples.ipynb",
    output:
        **figure("Generated samples", "../report/samples.rst"),
        images="figures/{name}.npz",
    log:
        "logs/" + SCALE + "/{name}.log",
    benchmark:
        "logs/benchmarks/" + SCALE + "/{name}.tsv"
    params:
        parameters=sample_parameters,
    wildcard_constraints:
        name="|".join(SAMPLE_FIGURES),
    resources:
        mem_mb=2000,
        gpu=int(GPU),
    conda:
        ENVIRONMENT
    message:
        "Generate {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"
