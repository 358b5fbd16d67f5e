# Every table and figure of the paper, from the data on: uv run snakemake --cores all
# One of them with what it needs:                        uv run snakemake --cores all figures/fig2_mnist.pdf
# Names and dependencies only; what is computed stands in notebooks/ and src/sdcpd/.
import sys

from snakemake.logging import logger
from snakemake.utils import min_version

from sdcpd.progress import Patient

min_version("9.8")
sys.stdout, sys.stderr = map(Patient, (sys.stdout, sys.stderr))  # a closed terminal ends no work
for handler in logger.handlers:
    if getattr(handler, "stream", None) is sys.stderr.stream:
        handler.stream = sys.stderr


configfile: "workflow/config/config.yaml"


include: "workflow/rules/common.smk"


configfile: "workflow/config/paper.yaml"


if SCALE != "paper":

    configfile: f"workflow/config/{SCALE}.yaml"


check_config()


report: "workflow/report/workflow.rst"


CATALOGUE = catalogue.Catalogue(config, BACKEND, SCALE)


include: "workflow/rules/files.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/site.smk"


rule all:
    default_target: True
    input:
        [f"figures/{name}.{suffix}" for name, suffix in SHOWN],
        "figures/site/index.html",


onstart:
    announce()


onerror:
    try:
        from make_site import write_after_failure

        write_after_failure(workflow.dag)
    finally:
        summarize_failures()
