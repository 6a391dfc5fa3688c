#!/usr/bin/env bash
# mpirun.sh MPIRUN RANKS PROGRAM ARGUMENTS...: runs a program under mpirun, as root and with more ranks than cores if need be.
set -euo pipefail
mpirun=$1 ranks=$2
shift 2
options=()
if "$mpirun" --version | grep -q "Open MPI"; then options=(--oversubscribe --mca btl_vader_single_copy_mechanism none); fi
if "$mpirun" --version | grep -q "Open MPI" && ((EUID == 0)); then options+=(--allow-run-as-root); fi
exec "$mpirun" "${options[@]}" -n "$ranks" "$@"
