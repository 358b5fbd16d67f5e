"""The random numbers that NumPy, CuPy and the kernels share.

They are counter-based (Philox-4x32-10, Salmon et al. 2011): the number of a unit is a function of
the replica's key, of the number of the draw, of the row (chain) and of the unit alone. So a trial's
numbers depend neither on the device, nor on which trials run beside it, nor on where a run was
resumed; and a kernel makes each number where it is needed. Initial weights and our binarizations of
datasets, which are always made on the host, are drawn by NumPy's Philox-4x64-10.
"""

import hashlib
import json

import numpy as np

BLOCK = 4  # numbers that one Philox counter gives
_ROUNDS = 10


def key(*fields):
    """A key, shape (2,) uint64, from numbers and names.

    NumPy's Philox-4x64 takes all 128 bits, the Philox-4x32 of a ``Stream`` the first 64. Different
    fields give independent streams; equal fields, whatever the order of names in them, the same
    stream everywhere.
    """
    text = json.dumps(fields, sort_keys=True)
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)


def random_words(key, n):
    """The first ``n`` random 64-bit words of NumPy's Philox-4x64-10."""
    return np.random.Philox(key=key).random_raw(n)


def philox(keys, draw, n_rows, n_units, xp=np):
    """The random words of one draw: uint32, shape (R, n_rows, n_units).

    Word w of block j of a row is word w of Philox-4x32-10 with counter (j, row, low and high half
    of ``draw``) and the 64 bits of ``keys`` (R,) as the key; unit 4j + w gets it.
    """
    mask, shift = xp.uint64(0xFFFFFFFF), xp.uint64(32)
    blocks = -(-n_units // BLOCK)
    out = xp.empty((len(keys), n_rows, BLOCK * blocks), xp.uint32)
    counter = xp.empty((BLOCK, len(keys), n_rows, blocks), xp.uint64)
    counter[0], counter[1] = xp.arange(blocks), xp.arange(n_rows)[:, None]
    counter[2], counter[3] = draw & 0xFFFFFFFF, draw >> 32
    c0, c1, c2, c3 = counter
    key = keys[:, None, None]
    key0, key1 = key & mask, key >> shift
    for _ in range(_ROUNDS):
        c0 *= xp.uint64(0xD2511F53)
        c2 *= xp.uint64(0xCD9E8D57)
        c1 ^= key0
        c3 ^= key1
        c1 ^= c2 >> shift  # the new c0; the low half of c2 is the new c1 …
        c3 ^= c0 >> shift  # … and likewise
        c0 &= mask
        c2 &= mask
        c0, c1, c2, c3 = c1, c2, c3, c0
        key0, key1 = (key0 + xp.uint64(0x9E3779B9)) & mask, (key1 + xp.uint64(0xBB67AE85)) & mask
    for word, values in enumerate((c0, c1, c2, c3)):
        out[..., word::BLOCK] = values
    return out[..., :n_units]


class Stream:
    """Random numbers for R replicas that advance together, draw by draw.

    Parameters
    ----------
    keys : array_like of uint64, shape (R, 2)
        As ``key`` makes them.
    xp : module
        ``numpy`` or ``cupy``.
    position : int
        Number of draws already made: what a checkpoint stores.
    """

    def __init__(self, keys, xp, position=0):
        self.keys = np.asarray(keys, dtype=np.uint64).reshape(-1, 2)
        self.xp = xp
        self.position = int(position)
        self.device_keys = xp.asarray(np.ascontiguousarray(self.keys[:, 0]))

    def next(self):
        """The number of the next draw, which is then taken: for a kernel that draws itself."""
        self.position += 1
        return self.position - 1

    def words(self, n_rows, n_units):
        """The next draw, uint32, shape (R, n_rows, n_units)."""
        return philox(self.device_keys, self.next(), n_rows, n_units, self.xp)

    def uniform(self, n_rows, n_units):
        """The next draw, float32 in [0, 1), shape (R, n_rows, n_units). 1.0 never occurs."""
        words = self.words(n_rows, n_units)
        words >>= self.xp.uint32(8)  # 24 bits are exact in float32, and cannot round up to 1.0
        return words.view(self.xp.int32).astype(self.xp.float32) * self.xp.float32(2.0**-24)

    def select(self, rows):
        """The stream of the replicas ``rows`` alone, from here on."""
        return Stream(self.keys[rows], self.xp, self.position)
