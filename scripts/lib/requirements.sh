# shellcheck shell=bash
# What set-up expects of the machine. Names everything that is missing at once; installs nothing.

readonly LIBTORCH_VERSION=2.11.0

check_tools() {
    local missing=()
    local rust_wanted rust_found
    rust_wanted=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' "$DRGYM_REPOSITORY/rust-toolchain.toml")
    if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
        missing+=("Rust $rust_wanted (cargo, rustc): install rustup; it then fetches this version by itself")
    else
        rust_found=$(cd "$DRGYM_REPOSITORY" && rustc --version | cut -d' ' -f2) || rust_found="none"
        [ "$(printf '%s\n' "$rust_wanted" "$rust_found" | sort -V | head -n 1)" = "$rust_wanted" ] ||
            missing+=("Rust $rust_wanted or newer, found $rust_found: rustup toolchain install $rust_wanted --component rustfmt,clippy")
    fi
    if ! command -v "$PYTHON" >/dev/null; then
        missing+=("Python 3.9 or newer: on Debian and Ubuntu apt install python3 python3-pip (or set PYTHON)")
    elif ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
        missing+=("Python 3.9 or newer, found $("$PYTHON" --version 2>&1): set PYTHON to a newer one")
    elif ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
        missing+=("pip for $("$PYTHON" --version 2>&1): on Debian and Ubuntu apt install python3-pip, or $PYTHON -m ensurepip")
    fi
    # Either may hold words, as in "ccache gcc".
    # shellcheck disable=SC2086
    command -v ${CC:-cc} >/dev/null || missing+=("a C compiler (${CC:-cc}): on Debian and Ubuntu apt install build-essential")
    # shellcheck disable=SC2086
    command -v ${CXX:-c++} >/dev/null || missing+=("a C++ compiler (${CXX:-c++}): on Debian and Ubuntu apt install build-essential")
    [ ${#missing[@]} -eq 0 ] || fail "this machine lacks what drgym needs" "${missing[@]}"
    say "tools: rustc $rust_found, $("$PYTHON" --version), ${CC:-cc}, ${CXX:-c++}"
}

# check_libtorch DIR: whether DIR is a libtorch that tch can be built with.
check_libtorch() {
    local file
    for file in build-version lib/libtorch.so lib/libtorch_cpu.so lib/libc10.so include/torch/csrc/api/include/torch/torch.h; do
        [ -s "$1/$file" ] || return 1
    done
    # "2.11.0", "2.11.0+cpu" and "2.11.0+cu130" are all the same interface.
    [ "$(sed 's/[+[:space:]].*//' "$1/build-version")" = "$LIBTORCH_VERSION" ]
}

# whole_model DIR: whether DIR holds a model in Hugging Face's layout.
whole_model() {
    [ -s "$1/config.json" ] && [ -s "$1/tokenizer.json" ] &&
        [ -n "$(find "$1/" -maxdepth 1 -name '*.safetensors' -size +0)" ]
}

# check_hugging_face_dir VARIABLE DIR: a model folder that the user brought along.
check_hugging_face_dir() {
    if ! whole_model "$2"; then
        fail "$1=$2 is not a Hugging Face model folder: expected config.json, tokenizer.json and *.safetensors" \
            "unset $1 to use the model that set-up lays out"
    fi
    say "$1: using $2"
}
