#!/usr/bin/env bash
# From nothing to a policy that learns to search: set-up, build, index, serve, synthesise, SFT, GRPO, evaluate.
#
#     scripts/quickstart.sh            the whole path, about 20 minutes after the build on two quiet cores
#     scripts/quickstart.sh --smoke    the same path in small: few documents, few tasks, two GRPO steps
#     --fresh                          start over instead of going on with what is there
#     --no-build                       take the binary that is there
#
# Everything it makes lies under runs/quickstart (runs/smoke); a stage whose result is there is not run again.
set -euo pipefail

scripts=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/env.sh
source "$scripts/env.sh"
# shellcheck source=scripts/lib/report.sh
source "$scripts/lib/report.sh"
# shellcheck source=scripts/lib/stages.sh
source "$scripts/lib/stages.sh"
# shellcheck source=scripts/lib/lock.sh
source "$scripts/lib/lock.sh"
cd "$DRGYM_REPOSITORY"

smoke='' fresh='' build=yes
for argument in "$@"; do
    case $argument in
        --smoke) smoke=yes ;;
        --fresh) fresh=yes ;;
        --no-build) build= ;;
        -h | --help) sed -n '2,/^set /{/^# \{0,1\}/s///p}' "$scripts/quickstart.sh"; exit 0 ;;
        *) fail "unknown option $argument" "scripts/quickstart.sh --help" ;;
    esac
done

config=configs/quickstart.toml
run=runs/quickstart
index_options=()
settings=()
if [ -n "$smoke" ]; then
    run=runs/smoke
    index_options=(--limit 2500)
    settings=(
        --set "search.index=$run/index"
        --set "tasks.train=$run/tasks/train.jsonl" --set "tasks.dev=$run/tasks/dev.jsonl" --set tasks.dev_limit=6
        --set "synth.counts={ train = 40, dev = 6, test = 8 }" --set synth.allow_fewer=true
        --set "synth.entity_fractions={ train = 0.5, dev = 0.2, test = 0.3 }"
        --set demonstrations.count=24 --set sft.batch_size=4
        --set grpo.steps=2 --set grpo.prompts_per_step=2 --set grpo.group_size=3
    )
fi
hold_run "$run"
[ -z "$fresh" ] || find "$run" -mindepth 1 -maxdepth 1 ! -name .lock -exec rm -rf {} +
begin_anew="scripts/quickstart.sh ${smoke:+--smoke }--fresh starts over"
started=$SECONDS

stage "set-up" "$scripts/setup.sh"
if [ -n "$build" ]; then
    stage "build" cargo build --release --locked -p drgym
fi
drgym=$(drgym_binary)
stage "policy import" "$scripts/setup.sh" --model
built=$SECONDS

policy=$(drgym_policy_dir)
encoder=$(drgym_encoder_dir)
configured=(--config "$config" "${settings[@]}")
program=$("$drgym" doctor --json | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)[0]["found"])')
begin_with "$run" "program=@$program" "policy=$policy" "encoder=$encoder" "settings=$config"

stage_once "index" "$run/index/manifest.json" \
    "$drgym" index build --corpus "$DRGYM_HOME/corpora/factbook" --format factbook --encoder "$encoder" \
    --chunk 96 --out "$run/index" ${index_options[@]+"${index_options[@]}"}

# The served index answers like the one on disk, byte for byte; training reads the folder directly, which saves the round trip.
serve_and_search() {
    local url query=(--query "What is the highest point of Algeria?" -k 3)
    "$drgym" serve --index "$run/index" --encoder "$encoder" --addr 127.0.0.1:0 >"$run/served-at" &
    server=$!
    for _ in $(seq 600); do
        url=$(cat "$run/served-at")
        [ -z "$url" ] || break
        kill -0 "$server" || return
        sleep 0.1
    done
    [ -n "$url" ] || { say "the server did not start within a minute"; return 1; }
    "$drgym" search --url "$url" "${query[@]}" || return
    "$drgym" search --url "$url" "${query[@]}" --json >"$run/served.json" || return
    "$drgym" search --index "$run/index" --encoder "$encoder" "${query[@]}" --json >"$run/direct.json" || return
    cmp "$run/served.json" "$run/direct.json" || { say "the server answers otherwise than its index"; return 1; }
    kill -INT "$server" || return
    wait "$server" || return
    server=
    rm -f "$run/served-at" "$run/served.json" "$run/direct.json"
}
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
stage "serve" serve_and_search

stage_once "synthesise" "$run/tasks/manifest.json" \
    "$drgym" synth "${configured[@]}" --out "$run/tasks"

evaluate() { # evaluate NAME POLICY
    stage_once "evaluate $1" "$run/eval/$1/results.json" \
        "$drgym" eval "${configured[@]}" --data "$run/tasks/test.jsonl" --policy "$2" --out "$run/eval/$1"
}
evaluate expert "expert:$policy"
evaluate untrained "$policy"

train() { # train VERB REPORT SETTING...: writes the report only when the run is whole
    local verb=$1 report=$2 resume=()
    shift 2
    [ ! -e "$run/$verb/config.toml" ] || resume=(--resume)
    "$drgym" "$verb" "${configured[@]}" "$@" --out "$run/$verb" ${resume[@]+"${resume[@]}"} --json >"$report.part" || return
    mv "$report.part" "$report"
}
report_field() { "$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2]) or "")' "$1" "$2"; }

stage_once "sft" "$run/sft.json" train sft "$run/sft.json" --set "sft.model.path=$policy"
sft_model=$(report_field "$run/sft.json" checkpoint)
evaluate sft "$sft_model"

stage_once "grpo" "$run/train.json" train train "$run/train.json" --set "grpo.model.path=$sft_model"
grpo_model=$(report_field "$run/train.json" best)
[ -n "$grpo_model" ] || grpo_model=$(report_field "$run/train.json" checkpoint)
evaluate grpo "$grpo_model"

"$PYTHON" "$scripts/lib/quickstart_table.py" "$run" untrained sft grpo expert
"$drgym" compare "$run/eval/grpo" "$run/eval/sft"
print_stages
say "$((SECONDS - built)) s after the build, $((SECONDS - started)) s in all"
cat >&2 <<EOF
Where to look next:
  $run/train/metrics.jsonl      every figure of every step; TensorBoard: pip install tensorboard; tensorboard --logdir $run/train
  $run/train/traces             what was drawn, searched and judged, one file a step
  $run/eval/grpo/traces.jsonl   the episodes behind the table
  $grpo_model   the trained policy, a Hugging Face folder
EOF
