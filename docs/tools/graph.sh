#!/usr/bin/env bash
# Makes docs/images/graph.png, the picture in the README: what Dagster shows of the asset graph.
# Needs Chromium (Debian: apt-get install chromium), `make dev` running, and some events drained:
# `onex simulate kafka`, then a minute of patience.
set -euo pipefail
port="${1:-3000}"
picture="$(cd "$(dirname "$0")/../images" && pwd)/graph.png"
page="http://127.0.0.1:$port/locations/onex_platform.definitions/asset-groups/registration/lineage"
profile="$(mktemp -d)"
trap 'rm -rf "$profile"' EXIT
sandbox=()
[ "$(id -u)" != 0 ] || sandbox=(--no-sandbox) # Chromium refuses root otherwise
chromium --headless=new "${sandbox[@]}" --disable-gpu --hide-scrollbars --user-data-dir="$profile" \
  --window-size=1500,1420 --virtual-time-budget=20000 --screenshot="$picture" "$page"
