#!/bin/sh
# gate.sh WORKSPACE OUTPUT DATASET…: audit each dataset, and merge all of them only if every gate is open.
# Ends with the first exit code that is not 0: 1 a gate is closed, 2 wrong settings, 3 incomplete or unreadable.
set -eu
workspace=$1
output=$2
shift 2
for name in "$@"; do
    tokenproof audit "$name" --root "$workspace"
done
tokenproof merge "$@" -o "$output" --root "$workspace"
