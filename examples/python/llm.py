"""A language model learns a text on a mesh, is saved in Hugging Face's form, and goes on with words.
python llm.py TEXT FOLDER OUT [steps]: FOLDER has config.json and tokenizer.json; with weights, adapters are trained."""
import pathlib
import sys

import troupe
from troupe import llm

text, folder, out = map(pathlib.Path, sys.argv[1:4])
steps = int(sys.argv[4]) if len(sys.argv) > 4 else 100
tuned = any(folder.glob("*.safetensors"))
tokenizer = llm.Tokenizer(str(folder))
out.mkdir(exist_ok=True)
troupe.data.write_token_file(str(out / "train.bin"), tokenizer.encode(text.read_text(), with_special=False), 4)
tokens = troupe.data.TokenFile(str(out / "train.bin"), 4)
print(len(tokens), "tokens")

with troupe.Cluster(processes=5) as cluster:
    troupe.manual_seed(1)
    mesh = cluster.mesh({"dp": 2, "pp": 1, "tp": 2}, ["w1", "w2", "w3", "w4"])
    model = llm.stages(mesh, folder if tuned else folder / "config.json", dtype="float32", micro_batches=2, lora=4 if tuned else None)
    optimizer = troupe.optim.AdamW(model, lr=3e-3)
    for i in range(1, steps + 1):
        x, y = tokens.random_windows(32, 8)
        with cluster.context():
            loss = model.step(x, y).result()["loss"]
            troupe.optim.clip_grad_norm(optimizer, 1.0)
            optimizer.step()
        if i == 1 or i % 20 == 0:
            print(f"step {i} loss {loss:.3f}")
    model.save_pretrained(out)
whole = llm.load_pretrained(folder, dtype="float32", adapters=str(out)) if tuned else llm.load_pretrained(out)
print(tokenizer.decode(whole.generate(tokenizer.encode("The "), max_new_tokens=20)))
