"""What a call of the workflow would do with which settings, and how wrong ones are refused."""

import pytest
from project import TOGETHER, check_refused, copy_project, jobs, run

from sdcpd import ROOT


def planned(project, figure, *config):
    """How many jobs of each rule a figure needs."""
    status, printed = run(project, "-n", f"figures/{figure}.pdf", config=config)
    assert status == 0, printed
    return jobs(printed)


def test_single_figure_needs_only_its_own_runs(tmp_path):
    fresh = copy_project(tmp_path / "project")
    assert planned(fresh, "fig1_bars_and_stripes") == {TOGETHER: 1, "curves": 1}
    assert planned(fresh, "fig2_mnist") == {"download": 1, "train": 5, "curves": 1}
    assert planned(fresh, "figS_published_mnist_500h", "scale=quick")["tune"] == 1
    tuning = planned(fresh, "figS_tuning_caltech_20h")
    assert tuning == {"download": 1, "sweep": 2, "tune": 1}  # smoke has two algorithms there


def test_large_datasets_come_from_the_archive_where_there_is_no_gpu(tmp_path):
    fresh = copy_project(tmp_path / "project")
    assert planned(fresh, "fig2_mnist", "scale=quick") == {"curves": 1}
    # not if hyperparameters.yaml has others by now
    path = fresh / "workflow/config/hyperparameters.yaml"
    path.write_text(path.read_text().replace("learning_rate: 0.0012", "learning_rate: 0.0013"))
    one_run = {"download": 1, "train": 1}
    assert planned(fresh, "fig2_mnist", "scale=quick") == one_run | {"curves": 1}
    # and the modes of the archived models say nothing of the new one
    (fresh / "workflow/archive/modes/mnist-as_published-500h/measurements.csv").unlink()
    modes = planned(fresh, "figS_hidden_modes_mnist", "scale=quick")
    assert modes == one_run | {"hidden_modes": 1}
    again = planned(fresh, "figS_hidden_modes_caltech", "scale=quick", "measurements=again")
    assert again == {"download": 1, "hidden_modes": 1}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("scal=smoke", "'scal' was unexpected"),
        ("seed=2019.0", "2019.0 is not of type 'integer'"),
        ("scale=huge", "choose one of auto, paper, quick, smoke"),
        ("hyperparameters=best", "choose one of as_published"),
        ("backend=fortran", "unknown backend 'fortran'"),
        ('experiments={"mnist": {"epoch": 3}}', "'epoch' was unexpected"),
        ("runs=never", "'never' is not one of"),
    ],
)
def test_wrong_setting_is_refused_in_one_line(setting, words):
    check_refused(words, ROOT, "-n", config=[setting])


def test_unequal_tuning_is_refused_in_one_line(tmp_path):
    fresh = copy_project(tmp_path / "project")
    path = fresh / "workflow/config/smoke.yaml"
    path.write_text(path.read_text().replace("pcd: *two", "pcd: {learning_rate: [0.1]}", 1))
    words = "tuning.grids.bars_and_stripes: every algorithm must get the same number of settings"
    check_refused(words, fresh, "-n")
