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

# whole RESULT COMMAND...: a command that fails leaves no RESULT that a later run would take for whole.
whole() {
    local result=$1
    shift
    "$@" || {
        [ ! -e "$result" ] || mv "$result" "$result.refused"
        return 1
    }
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
    stage "$name" whole "$result" "$@"
    [ -e "$result" ] || fail "the stage \"$name\" left no $result"
}

print_stages() {
    printf '\n' >&2
    printf '%s\n' "${stage_lines[@]}" >&2
}
