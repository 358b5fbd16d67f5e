# A small site: an index of all figures and tables in the paper's order, and the executed notebooks.

SITE = CATALOGUE.site()
SHOWN = [(name, suffix) for _, _, suffix, titles in SITE["parts"] for name in titles]


rule site:
    input:
        [f"figures/{name}.{suffix}" for name, suffix in SHOWN],
        [f"figures/{name}.md" for name, suffix in SHOWN if suffix == "csv"],
        [f"results/notebooks/{name}.{suffix}" for name, _ in SHOWN for suffix in ("ipynb", "html")],
        [f"{RESULTS}/notebooks/{name}.html" for name in SITE["runs"].values() if name],
        [f"workflow/report/{caption}.rst" for _, caption, _, _ in SITE["parts"]],
        "workflow/scripts/pages.py",
        sorted(map(str, Path("workflow/site").iterdir())),
    output:
        "figures/site/index.html",
        # emptied before each run, so that no page of another call is left
        directory("figures/site/notebooks"),
        directory("figures/site/images"),
    log:
        f"logs/{SCALE}/site.log",
    benchmark:
        f"logs/benchmarks/{SCALE}/site.tsv"
    conda:
        ENVIRONMENT
    params:
        site=SITE
        | {
            # a folder of this machine's is nobody else's business
            "options": {
                key: value
                for key, value in workflow.config_settings.config.items()
                if key != "data_mirror"
            },
        },
    message:
        "Write figures/site/index.html"
    script:
        "../scripts/make_site.py"
