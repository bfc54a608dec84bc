# shellcheck shell=bash
# How the scripts speak: progress on standard error, one clear line and a hint when something is wrong.

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }

# fail MESSAGE HINT...
fail() {
    say "error: $1"
    shift
    local hint
    for hint in "$@"; do printf '  hint: %s\n' "$hint" >&2; done
    exit 1
}
