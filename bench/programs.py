"""How the benchmark programs are started, and the lines that they print."""
import json, os, secrets, socket, subprocess, tempfile

PROCESSES = {"rpc": 2, "latency": 2, "refs": 2, "model": 3, "ps": 3, "ops": 1, "operators": 1, "contexts": 1, "pipeline": 3, "chain": 6, "collectives": 4, "ddp": 2, "sharded": 2, "axes": 2,
             "commits": 1, "repl": 1, "gpu": 1, "scale": 1}  # it starts its own


def command(bin_dir, what, *flags):
    program = [os.path.join(bin_dir, f"bench_{what}"), *flags]
    if PROCESSES[what] == 1:
        return program
    return [os.path.join(bin_dir, "troupe"), "run", "-n", str(PROCESSES[what]), *program]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lines_over_tcp(bin_dir, what, **variables):
    """The same of two processes that take each other for processes of two hosts."""
    with tempfile.NamedTemporaryFile("w") as token:
        token.write(secrets.token_hex(16))
        token.flush()
        port = str(free_port())
        launch = [[os.path.join(bin_dir, "troupe"), "run", "-n", "1", "--nnodes", "2", "--node-rank", rank, "--master-addr",
                   "127.0.0.1", "--master-port", port, "--token-file", token.name, os.path.join(bin_dir, f"bench_{what}")]
                  for rank in ("0", "1")]
        with subprocess.Popen(launch[1], stdout=subprocess.DEVNULL, env={**os.environ, **variables}):  # it ends with the other one
            return lines(launch[0], **variables)


def lines(command, **variables):
    """The JSON lines that a program prints, with these environment variables; None if it failed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
    if done.returncode:
        return None
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
