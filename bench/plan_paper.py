#!/usr/bin/env python3
"""Large models on cards that are not here, on paper: profiles from published figures of the cards, what `troupe plan` makes of them, and published
steps of Megatron-LM beside what it says of their layouts.

    plan_paper.py BIN_DIR [--profile NAME]      --profile: prints the profile of one of them, and runs nothing

Time of a layer: matrix products at a part of the card's peak, attention at another, and what lies between at the memory's speed.
"""
import argparse, json, pathlib, subprocess, sys, tempfile

# Data sheets give the peaks (bfloat16 without sparsity; bytes/s one way, of a card). What large products and attention reach of the peak, and
# copies of the memory's speed, are one number each for all models.
CARDS = {"H100": {"peak": 989e12, "memory": 80e9, "memory_rate": 3.35e12, "near": 450e9, "far": 50e9},
         "A100": {"peak": 312e12, "memory": 80e9, "memory_rate": 2.04e12, "near": 300e9, "far": 25e9}}
PRODUCTS, ATTENTION, COPIES, LINKS = 0.70, 0.45, 0.85, 0.80
PER_HOST, ELEMENT = 8, 2
# Adam with mixed precision, for a parameter of 2 bytes: 12 bytes of state; a step reads and writes 30.
STATE, STEP_BYTES = 12, 30

MODELS = {"GPT-3 175B": {"card": "H100", "layers": 96, "width": 12288, "heads": 96, "words": 131072, "time": 4096},
          "PaLM-like 540B": {"card": "H100", "layers": 118, "width": 18432, "heads": 48, "words": 262144, "time": 2048, "feed_forward": 5.8},
          "MT-NLG 530B": {"card": "A100", "layers": 105, "width": 20480, "heads": 128, "words": 51200, "time": 2048}}
# Published: (model, cards, sequences of a step, layout, part of the peak, where).
MEGATRON = "Megatron-LM's README, strong scaling"
PUBLISHED = [("GPT-3 175B", 96, 1152, {"mesh": {"tp": 8, "pp": 12}, "micro_batches": 1152}, 0.47, MEGATRON),
             ("GPT-3 175B", 4608, 1152, {"mesh": {"tp": 8, "pp": 12, "dp": 48}, "micro_batches": 24, "shard": "state"}, 0.42, MEGATRON),
             ("GPT-3 175B", 4608, 1152, {"mesh": {"tp": 8, "pp": 12, "dp": 48}, "micro_batches": 24, "shard": "state", "chunks": 8, "schedule": "interleaved"},
              0.42, MEGATRON),
             ("MT-NLG 530B", 2240, 2240, {"mesh": {"tp": 8, "pp": 35, "dp": 8}, "micro_batches": 280}, 0.542, "arXiv 2205.05198")]
SEARCHED = [("GPT-3 175B", 96, 1152), ("GPT-3 175B", 1024, 1536), ("PaLM-like 540B", 1024, 2048)]


def flops(model, sequences):
    """Of a step, without what is computed again: three times the forward pass."""
    wide, time = model["width"], model["time"]
    layer = 2 * time * wide * wide * (4 + 2 * model.get("feed_forward", 4)) + 4 * time * time * wide
    return 3 * sequences * (model["layers"] * layer + 2 * time * wide * model["words"])


def profile(model, cards):
    card = CARDS[model["card"]]
    wide, time, words, ff = model["width"], model["time"], model["words"], model.get("feed_forward", 4)
    products = lambda macs: 2 * macs / (card["peak"] * PRODUCTS)
    copied = lambda elements: elements * ELEMENT / (card["memory_rate"] * COPIES)
    rows = lambda seconds: {"fixed": 0, "per_row": seconds}
    weights = wide * wide * (4 + 2 * ff)
    # Half of the pairs of positions are masked, and not computed; backwards the scores are computed again.
    attention = 2 * time * time * wide / (card["peak"] * ATTENTION)
    between = copied(time * wide * (12 + 2 * ff))  # norms, residual sums, dropout, the activation
    block = {"name": "transformer_encoder_layer", "forward": rows(products(time * weights) + attention + between),
             "input": rows(products(time * weights) + 2.5 * attention + 1.5 * between), "weight": rows(products(time * weights)),
             "backward": rows(products(2 * time * weights) + 2.5 * attention + 1.5 * between), "adding": 0, "alone": 1, "alone_few": 1,
             "parameters": ELEMENT * weights, "largest": ELEMENT * wide * wide * ff, "saved": time * wide * (18 + 4 * ff), "working": time * wide * ELEMENT * ff, "output": time * wide * ELEMENT,
             "parameters_divided": 1, "time_divided": 1 - copied(time * wide * 10) / (products(time * weights) + attention + between),
             "saved_divided": 1 - 10 / (18 + 4 * ff), "heads": model["heads"], "sums": 2, "experts": 0, "chosen": 0,
             "expert_parameters": 0}
    none = {"fixed": 0, "per_row": 0}
    tokens = {**block, "name": "embedding", "forward": rows(copied(2 * time * wide)), "input": none, "weight": rows(copied(2 * time * wide)),
              "backward": rows(copied(2 * time * wide)),
              "parameters": ELEMENT * wide * words, "largest": ELEMENT * wide * words, "saved": ELEMENT * time * wide, "working": 0, "time_divided": 0, "saved_divided": 0, "heads": words, "sums": 0}
    head = {**tokens, "name": "sequential", "forward": rows(products(time * wide * words)), "input": rows(products(time * wide * words)),
            "weight": rows(products(time * wide * words)), "backward": rows(products(2 * time * wide * words)), "saved": time * (wide * ELEMENT + words * 4), "output": time * words * 4, "time_divided": 1,
            "saved_divided": 1}
    near, far = card["near"] * LINKS, PER_HOST * card["far"] * LINKS
    workers = [{"name": f"w{w}", "host": f"h{w // PER_HOST}", "speed": 1, "pace": 1, "memory": 3e9, "tensors": 0} for w in range(min(cards, 2 * PER_HOST))]
    return {"format": "troupe model profile 1", "batch": 8, "cuts_layers": True, "cores": 64, "workers": workers,
            "process": {"latency": 1e-5, "rate": near}, "host": {"latency": 1e-5, "rate": near}, "hosts": {"latency": 2e-5, "rate": far},
            "sums": {"near_round": 1e-5, "near_rate": near, "far_round": 3e-5, "far_rate": far},
            "optimizer": STEP_BYTES / ELEMENT / (card["memory_rate"] * COPIES), "state": STATE / ELEMENT,
            "layers": [tokens, *[block] * model["layers"], head]}


def planned(bin_dir, folder, name, cards, sequences, *flags):
    model = MODELS[name]
    (folder / "profile.json").write_text(json.dumps(profile(model, cards)))
    command = [bin_dir / "troupe", "plan", folder / "profile.json", "-n", str(cards), "--per-host", str(PER_HOST), "--batch", str(sequences),
               "--memory", str(int(CARDS[model["card"]]["memory"])), "--json", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("bin_dir", type=pathlib.Path)
    arguments.add_argument("--profile", choices=MODELS)
    given = arguments.parse_args()
    if given.profile:
        print(json.dumps(profile(MODELS[given.profile], 1024), indent=1))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model, cards, sequences, layout, said, where in PUBLISHED:
            (folder / "layout.json").write_text(json.dumps(layout))
            row = planned(given.bin_dir, folder, model, cards, sequences, "--judge", folder / "layout.json")["judged"]
            ideal = flops(MODELS[model], sequences) / cards / CARDS[MODELS[model]["card"]]["peak"]
            published = ideal / said
            print(json.dumps({"model": model, "cards": cards, "layout": row["layout"], "step_s": round(row["step"], 2), "published_s": round(published, 2),
                              "of_published": round(row["step"] / published, 3), "waiting": round(row["bubble"] / row["step"], 3), "memory_gb": round(row["memory"] / 1e9, 1), "source": where}), flush=True)
        for model, cards, sequences in SEARCHED:
            best = planned(given.bin_dir, folder, model, cards, sequences)["best"][0]
            ideal = flops(MODELS[model], sequences) / cards / CARDS[MODELS[model]["card"]]["peak"]
            print(json.dumps({"model": model, "cards": cards, "chosen": best["layout"], "step_s": round(best["step"], 2), "of_peak": round(ideal / best["step"], 3),
                              "memory_gb": round(best["memory"] / 1e9, 1)}), flush=True)


if __name__ == "__main__":
    main()
