#!/usr/bin/env bash
# Does GRPO teach a policy to search, beyond its SFT start? The experiment behind docs/results.md, resumable at any point:
#
#     scripts/learn.sh             seeds 1, 2 and 3
#     scripts/learn.sh 2           one seed; figures are pooled over all seeds that are there
#
# The experiment lies in runs/learn, or where DRGYM_LEARN_RUN points, with the program and the settings that it began with:
# what is built or edited meanwhile takes no part in it.
#
# For each seed: SFT on expert traces, GRPO from there with the checkpoint chosen on dev tasks, the same start trained on by
# SFT with fresh expert traces for as long as GRPO took, and one evaluation of each on the held-out test tasks, beside it the
# trained policy with search switched off. The untrained policy and the expert, the ceiling, are the same for all seeds.
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

keep() { cp "$1" "$2.part" && mv "$2.part" "$2"; } # keep FILE COPY

seeds=("$@")
[ ${#seeds[@]} -gt 0 ] || seeds=(1 2 3)
for seed in "${seeds[@]}"; do
    case $seed in
        -h | --help) sed -n '2,/^set /{/^# \{0,1\}/s///p}' "$scripts/learn.sh"; exit 0 ;;
        "" | *[!0-9]*) fail "a seed is a number, found \"$seed\"" "scripts/learn.sh --help" ;;
    esac
done
run=${DRGYM_LEARN_RUN:-runs/learn}
drgym=$run/drgym
config=$run/learn.toml
policy=$(drgym_policy_dir)
hold_run "$run"
begin_anew="another DRGYM_LEARN_RUN holds another experiment"

stage "set-up" "$scripts/setup.sh"
stage "build" cargo build --release --locked -p drgym
stage "policy import" "$scripts/setup.sh" --model
stage_once "keep the program" "$drgym" keep "$(drgym_binary)" "$drgym"
stage_once "keep the settings" "$config" keep configs/learn.toml "$config"
cmp -s configs/learn.toml "$config" || say "going on with the settings in $config; configs/learn.toml differs"

begin_with "$run" "policy=$policy" "encoder=$(drgym_encoder_dir)" "settings=$config"

stage_once "index" "$run/index/manifest.json" \
    "$drgym" index build --corpus "$DRGYM_HOME/corpora/factbook" --format factbook \
    --encoder "$(drgym_encoder_dir)" --chunk 96 --out "$run/index"
common=(--config "$config" --set "search.index=$run/index"
    --set "tasks.train=$run/tasks/train.jsonl" --set "tasks.dev=$run/tasks/dev.jsonl")
stage_once "synthesise" "$run/tasks/manifest.json" "$drgym" synth "${common[@]}" --out "$run/tasks"

evaluate() { # evaluate FOLDER POLICY SETTING...
    local out=$1 evaluated=$2
    shift 2
    stage_once "evaluate $out" "$out/results.json" \
        "$drgym" eval "${common[@]}" "$@" --data "$run/tasks/test.jsonl" --policy "$evaluated" --out "$out"
}
train() { # train VERB OUT REPORT SETTING...
    local verb=$1 out=$2 report=$3 resume=()
    shift 3
    [ ! -e "$out/config.toml" ] || resume=(--resume)
    "$drgym" "$verb" "${common[@]}" "$@" --out "$out" ${resume[@]+"${resume[@]}"} --json >"$report.part" || return
    mv "$report.part" "$report"
}
report_field() { "$PYTHON" -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2]) or "")' "$1" "$2"; }
seconds() { "$PYTHON" "$scripts/lib/phase_seconds.py" "$1"; }

# setting SECTION KEY: a number as the experiment's settings resolve it
setting() { "$drgym" config show "${common[@]}" | sed -n "/^\\[$1\\]/,/^\\[/s/^$2 = //p"; }

evaluate "$run/expert" "expert:$policy"
evaluate "$run/untrained" "$policy"

for seed in "${seeds[@]}"; do
    here=$run/seed$seed
    mkdir -p "$here"
    stage_once "seed $seed: sft" "$here/sft.json" \
        train sft "$here/sft" "$here/sft.json" --set "seed=$seed" --set "sft.model.path=$policy"
    start=$(report_field "$here/sft.json" checkpoint)
    stage_once "seed $seed: grpo" "$here/grpo.json" \
        train train "$here/grpo" "$here/grpo.json" --set "seed=$seed" --set "grpo.model.path=$start"
    best=$(report_field "$here/grpo.json" best)

    # As many fresh expert traces as fit into the time that GRPO spent on episodes and updates. The expert is right on
    # about 1,400 of the 1,600 training tasks, which is more than any run has asked for.
    budget=$(seconds "$here/grpo/metrics.jsonl")
    pace=$(seconds "$here/sft/metrics.jsonl")
    used=$(grep -c . "$here/sft/metrics.jsonl")
    batch=$(setting sft batch_size)
    epochs=$(setting sft epochs)
    fresh=$("$PYTHON" -c 'import sys; b, p, n, s, e = map(float, sys.argv[1:]); print(int(max(s, b / p * n * s / e)))' \
        "$budget" "$pace" "$used" "$batch" "$epochs")
    demonstrations=$(setting demonstrations count)
    stage_once "seed $seed: sft for the same time ($fresh traces)" "$here/sft-more.json" \
        train sft "$here/sft-more" "$here/sft-more.json" --set "seed=$seed" --set "sft.model.path=$start" \
        --set "demonstrations.skip=$demonstrations" --set "demonstrations.count=$fresh"
    more=$(report_field "$here/sft-more.json" checkpoint)

    evaluate "$here/eval-sft" "$start" --set "seed=$seed"
    evaluate "$here/eval-grpo" "$best" --set "seed=$seed"
    evaluate "$here/eval-sft-more" "$more" --set "seed=$seed"
    evaluate "$here/eval-grpo-no-search" "$best" --set "seed=$seed" --set env.search=false
done

"$PYTHON" "$scripts/lib/learn_table.py" "$run"
pooled() { # pooled FIRST SECOND: over the seeds that have both
    local pairs=() seed
    for seed in "$run"/seed*; do
        if [ -e "$seed/$1/results.json" ] && [ -e "$seed/$2/results.json" ]; then
            [ ${#pairs[@]} -eq 0 ] || pairs+=(--also)
            pairs+=("$seed/$1" "$seed/$2")
        fi
    done
    printf '%s − %s: ' "$1" "$2"
    "$drgym" compare "${pairs[@]}"
}
pooled eval-grpo eval-sft
pooled eval-grpo eval-sft-more
pooled eval-sft-more eval-sft
pooled eval-grpo eval-grpo-no-search
print_stages
