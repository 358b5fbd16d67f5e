"""Write figures/site/: an index of what was made, in the paper's order, and executed notebooks.

What it says is read from files: claims.csv, captions, tables, notebooks, benchmarks. (The module
is not called ``site``, which is one of Python's own.)
"""

import csv
import json
import shlex
import shutil
from collections import Counter
from html import escape
from itertools import groupby
from pathlib import Path

from pages import page, with_link_back

SITE = Path("figures/site")
ARCHIVE = "workflow/archive/"
TITLE = "S-DCP-D: a reproduction"
ABOUT = """<p>A reproduction of <cite>Efficient Learning of Restricted Boltzmann Machines Using
Covariance Estimates</cite> (Upadhya &amp; Sastry, ACML 2019). A Snakemake workflow runs notebooks
on an implementation of the five algorithms that the paper compares, tunes all of them equally
besides, and judges the paper's claims by program. Every number comes from a run file with its
settings, seed, versions and device; where less than the paper's budget was spent, the figure says
so.</p>"""
SMOKE = "<p><strong>This is a test run of the workflow: its numbers mean nothing.</strong></p>"
OUTSIDE = """<p>Paths like <code>figures/…</code> and <code>results/…</code> are those of the
project's folder; links to them work where this page lies in it, as
<code>figures/site/index.html</code>. Pictures, tables and notebooks work everywhere.</p>"""


def write(parts, notebooks, runs, results, options, missing=()):
    """Write the site.

    Parameters
    ----------
    parts : list of (heading, caption, suffix, {name: title})
        ``caption`` is a file of workflow/report; ``suffix`` svg for figures, csv for tables.
    notebooks : {name: name of its notebook}
    runs : {folder: name of its notebook, or None for an archived one}
    results : folder of this scale's results.
    options : {key: value} of ``--config``.
    missing : files that could not be made; what exists of them is of another call.
    """
    for folder in ("notebooks", "images"):
        shutil.rmtree(SITE / folder, ignore_errors=True)
        (SITE / folder).mkdir(parents=True)
    made = {
        name
        for name in (*notebooks.values(), *filter(None, runs.values()))
        if (html := executed(name, results) + ".html") not in missing and Path(html).exists()
    }
    parts = [(f"part-{number}", *part) for number, part in enumerate(parts) if part[3]]
    contents = [f'<li><a href="#{part}">{escape(heading)}</a></li>' for part, heading, *_ in parts]
    contents.append('<li><a href="#runs">Training runs and sweeps</a></li>')
    shown = []
    for part, heading, caption, suffix, names in parts:
        shown.append(f'<h2 id="{part}">{escape(heading)}</h2>')
        caption = Path(f"workflow/report/{caption}.rst").read_text(encoding="utf-8").strip()
        for name, title in names.items():
            target = f"figures/{name}.{'pdf' if suffix == 'svg' else 'md'}"
            lines = [f"<li>Command: {command(target, options)}</li>"]
            shown.append(f'<article id="{name}">\n<h3>{escape(title)}</h3>')
            if notebooks[name] in made:
                shown.append(picture(name, title) if suffix == "svg" else table(name))
                shown.append(f"<p>{escape(caption)}</p>")
                lines += about(name, notebooks[name], runs, results)
            else:
                shown.append("<p>Not made.</p>")
            shown += ["<ul>", *lines, "</ul>\n</article>"]
    lines = [f"<h1>{TITLE}</h1>", ABOUT]
    lines += [SMOKE] if results.endswith("/smoke") else []
    lines += findings() if "claims" in made else ["<p>The claims were not judged.</p>"]
    lines += [OUTSIDE, "<nav>\n<ul>", *contents, "</ul>\n</nav>"]
    lines += [*shown, *list_of_runs(runs, made, results)]
    (SITE / "index.html").write_text(page(TITLE, "\n".join(lines)), encoding="utf-8")

    anchors = {notebook: name for name, notebook in reversed(notebooks.items())}
    for name in made:
        html = Path(executed(name, results) + ".html").read_text(encoding="utf-8")
        html = with_link_back(html, f"../index.html#{anchors.get(name, 'runs')}")
        (SITE / f"notebooks/{name}.html").write_text(html, encoding="utf-8")


def write_after_failure(dag):
    """The site without what could not be made, where this call was to make it."""
    left = list(dag.needrun_jobs())
    sites = [job for job in left if job.rule.name == "site"]
    if sites and {job.rule.name for job in left} - {"site", "all"}:
        missing = {str(file) for job in left for file in job.output}
        write(**sites[0].params.site, missing=missing)


def findings():
    """What claims.csv says, in words."""
    rows = read_table("claims")
    count = Counter(row["verdict"] for row in rows)
    order = sorted(count, key=lambda verdict: (verdict == "not run", verdict[:3] == "not", verdict))
    n_claims = len({row["no."].split(",")[0] for row in rows})
    counted = ", ".join(f"{count[verdict]} {verdict}" for verdict in order)
    lines = [f"<p>{n_claims} claims of the paper, {len(rows)} verdicts, each on one dataset:"]
    lines += [f'{counted} (<a href="#claims">all with their numbers</a>).</p>', "<ul>"]
    for verdict in order:
        datasets = {}
        for row in rows:
            if row["verdict"] == verdict:
                datasets.setdefault(row["claim"], []).append(row["dataset"])
        if verdict == "not run":  # says nothing of the claims: only how many
            of = Counter(dataset for each in datasets.values() for dataset in each)
            said = "; ".join(f"{dataset} ({n})" for dataset, n in of.items())
        else:
            said = "; ".join(f"{claim} ({', '.join(each)})" for claim, each in datasets.items())
        lines.append(f"<li><strong>{escape(verdict.capitalize())}</strong>: {escape(said)}.</li>")
    return [*lines, "</ul>"]


def command(target, options):
    words = ["uv run snakemake --cores all", target]
    if options:
        words += ["--config", *(shlex.quote(f"{key}={value}") for key, value in options.items())]
    return f"<code>{escape(' '.join(words))}</code>"


def picture(name, title):
    """The figure; it opens alone, where a phone can enlarge it."""
    file = f"images/{name}.svg"
    shutil.copyfile(f"figures/{name}.svg", SITE / file)
    return f'<p><a href="{file}"><img src="{file}" alt="{escape(title)}"></a></p>'


def table(name):
    """The table, and what its Markdown says above it."""
    rows = read_table(name)
    said = Path(f"figures/{name}.md").read_text(encoding="utf-8").split("\n")[0]
    lines = ["<table>", "<thead>", cells("th", rows[0]), "</thead>", "<tbody>"]
    lines += [*(cells("td", row.values()) for row in rows), "</tbody>", "</table>"]
    return "\n".join([f"<p>{escape(said)}</p>", *lines])


def read_table(name):
    with open(f"figures/{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells(tag, values):
    return "<tr>" + "".join(f"<{tag}>{escape(value)}</{tag}>" for value in values) + "</tr>"


def about(name, notebook, runs, results):
    """The time that a figure or table took, its notebook, its files and the results behind it."""
    sources = behind(executed(notebook, results) + ".ipynb")
    trained = [runs[source] for source in sources if runs.get(source)]
    archived = sum(source.startswith(ARCHIVE) for source in sources)
    took = f"{duration([notebook], results)} here"
    if trained:
        took += f", and {duration(trained, results)} for the training behind it"
    if archived:
        took += f"; {archived} of its sources are archived, and say themselves how long they took"
    files = [*Path("figures").glob(f"{name}.*"), *Path("figures").glob(f"{name}_measured.*")]
    lines = [f"Time: {took}", f'<a href="notebooks/{notebook}.html">Executed notebook</a>']
    lines += [f"Files: {', '.join(map(link, sorted(files)))}"]
    if sources:
        summary = f"<summary>Sources: {len(sources)}</summary>"
        listed = "".join(f"<li>{link(source)}</li>" for source in sources)
        lines += [f"<details>{summary}<ul>{listed}</ul></details>"]
    return [f"<li>{line}</li>" for line in lines]


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


def link(path):
    return f'<a href="../../{path}"><code>{path}</code></a>' if Path(path).exists() else str(path)


def list_of_runs(runs, made, results):
    """Every run and sweep, those of one experiment and group in a line."""
    archived = sum(name is None for name in runs.values())
    lines = ['<h2 id="runs">Training runs and sweeps</h2>', "<p>Executed notebooks, and the time"]
    lines += ["that all trials and settings of each took here."]
    lines += [f"The {archived} archived ones lead to their files."] if archived else []
    lines += ["</p>", "<ul>"]
    for parent, folders in groupby(sorted(runs), lambda folder: str(Path(folder).parent)):
        shown = []
        for folder in folders:
            name, label = runs[folder], Path(folder).name
            if not name:
                shown.append(f'<a href="../../{folder}">{label}</a>')
            elif name in made:
                page_of = f'<a href="notebooks/{name}.html">{label}</a>'
                shown.append(f"{page_of} {duration([name], results)}")
            else:
                shown.append(f"{label} not made")
        lines.append(f"<li>{link(parent)}: {', '.join(shown)}</li>")
    return [*lines, "</ul>"]


if "snakemake" in globals():  # not where the Snakefile or a test imports it
    write(**snakemake.params.site)
    Path(snakemake.log[0]).write_text(f"written: {SITE}\n", encoding="utf-8")
