"""The four datasets as arrays of {0, 1}, and their downloads.

    bars_and_stripes         generated; 16 patterns for 3×3
    mnist                    Salakhutdinov & Murray's fixed binarization, 60,000 / 10,000 × 784
    caltech101_silhouettes   split 1 of Marlin's 28×28 silhouettes, 4,100 / 2,264 / 2,307 × 784
    kannada_mnist            grey ≥ 128, 60,000 / 10,000 × 784

and, where the paper leaves a choice open, the same with the other choice:

    mnist_bernoulli          our seeded Bernoulli binarization of the grey images
    mnist_fresh              the same for evaluation; for training drawn anew at every visit
    caltech101_silhouettes_inverted    object 1, background 0
    caltech101_silhouettes_merged      trained on the validation images, too, 6,364 / 2,307
    kannada_mnist_bernoulli  our seeded Bernoulli binarization of the grey images

``mnist_valid`` etc., for the choice of hyperparameters: the test images stay out of sight, and in
their place are the validation split of CalTech, or the last sixth of the training images of the
others, which are then not trained on. Bars & Stripes has nothing to hold out: all patterns are
trained on.

The path of a .npy or .npz file is the name of a dataset, too: see ``read_own``.

Licences: MNIST is CC BY-SA 3.0 according to Keras; none is stated beside the CalTech 101
Silhouettes and Kannada-MNIST files. So they are downloaded and never redistributed. Addresses
and checksums: ``workflow/config/datasets.yaml``.
"""

import errno
import glob
import gzip
import hashlib
import io
import math
import os
import shutil
import struct
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from . import ROOT
from .backend import key, random_words

CATALOGUE = ROOT / "workflow/config/datasets.yaml"
GREY_THRESHOLD = 128  # a Kannada-MNIST pixel this bright or brighter is on
BERNOULLI_SEED = 2008  # of our binarizations
VALID = "_valid"  # at the end of a dataset's name
HELD_OUT = 6  # the last 1/6 of the training images stands in for the test images


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


def bars_and_stripes(size=3):
    """All patterns of the paper's two-step procedure, once for each way to draw them.

    Each row is all 0 or all 1; then the image is rotated by 90° or not. So there are
    2 · 2^size patterns, in which the two uniform ones occur twice.

    Returns
    -------
    ndarray of uint8, shape (2^(size+1), size²)
    """
    bits = (np.arange(2**size)[:, None] >> np.arange(size)) & 1
    bars = np.repeat(bits, size, axis=1)
    stripes = bars.reshape(-1, size, size).transpose(0, 2, 1).reshape(bars.shape)
    return np.concatenate([bars, stripes]).astype(np.uint8)


def load(name, folder=ROOT / "data"):
    """The dataset ``name``, from files that ``fetch`` has put into ``folder``.

    Parameters
    ----------
    name : str
        One of the names at the top of this module, or one with ``_valid`` at its end; or the path
        of a .npy or .npz file, see ``read_own``.

    Returns
    -------
    Dataset
        Pixels of an image row by row. Bars & Stripes: test is train.

    Raises
    ------
    DataError
        If the name is unknown, or a file is missing, damaged or not binary.
    """
    files = files_of(name)
    if is_own(name):
        return read_own(name)
    if name.endswith(VALID):
        return _hold_out(load(name.removesuffix(VALID), folder))
    if name == "bars_and_stripes":
        patterns = bars_and_stripes(3)
        return Dataset(patterns, None, patterns, (3, 3))
    paths = [_verified(Path(folder) / file, file) for file in files]
    parts = _READERS[name](*paths)
    for part in parts:
        if part is not None:
            check_binary(part, name)
    train, valid, test = (None if p is None else p.astype(np.uint8) for p in parts)
    grey = _read_idx(paths[0], IMAGES) if name == "mnist_fresh" else None
    return Dataset(train, valid, test, (28, 28), grey)


def load_labelled(name, folder=ROOT / "data"):
    """The images of a dataset with their classes.

    MNIST's fixed binarization comes without classes and in an order of its own: our binarization
    of the same images stands in for it.

    Returns
    -------
    Labelled

    Raises
    ------
    DataError
        If there are no classes, or as ``load``.
    """
    files = labelled_files_of(name)
    dataset = load("mnist_bernoulli" if name.startswith("mnist") else name, folder)
    paths = [_verified(Path(folder) / file, file) for file in files]
    if paths[-1].suffix == ".mat":
        from scipy.io import loadmat

        content = loadmat(paths[-1])
        classes = [content[f"{part}_labels"].ravel() for part in ("train", "test")]
    else:
        classes = [_read_idx(path, CLASSES) for path in paths[-2:]]
    return Labelled(dataset.train, classes[0], dataset.test, classes[1])


def _hold_out(dataset):
    """The dataset with other images in the place of the test images."""
    if dataset.test is dataset.train:
        return dataset
    if dataset.valid is not None:
        return dataset._replace(valid=None, test=dataset.valid)
    kept = len(dataset.train) - len(dataset.train) // HELD_OUT
    grey = None if dataset.grey is None else dataset.grey[:kept]
    return dataset._replace(train=dataset.train[:kept], test=dataset.train[kept:], grey=grey)


def files_of(name):
    """The catalogue's files that dataset ``name`` is read from; none if generated or own."""
    if is_own(name):
        return []
    name = name.removesuffix(VALID)
    if name == "bars_and_stripes":
        return []
    try:
        return _catalogue()["datasets"][name]
    except KeyError:
        known = ", ".join(["bars_and_stripes", *_catalogue()["datasets"]])
        own = "or a file that ends in .npy or .npz"
        raise DataError(f"unknown dataset {name!r}: choose one of {known}, {own}") from None


def labelled_files_of(name):
    """The files that ``load_labelled`` reads; those with the classes last."""
    try:
        return _catalogue()["labelled"][name]
    except KeyError:
        known = ", ".join(_catalogue()["labelled"])
        raise DataError(f"{name!r} has no classes: choose one of {known}") from None


def check_binary(array, name):
    """Raise DataError unless ``array`` is a non-empty matrix of 0 and 1."""
    if array.ndim != 2 or array.size == 0:
        raise DataError(f"{name}: expected rows of pixels, found an array of shape {array.shape}")
    right = (array == 0) | (array == 1)
    if not right.all():
        rule = f"every pixel must be 0 or 1, not {array[~right][0]!s}"
        raise DataError(f"{name}: {rule}; binarize the images first")


# ------------------------------------------------------------------------------ own files


def is_own(name):
    """Whether ``name`` is the path of a .npy or .npz file, and not one of our names."""
    return str(name).endswith((".npy", ".npz"))


def read_own(path):
    """The dataset in a file of the reader's own.

    A .npy file holds the training images: rows of pixels (N, m), or images (N, rows, columns). A
    .npz file holds them as ``train``, and may hold ``test`` and ``valid``; or as its only array.
    Where there are no test images, the last tenth of the rows, at least one, is held out for them.

    Returns
    -------
    Dataset
        With the checksum of the file. Rows of pixels are taken for square images, or, where that
        cannot be, for images of one row.

    Raises
    ------
    DataError
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path") from error
    try:  # unpickling would run whatever code the file holds
        found = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(found, np.ndarray):
            arrays, names = {"train": found}, ["train"]
        else:
            names = found.files
            arrays = {name: found[name] for name in ("train", "test", "valid") if name in names}
            if len(names) == 1:
                arrays = {"train": found[names[0]]}
    except MemoryError:
        raise
    except Exception as error:  # NumPy raises many types here, and each means the same
        what = "damaged, or not numbers as numpy.save and numpy.savez write them"
        raise DataError(f"{path}: {what}; write it again") from error
    if "train" not in arrays:
        among = ", ".join(names) or "nothing"
        raise DataError(f"{path}: no array train in it, but {among}; name the training images so")
    rows = {name: _rows_of_own(array, f"{path} ({name})") for name, array in arrays.items()}
    shapes = {name: array.shape[1:] for name, array in arrays.items()}
    if len(set(shapes.values())) > 1:
        found = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise DataError(f"{path}: images must have the same shape, not {found}")
    train, test, held_out = rows["train"], rows.get("test"), 0
    if test is None:
        held_out = max(1, len(train) // 10)
        train, test = train[:-held_out], train[-held_out:]
    if len(train) < 2:
        less = ", a tenth, at least one, being held out as test images" if held_out else ""
        raise DataError(f"{path}: at least 2 training images are necessary, not {len(train)}{less}")
    n_pixels, shape = train.shape[1], shapes["train"]
    if len(shape) == 1:
        side = math.isqrt(n_pixels)
        shape = (side, side) if side**2 == n_pixels else (1, n_pixels)
    sha256 = hashlib.sha256(content).hexdigest()
    return Dataset(train, rows.get("valid"), test, shape, None, sha256, held_out)


def _rows_of_own(array, name):
    """Rows of pixels, uint8, of an array that may be anything."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: pixels must be numbers, 0 or 1, and not of type {array.dtype}")
    if array.ndim == 3:
        array = array.reshape(len(array), array.shape[1] * array.shape[2])
    check_binary(array, name)
    return array.astype(np.uint8)


# ------------------------------------------------------------------------------ reading


def _read_salakhutdinov_murray(path):
    from scipy.io import loadmat

    content = loadmat(path)  # images are columns
    return _row_by_row(content["x_trn"].T), None, _row_by_row(content["x_tst"].T)


def _read_bernoulli(name, train_path, test_path):
    def binarize(part, path):
        grey = _read_idx(path, IMAGES)
        stream = key(name, part, BERNOULLI_SEED)
        uniform = random_words(stream, grey.size).reshape(grey.shape) >> np.uint64(11)
        return (uniform * 2.0**-53 < grey / 255).astype(np.uint8)

    return binarize("train", train_path), None, binarize("test", test_path)


def _read_caltech(path):
    from scipy.io import loadmat

    content = loadmat(path)  # as stored, the background is 1 and the object 0
    return tuple(_row_by_row(content[f"{part}_data"]) for part in ("train", "val", "test"))


def _read_inverted_caltech(path):
    return tuple(1 - images for images in _read_caltech(path))


def _read_merged_caltech(path):
    train, valid, test = _read_caltech(path)
    return np.concatenate([train, valid]), None, test


def _read_kannada(train_path, test_path):
    def binarize(path):
        return (_read_idx(path, IMAGES) >= GREY_THRESHOLD).astype(np.uint8)

    return binarize(train_path), None, binarize(test_path)


IMAGES, CLASSES = 2051, 2049  # how an IDX file of them begins


def _read_idx(path, kind):
    """Rows of pixels of a gzipped IDX file of images, or one number a row."""
    with gzip.open(path) as file:
        found, n = struct.unpack(">2i", file.read(8))
        if found != kind:
            what = {IMAGES: "images", CLASSES: "classes"}[kind]
            raise DataError(f"{path}: not an IDX file of {what}; delete it and download it again")
        if kind == CLASSES:
            return np.frombuffer(file.read(), np.uint8).reshape(n)
        rows, columns = struct.unpack(">2i", file.read(8))
        return np.frombuffer(file.read(), np.uint8).reshape(n, rows * columns)


def _row_by_row(images):
    """Rows of 28×28 pixels, which MATLAB stores column by column, with the pixels row by row."""
    return images.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(-1, 784)


_READERS = {
    "mnist": _read_salakhutdinov_murray,
    "mnist_bernoulli": partial(_read_bernoulli, "mnist_bernoulli"),
    "mnist_fresh": partial(_read_bernoulli, "mnist_bernoulli"),
    "caltech101_silhouettes": _read_caltech,
    "caltech101_silhouettes_inverted": _read_inverted_caltech,
    "caltech101_silhouettes_merged": _read_merged_caltech,
    "kannada_mnist": _read_kannada,
    "kannada_mnist_bernoulli": partial(_read_bernoulli, "kannada_mnist_bernoulli"),
}


# -------------------------------------------------------------------------- downloading


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
    try:
        entry = _catalogue()["files"][file]
    except KeyError:
        raise DataError(f"unknown file {file!r}: see workflow/config/datasets.yaml") from None
    target = Path(folder) / file
    failures = []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and _sha256(target) == entry["sha256"]:
            return target
        mirror = mirror or os.environ.get("SDCPD_DATA_MIRROR")
        if mirror:
            problem = _copy(Path(mirror) / file, target, entry["sha256"])
            if problem is None:
                return target
            failures.append(problem)
        for url in entry["urls"]:
            problem = _download(url, target, entry["sha256"])
            if problem is None:
                return target
            failures.append(problem)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            need = f"{entry['bytes'] / 1e6:.1f} MB"
            message = f"the disk is full: {file} needs {need} in {folder}; make room and run again"
        else:
            message = f"cannot write {target}: {error.strerror or error}; check its permissions"
        raise DataError(message) from error
    raise DataError(
        f"{file} could not be had: {'; '.join(failures)}. Connect to the internet and run again, "
        f"or put the file into a folder as <folder>/{file} and set SDCPD_DATA_MIRROR=<folder>"
    )


def _copy(source, target, sha256):
    """Copy a verified file whole or not at all; returns the problem in words, or None."""
    if not os.access(source, os.R_OK):
        return f"{source} is not there or cannot be read"
    if _sha256(source) != sha256:
        return f"{source} is damaged (wrong checksum)"
    with whole_file(target, "wb") as file, source.open("rb") as original:
        shutil.copyfileobj(original, file)
    return None


def _download(url, target, sha256):
    """Download a verified file whole or not at all; returns the problem in words, or None."""
    import pooch
    import requests

    host = url.split("/")[2]
    downloader = pooch.HTTPDownloader(progressbar=True, timeout=30)
    try:
        pooch.retrieve(url, f"sha256:{sha256}", target.name, target.parent, downloader=downloader)
    except requests.RequestException as error:
        status = getattr(error.response, "status_code", None)
        return f"{host}: {f'HTTP status {status}' if status else 'no connection'}"
    except ValueError:  # pooch: the checksum does not match
        return f"{host}: damaged (wrong checksum)"
    return None


def _verified(path, file):
    if not path.exists():
        raise DataError(f"{path} is missing: run `uv run snakemake --cores 1 data/{file}`")
    if _sha256(path) != _catalogue()["files"][file]["sha256"]:
        raise DataError(
            f"{path} is damaged: delete it, then run `uv run snakemake --cores 1 data/{file}`"
        )
    return path


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _catalogue():
    with open(CATALOGUE, encoding="utf-8") as file:
        return yaml.safe_load(file)


@contextmanager
def whole_file(path, mode="w"):
    """A file that appears under its name only when it has been written to the end."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    with suppress(ImportError):  # without psutil, as on a bare GPU machine, they stay
        for other in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
            import psutil

            pid = other.suffixes[-2].removeprefix(".")
            if pid.isdigit() and not psutil.pid_exists(int(pid)):  # killed while it wrote
                other.unlink(missing_ok=True)
