"""What datasets there are: ``workflow/config/datasets.yaml``, and what a dataset consists of."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from .. import ROOT

CATALOGUE = ROOT / "workflow/config/datasets.yaml"
VALID = "_valid"  # at the end of a dataset's name


class DataError(RuntimeError):
    """A dataset cannot be had or is not what it must be; the message says what to do."""


class Dataset(NamedTuple):
    """Images as rows of {0, 1}."""

    train: np.ndarray  # (N, m) uint8
    valid: np.ndarray | None  # (N, m) uint8; only CalTech 101 Silhouettes comes with one
    test: np.ndarray  # (N, m) uint8
    image_shape: tuple  # rows, columns
    grey: np.ndarray | None = None  # (N, m) uint8 to 255: train on images drawn with these means
    sha256: str | None = None  # of an own file
    held_out: int = 0  # rows of an own file without test images that are in their place


class Labelled(NamedTuple):
    """Images as rows of {0, 1}, and the class of each."""

    train: np.ndarray  # (N, m) uint8
    train_classes: np.ndarray  # (N,)
    test: np.ndarray  # (N, m) uint8
    test_classes: np.ndarray  # (N,)


def catalogue():
    """The file: ``datasets`` by name, ``labelled`` and ``files``."""
    return _read(CATALOGUE)


@cache  # the workflow asks for a hundred titles whenever it begins
def _read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def is_own(name):
    """Whether ``name`` is the path of a .npy or .npz file, and not one of our names."""
    return str(name).endswith((".npy", ".npz"))


def entry_of(name):
    """What the catalogue says of a dataset; of ``..._valid`` the same.

    Raises
    ------
    DataError
        If the name is unknown.
    """
    datasets, name = catalogue()["datasets"], name.removesuffix(VALID)
    if name not in datasets:
        known = ", ".join([*datasets, "or a file that ends in .npy or .npz"])
        raise DataError(f"unknown dataset {name!r}: choose one of {known}")
    return datasets[name]


def title_of(name):
    """What a dataset is called; an own file by its name."""
    return Path(name).name if is_own(name) else entry_of(name)["title"]


def files_of(name):
    """The catalogue's files that dataset ``name`` is read from; none if generated or own."""
    return [] if is_own(name) else entry_of(name)["files"]


def labelled_files_of(name):
    """The files that ``load_labelled`` reads; those with the classes last."""
    labelled = catalogue()["labelled"]
    if name not in labelled:
        raise DataError(f"{name!r} has no classes: choose one of {', '.join(labelled)}")
    return labelled[name]


def check_binary(array, name):
    """Raise DataError unless ``array`` is a non-empty matrix of 0 and 1."""
    if array.ndim != 2 or array.size == 0:
        raise DataError(f"{name}: expected rows of pixels, found an array of shape {array.shape}")
    right = (array == 0) | (array == 1)
    if not right.all():
        rule = f"every pixel must be 0 or 1, not {array[~right][0]!s}"
        raise DataError(f"{name}: {rule}; binarize the images first")
