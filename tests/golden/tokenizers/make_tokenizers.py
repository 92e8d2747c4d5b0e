#!/usr/bin/env python3
"""Makes the files beside it: small tokenizers of each kind, and what their own libraries make of corpus.bin.

  pip install tokenizers==0.23.3 sentencepiece==0.2.3
  tests/golden/tokenizers/make_tokenizers.py

corpus.bin       texts, some of them broken UTF-8, each followed by the byte 0x1E
<name>.json      a tokenizer.json trained here            (Hugging Face's tokenizers)
<name>.model     a SentencePiece model trained here       (sentencepiece)
<name>.ids       a line per text: the ids of text.decode("utf-8", errors="replace"), without begin or end
<name>.decoded   what these ids decode to, special tokens left out, each followed by 0x1E
"""
import io
import json
import os
import pathlib

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
SEPARATOR = b"\x1e"

TEXTS = [
    "",
    " ",
    "Hello, world! It's a test; they're HERE, I'LL see what you'd say, we've 12 of 3456 and 1234567890.",
    "def f(x: int) -> int:\n    return x**2 + 1  # squared\n\n\n\tif (a && b) { c[i] += d->e; }\r\n",
    "for (size_t i = 0; i < n; ++i) {\n        sum += values[i];\n    }\n}\n\n// --- end ---\n",
    "   leading spaces,   runs     of them        and trailing   ",
    "tabs\t\tand\tmore\t \t mixed \n \n  \n\n\r\n\r\n lines \r alone",
    "Ünïcödé: naïve café, Straße, İstanbul, ŒUVRE, ﬁn, ½ + ¾ = 1¼, x² + y³, №5, Ⅷ, ①②③, ٣٤٥, १२३",
    "e\u0301 vs é; A\u030a Å \u212b; o\u0323\u0302 o\u0302\u0323 ộ; q\u0307\u0323; \u1100\u1161\u11a8 각; が か\u3099; \u0958 \u2126",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Ελληνικά: Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.",
    "中文分词测试:我们在北京,天气很好。日本語のテキスト、カタカナとひらがな。한국어 문장입니다. ภาษาไทยไม่มีช่องว่าง",
    "العربية: مرحبا بالعالم، كيف حالك؟ עברית: שלום עולם, मराठी: नमस्कार जग, தமிழ்: வணக்கம், বাংলা: নমস্কার",
    "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 ❤️ ☃ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚 𐍈 🫠 \u200d \ufeff \u00ad \u2028 \u2029 \u0085 \u180e \u3000 \u00a0end",
    "<|endoftext|>start<|endoftext|> <|endoftext|>  middle </s><s>[INST] hi [/INST]</s> <unk> <|im_start|>user\n",
    "  <mask>  around <mask>s and a<mask>b, word words keyword word. Word WORD  <strip>   both   <strip>end <left>  <right>  x",
    "\u2581already\u2581marked \u2581 text\u2581\u2581 twice <0x41><0x0A> Ġgpt Ċ",
    "ALL CAPS and MixedCase camelCase snake_case kebab-case a.b.c a/b/c http://example.org/path?x=1&y=%20#z",
    "{\"key\": [1, 2.5e-3, null, true], \"nested\": {\"a\\u00e9\": \"\\n\"}}",
    "!!!???... --- *** ___ ~~~ $$$ €100 £20 ¥30 +-×÷=≠≈∞ ∫∑√ «quoted» “curly” ‘single’ – — …",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "0000000000000000000000000000 1e100 0x1F 3.14159 1,000,000 1_000 2024-02-29 23:59:59",
    "\x00\x01\x02 control \x1b[31mred\x1b[0m \x7f bytes\n",
    "the the the theory there then thistle thorough through though thought\nthe\n\nthe",
]
BROKEN = [
    b"lone continuation \x80\xbf, lead without end \xc3 x \xe2\x82 y \xf0\x9f\x98 z",
    b"overlong \xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf, surrogate \xed\xa0\x80, too large \xf4\x90\x80\x80 \xf5\xff\xfe",
    b"cut \xe4\xb8\xad\xe6\x96",
    b"\xff\xfe\xfd",
    b"Latin-1: caf\xe9 na\xefve; half \xf0\x9f\x91 and whole \xf0\x9f\x91\x8d",
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<unk>"]


def texts():
    return [text.encode() for text in TEXTS] + BROKEN


def training_text():
    excerpt = (HERE.parent.parent / "data" / "excerpt.txt").read_text()
    return excerpt.splitlines(keepends=True) + [t for t in TEXTS for _ in range(3)]


def bpe(vocab, model=None, alphabet=(), special=SPECIAL, **parts):
    tokenizer = Tokenizer(models.BPE(**(model or {})))
    for name, value in parts.items():
        setattr(tokenizer, name, value)
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, initial_alphabet=list(alphabet),
                                  show_progress=False)
    tokenizer.train_from_iterator(training_text(), trainer)
    return tokenizer


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**({"add_prefix_space": False, "use_regex": False} | options))


def split(pattern, behavior="isolated", **options):
    return pre_tokenizers.Split(Regex(pattern), behavior, **options)


def json_tokenizers():
    every_byte = pre_tokenizers.ByteLevel.alphabet()
    bytes_back = decoders.ByteLevel()
    yield "gpt2", bpe(700, alphabet=every_byte, pre_tokenizer=byte_level(use_regex=True), decoder=bytes_back)
    # Without all bytes in the vocabulary: what is missing vanishes, and a space comes first.
    yield "bytes_missing", bpe(400, pre_tokenizer=byte_level(use_regex=True, add_prefix_space=True),
                               decoder=bytes_back)

    llama3 = bpe(700, {"ignore_merges": True}, every_byte, pre_tokenizer=sequence(split(LLAMA3), byte_level()),
                 decoder=bytes_back)
    llama3.add_special_tokens(["<|im_start|>"])
    llama3.add_tokens([AddedToken("<mask>", lstrip=True), AddedToken("word", single_word=True),
                       AddedToken("<strip>", lstrip=True, rstrip=True), AddedToken("<left>", lstrip=True),
                       AddedToken("<right>", rstrip=True)])
    yield "llama3", llama3

    yield "qwen2", bpe(700, alphabet=every_byte, normalizer=normalizers.NFC(),
                       pre_tokenizer=sequence(split(QWEN2), byte_level()), decoder=bytes_back)
    yield "deepseek", bpe(500, alphabet=every_byte, decoder=bytes_back, pre_tokenizer=sequence(
        split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
        split(r"[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(individual_digits=True), byte_level()))
    yield "falcon", bpe(500, alphabet=every_byte, decoder=bytes_back, pre_tokenizer=sequence(
        pre_tokenizers.Punctuation("contiguous"), byte_level(use_regex=True), pre_tokenizers.Digits(),
        split("[0-9][0-9][0-9]")))

    fallback = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    byte_tokens = SPECIAL + [f"<0x{b:02X}>" for b in range(256)]
    spaces_back = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                     decoders.Strip(" ", 1, 0)])
    llama2 = bpe(700, fallback, special=byte_tokens, decoder=spaces_back,
                 pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always"))
    llama2.pre_tokenizer = None
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    yield "llama2", as_llama(llama2)
    mistral = bpe(700, fallback, special=byte_tokens, decoder=spaces_back,
                  pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first"))
    mistral.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    yield "mistral", as_llama(mistral)

    for name, fuse, scheme in (("metaspace", False, "always"), ("metaspace_fused", True, "never")):
        yield name, bpe(300, {"unk_token": "<unk>", "fuse_unk": fuse},
                        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme),
                        decoder=decoders.Metaspace(prepend_scheme=scheme))
    words = bpe(400, {"unk_token": "<unk>"}, decoder=None, pre_tokenizer=sequence(
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"),
        split(r"\w+|[^\w\s]+", "removed", invert=True), split("[aeiou]", "merged_with_next")),
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]))
    words.add_tokens([AddedToken("Hello", normalized=True), AddedToken("<mask>", normalized=False)])
    yield "words", words


def as_llama(tokenizer):
    """Byte tokens are ordinary tokens there, not added ones."""
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(file))


def sentencepiece_models():
    common = {"model_type": "bpe", "byte_fallback": True, "character_coverage": 0.99}
    yield "sp_llama", 700, common | {"normalization_rule_name": "identity", "split_digits": True,
                                     "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True,
                                     "user_defined_symbols": ["<|im_start|>", "word", "  "]}
    rules = "".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
                    for a, b in [("ﬁ", "fi"), ("e\u0301", "é"), ("\t", " "), ("…", "..."), ("\u00ad", "")])
    os.chdir(HERE)  # the model remembers the path of its rules
    path = pathlib.Path("rules.tsv")
    path.write_text(rules)
    yield "sp_rules", 500, common | {"byte_fallback": False, "normalization_rule_tsv": str(path)}
    path.unlink()
    yield "sp_suffix", 600, common | {"normalization_rule_name": "identity", "treat_whitespace_as_suffix": True}


def write(name, expected):
    (HERE / f"{name}.ids").write_text("".join(" ".join(map(str, ids)) + "\n" for ids, _ in expected))
    (HERE / f"{name}.decoded").write_bytes(b"".join(text.encode() + SEPARATOR for _, text in expected))


def main():
    (HERE / "corpus.bin").write_bytes(b"".join(text + SEPARATOR for text in texts()))
    decoded = [text.decode("utf-8", errors="replace") for text in texts()]
    for name, tokenizer in json_tokenizers():
        (HERE / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n")
        expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in decoded]
        write(name, [(ids, tokenizer.decode(ids)) for ids in expected])
    for name, vocab, options in sentencepiece_models():
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(training_text()), model_writer=model,
                                                 vocab_size=vocab, minloglevel=2, **options)
        (HERE / f"{name}.model").write_bytes(model.getvalue())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        expected = [processor.encode(text) for text in decoded]
        write(name, [(ids, processor.decode(ids)) for ids in expected])


if __name__ == "__main__":
    main()
