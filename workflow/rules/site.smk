# A small site: an index of all figures and tables in the paper's order, and the executed notebooks.

DATASET_TITLES = {
    name: data.title_of(experiment["dataset"]) for name, experiment in config["experiments"].items()
}
# name -> what it is about, in words
MODELS = {
    name: f"{DATASET_TITLES[what[0]]}, {what[1]} hidden units"
    + (", tuned for speed" if name.endswith("tuned_speed") else "")
    + (", tuned for the end" if name.endswith("tuned_final") else "")
    for kind in (
        CURVE_FIGURES,
        SAMPLE_FIGURES,
        GRID_FIGURES,
        SENSITIVITY_FIGURES,
        QUALITY,
        OVERFITTING,
        HIDDEN_MODES,
    )
    for name, what in kind.items()
}
NUMBERED = {n: f"Figure {what[3]}: {MODELS[n]}" for n, what in CURVE_FIGURES.items() if what[3]}
# heading, caption (of workflow/report), suffix, {name: title}
SITE_PARTS = [
    ("Table 1", "timing", "csv", {"table1_timing": "Time of training"}),
    ("Figures 1 to 4", "curves", "svg", NUMBERED),
    (
        "Figure 5",
        "samples",
        "svg",
        {n: f"Figure 5: {MODELS[n]}" for n in SAMPLE_FIGURES if n.startswith("fig5")},
    ),
    (
        "Mentioned by the paper: other numbers of hidden units",
        "curves",
        "svg",
        {n: MODELS[n] for n in CURVE_FIGURES if n not in NUMBERED and n.endswith("h")},
    ),
    (
        "Mentioned by the paper: samples of the other datasets",
        "samples",
        "svg",
        {n: MODELS[n] for n in SAMPLE_FIGURES if n.startswith("figS")},
    ),
    (
        "Curves when all algorithms are equally tuned",
        "curves",
        "svg",
        {n: MODELS[n] for n in CURVE_FIGURES if n not in NUMBERED and not n.endswith("h")},
    ),
    (
        "Equal tuning",
        "tune",
        "svg",
        {n: MODELS[n] for n, what in GRID_FIGURES.items() if n in STUDY and what[2] == "tuning"},
    ),
    (
        "Settings closest to the published curves",
        "tune",
        "svg",
        {n: MODELS[n] for n, what in GRID_FIGURES.items() if n in STUDY and what[2] == "published"},
    ),
    (
        "Sensitivity to ε and λ_H",
        "sensitivity",
        "svg",
        {n: MODELS[n] for n in SENSITIVITY_FIGURES if n in STUDY},
    ),
    ("Generated images in numbers", "quality", "csv", {n: MODELS[n] for n in QUALITY}),
    ("Overfitting", "overfitting", "svg", {n: MODELS[n] for n in OVERFITTING}),
    (
        "Other choices about the data",
        "ablation",
        "svg",
        {n: DATASET_TITLES[what[0]] for n, what in ABLATIONS.items() if n in STUDY},
    ),
    (
        "Modes that plain AIS does not see",
        "hidden_modes",
        "svg",
        {n: MODELS[n] for n in HIDDEN_MODES if n in STUDY},
    ),
    (
        "An archived run trained again",
        "replay",
        "csv",
        {"replay_mnist": "MNIST"} if USES_ARCHIVE else {},
    ),
    ("Validation", "validation", "csv", {"validation": "Checks of the mathematics"}),
    (
        "Validation against published curves",
        "validation_2017",
        "svg",
        {"figS_validation_2017": "Bars & Stripes, 4 hidden units"},
    ),
    ("Claims", "claims", "csv", {"claims": "The paper's claims"}),
]
SITE_FILES = [(name, suffix) for _, _, suffix, names in SITE_PARTS for name in names]
SITE_NOTEBOOKS = {name: name for name, _ in SITE_FILES} | {"figS_validation_2017": "validation"}
# folder -> the notebook that trained it; None: archived
SITE_RUNS = {
    folder: (
        None
        if folder.startswith(ARCHIVE)
        else "-".join(
            [{"runs": "train", "sweeps": "sweep"}[Path(folder).parts[2]], *Path(folder).parts[3:]]
        )
    )
    for folder in [
        *claim_runs(),
        *claim_sweeps(),
        *sum((sum(curve_runs(name), []) for name in CURVE_FIGURES), []),
        *sum((sweep_folders(*GRID_FIGURES[n]) for n in GRID_FIGURES if n in STUDY), []),
        *sum((sum(ablation_runs(name), []) for name in ABLATIONS if name in STUDY), []),
        *sum((run_folders(VALIDATION, only_n_hidden(VALIDATION), g) for g in KNOWN_RATES), []),
    ]
}


rule site:
    input:
        [f"figures/{name}.{suffix}" for name, suffix in SITE_FILES],
        [f"figures/{name}.md" for name, suffix in SITE_FILES if suffix == "csv"],
        [
            f"results/notebooks/{name}.{suffix}"
            for name in dict.fromkeys(SITE_NOTEBOOKS.values())
            for suffix in ("ipynb", "html")
        ],
        [f"{RESULTS}/notebooks/{name}.html" for name in SITE_RUNS.values() if name],
        [f"workflow/report/{caption}.rst" for _, caption, _, _ in SITE_PARTS],
        "workflow/scripts/pages.py",
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
        site={
            "parts": SITE_PARTS,
            "notebooks": SITE_NOTEBOOKS,
            "runs": SITE_RUNS,
            "results": RESULTS,
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
