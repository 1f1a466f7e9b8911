#!/usr/bin/env python3
"""Trains small byte-level tokenizers in the manners of GPT-2, Llama 3 and Qwen 2, and says how they cut texts.

    python3 make_tokenizers.py FOLDER      # tokenizers from PyPI

FOLDER/NAME.json is a tokenizer.json; FOLDER/gpt2.tiktoken has the tokens of the first as tiktoken's files have them; FOLDER/texts.json, by
name: texts, the ids that they become with and without special tokens, and what the ids become again.
"""
import base64
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
LLAMA3 = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CORPUS = ["the quick brown fox jumps over the lazy dog, and the dog sleeps.", "She's here; we'll go, they're late: I've 1234 apples and 56,789 pears!",
          "naïve café, über alles, señor", "def f(x):\n    return x ** 2\n\n\n# done\n", "Привет, мир! Как дела?", "日本語のテキスト、東京。", "    indented\n\ttabs\r\n"] * 3
TEXTS = ["", "a", "the quick brown fox", "She'll say: \"it's 12345 o'clock\"...  two  spaces   three", "THEY'RE LOUD, I'VE HEARD", "\n\n\n  \n\t x \r\n\r\n y ",
         "caf\u00e9 cafe\u0301 na\u00efve", "\u041f\u0440\u0438\u0432\u0435\u0442 \u65e5\u672c\u8a9e \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
         "x\u00a0y\u3000z\u2003w\u0085v\u000bu", "<|end|>begin<|start|> middle <|end|>", "\u0661\u0662\u0663 \u2167 \u00bd 1\u00b2", "a" * 300, "ab " * 50 + "    ",
         "\u1100\u1161\u11a8 \uac01 \u212b \u00c5", "e\u0301\u0323 q\u0307\u0323"]


def bytes_of(token):
    """The bytes that GPT-2's letters stand for."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(b): b for b in shown}
    letters.update({chr(256 + n): b for n, b in enumerate(b for b in range(256) if b not in shown)})
    return bytes(letters[c] for c in token)


def made(name):
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        pattern = LLAMA3 if name == "llama3" else QWEN
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    if name == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken("<|start|>", special=True), AddedToken("<|end|>", special=True)])
    if name == "llama3":
        start = tokenizer.token_to_id("<|start|>")
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                        processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", start)])])
    return tokenizer


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    out = {}
    for name in ("gpt2", "llama3", "qwen2"):
        tokenizer = made(name)
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
        out[name] = [dict(text=t, ids=tokenizer.encode(t, add_special_tokens=False).ids, special=tokenizer.encode(t).ids,
                          decoded=tokenizer.decode(tokenizer.encode(t).ids, skip_special_tokens=False),
                          skipped=tokenizer.decode(tokenizer.encode(t).ids)) for t in TEXTS]
        if name == "gpt2":
            vocabulary = [(t, i) for t, i in tokenizer.get_vocab(with_added_tokens=False).items()]
            lines = [f"{base64.b64encode(bytes_of(t)).decode()} {i}\n" for t, i in sorted(vocabulary, key=lambda e: e[1])]
            (folder / "gpt2.tiktoken").write_text("".join(lines))
    (folder / "texts.json").write_text(json.dumps(out) + "\n")


main(pathlib.Path(sys.argv[1]))
