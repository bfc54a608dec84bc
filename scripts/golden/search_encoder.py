"""Writes the golden vectors of the sentence encoder, with transformers and torch as the reference.

    python scripts/golden/search_encoder.py MODEL_DIR search/tests/data/encoder_golden.jsonl

Needs: pip install torch transformers. The vectors are mean-pooled over all tokens and normalised, in float32,
each text alone, cut to 256 tokens, as the model's sentence-transformers configuration says.
"""

import json
import sys

import torch
from transformers import AutoModel, AutoTokenizer

TEXTS = [
    "What is the highest point of Switzerland?",
    "Switzerland – Elevation\nhighest point: Dufourspitze on Monte Rosa 4,634 m\nlowest point: Lake Maggiore 195 m",
    "a",
    "Le pays est bordé par l'Autriche; naïve café, Ærø & Łódź — ½ “quoted” … 東京 🚀",
    "0-dimensional biomaterials show inductive properties (p < 0.05; n = 1,234).",
    "UPPER lower MiXeD don't can't e-mail@example.org http://example.org/a?b=c&d=e",
    "   leading, trailing and \t inner   white space\n\n  ",
    " ".join(f"word{i} of a long text that must be cut" for i in range(80)),
]


def main() -> None:
    folder, out = sys.argv[1:]
    torch.set_grad_enabled(False)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager", torch_dtype=torch.float32).eval()
    records = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=256, padding=False, return_tensors="pt")
        states = model(**inputs).last_hidden_state[0]
        vector = torch.nn.functional.normalize(states.mean(0), dim=0)
        records.append({"text": text, "tokens": states.shape[0], "vector": [round(x, 7) for x in vector.tolist()]})
    with open(out, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


main()
