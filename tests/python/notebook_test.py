"""Jupyter: the notebook of examples/python runs to its end, and its kernel's interrupt ends a wait and nothing else."""
import pathlib
import unittest

try:
    import ipykernel
    import jupyter_client.manager
    import nbclient
    import nbformat
except ImportError as e:
    print("test-skipped: no Jupyter here (%s): pip install nbclient ipykernel" % e)
    raise SystemExit(0)

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "examples/python/digits.ipynb"
WAITS = """
import troupe
cluster = troupe.Cluster(workers=2)
group = cluster.group(["w0", "w1"])
print("waits", flush=True)
group.receive(1, timeout=3600.0).result()
"""


class Notebooks(unittest.TestCase):
    def test_the_notebook_trains_and_draws(self):
        notebook = nbformat.read(NOTEBOOK, 4)
        nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
        outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
        printed = "".join(o.get("text", "") for o in outputs).split()
        first, last, accuracy, *mixed = [float(word.rstrip(",")) for word in printed if word[0].isdigit()]
        self.assertLess(last, first)
        self.assertGreater(accuracy, 0.6)
        self.assertLess(mixed[1], mixed[0])
        self.assertTrue(any("image/svg+xml" in o.get("data", {}) for o in outputs))

    def reply(self, client, to):
        while True:
            message = client.get_shell_msg()
            if message["parent_header"].get("msg_id") == to:
                return message["content"]

    def test_the_interrupt_of_a_kernel_ends_a_wait(self):
        manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
        try:
            waiting = client.execute(WAITS)
            while True:  # until it waits
                message = client.get_iopub_msg()
                if message["msg_type"] == "stream" and "waits" in message["content"]["text"]:
                    break
            manager.interrupt_kernel()
            reply = self.reply(client, waiting)
            self.assertEqual((reply["status"], reply.get("ename")), ("error", "KeyboardInterrupt"))
            reply = self.reply(client, client.execute("cluster.spawn(troupe.nn.Linear(2, 2), 'w1')(troupe.ones(1, 2))"))
            self.assertEqual(reply["status"], "ok")
        finally:
            client.stop_channels()
            manager.shutdown_kernel()


if __name__ == "__main__":
    unittest.main()
