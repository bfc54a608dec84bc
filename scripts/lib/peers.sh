# shellcheck shell=bash
# The Python that peers run in: DRGYM_PEER_PYTHON, or an environment of its own with pinned packages.

peer_python() {
    if [ -n "${DRGYM_PEER_PYTHON:-}" ]; then
        printf '%s\n' "$DRGYM_PEER_PYTHON"
        return
    fi
    local pins=(torch==2.11.0 transformers==4.57.6 numpy==2.4.4)
    local environment=$DRGYM_HOME/venvs/peers
    if [ "$(cat "$environment/.whole" 2>/dev/null)" != "${pins[*]}" ]; then
        say "making $environment (several GB)"
        rm -rf "$environment"
        # This runs in a command substitution, where an error does not end the script.
        "$PYTHON" -m venv "$environment" >&2 || return
        "$environment/bin/pip" install --quiet "${pins[@]}" >&2 || return
        printf '%s\n' "${pins[*]}" >"$environment/.whole"
    fi
    printf '%s\n' "$environment/bin/python"
}
