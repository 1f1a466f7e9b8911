"""Two hosts that are network namespaces of this machine, with sshd and Slurm. For root, on Linux."""
import contextlib, os, pathlib, signal, subprocess, time

ADDRESSES = {"east": "10.77.0.1", "west": "10.77.0.2"}
ADDRESSES_V6 = {"east": "fd77::1", "west": "fd77::2"}

SSHD = """ListenAddress {address}
ListenAddress {address_v6}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PidFile none
SetEnv HOME={folder}/home
"""
SSH = """Host *
  User root
  IdentityFile {folder}/user_key
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
SLURM = """ClusterName=troupe
SlurmctldHost=east(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile={folder}/slurm/ctld.pid
SlurmdPidFile={folder}/slurm/slurmd.%n.pid
SlurmdSpoolDir={folder}/slurm/spool.%n
StateSaveLocation={folder}/slurm/state
SlurmctldLogFile={folder}/slurm/ctld.log
SlurmdLogFile={folder}/slurm/slurmd.%n.log
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=east NodeAddr=10.77.0.1 CPUs=8 State=UNKNOWN
NodeName=west NodeAddr=10.77.0.2 CPUs=8 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def call(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Hosts:
    """What is started on them ends with them. Their one home folder is the user's of no other program."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.namespaces = {name: f"troupe-{os.getpid()}-{name}" for name in ADDRESSES}
        self.daemons = []
        self.environment = {"PATH": f"{folder}/path:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": f"{folder}/home", "LANG": "C.UTF-8",
                            "SLURM_CONF": f"{folder}/slurm/slurm.conf"}
        for name in ("home", "path", "slurm/state"):
            (self.folder / name).mkdir(parents=True)

    def __enter__(self):
        try:
            self.connect()
            self.start_sshd()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(5)
            daemon.kill()
            daemon.wait()
        for namespace in self.namespaces.values():
            subprocess.run(["ip", "netns", "delete", namespace], stderr=subprocess.DEVNULL)  # its links go with it

    def connect(self):
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in ADDRESSES.items()))
        for namespace in self.namespaces.values():
            call("ip", "netns", "add", namespace)
        ends = [(f"tr{os.getpid()}{name[0]}", namespace) for name, namespace in self.namespaces.items()]
        call("ip", "link", "add", ends[0][0], "netns", ends[0][1], "type", "veth", "peer", "name", ends[1][0], "netns", ends[1][1])
        for (link, namespace), address, address_v6 in zip(ends, ADDRESSES.values(), ADDRESSES_V6.values()):
            call("ip", "-n", namespace, "address", "add", f"{address}/24", "dev", link)
            call("ip", "-n", namespace, "address", "add", f"{address_v6}/64", "dev", link, "nodad")
            for device in ("lo", link):
                call("ip", "-n", namespace, "link", "set", device, "up")

    def cut(self, host, up=False):
        """Nothing comes through to that host, and nobody is told; until it is up again."""
        link = f"tr{os.getpid()}{host[0]}"
        call("ip", "-n", self.namespaces[host], "link", "set", link, "up" if up else "down")
        if up:  # which the link has lost
            call("ip", "-n", self.namespaces[host], "address", "replace", f"{ADDRESSES_V6[host]}/64", "dev", link, "nodad")

    def start(self, host, command, environment={}, **more):
        """A process of its own group on that host; with nothing in its environment but what a login has."""
        # Not by ip netns exec, which hides /sys/fs/cgroup from slurmd.
        here = ["nsenter", f"--net=/run/netns/{self.namespaces[host]}", "unshare", "--uts", "--mount", "sh", "-c",
                f'hostname {host} && mount --bind {self.folder}/hosts /etc/hosts && exec "$@"', "sh", *command]
        return subprocess.Popen(here, env={**self.environment, **environment}, cwd=self.folder, stdin=subprocess.DEVNULL, start_new_session=True,
                                **more)

    def serve(self, host, *command):
        with open(self.folder / f"{pathlib.Path(command[0]).name}.{host}.log", "wb") as log:
            self.daemons.append(self.start(host, command, stdout=log, stderr=subprocess.STDOUT))

    def certificate(self, *hosts):
        """Variables that name one for these hosts, of one authority."""
        at, name = self.folder / "certificates", "-".join(hosts)
        authority, key, made = at / "authority.pem", at / "authority.key", at / f"{name}.pem"
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if not at.exists():
            at.mkdir()
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=authority", "-keyout", key, "-out", authority], **quiet)
        if not made.exists():
            names = "subjectAltName=" + ",".join(f"DNS:{host},IP:{ADDRESSES[host]},IP:{ADDRESSES_V6[host]}" for host in hosts)
            subprocess.run(["openssl", "req", "-newkey", "ed25519", "-nodes", "-subj", f"/CN={name}", "-addext", names, "-keyout", at / f"{name}.key",
                            "-out", at / f"{name}.csr"], **quiet)
            subprocess.run(["openssl", "x509", "-req", "-in", at / f"{name}.csr", "-CA", authority, "-CAkey", key, "-days", "2", "-copy_extensions", "copy",
                            "-out", made], **quiet)
        return {"TROUPE_TLS_CERTIFICATE": str(made), "TROUPE_TLS_KEY": str(at / f"{name}.key"), "TROUPE_TLS_CA": str(authority)}

    def start_sshd(self):
        for key in ("host_key", "user_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        (self.folder / "ssh_config").write_text(SSH.format(folder=self.folder))
        ssh = self.folder / "path/ssh"  # the user's configuration
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.folder}/ssh_config "$@"\n')
        ssh.chmod(0o755)
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        for host, address in ADDRESSES.items():
            config = self.folder / f"sshd.{host}"
            config.write_text(SSHD.format(folder=self.folder, address=address, address_v6=ADDRESSES_V6[host]))
            self.serve(host, "/usr/sbin/sshd", "-D", "-e", "-f", str(config))
        self.await_success("ssh west true", ["ssh", "west", "true"])

    def start_slurm(self):
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        self.serve("east", "munged", "--foreground", "--force", f"--socket={munge}/socket", f"--key-file={munge}/key", f"--pid-file={munge}/pid",
                   f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        (self.folder / "slurm/slurm.conf").write_text(SLURM.format(folder=self.folder))
        while not (munge / "socket").exists() and self.daemons[-1].poll() is None:
            time.sleep(0.05)
        self.serve("east", "slurmctld", "-D")
        for host in ADDRESSES:
            self.serve(host, "slurmd", "-D", "-N", host)
        self.await_success("srun -N2 true", ["srun", "-N2", "true"])

    def await_success(self, what, command, seconds=60):
        end = time.monotonic() + seconds
        while True:
            done = self.start("east", command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            try:
                text = done.communicate(timeout=max(end - time.monotonic(), 1))[0].decode(errors="replace")
            except subprocess.TimeoutExpired:
                os.killpg(done.pid, signal.SIGKILL)
                text = "no answer"
            if done.wait() == 0:
                return
            if time.monotonic() > end:
                logs = "".join(f"\n{log.relative_to(self.folder)}:\n{log.read_text(errors='replace')[-1500:]}" for log in sorted(self.folder.rglob("*.log")))
                raise RuntimeError(f"'{what}' does not work within {seconds} s: {text.strip()}{logs}")
            time.sleep(0.2)
