"""Loads a saved model folder with transformers, says what it is and continues a chat greedily.

Needs torch and transformers. Usage: python scripts/golden/model_check.py FOLDER [QUESTION]
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(folder: str, question: str = "What is the capital of France?") -> None:
    model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    problems = {key: value for key, value in loading.items() if value}
    assert not problems, f"transformers does not take the weights as they are: {problems}"
    print(f"{type(model).__name__}, {model.num_parameters()} parameters, {model.dtype}, end {model.generation_config.eos_token_id}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": question}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")
    with torch.no_grad():
        out = model.generate(ids, do_sample=False, max_new_tokens=24)
    print(repr(tokenizer.decode(out[0, ids.shape[1] :])))


if __name__ == "__main__":
    main(*sys.argv[1:])
