"""Language models in Python: trained here and on a mesh, tuned, saved, loaded, served; and the example."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import troupe
import troupe.nn.functional as F
from troupe import llm

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = {"model_type": "qwen3", "vocab_size": 422, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": True}


def windows(count=4, time=8):
    troupe.manual_seed(4)
    ids = troupe.randint(0, 422, (count, time + 1))
    return ids[:, :-1], ids[:, 1:]


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


class LanguageModels(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)
        troupe.manual_seed(1)
        self.model = llm.Decoder(CONFIG)

    def test_a_model_here_learns_and_is_read_again(self):
        x, y = windows()
        before = loss_of(self.model, x, y).item()
        optimizer = troupe.optim.AdamW(self.model.parameters(), lr=0.01)
        for _ in range(10):
            optimizer.zero_grad()
            loss_of(self.model, x, y).backward()
            optimizer.step()
        after = loss_of(self.model, x, y).item()
        self.assertLess(after, before)
        llm.save_pretrained(self.model, self.at)
        again = llm.load_pretrained(self.at)
        self.assertEqual(again.config["hidden_size"], 16)
        self.assertEqual(llm.read_config(self.at)["vocab_size"], 422)
        self.assertEqual(loss_of(again, x, y).item(), after)
        ids = again.generate([1, 2, 3], max_new_tokens=5)
        self.assertEqual((len(ids), llm.generate(again, [[1, 2, 3], [7]], max_new_tokens=5)[0]), (5, ids))
        with self.assertRaisesRegex(troupe.Error, 'did you mean "adapters"'):
            llm.load_pretrained(self.at, adapter="x")
        with self.assertRaisesRegex(troupe.Error, "vocab_size is missing"):
            llm.Decoder({"model_type": "llama"})

    def test_adapters_alone_are_trained(self):
        self.model.save_pretrained(self.at / "base")
        x, y = windows()
        tuned = llm.load_pretrained(self.at / "base", lora=2)
        frozen = [p for p in tuned.parameters() if not p.requires_grad]
        self.assertTrue(0 < len(frozen) < len(tuned.parameters()))
        optimizer = troupe.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            loss_of(tuned, x, y).backward()
            optimizer.step()
        loss = loss_of(tuned, x, y).item()
        self.assertLess(loss, loss_of(self.model, x, y).item())
        tuned.save_pretrained(self.at / "adapters")
        self.assertEqual(loss_of(llm.load_pretrained(self.at / "base", adapters=str(self.at / "adapters")), x, y).item(), loss)
        tuned.merge_adapters()
        self.assertAlmostEqual(loss_of(tuned, x, y).item(), loss, places=4)
        with self.assertRaisesRegex(troupe.Error, "one of both"):
            llm.load_pretrained(self.at / "base", lora=2, adapters="x")

    def test_a_mesh_trains_one_model_and_workers_serve_it(self):
        self.model.save_pretrained(self.at)
        x, y = windows()
        with troupe.Cluster(workers=3) as cluster:
            stages = llm.stages(cluster.mesh({"pp": 1, "tp": 2}, ["w1", "w2"]), self.at, micro_batches=1)
            with cluster.context():
                self.assertAlmostEqual(stages.step(x, y).result()["loss"], loss_of(self.model, x, y).item(), places=5)
            chunked = llm.stages(cluster.mesh({"pp": 1, "tp": 2}, ["w1", "w2"]), self.at, micro_batches=1, chunks=2, schedule="interleaved")
            with cluster.context():
                self.assertAlmostEqual(chunked.step(x, y).result()["loss"], loss_of(self.model, x, y).item(), places=5)
            served = llm.serve_model(cluster, self.at, on=["w1", "w2"])
            self.assertEqual(served.generate([1, 2, 3], max_new_tokens=6).result(), self.model.generate([1, 2, 3], max_new_tokens=6))
            self.assertEqual(served.report()["texts"], 0)

    def test_the_example_trains_and_then_tunes(self):
        try:
            tokenizer = llm.Tokenizer(str(ROOT / "tests/oracle/tokenizers/gpt2.json"))
        except troupe.Error as e:
            if e.kind != "unimplemented":
                raise
            self.skipTest("this build has no ICU")
        self.assertEqual(tokenizer.decode(tokenizer.encode("The end")), "The end")
        (self.at / "config.json").write_text(json.dumps(CONFIG))
        shutil.copy(ROOT / "tests/oracle/tokenizers/gpt2.json", self.at / "tokenizer.json")
        text = self.at / "text"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 200)

        def run(folder, out, steps):
            done = subprocess.run([sys.executable, "-B", ROOT / "examples/python/llm.py", text, folder, out, str(steps)], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step")]
        first = run(self.at, self.at / "model", 40)
        self.assertLess(first[-1], first[0])
        shutil.copy(self.at / "tokenizer.json", self.at / "model")
        tuned = run(self.at / "model", self.at / "adapters", 20)
        self.assertLess(tuned[0], first[0])
        self.assertTrue((self.at / "adapters/adapter_model.safetensors").exists())


if __name__ == "__main__":
    unittest.main()
