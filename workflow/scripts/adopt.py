"""Write the settings that the tuning sweeps choose to workflow/config/hyperparameters.yaml."""

from pathlib import Path

from sdcpd import runs
from sdcpd.study import tuning

tunings = {
    name: [runs.load_sweep(folder) for folder in folders]
    for name, folders in snakemake.params.tunings.items()
}
tuning.adopt(tunings)
Path(snakemake.log[0]).write_text(f"adopted: {', '.join(tunings)}\n", encoding="utf-8")
