"""Tables of measurements of finished models, kept row by row: an interrupted call goes on.

A folder holds ``measurements.csv`` and ``about.json``, which says where and when they were made,
and of which models: those of others, trained in the same place before, are not kept. Those of a
trial whose model is not at hand, as the archive has that of the best one only, are kept as long as
its run is the same but for the number of trials.
"""

import hashlib
import io
import json
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd

from .. import runs
from ..files import whole_file
from ..rbm import Parameters
from ..runs import archive

FILES = ("measurements.csv", "about.json")


class Measurements:
    """Rows about the models of ``finished``; those that an earlier call left are there again.

    Parameters
    ----------
    folder : path
    columns : list of str
    finished : list of runs.Run
    engine : engines.plain.Engine
        What computes, for ``about.json``.
    **how
        What the rows depend on besides; those made otherwise are not kept.
    """

    def __init__(self, folder, columns, finished, engine, **how):
        self.folder, self.columns = Path(folder), columns
        self.folder.mkdir(parents=True, exist_ok=True)
        self.about = {"how": how, "provenance": runs.provenance(engine)} | _identities(finished)
        self.trials = {run.settings["algorithm"]: run.settings["trials"] for run in finished}
        self.rows = self._kept()

    def has(self, **known):
        """Whether there is a row with these values."""
        return any(known.items() <= row.items() for row in self.rows)

    def add(self, *rows):
        """Keep these rows, dicts, and write everything."""
        self.rows += rows
        self.write()

    def write(self):
        """Write both files whole; without any row, too."""
        self.about["finished"] = datetime.now(UTC).isoformat(timespec="seconds")
        with whole_file(self.folder / FILES[0]) as file:
            self.table().to_csv(file, index=False, float_format="%.10g")
        with whole_file(self.folder / FILES[1]) as file:
            json.dump(self.about, file, indent=2)

    def table(self):
        """All rows as a DataFrame, in the order of the runs and of their trials."""
        order = [*self.trials]
        rows = sorted(self.rows, key=lambda row: (order.index(row["algorithm"]), row["trial"]))
        return pd.DataFrame(rows, columns=self.columns)

    def _kept(self):
        try:
            about = json.loads((self.folder / FILES[1]).read_text(encoding="utf-8"))
            table = pd.read_csv(self.folder / FILES[0])
        except FileNotFoundError:
            return []
        if about["how"] != self.about["how"] or list(table.columns) != self.columns:
            return []
        rows = [row for row in table.to_dict("records") if self._is_of_these(row, about)]
        if rows:
            models = about["models"] | self.about["models"]
            origin = runs.joined_all([about["provenance"], self.about["provenance"]])
            self.about = about | self.about | {"models": models, "provenance": origin}
        return rows

    def _is_of_these(self, row, about):
        algorithm, trial = row["algorithm"], row["trial"]
        model, run = f"{algorithm} {trial}", self.about["runs"].get(algorithm)
        if run is None or run != about["runs"].get(algorithm) or trial >= self.trials[algorithm]:
            return False
        known = about["models"].get(model)
        return self.about["models"].get(model, known) == known


def read(folder):
    """All rows of a folder as a DataFrame, and what ``about.json`` says of them.

    Raises
    ------
    archive.ArchiveError
        If the folder is archived and a file is not what it was.
    """
    rows, about = (archive.read(f"{folder}/{name}") for name in FILES)
    return pd.read_csv(io.BytesIO(rows)), json.loads(about)


def models(finished, trials):
    """(run, row of its theta) of each model to measure: of every run at most ``trials``.

    Those that have diverged are left out.
    """
    found = [(run, row) for run in finished for row in range(min(trials, len(run.trials)))]
    return [(run, row) for run, row in found if np.isfinite(run.theta.W[row]).all()]


def side_by_side(found, engine, n_rows, on_cpu):
    """Lists of (run, row) to measure at once: as many as the memory of a GPU holds.

    Those of a list have the same size. ``n_rows`` is the number of particles or images of each;
    ``on_cpu`` is how many where the engine knows no limit.
    """
    for (n, m), group in groupby(found, lambda f: f[0].theta.W.shape[1:]):
        limit, same = engine.capacity(n, m, n_rows, 0), list(group)
        at_once = on_cpu if limit is None else max(1, limit)
        for first in range(0, len(same), at_once):
            yield same[first : first + at_once]


def stack(found, xp):
    """The models (run, row) one after the other, as arrays of ``xp``."""
    parts = zip(*(run.theta.select(slice(row, row + 1)) for run, row in found), strict=True)
    return Parameters(*(xp.asarray(np.concatenate(arrays)) for arrays in parts))


def _identities(finished):
    """Hashes that tell the runs, but for their number of trials, and the models at hand, as the
    archive keeps them: in half precision."""
    settings = [run.settings | {"trials": None} for run in finished]
    names = [each["algorithm"] for each in settings]
    texts = [json.dumps(each, sort_keys=True).encode() for each in settings]
    with np.errstate(over="ignore"):  # of a trial that diverged
        models = {
            f"{name} {trial}": _digest(b"".join(a[row].astype(np.float16) for a in run.theta))
            for name, run in zip(names, finished, strict=True)
            for row, trial in enumerate(run.trials)
        }
    return {"runs": dict(zip(names, map(_digest, texts), strict=True)), "models": models}


def _digest(content):
    return hashlib.sha256(content).hexdigest()[:16]
