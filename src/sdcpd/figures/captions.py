"""What a figure says of its runs on its face: model, device, date, budget, doubtful estimates."""

import numpy as np

from ..algorithms import LABELS
from ..data import title_of
from ..log_z import MIN_ESS
from ..study.compare import summarize

_BUDGET = {  # with the number, and the s of a plural
    "trials": "{} trial{}",
    "epochs": "{} epoch{}",
    "n_temperatures": "AIS with {} temperature{}",
    "n_particles": "{} AIS particle{}",
}


def describe_runs(runs, paper_budget):
    """The lines under a figure's title: device, date, budget, and what is doubtful."""
    lines, labels_of = [origin_line(runs)], {}
    for run in runs:
        labels_of.setdefault(budget_note(run, paper_budget), []).append(label_of(run))
    for note, labels in labels_of.items():  # one, unless some runs are archived and some are not
        if note:
            lines.append(note if len(labels_of) == 1 else f"{', '.join(labels)}: {note}")
    diverged = sum(int((run.curve.status == "diverged").sum()) for run in runs)
    if diverged:
        lines.append(f"{diverged} diverged trial{'s' if diverged > 1 else ''} left out.")
    return lines + _doubts(runs)


def budget_note(run, paper_budget):
    """Where a run spent less than the paper, in words; empty where it did not."""
    budgets = run.settings, paper_budget
    ours, papers = (budget | (budget["ais"] or {}) for budget in budgets)
    less = [
        f"{words.format(f'{ours[name]:,.10g}', '' if ours[name] == 1 else 's')} "
        f"(paper: {papers[name]:,})"
        for name, words in _BUDGET.items()
        if name in ours and name in papers and ours[name] < papers[name]
    ]
    return f"Reduced budget: {'; '.join(less)}." if less else ""


def _doubts(runs):
    """Whose plain AIS has a low effective sample size, and whose is refuted by a bound on log Z."""
    weak, refuted, lines = [], {}, []  # refuted: nats and epoch of an algorithm's worst
    for run in runs:
        table = summarize(run)
        if (table.ess < MIN_ESS).any():
            weak.append(label_of(run))
        if (table.refuted_by > 0).any():
            worst = table.loc[table.refuted_by.idxmax()]
            found = worst.refuted_by, worst.epoch
            refuted[label_of(run)] = max(refuted.get(label_of(run), found), found)
    if weak:
        names = ", ".join(dict.fromkeys(weak))
        lines.append(f"Plain AIS at times has an effective sample size below {MIN_ESS}: {names}.")
    if refuted:
        each = (f"{n} at least {by:.0f} nats at epoch {at:g}" for n, (by, at) in refuted.items())
        too_high = "; ".join(each)
        lines.append(f"Plain AIS is refuted, its log-likelihood too high: {too_high}.")
    return lines


def origin_line(runs):
    """Device and date of runs, and whether they come from the archive."""
    places = []
    for archived in (False, True):
        there = [run for run in runs if run.archived == archived]
        if there:
            devices = sorted({run.provenance["device"] for run in there})
            dates = sorted({run.wall["finished"][:10] for run in there})
            when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
            places.append(f"{'archived runs: ' if archived else ''}{' and '.join(devices)}, {when}")
    return "; ".join(places)


def label_of(run):
    """The paper's name of a run's algorithm."""
    return LABELS[run.settings["algorithm"]]


def model_of(run):
    """The dataset and the size of a run's models, in words."""
    return f"{title_of(run.settings['dataset'])}, {run.settings['n_hidden']} hidden units"


def choice(settings):
    """The dataset and the batch size of a run, in words."""
    return f"{title_of(settings['dataset'])}, batch {settings['batch_size']}"


def span(values, digits=1):
    """The smallest and the largest of numbers as text, or the one that both are."""
    texts = [f"{value:.{digits}f}" for value in (np.min(values), np.max(values))]
    return " … ".join(dict.fromkeys(texts))
