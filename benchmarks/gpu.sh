#!/usr/bin/env bash
# Everything that a GPU can tell, within 8 minutes, on a machine that needs no network: checks
# against float64, then all benchmarks; the tables once more at the end.
#
#   benchmarks/gpu.sh [archive] [parts]     default: results/gpu-<date>.tar.gz, and all parts
#
# The archive is the one file that it writes, anew after each part: records and the whole output. To
# keep the records: tar -xzf <archive> -C benchmarks/records.
#
# Needs python3 with numpy, scipy, pandas, pyyaml, tqdm and cupy; pytest, numba, matplotlib, torch and
# rbms are used where they are there. In this project: uv run --extra cuda13 benchmarks/gpu.sh
set -u
archive=$(realpath -m "${1:-$(dirname "$0")/../results/gpu-$(date +%F).tar.gz}")
parts=" ${*:2} "
cd "$(dirname "$0")/.."
mkdir -p "$(dirname "$archive")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
backend=${BACKEND:-cupy} # cupy_float32 for the reference; numba to try the script on a CPU
log="$folder/gpu-$(date +%F).log"
failed=""
part() { # part <name> <seconds at most> <command>
  local name=$1 limit=$2
  shift 2
  [[ $parts == "  " || $parts == *" $name "* ]] || return 0
  echo "== $name ($(date +%T), at most $limit s)" | tee -a "$log"
  timeout "$limit" "$@" 2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed="$failed $name"
  tar -czf "$archive" -C "$folder" .
}
measure() { # measure <script> <seconds at most>
  local how=(--backend "$backend" --record --folder "$folder")
  part "$1" "$2" python3 -u "benchmarks/$1.py" "${how[@]}" ${QUICK:+--quick}
}
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee -a "$log"
export PYTHONPATH=src${PYTHONPATH:+:$PYTHONPATH}
# without the options of pyproject.toml, which are of a plugin that need not be there
part tests 60 python3 -m pytest -q -o addopts= -p no:cacheprovider -k gpu tests/test_split.py tests/test_device.py
measure check 50
measure updates 110
measure bars 40
measure peers 80
measure table1 60
measure growth 60
echo
echo "================ tables ================"
for table in "$folder"/*.md; do
  [ ! -e "$table" ] || cat "$table"
  echo
done
echo "failed:${failed:- nothing}; records and the whole output: $archive"
[ -z "$failed" ]
