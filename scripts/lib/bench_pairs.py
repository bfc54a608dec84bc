"""Runs two commands alternately and prints medians and ratios.

bench_pairs.py PAIRS COUNT_FIELD OUT.json -- OURS... -- PEER...

Each command prints a JSON object with `seconds` (a list) and the count that a round works through. The figure of a run is count /
median(seconds); ratios are taken within a pair, so that a slow stretch of the machine hits both sides.
"""

import json
import statistics
import subprocess
import sys

pairs, field, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
first = sys.argv.index("--")
second = sys.argv.index("--", first + 1)
commands = {"drgym": sys.argv[first + 1 : second], "peer": sys.argv[second + 1 :]}
rates, reports = {name: [] for name in commands}, {name: [] for name in commands}
for pair in range(pairs):
    # The order alternates, so that neither side always runs on the warmer machine.
    for name in sorted(commands, reverse=pair % 2 == 1):
        report = json.loads(subprocess.run(commands[name], check=True, stdout=subprocess.PIPE, text=True).stdout)
        reports[name].append(report)
        rates[name].append(report[field] / statistics.median(report["seconds"]))
    print(f"pair {pair + 1}: drgym {rates['drgym'][-1]:.1f}/s, peer {rates['peer'][-1]:.1f}/s, "
          f"ratio {rates['drgym'][-1] / rates['peer'][-1]:.3f}", file=sys.stderr)
for key in ("threads", "torch"):
    seen = {str(report[key]).split("+")[0] for side in reports.values() for report in side}
    if len(seen) != 1:
        sys.exit(f"the two sides do not compare: {key} {' and '.join(sorted(seen))}")
ratios = [ours / peer for ours, peer in zip(rates["drgym"], rates["peer"])]
result = {
    "pairs": pairs, "commands": commands, "ratios": ratios, "median_ratio": statistics.median(ratios),
    "median_per_second": {name: statistics.median(values) for name, values in rates.items()},
    "peak_bytes": {name: max(report["peak_bytes"] for report in values) for name, values in reports.items()},
    "reports": reports,
}
json.dump(result, open(out, "w"), indent=1)
print(f"median ratio {result['median_ratio']:.3f} (drgym {result['median_per_second']['drgym']:.1f}/s, "
      f"peer {result['median_per_second']['peer']:.1f}/s; peak memory {result['peak_bytes']['drgym'] / 2**30:.2f} and "
      f"{result['peak_bytes']['peer'] / 2**30:.2f} GiB)")
