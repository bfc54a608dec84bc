# shellcheck shell=bash
# Named stages with the seconds that each took.

stage_lines=()

# stage NAME COMMAND...: runs a command and notes its time; a failure ends the script.
stage() {
    local name=$1 begun=$SECONDS
    shift
    printf '\n==> %s\n' "$name" >&2
    "$@" || fail "the stage \"$name\" failed after $((SECONDS - begun)) s"
    stage_lines+=("$(printf '%6d s  %s' $((SECONDS - begun)) "$name")")
}

# stage_once NAME RESULT COMMAND...: the same, unless the result is there already.
stage_once() {
    local name=$1 result=$2
    shift 2
    if [ -e "$result" ]; then
        printf '\n==> %s: %s is there\n' "$name" "$result" >&2
        stage_lines+=("$(printf '%8s  %s' "kept" "$name")")
        return
    fi
    stage "$name" "$@"
    [ -e "$result" ] || fail "the stage \"$name\" left no $result"
}

print_stages() {
    printf '\n' >&2
    printf '%s\n' "${stage_lines[@]}" >&2
}

# begin_with RUN NAME=FOLDER|FILE|@TEXT...: notes what a run is made of, and refuses to go on with something else.
begin_with() {
    local run=$1
    shift
    "$PYTHON" "$scripts/lib/made_of.py" "$@" >"$run/made-of.part"
    if [ ! -e "$run/made-of.txt" ]; then
        mv "$run/made-of.part" "$run/made-of.txt"
    elif ! cmp -s "$run/made-of.txt" "$run/made-of.part"; then
        diff "$run/made-of.txt" "$run/made-of.part" >&2 || true
        rm -f "$run/made-of.part"
        fail "$run was begun with another program, other models or settings than these (above: < then, > now)" "$begin_anew"
    fi
    rm -f "$run/made-of.part"
}
