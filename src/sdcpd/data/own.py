"""Datasets in files of the reader's own."""

import hashlib
import io
import math
from pathlib import Path

import numpy as np

from .catalogue import DataError, Dataset, check_binary


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
    content, arrays = _arrays_of(path)
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
        less = ", a tenth, at least one, being held out as test images" * bool(held_out)
        raise DataError(f"{path}: at least 2 training images are necessary, not {len(train)}{less}")
    shape = shapes["train"]
    if len(shape) == 1:
        (n_pixels,), side = shape, math.isqrt(*shape)
        shape = (side, side) if side**2 == n_pixels else (1, n_pixels)
    sha256 = hashlib.sha256(content).hexdigest()
    return Dataset(train, rows.get("valid"), test, shape, None, sha256, held_out)


def _arrays_of(path):
    """The bytes of a file, and its arrays train and perhaps test and valid as they are."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path") from error
    try:  # unpickling would run whatever code the file holds
        found = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(found, np.ndarray):
            return content, {"train": found}
        names = found.files
        if len(names) == 1:
            return content, {"train": found[names[0]]}
        arrays = {name: found[name] for name in ("train", "test", "valid") if name in names}
    except MemoryError:
        raise
    except Exception as error:  # NumPy raises many types here, and each means the same
        what = "damaged, or not numbers as numpy.save and numpy.savez write them"
        raise DataError(f"{path}: {what}; write it again") from error
    if "train" not in arrays:
        among = ", ".join(names) or "nothing"
        raise DataError(f"{path}: no array train in it, but {among}; name the training images so")
    return content, arrays


def _rows_of_own(array, name):
    """Rows of pixels, uint8, of an array that may be anything."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: pixels must be numbers, 0 or 1, and not of type {array.dtype}")
    if array.ndim == 3:
        array = array.reshape(len(array), array.shape[1] * array.shape[2])
    check_binary(array, name)
    return array.astype(np.uint8)
