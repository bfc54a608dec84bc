"""Prints the accuracy of several evaluations of one run: quickstart_table.py RUN NAME..."""

import json
import pathlib
import sys

run, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
print()
print(f"{'policy':<11}{'accuracy':>10}  {'95 % interval':<16}{'one hop':>9}{'two hop':>9}{'unseen':>9}"
      f"{'searches':>10}{'invalid':>9}{'tokens':>8}{'excluded':>10}")
for name in names:
    summary = json.loads((run / "eval" / name / "results.json").read_text())["summary"]
    percent = lambda rate: "–" if rate is None else f"{100 * rate['value']:.1f} %"
    overall = summary["accuracy"]
    interval = "–" if overall is None else "[{:.1f}, {:.1f}]".format(
        100 * overall["interval"]["low"], 100 * overall["interval"]["high"])
    failures = summary["failures"]
    excluded = sum(failures[key] for key in
                   ("search_failed", "policy_failed", "judge_failed", "environment_failed"))
    kinds, phrasings, means = summary["by_kind"], summary["by_phrasing"], summary["means"]
    print(f"{name:<11}{percent(overall):>10}  {interval:<16}{percent(kinds.get('one_hop')):>9}"
          f"{percent(kinds.get('two_hop')):>9}{percent(phrasings.get('unseen')):>9}"
          f"{means['searches']:>10.2f}{means['invalid_actions']:>9.2f}{means['sampled_tokens']:>8.1f}{excluded:>10}")
print()
