"""What a call of the workflow would do with which settings, and how wrong ones are refused."""

import pytest
from project import TOGETHER, copy_project, jobs, run

from sdcpd import ROOT


def test_single_figure_needs_only_its_own_runs(tmp_path):
    fresh = copy_project(tmp_path / "project")
    _, printed = run(fresh, "-n", "figures/fig1_bars_and_stripes.pdf")
    assert jobs(printed) == {TOGETHER: 1, "curves": 1}
    _, printed = run(fresh, "-n", "figures/fig2_mnist.pdf")
    assert jobs(printed) == {"download": 1, "train": 5, "curves": 1}
    _, printed = run(fresh, "-n", "figures/figS_published_mnist_500h.pdf", config=["scale=quick"])
    assert "figS_published_mnist_500h" in printed
    _, printed = run(fresh, "-n", "figures/figS_tuning_caltech_20h.pdf")
    assert jobs(printed) == {"download": 1, "sweep": 2, "tune": 1}  # smoke has two algorithms there


def test_large_datasets_come_from_the_archive_where_there_is_no_gpu(tmp_path):
    fresh = copy_project(tmp_path / "project")
    _, printed = run(fresh, "-n", "figures/fig2_mnist.pdf", config=["scale=quick"])
    assert jobs(printed) == {"curves": 1}
    # not if hyperparameters.yaml has others by now
    path = fresh / "workflow/config/hyperparameters.yaml"
    path.write_text(path.read_text().replace("learning_rate: 0.0012", "learning_rate: 0.0013"))
    _, printed = run(fresh, "-n", "figures/fig2_mnist.pdf", config=["scale=quick"])
    assert jobs(printed) == {"download": 1, "train": 1, "curves": 1}
    # and the modes of the archived models say nothing of the new one
    (fresh / "workflow/archive/modes/mnist-as_published-500h/measurements.csv").unlink()
    status, printed = run(
        fresh, "-n", "figures/figS_hidden_modes_mnist.pdf", config=["scale=quick"]
    )
    assert status == 0 and jobs(printed) == {"download": 1, "train": 1, "hidden_modes": 1}, printed
    which = ["scale=quick", "measurements=again"]
    _, printed = run(fresh, "-n", "figures/figS_hidden_modes_caltech.pdf", config=which)
    assert jobs(printed) == {"download": 1, "hidden_modes": 1}


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("scal=smoke", "'scal' was unexpected"),
        ("seed=abc", "'abc' is not of type 'integer'"),
        ("seed=2019.0", "2019.0 is not of type 'integer'"),
        ("scale=huge", "choose one of auto, paper, quick, smoke"),
        ("hyperparameters=best", "choose one of as_published"),
        ("backend=fortran", "unknown backend 'fortran'"),
        ('experiments={"mnist": {"epoch": 3}}', "'epoch' was unexpected"),
        ("runs=never", "'never' is not one of"),
    ],
)
def test_wrong_setting_is_refused_in_one_line(setting, words):
    status, printed = run(ROOT, "-n", config=[setting])
    lines = [line for line in printed.splitlines() if words in line]
    assert status != 0 and len(lines) == 1, printed


def test_unequal_tuning_is_refused_in_one_line(tmp_path):
    fresh = copy_project(tmp_path / "project")
    path = fresh / "workflow/config/smoke.yaml"
    path.write_text(path.read_text().replace("pcd: *two", "pcd: {learning_rate: [0.1]}", 1))
    status, printed = run(fresh, "-n")
    words = "tuning.grids.bars_and_stripes: every algorithm must get the same number of settings"
    assert status != 0 and len([ln for ln in printed.splitlines() if words in ln]) == 1, printed


def test_configuration_files_agree_with_the_schema():
    # Every scale's own keys exist in the schema: each is loaded over paper.yaml by a dry run.
    for scale in ("paper", "quick"):
        status, printed = run(
            ROOT, "-n", "figures/fig1_bars_and_stripes.pdf", config=[f"scale={scale}"]
        )
        assert status == 0, printed
