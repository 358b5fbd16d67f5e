"""cuBLAS's product of halves, in NumPy: see emulator.py."""

from emulator import gemm_strided_batched_ex as gemmStridedBatchedEx  # noqa: F401

CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT = 68, -1
