# What will this cost? Answered before anything runs: uv run snakemake --cores all plan -q all
from types import SimpleNamespace


localrules:
    plan,


rule plan:
    # A target without output: it prints.
    log:
        f"logs/{SCALE}/plan.log",
    conda:
        ENVIRONMENT
    params:
        scale=SCALE,
        backend=BACKEND,
        cores=workflow.resource_settings.cores or 1,
        bytes={name: file["bytes"] for name, file in DATASETS["files"].items()},
        replay=f"{ARCHIVE}/runs/mnist/as_published/sdcp_d-500h",
        # parameters of the notebooks that compute more than a drawing, by name
        notebooks=lambda wildcards: {
            name: parameters(SimpleNamespace(name=name))
            for names, parameters in (
                (SAMPLE_FIGURES, sample_parameters),
                (HIDDEN_MODES, hidden_modes_parameters),
                (QUALITY, quality_parameters),
            )
            for name in names
        },
    message:
        "Estimate what the workflow costs"
    script:
        "../scripts/plan.py"
