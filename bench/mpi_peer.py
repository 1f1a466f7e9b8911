#!/usr/bin/env python3
"""All-reduce in Open MPI with two and four processes, to be timed beside bench_collectives: compiles mpi_peer.c and runs it.

Where Open MPI is not installed (Debian: libopenmpi-dev, openmpi-bin) it prints nothing but the reason, on standard error.
"""
import os, pathlib, shutil, subprocess, sys, tempfile


def main():
    run = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    compiler = shutil.which("mpicc.openmpi") or shutil.which("mpicc")
    if not run or not compiler:
        return print("mpi_peer: skipped: no mpirun and mpicc of Open MPI (Debian: libopenmpi-dev, openmpi-bin)", file=sys.stderr)
    version = subprocess.run([run, "--version"], stdout=subprocess.PIPE, text=True).stdout
    if "Open MPI" not in version and "OpenRTE" not in version:
        return print(f"mpi_peer: skipped: {run} is not Open MPI's", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "mpi_peer")
        made = subprocess.run([compiler, "-O3", pathlib.Path(__file__).with_suffix(".c"), "-o", program, "-lm"], stderr=subprocess.PIPE, text=True)
        if made.returncode:
            return print(f"mpi_peer: skipped: {compiler} cannot compile a program of MPI (Debian: libopenmpi-dev)\n{made.stderr}", file=sys.stderr)
        root = {f"OMPI_ALLOW_RUN_AS_ROOT{more}": "1" for more in ("", "_CONFIRM")}  # of a container
        for ranks in ("2", "4"):
            subprocess.run([run, "--oversubscribe", "-n", ranks, program], check=True, env={**os.environ, **root})


if __name__ == "__main__":
    main()
