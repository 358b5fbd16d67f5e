"""The beginning of a run trained again."""

import numpy as np
import pytest
from test_runs import settings

from sdcpd import runs
from sdcpd.study import replay

AIS = {"n_particles": 50, "n_temperatures": 60}


@pytest.mark.parametrize("ais", [None, AIS])
def test_the_beginning_is_the_same_to_the_bit(ais):
    run = runs.execute(settings("pcd", epochs=6, ais=ais, trials=3), None, "numpy")
    table = replay.train_beginning(run, 3, "numpy")
    first = run.curve[(run.curve.trial == 0) & (run.curve.epoch <= 3)]
    if ais:  # at the start no plain AIS
        assert first.train.isna().tolist() == [True, False, False, False]
        names = ("train", "test", "log_z_se")
        first = first.assign(
            **{name: first[name].fillna(first[f"trusted_{name}"]) for name in names}
        )
    assert table.epoch.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.part.tolist() == ["train", "test"] * 4
    for column in ("archived", "here"):
        values = table[column].to_numpy().reshape(4, 2)
        np.testing.assert_array_equal(values, first[["train", "test"]])
    assert (table.difference == 0).all()
    np.testing.assert_allclose(table.error[::2], np.sqrt(2) * first.log_z_se)


def test_a_changed_curve_is_noticed():
    run = runs.execute(settings("pcd", epochs=4, ais=AIS), None, "numpy")
    changed = run.curve.copy()
    place = changed["update"].eq(3) & changed.trial.eq(0)
    changed.loc[place, "test"] += 0.25
    changed.loc[changed.trial == 1, ["train", "test"]] = -99.0  # another trial
    table = replay.train_beginning(run._replace(curve=changed), 2, "numpy")
    different = table[table.difference != 0]
    assert different[["epoch", "part"]].values.tolist() == [[1, "test"]]
    assert different.difference.tolist() == pytest.approx([-0.25])


def test_only_common_evaluations_are_compared():
    """The end of the beginning need not be one of the archived run's."""
    evaluate = {"every": 2, "also": [0]}
    run = runs.execute(settings(epochs=6, evaluate=evaluate), None, "numpy")
    table = replay.train_beginning(run, 3, "numpy")
    assert table.epoch.tolist() == [0, 0, 2, 2] and (table.difference == 0).all()
