"""Fetch one data file; on failure say in one line what is wrong and what to do."""

from pathlib import Path

from failures import fail

from sdcpd import data

file = f"{snakemake.wildcards.folder}/{snakemake.wildcards.file}"
log = Path(snakemake.log[0])
try:
    data.fetch(file, mirror=snakemake.config["data_mirror"] or None)
    log.write_text(f"{file}: ready\n", encoding="utf-8")
except data.DataError as error:
    log.write_text(f"{error}\n", encoding="utf-8")
    fail(file, str(error))
