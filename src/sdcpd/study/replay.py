"""A test of archived runs: the beginning trained again."""

import numpy as np
import pandas as pd

from .. import ROOT, runs


def train_beginning(archived, epochs, backend_name="auto", data_folder=None):
    """The first trial of an archived run once more, as far as ``epochs``.

    Returns
    -------
    DataFrame
        epoch, part (train, test), archived, here, difference, error: that of the difference of two
        AIS estimates with independent random numbers.
    """
    settings = archived.settings | {"trials": 1, "epochs": epochs}
    run = runs.execute(settings, None, backend_name, data_folder or ROOT / "data")
    theirs = archived.curve[archived.curve.trial == 0].set_index("update")
    rows = []
    for update, ours in run.curve.set_index("update").iterrows():
        if update not in theirs.index:
            continue
        other = theirs.loc[update]
        # the trusted estimates where there are not two plain ones
        by = "" if np.isfinite([ours.log_z, other.log_z]).all() else "trusted_"
        error = float(np.hypot(ours[f"{by}log_z_se"], other[f"{by}log_z_se"]))
        for part in ("train", "test"):
            row = {"archived": other[by + part], "here": ours[by + part]}
            row |= {"difference": row["here"] - row["archived"], "error": error}
            rows.append({"epoch": ours.epoch, "part": part} | row)
    return pd.DataFrame(rows)
