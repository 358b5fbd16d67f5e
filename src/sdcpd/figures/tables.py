"""Tables for readers: any table as CSV, Markdown and LaTeX; Table 1; the verdicts on the claims."""

from pathlib import Path

import numpy as np
import pandas as pd

from ..algorithms import LABELS
from ..data import title_of
from ..study import claims as judge
from ..study import compare

_LATEX = {c: f"\\{c}" for c in "&%$#_"} | {
    "σ": r"$\sigma$",
    "η": r"$\eta$",
    "ε": r"$\epsilon$",
    "λ": r"$\lambda$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "∇": r"$\nabla$",
    "f̂": r"$\hat f$",
    "−": "$-$",
    "±": r"$\pm$",
    "′": "$'$",
}


def save_table(table, stem, caption):
    """Write ``stem``.csv, .md and .tex from a DataFrame whose cells are text or numbers.

    Returns
    -------
    Styler
        The table as a notebook shows it.
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(f"{stem}.csv", index=False)
    markdown = table.to_markdown(index=False, disable_numparse=True)
    Path(f"{stem}.md").write_text(f"{caption}\n\n{markdown}\n", encoding="utf-8")
    escaped = table.map(_latex).rename(columns=_latex)
    latex = escaped.to_latex(index=False, caption=_latex(caption), label=f"tab:{stem.name}")
    Path(f"{stem}.tex").write_text(latex, encoding="utf-8")
    return table.style.hide()


def _latex(text):
    """LaTeX source that needs no package."""
    for plain, source in _LATEX.items():
        text = str(text).replace(plain, source)
    return text


def with_interval(form, value, low, high):
    """A value with its 95 % interval, each as the function ``form`` writes it; NaN: without."""
    text = form(value)
    return text if np.isnan(low) else f"{text} [{form(low)}, {form(high)}]"


# ----------------------------------------------------------------------------------- Table 1


def timing_table(record, paper, archived=None):
    """Table 1: seconds of training, ours and the paper's.

    Ratios are to CD, the geometric mean of those of the trials with its 95 % interval; the paper's
    is that of its means.

    Parameters
    ----------
    record, archived : dict
        As ``timing.table1`` makes it, here and elsewhere.
    paper : DataFrame
        mean and sigma (seconds), by dataset and algorithm.
    """
    rows = []
    for dataset, seconds in record["seconds"].items():
        published = paper.loc[dataset]
        for name, values in seconds.items():
            mean, sigma = published.loc[LABELS[name], ["mean", "sigma"]]
            row = {
                "dataset": dataset,
                "algorithm": LABELS[name],
                "mean (s)": seconds_text(np.mean(values)),
                "σ (s)": seconds_text(np.std(values, ddof=1)),
                "ratio to CD": _ratio(seconds, name, "cd"),
                "products": f"{record['operations'][dataset][name]['products']:.0f}",
                "paper mean (s)": f"{mean:.2f}",
                "paper σ (s)": f"{sigma:.2f}",
                "paper ratio to CD": f"{mean / published['mean']['CD']:.3f}",
            }
            if archived:
                there = archived["seconds"][dataset]
                row["archived: mean (s)"] = seconds_text(np.mean(there[name]))
                row["archived: ratio to CD"] = _ratio(there, name, "cd")
            rows.append(row)
    return pd.DataFrame(rows)


def cost_table(record, paper):
    """Ratios of the seconds, and of the counted operations, of algorithms with extra steps."""
    rows = []
    for dataset, seconds in record["seconds"].items():
        published = paper.loc[dataset, "mean"]
        for more, less in (("sdcp", "cd"), ("sdcp", "cg"), ("sdcp_d", "sdcp")):
            row = {"dataset": dataset, "comparison": f"{LABELS[more]} over {LABELS[less]}"}
            row |= {"ours": _ratio(seconds, more, less)}
            row |= {"paper": f"{published[LABELS[more]] / published[LABELS[less]]:.3f}"}
            of_more, of_less = (record["operations"][dataset][name] for name in (more, less))
            rows.append(row | {what: f"{of_more[what] / of_less[what]:.3f}" for what in of_more})
    return pd.DataFrame(rows)


def seconds_text(value):
    """Seconds with three digits, or whole thousands and more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(seconds, one, other):
    pair = np.array(seconds[one]), np.array(seconds[other])
    found = compare.ratio(*pair, compare.geometric_mean)
    return with_interval("{:.3f}".format, found.value, *found.interval())


# ------------------------------------------------------------------------------------ claims


def verdict_table(verdicts, measured, claims):
    """``claims.verdicts`` for readers, each with the measurement that decides it.

    Where a claim needs several, the one that is furthest on the side on which the claim fails.
    """
    about = {str(claim["id"]): claim for claim in claims}
    rows = []
    # the groups of which each verdict is made, in the same order
    groups = measured.groupby(["id", "experiment", "n_hidden"], sort=False, dropna=False)
    for row, (_, of_claim) in zip(verdicts.itertuples(), groups, strict=True):
        claim = about[row.id]
        shown = {"no.": row.id, "claim": claim["claim"], "dataset": _dataset(row)}
        shown["holds if"] = rule_text(claim)
        worst = _decisive(of_claim, claim, "paper")
        shown["paper"] = _paper(worst) and f"{_paper(worst)} {_against(worst)}".rstrip()
        for setting in ("as published", "tuned"):
            of_setting = of_claim[of_claim.setting.isin([setting, ""])]
            shown[setting] = ""
            if len(of_setting):
                worst = _decisive(of_setting, claim)
                against = _against(worst) if worst.trials else ""
                doubts = f"; {worst.doubts}" if worst.doubts and worst.trials else ""
                shown[setting] = f"{_ours(worst)} {against}".rstrip() + doubts
        if (of_claim.setting == "").all():
            shown["tuned"] = "same"
        rows.append(shown | {"verdict": row.verdict})
    return pd.DataFrame(rows)


def measurement_table(measured, claims):
    """``claims.judge`` for readers."""
    about = {str(claim["id"]): claim for claim in claims}
    rows = []
    for row in measured.itertuples():
        shown = {"no.": row.id, "dataset": _dataset(row)}
        shown["of"] = ", ".join(part for part in (_against(row), row.part) if part)
        shown |= {"setting": row.setting, "paper": _paper(row), "ours [95 % interval]": _ours(row)}
        shown["trials"] = "exact" if np.isinf(row.trials) else f"{row.trials:.0f}"
        shown |= {"holds if": rule_text(about[row.id]), "outcome": row.outcome}
        notes = (row.note, row.doubts) if row.trials else ()  # else it stands for the value
        rows.append(shown | {"note": "; ".join(filter(None, notes))})
    return pd.DataFrame(rows)


def rule_text(claim):
    """The rule of a claim in a few words."""
    ((how, bound),) = claim["holds_if"].items()
    bounds = [_text(value, claim["measure"]) for value in np.atleast_1d(bound)]
    return f"{how} {' and '.join(bounds)}"


def _decisive(measured, claim, column="ours"):
    """The row whose measurement speaks most against the claim; if none was measured, the one that
    makes the outcome."""
    known = measured[measured[column].notna()]
    if known.empty:
        return measured[measured.outcome == judge.together(set(measured.outcome))].iloc[0]
    ((how, bound),) = claim["holds_if"].items()
    if how == "between":
        return known.loc[(known[column] - np.mean(bound)).abs().idxmax()]
    return known.loc[known[column].idxmin() if how == "above" else known[column].idxmax()]


def _ours(row):
    """The measured value with its interval; why there is none."""
    if not row.trials:
        return row.note
    known = row.trials > 1 and row.low != row.high
    interval = (row.low, row.high) if known else (np.nan, np.nan)
    return with_interval(lambda value: _text(value, row.measure), row.ours, *interval)


def _paper(row):
    return _text(row.paper, row.measure) if pd.notna(row.paper) else ""


def _against(row):
    """What is compared with what, and where."""
    one = "" if row.one == "sdcp_d" else f"{LABELS[row.one]} "
    other = f"{one}vs {LABELS[row.other]}" if row.other else ""
    return ", ".join(part for part in (other, row.detail) if part)


def _dataset(row):
    names = {"enumeration": "by enumeration", "large": "large datasets", "caltech": "CalTech"}
    names |= {"kannada": "Kannada-MNIST"}
    name = names.get(row.experiment) or title_of(row.experiment)
    small = row.experiment == "bars_and_stripes" and pd.notna(row.n_hidden)
    return f"{name}, {int(row.n_hidden)} hidden" if small else name


def _text(value, measure):
    """A measured value: a share in per cent, which may never be there, or nats and the like."""
    if judge.is_percentage(measure):
        return "never" if value == -np.inf else f"{100 * value:.0f} %".replace("-", "−")
    return "diverges" if value == np.inf else f"{value:.2f}".replace("-", "−")
