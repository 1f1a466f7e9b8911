"""How the benchmark programs are started, and the lines that they print."""
import json, os, subprocess

PROCESSES = {"rpc": 2, "latency": 2, "refs": 2, "model": 3, "ps": 3, "ops": 1, "contexts": 1, "pipeline": 3,
             "scale": 1}  # it starts its own


def command(bin_dir, what, *flags):
    program = [os.path.join(bin_dir, f"bench_{what}"), *flags]
    if PROCESSES[what] == 1:
        return program
    return [os.path.join(bin_dir, "troupe"), "run", "-n", str(PROCESSES[what]), *program]


def lines(command, **variables):
    """The JSON lines that a program prints, with these environment variables; None if it failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
    if done.returncode:
        return None
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
