"""Times transformers' generate on a batch of prompts, prefill included; the peer of trainer/examples/bench_sampler.rs.

generate.py MODEL PROMPTS.json NEW_TOKENS ROUNDS: greedy, exactly NEW_TOKENS a prompt.
"""

import json
import os
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(int(os.environ["DRGYM_BENCH_THREADS"]))
model_dir, prompts_file, new_tokens, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
prompts = json.load(open(prompts_file))
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="sdpa").eval()
ids = torch.tensor(prompts)
options = {"do_sample": False, "max_new_tokens": new_tokens, "min_new_tokens": new_tokens, "pad_token_id": 0}
seconds = []
for _ in range(rounds + 1):
    started = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    seconds.append(time.perf_counter() - started)
print(json.dumps({
    "new_tokens": (out.shape[1] - ids.shape[1]) * len(prompts), "seconds": seconds[1:],
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "torch": torch.__version__, "threads": torch.get_num_threads(),
}))
