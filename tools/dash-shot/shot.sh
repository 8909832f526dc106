#!/bin/sh
# Pictures of all dashboards on the scripted incident: tools/dash-shot/shot.sh [folder of the pictures].
# Needs npm, prometheus, promtool, chromium and pngquant (apt install chromium pngquant). Not part of CI.
# RADIOSONDE_INCIDENT names a folder where the incident is kept, so that a second run need not play it again.
set -eu
cd "$(dirname "$0")"
out=$(realpath "${1:-../../docs/pictures}")
mkdir -p "$out"
[ -d node_modules ] || npm install --legacy-peer-deps --no-audit --no-fund
npm run --silent build

temporary=$(mktemp -d) server='' page=''
trap 'kill $server $page 2>/dev/null || true; rm -rf "$temporary"' EXIT
incident=${RADIOSONDE_INCIDENT:-$temporary}
[ -f "$incident/times" ] || (cd ../.. && RADIOSONDE_INCIDENT=$incident cargo test --release --test monitoring replay)
prometheus --config.file="$incident/prometheus.yml" --storage.tsdb.path="$incident/database" \
    --storage.tsdb.retention.time=100y --web.listen-address=127.0.0.1:19091 --web.cors.origin='.*' 2>/dev/null &
server=$!
node_modules/.bin/vite preview --host 127.0.0.1 --port 18080 --strictPort >/dev/null &
page=$!
until curl -fs -o /dev/null http://127.0.0.1:19091/-/ready && curl -fs -o /dev/null http://127.0.0.1:18080/; do sleep 0.2; done

begin=$(sed -n 's/^BEGIN=//p' "$incident/times") end=$(sed -n 's/^END=//p' "$incident/times")
sick=$((begin + 24 * 60))
shoot() { # uid, end, height
    chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size="1600,$3" \
        --virtual-time-budget=30000 --screenshot="$temporary/$1.png" \
        "http://127.0.0.1:18080/index.html?dash=$1&prom=http://127.0.0.1:19091&from=$((begin + 300))&to=$2&at=$sick" 2>/dev/null
    pngquant --strip --speed 1 --force --output "$out/$1.png" "$temporary/$1.png"
}
for board in ../../dashboards/*.json; do
    rows=$(python3 -c 'import json, sys; print(max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in json.load(open(sys.argv[1]))["panels"]))' "$board")
    uid=$(basename "$board" .json) until=$((end - 30)) # no label at the very edge, where it is cut off
    # What somebody sees who has just been paged.
    case $uid in radiosonde-overview | radiosonde-probe-path) until=$((sick + 30)) ;; esac
    shoot "$uid" "$until" $((rows * 38 + 50))
done
