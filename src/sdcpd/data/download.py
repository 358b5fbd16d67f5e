"""Data files: fetched from a mirror folder or downloaded, and verified by their checksums."""

import errno
import hashlib
import os
import shutil
import warnings
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
    import requests

    with warnings.catch_warnings(action="ignore"):  # its tqdm misses widgets in a notebook
        import pooch

    files = catalogue()["files"]
    if file not in files:
        raise DataError(f"unknown file {file!r}: see workflow/config/datasets.yaml")
    entry, target, failures = files[file], Path(folder) / file, []
    known = {"known_hash": f"sha256:{entry['sha256']}", "fname": target.name}
    from_web = pooch.HTTPDownloader(progressbar=True, timeout=30)
    mirror = mirror or os.environ.get("SDCPD_DATA_MIRROR")
    places = [(f"{Path(mirror) / file} is", Path(mirror) / file, _copy)] if mirror else []
    places += [(f"{url.split('/')[2]}:", url, from_web) for url in entry["urls"]]
    pooch.get_logger().setLevel("WARNING")  # failures are said below, all in one line
    for name, place, download in places:
        try:
            pooch.retrieve(place, path=target.parent, downloader=download, **known)
            return target
        except _Unreadable:
            failures.append(f"{name} not there or cannot be read")
        except requests.RequestException as error:
            status = getattr(error.response, "status_code", None)
            failures.append(f"{name} {f'HTTP status {status}' if status else 'no connection'}")
        except ValueError:
            failures.append(f"{name} damaged (wrong checksum)")
        except OSError as error:
            problem = f"cannot write {target}: {error.strerror or error}; check its permissions"
            if error.errno == errno.ENOSPC:
                need = f"{file} needs {entry['bytes'] / 1e6:.1f} MB in {folder}"
                problem = f"the disk is full: {need}; make room and run again"
            raise DataError(problem) from error
    raise DataError(
        f"{file} could not be had: {'; '.join(failures)}. Connect to the internet and run again, "
        f"or put the file into a folder as <folder>/{file} and set SDCPD_DATA_MIRROR=<folder>"
    )


class _Unreadable(Exception):
    pass


def _copy(place, path, _):
    if not os.access(place, os.R_OK):
        raise _Unreadable
    shutil.copyfile(place, path)


def verified(name, folder):
    """The path of a file of the catalogue in ``folder``; raises DataError if it is not right."""
    path, do = Path(folder) / name, f"run `uv run snakemake --cores 1 data/{name}`"
    if not path.exists():
        raise DataError(f"{path} is missing: {do}")
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != catalogue()["files"][name]["sha256"]:
        raise DataError(f"{path} is damaged: delete it, then {do}")
    return path
