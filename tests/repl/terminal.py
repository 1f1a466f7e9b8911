#!/usr/bin/env python3
"""Sessions of `troupe repl` through a pseudo-terminal: typing, completion, several lines, errors, and Ctrl-C in each kind
of wait. terminal.py TROUPE [program]
"""
import os, pty, re, select, signal, subprocess, sys, tempfile, termios, time

troupe = sys.argv[1]
LIMIT = 60  # seconds for anything that has to come; what is measured says so


class Session:
    def __init__(self, *arguments):
        self.home = tempfile.TemporaryDirectory()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            for name in ("TROUPE_WORKERS", "TROUPE_RANK", "TROUPE_WORLD_SIZE", "NO_COLOR"):
                os.environ.pop(name, None)
            os.environ.update(TERM="xterm", HOME=self.home.name, XDG_STATE_HOME=self.home.name, LC_ALL="C.UTF-8")
            os.execv(troupe, [troupe, "repl", *arguments])
        self.seen = ""
        self.read_to(">> ")

    def read_to(self, text, within=LIMIT):
        """What came until `text` did."""
        end = time.monotonic() + within
        while text not in self.seen:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                sys.exit(f"expected {text!r} within {within} s, got {self.seen!r}")
            try:
                got = os.read(self.fd, 65536)
            except OSError:
                got = b""
            if not got:
                sys.exit(f"the shell ended; expected {text!r}, got {self.seen!r}")
            self.seen += got.decode("utf-8", "replace")
        at = self.seen.index(text) + len(text)
        before, self.seen = self.seen[:at], self.seen[at:]
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def ready(self):
        """The line editor reads: what is typed before that, the terminal echoes itself."""
        while termios.tcgetattr(self.fd)[3] & termios.ICANON:
            select.select([self.fd], [], [], 0.001)

    def line(self, text):
        """Types a line; what it printed, without control sequences."""
        self.ready()
        self.seen = ""
        self.type(text + "\n")
        self.read_to("\n")  # the line itself
        out = self.read_to(">> ")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", out).replace(">> ", "")

    def interrupt(self):
        """Ctrl-C; milliseconds until the prompt is back."""
        self.seen = ""
        began = time.monotonic()
        self.type("\x03")
        self.read_to("interrupted")
        self.read_to(">> ")
        return (time.monotonic() - began) * 1000

    def end(self):
        self.ready()
        self.type("\x04")
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    if not os.read(self.fd, 65536):
                        pass
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.home.cleanup()
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        sys.exit("the shell did not end on ^D")


def expect(what, condition, got):
    if not condition:
        sys.exit(f"{what}: got {got!r}")


def editing():
    s = Session()
    expect("an expression", s.line("1 + 1").strip() == "2", s.seen)
    s.line("local a = 41")
    expect("a local of an earlier line", s.line("a + 1").strip() == "42", s.seen)
    expect("the last value", s.line("_ * 2").strip() == "84", s.seen)
    s.type("function f(x)\n")
    s.read_to(".. ")
    s.type("return x * 3\n")
    s.read_to(".. ")
    s.type("end\n")
    s.read_to(">> ")
    expect("several lines", s.line("f(14)").strip() == "42", s.seen)
    expect("a completed name", "log_softmax" in s.line("help(ops.log_sof\t)"), s.seen)
    expect("a completed module", "nn.linear" in s.line("help(nn.lin\t)"), s.seen)
    s.line('net = spawn("Module", "w1", nn.linear(2, 3))')
    expect("a completed method of an actor", "linear" in s.line("net:desc\t()").lower(), s.seen)
    s.seen = ""
    s.type("\x12f(14)")  # search backwards
    s.read_to("f(14)")
    s.type("\n")
    s.read_to("42")
    s.read_to(">> ")
    out = s.line("ops.log_softmx(tensor{1})")
    expect("the nearest name", 'did you mean "log_softmax"?' in out, out)
    out = s.line('error("\\27[2Jboo")')
    expect("escape bytes are harmless", "\\x1b[2Jboo" in out, out)
    expect("a history that is the user's own", oct(os.stat(os.path.join(s.home.name, "troupe", "repl_history")).st_mode & 0o777) == "0o600", "mode")
    expect("the end", s.end() == 0, "exit code")


def interrupts(*arguments):
    s = Session(*arguments)
    worst = 0
    waits = {
        "a loop": "while true do end",
        "a loop that catches": "while true do pcall(error, 1) end",
        "a coroutine": "coroutine.wrap(function() while true do pcall(error, 1) end end)()",
        "a wait": "p:get()",
        "a string pattern in a loop": "while true do (('x'):rep(100)):find('y') end",
    }
    s.line('w = serve({tensor{1.0, 2.0}}, {on = "w1", trainers = 2})')
    s.line("c = w:client('first')")  # its pull waits for the second trainer, which does not come
    waits["a wait"] = "c:pull()"
    deep = "nn.sequential{" + "nn.linear(1536, 1536), 'tanh', " * 12 + "}"
    s.line(f"net = spawn('Module', 'w1', {deep})")
    s.line("x = ops.randn({2048, 1536})")
    s.line("step = context()")
    s.line("loss = net(x):sum()")
    waits["a backward pass"] = "step:backward(loss)"
    s.line(f"p = pipeline({{net, spawn('Module', 'w2', nn.linear(1536, 4))}}, {{loss = 'mse_loss', micro_batches = 2}})")
    s.line("y = ops.randn({2048, 4})")
    waits["a pipeline's step"] = "p:step(x, y)"
    for what, text in waits.items():
        s.ready()
        s.seen = ""
        s.type(text + "\n")
        s.read_to("\n")
        time.sleep(0.2)  # into the wait: what is tested is how it ends, whenever that begins
        took = s.interrupt()
        worst = max(worst, took)
        expect(f"the line after ^C in {what}", s.line("6 * 7").strip() == "42", s.seen)
    print(f"interrupts {' '.join(arguments)}: at most {worst:.1f} ms")
    expect("the end", s.end() == 0, "exit code")


def lost_worker():
    s = Session("-n", "3")
    s.line('a = spawn("Module", "w2", nn.linear(2, 2))')
    children = subprocess.run(["pgrep", "-P", str(s.pid)], capture_output=True, text=True).stdout.split()
    expect("two workers", len(children) == 2, children)
    os.kill(int(children[1]), signal.SIGKILL)
    out = s.line("a(tensor{{1.0, 2.0}})")
    expect("the lost worker is named", "w2" in out, out)
    expect("the prompt lives", s.line("6 * 7").strip() == "42", s.seen)
    expect("another cluster", "w2" in s.line("cluster()"), s.seen)
    expect("and an actor on it", s.line('spawn("Module", "w2", nn.linear(2, 2))(tensor{{1.0, 2.0}}).shape[2]').strip() == "2", s.seen)
    s.end()


def scripts():
    """Files, code and standard input: exit codes and where errors are."""
    def run(arguments, text="", code=0, out=None, err=None, **variables):
        done = subprocess.run([troupe, "repl", *arguments], input=text, capture_output=True, text=True, timeout=LIMIT,
                              env=os.environ | variables)
        expect(f"the exit code of {arguments}", done.returncode == code, done)
        expect(f"the output of {arguments}", out is None or done.stdout == out, done)
        expect(f"the error of {arguments}", err is None or err in done.stderr, done)

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "script.lua")
        with open(file, "w") as f:
            f.write("#!/usr/bin/env -S troupe repl\nprint(arg[1], #arg)\nif arg[2] then error('no ' .. arg[2]) end\n")
        run([file, "a"], out="a\t1\n")
        run([file, "a", "b"], code=1, err="script.lua:3: no b")
        run(["-e", "print(6 * 7)"], out="42\n")
        run(["-e", "print(6 *"], code=1, err="<eof>")
        run([], "print(6 * 7)", out="42\n")
        run([], "print(1)\nerror('x')", code=1, err="stdin:2: x")
        run(["-e", "local step = context() print(step ~= nil)"], out="true\n")  # ends inside a context
        run(["--procs", "3"], code=2, err="unknown flag '--procs'")
        run(["-n", "none"], code=2, err="a number of workers")
        run(["nofile.lua"], code=2, err="nofile.lua cannot be read")
        run(["./nofile"], code=1, err="no program at ./nofile")
        run(["--help"], out=None)
        run(["-e", "print(1)"], code=2, out="", err="TROUPE_WORKERS is 'many'", TROUPE_WORKERS="many")
        run(["-e", "print(1)"], code=2, out="", err='TROUPE_CPU_LEVEL is "sse9"', TROUPE_CPU_LEVEL="sse9")
        run(["-n", "2", "-e", "print(1)"], code=2, out="", err='TROUPE_NUM_THREADS is "many"', TROUPE_NUM_THREADS="many")
        run(["-n", "3", "-e", "print(#workers())"], out="3\n")
        if len(sys.argv) > 2:  # a program of one's own, whose driver the shell replaces
            run(["-n", "3", "-e", "local a = spawn('Half', 'w1', 1, 4, true) print(a(tensor{{0.5}}).shape[2], a.worker)", sys.argv[2]], out="4\tw1\n")
            run(["-n", "3", "-e", "spawn('Half', 'w1', 1)", sys.argv[2]], code=1, err="Half(int32, int32, bool)")
            run(["-n", "3", "-e", "spawn('Half', 'w0', 1, 4, true)", sys.argv[2]], code=1, err="w0 has no actor type")
    left = subprocess.run(["pgrep", "-f", "repl-worker"], capture_output=True, text=True).stdout.split()
    expect("nothing is left", left == [], left)


scripts()
editing()
interrupts()
interrupts("-n", "3")
lost_worker()
print("terminal: all sessions went as they should")
