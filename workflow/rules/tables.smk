# Table 1, and the checks of the mathematics; each as CSV, Markdown and LaTeX.


def table(name, category, caption):
    """The output files of a table, marked for the report."""
    return {
        "csv": report(
            f"figures/{name}.csv", caption=caption, category=category, labels={"table": name}
        ),
        "files": [f"figures/{name}.md", f"figures/{name}.tex"],
        "notebook": f"{RESULTS}/notebooks/{name}.ipynb",
        "html": report(
            f"{RESULTS}/notebooks/{name}.html",
            caption="../report/notebook.rst",
            category="Executed notebooks",
            labels={"notebook": name},
        ),
    }


rule timing:
    input:
        sources("timing", "plots", "algorithms", "rbm", "backend", "kernels"),
        "workflow/reference/table1.csv",
        notebook="notebooks/timing.ipynb",
    output:
        **table("table1_timing", "Table 1", "../report/timing.rst"),
    log:
        f"logs/{SCALE}/table1_timing.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/table1_timing.tsv"
    params:
        parameters=config["timing"] | {"backend": BACKEND, "output": "figures/table1_timing"},
    threads: workflow.cores  # all of them: nothing else may run while we measure
    resources:
        gpu=int(GPU),
    conda:
        ENVIRONMENT
    message:
        "Measure Table 1"
    script:
        "../scripts/execute_notebook.py"


VALIDATION = "bars_and_stripes_2017"  # the experiment whose published learning rates are known
KNOWN_RATES = {
    group: values[VALIDATION][config["experiments"][VALIDATION]["algorithms"][0]]["learning_rate"]
    for group, values in HYPERPARAMETERS["hyperparameters"].items()
    if VALIDATION in values
}


rule validation:
    input:
        [run_files(VALIDATION, large_n_hidden(VALIDATION), group) for group in KNOWN_RATES],
        sources("runs", "plots", "likelihood", "sampling", "algorithms", "rbm", "backend"),
        "workflow/reference/published_curves_2017.csv",
        notebook="notebooks/validation.ipynb",
    output:
        report(
            "figures/figS_validation_2017.svg",
            caption="../report/validation_2017.rst",
            category="Validation",
            labels={"figure": "figS_validation_2017"},
        ),
        ["figures/figS_validation_2017.pdf", "figures/figS_validation_2017.png"],
        **table("validation", "Validation", "../report/validation.rst"),
    log:
        f"logs/{SCALE}/validation.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/validation.tsv"
    params:
        parameters=config["validation"]
        | {
            "runs": [
                folder
                for group in KNOWN_RATES
                for folder in run_folders(VALIDATION, large_n_hidden(VALIDATION), group)
            ],
            "paper_budget": paper_budget(VALIDATION),
            "seed": config["seed"],
            "output": "figures/validation",
            "figure_output": "figures/figS_validation_2017",
        },
    conda:
        ENVIRONMENT
    message:
        "Check the mathematics and the published curves of known learning rate"
    script:
        "../scripts/execute_notebook.py"
