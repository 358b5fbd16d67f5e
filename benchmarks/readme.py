"""Write the README's tables: performance from the newest records, likelihoods from the archived
runs (each, and the tuning: likelihoods.md), claims from the last full run.

uv run python benchmarks/readme.py               changes README.md
uv run python benchmarks/readme.py --figures     first keeps the claims, with every measurement
                                                 behind them, and the pictures of figures/
uv run python benchmarks/readme.py --check       fails if it is not what is kept
"""

import csv
import json
import shutil
import sys
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from sdcpd import ROOT, experiments, runs
from sdcpd.algorithms import LABELS
from sdcpd.data import title_of
from sdcpd.figures.tables import with_interval
from sdcpd.runs import archive
from sdcpd.study import compare
from sdcpd.trusted import refuted

KEPT = archive.FOLDER / "figures"  # of the run that the README shows
PICTURES = (
    *("fig1_bars_and_stripes", "fig2_mnist", "fig3_caltech", "fig4_kannada", "fig5_mnist_samples"),
    *("figS_bars_and_stripes_4h_tuned_speed", "figS_tuning_bars_and_stripes_4h"),
    *("figS_sensitivity_bars_and_stripes", "figS_overfitting_caltech", "figS_caltech_samples"),
    "figS_refuted_caltech",
)

CLAIMS = "claims.csv", "claims_measured.csv"

GROUPS = {"as_published": "as published", "tuned_speed": "tuned for speed"}
GROUPS |= {"tuned_final": "tuned for the end"}

LIKELIHOODS = """Test log-likelihoods (nats) of every archived run of the large datasets which has
the trusted estimate at all its points: at its last epoch, by plain AIS and by what is trusted; at
how many of the evaluations that have both the bound refutes plain AIS, and at which epoch of a
trial first; and of each trial's model with the highest trusted validation log-likelihood, with the
epochs of these. Means over trials with 95 % intervals (Student's t)."""

TUNING = """The same of the tuning of the large datasets, of whose settings not all go on to the end
(images held out of training, plain AIS with 1,000 temperatures): at how many of all evaluations
the bound refutes plain AIS, and of which settings."""

VERDICTS = """Where several algorithms, levels or images are meant, the value that speaks most
against the claim, with its 95 % interval over trials. “n nat below”: the epochs to so far below the
best of the other's mean curve; “never”: S-DCP-D does not get there. Every number behind a verdict:
[`claims_measured.csv`](claims_measured.csv)."""


def newest(name, device):
    """The newest record of this name, or None."""
    paths = sorted((ROOT / "benchmarks/records").glob(f"{name}-{device}-*.json"))
    return (
        json.loads(paths[-1].read_text(encoding="utf-8")) | {"path": paths[-1]} if paths else None
    )


def link(record, text):
    path = record["path"].with_suffix(".md").relative_to(ROOT).as_posix()
    return f"[{text}]({path})"


def section(device, title):
    """The table of one kind of device."""
    records = {name: newest(name, device) for name in ("updates", "peers", "bars", "table1")}
    if not records["updates"]:
        return [f"**{title}**: not measured yet; `benchmarks/gpu.sh` is what measures it.", ""]
    about = records["updates"]["about"]
    where = f"{about['device']}, {about['date']}"
    lines = [f"**{title}** ({where})", ""]
    on_gpu = device == "gpu"
    lines += ["| what | value | record |", "|---|---:|---|"]
    for algorithm, model, replicas, micro, _, share, seconds in records["updates"]["rows"]:
        if algorithm.startswith("AIS"):
            value = f"{seconds:.3g} s a model"
        elif algorithm in ("CD", "S-DCP-D"):
            value = f"{micro / 1000:.3g} ms" if device == "cpu" else f"{micro:.3g} µs"
            value += f" = {100 / share:.2f} × the products alone"
        else:
            continue
        if replicas in ((1,) if device == "cpu" else (1, 50)):
            what = algorithm if algorithm.startswith("AIS") else f"one update of {algorithm}"
            what += f", {replicas} model" + "s side by side, each" * (replicas > 1)
            lines.append(f"| {what}; {model} | {value} | {link(records['updates'], 'updates')} |")
    if records["peers"]:
        for what, who, milli, ratio, version, *_ in records["peers"]["rows"]:
            if not who.startswith("this project") or on_gpu:
                name = {"update": "one CD-24 update", "AIS": "AIS, 100 × 10,000"}[what]
                value = f"{milli:,.0f} ms = {ratio:.2f} × this project in the same run"
                who = f"{who} {version}".strip()
                lines.append(f"| {name}: {who} | {value} | {link(records['peers'], 'peers')} |")
    if records["bars"]:
        total = records["bars"]["rows"][-1][2]
        what = "Bars & Stripes: 5 algorithms × 3 sizes × 25 trials × 5,000 updates"
        lines.append(f"| {what} | {total:.3g} s | {link(records['bars'], 'bars')} |")
    return [*lines, ""]


@cache
def measured():
    """What is in LIKELIHOODS: by experiment, group and algorithm the epochs of a run, and its
    columns as a dict."""
    found = {}
    for name in experiments.read()["experiments"]:
        for folder in sorted(archive.FOLDER.glob(f"runs/{name}/*/*")):
            run = runs.load(folder)
            alive = run.curve[run.curve.status == "ok"]
            if "trusted_test" not in alive:
                continue  # exact
            settings, both = run.settings, alive.dropna(subset=["log_z"])
            diverged = settings["trials"] - (alive.epoch == settings["epochs"]).sum()
            over = both[refuted(both.log_z, both.bound)]
            best = compare.early_stopping(run)
            columns = {
                "η, ε": values_of(run),
                "trials × epochs": f"{settings['trials']} × {settings['epochs']:g}",
                "plain AIS": mean(both.test[both.epoch == settings["epochs"]]),
                "trusted": mean(compare.finals(run)),
                "refuted": f"{len(over)} of {len(both)}",
                "first at epochs": sequence(over.groupby("trial").epoch.min()),
                "best by validation": mean(best.test),
                "at epochs": sequence(best.epoch.dropna()),
                "": (f"{diverged} diverged; " if diverged else "") + compare.doubts(run),
            }
            at = name, folder.parent.name, settings["algorithm"]
            found[at] = settings["epochs"], columns
    return found


def values_of(run):
    """Its learning rate and, where there is one, ε, as text."""
    known = run.settings["hyperparameters"]
    return ", ".join(f"{known[h]:.3g}" for h in ("learning_rate", "epsilon") if h in known)


def sequence(epochs):
    """As text, sorted."""
    return ", ".join(f"{epoch:g}" for epoch in sorted(epochs))


def mean(values):
    """As text, with its interval."""
    found = compare.mean(np.asarray(values, float))
    text = with_interval("{:.1f}".format, found.value, *found.interval())
    return text.replace("-", "−") if found.trials else ""


def every_likelihood():
    """All of ``measured``, for likelihoods.md."""
    rows = [
        {"experiment": name, "group": group, "algorithm": LABELS[algorithm]} | columns
        for (name, group, algorithm), (_, columns) in measured().items()
    ]
    lines = ["# Every likelihood", "", LIKELIHOODS, "", *table_of(rows), ""]
    return "\n".join([*lines, "## Tuning", "", TUNING, "", *table_of([*tunings()]), ""])


def tunings():
    """Where the bound refutes plain AIS in the archived tuning of the large datasets."""
    for name in experiments.read()["experiments"]:
        for folder in sorted(archive.FOLDER.glob(f"sweeps/{name}/tuning/*")):
            sweep = runs.load_sweep(folder)
            if sweep[0].settings["ais"]:
                both = [run.curve.dropna(subset=["log_z", "bound"]) for run in sweep]
                over = [refuted(each.log_z, each.bound).sum() for each in both]
                values = [values_of(run) for run, n in zip(sweep, over, strict=True) if n]
                yield {
                    "experiment": name,
                    "algorithm": LABELS[sweep[0].settings["algorithm"]],
                    "settings": str(len(sweep)),
                    "refuted": f"{sum(over)} of {sum(map(len, both))}",
                    "η, ε": "; ".join(values),
                }


def likelihoods():
    """Those after the paper's number of epochs, as published and tuned."""
    rows, config = [], experiments.read()
    for name, algorithm in product(config["ablations"], LABELS):
        whole = config["experiments"][name]["epochs"]
        found = [measured().get((name, group, algorithm), (0, {})) for group in GROUPS]
        found = [columns if epochs == whole else {} for epochs, columns in found]
        if any(found):
            title = title_of(config["experiments"][name]["dataset"])
            row = [found[0].get("plain AIS", ""), *(each.get("trusted", "") for each in found)]
            rows.append([f"{title}, {LABELS[algorithm]}", *row])
    trusted = (f"trusted, {label}" for label in GROUPS.values())
    return [*table(["test, after 200 epochs", "plain AIS, as published", *trusted], rows), ""]


def table(columns, rows):
    """Lines of Markdown."""
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


def table_of(rows):
    """The same of dicts."""
    return table(rows[0], [row.values() for row in rows])


def judged():
    """The rows of claims.csv of the run that was kept."""
    with (KEPT / "claims.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def verdicts():
    """All of them, with their values, for claims.md."""
    return "\n".join(["# Every verdict", "", VERDICTS, "", *table_of(judged()), ""])


def claims():
    """The verdicts, a row for each claim."""
    lines, numbered = ["| no. | claim | verdict |", "|---|---|---|"], {}
    for row in judged():
        number, _, aspect = row["no."].partition(", ")
        text, found = numbered.setdefault(number, (row["claim"], {}))
        where = found.setdefault(row["verdict"].partition(",")[0], {})
        where.setdefault(row["dataset"], []).append(aspect)
    for number, (text, found) in numbered.items():
        said = []
        for verdict in sorted(found, key=lambda name: (name == "not run", name[:3] == "not", name)):
            places = [
                f"{dataset} ({'; '.join(a or 'itself' for a in aspects)})"
                if any(aspects)
                else dataset
                for dataset, aspects in found[verdict].items()
            ]
            said.append(f"**{verdict}**: {', '.join(places)}")
        lines.append(f"| {number} | {text} | {'; '.join(said)} |")
    return [*lines, ""]


def keep():
    """Copy the claims from figures/, and those pictures of the README that are there."""
    KEPT.mkdir(parents=True, exist_ok=True)
    made = [f"{name}.png" for name in PICTURES if (ROOT / f"figures/{name}.png").exists()]
    for name in (*made, *CLAIMS):
        shutil.copyfile(ROOT / "figures" / name, KEPT / name)


def replace(text, name, lines):
    """The text with ``lines`` between the two marks of this name."""
    start, end = f"<!-- {name}: benchmarks/readme.py -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(start)
    _, after = rest.split(end)
    return before + start + "\n".join(["", *lines]) + "\n" + end + after


def main():
    if "--figures" in sys.argv[1:]:
        keep()
    readme = ROOT / "README.md"
    lines = [*section("cpu", "One CPU core"), *section("gpu", "One GPU")]
    tables = {"performance": lines, "likelihoods": likelihoods(), "claims": claims()}
    new = readme.read_text(encoding="utf-8")
    for name, rows in tables.items():
        new = replace(new, name, rows)
    written = {readme: new, KEPT / "claims.md": verdicts()}
    written |= {KEPT / "likelihoods.md": every_likelihood()}
    if "--check" in sys.argv[1:]:
        stale = any(path.read_text(encoding="utf-8") != text for path, text in written.items())
        sys.exit("run benchmarks/readme.py" if stale else 0)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
