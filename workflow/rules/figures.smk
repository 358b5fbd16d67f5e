# Every figure and table: a notebook, which reads run files but for Table 1. Figures come as PDF, PNG
# and SVG, tables as CSV, Markdown and LaTeX.

CSV = {"table": "figures/{name}.csv"}
TABLES = {"tables": ["figures/{name}.csv", "figures/{name}.md", "figures/{name}.tex"]}
MEASURED = {"measurements": ["figures/{name}_measured.csv", "figures/{name}_measured.md"]}
KINDS = {  # of items: what a notebook writes, its category in the report, what it writes besides
    "curves": (figure, "Likelihood curves", CSV),
    "samples": (figure, "Generated samples", {"images": "figures/{name}.npz"}),
    "tune": (figure, "Tuning", TABLES),
    "sensitivity": (figure, "Sensitivity", CSV),
    "hidden_modes": (figure, "Hidden modes", TABLES),
    "quality": (table, "Generated samples", {}),
    "ablation": (figure, "Other choices", CSV),
    "overfitting": (figure, "Other choices", CSV),
    "refuted": (figure, "Hidden modes", CSV),
    "replay": (table, "Validation", {}),
    "anchor": (figure, "Validation", CSV),
    "validation": (table, "Validation", {}),
    "claims": (table, "Claims", MEASURED),
    "timing": (table, "Table 1", {"seconds": "results/timing/{name}.json"}),
}
COMPUTES = {"samples", "hidden_modes", "quality", "replay"}  # on the GPU where there is one

for kind, (written, category, besides) in KINDS.items():

    rule:
        name:
            kind
        input:
            **made_from(kind),
        output:
            **written(category, kind),
            **besides,
        log:
            f"logs/{SCALE}/{{name}}.log",
        benchmark:
            f"logs/benchmarks/{SCALE}/{{name}}.tsv"
        wildcard_constraints:
            name=one_of(kind),
        conda:
            ENVIRONMENT
        # To time, all cores and GPUs: nothing else may run. (workflow.cores fails with --report.)
        threads: (workflow.resource_settings.cores or 1) if kind == "timing" else 1
        resources:
            mem_mb=2000,
            gpu=GPU * (GPU_JOBS if kind == "timing" else kind in COMPUTES),
        params:
            content=content_of(notebook_of(kind)),
            parameters=lambda wildcards: CATALOGUE.items[wildcards.name].parameters,
        message:
            "Make {wildcards.name}"
        script:
            "../scripts/execute_notebook.py"
