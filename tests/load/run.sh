#!/bin/sh
# Load on rigline's HTTP server beside its twin, with Debian's wrk, alternating in one run:
#   tests/load/run.sh [ROUNDS] [SECONDS] [CONNECTIONS]
# Prints requests per second and p99 of each round, and the median ratio with its spread. Fails below 0.8, or if a request
# had no answer or another than 200, also while other clients vanish.
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-5} seconds=${2:-5} connections=${3:-64}
cargo build --release -q -p rigline-load
load=${CARGO_TARGET_DIR:-target}/release/rigline-load
work=$(mktemp -d)
trap 'kill $pids 2>/dev/null || true; rm -rf "$work"' EXIT
pids=
for server in rigline twin; do
    "$load" $server >"$work/$server" &
    pids="$pids $!"
done
while ! [ -s "$work/rigline" ] || ! [ -s "$work/twin" ]; do sleep 0.1; done
cat >"$work/post.lua" <<'LUA'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"op":"measure","args":{"channel":"3V3","samples":16},"session_id":"s-1"}'
done = function(summary, latency)
    local e = summary.errors
    io.write(string.format("%.0f %.2f %d\n", summary.requests / (summary.duration / 1e6), latency:percentile(99) / 1000,
        e.connect + e.read + e.write + e.status + e.timeout))
end
LUA
round=0
while [ $round -lt "$rounds" ]; do
    for server in rigline twin; do
        result=$(wrk -t1 -c"$connections" -d"${seconds}s" --latency -s "$work/post.lua" "$(cat "$work/$server")/invoke" | tail -n 1)
        echo "$server: requests/s, p99 in ms, errors: $result"
        echo "$result" >>"$work/$server.results"
    done
    round=$((round + 1))
done
# Nothing is lost under load while clients vanish.
url=$(cat "$work/rigline")
wrk -t1 -c"$connections" -d4s --latency -s "$work/post.lua" "$url/invoke" >"$work/vanish.results" &
wrk=$!
"$load" vanish "$url" 500
wait $wrk
lost=$(tail -n 1 "$work/vanish.results" | cut -d' ' -f3)
echo "and others had $lost errors meanwhile"
[ "$lost" = 0 ]
paste "$work/rigline.results" "$work/twin.results" | awk '
    { ratio[NR] = $1 / $4; errors += $3 }
    END {
        for (i = 2; i <= NR; i++)
            for (j = i; j > 1 && ratio[j] < ratio[j - 1]; j--) { t = ratio[j]; ratio[j] = ratio[j - 1]; ratio[j - 1] = t }
        median = NR % 2 ? ratio[(NR + 1) / 2] : (ratio[NR / 2] + ratio[NR / 2 + 1]) / 2
        printf "ratio of requests per second to the twin: median %.2f, from %.2f to %.2f; errors: %d\n", median, ratio[1], ratio[NR], errors
        exit !(median >= 0.8 && errors == 0)
    }'
