# Beyond the paper's figures: equal tuning, sensitivity to ε and λ_H, modes that plain AIS misses, a part
# of an archived run trained again, and the verdict on each claim.


rule sweep:
    input:
        lambda wildcards: data_files(wildcards.experiment),
        sources_of_module("runs"),
        notebook=ancient("notebooks/sweep.ipynb"),
    output:
        [f"{SWEEP}/{part}" for part in runs.SWEEP_FILES],
        notebook=f"{RESULTS}/notebooks/{SWEPT}.ipynb",
        html=report(
            f"{RESULTS}/notebooks/{SWEPT}.html",
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
        f"logs/{SCALE}/{SWEPT}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{SWEPT}.tsv"
    wildcard_constraints:
        experiment="[a-z0-9_]+",
        algorithm="[a-z_]+",
        n_hidden=r"\d+",
        kind="tuning|published|sensitivity_[a-z0-9_.]+",
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=3000,
        gpu=int(GPU),
    params:
        content=content_of("notebooks/sweep.ipynb"),
        parameters=sweep_parameters,
    message:
        "Sweep {wildcards.algorithm} on {wildcards.experiment}, {wildcards.n_hidden} hidden units"
    script:
        "../scripts/execute_notebook.py"


rule tune:
    input:
        lambda wildcards: files(sweep_folders(*GRID_FIGURES[wildcards.name]), runs.SWEEP_FILES),
        **run_by("tune"),
    output:
        **figure("Tuning", "../report/tune.rst"),
        tables=["figures/{name}.csv", "figures/{name}.md", "figures/{name}.tex"],
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(GRID_FIGURES),
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/tune.ipynb"),
        parameters=tune_parameters,
    message:
        "Compare the settings of {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule adopt:
    # A target for whoever tunes anew: write what is chosen to hyperparameters.yaml.
    input:
        [files(sweep_folders(*which), runs.SWEEP_FILES) for which in tunings().values()],
    log:
        f"logs/{SCALE}/adopt.log",
    conda:
        ENVIRONMENT
    params:
        tunings=lambda wildcards: {name: sweep_folders(*which) for name, which in tunings().items()},
    message:
        "Write the chosen settings to workflow/config/hyperparameters.yaml"
    script:
        "../scripts/adopt.py"


rule sensitivity:
    input:
        lambda wildcards: files(
            sensitivity_parameters(wildcards)["sweeps"].values(), runs.SWEEP_FILES
        ),
        **run_by("sensitivity"),
    output:
        **figure("Sensitivity", "../report/sensitivity.rst"),
        table="figures/{name}.csv",
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(SENSITIVITY_FIGURES),
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/sensitivity.ipynb"),
        parameters=sensitivity_parameters,
    message:
        "Draw {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule hidden_modes:
    input:
        lambda wildcards: files(run_folders(*HIDDEN_MODES[wildcards.name]), runs.FILES),
        lambda wildcards: measured_input("modes", wildcards.name),
        **run_by("hidden_modes"),
    output:
        **figure("Hidden modes", "../report/hidden_modes.rst"),
        tables=["figures/{name}.csv", "figures/{name}.md", "figures/{name}.tex"],
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(HIDDEN_MODES),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
        gpu=int(GPU),
    params:
        content=content_of("notebooks/hidden_modes.ipynb"),
        parameters=hidden_modes_parameters,
    message:
        "What plain AIS does not see: {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule quality:
    input:
        lambda wildcards: files(run_folders(*QUALITY[wildcards.name]), runs.FILES),
        lambda wildcards: measured_input("quality", wildcards.name),
        **run_by("quality"),
    output:
        **table("{name}", "Generated samples", "../report/quality.rst"),
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(QUALITY),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
        gpu=int(GPU),
    params:
        content=content_of("notebooks/quality.ipynb"),
        parameters=quality_parameters,
    message:
        "Measure generated images: {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule ablation:
    input:
        lambda wildcards: files(sum(ablation_runs(wildcards.name), []), runs.FILES),
        **run_by("ablation"),
    output:
        **figure("Other choices", "../report/ablation.rst"),
        table="figures/{name}.csv",
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(ABLATIONS),
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/ablation.ipynb"),
        parameters=ablation_parameters,
    message:
        "Draw {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule overfitting:
    input:
        lambda wildcards: files(run_folders(*OVERFITTING[wildcards.name]), runs.FILES),
        **run_by("overfitting"),
    output:
        **figure("Other choices", "../report/overfitting.rst"),
        table="figures/{name}.csv",
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(OVERFITTING),
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/overfitting.ipynb"),
        parameters=overfitting_parameters,
    message:
        "Draw {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule replay:
    # No input of data: without them the table says that nothing could be compared.
    input:
        files([f"{ARCHIVE}/runs/mnist/as_published/sdcp_d-500h"], runs.FILES),
        **run_by("replay"),
    output:
        **table("replay_mnist", "Validation", "../report/replay.rst"),
    log:
        f"logs/{SCALE}/replay_mnist.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/replay_mnist.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
        gpu=int(GPU),
    params:
        content=content_of("notebooks/replay.ipynb"),
        parameters=lambda wildcards: {
            "archived": f"{ARCHIVE}/runs/mnist/as_published/sdcp_d-500h",
            "mirror": config["data_mirror"] or None,
            "backend": BACKEND,
            "output": "figures/replay_mnist",
        },
    message:
        "Train the beginning of an archived run of MNIST again"
    script:
        "../scripts/execute_notebook.py"


rule claims:
    input:
        files(claim_runs(), runs.FILES),
        files(claim_sweeps(), runs.SWEEP_FILES),
        [f"figures/{name}.csv" for name in (*QUALITY, *MEASURED_MODES)],
        "figures/validation.csv",
        ARCHIVED_TIMING or TIMING,
        **run_by("claims"),
    output:
        **table("claims", "Claims", "../report/claims.rst"),
        measurements=["figures/claims_measured.csv", "figures/claims_measured.md"],
    log:
        f"logs/{SCALE}/claims.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/claims.tsv"
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/claims.ipynb"),
        parameters={
            "claims": "workflow/reference/claims.yaml",
            "runs": claim_runs(),
            "sweeps": claim_sweeps(),
            "quality": [measured("quality", name) for name in QUALITY],
            "modes": [measured("modes", name) for name in MEASURED_MODES],
            "budgets": claim_budgets(),
            "timing": ARCHIVED_TIMING or TIMING,
            "validation": "figures/validation.csv",
            "seed": config["seed"],
            "output": "figures/claims",
        },
    message:
        "Judge the claims"
    script:
        "../scripts/execute_notebook.py"
