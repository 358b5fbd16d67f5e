#!/usr/bin/env bash
# The workflow through a real Slurm: one node on the loopback interface, started and stopped here.
#
#   apt-get install --no-install-recommends slurm-wlm munge     # Debian or Ubuntu
#   uv run --extra slurm tests/slurm/run.sh                     # as root; 5 to 15 minutes
#
# Everything is in a temporary folder, which is removed at the end; KEEP=1 leaves it. What is tried,
# and what came out: README.md beside this file.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
PATH="$PATH:/usr/sbin"

missing() {
    echo "$*" >&2
    exit 2
}
for program in munged slurmctld slurmd sbatch; do
    [ "$(command -v "$program")" ] ||
        missing "no $program: apt-get install --no-install-recommends slurm-wlm munge"
done
python -c 'import snakemake_executor_plugin_slurm' ||
    missing "no Slurm for snakemake: uv run --extra slurm tests/slurm/run.sh"
[ "$(id -u)" = 0 ] || missing "only root can start Slurm"

state=$(mktemp -d)

stop() { # what was started here, the last first, and nothing else
    status=$?
    trap - EXIT INT TERM
    if [ -e "$state/ready" ]; then
        scancel --user root || true
        for _ in $(seq 80); do
            [ "$(squeue --noheader 2> /dev/null)" ] || break
            sleep 0.5
        done
    fi
    for process in $(jobs -pr | tac); do
        kill "$process" || true
        wait "$process" || true
    done
    [ "$status" = 0 ] || tail -n 20 "$state"/slurm*.log >&2 || true
    if [ "${KEEP:-}" ]; then echo "kept: $state"; else rm -rf "$state"; fi
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

# ------------------------------------------------------------------------------------ Slurm

free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
# Debian's slurmd says what the machine has; its name must be that of the machine
export SLURM_CONF="$state/slurm.conf"
sed -e "s|@STATE@|$state|; s|@HOST@|$(hostname -s)|; s|@NODE@|$(slurmd -C | grep -o 'CPUs=.*')|" \
    -e "s|@CONTROLLER_PORT@|$(free_port)|; s|@NODE_PORT@|$(free_port)|" \
    "$here/slurm.conf" > "$SLURM_CONF"
cp "$here/gres.conf" "$here/prolog.sh" "$state"
mkdir "$state/controller" "$state/node" "$state/bin"
chmod 711 "$state" # munge wants its socket to be in reach of everyone
(umask 077 && head -c 1024 /dev/urandom > "$state/munge.key")
# The plugin calls srun without SLURM_CONF, so that it would look in /etc
printf '#!/bin/sh\nSLURM_CONF=%s exec %s "$@"\n' "$SLURM_CONF" "$(command -v srun)" \
    > "$state/bin/srun"
chmod +x "$state/bin/srun"
PATH="$state/bin:$PATH"

# In sessions of their own: Ctrl-C must reach snakemake, which then ends its jobs, but not Slurm
setsid munged --foreground --force --key-file="$state/munge.key" --socket="$state/munge.socket" \
    --pid-file="$state/munged.pid" --seed-file="$state/munged.seed" > "$state/munged.log" 2>&1 &
setsid slurmctld -D -c > /dev/null 2>&1 &
setsid slurmd -D > /dev/null 2>&1 &
for _ in $(seq 120); do
    ! sinfo --noheader --format=%t 2> /dev/null | grep -q idle || break
    sleep 0.5
done
sinfo --noheader --format='%D node, %c processors, %G, %t' | grep idle
touch "$state/ready"

# ------------------------------------------------------------------------------ the workflow

copy() { # the files of this project, committed or not
    mkdir "$state/$1"
    (cd "$root" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -c) |
        tar -x -C "$state/$1"
}
slurm() ( # less patient than the profile, as these jobs take seconds
    cd "$state/slurm"
    PYTHONPATH="$PWD/src" snakemake --nocolor --profile workflow/profiles/slurm --latency-wait 10 \
        --slurm-init-seconds-before-status-checks 5 "$@"
)
local_() (
    cd "$state/local"
    PYTHONPATH="$PWD/src" snakemake --nocolor --quiet all --cores 2 "$@"
)
same() { # the curves and models of these runs, here and through Slurm; ends everything if not
    for run in "$@"; do
        for file in "$state/local/$run"/{curve.csv*,models.npz}; do
            [ ! -e "$file" ] || cmp "$file" "$state/slurm/${file#"$state/local/"}"
        done
        echo "== same bytes: $run"
    done
}
tell() { echo "== $1: $SECONDS s" && SECONDS=0; }

smoke=(--config scale=smoke backend=numba)
echo 'experiments: {bars_and_stripes: {epochs: 8000}}' > "$state/long.yaml"
long=("${smoke[@]}" --configfile "$state/long.yaml")
runs=results/smoke/runs/bars_and_stripes/as_published
sweeps=results/smoke/sweeps/bars_and_stripes/tuning
copy slurm
copy local

SECONDS=0
slurm "${smoke[@]}" -- figures/fig1_bars_and_stripes.pdf figures/table1_timing.md
tell "Figure 1 and Table 1, through Slurm"
local_ "${smoke[@]}" -- $runs/{cd,pcd,cg,sdcp,sdcp_d}-4h/run.json
tell "the runs of Figure 1, here"
same $runs/{cd,pcd,cg,sdcp,sdcp_d}-4h

# With a GPU each, though the engine of a CPU needs none. (Table 1 had the node to itself, with both.)
rm -f "$state/devices.txt"
slurm "${smoke[@]}" --set-resources sweep:gpu=1 -- $sweeps/{cd,pcd}-4h/run.json
tell "two sweeps with a GPU each, through Slurm"
sort -u "$state/devices.txt" # each twice: the job, and its step
[ "$(cut -d: -f2 "$state/devices.txt" | sort -u | wc -l)" = 2 ]

# The trials of a run in a job each, and one that puts them together
slurm "${smoke[@]}" trials_per_job=1 -- $runs/sdcp_d-4h/run.json
tell "a training with each trial in a job of its own, through Slurm"
ls "$state/slurm/results/smoke/parts/bars_and_stripes/as_published/sdcp_d-4h"
same $runs/sdcp_d-4h

# One whose job is ended by force, as at its time limit: it goes on in another job
(
    until [ -e "$state/slurm/$runs/cd-4h/checkpoint-0.npz" ]; do sleep 0.1; done
    sleep 1
    scancel --user root
) &
slurm "${long[@]}" -- $runs/cd-4h/run.json
tell "a training, its job cancelled once, through Slurm"
grep resumed_at "$state/slurm/$runs/cd-4h/wall.json"
local_ "${long[@]}" -- $runs/cd-4h/run.json
tell "the same training, here"
same $runs/cd-4h
