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
    expect("help alone", "Functions (" in s.line("help") and "data.*" in s.line("help"), "")
    listed = s.line("help(data)")
    expect("help of a table", "data.digits(" in listed and "data.of(" in listed and s.line('help("data")') == listed, listed)
    expect("help of a full name", s.line('help("data.digits")').startswith("data.digits(count"), s.seen)
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
    for _ in range(20):  # coroutines that an interrupt has ended are forgotten
        s.ready()
        s.seen = ""
        s.type("coroutine.wrap(function() coroutine.wrap(function() print('be' .. 'gun') while true do end end)() end)()\n")
        s.read_to("begun")
        s.interrupt()
        s.line("collectgarbage()")
    print(f"interrupts {' '.join(arguments)}: at most {worst:.1f} ms")
    expect("the end", s.end() == 0, "exit code")


def stuck():
    """What cannot be interrupted: the second Ctrl-C says so, the third ends the shell."""
    s = Session()
    s.ready()
    s.type("print('be' .. 'gun'); (('a'):rep(1 << 20)):find(('.-'):rep(30) .. 'b')\n")
    s.read_to("begun")
    def ticks():  # of the processor that it has used
        return int(open(f"/proc/{s.pid}/stat").read().rsplit(")", 1)[1].split()[11])
    begun = ticks()
    while ticks() < begun + 5:  # what is to be done before find() takes less
        select.select([], [], [], 0.01)
    def interrupt():  # and it has been delivered: two that wait are one
        s.type("\x03")
        s.read_to("^C")
        while any(int(v, 16) & 2 for v in re.findall(r"(?:Sig|Shd)Pnd:\s*(\w+)", open(f"/proc/{s.pid}/status").read())):
            pass
    interrupt()
    interrupt()
    s.read_to("a third Ctrl-C ends the shell")
    s.type("\x03")
    expect("the third Ctrl-C", os.waitstatus_to_exitcode(os.waitpid(s.pid, 0)[1]) == 130, "")
    os.close(s.fd)


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
        run(["nofile.lua"], code=2, err="nofile.lua: no such file")
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
        for code, text in (  # what ends a script from within, where nothing may catch it
            (3, "pcall(os.exit, 3) print('no')"),
            (4, "coroutine.wrap(function() no_grad(function() os.exit(4) end) end)() print('no')"),
            (5, "setmetatable({}, {__gc = function() os.exit(5) end}) collectgarbage() print('no')"),
            (6, "x = setmetatable({}, {__gc = function() os.exit(6) end})"),
            (0, "os.exit(true)"), (1, "os.exit(false)"), (0, "os.exit()")):
            run(["-e", text], code=code, out="", err="")
            run(["-n", "2", "-e", text], code=code, out="", err="")
        # A byte order mark, and a first line for the system.
        with open(file, "wb") as f:
            f.write(b"\xef\xbb\xbf#!/usr/bin/env -S troupe repl\nprint(#arg)\nerror('here')")
        run([file], code=1, out="0\n", err="script.lua:3: here")
        run([], "\ufeffprint(1)", out="1\n")
        run(["-i"], "\ufefflosses = {1, 2}\n#losses\n", out=">> losses = {1, 2}\n>> #losses\n2\n")
        with open(file, "wb") as f:
            f.write("print(1)".encode("utf-16"))
        run([file], code=1, err="is UTF-16: a script is UTF-8 text")
        run([folder + "/."], code=1)
        os.remove(file)
        os.mkfifo(file)
        run([file], code=2, err="is not a regular file, expected a script")
    left = subprocess.run(["pgrep", "-f", "repl-worker"], capture_output=True, text=True).stdout.split()
    expect("nothing is left", left == [], left)


def finalizers():
    """What runs at the end, or in the middle of anything: an error or the work done, and Ctrl-C ends it."""
    def run(text, code=0, out=None, err="", arguments=()):
        done = subprocess.run([troupe, "repl", *arguments, "-e", text], capture_output=True, text=True, timeout=LIMIT)
        expect(f"the exit code of {text}", done.returncode == code, done)
        expect(f"the output of {text}", out is None or done.stdout == out, done)
        expect(f"the error of {text}", done.stderr == err if err == "" else err in done.stderr, done)

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "a.safetensors")
        for workers in (), ("-n", "2"):
            at_end = "t = tensor{1.0} x = setmetatable({}, {__gc = function() %s end})"
            run(at_end % f"save('{file}', {{a = t}}) print(load_tensors('{file}').a:item())", out="1.0\n", arguments=workers)
            run(at_end % "print(#cluster(2), spawn('Module', 'w1', nn.linear(2, 2)).worker)", out="2\tw1\n", arguments=workers)
            run(at_end % "error('no')", err="warning: error in __gc", arguments=workers)
            run(at_end % "coroutine.yield()", err="a finalizer cannot yield", arguments=workers)
        # What was made later has been freed before.
        run("x = setmetatable({}, {__gc = function() print(pcall(function() return t:sum() end)) print(pcall(ops.sum, t)) end}) t = tensor{1.0}",
            out="false\t-e:1: attempt to index a freed object value (global 't')\nfalse\ta freed object cannot travel; what can: nil, booleans, "
                "numbers, strings, tensors, references, modules, groups, meshes, tables of these\n")
        run("x = setmetatable({}, {__gc = function() cluster(2) end}) x = nil time(function() collectgarbage() end)",
            err="call it outside of that")
        for text in ("x = setmetatable({}, {__gc = function() print('in') io.flush() while true do end end})",
                     "setmetatable({}, {__gc = function() print('in') io.flush() while true do pcall(error) end end}) collectgarbage() print('no')",
                     "f = serve({tensor{1.0}}, {on = 'w1', trainers = 2}):client('a'):pull() "
                     "x = setmetatable({}, {__gc = function() print('in') io.flush() f:get() end})",
                     "local co = coroutine.create(function() local x <close> = "
                     "setmetatable({}, {__close = function() print('in') io.flush() while true do end end}) coroutine.yield() end) "
                     "coroutine.resume(co) coroutine.close(co) print('no')"):
            shell = subprocess.Popen([troupe, "repl", "-e", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            expect("the start", shell.stdout.readline() == "in\n", text)
            shell.send_signal(signal.SIGINT)
            out, err = shell.communicate(timeout=LIMIT)
            expect(f"Ctrl-C in {text}", shell.returncode == 130 and out == "", (shell.returncode, out, err))


def joining():
    """Programs that do not join: said at once, with their code; Ctrl-C ends the wait."""
    def run(arguments, code, err, **environment):
        done = subprocess.run([troupe, *arguments], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
                              env={**os.environ, **environment})
        expect(f"the exit code of {arguments}", done.returncode == code, done)
        expect(f"the error of {arguments}", err in done.stderr, done)

    began = time.monotonic()
    run(["repl", "-n", "3", "-e", "print(1)", "/bin/true"], 3, "exited with code 0 before it had joined the cluster that w0 was waiting for; a program")
    run(["repl", "-n", "3", "-e", "print(1)", "/bin/false"], 3, "exited with code 1 before it had joined the cluster")
    run(["repl", "-n", "2", "-e", "print(1)", "/bin/sleep", "1000"], 3, "after 0.2 s these workers have not joined: w1", TROUPE_JOIN_TIMEOUT="0.2")
    run(["run", "-n", "2", troupe, "repl"], 2, "it starts its workers itself, and was started as number 0 of 2 (RANK): write troupe repl -n 2")
    run(["repl", "-e", "print(1)"], 2, "was started as number 1 of 2 (RANK): write troupe repl -n 2, with the program behind it, in place of the "
        "launcher, or unset RANK", RANK="1", WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29500")
    shell = subprocess.Popen([troupe, "repl", "-n", "2", "-e", "print(1)", "/bin/sleep", "1000"], stderr=subprocess.PIPE, text=True)
    while not (children := subprocess.run(["pgrep", "-P", str(shell.pid), "sleep"], capture_output=True, text=True).stdout.split()):
        pass
    shell.send_signal(signal.SIGINT)
    expect("Ctrl-C while workers are waited for", shell.wait(LIMIT) == 130, shell.stderr.read())
    expect("nothing is left", not os.path.exists(f"/proc/{children[0]}"), children)
    expect("no deadline was waited for", time.monotonic() - began < 50, time.monotonic() - began)


def unwritten():
    """Standard output that is full, closed, or read by nobody."""
    text = "for i = 1, 100000 do print(i) end"
    def run(**options):
        done = subprocess.run([troupe, "repl", "-e", text], stderr=subprocess.PIPE, text=True, timeout=LIMIT, **options)
        return done.returncode, done.stderr

    with open("/dev/full", "w") as full:
        code, err = run(stdout=full)
    expect("a full disk", code == 1 and "standard output cannot be written" in err, (code, err))
    code, err = run(preexec_fn=lambda: os.close(1))
    expect("a closed output", code == 1 and "standard output cannot be written" in err, (code, err))
    reader, writer = os.pipe()
    os.close(reader)
    code, err = run(stdout=writer)
    os.close(writer)
    expect("nobody who reads", code == -signal.SIGPIPE and err == "", (code, err))


scripts()
finalizers()
joining()
unwritten()
editing()
interrupts()
interrupts("-n", "3")
stuck()
lost_worker()
print("terminal: all sessions went as they should")
