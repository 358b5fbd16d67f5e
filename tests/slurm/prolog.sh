#!/bin/sh
# Before every task of a job step: which job it is, and which GPUs Slurm lets it see.
[ -z "$CUDA_VISIBLE_DEVICES" ] ||
    echo "job $SLURM_JOB_ID: CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES" \
        >> "$(dirname "$0")/devices.txt"
