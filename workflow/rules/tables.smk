# Table 1, and the checks of the mathematics; each as CSV, Markdown and LaTeX.


rule timing:
    input:
        ARCHIVED_TIMING or [],
        **run_by("timing"),
    output:
        **table("table1_timing", "Table 1", "../report/timing.rst"),
        seconds=TIMING,
    log:
        f"logs/{SCALE}/table1_timing.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/table1_timing.tsv"
    conda:
        ENVIRONMENT
    # All cores and GPUs: nothing else may run while we measure. (workflow.cores fails with --report.)
    threads: workflow.resource_settings.cores or 1
    resources:
        gpu=GPU_JOBS if GPU else 0,
    params:
        content=content_of("notebooks/timing.ipynb"),
        parameters=config["timing"]
        | {
            "backend": BACKEND,
            "archived": ARCHIVED_TIMING,
            "seconds_output": TIMING,
            "output": "figures/table1_timing",
        },
    message:
        "Measure Table 1"
    script:
        "../scripts/execute_notebook.py"


rule validation:
    input:
        [
            files(run_folders(VALIDATION, only_n_hidden(VALIDATION), group), runs.FILES)
            for group in KNOWN_RATES
        ],
        **run_by("validation"),
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
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/validation.ipynb"),
        parameters=config["validation"]
        | {
            "runs": [
                folder
                for group in KNOWN_RATES
                for folder in run_folders(VALIDATION, only_n_hidden(VALIDATION), group)
            ],
            "paper_budget": paper_budget(VALIDATION),
            "seed": config["seed"],
            "output": "figures/validation",
            "figure_output": "figures/figS_validation_2017",
        },
    message:
        "Check the mathematics and the published curves of known learning rate"
    script:
        "../scripts/execute_notebook.py"
