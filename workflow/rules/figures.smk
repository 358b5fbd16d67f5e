# Every figure and table: a notebook, which reads run files but for Table 1. Figures come as PDF, PNG
# and SVG, tables as CSV, Markdown and LaTeX.

for name, kind in catalogue.KINDS.items():

    rule:
        name:
            name
        input:
            **made_from(name),
        output:
            **written(name),
        log:
            f"logs/{SCALE}/{{name}}.log",
        benchmark:
            f"logs/benchmarks/{SCALE}/{{name}}.tsv"
        wildcard_constraints:
            name=one_of(name),
        conda:
            ENVIRONMENT
        # To time, all cores and GPUs: nothing else may run. (workflow.cores fails with --report.)
        threads: (workflow.resource_settings.cores or 1) if name == "timing" else 1
        resources:
            mem_mb=2000,
            gpu=GPU * kind.computes * (GPU_JOBS if name == "timing" else 1),
        params:
            content=content_of(notebook_of(name)),
            parameters=lambda wildcards: CATALOGUE.items[wildcards.name].parameters,
        message:
            "Make {wildcards.name}"
        script:
            "../scripts/execute_notebook.py"
