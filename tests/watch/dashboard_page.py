#!/usr/bin/env python3
"""Opens the dashboard in headless Chromium, over the pipe of its debugging protocol, and looks whether a job's workers, curves and table of
times come to be there, without an error of the page's script.

    dashboard_page.py URL [PICTURE.png]
"""
import base64, json, os, signal, subprocess, sys, tempfile, time


class Browser:
    def __init__(self, folder):
        to_read, self.to = os.pipe()
        self.from_, to_write = os.pipe()
        def pass_pipes():  # as descriptors 3 and 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3), os.dup2(b, 4)
        self.process = subprocess.Popen(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1500",
                                         "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
                                        close_fds=False, preexec_fn=pass_pipes, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read), os.close(to_write)
        self.number, self.rest, self.errors = 0, b"", []

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.from_, 1 << 16)
            if not more:
                sys.exit("dashboard_page: the browser has ended")
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def ask(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"dashboard_page: {method}: {answer['error']}")
                return answer["result"]


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
            session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            js = lambda text: browser.ask("Runtime.evaluate", session, expression=text, awaitPromise=True, returnByValue=True)["result"].get("value")
            browser.ask("Runtime.enable", session), browser.ask("Page.enable", session)
            browser.ask("Page.navigate", session, url=sys.argv[1])
            until = lambda text: any(js(text) or time.sleep(0.2) for _ in iter(int, 1))  # as long as it takes
            until("document.querySelectorAll('#workers tr').length == 4")
            until("/step \\d+/.test(document.getElementById('head').textContent)")
            until("document.querySelector('#loss polyline') && document.querySelector('#rate polyline') && true")
            until("document.getElementById('waits').textContent.length > 10")
            # A look may fall into a time in which the machine has no core for the job: then there is another one.
            until("document.getElementById('table').textContent.includes('Half::forward') && document.querySelectorAll('#timeline rect').length > 10"
                  " || (document.getElementById('look').click(), false)")
            if len(sys.argv) > 2:
                open(sys.argv[2], "wb").write(base64.b64decode(browser.ask("Page.captureScreenshot", session)["data"]))
            if browser.errors:
                sys.exit(f"dashboard_page: {browser.errors[0]}")
            browser.ask("Browser.close")
        finally:
            os.killpg(browser.process.pid, signal.SIGKILL)  # its renderers, too, which write to the folder
            browser.process.wait()


if __name__ == "__main__":
    main()
