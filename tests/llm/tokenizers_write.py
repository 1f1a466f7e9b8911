"""Vocabularies, texts and what PyPI's tokenizers and tiktoken make of them: tokenizers_write.py FOLDER MIB.

Texts are of 20 languages, of emoji and of bytes that are no UTF-8: words of each script's letters in lengths as languages have them,
and translated manual pages where they are installed. Vocabularies are trained on a part of them, and written in both formats.
FOLDER gets texts.bin (each text: its bytes, little-endian uint32, and itself) and for NAME in gpt2, cl100k: NAME.json, NAME.tiktoken,
NAME.hf.bin, NAME.tiktoken.bin (each text: how many ids, and these, uint32).
"""
import base64
import gzip
import json
import pathlib
import random
import struct
import sys
import unicodedata

import tiktoken
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

folder, size = pathlib.Path(sys.argv[1]), int(float(sys.argv[2]) * (1 << 20))
random.seed(1)
# Letters of 20 languages, by ranges of code points.
LETTERS = {
    "en": [(0x61, 0x7a)], "de": [(0x61, 0x7a), (0xe4, 0xe4), (0xf6, 0xf6), (0xfc, 0xfc), (0xdf, 0xdf)], "fr": [(0x61, 0x7a), (0xe0, 0xf4)],
    "es": [(0x61, 0x7a), (0xe1, 0xf1)], "pl": [(0x61, 0x7a), (0x104, 0x107), (0x141, 0x144)], "tr": [(0x61, 0x7a), (0x11e, 0x131)],
    "vi": [(0x61, 0x7a), (0x1ea0, 0x1ef9)], "ru": [(0x410, 0x44f)], "uk": [(0x430, 0x457)], "el": [(0x391, 0x3c9)], "he": [(0x5d0, 0x5ea)],
    "ar": [(0x620, 0x64a)], "fa": [(0x620, 0x64a), (0x6a9, 0x6cc)], "hi": [(0x904, 0x94d)], "bn": [(0x985, 0x9cd)], "ta": [(0xb85, 0xbcd)],
    "th": [(0xe01, 0xe4e)], "ka": [(0x10d0, 0x10fa)], "zh": [(0x4e00, 0x6000)], "ja": [(0x3041, 0x30ff), (0x4e00, 0x5000)], "ko": [(0xac00, 0xb000)],
    "am": [(0x1200, 0x1357)],
}
EMOJI = ["\U0001f600", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\U0001f44d\U0001f3fd", "\U0001f9d1\u200d\U0001f91d\u200d\U0001f9d1"]
SPACES = [" "] * 12 + ["  ", "\n", "\n\n", "\t", " \n ", "\r\n", "\u00a0", "\u3000", "   ", "\u2003"]
MARKS = [".", ",", "!", "?", "...", ";", ":", "\u3002", "\u060c", "'s", "'LL", "'ve", "\u2019t", "-", "(", ")", "\"", "\u00ab", "\u00bb", "$", "%", "=>", "//", "\u0964"]
NUMBERS = ["7", "42", "1234567", "3.14", "\u0663\u0664", "\u096a\u0968", "\u00bd", "\u2167", "2026-11-30"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\x80\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\xe2\x28\xa1"]


def words(ranges):
    letters = [chr(c) for a, b in ranges for c in range(a, b + 1) if unicodedata.category(chr(c)) != "Cn"]
    return ["".join(random.choice(letters) for _ in range(random.randint(1, 9))) for _ in range(400)]


def made(vocabulary, count):
    out = []
    for _ in range(count):
        out.append(random.choices((random.choice(vocabulary), random.choice(vocabulary).title(), random.choice(NUMBERS), random.choice(MARKS), random.choice(EMOJI)),
                                  (30, 4, 2, 5, 1))[0])
        out.append(random.choice(SPACES) if random.random() < 0.9 else "")
    return "".join(out)


def manual_pages():
    for language in sorted(pathlib.Path("/usr/share/man").glob("??")):
        taken = 0
        for page in sorted(language.glob("man*/*.gz")):
            if taken > 150000:
                break
            text = gzip.decompress(page.read_bytes()).decode(errors="replace")
            taken += len(text)
            for at in range(0, len(text), 3000):
                yield text[at:at + 3000].encode()


texts = [t for _, t in zip(range(1500), manual_pages())]
languages = {name: words(ranges) for name, ranges in LETTERS.items()}
have = sum(map(len, texts))
while have < size:
    for vocabulary in languages.values():
        text = made(vocabulary, 400).encode()
        if random.random() < 0.1:
            at = random.randrange(len(text))
            text = text[:at] + random.choice(BROKEN) + text[at:]
        texts.append(text)
        have += len(text)
random.shuffle(texts)
with open(folder / "texts.bin", "wb") as file:
    for text in texts:
        file.write(struct.pack("<I", len(text)) + text)
read = [text.decode(errors="replace") for text in texts]

PATTERNS = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "cl100k": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
}


def write_ids(name, all):
    with open(folder / name, "wb") as file:
        for ids in all:
            file.write(struct.pack(f"<{len(ids) + 1}I", len(ids), *ids))


for name, pattern in PATTERNS.items():
    tokenizer = Tokenizer(models.BPE())
    if name == "gpt2":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(read[:400], trainer)
    tokenizer.save(str(folder / f"{name}.json"))
    write_ids(f"{name}.hf.bin", (e.ids for e in tokenizer.encode_batch(read, add_special_tokens=False)))

    # The letters that stand for bytes, as GPT-2 has them.
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)}
    vocabulary = json.loads((folder / f"{name}.json").read_text())["model"]["vocab"]
    ranks = {bytes(letters[c] for c in token): rank for token, rank in vocabulary.items()}
    (folder / f"{name}.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {r}\n" for t, r in sorted(ranks.items(), key=lambda x: x[1])))
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    write_ids(f"{name}.tiktoken.bin", encoding.encode_ordinary_batch(read, num_threads=2))
