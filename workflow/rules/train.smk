# One run: all trials of an experiment × algorithm × number of hidden units × hyperparameters.


rule train:
    input:
        lambda wildcards: data_files(wildcards.experiment),
        sources("experiments.py", *runs.SOURCES),
        notebook="notebooks/train.ipynb",
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
        gpu=int(GPU),
    params:
        parameters=train_parameters,
    message:
        "Train {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"
    script:
        "../scripts/execute_notebook.py"
