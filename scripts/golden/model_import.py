"""What transformers' own GGUF loader makes of a model file: token ids of some strings, greedy continuations of some chats.

Needs torch, transformers and gguf. Usage:
    python scripts/golden/model_import.py FOLDER FILE.gguf trainer/tests/data/model_import.json
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

STRINGS = [
    "hello world",
    "In 1999 there were 1234567 people; 3.14",
    "  two  spaces\n\n\nnew lines\t tab ",
    "emoji 😀👍🏽 ünïcode 漢字 العربية",
    "<|im_start|>user\nWhat?<|im_end|>\n<|im_start|>assistant\n",
    "don't I'll we've CAN'T",
    "a\u00a0b\u200bc",
    "<repo_name><|endoftext|>x",
    " 12 34",
    "x=1;\r\ny=2",
    "<search>capital of France</search>",
]
QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "Count from 1 to 10.",
    "Who wrote Romeo and Juliet?",
    "Translate 'good morning' into Spanish.",
]
NEW_TOKENS = 24


def main(folder: str, file: str, out: str) -> None:
    torch.set_num_threads(2)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).eval()

    def encode(text: str) -> list[int]:
        # The converter puts the first token before every text, though the file says that this model does not.
        ids = tokenizer(text).input_ids
        assert ids[0] == tokenizer.bos_token_id
        return ids[1:]

    greedy = []
    for question in QUESTIONS:
        prompt = encode(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
        with torch.no_grad():
            ids = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=NEW_TOKENS)[0].tolist()
        greedy.append({"prompt_ids": prompt, "ids": ids[len(prompt) :], "text": tokenizer.decode(ids[len(prompt) :])})
    golden = {"strings": [{"text": text, "ids": encode(text)} for text in STRINGS], "greedy": greedy}
    with open(out, "w", encoding="utf-8") as handle:
        json.dump(golden, handle, ensure_ascii=False, separators=(",", ":"))
        handle.write("\n")
    for entry in greedy:
        print(repr(entry["text"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
