"""Times whole training steps of PyTorch + transformers; the peer of trainer/examples/bench_train.rs.

train_step.py MODEL BATCH.json STEPS: right-padded batch, labels on the learnt positions only, AdamW (fused), clipping at 1.
"""

import json
import os
import resource
import sys
import time

import torch
from transformers import AutoModelForCausalLM

torch.set_num_threads(int(os.environ["DRGYM_BENCH_THREADS"]))
model_dir, batch_file, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = json.load(open(batch_file))
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="sdpa")
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
longest = max(len(row["ids"]) for row in rows)
ids = torch.zeros(len(rows), longest, dtype=torch.long)
attention = torch.zeros_like(ids)
labels = torch.full_like(ids, -100)
for index, row in enumerate(rows):
    length = len(row["ids"])
    ids[index, :length] = torch.tensor(row["ids"])
    attention[index, :length] = 1
    labels[index, row["positions"]] = ids[index, row["positions"]]
seconds, losses = [], []
for _ in range(steps + 1):
    started = time.perf_counter()
    loss = model(input_ids=ids, attention_mask=attention, labels=labels, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - started)
    losses.append(loss.item())
print(json.dumps({
    "tokens": sum(len(row["ids"]) for row in rows), "seconds": seconds[1:], "losses": losses,
    "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "torch": torch.__version__, "threads": torch.get_num_threads(),
}))
