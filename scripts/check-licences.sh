#!/usr/bin/env bash
# Holds the dependencies to deny.toml: licences, doubled or banned crates, and where crates may come from. Offline.
# Needs cargo-deny; where it is not installed this says so and ends with status 3.
set -euo pipefail

scripts=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=scripts/lib/report.sh
source "$scripts/lib/report.sh"
cd "$scripts/.."

if ! command -v cargo-deny >/dev/null; then
    say "not checked: cargo-deny is not installed (cargo install --locked cargo-deny)"
    exit 3
fi
# Advisories are left to a machine that may fetch the advisory database: cargo deny check advisories
cargo deny --locked check licenses bans sources
