# shellcheck shell=bash
# The Python that peers run in: DRGYM_PEER_PYTHON, or an environment of its own with pinned packages.

peer_python() {
    if [ -n "${DRGYM_PEER_PYTHON:-}" ]; then
        printf '%s\n' "$DRGYM_PEER_PYTHON"
        return
    fi
    local environment=$DRGYM_HOME/venvs/peers-torch-2.11.0
    if [ ! -e "$environment/.whole" ]; then
        say "making $environment (several GB)"
        rm -rf "$environment"
        # This runs in a command substitution, where an error does not end the script.
        python3 -m venv "$environment" >&2 || return
        "$environment/bin/pip" install --quiet torch==2.11.0 transformers==4.57.6 numpy >&2 || return
        touch "$environment/.whole"
    fi
    printf '%s\n' "$environment/bin/python"
}
