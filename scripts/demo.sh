#!/bin/sh
# A small B3 from end to end: a simulated OpenRouter on loopback answers 40 prompts three times each,
# every row is audited, the report is written, and what was proved is merged.
set -eu
cd "$(dirname "$0")/.."

scratch=$(mktemp -d)
tokenproof simulate --url-file "$scratch/url" >"$scratch/server.log" 2>&1 &
server=$!
trap '{ set +x; } 2>/dev/null; kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

waited=0
until [ -s "$scratch/url" ]; do
    if ! kill -0 "$server" 2>/dev/null || [ "$waited" -ge 600 ]; then
        echo "the simulated server did not start:" >&2
        cat "$scratch/server.log" >&2
        exit 3
    fi
    sleep 0.1
    waited=$((waited + 1))
done

set -x
OPENROUTER_API_KEY=any-key-will-do tokenproof generate B3_demo --url "$(cat "$scratch/url")"
tokenproof audit B3_demo
tokenproof merge B3_demo -o train/demo
