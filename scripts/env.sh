#!/usr/bin/env bash
# Where drgym finds what set-up laid out and where Cargo builds. Source it in bash before working by hand:
#
#     source scripts/env.sh && cargo build --release
#
# Whatever is already set in the environment is kept:
#   DRGYM_HOME        models, corpora, libtorch, compile cache     (~/.cache/drgym)
#   LIBTORCH          a libtorch 2.11.0 for building and running   ($DRGYM_HOME/libtorch)
#   CARGO_TARGET_DIR  compile cache                                ($DRGYM_HOME/target/NAME-CHECKSUM, one a checkout)
#   DRGYM_DATA        larger data sets read by some tests          (../shared/data beside the repository, if there)
#   DRGYM_ENCODER     a Hugging Face folder, in place of all-MiniLM-L6-v2
#   DRGYM_POLICY      a Hugging Face folder, in place of SmolLM2-135M-Instruct
#   PYTHON            the Python of all scripts, 3.9 or newer      (python3)

DRGYM_REPOSITORY=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
# Scripts work in the repository, so a relative path would mean one thing there and another here.
for drgym_variable in DRGYM_HOME LIBTORCH CARGO_TARGET_DIR DRGYM_DATA DRGYM_ENCODER DRGYM_POLICY DRGYM_LEARN_RUN; do
    case ${!drgym_variable:-} in
        "" | /*) ;;
        *) export "$drgym_variable=$PWD/${!drgym_variable}" ;;
    esac
done
unset drgym_variable
PYTHON=${PYTHON:-python3}
export DRGYM_HOME=${DRGYM_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/drgym}
export LIBTORCH=${LIBTORCH:-$DRGYM_HOME/libtorch}
# Not one for all checkouts: Cargo tells files of two checkouts apart by their times only, and would take what one of them
# compiled for up to date in the other.
if [ -z "${CARGO_TARGET_DIR:-}" ] || [ "$CARGO_TARGET_DIR" = "${DRGYM_CHOSEN_TARGET_DIR:-}" ]; then
    drgym_checkout=$(printf '%s' "$DRGYM_REPOSITORY" | cksum)
    CARGO_TARGET_DIR=$DRGYM_HOME/target/$(basename "$DRGYM_REPOSITORY")-${drgym_checkout%% *}
    DRGYM_CHOSEN_TARGET_DIR=$CARGO_TARGET_DIR
    unset drgym_checkout
fi
export CARGO_TARGET_DIR DRGYM_CHOSEN_TARGET_DIR
if [ -z "${DRGYM_DATA:-}" ] && [ -d "$DRGYM_REPOSITORY/../shared/data" ]; then
    DRGYM_DATA=$(CDPATH='' cd "$DRGYM_REPOSITORY/../shared/data" && pwd -P)
    export DRGYM_DATA
fi

# The folder of the sentence encoder: the user's own or the one that set-up lays out.
drgym_encoder_dir() { printf '%s\n' "${DRGYM_ENCODER:-$DRGYM_HOME/models/all-minilm-l6-v2}"; }

# The folder of the policy: the user's own or the one that set-up imports.
drgym_policy_dir() { printf '%s\n' "${DRGYM_POLICY:-$DRGYM_HOME/models/smollm2-135m-instruct}"; }

# The binary that a release build leaves.
drgym_binary() { printf '%s\n' "$CARGO_TARGET_DIR/release/drgym"; }
