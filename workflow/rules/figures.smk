# Every figure and table: a notebook, which reads run files but for Table 1. Figures come as PDF, PNG
# and SVG, tables as CSV, Markdown and LaTeX.


rule curves:
    input:
        **made_from("curves"),
    output:
        **figure("Likelihood curves", "curves"),
        table="figures/{name}.csv",
    log:
        f"logs/{SCALE}/{{name}}.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/{{name}}.tsv"
    wildcard_constraints:
        name=one_of("curves"),
    conda:
        ENVIRONMENT
    resources:
        mem_mb=2000,
        gpu=0,
    params:
        content=lambda wildcards: content_of(notebook_of(CATALOGUE.items[wildcards.name].kind)),
        parameters=lambda wildcards: CATALOGUE.items[wildcards.name].parameters,
    message:
        "Make {wildcards.name}"
    script:
        "../scripts/execute_notebook.py"


use rule curves as samples with:
    input:
        **made_from("samples"),
    output:
        **figure("Generated samples", "samples"),
        images="figures/{name}.npz",
    wildcard_constraints:
        name=one_of("samples"),
    resources:
        mem_mb=2000,
        gpu=int(GPU),


use rule curves as tune with:
    input:
        **made_from("tune"),
    output:
        **figure("Tuning", "tune"),
        tables=["figures/{name}.csv", "figures/{name}.md", "figures/{name}.tex"],
    wildcard_constraints:
        name=one_of("tune"),


use rule curves as sensitivity with:
    input:
        **made_from("sensitivity"),
    output:
        **figure("Sensitivity", "sensitivity"),
        table="figures/{name}.csv",
    wildcard_constraints:
        name=one_of("sensitivity"),


use rule samples as hidden_modes with:
    input:
        **made_from("hidden_modes"),
    output:
        **figure("Hidden modes", "hidden_modes"),
        tables=["figures/{name}.csv", "figures/{name}.md", "figures/{name}.tex"],
    wildcard_constraints:
        name=one_of("hidden_modes"),


use rule samples as quality with:
    input:
        **made_from("quality"),
    output:
        **table("Generated samples", "quality"),
    wildcard_constraints:
        name=one_of("quality"),


use rule curves as ablation with:
    input:
        **made_from("ablation"),
    output:
        **figure("Other choices", "ablation"),
        table="figures/{name}.csv",
    wildcard_constraints:
        name=one_of("ablation"),


use rule curves as overfitting with:
    input:
        **made_from("overfitting"),
    output:
        **figure("Other choices", "overfitting"),
        table="figures/{name}.csv",
    wildcard_constraints:
        name=one_of("overfitting"),


use rule curves as refuted with:
    input:
        **made_from("refuted"),
    output:
        **figure("Hidden modes", "refuted"),
        table="figures/{name}.csv",
    wildcard_constraints:
        name=one_of("refuted"),


use rule samples as replay with:
    input:
        **made_from("replay"),
    output:
        **table("Validation", "replay"),
    wildcard_constraints:
        name=one_of("replay"),


use rule curves as anchor with:
    input:
        **made_from("anchor"),
    output:
        **figure("Validation", "anchor"),
        table="figures/{name}.csv",
    wildcard_constraints:
        name=one_of("anchor"),


use rule curves as validation with:
    input:
        **made_from("validation"),
    output:
        **table("Validation", "validation"),
    wildcard_constraints:
        name=one_of("validation"),


use rule curves as claims with:
    input:
        **made_from("claims"),
    output:
        **table("Claims", "claims"),
        measurements=["figures/{name}_measured.csv", "figures/{name}_measured.md"],
    wildcard_constraints:
        name=one_of("claims"),


use rule samples as timing with:
    input:
        **made_from("timing"),
    output:
        **table("Table 1", "timing"),
        seconds="results/timing/{name}.json",
    wildcard_constraints:
        name=one_of("timing"),
    # All cores and GPUs: nothing else may run while we measure. (workflow.cores fails with --report.)
    threads: workflow.resource_settings.cores or 1
    resources:
        gpu=GPU_JOBS if GPU else 0,
