"""Write figures/site/: an index of what was made, in the paper's order, and executed notebooks.

What it says is read from files: claims.csv, captions, tables, notebooks, benchmarks; how it looks
stands in workflow/site/. (The module is not called ``site``, which is one of Python's own.)
"""

import csv
import json
import shlex
import shutil
from collections import Counter
from itertools import groupby
from pathlib import Path

from pages import render, with_link_back

SITE = Path("figures/site")
ARCHIVE = "workflow/archive/"


def write(parts, runs, results, options, missing=()):
    """Write the site.

    Parameters
    ----------
    parts : list of (heading, caption, suffix, {name: title})
        ``caption`` is a file of workflow/report; ``suffix`` svg for figures, csv for tables.
    runs : {folder: name of its notebook, or None for an archived one}
    results : folder of this scale's results.
    options : {key: value} of ``--config``.
    missing : files that could not be made; what exists of them is of another call.
    """
    for folder in ("notebooks", "images"):
        shutil.rmtree(SITE / folder, ignore_errors=True)
        (SITE / folder).mkdir(parents=True)
    names = {name for *_, titles in parts for name in titles}
    made = {
        name
        for name in (*names, *filter(None, runs.values()))
        if (html := executed(name, results) + ".html") not in missing and Path(html).exists()
    }
    shown = [
        {
            "heading": heading,
            "caption": Path(f"workflow/report/{caption}.rst").read_text(encoding="utf-8").strip(),
            "shown": [
                {"name": name, "title": title, "command": command(name, suffix, options)}
                | (about(name, suffix, runs, results) if name in made else {})
                for name, title in titles.items()
            ],
        }
        for heading, caption, suffix, titles in parts
        if titles
    ]
    groups = groupby(sorted(runs), lambda folder: str(Path(folder).parent))
    index = render(
        "index.html.j2",
        title="S-DCP-D: a reproduction",
        parts=shown,
        groups=[
            (parent, [about_run(folder, runs[folder], made, results) for folder in folders])
            for parent, folders in groups
        ],
        n_archived=sum(name is None for name in runs.values()),
        results=results,
        exists=lambda path: Path(path).exists(),
        **(findings() if "claims" in made else {}),
    )
    (SITE / "index.html").write_text(index, encoding="utf-8")
    for name in made:
        html = Path(executed(name, results) + ".html").read_text(encoding="utf-8")
        html = with_link_back(html, f"../index.html#{name if name in names else 'runs'}")
        (SITE / f"notebooks/{name}.html").write_text(html, encoding="utf-8")


def about(name, suffix, runs, results):
    """What the index says of a figure or table that was made, whose files it gets."""
    if suffix == "svg":
        shutil.copyfile(f"figures/{name}.svg", SITE / f"images/{name}.svg")
        shown = {"rows": None}
    else:
        said = Path(f"figures/{name}.md").read_text(encoding="utf-8").split("\n")[0]
        shown = {"rows": read_table(name), "said": said}
    sources = behind(executed(name, results) + ".ipynb")
    trained = [*dict.fromkeys(runs[source] for source in sources if runs.get(source))]
    files = [*Path("figures").glob(f"{name}.*"), *Path("figures").glob(f"{name}_measured.*")]
    return shown | {
        "made": True,
        "time": duration([name], results),
        "training_time": duration(trained, results) if trained else None,
        "n_archived": sum(source.startswith(ARCHIVE) for source in sources),
        "files": sorted(map(str, files)),
        "sources": sources,
    }


def about_run(folder, name, made, results):
    """The same of a run or sweep, by the name of its notebook (None: archived)."""
    known = {"folder": folder, "label": Path(folder).name, "notebook": name, "archived": not name}
    return known | ({"made": True, "time": duration([name], results)} if name in made else {})


def write_after_failure(dag):
    """The site without what could not be made, where this call was to make it."""
    left = list(dag.needrun_jobs())
    sites = [job for job in left if job.rule.name == "site"]
    if sites and {job.rule.name for job in left} - {"site", "all"}:
        missing = {str(file) for job in left for file in job.output}
        write(**sites[0].params.site, missing=missing)


def findings():
    """What claims.csv says: for each verdict how many have it, and which."""
    header, *rows = read_table("claims")
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    count = Counter(row["verdict"] for row in rows)
    verdicts = []
    for verdict in sorted(count, key=lambda v: (v == "not run", v[:3] == "not", v)):
        datasets = {}
        for row in rows:
            if row["verdict"] == verdict:
                datasets.setdefault(row["claim"], []).append(row["dataset"])
        if verdict == "not run":  # says nothing of the claims: only how many
            of_each = Counter(dataset for each in datasets.values() for dataset in each)
            said = "; ".join(f"{dataset} ({n})" for dataset, n in of_each.items())
        else:
            said = "; ".join(f"{claim} ({', '.join(each)})" for claim, each in datasets.items())
        verdicts.append((verdict, count[verdict], said))
    n_claims = len({row["no."].split(",")[0] for row in rows})
    return {"n_claims": n_claims, "n_verdicts": len(rows), "verdicts": verdicts}


def command(name, suffix, options):
    """What makes a figure or table."""
    words = ["uv run snakemake --cores all", f"figures/{name}.{'pdf' if suffix == 'svg' else 'md'}"]
    if options:
        words += ["--config", *(shlex.quote(f"{key}={value}") for key, value in options.items())]
    return " ".join(words)


def read_table(name):
    with open(f"figures/{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def executed(name, results):
    """Where an executed notebook lies, without suffix: a training's, with its scale's results."""
    folder = results if name.startswith(("train-", "sweep-")) else "results"
    return f"{folder}/notebooks/{name}"


def behind(notebook):
    """The results that an executed notebook got as its parameters: folders and files."""

    def texts(value):
        if isinstance(value, dict | list):
            for each in value.values() if isinstance(value, dict) else value:
                yield from texts(each)
        elif isinstance(value, str):
            yield value

    with open(notebook, encoding="utf-8") as file:
        parameters = json.load(file)["metadata"]["papermill"]["parameters"]
    found = [text for text in texts(parameters) if text.startswith(("results/", ARCHIVE))]
    return [path for path in dict.fromkeys(found) if Path(path).exists()]


def duration(names, results):
    """How long these jobs took together, if that was recorded."""
    jobs = [job for name in names for job in (name, *parts_of(name, results))]
    files = [Path(f"logs/benchmarks/{Path(results).name}/{job}.tsv") for job in jobs]
    if not all(file.exists() for file in files):
        return "(not recorded)"
    seconds = sum(
        float(file.read_text(encoding="utf-8").splitlines()[1].split("\t")[0]) for file in files
    )
    return f"{seconds:.0f}\u00a0s" if seconds < 120 else f"{seconds / 60:.0f}\u00a0min"


def parts_of(name, results):
    """The jobs in which trials of a training were made apart, if they were."""
    sources = behind(executed(name, results) + ".ipynb")
    return [f"{name}-{Path(path).name}" for path in sources if path.startswith(f"{results}/parts/")]


if "snakemake" in globals():  # not where the Snakefile or a test imports it
    write(**snakemake.params.site)
    Path(snakemake.log[0]).write_text(f"written: {SITE}\n", encoding="utf-8")
