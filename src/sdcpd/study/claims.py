"""The verdict on each claim of the paper, from run files, by the rules in claims.yaml.

A measure is an ``intervals.Estimate``. A claim holds where its whole 95 % interval satisfies the
rule, fails where none of it does, and is undecided else. Several comparisons must all hold; no
correction is needed for that, but one failure among k counts only in an interval of 1 − .05/k, the
first step of Holm's procedure. It is judged with the hyperparameters that best explain the
published curves, and again with those that every algorithm was tuned to.
"""

import re
from collections import Counter
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from .. import sampling
from ..algorithms import LABELS
from ..data import bars_and_stripes
from ..engines.plain import PLAIN
from ..philox import key
from ..trusted import refuted
from . import compare, intervals

SAMPLES = 100  # images of each trial, for the share of valid patterns
STEPS = 200  # Gibbs steps from a random state, as in the paper


class NotJudged(Exception):
    """Why a claim has no measurement, and the outcome that this makes."""

    def __init__(self, reason, outcome="not run"):
        super().__init__(reason)
        self.outcome = outcome


class Evidence(NamedTuple):
    """Everything that claims are judged by."""

    # (experiment, n_hidden, group) -> algorithm -> runs.Run; "group_40": with 40 epochs only
    runs: dict
    sweeps: dict  # (experiment, n_hidden, kind) -> algorithm -> list of runs.Run
    quality: dict  # (experiment, n_hidden, group) -> DataFrame and ``real`` of quality.measure
    modes: dict  # (experiment, n_hidden, group) -> DataFrame of modes.measure
    timing: dict  # a record of timing.table1; empty: not timed
    checks: pd.DataFrame  # the table of the notebook validation
    published: pd.DataFrame  # the published curves
    table1: pd.DataFrame  # the published Table 1
    figures: dict  # experiment -> number of its figure
    budgets: dict  # experiment -> the paper's epochs; (experiment, "quality") -> images of a model
    seed: int

    def pick(self, on, *which, likelihoods=True):
        """Runs of (algorithm, group), as far and with as many trials as the shortest has.

        Where there are several of a group, that with the most trials of those that are long enough.
        ``on["epochs"]`` becomes how far that is. Without ``likelihoods`` it does not matter how
        well these are known. A claim fails where a trial of what it is about, the first of two or
        each of several, diverged; ``on["lost"]`` says which of the other trials did.
        """
        try:
            whole = [self._longest_enough(on, name, group) for name, group in which]
        except ValueError:
            groups = dict.fromkeys(group for _, group in which)
            raise NotJudged(f"{' or '.join(groups)} not run") from None
        trials = min(run.settings["trials"] for run in whole)
        self.judge_at(on, min(run.settings["epochs"] for run in whole), "run", trials)
        found = [compare.until(run, on["epochs"], trials) for run in whole]
        if not likelihoods:
            return found
        lost = [_lost(run) for run in found]
        if failures := [*filter(None, lost if len(found) > 2 else lost[:1])]:
            raise NotJudged("; ".join(failures), "fails")
        on["lost"] = "; ".join(filter(None, lost))
        on["doubts"] = _doubts(found, on)
        for (algorithm, group), run, of in zip(which, found, whole, strict=True):
            named = self.runs.get((on["experiment"], on["n_hidden"], group), {})
            if of is named.get(algorithm):  # not a shorter one, whose models are others
                self._compare_with_modes(on, algorithm, group, run)
        return found

    def _compare_with_modes(self, on, algorithm, group, run):
        """Raise NotJudged where the measured modes of a model refute its log Z in the run."""
        measured = self.modes.get((on["experiment"], on["n_hidden"], group))
        if measured is None:
            return
        for row in measured[measured.algorithm == algorithm].itertuples():
            end = run.curve[(run.curve.trial == row.trial) & (run.curve.epoch == row.epochs)]
            if refuted(end.trusted_log_z, row.bound).any():
                of = f"{LABELS[algorithm]}, trial {row.trial}"
                raise NotJudged(f"{of}: log Z is refuted by a mode found since", "undecided")

    def _longest_enough(self, on, algorithm, group):
        def preferred(run):
            trials, epochs = run.settings["trials"], run.settings["epochs"]
            return (1, trials, epochs) if epochs >= on.get("least_epochs", 0) else (0, epochs)

        form, place = rf"{re.escape(group)}(_\d+)?", (on["experiment"], on["n_hidden"])
        of_group = [
            by for (*at, g), by in self.runs.items() if re.fullmatch(form, g) and (*at,) == place
        ]
        return max((by[algorithm] for by in of_group if algorithm in by), key=preferred)

    def sweep(self, on, algorithm, kind):
        """The runs of a sweep."""
        try:
            sweep = self.sweeps[on["experiment"], on["n_hidden"], kind][algorithm]
        except KeyError:
            raise NotJudged(f"{kind} not run") from None
        settings = sweep[0].settings
        self.judge_at(on, settings["epochs"], f"{kind} run", settings["trials"])
        return sweep

    def judge_at(self, on, epochs, what, trials):
        """Say that ``on`` is judged at so many epochs, if that is enough."""
        on["epochs"], least = epochs, on.get("least_epochs", 0)
        if epochs < least:
            size = f"{trials} trial{'s' if trials > 1 else ''} × {epochs:.10g}"
            of = f"{self.budgets[on['experiment']]:,}"
            raise NotJudged(f"{what} with {size} of {of} epochs, judged from {least:,} on")


def _lost(run):
    """How many trials of a run diverged, in words; empty for none."""
    diverged = int((run.curve.status == "diverged").sum())
    name = LABELS[run.settings["algorithm"]]
    return f"{name}: {diverged} of {run.settings['trials']} trials diverged" if diverged else ""


def _doubts(found, on):
    """Why likelihoods that are used are not to be judged, in words; empty where they may be."""
    each = (compare.doubts(run, on.get("at_end", False)) for run in found)
    return "; ".join(dict.fromkeys(filter(None, each)))


# ------------------------------------------------------------------------------ measures
# measure(evidence, on, group) -> Estimate;  on: where, from claims.yaml, with one ``other``.


def failed_checks(evidence, on, group):
    """Number of checks of the notebook validation, of those named, that do not hold."""
    named = evidence.checks[evidence.checks.statement.str.contains(on["checks"])]
    if named.empty:
        raise NotJudged("not checked")
    return intervals.exact((named.holds != "yes").sum())


def operations_ratio(evidence, on, group):
    """Counted operations of an update, one algorithm over the other; the same everywhere."""
    one, other = _timed(evidence, on, "operations")
    return intervals.exact(one[on["of"]] / other[on["of"]])


def seconds_ratio(evidence, on, group):
    """Seconds of training, one algorithm over the other, in pairs of neighbouring repetitions."""
    seconds = map(np.array, _timed(evidence, on, "seconds"))
    return compare.ratio(*seconds, compare.geometric_mean)


def epochs_saved(evidence, on, group):
    """1 − (epoch of S-DCP-D / of the other) where both are so many nats below the other's best."""
    return compare.saved(*_both(evidence, on, group), on["part"], on["below"])


def best_difference(evidence, on, group):
    """The best of S-DCP-D's mean curve minus that of the other's (nats)."""
    return compare.best_difference(*_both(evidence, on, group), on["part"])


def range_of_finals(evidence, on, group):
    """Largest minus smallest mean final log-likelihood of the five algorithms (nats)."""
    every = evidence.pick(on, *((name, group) for name in LABELS))
    return compare.range_of_means([compare.finals(run, on["part"]) for run in every])


def maximum(evidence, on, group):
    """Mean over trials of each trial's highest log-likelihood (nats), beside the highest of all."""
    (run,) = evidence.pick(on, (on["one"], group))
    best = compare.maxima(run, on["part"])
    return compare.mean(best)._replace(note=f"the highest of all trials: {np.nanmax(best):.2f}")


def final_difference(evidence, on, group):
    """Final log-likelihood of S-DCP-D minus that of the other (nats)."""
    return _difference(compare.finals, evidence, on, group)


def area_difference(evidence, on, group):
    """Mean log-likelihood over the epochs of S-DCP-D minus that of the other (nats)."""
    return _difference(compare.areas, evidence, on, group, on.get("since", 0))


def roughness_difference(evidence, on, group):
    """Variance of second differences without that of AIS, S-DCP-D minus the other (nats²)."""
    return _difference(compare.roughness, evidence, on, group, on.get("since", 0))


def spread_ratio(evidence, on, group):
    """Standard deviation over trials of the final log-likelihood, S-DCP-D over the other."""
    finals = (compare.finals(run, on["part"]) for run in _both(evidence, on, group))
    return compare.ratio(*finals, compare.spread)


def range_over_epsilon(evidence, on, group):
    """Largest minus smallest mean final log-likelihood over ε (nats); ∞ if any trial diverged."""
    finals = [compare.finals(run, on["part"]) for run in _over_epsilon(evidence, on, group)]
    lost = [(~np.isfinite(values)).sum() for values in finals]
    if any(lost):
        note = f"diverged: {sum(lost)} trials, in {np.count_nonzero(lost)} of {len(lost)} ε"
        return intervals.exact(np.inf, len(finals[0]), note=note)
    return compare.range_of_means(finals)


def diverged_over_epsilon(evidence, on, group):
    """Share of the trials that diverged, over all ε."""
    return compare.mean(_diverged(_over_epsilon(evidence, on, group, likelihoods=False)))


def diverged_in_grid(evidence, on, group):
    """Share of the trials that diverged in the tuning grid, S-DCP-D minus the other."""
    both = (evidence.sweep(on, name, "tuning") for name in ("sdcp_d", on["other"]))
    return compare.difference(*map(_diverged, both))


def share_of_valid_patterns(evidence, on, group):
    """Share of the samples after 200 Gibbs steps from random states that are bars or stripes."""
    (run,) = evidence.pick(on, (on["one"], group), likelihoods=False)
    alive = np.flatnonzero(np.isfinite(run.theta.W).all((1, 2)))
    keys = [key(evidence.seed, "valid", on["n_hidden"], group, run.trials[row]) for row in alive]
    images = sampling.generate(run.theta.select(alive), keys, SAMPLES, STEPS, engine=PLAIN)
    is_valid = (images[:, :, None] == bars_and_stripes(3)).all(-1).any(-1)
    return compare.mean(is_valid.mean(1))


def sharpness_difference(evidence, on, group):
    """Sharpness, mean |p − ½| of generated images' pixels, S-DCP-D minus the other.

    Of trials of which neither model is collapsed: fewer than half as many classes, by the
    exponential of their entropy, as as many real images have.
    """
    of_both, real = _images(evidence, on, group)
    entropy = of_both["entropy"]
    collapsed = entropy < real["entropy"] - np.log(2)
    seen = []
    for name, lost in collapsed.sum().items():
        said = f"{LABELS[name]}: entropy {entropy[name].mean():.2f}"
        said += f", largest class {of_both['largest'][name].mean():.0%}"
        seen.append(said + f", {lost} of {len(collapsed)} collapsed" * bool(lost))
    kept = of_both["sharpness"][~collapsed.any(axis=1)]
    if kept.empty and len(collapsed):
        raise NotJudged("; ".join(seen), "undecided")
    return compare.difference(*kept.to_numpy().T)._replace(note="; ".join(seen))


def diversity_difference(evidence, on, group):
    """Entropy of the classes of generated images (nats), S-DCP-D minus the other."""
    of_both, _ = _images(evidence, on, group)
    return compare.difference(*of_both["entropy"].to_numpy().T)


def _images(evidence, on, group):
    """Column of quality.measure -> DataFrame of both algorithms, in trials that both have; and the
    same of real images."""
    _both(evidence, on, group, likelihoods=False)
    try:
        measured, real = evidence.quality[on["experiment"], on["n_hidden"], group]
    except KeyError:
        raise NotJudged("not measured") from None
    needed, images = evidence.budgets[on["experiment"], "quality"], measured.n_images.min()
    if images < needed:
        raise NotJudged(f"measured on {images} of {needed} images only")
    names, columns = ["sdcp_d", on["other"]], ("sharpness", "entropy", "largest")
    tables = {c: measured.pivot(index="trial", columns="algorithm", values=c) for c in columns}
    return {c: t.reindex(columns=names).dropna() for c, t in tables.items()}, real


def nats_missed(evidence, on, group):
    """Nats of log Z that plain AIS misses: the trusted estimate, or the bound where that is more,
    minus plain AIS; mean over seeds, which stand for trials, but for those whose estimates do not
    agree, where no bound says more than plain AIS."""
    measured = evidence.modes.get((on["experiment"], on["n_hidden"], group))
    of_model = () if measured is None else measured[measured.algorithm == on["model"]]
    if not len(of_model):
        raise NotJudged("not measured")
    evidence.judge_at(on, of_model.epochs.iloc[0], "models", 1)
    known = (of_model.trusted_agrees == 1) | refuted(of_model.log_z, of_model.bound)
    if not known.any():
        raise NotJudged("no two ways to estimate log Z agree", "undecided")
    of_model = of_model[known]
    most = np.maximum(of_model.trusted_log_z, of_model.bound)
    return compare.mean((most - of_model.log_z).to_numpy())


MEASURES = {
    measure.__name__: measure
    for measure in (
        *(failed_checks, operations_ratio, seconds_ratio, epochs_saved, best_difference, maximum),
        *(range_of_finals, final_difference, area_difference, roughness_difference, spread_ratio),
        *(range_over_epsilon, diverged_over_epsilon, diverged_in_grid, share_of_valid_patterns),
        *(sharpness_difference, diversity_difference, nats_missed),
    )
}


# Those that read the last likelihood of each trial alone: a doubt about another is none about them.
AT_END = "range_of_finals", "final_difference", "spread_ratio", "range_over_epsilon"


def _both(evidence, on, group, **how):
    return evidence.pick(on, ("sdcp_d", group), (on["other"], on.get("other_group", group)), **how)


def _difference(of_trials, evidence, on, group, *how):
    values = (of_trials(run, on["part"], *how) for run in _both(evidence, on, group))
    return compare.difference(*values)


def _timed(evidence, on, what):
    try:
        return [evidence.timing[what][on["timed"]][on[who]] for who in ("one", "other")]
    except KeyError:
        raise NotJudged("not timed") from None


def _over_epsilon(evidence, on, group, likelihoods=True):
    sweep = evidence.sweep(on, "sdcp_d", f"sensitivity_{group}")
    averaged = on["lambda_hessian"]
    found = [run for run in sweep if run.settings["hyperparameters"]["lambda_hessian"] == averaged]
    if not found:
        raise NotJudged(f"λ_H = {averaged:g} not run")
    on["doubts"] = _doubts(found, on) if likelihoods else ""
    return found


def _diverged(sweep):
    """For each trial, the share of the settings in which it diverged."""
    return np.mean([~np.isfinite(compare.finals(run)) for run in sweep], 0)


# --------------------------------------------------------------------- the paper's values


def paper_value(measure, on, evidence):
    """The same measure by the paper's published curves or Table 1; None if it shows neither."""
    if measure == "seconds_ratio":
        seconds = evidence.table1[evidence.table1.dataset == on["timed"]].set_index("algorithm")
        return float(seconds["mean"][LABELS[on["one"]]] / seconds["mean"][LABELS[on["other"]]])
    part = on.get("part", "")
    if not part or on.get("n_hidden") not in (4, 500) or "other_group" in on:
        return None
    panel = f"{part}-{'max' if measure == 'maximum' else 'mean'}$"
    curves = evidence.published[evidence.published.figure == evidence.figures.get(on["experiment"])]
    curves = curves[curves.panel.str.contains(panel)]
    if curves.empty:
        return None
    table = curves.pivot(index="epoch", columns="algorithm", values="avg_loglik")
    if measure == "range_of_finals":
        return float(np.ptp(table.iloc[-1]))
    if measure == "maximum":
        return float(table[on["one"]].max())
    if "other" not in on:
        return None
    both = table[["sdcp_d", on["other"]]].dropna()
    epochs, (fast, slow) = both.index.to_numpy(float), both.to_numpy().T
    if measure == "epochs_saved":
        before = fast[0] >= slow.max() - on["below"]  # the published curve begins
        return None if before else compare.epochs_saved(epochs, fast, slow, on["below"])
    values = {
        "best_difference": fast.max() - slow.max(),
        "final_difference": fast[-1] - slow[-1],
        "area_difference": np.trapezoid(fast - slow, epochs) / np.ptp(epochs),
        # in which equal noise cancels
        "roughness_difference": np.diff(fast, 2).var(ddof=1) - np.diff(slow, 2).var(ddof=1),
    }
    return float(values[measure]) if measure in values else None


# ------------------------------------------------------------------------------ judgement


def outcome(estimate, rule, comparisons=1):
    """``holds``, ``fails`` or ``undecided``: an Estimate by {above: x}, {below: x} or {between}.

    It holds in its 95 % interval; it fails only in that of 1 − .05/``comparisons``.
    """
    ((how, bound),) = rule.items()
    low, high = estimate.decisive()
    lower, higher = estimate.decisive(comparisons)
    if np.isnan(low):
        return "undecided"
    if how == "above":  # the bound itself is not enough
        inside, outside = low > bound, higher <= bound
    elif how == "below":
        inside, outside = high < bound, lower >= bound
    else:
        inside = bound[0] <= low and high <= bound[1]
        outside = higher < bound[0] or lower > bound[1]
    return "holds" if inside else "fails" if outside else "undecided"


def judge(claims, evidence):
    """Every measurement that the claims ask for.

    Parameters
    ----------
    claims : list of dict
        As in claims.yaml.

    Returns
    -------
    DataFrame
        id, measure, experiment, n_hidden, part, detail, one, other, setting (``as published``,
        ``tuned``, or empty where hyperparameters are of no consequence), paper, ours, low, high
        (the 95 % interval), trials (inf: exact), epochs, of_epochs (the paper's), outcome
        (``holds``, ``fails``, ``undecided``, ``not run``, ``not testable here``), doubts (why the
        value decides nothing; mostly empty), note.
    """
    rows = []
    for claim in claims:
        wanted = [(on, *each) for on in _places(claim) for each in _settings(claim)]
        judged_together = Counter(_comparison(on, setting) for on, setting, _ in wanted)
        for on, setting, group in wanted:
            comparisons = judged_together[_comparison(on, setting)]
            rows.append(_measure(claim, dict(on), setting, group, evidence, comparisons))
    return pd.DataFrame(rows)


def _places(claim):
    """Each combination of the values of what is a list in a place, with the least budget."""
    for place in claim["where"]:
        if least := claim.get("least_epochs"):
            place = place | {"least_epochs": least[place["experiment"]]}
        lists = {name: values for name, values in place.items() if isinstance(values, list)}
        for values in product(*lists.values()):
            yield place | dict(zip(lists, values, strict=True))


def _settings(claim):
    """The settings that a claim is judged in, and their groups of hyperparameters."""
    if "tuned_for" not in claim:
        return [("", "as_published")]
    both = [("as published", "as_published"), ("tuned", f"tuned_{claim['tuned_for']}")]
    return both[1:] if claim.get("only_tuned") else both


def _comparison(on, setting):
    """What several measurements of a claim have in common that must all hold."""
    return on["experiment"], on.get("n_hidden"), setting


def _measure(claim, on, setting, group, evidence, comparisons):
    on["at_end"] = claim["measure"] in AT_END
    try:
        found = MEASURES[claim["measure"]](evidence, on, group)
        verdict = outcome(found, claim["holds_if"], comparisons)
        if on.get("doubts"):  # the value is shown, but decides nothing
            verdict = "undecided"
        note = "; ".join(filter(None, [found.note, on.get("lost")]))
    except NotJudged as reason:
        found, verdict, note = intervals.NONE, reason.outcome, str(reason)
    if claim.get("on_gpu") and not evidence.timing.get("on_gpu"):
        verdict = "not testable here"
    low, high = found.interval()
    row = {"id": str(claim["id"]), "measure": claim["measure"], "experiment": on["experiment"]}
    row |= {"n_hidden": on.get("n_hidden"), "part": on.get("part", ""), "detail": _detail(on)}
    row |= {"one": on.get("one", "sdcp_d"), "other": on.get("other", ""), "setting": setting}
    row |= {"paper": paper_value(claim["measure"], on, evidence), "ours": found.value}
    row |= {"low": low, "high": high, "trials": found.trials, "epochs": on.get("epochs")}
    row |= {"of_epochs": evidence.budgets.get(on["experiment"])}
    return row | {"outcome": verdict, "doubts": on.get("doubts", ""), "note": note}


def _detail(on):
    """What tells measurements of one claim apart, besides algorithms and images."""
    said = {"below": "{:g} nat below".format, "lambda_hessian": "λ_H = {:g}".format}
    said |= {"of": str, "model": LABELS.get}
    return ", ".join(say(on[name]) for name, say in said.items() if name in on)


def together(outcomes):
    """One outcome of several that must all hold."""
    order = "fails", "not testable here", "not run", "undecided", "holds"
    return min(outcomes, key=order.index)


def verdict(by_setting):
    """The verdict on a claim about one dataset from its outcome in each setting.

    Parameters
    ----------
    by_setting : dict
        setting -> outcome.
    """
    outcomes = list(by_setting.values())
    if len(set(outcomes)) == 1:
        return {"holds": "reproduced", "fails": "not reproduced"}.get(outcomes[0], outcomes[0])
    published, tuned = by_setting["as published"], by_setting["tuned"]
    if published == "fails":
        return "reproduced only when tuned" if tuned == "holds" else "not reproduced"
    if (published, tuned) == ("holds", "fails"):
        return "reproduced only as published"
    return "not run" if published == "not run" else "undecided"


def verdicts(measured, claims):
    """One row for each claim and dataset.

    Returns
    -------
    DataFrame
        id, place, claim, experiment, n_hidden, as published, tuned (outcomes; empty where the claim
        has nothing to do with it) and verdict, which says so where runs are shorter than the
        paper's.
    """
    rows, about = [], {str(claim["id"]): claim for claim in claims}
    columns = ["id", "experiment", "n_hidden"]
    for (name, experiment, n), group in measured.groupby(columns, sort=False, dropna=False):
        by = {s: together(set(part.outcome)) for s, part in group.groupby("setting", sort=False)}
        row = {"id": name, "place": about[name]["place"], "claim": about[name]["claim"]}
        row |= {"experiment": experiment, "n_hidden": n}
        row |= {setting: by.get(setting, "") for setting in ("as published", "tuned")}
        row["verdict"] = verdict(by)
        known = group[group.trials > 0]
        epochs, of = known.epochs.min(), known.of_epochs.max()
        if epochs < of:  # NaN where that is of no consequence
            row["verdict"] += f", judged at {epochs:.10g} of {of:,.0f} epochs"
        rows.append(row)
    return pd.DataFrame(rows)


def is_percentage(measure):
    """Whether a measure is a share, to be shown in per cent."""
    return bool(re.search(r"saved|diverged|share", measure))
