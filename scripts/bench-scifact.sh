#!/usr/bin/env bash
# Retrieval quality on BEIR SciFact (test): all-MiniLM-L6-v2 at 256 tokens, exact search. Needs DRGYM_DATA/scifact.
#
# nDCG@10 of the published model: 0.6451 (MTEB).
set -euo pipefail

scripts=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/env.sh
source "$scripts/env.sh"
# shellcheck source=scripts/lib/report.sh
source "$scripts/lib/report.sh"
cd "$DRGYM_REPOSITORY"

data=${DRGYM_DATA:-}/scifact
[ -d "$data" ] || fail "there is no SciFact in $data" "set DRGYM_DATA to the folder that holds scifact/"
encoder=$(drgym_encoder_dir)
run=runs/scifact/$(printf '%s' "$encoder" | cksum | cut -d" " -f1) # one a model
cargo build --release --locked -p drgym
drgym=$(drgym_binary)
mkdir -p "$run"
[ -e "$run/index/manifest.json" ] || "$drgym" index build --corpus "$data/corpus.jsonl.zst" --format jsonl \
    --encoder "$encoder" --max-tokens 256 --out "$run/index"
"$drgym" index eval --index "$run/index" --queries "$data/queries.jsonl" --qrels "$data/qrels/test.tsv" --json \
    | tee "$run/scifact.json" | "$PYTHON" -c 'import json, sys; r = json.load(sys.stdin); print(r["queries"], r["metrics"])'
