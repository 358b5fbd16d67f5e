# One run: all trials of an experiment × algorithm × number of hidden units × hyperparameters; in one
# job, or, with trials_per_job, in several, whose results are then put together. Where all of it takes
# seconds, one job for all algorithms. Sweeps over settings, and the target that adopts the best.


rule train:
    input:
        data_files,
        lambda wildcards: of_runs(parts_of(wildcards)),
        sources_of_module("runs"),
        notebook=ancient(notebook_of("train")),
    output:
        of_runs([f"{RESULTS}/{RUN}"]),
        notebook=f"{RESULTS}/notebooks/{RUN_NAME}.ipynb",
        html=report(
            f"{RESULTS}/notebooks/{RUN_NAME}.html",
            caption="../report/train.rst",
            category="Training runs",
            subcategory="{experiment}",
            labels={
                "algorithm": "{algorithm}",
                "hidden units": "{n_hidden}",
                "settings": "{group}",
            },
        ),
    log:
        f"logs/{SCALE}/{RUN_NAME}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{RUN_NAME}.tsv"
    wildcard_constraints:
        experiment="|".join(n for n, e in config["experiments"].items() if not e["one_job"])
        or "none",
        algorithm="[a-z_]+",
        n_hidden=r"\d+",
        group="[a-z0-9_.]+",
    conda:
        ENVIRONMENT
    threads: 1  # trials side by side use two cores better than one trial on two threads
    resources:
        mem_mb=3000,
        gpu=lambda wildcards: int(GPU and not parts_of(wildcards)),
    params:
        content=content_of(notebook_of("train")),
        parameters=CATALOGUE.train_parameters,
    message:
        "Train {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"
    script:
        "../scripts/execute_notebook.py"


use rule train as train_part with:
    input:
        data_files,
        sources_of_module("runs"),
        notebook=ancient(notebook_of("train")),
    output:
        of_runs([f"{RESULTS}/{PART}"]),
        notebook=f"{RESULTS}/notebooks/parts/{PART_NAME}.ipynb",
        html=f"{RESULTS}/notebooks/parts/{PART_NAME}.html",
    log:
        f"logs/{SCALE}/{PART_NAME}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{PART_NAME}.tsv"
    resources:
        mem_mb=3000,
        gpu=int(GPU),
    message:
        "Train trials {wildcards.first} to {wildcards.last} of {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"


for name, settings in CATALOGUE.together.items():

    rule:
        name:
            name.replace("-", "_").replace(".", "_")
        input:
            sorted({f"data/{f}" for s in settings.values() for f in data.files_of(s["dataset"])}),
            sources_of_module("runs"),
            notebook=ancient(notebook_of("train")),
        output:
            of_runs(settings),
            notebook=f"{RESULTS}/notebooks/{name}.ipynb",
            html=report(
                f"{RESULTS}/notebooks/{name}.html",
                caption="../report/train.rst",
                category="Training runs",
                labels={"run": name.removeprefix("train-")},
            ),
        log:
            f"logs/{SCALE}/{name}.log",
        benchmark:
            f"logs/benchmarks/{SCALE}/{name}.tsv"
        conda:
            ENVIRONMENT
        resources:
            mem_mb=3000,
            gpu=int(GPU),
        params:
            content=content_of(notebook_of("train")),
            parameters={"runs": settings, "backend": BACKEND},
        message:
            f"Train {', '.join(s['algorithm'] for s in settings.values())}: {name.removeprefix('train-')}"
        script:
            "../scripts/execute_notebook.py"


use rule train_part as sweep with:
    input:
        data_files,
        sources_of_module("runs"),
        notebook=ancient(notebook_of("sweep")),
    output:
        of_sweeps([f"{RESULTS}/{SWEEP}"]),
        notebook=f"{RESULTS}/notebooks/{SWEEP_NAME}.ipynb",
        html=report(
            f"{RESULTS}/notebooks/{SWEEP_NAME}.html",
            caption="../report/train.rst",
            category="Sweeps",
            subcategory="{experiment}",
            labels={
                "algorithm": "{algorithm}",
                "hidden units": "{n_hidden}",
                "settings": "{kind}",
            },
        ),
    log:
        f"logs/{SCALE}/{SWEEP_NAME}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{SWEEP_NAME}.tsv"
    wildcard_constraints:
        experiment="[a-z0-9_]+",
        algorithm="[a-z_]+",
        n_hidden=r"\d+",
        kind="tuning|published|sensitivity_[a-z0-9_.]+",
    params:
        content=content_of(notebook_of("sweep")),
        parameters=CATALOGUE.sweep_parameters,
    message:
        "Sweep {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"


rule adopt:
    # A target for whoever tunes anew: write what is chosen to hyperparameters.yaml.
    input:
        [of_sweeps(CATALOGUE.sweeps(*which)) for which in CATALOGUE.tunings().values()],
    log:
        f"logs/{SCALE}/adopt.log",
    conda:
        ENVIRONMENT
    params:
        tunings={name: CATALOGUE.sweeps(*which) for name, which in CATALOGUE.tunings().items()},
    message:
        "Write the chosen settings to workflow/config/hyperparameters.yaml"
    script:
        "../scripts/adopt.py"
