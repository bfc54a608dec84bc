#!/usr/bin/env python3
"""How often each wording of the expert's queries finds its evidence, on entities of the training split alone.

    drgym synth --config configs/learn.toml --set 'synth.counts={train=6000,dev=1,test=1}' --set synth.allow_fewer=true \\
        --set synth.max_per_entity=400 --set synth.max_per_relation=2000 --out /tmp/candidates
    drgym serve --index runs/learn/index --addr 127.0.0.1:8080 &
    scripts/choose-queries.py /tmp/candidates/train.jsonl http://127.0.0.1:8080

Without an index, `synth` keeps questions whose evidence no search finds, so the tasks favour no wording. For every wording it
prints the share of queries whose evidence is the first document, and among the first three. The one that stands first in a
list is the one in use (data-synth/src/factbook/relation/); a `*` marks one that finds more.
"""

import base64
import json
import sys
import urllib.parse
import urllib.request

# {v}: the entity for a question, the describing value for a clue.
QUESTIONS = {
    "capital": ["{v} capital name", "{v} capital", "capital of {v}"],
    "former_name": ["{v} country name former", "{v} former name", "{v} country name"],
    "independence_date": ["{v} independence", "{v} independence date", "when did {v} become independent"],
    "national_symbol": ["{v} national symbol", "{v} national symbols", "national symbol of {v}"],
    "legislature": ["{v} legislative branch legislature name", "{v} legislative branch", "{v} parliament"],
    "largest_city": ["{v} major urban areas population", "{v} largest city", "{v} major urban areas"],
    "local_name": ["{v} country name local short form", "{v} local short form", "{v} country name"],
    "highest_point": ["{v} elevation highest point", "{v} highest point", "{v} elevation"],
    "land_boundary": ["{v} land boundaries total", "{v} land boundaries", "{v} border length"],
    "currency": ["{v} exchange rates currency", "{v} currency", "{v} exchange rates"],
}
CLUES = {
    "aircraft_prefix": ["aircraft {v}", "civil aircraft registration country code prefix {v}", "{v} aircraft prefix"],
    "capital": ["capital name {v}", "{v} capital", "capital {v}", "{v}"],
    "demonym": ["nationality noun {v}", "{v} nationality", "nationality {v}"],
    "former_name": ["{v} former country name", "country name former {v}", "former name {v}", "{v}"],
    "highest_point": ["highest point: {v}", "elevation highest point {v}", "{v} highest point", "{v}"],
    "internet_code": ["country code {v} domain", "internet country code {v}", "{v} internet country code", "{v}"],
    "largest_city": ["major urban areas population {v}", "{v} urban area", "{v}"],
    "local_name": ["country name local short form: {v}", "country name local short form {v}", "{v} country name", "{v}"],
    "lowest_point": ["lowest point: {v}", "elevation lowest point {v}", "{v} lowest point", "{v}"],
    "national_anthem": ["national anthem title {v}", "{v} anthem", "{v}"],
    "national_symbol": ["national symbol {v}", "{v} national symbol", "{v}"],
}


def first_three(url, query):
    parameters = urllib.parse.urlencode({"query": query, "k": 3})
    with urllib.request.urlopen(f"{url}/search?{parameters}", timeout=60) as answer:
        return [json.loads(base64.b64decode(one))["id"] for one in json.load(answer)["results"]]


def value_of(query, template):
    """What stands for {v} in a query made with this template; None if it was made with another."""
    before, after = template.split("{v}")
    if query.startswith(before) and query.endswith(after) and len(query) > len(before) + len(after):
        return query[len(before):len(query) - len(after)]
    return None


def main():
    tasks_file, url = sys.argv[1:]
    tasks = [json.loads(line) for line in open(tasks_file, encoding="utf-8")]
    found = {}  # (side, relation) -> {value: evidence}
    for task in tasks:
        steps = list(zip(task["expert"], task["evidence"]))
        if task.get("clue"):
            found.setdefault(("clue", task["clue"]), {})[steps[0][0]["query"]] = steps[0][1]
        found.setdefault(("question", task["relation"]), {})[steps[-1][0]["query"]] = steps[-1][1]
    for side, table in (("question", QUESTIONS), ("clue", CLUES)):
        for relation, templates in table.items():
            queries = found.get((side, relation), {})
            pairs = [(value_of(query, templates[0]), evidence) for query, evidence in sorted(queries.items())]
            if not pairs or any(value is None for value, _ in pairs):
                print(f"{side} {relation}: no tasks, or their queries are not worded {templates[0]!r}")
                continue
            in_use = None
            for template in templates:
                ranks = [first_three(url, template.replace("{v}", value)) for value, _ in pairs]
                first = sum(rank[:1] == [evidence] for rank, (_, evidence) in zip(ranks, pairs))
                three = sum(evidence in rank for rank, (_, evidence) in zip(ranks, pairs))
                in_use = in_use or (first, three)
                mark = "*" if (first, three) > in_use else " "
                shares = f"first {first / len(pairs):6.1%}  first three {three / len(pairs):6.1%}"
                print(f"{mark} {side:8} {relation:18} {len(pairs):4}  {shares}  {template}", flush=True)


if __name__ == "__main__":
    main()
