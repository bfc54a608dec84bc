"""Prints the accuracies of the learning experiment, one row a seed: learn_table.py RUN"""

import json
import pathlib
import sys

run = pathlib.Path(sys.argv[1])


def cell(folder: pathlib.Path) -> str:
    path = folder / "results.json"
    if not path.exists():
        return "–"
    rate = json.loads(path.read_text())["summary"]["accuracy"]
    low, high = rate["interval"]["low"], rate["interval"]["high"]
    return f"{100 * rate['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


columns = ["eval-sft", "eval-grpo", "eval-sft-more", "eval-grpo-no-search"]
print(f"| seed | {' | '.join(columns)} |")
print("|---" * (len(columns) + 1) + "|")
for seed in sorted(path.name for path in run.glob("seed*") if path.is_dir()):
    print(f"| {seed.removeprefix('seed')} | {' | '.join(cell(run / seed / column) for column in columns)} |")
print(f"\nuntrained {cell(run / 'untrained')}, expert {cell(run / 'expert')}\n")
