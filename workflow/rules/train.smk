# One run: all trials of an experiment × algorithm × number of hidden units × hyperparameters; in one
# job, or, with trials_per_job, in several, whose results are then put together.


rule train:
    input:
        lambda wildcards: data_files(wildcards.experiment),
        lambda wildcards: files(part_folders(wildcards), runs.FILES),
        sources_of_module("runs"),
        notebook=ancient("notebooks/train.ipynb"),
    output:
        [f"{RUN}/{part}" for part in runs.FILES],
        notebook=f"{RESULTS}/notebooks/{TRAIN}.ipynb",
        html=report(
            f"{RESULTS}/notebooks/{TRAIN}.html",
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
        f"logs/{SCALE}/{TRAIN}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{TRAIN}.tsv"
    wildcard_constraints:
        experiment="[a-z0-9_]+",
        algorithm="[a-z_]+",
        n_hidden=r"\d+",
        group="[a-z0-9_.]+",
    conda:
        ENVIRONMENT
    threads: 1  # trials side by side use two cores better than one trial on two threads
    resources:
        mem_mb=3000,
        gpu=lambda wildcards: int(GPU and not part_folders(wildcards)),
    params:
        content=content_of("notebooks/train.ipynb"),
        parameters=train_parameters,
    message:
        "Train {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"
    script:
        "../scripts/execute_notebook.py"


use rule train as train_part with:
    input:
        lambda wildcards: data_files(wildcards.experiment),
        sources_of_module("runs"),
        notebook=ancient("notebooks/train.ipynb"),
    output:
        [f"{PART}/{part}" for part in runs.FILES],
        notebook=f"{RESULTS}/notebooks/parts/{TRAIN}-{{first}}-{{last}}.ipynb",
        html=f"{RESULTS}/notebooks/parts/{TRAIN}-{{first}}-{{last}}.html",
    log:
        f"logs/{SCALE}/{TRAIN}-{{first}}-{{last}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{TRAIN}-{{first}}-{{last}}.tsv"
    resources:
        mem_mb=3000,
        gpu=int(GPU),
    params:
        content=content_of("notebooks/train.ipynb"),
        parameters=part_parameters,
    message:
        "Train trials {wildcards.first} to {wildcards.last} of {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"
