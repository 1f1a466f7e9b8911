#!/bin/bash
# Four workers on two nodes: sbatch slurm.sh build/starter [arguments...]
#SBATCH --nodes=2
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00
export TROUPE_NUM_THREADS=$SLURM_CPUS_PER_TASK   # each task has cores of its own
srun --cpus-per-task="$SLURM_CPUS_PER_TASK" "$@"
