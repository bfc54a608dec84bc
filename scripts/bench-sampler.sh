#!/usr/bin/env bash
# Sampling 32 sequences against transformers' generate: same model, prompts, dtype and torch version, greedy, prefill included; five
# interleaved pairs. Run it with nothing else on the machine.
set -euo pipefail

scripts=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/env.sh
source "$scripts/env.sh"
# shellcheck source=scripts/lib/report.sh
source "$scripts/lib/report.sh"
# shellcheck source=scripts/lib/peers.sh
source "$scripts/lib/peers.sh"
cd "$DRGYM_REPOSITORY"

python=$(peer_python)
model=$(drgym_policy_dir)
# As many threads on both sides, whatever each would choose.
DRGYM_BENCH_THREADS=${DRGYM_BENCH_THREADS:-$(nproc)}
export DRGYM_BENCH_THREADS
mkdir -p runs/bench
cargo build --release --locked -p drgym-trainer --example bench_sampler

# 32 different prompts of 100 tokens; a common beginning would be computed once by drgym.
"$PYTHON" - >runs/bench/prompts.json <<'EOF'
import json
print(json.dumps([[(row * 7919 + index * 131) % 40000 + 100 for index in range(100)] for row in range(32)]))
EOF
"$PYTHON" scripts/lib/bench_pairs.py "${PAIRS:-5}" new_tokens runs/bench/sampler.json \
    -- "$CARGO_TARGET_DIR/release/examples/bench_sampler" "$model" runs/bench/prompts.json 64 1 \
    -- "$python" scripts/peers/generate.py "$model" runs/bench/prompts.json 64 1
