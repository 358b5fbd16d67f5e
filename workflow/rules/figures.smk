# Figures 1–5 and those of results that the paper only mentions; each as PDF, PNG and SVG.


rule curves:
    input:
        lambda wildcards: files(sum(curve_runs(wildcards.name), []), runs.FILES),
        **run_by("curves"),
    output:
        **figure("Likelihood curves", "../report/curves.rst"),
        table="figures/{name}.csv",
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(CURVE_FIGURES),
    conda:
        ENVIRONMENT
    params:
        content=content_of("notebooks/curves.ipynb"),
        parameters=curve_parameters,
    message:
        "Draw {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


rule samples:
    input:
        lambda wildcards: files(run_folders(*SAMPLE_FIGURES[wildcards.name]), runs.FILES),
        **run_by("samples"),
    output:
        **figure("Generated samples", "../report/samples.rst"),
        images="figures/{name}.npz",
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of(SAMPLE_FIGURES),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
        gpu=int(GPU),
    params:
        content=content_of("notebooks/samples.ipynb"),
        parameters=sample_parameters,
    message:
        "Generate {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"
