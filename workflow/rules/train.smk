# One run: all trials of an experiment × algorithm × number of hidden units × hyperparameters.


def train_parameters(wildcards):
    """The parameters of notebooks/train.ipynb; exactly what decides the run."""
    experiment = config["experiments"][wildcards.experiment]
    algorithm = wildcards.algorithm
    inner = algorithm in ("sdcp", "sdcp_d")
    try:
        groups = HYPERPARAMETERS["hyperparameters"]
        values = dict(groups[wildcards.group][wildcards.experiment][algorithm])
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


rule train:
    input:
        lambda wildcards: data_files(wildcards.experiment),
        sources(*runs.SOURCES),
        notebook="notebooks/train.ipynb",
    output:
        [RESULTS + "/runs/{experiment}/{group}/{algorithm}-{n_hidden}h/" + f for f in runs.FILES],
        notebook=RESULTS
        + "/notebooks/train-{experiment}-{group}-{algorithm}-{n_hidden}h.ipynb",
        html=report(
            RESULTS + "/notebooks/train-{experiment}-{group}-{algorithm}-{n_hidden}h.html",
            caption="../report/train.rst",
            category="Training runs",
            subcategory="{experiment}",
            labels={"algorithm": "{algorithm}", "hidden units": "{n_hidden}", "settings": "{group}"},
        ),
    log:
        "logs/" + SCALE + "/train-{experiment}-{group}-{algorithm}-{n_hidden}h.log",
    benchmark:
        "logs/benchmarks/" + SCALE + "/train-{experiment}-{group}-{algorithm}-{n_hidden}h.tsv"
    params:
        parameters=train_parameters,
    wildcard_constraints:
        experiment="[a-z0-9_]+",
        algorithm="[a-z_]+",
        n_hidden=r"\d+",
        group="[a-z0-9_.]+",
    threads: 1  # trials side by side use two cores better than one trial on two threads
    resources:
        mem_mb=3000,
        gpu=int(GPU),
    conda:
        ENVIRONMENT
    message:
        "Train {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"
    script:
        "../scripts/execute_notebook.py"
