#!/usr/bin/env bash
# Everything that a GPU can tell, within 8 minutes, on a machine that needs no network: checks
# against float64, then all benchmarks; the tables once more at the end.
#
#   benchmarks/gpu.sh [folder for the records]       default: benchmarks/records
#
# Needs python3 with numpy, scipy, pandas, pyyaml, tqdm, threadpoolctl, numba and cupy; matplotlib,
# torch and rbms are used where they are there. In this project: uv run --extra cuda13 benchmarks/gpu.sh
set -u
cd "$(dirname "$0")/.."
folder=${1:-benchmarks/records}
backend=${BACKEND:-cupy} # cupy_float32 for the reference; numba to try the script on a CPU
mkdir -p "$folder"
log="$folder/gpu-$(date +%F).log"
: >"$log"
failed=""
step() { # step <seconds at most> <script> [arguments]
  local limit=$1 script=$2
  shift 2
  echo "== $script ($(date +%T), at most $limit s)" | tee -a "$log"
  timeout "$limit" python3 -u "benchmarks/$script.py" --backend "$backend" --record --folder "$folder" "$@" \
    2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed="$failed $script"
}
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee -a "$log"
echo "== tests on the GPU ($(date +%T))" | tee -a "$log"
PYTHONPATH=src timeout 60 python3 -m pytest -q -p no:cacheprovider tests/test_split.py tests/test_backend.py \
  2>&1 | tail -15 | tee -a "$log"
[ "${PIPESTATUS[0]}" -eq 0 ] || failed="$failed tests"
step 50 check
step 110 updates
step 40 bars
step 80 peers
step 60 table1
step 60 growth
echo
echo "================ tables ================"
for table in "$folder"/*-"$(date +%F)".md; do
  cat "$table"
  echo
done
echo "failed:${failed:- nothing}; raw output: $log"
[ -z "$failed" ]
