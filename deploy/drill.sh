#!/bin/sh
# Load for two servers, and one fault after another for the first: so that the boards are not empty.
# TARGET is broken and loaded, ALSO_LOAD only loaded. Between two faults lies the time that alerts need to end.
set -eu
: "${TARGET:?the server to break, as in http://drill-server:30000}"
calm=${CALM_SECONDS:-180}
fault=${FAULT_SECONDS:-90}

say() { printf '%s drill: %s\n' "$(date -u +%H:%M:%S)" "$*"; }

ask() { # server, tokens: one request, whatever becomes of it
    # Completions: the scripted model has no template for chats.
    curl -s -o /dev/null -m 120 "$1/v1/completions" -H 'content-type: application/json' -d "{
        \"model\": \"default\", \"max_tokens\": $2, \"prompt\": \"A weather balloon rises because\"}" || true
}

load() { # server, clients: each asks again as soon as it has an answer
    server=$1 clients=$2
    while [ "$clients" -gt 0 ]; do
        (while :; do ask "$server" 32; sleep 1; done) &
        clients=$((clients - 1))
    done
}

probe() { # server: what an orchestrator does
    (while :; do curl -s -o /dev/null -m 30 "$1/health" || true; sleep 5; done) &
    (while :; do curl -s -o /dev/null -m 30 "$1/health_generate" || true; sleep 7; done) &
}

break_it() { # fault as JSON
    say "fault: $1"
    curl -s -m 5 "$TARGET/debug/fault" -d "$1" || say 'the server does not answer'
    echo
}

for server in "$TARGET" ${ALSO_LOAD:-}; do
    load "$server" 3
    probe "$server"
done
say "load on $TARGET ${ALSO_LOAD:-}; the first fault comes in 60 s"
sleep 60

while :; do
    for what in \
        "{\"fault\": \"loop_frozen\", \"seconds\": $fault}" \
        '{"fault": "scheduler_panic"}' \
        "{\"fault\": \"slow_steps\", \"ms\": 700}" \
        "{\"fault\": \"no_batches\", \"seconds\": $fault}" \
        "{\"fault\": \"engine_stops_reading\", \"seconds\": $fault}" \
        '{"fault": "fail_step", "nth": 1}'; do
        break_it "$what"
        sleep "$fault"
        curl -s -m 5 -X DELETE "$TARGET/debug/fault" || true
        say "all faults off, $calm s of calm"
        sleep "$calm"
    done
done
