#!/usr/bin/env python3
"""Makes small random language models of each family as transformers writes them, with what it computes of them.

    python3 make_language_models.py FOLDER      # torch, transformers and peft from PyPI

Also adapters of some of them as PEFT writes them (FOLDER/adapters/FAMILY), with logits and the losses of steps of SGD.

FOLDER/FAMILY has config.json and the weights, all numbers of bfloat16; FOLDER/values.json, by family: ids [2, time], their logits in
float32, those of the last place in bfloat16, and what greedy search adds to each row alone.
"""
import copy
import json
import pathlib
import sys

import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import (Gemma2Config, Gemma3TextConfig, GemmaConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config,
                          AutoModelForCausalLM)

VOCABULARY, WIDTH, TIME, ADDED = 61, 24, 13, 9
COMMON = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
FAMILIES = {
    "gpt2": GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2),
    "llama": LlamaConfig(**COMMON, rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                                         high_freq_factor=4.0, original_max_position_embeddings=32)),
    "qwen2": Qwen2Config(**COMMON, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**COMMON, head_dim=12),
    "mistral": MistralConfig(**COMMON, sliding_window=5),
    "gemma": GemmaConfig(**{**COMMON, "num_key_value_heads": 1}, head_dim=16),
    "gemma2": Gemma2Config(**COMMON, head_dim=16, sliding_window=5, query_pre_attn_scalar=24),
    "gemma3_text": Gemma3TextConfig(**COMMON, head_dim=16, sliding_window=5, query_pre_attn_scalar=24,
                                    layer_types=["sliding_attention", "full_attention"]),
}


def spread(model):
    """What transformers starts at 0 or 1 gets values of its own, so that a forgotten one is found; all are numbers of bfloat16."""
    g = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, p in model.named_parameters():
            scale = 0.3 if p.dim() == 1 else 0.12
            p.add_(scale * torch.randn(p.shape, generator=g))
            p.copy_(p.bfloat16().float())


def numbers(t):
    return dict(dtype="f64", shape=list(t.shape), data=[float(f"{v:.7g}") for v in t.double().reshape(-1).tolist()])


def greedy(model, row):
    ids = row[None]
    for _ in range(ADDED):
        ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids[0, row.shape[0]:].tolist()


def adapted(family, config, folder):
    """Adapters whose B is not zero, and three steps of theirs."""
    torch.manual_seed(7)
    base = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    spread(base)
    lora = LoraConfig(r=4, lora_alpha=10, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(base, lora)
    g = torch.Generator().manual_seed(13)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_((0.2 * torch.randn(p.shape, generator=g)).bfloat16().float())
    ids = torch.randint(3, VOCABULARY, (2, TIME), generator=torch.Generator().manual_seed(11))
    model.save_pretrained(folder / "adapters" / family)
    (folder / "adapters" / family / "README.md").unlink(missing_ok=True)
    with torch.no_grad():
        logits = model(ids).logits
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    return dict(logits=numbers(logits[:, -1]), losses=losses)


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    for family, config in FAMILIES.items():
        fresh = copy.deepcopy(config)
        torch.manual_seed(7)
        config._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        spread(model)
        ids = torch.randint(3, VOCABULARY, (2, TIME), generator=torch.Generator().manual_seed(11))
        with torch.no_grad():
            logits = model(ids).logits
            tokens = [greedy(model, row) for row in ids]
            half = model.bfloat16()(ids).logits[:, -1].float()
        # One family is in several files, as large models are.
        model.save_pretrained(folder / family, **({"max_shard_size": "20KB"} if family == "llama" else {}))
        (folder / family / "generation_config.json").unlink()
        adapters = {"lora": adapted(family, fresh, folder)} if family in ("llama", "qwen3") else {}
        out[family] = dict(**adapters, ids=dict(dtype="i64", shape=list(ids.shape), data=ids.reshape(-1).tolist()), logits=numbers(logits), bfloat16=numbers(half), greedy=tokens)
    (folder / "values.json").write_text(json.dumps(dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__,
                                                        families=out), separators=(",", ":")) + "\n")


main(pathlib.Path(sys.argv[1]))
