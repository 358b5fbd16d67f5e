"""The paper's figures and tables from run files.

style     colours and markers, the heading, how a figure is saved
captions  what a figure says of its runs: device, date, budget
curves    likelihood curves: Figures 1–4, overfitting, ablations
images    samples (Figure 5), hidden modes, filters
sweeps    tuning and sensitivity
tables    any table; the verdicts on the claims
"""

from .captions import budget_note, choice, describe_runs, label_of, model_of, origin_line, span
from .curves import (
    ablation_curves,
    known_rates,
    likelihood_curves,
    overfitting,
    published,
    refuted_over_epochs,
    trial_curves,
)
from .images import filters, hidden_modes, reconstructions, sample_grids, tile
from .style import STYLES, plt, save
from .sweeps import sensitivity_map, sweep_curves, tuning_map
from .tables import (
    cost_table,
    measurement_table,
    rule_text,
    save_table,
    seconds_text,
    timing_table,
    verdict_table,
    with_interval,
)
