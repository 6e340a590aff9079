#!/usr/bin/env bash
# Runs the suites that talk to servers on every server of `servers.sh`, one server after the other, and prints a
# table of the results, with what tests found that a server cannot do (a line `cannot: ..` of theirs; they show something
# else there). Servers and suites may be named:
#
#   tests/support/every_server.sh
#   SERVERS="redis-6.2 valkey-9.1" SUITES="conformance chaos" tests/support/every_server.sh
#
# `tests/chaos` takes REDLOCK_SOAK_SECONDS for each of its runs together: a minute unless set.
set -euo pipefail
cd "$(dirname "$0")/../.."

CARGO=${CARGO:-cargo}
SUITES=${SUITES:-conformance manager_redis redis_node idempotency_redis simulation chaos}
export REDLOCK_SOAK_SECONDS=${REDLOCK_SOAK_SECONDS:-60}
LOGS=target/every-server

mkdir -p "$LOGS"
# Name, version and path of each.
all=$(bash tests/support/servers.sh list)
chosen=${SERVERS:-$(cut -d ' ' -f 1 <<<"$all")}

# What the log of a suite amounts to: `87 passed, 41s`, or how many failed, or that there is no result.
result() {
    local passed failed time
    passed=$(sed -n 's/^test result: .*\. \([0-9]*\) passed.*/\1/p' "$1")
    failed=$(sed -n 's/^test result: .* \([0-9]*\) failed.*/\1/p' "$1")
    time=$(sed -n 's/^test result: .*finished in \([0-9]*\).*/\1/p' "$1")
    if [ -z "$passed" ]; then
        echo "NO RESULT"
    elif [ "$failed" != 0 ]; then
        echo "$failed FAILED of $((passed + failed))"
    else
        echo "$passed passed, ${time}s"
    fi
}

head="| server |" line="|---|" table="" wrong=0
for suite in $SUITES; do
    head="$head $suite |" line="$line---|"
done
head="$head cannot |" line="$line---|"
for server in $chosen; do
    read -r _ version binary < <(grep "^$server " <<<"$all")
    row="| ${server%%-*} $version |" logs=()
    for suite in $SUITES; do
        log=$LOGS/$server-$suite.log
        logs+=("$log")
        echo "== $suite on ${server%%-*} $version"
        # As `make test` does: most tests wait for servers, and those of chaos use all cores.
        threads=$([ "$suite" = chaos ] || echo 4)
        # Both kinds of servers are this one.
        REDIS_SERVER=$binary VALKEY_SERVER=$binary \
            "$CARGO" test --all-features --test "$suite" -- --show-output ${threads:+--test-threads $threads} >"$log" 2>&1 || { wrong=1; tail -n 60 "$log"; }
        row="$row $(result "$log") |"
        grep '^test result:' "$log" || true
    done
    lacks=$(sed -n 's/^cannot: //p' "${logs[@]}" | sort -u | paste -sd ';' | sed 's/;/; /g')
    table="$table$row ${lacks:-–} |"$'\n'
done
printf '\n%s\n%s\n%s' "$head" "$line" "$table" | tee "$LOGS/table.md"
exit $wrong
