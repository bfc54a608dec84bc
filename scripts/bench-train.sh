#!/usr/bin/env bash
# A training step against PyTorch + transformers: same model, batch, dtype and torch version; five interleaved pairs. First checks
# that transformers loads a model folder that drgym wrote. Run it with nothing else on the machine.
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
cargo build --release --locked -p drgym-trainer --example bench_train
"$python" scripts/golden/model_check.py "${DRGYM_BENCH_CHECKPOINT:-$model}"

# 8 episodes of 190 to 240 tokens, of which three stretches of 10 are learnt, as in the quick start.
"$PYTHON" - >runs/bench/batch.json <<'EOF'
import json
rows = []
for episode in range(8):
    length = 190 + (episode * 37) % 51
    positions = [start + offset for start in (80, 130, length - 10) for offset in range(10)]
    rows.append({"ids": [(index * 131 + episode * 17) % 40000 + 100 for index in range(length)], "positions": positions})
print(json.dumps(rows))
EOF
"$PYTHON" scripts/lib/bench_pairs.py "${PAIRS:-5}" tokens runs/bench/train.json \
    -- "$CARGO_TARGET_DIR/release/examples/bench_train" "$model" runs/bench/batch.json 3 \
    -- "$python" scripts/peers/train_step.py "$model" runs/bench/batch.json 3
