"""Feeds in Python: samples of files in an order that any place can be gone back to."""
import json
import pathlib
import tempfile
import unittest

import troupe
from troupe import data


class Feeds(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def lines(self, count=100):
        path = self.path / "a.jsonl"
        path.write_text("".join(json.dumps({"n": i, "text": f"t{i}", "size": i % 5 + 1}) + "\n" for i in range(count)))
        return data.json_lines(path)

    def numbers(self, feed, most=1 << 20):
        return [n for _, batch in zip(range(most), feed) for n in batch["n"].tolist()]

    def test_each_sample_comes_once_in_an_order_of_its_epoch(self):
        feed = data.Feed(self.lines(), 7, seed=1, repeat=2, threads=2, block=4, together=3)
        all = self.numbers(feed)
        self.assertEqual(sorted(all[:100]), list(range(100)))
        self.assertEqual(sorted(all[100:]), list(range(100)))
        self.assertNotEqual(all[:100], all[100:])
        self.assertEqual(feed.report()["rows"], 200)

    def test_a_place_goes_on_with_other_rows_and_threads(self):
        whole = self.numbers(data.Feed(self.lines(), 7, seed=1))
        first = data.Feed(self.lines(), 7, seed=1)
        before = self.numbers(first, 5)
        again = data.Feed(self.lines(), 9, seed=1, threads=2)
        again.load_state_dict(first.state_dict())
        self.assertEqual(before + self.numbers(again), whole)
        with self.assertRaisesRegex(troupe.Error, "in another order"):
            data.Feed(self.lines(), 9, seed=2).load_state_dict(first.state_dict())

    def test_functions_change_samples_take_them_away_and_fail(self):
        def ids(sample):
            return {"n": sample["n"], "ids": troupe.full((sample["size"],), sample["n"])}

        feed = data.Feed(self.lines(), 4, steps=[lambda s: s["n"] % 2 == 0, ids], pad={"ids": -1}, threads=2)
        first = next(feed)
        self.assertEqual((first["n"].tolist(), first["ids_length"].tolist()), ([0, 2, 4, 6], [1, 3, 5, 2]))
        self.assertEqual(first["ids"].tolist()[1], [2, 2, 2, -1, -1])
        packed = next(data.Feed(self.lines(), 2, steps=ids, pack=("ids", 4)))
        self.assertEqual((packed["ids"].tolist(), packed["segment"].tolist()), ([[0, 1, 1, 2], [2, 2, 3, 3]], [[0, 1, 1, 2], [0, 0, 1, 1]]))

        def broken(sample):
            if sample["n"] == 3:
                raise ValueError("3 is broken")
            return True

        with self.assertRaisesRegex(troupe.Error, "3 is broken"):
            self.numbers(data.Feed(self.lines(), steps=broken))
        skips = data.Feed(self.lines(), steps=broken, skip_broken=True)
        self.assertEqual(len(self.numbers(skips)), 99)
        self.assertEqual(skips.report()["broken"], 1)
        with self.assertRaisesRegex(troupe.Error, "expected a dict of fields"):
            next(data.Feed(self.lines(), steps=lambda s: 1))

    def test_windows_of_tokens_are_mixed_by_weight(self):
        for name, value in (("a", 1), ("b", 2)):
            data.write_token_file(str(self.path / f"{name}.bin"), [value] * 100)
        parts = [(data.token_windows(self.path / f"{name}.bin", context=8), weight) for name, weight in (("a", 0.25), ("b", 0.75))]
        source = data.mixed(parts, size=40)
        self.assertEqual(len(source), 40)
        self.assertEqual(source[0]["x"].shape, (8,))
        rows = [row[0] for batch in data.Feed(source, 8, seed=3) for row in batch["y"].tolist()]
        self.assertEqual((rows.count(1), rows.count(2)), (10, 30))
        with self.assertRaisesRegex(troupe.Error, "none has the 1025 ids"):
            data.token_windows(self.path / "a.bin")

    def test_files_of_other_formats_are_sources(self):
        table = self.path / "a.csv"
        table.write_text("n,kind\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(10)))
        rows = data.csv_rows(table, types={"kind": "text"})
        self.assertEqual((len(rows), rows[3]), (10, {"n": 3, "kind": "b"}))
        self.assertEqual(next(data.Feed(rows, 4))["n"].tolist(), [0, 1, 2, 3])
        self.assertEqual(data.csv_rows([table, str(table)])[13]["n"], 3)
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy")
        for i in range(2):
            numpy.save(self.path / f"x{i}.npy", numpy.arange(6, dtype="f4").reshape(3, 2) + 6 * i)
        numpy.save(self.path / "y.npz-not", numpy.arange(6))
        pairs = data.side_by_side(data.npy_rows([self.path / "x0.npy", self.path / "x1.npy"]), data.npy_rows(self.path / "y.npz-not.npy", field="y"))
        self.assertEqual((pairs[4]["x"].tolist(), pairs[4]["y"].item()), ([8, 9], 4))
        with self.assertRaisesRegex(troupe.Error, "no file"):
            data.tar_samples([])

    def test_files_come_in_any_iterable_and_by_name(self):
        for name in "ab":
            (self.path / f"{name}.jsonl").write_text('{"n": 1}\n')
        paths = [self.path / "a.jsonl", self.path / "b.jsonl"]
        for files in (self.path.glob("*.jsonl"), set(paths), map(str, paths), dict.fromkeys(paths).keys(), (p for p in paths)):
            self.assertEqual(len(data.json_lines(files)), 2)
        self.assertEqual(len(data.json_lines(files=self.path.glob("*.jsonl"))), 2)
        (self.path / "a.csv").write_text("1,2\n")
        self.assertEqual(len(data.csv_rows(files=self.path / "a.csv", header=False)), 1)
        for folder in ({"folder": self.path}, {"folder": str(self.path)}):
            with self.assertRaisesRegex(troupe.Error, "has no .*png"):
                data.pictures(**folder)

    def test_tar_archives_are_sources(self):
        import io, tarfile
        with tarfile.open(self.path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            for i in range(6):
                for ending, content in (("cls", str(i)), ("json", json.dumps({"n": i})), ("bin", "raw")):
                    member = tarfile.TarInfo(f"日本/{i:04}-{'l' * 120}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content.encode()))
        try:
            samples = data.tar_samples(self.path / "a.tar")
        except troupe.Error as e:
            if e.kind == "unimplemented":
                self.skipTest("no libarchive")
            raise
        self.assertEqual((len(samples), samples[5]["cls"], samples[5]["json"]), (6, 5, {"n": 5}))
        self.assertEqual((samples[2]["__key__"], samples[2]["bin"]), (f"日本/0002-{'l' * 120}", b"raw"))
        self.assertEqual(sorted(n for batch in data.Feed(samples, 4, seed=1) for n in batch["cls"].tolist()), list(range(6)))

    def test_other_workers_read_the_same(self):
        lines = self.lines()
        whole = self.numbers(data.Feed(lines, 7, seed=1, repeat=2))
        with troupe.Cluster(workers=3) as cluster:
            feed = data.Feed(lines, 7, seed=1, repeat=2, readers=["w1", "w2"], cluster=cluster)
            self.assertEqual(self.numbers(feed), whole)
            self.assertGreater(feed.report()["rows_per_second"], 0)
            mixed = data.mixed([(lines, 1), (lines, 1)])
            pad = data.Feed(mixed, 7, take=20, readers=["w1"], cluster=cluster)
            self.assertEqual(self.numbers(pad), self.numbers(data.Feed(mixed, 7, take=20)))
            with self.assertRaisesRegex(troupe.Error, "neither functions of Python"):
                data.Feed(lines, steps=lambda s: s, readers=["w1"], cluster=cluster)
        with self.assertRaisesRegex(troupe.Error, "workers of a cluster"):
            data.Feed(lines, readers=["w1"])

    def test_a_job_keeps_the_place(self):
        def run(stop, resume):
            seen = []
            with troupe.Cluster(workers=1, checkpoint=str(self.path / "run"), resume=resume, every=1) as cluster:
                feed = data.Feed(self.lines(), 5, seed=4)
                for step in troupe.Job(cluster).steps(20):
                    if step == stop:
                        break
                    seen += next(feed)["n"].tolist()
            return seen, step

        whole = self.numbers(data.Feed(self.lines(), 5, seed=4))
        before, _ = run(8, False)
        after, _ = run(None, True)
        self.assertEqual(before, whole[:40])
        self.assertEqual(after, whole[-len(after):])
        self.assertGreaterEqual(len(after), 60)


if __name__ == "__main__":
    unittest.main()
