"""Data files: fetched from a mirror folder or downloaded, and verified by their checksums."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

from .. import ROOT
from .catalogue import DataError, catalogue


def fetch(file, folder=ROOT / "data", mirror=None):
    """Put one file of the catalogue into ``folder``: from the mirror folder, else downloaded.

    Parameters
    ----------
    file : str
        ``folder/name`` as in the catalogue.
    mirror : path, optional
        A folder that is tried first. Default: the environment variable SDCPD_DATA_MIRROR.

    Returns
    -------
    Path
        The file, of which the checksum has been verified.

    Raises
    ------
    DataError
        In one line: each place that was tried and why it failed, and what to do.
    """
    import pooch

    files = catalogue()["files"]
    if file not in files:
        raise DataError(f"unknown file {file!r}: see workflow/config/datasets.yaml")
    entry, target = files[file], Path(folder) / file
    mirror = mirror or os.environ.get("SDCPD_DATA_MIRROR")
    places = [Path(mirror) / file] if mirror else []

    def from_anywhere(url, path, _):
        failures = []
        for place in [*places, *entry["urls"]]:
            problem = _get(place, path, entry["sha256"])
            if problem is None:
                return
            failures.append(problem)
        raise DataError(
            f"{file} could not be had: {'; '.join(failures)}. Connect to the internet and run "
            f"again, or put the file into a folder as <folder>/{file} and set "
            "SDCPD_DATA_MIRROR=<folder>"
        )

    pooch.get_logger().setLevel("WARNING")  # it would name no place that means anything
    known = {"known_hash": f"sha256:{entry['sha256']}", "fname": target.name}
    try:
        pooch.retrieve(file, path=target.parent, downloader=from_anywhere, **known)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            need = f"{entry['bytes'] / 1e6:.1f} MB"
            message = f"the disk is full: {file} needs {need} in {folder}; make room and run again"
        else:
            message = f"cannot write {target}: {error.strerror or error}; check its permissions"
        raise DataError(message) from error
    return target


def _get(place, path, sha256):
    """Copy or download a file to ``path``; returns the problem in words, or None."""
    import pooch
    import requests

    if isinstance(place, Path):
        where = f"{place} is"
        if not os.access(place, os.R_OK):
            return f"{where} not there or cannot be read"
        shutil.copyfile(place, path)
    else:
        where = f"{place.split('/')[2]}:"
        try:
            pooch.HTTPDownloader(progressbar=True, timeout=30)(place, path, None)
        except requests.RequestException as error:
            status = getattr(error.response, "status_code", None)
            return f"{where} {f'HTTP status {status}' if status else 'no connection'}"
    return None if is_right(path, sha256) else f"{where} damaged (wrong checksum)"


def is_right(path, sha256):
    """Whether a file has this checksum."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def verified(file, folder):
    """The path of a file of the catalogue in ``folder``; raises DataError if it is not right."""
    path, do = Path(folder) / file, f"run `uv run snakemake --cores 1 data/{file}`"
    if not path.exists():
        raise DataError(f"{path} is missing: {do}")
    if not is_right(path, catalogue()["files"][file]["sha256"]):
        raise DataError(f"{path} is damaged: delete it, then {do}")
    return path
