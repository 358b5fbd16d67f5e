"""Write the settings that the tuning sweeps choose to workflow/config/hyperparameters.yaml."""

from pathlib import Path

from sdcpd import runs, tuning

chosen = {}
for name, tuned in snakemake.params.tunings.items():
    sweeps = [runs.load_sweep(folder) for folder in tuned["sweeps"]]
    settings = tuning.table(sweeps)
    groups = tuning.choose(settings, tuned["n_inner_iterations"])
    chosen[name] = settings, groups, tuning.origin(sweeps)
tuning.adopt(chosen)
Path(snakemake.log[0]).write_text(f"adopted: {', '.join(chosen)}\n")
