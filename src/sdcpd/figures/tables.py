"""Tables for readers: any table as CSV, Markdown and LaTeX; the verdicts on the claims."""

from pathlib import Path

import numpy as np
import pandas as pd

from ..algorithms import LABELS
from ..data import title_of
from ..study import claims as judge

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
    """Write ``stem``.csv, .md and .tex from a DataFrame whose cells are text or numbers."""
    Path(stem).parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(f"{stem}.csv", index=False)
    Path(f"{stem}.md").write_text(
        f"{caption}\n\n{table.to_markdown(index=False, disable_numparse=True)}\n", encoding="utf-8"
    )
    latex = _latex(table).to_latex(
        index=False, caption=_latex(caption), label=f"tab:{Path(stem).name}"
    )
    Path(f"{stem}.tex").write_text(latex, encoding="utf-8")


def _latex(content):
    """Text, or a table of text, as LaTeX source that needs no package."""
    if isinstance(content, pd.DataFrame):
        return content.map(_latex).rename(columns=_latex)
    for plain, source in _LATEX.items():
        content = str(content).replace(plain, source)
    return content


def verdict_table(verdicts, measured, claims):
    """``claims.verdicts`` for readers, each with the measurement that decides it.

    Where a claim needs several, the one that is furthest on the side on which the claim fails.
    """
    about = {str(claim["id"]): claim for claim in claims}
    rows = []
    for row in verdicts.itertuples():
        same = (measured.id == row.id) & (measured.experiment == row.experiment)
        same &= measured.n_hidden.fillna(0) == (0 if pd.isna(row.n_hidden) else row.n_hidden)
        own, claim = measured[same], about[row.id]
        shown = {"no.": row.id, "claim": claim["claim"]}
        shown |= {
            "dataset": _where(row.experiment, row.n_hidden),
            "holds if": rule_text(claim),
            "paper": _paper(own, claim),
        }
        for setting, column in (("as published", "as published"), ("tuned", "tuned")):
            part = own[own.setting.isin([setting, ""])]
            shown[column] = _ours(_decisive(part, claim)) if len(part) else ""
        if (own.setting == "").all():
            shown["tuned"] = "same"
        rows.append(shown | {"verdict": row.verdict})
    return pd.DataFrame(rows)


def measurement_table(measured, claims):
    """``claims.judge`` for readers."""
    about = {str(claim["id"]): claim for claim in claims}
    rows = []
    for row in measured.itertuples():
        form = _share if judge.is_percentage(row.measure) else _number
        rows.append(
            {
                "no.": row.id,
                "dataset": _where(row.experiment, row.n_hidden),
                "of": ", ".join(part for part in (_against(row), row.part) if part),
                "setting": row.setting,
                "paper": form(row.paper) if pd.notna(row.paper) else "",
                "ours [95 % interval]": _ours(row, against=False),
                "trials": "exact" if np.isinf(row.trials) else f"{row.trials:.0f}",
                "holds if": rule_text(about[row.id]),
                "outcome": row.outcome,
                "note": row.note if row.trials else "",
            }
        )
    return pd.DataFrame(rows)


def _decisive(own, claim, column="ours"):
    """The row whose measurement speaks most against the claim; if none was measured, the one that
    makes the outcome."""
    known = own[own[column].notna()]
    if known.empty:
        return own[own.outcome == judge.together(set(own.outcome))].iloc[0]
    ((how, bound),) = claim["holds_if"].items()
    if how == "between":
        return known.loc[(known[column] - np.mean(bound)).abs().idxmax()]
    return known.loc[known[column].idxmin() if how == "above" else known[column].idxmax()]


def _ours(row, against=True):
    form = _share if judge.is_percentage(row.measure) else _number
    if not row.trials:
        return row.note
    text = form(row.ours)
    if row.trials > 1 and row.low != row.high:
        text += f" [{form(row.low)}, {form(row.high)}]"
    return f"{text} {_against(row)}".rstrip() if against else text


def _paper(own, claim):
    form = _share if judge.is_percentage(claim["measure"]) else _number
    row = _decisive(own, claim, "paper")
    return f"{form(row.paper)} {_against(row)}".rstrip() if pd.notna(row.paper) else ""


def _against(row):
    one = "" if row.one == "sdcp_d" else f"{LABELS[row.one]} "
    other = f"{one}vs {LABELS[row.other]}" if row.other else ""
    return ", ".join(part for part in (other, row.detail) if part)


def rule_text(claim):
    """The rule of a claim in a few words."""
    ((how, bound),) = claim["holds_if"].items()
    form = _share if judge.is_percentage(claim["measure"]) else _number
    if how == "between":
        return f"between {form(bound[0])} and {form(bound[1])}"
    return f"{how} {form(bound)}"


def _where(experiment, n_hidden):
    names = {"enumeration": "by enumeration", "large": "large datasets", "caltech": "CalTech"}
    names |= {"kannada": "Kannada-MNIST"}
    name = names.get(experiment) or title_of(experiment)
    small = experiment == "bars_and_stripes" and pd.notna(n_hidden)
    return f"{name}, {int(n_hidden)} hidden" if small else name


def _share(value):
    return "never" if value == -np.inf else f"{100 * value:.0f} %".replace("-", "−")


def _number(value):
    return "diverges" if value == np.inf else f"{value:.2f}".replace("-", "−")
