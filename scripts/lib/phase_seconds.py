"""Prints the seconds that a run spent on episodes and updates, from its metrics.jsonl: phase_seconds.py FILE"""

import json
import sys

total = 0.0
for line in open(sys.argv[1]):
    timings = json.loads(line)["timings"]
    total += timings.get("rollout_seconds", 0.0) + timings.get("train_seconds", 0.0)
print(f"{total:.1f}")
