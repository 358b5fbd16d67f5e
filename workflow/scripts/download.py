"""Fetch one data file; on failure say in one line what is wrong and what to do."""

from pathlib import Path

from failures import fail

from sdcpd import data

file = f"{snakemake.wildcards.folder}/{snakemake.wildcards.file}"
log = Path(snakemake.log[0])
try:
    data.fetch(file, mirror=snakemake.config["data_mirror"] or None)
    log.write_text(f"{file}: ready\n")
except data.DataError as error:
    log.write_text(f"{error}\n")
    fail(file, str(error))
