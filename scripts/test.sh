#!/usr/bin/env bash
# Everything that must hold before a change goes in: set-up, formatting, lints, all tests, the build without libtorch and
# the smoke run, with the time that each part took. Stops at the first part that fails. Needs no one at the keyboard.
set -euo pipefail

scripts=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/env.sh
source "$scripts/env.sh"
# shellcheck source=scripts/lib/report.sh
source "$scripts/lib/report.sh"
cd "$DRGYM_REPOSITORY"

summary=()
part=
outcome="stopped before the first part"
mkdir -p "$CARGO_TARGET_DIR"
test_log=$(mktemp "$CARGO_TARGET_DIR/test-XXXXXXXX")

# run_part NAME COMMAND...: a COMMAND that is a function must itself return on an error, since bash ignores "set -e" here.
run_part() {
    part=$1
    shift
    local started=$SECONDS
    printf '\n==> %s\n' "$part" >&2
    "$@" || {
        outcome="FAILED: $part"
        summary+=("$(printf '%6d s  %s (failed)' $((SECONDS - started)) "$part")")
        exit 1
    }
    summary+=("$(printf '%6d s  %s' $((SECONDS - started)) "$part")")
}

close() {
    local line
    rm -f "$test_log"
    printf '\n' >&2
    for line in ${summary[@]+"${summary[@]}"}; do printf '%s\n' "$line" >&2; done
    printf '%6d s  in all\n' "$SECONDS" >&2
    say "$outcome"
}
trap close EXIT
trap 'outcome="interrupted in: $part"; exit 130' INT TERM

run_tests() {
    # The output of passing tests is asked for, since a test that lacks its data says so there and returns.
    cargo test --release --locked --workspace -- --show-output 2>&1 | tee "$test_log" || return
    local passed skipped
    passed=$(sed -n 's/^test result: .* \([0-9]*\) passed;.*/\1/p' "$test_log" | awk '{ sum += $1 } END { print sum + 0 }')
    skipped=$(grep -c '^skipped: needs' "$test_log") || true
    tests="$passed passed, $skipped of them lacking the data they need"
}
tests=

# cargo-deny is not on every machine, and the closing line says whether it was on this one.
check_licences() {
    local status=0
    "$scripts/check-licences.sh" || status=$?
    [ $status -ne 3 ] || { unchecked="; licences not checked"; return 0; }
    return $status
}
unchecked=

# The command-line program without the trainer must build on a machine that has no libtorch.
check_without_libtorch() {
    env --unset=LIBTORCH cargo clippy --release --locked -p drgym --no-default-features --features engine -- -D warnings
}

run_part "set-up" "$scripts/setup.sh"
run_part "test tools" "$scripts/setup.sh" --tests
run_part "formatting" cargo fmt --all --check
run_part "licences" check_licences
run_part "clippy" cargo clippy --release --locked --workspace --all-targets -- -D warnings
# Builds the tests together with the binary that some of them start, so that the next parts compile nothing again.
run_part "build" cargo test --release --locked --workspace --no-run
run_part "policy import" "$scripts/setup.sh" --model
run_part "tests" run_tests
run_part "check without libtorch" check_without_libtorch
run_part "smoke run" "$scripts/quickstart.sh" --smoke --fresh --no-build
outcome="all parts passed; tests: $tests$unchecked"
