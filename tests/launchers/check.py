#!/usr/bin/env python3
"""Starts examples by launchers of Debian, on two hosts (network namespaces of this machine). For root.

    check.py BIN_DIR [--tls] [LAUNCHER...]      ssh mpirun slurm torchrun pods; all of them, unless some are named

Nothing of Troupe's is set by hand, but TROUPE_TLS=1 for all workers with --tls. quickstart and recommender give what they give alone; Ctrl-C, a killed worker and a killed launcher
end the job with the right code, and leave nothing. A launcher that is not installed is skipped, with the reason.
"""
import os, pathlib, shutil, signal, subprocess, sys, tempfile, threading, time

from hosts import Hosts

TEMPLATE = pathlib.Path(__file__).resolve().parent.parent.parent / "deploy/slurm.sh"
LIMIT = 120  # seconds of a case; what is left behind is waited for as long as this
# What runs as alone: flags, workers.
EXAMPLES = {"quickstart": ([], 3), "recommender": (["--steps", "20"], 7)}


class Job:
    """What a launcher has started: the processes that somebody typed, and all that they print."""

    def __init__(self, hosts, commands):
        self.text, self.lock = "", threading.Lock()
        self.processes = [hosts.start(host, command, variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                          for host, command, variables in commands]
        self.readers = [threading.Thread(target=self.read, args=(p.stdout,), daemon=True) for p in self.processes]
        for reader in self.readers:
            reader.start()

    def read(self, stream):
        for line in stream:
            with self.lock:
                self.text += line.decode(errors="replace")

    def await_text(self, text):
        end = time.monotonic() + LIMIT
        while text not in self.text:
            if time.monotonic() > end or all(p.poll() is not None for p in self.processes):
                raise AssertionError(f"it never says '{text}'")
            time.sleep(0.02)

    def codes(self):
        """Exit codes, 128 + n for signal n."""
        end = time.monotonic() + LIMIT
        codes = []
        for process in self.processes:
            try:
                code = process.wait(max(end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"it goes on after {LIMIT} s") from None
            codes.append(code if code >= 0 else 128 - code)
        for reader in self.readers:
            reader.join(5)
        return codes


class Launcher:
    """start(n, program, arguments): the job. rank: the variable that tells it."""
    interrupts = 1            # so many Ctrl-C are needed
    interrupted = {130}       # exit codes then
    outlives_launcher = None  # why workers may go on when it is killed

    def __init__(self, hosts, programs):
        self.hosts, self.programs, self.jobs = hosts, programs, []

    def missing(self):
        absent = [name for name in self.needs if not shutil.which(name)]
        return f"{', '.join(absent)} not found (Debian: {self.package})" if absent else None

    def prepare(self):
        pass

    def start(self, n, program, *arguments):
        return self.run(self.commands(n, [str(self.programs / program), *arguments]))

    def run(self, commands):
        self.jobs.append(Job(self.hosts, commands))
        return self.jobs[-1]

    def end(self):
        for process in (process for job in self.jobs for process in job.processes if process.poll() is None):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid, _ in alive(self.programs):
            os.kill(pid, signal.SIGKILL)

    def cases(self):
        """More that this launcher is asked for."""
        return {}

    def ends_with(self, commands, codes, texts):
        job = self.run(commands)
        got = job.codes()
        require(set(got) <= codes, f"exit codes {got}, expected {sorted(codes)}")
        for text in texts:
            require(text in job.text, f"it does not say '{text}'")


class Ssh(Launcher):
    needs, package, rank = ["ssh"], "openssh-client", "RANK"

    def commands(self, n, program):
        return self.troupe_run("-H", f"east:{n - n // 2},west:{n // 2}", *program)

    def troupe_run(self, *arguments, **variables):
        return [("east", [str(self.programs / "troupe"), "run", *arguments], variables)]

    def cases(self):
        program = [str(self.programs / "endings"), "--mode", "alone"]
        done = ["workers 3"]

        def port_taken():
            script = "import socket, time\nwith socket.create_server(('10.77.0.1', 29500)):\n    print(flush=True)\n    time.sleep(1000)"
            listening = self.hosts.start("east", [sys.executable, "-c", script], stdout=subprocess.PIPE)
            listening.stdout.readline()
            try:
                self.ends_with(self.troupe_run("-H", "east:2,west:1", "--master-port", "29500", *program), {3},
                               ["cannot listen on tcp:east:29500: Address already in use"])
            finally:
                listening.kill()
                listening.wait()

        def cut_off():
            job = self.run(self.troupe_run("-H", "east:2,west:1", str(self.programs / "endings"), "--mode", "spin"))
            job.await_text("spinning")
            self.hosts.cut("west")
            try:
                codes = job.codes()
                require(codes == [4], f"exit codes {codes}, expected 4")
                require("w2 was lost: " in job.text and "has been silent for 5" in job.text, "it does not say that w2 is silent")
                await_nothing(self.programs / "endings")  # there neither: each side misses the other
            finally:
                self.hosts.cut("west", up=True)

        def shares(*command):
            """One launcher on each host."""
            return [(host, [str(self.programs / "troupe"), "run", "-n", "2", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "east", *command], {})
                    for rank, host in enumerate(("east", "west"))]

        def share_killed():
            job = self.run(shares(str(self.programs / "endings"), "--mode", "spin"))
            job.await_text("spinning")
            job.processes[1].kill()  # w2 and w3 end with it, and w0 waits for w3
            codes = job.codes()
            require(codes == [4, 137], f"exit codes {codes}, expected 4 and 137")

        return {
            "a share on each host": lambda: self.ends_with(shares(*program), {0}, ["workers 4"]),
            "a share on each host, and one launcher is killed": share_killed,
            "a host is cut off": cut_off,
            "addresses of IPv6": lambda: self.ends_with(self.troupe_run("-H", "[fd77::1]:2,[fd77::2]:1", *program), {0}, done),
            "links are encrypted": lambda: self.ends_with(self.troupe_run("-H", "east:2,west:1", *program, TROUPE_TLS="1"), {0}, done),
            "hosts have certificates": lambda: self.ends_with(
                self.troupe_run("-H", "east:2,west:1", *program, TROUPE_TLS="1", **self.hosts.certificate("east", "west")), {0}, done),
            "links are not encrypted": lambda: self.ends_with(self.troupe_run("-H", "east:2,west:1", *program, TROUPE_TLS="0", TROUPE_LOG="info"), {0},
                                                              [*done, "are not encrypted: TROUPE_TLS=1 for all workers encrypts them"]),
            "ssh would ask for a password": lambda: self.ends_with(
                self.troupe_run("-H", "east:2,west:1", "--rsh", "ssh -oPubkeyAuthentication=no", *program), {1},
                ["Permission denied", "ssh did not get in"]),
            "a host that there is not": lambda: self.ends_with(self.troupe_run("-H", "east:2,north:1", *program), {1}, ["north", "ssh did not get in"]),
            "the port of w0 is taken": port_taken,
        }


class Mpirun(Launcher):
    needs, package, rank = ["mpirun.openmpi"], "openmpi-bin", "OMPI_COMM_WORLD_RANK"
    interrupted = {1, 130}

    def commands(self, n, program):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        along = ["-x", "TROUPE_TLS"] if "TROUPE_TLS" in self.hosts.environment else []  # the only one that passes nothing on by itself
        return [("east", ["mpirun.openmpi", "-n", str(n), "-host", f"east:{n - n // 2},west:{n // 2}", *along, *program], root)]

    def cases(self):
        def on(hosts, *flags):
            (host, command, variables), = self.commands(3, [str(self.programs / "endings"), "--mode", "alone"])
            at = command.index("-host")
            return [(host, [*command[:at], *flags, "-host", hosts, *command[at + 2:]], variables)]

        ranks = self.hosts.folder / "ranks"  # mpirun puts w0 on its own host if it can
        ranks.write_text("rank 0=west slot=0\nrank 1=west slot=1\nrank 2=east slot=0\n")
        there = ["--rankfile", str(ranks)]
        return {
            "all workers on another host": lambda: self.ends_with(on("west:3"), {0}, ["workers 3"]),
            "w0 on another host": lambda: self.ends_with(on("west:2,east:1", *there), {3},
                                                         ["cannot listen on tcp:", "which says where mpirun is: set TROUPE_ADDRESS=tcp:HOST:PORT"]),
            "w0 on another host, whose address is given": lambda: self.ends_with(on("west:2,east:1", *there, "-x", "TROUPE_ADDRESS=tcp:west:29500"), {0},
                                                                                 ["workers 3"]),
        }


class Slurm(Launcher):
    needs, package, rank = ["srun", "slurmd", "slurmctld", "munged"], "slurm-wlm munge", "SLURM_PROCID"
    interrupts = 2
    interrupted = {130, 137}  # srun kills those that do not end at once

    def prepare(self):
        self.hosts.start_slurm()

    def commands(self, n, program):
        return [("east", ["srun", "-N2", "-n", str(n), *program], {})]

    def cases(self):
        program = [str(self.programs / "endings"), "--mode", "alone"]
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

        def says(text, *command):
            return lambda: self.ends_with([("east", list(command), root)], {0}, [text])

        def batch(text, *sbatch):
            """Its output is a file of all nodes."""
            out = self.hosts.folder / "batch.out"
            return says(text, "sh", "-c", f'"$@"; code=$?; cat {out}; exit $code', "sh", "sbatch", "--wait", "-o", str(out), *map(str, sbatch))

        def cancelled():
            job = self.run([("east", ["srun", "-N2", "-n", "3", "--job-name", "to-cancel", str(self.programs / "endings"), "--mode", "spin"], {})])
            job.await_text("spinning")
            require(self.hosts.start("east", ["scancel", "--name", "to-cancel"]).wait() == 0, "scancel fails")
            codes = job.codes()
            require(codes[0] in (137, 143), f"exit code {codes[0]}, expected 143, or 137 of those that srun kills")

        share = "troupe run -n 2 --nnodes $SLURM_NNODES --node-rank $SLURM_NODEID --master-addr east"
        return {
            "one node": says("workers 3", "srun", "-N1", "-n", "3", *program),
            "one task": says("workers 3", "srun", "-n", "1", *program),
            "salloc and srun": says("workers 4", "salloc", "-N2", "-n", "4", "srun", *program),
            "a bare program in salloc": says("runs alone: Slurm has room for 3 tasks", "salloc", "-n", "3", *program),
            "a bare program in a batch script": batch("runs alone: Slurm has room for 3 tasks", "-N2", "-n", "3", "--wrap", " ".join(program)),
            "the template": batch("workers 4", "--cpus-per-task=1", TEMPLATE, *program),
            "mpirun in a batch script": batch("workers 3", "-N2", "-n", "3", "--wrap", " ".join(["mpirun.openmpi", *program])),
            "troupe run on each node": says("workers 4", "srun", "-N2", "--ntasks-per-node=1", "sh", "-c", f"{self.programs}/{share} {' '.join(program)}"),
            "scancel": cancelled,
        }


class Torchrun(Launcher):
    needs, package, rank = ["torchrun"], "python3-torch", "RANK"
    interrupted = {1, 130}
    outlives_launcher = "torchrun's agent leaves its workers behind when it is killed"

    def commands(self, n, program):
        n += n % 2
        # Debian 12's has a fault that these two avoid (docs/howto/launch.md).
        return [(host, ["torchrun", "--redirects=9:1", "--tee=9:1", "--nnodes", "2", "--node_rank", str(rank), "--nproc_per_node", str(n // 2),
                        "--master_addr", "10.77.0.1", "--master_port", "29500", "--no_python", *program], {})
                for rank, host in enumerate(("east", "west"))]

    def cases(self):
        once = self.hosts.folder / "killed-once"
        script = f'test $RANK != 2 || test -e {once} || {{ touch {once}; kill -9 $$; }}; exec "$@"'
        command = ["torchrun", "--redirects=9:1", "--tee=9:1", "--nproc_per_node", "3", "--master_addr", "10.77.0.1", "--master_port", "29500",
                   "--max_restarts", "1", "--no_python", "sh", "-c", script, "sh", str(self.programs / "endings"), "--mode", "alone"]
        return {"--max_restarts starts the group again": lambda: self.ends_with([("east", command, {})], {0}, ["workers 3"])}


class Pods(Launcher):
    """The variables of an indexed Job's pods: their number, and the constants of the template."""
    needs, package, rank = [], "", "JOB_COMPLETION_INDEX"
    outlives_launcher = "each pod is one worker"

    def commands(self, n, program):
        template = {"WORLD_SIZE": str(n), "MASTER_ADDR": "east", "MASTER_PORT": "29500", "TROUPE_TOKEN": "a secret of the Job, mounted"}
        return [("west" if i % 2 else "east", program, {**template, "JOB_COMPLETION_INDEX": str(i)}) for i in range(n)]

    def cases(self):
        def pods(changes):
            """Three, of which w1 has other variables, or another command."""
            return [(host, [*changes.get(i, {}).get("before", []), *command], {**variables, **changes.get(i, {}).get("variables", {})})
                    for i, (host, command, variables) in enumerate(self.commands(3, [str(self.programs / "endings"), "--mode", "alone"]))]

        def set_as(*values):
            return pods({i: {"variables": {"TROUPE_TLS": value, "TROUPE_JOIN_TIMEOUT": "5"}} for i, value in enumerate(values)})

        def certified(names):
            """Each with the certificate of a host, which names[i] says."""
            return pods({i: {"variables": {"TROUPE_TLS": "1", "TROUPE_JOIN_TIMEOUT": "5", **self.hosts.certificate(name)}} for i, name in enumerate(names)})

        cases = {
            "links are encrypted": lambda: self.ends_with(set_as("1", "1", "1"), {0}, ["workers 3"]),
            "hosts have certificates": lambda: self.ends_with(certified(("east", "west", "east")), {0}, ["workers 3"]),
            "a host shows another one's certificate": lambda: self.ends_with(
                certified(("west", "west", "east")), {3},
                ["shows the certificate of west, 10.77.0.2, fd77::2, which does not name east, where it was found", "refused this side's certificate"]),
            "a link is half encrypted": lambda: self.ends_with(set_as("1", "0", "1"), {3}, ["speaks plain TCP", "speaks TLS alone", "the same TROUPE_TLS"]),
        }
        if shutil.which("faketime"):
            cases["clocks five hours apart"] = lambda: self.ends_with(pods({1: {"before": ["faketime", "-f", "+5h"]}}), {0}, ["workers 3"])
        else:
            print("pods: clocks five hours apart: skipped: no faketime (Debian: faketime)", flush=True)
        return cases


LAUNCHERS = {"ssh": Ssh, "mpirun": Mpirun, "slurm": Slurm, "torchrun": Torchrun, "pods": Pods}


def alive(programs):
    """Processes of these programs: pid, environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "exe").startswith(str(programs)):
                found.append((int(entry.name), dict(v.split("=", 1) for v in (entry / "environ").read_text().split("\0") if "=" in v)))
        except OSError:
            continue
    return found


def await_nothing(programs):
    end = time.monotonic() + LIMIT
    while alive(programs):
        if time.monotonic() > end:
            raise AssertionError(f"processes are left: {[pid for pid, _ in alive(programs)]}")
        time.sleep(0.05)


def require(condition, text):
    if not condition:
        raise AssertionError(text)


def same_as_alone(launcher, program, lines):
    flags, n = EXAMPLES[program]
    job = launcher.start(n, program, *flags)
    codes = job.codes()
    require(set(codes) == {0}, f"exit codes {codes}, expected 0")
    for line in lines:
        require(line in job.text, f"it does not print '{line}', as it does alone")


def interrupted(launcher):
    job = launcher.start(3, "endings", "--mode", "spin")
    job.await_text("spinning")
    for _ in range(launcher.interrupts):
        for process in job.processes:
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
    codes = job.codes()
    require(set(codes) <= launcher.interrupted, f"exit codes {codes}, expected {sorted(launcher.interrupted)}")


def worker_killed(launcher):
    job = launcher.start(3, "endings", "--mode", "spin")
    job.await_text("spinning")
    ranks = {int(variables[launcher.rank]): pid for pid, variables in alive(launcher.programs / "endings") if launcher.rank in variables}
    require(len(ranks) >= 3, f"{len(ranks)} workers are there")
    last = max(ranks)  # it spins, and w0 waits for it
    os.kill(ranks[last], signal.SIGKILL)
    codes = job.codes()
    require(any(codes), f"exit codes {codes}, although a worker was killed")
    require(f"w{last} " in job.text, f"it does not say that w{last} was lost")


def launcher_killed(launcher):
    job = launcher.start(3, "endings", "--mode", "spin")
    job.await_text("spinning")
    job.processes[0].kill()
    job.processes[0].wait()


def check(launcher, name, expected):
    cases = {
        **{f"{program}, as alone": lambda program=program: same_as_alone(launcher, program, expected[program]) for program in EXAMPLES},
        "Ctrl-C": lambda: interrupted(launcher),
        "a worker is killed": lambda: worker_killed(launcher),
    }
    if launcher.outlives_launcher:
        print(f"{name}: the launcher is killed: not checked, {launcher.outlives_launcher}", flush=True)
    else:
        cases["the launcher is killed"] = lambda: launcher_killed(launcher)
    failures = 0
    for case, run in {**cases, **launcher.cases()}.items():
        began, why = time.monotonic(), None
        launcher.jobs = []
        try:
            run()
            await_nothing(launcher.programs)
        except AssertionError as e:
            why = str(e)
        finally:
            launcher.end()
        print(f"{name}: {case}: {f'FAILED: {why}' if why else 'ok'} ({time.monotonic() - began:.1f} s)", flush=True)
        if why:
            failures += 1
            print("".join(f"    {line}\n" for job in launcher.jobs for line in job.text.splitlines()[-30:]), end="", flush=True)
    return failures


def results_of(programs, name):
    """The lines of a run without a launcher that tell numbers."""
    done = subprocess.run([programs / name, *EXAMPLES[name][0]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=programs,
                          env={"PATH": os.environ["PATH"]})
    lines = [line.strip() for line in done.stdout.splitlines() if "loss" in line]
    return lines if done.returncode == 0 and lines else sys.exit(f"launchers: {name} fails without any launcher: {done.stderr}")


def main():
    tls = "--tls" in sys.argv
    chosen = [a for a in sys.argv[2:] if a != "--tls"]
    if len(sys.argv) < 2 or any(name not in LAUNCHERS for name in chosen):
        sys.exit(__doc__)
    if os.geteuid() != 0 or not shutil.which("ip"):
        sys.exit("launchers: network namespaces need root, and iproute2")
    if not os.access("/usr/sbin/sshd", os.X_OK):
        sys.exit("launchers: there is no sshd (Debian: openssh-server)")
    failures = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with this
    with tempfile.TemporaryDirectory(prefix="troupe-launchers-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # sshd and munged look at it
        programs = pathlib.Path(folder) / "programs"
        programs.mkdir()
        for program in ("troupe", "endings", *EXAMPLES):
            shutil.copy(pathlib.Path(sys.argv[1]) / program, programs)
        expected = {program: results_of(programs, program) for program in EXAMPLES}
        with Hosts(folder) as hosts:
            if tls:
                hosts.environment["TROUPE_TLS"] = "1"
            for name in chosen or LAUNCHERS:
                launcher = LAUNCHERS[name](hosts, programs)
                missing = launcher.missing()
                if missing:
                    print(f"{name}: skipped: {missing}", flush=True)
                    continue
                launcher.prepare()
                failures += check(launcher, name, expected)
    print(f"launchers: {failures} failed", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
