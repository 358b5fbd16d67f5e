"""What a figure says of its runs on its face: device, date, budget, refuted estimates."""

import numpy as np

from ..algorithms import LABELS
from ..data import title_of
from ..study.compare import summarize


def describe_runs(runs, paper_budget):
    """The lines under a figure's title: device, date and budget."""
    diverged = sum(int((run.curve.status == "diverged").sum()) for run in runs)
    lines = [origin_line(runs)]
    notes = {}
    for run in runs:
        label = LABELS[run.settings["algorithm"]]
        notes.setdefault(budget_note(run, paper_budget), []).append(label)
    for note, labels in notes.items():  # one, unless some runs are archived and some are not
        if note:
            lines.append(note if len(notes) == 1 else f"{', '.join(labels)}: {note}")
    if diverged:
        lines.append(f"{diverged} diverged trial{'s' if diverged > 1 else ''} left out.")
    return lines + refuted_lines(runs)


def budget_note(run, paper_budget):
    """Where a run spent less than the paper, in words; empty where it did not."""
    settings, less = run.settings, []
    if settings["trials"] < paper_budget["trials"]:
        plural = "s" if settings["trials"] > 1 else ""
        less.append(f"{settings['trials']} trial{plural} (paper: {paper_budget['trials']})")
    if settings["epochs"] < paper_budget["epochs"]:
        plural = "s" if settings["epochs"] != 1 else ""
        less.append(f"{settings['epochs']:.10g} epoch{plural} (paper: {paper_budget['epochs']:,})")
    ours, papers = settings["ais"], paper_budget["ais"]
    if ours and papers and ours["n_temperatures"] < papers["n_temperatures"]:
        paper = f"{papers['n_temperatures']:,}"
        less.append(f"AIS with {ours['n_temperatures']:,} temperatures (paper: {paper})")
    if ours and papers and ours["n_particles"] < papers["n_particles"]:
        less.append(f"{ours['n_particles']} AIS particles (paper: {papers['n_particles']})")
    return f"Reduced budget: {'; '.join(less)}." if less else ""


def refuted_lines(runs):
    """Where a bound on log Z refutes plain AIS: by how much at most, in a line or none."""
    found = []
    for run in runs:
        table = summarize(run)
        worst = table[table.refuted_by > 0]
        if len(worst):
            row = worst.loc[worst.refuted_by.idxmax()]
            label = LABELS[run.settings["algorithm"]]
            found.append(f"{label} at least {row.refuted_by:.0f} nats at epoch {row.epoch:g}")
    if not found:
        return []
    return [f"Plain AIS is refuted, its log-likelihood too high: {'; '.join(found)}."]


def origin_line(runs):
    """Device and date of runs, and whether they come from the archive."""
    places = []
    for archived in (False, True):
        own = [run for run in runs if run.archived == archived]
        if own:
            devices = sorted({run.provenance["device"] for run in own})
            dates = sorted({run.wall["finished"][:10] for run in own})
            when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
            places.append(f"{'archived runs: ' if archived else ''}{' and '.join(devices)}, {when}")
    return "; ".join(places)


def choice(settings):
    """The dataset and the batch size of a run, in words."""
    return f"{title_of(settings['dataset'])}, batch {settings['batch_size']}"


def span(values, digits=1):
    """The smallest and the largest of numbers as text, or the one that both are."""
    texts = [f"{value:.{digits}f}" for value in (np.min(values), np.max(values))]
    return " … ".join(dict.fromkeys(texts))
