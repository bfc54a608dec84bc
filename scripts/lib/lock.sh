# shellcheck shell=bash
# Locks that die with the last process that holds them, so that a killed run leaves none.

# try_lock DESCRIPTOR: 0 if this process now holds the file behind an open DESCRIPTOR, 1 if another does. Where the file
# system has no locks it says so and goes on.
try_lock() {
    local status=0
    "$PYTHON" - "$1" <<'PYTHON' || status=$?
import errno, fcntl, sys

try:
    fcntl.flock(int(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as error:
    sys.exit(3 if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else 4)
PYTHON
    case $status in
        3) return 1 ;;
        4) say "this file system has no locks; see to it that nothing else writes there" ;;
        0) ;;
        *) fail "cannot ask for a lock with $PYTHON" ;;
    esac
}

# hold_run RUN: this folder belongs to this script until it ends.
hold_run() {
    mkdir -p "$1"
    exec 8>"$1/.lock"
    try_lock 8 || fail "another script works in $1" "wait for it, or end it"
}
