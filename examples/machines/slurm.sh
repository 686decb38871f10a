#!/bin/bash
# One comparison on several machines by a Slurm array: a task for each block of rounds.
#
#   unherd compare --plan plan.json --blocks 8 -- ./old input -- ./new input
#   sbatch --wait examples/machines/slurm.sh
#   unherd merge plan-[1-8]
#
# A task has its node alone: a neighbour's work would stand in its rounds.
#SBATCH --job-name=unherd
#SBATCH --array=1-8
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --time=01:00:00
set -eu
# A task that Slurm has put back goes on with its record, if it comes to the same node.
exec unherd run-block "$SLURM_ARRAY_TASK_ID" --plan plan.json
