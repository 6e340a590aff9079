#!/bin/sh
# Five independent lock nodes on this machine, as `compose.yml` has them, without Docker.
#
#   examples/ops/nodes.sh                    until ctrl-c, or until its input ends
#   PORTS="7001 7002 7003" examples/ops/nodes.sh
#   CLUSTER=1 examples/ops/nodes.sh          in place of them a Redis Cluster of three masters, without a password
#
# Prints `REDLOCK_NODES=..` once all of them take commands. Nothing is left when it ends: the nodes' append-only files
# are in a directory of its own. REDIS_SERVER names the program, else it is `redis-server`, or `valkey-server`.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
fetched=$here/../../target/servers/valkey-server
CLUSTER=${CLUSTER:-}
PORTS=${PORTS:-7001 7002 7003$([ -n "$CLUSTER" ] || echo ' 7004 7005')}
server=${REDIS_SERVER:-$(command -v redis-server || command -v valkey-server || echo "$fetched")}
if ! command -v "$server" >/dev/null; then
	echo "no redis-server and no valkey-server is found: install one, set REDIS_SERVER to its path, or run" >&2
	echo "docker compose -f examples/ops/compose.yml up" >&2
	exit 1
fi

dir=$(mktemp -d)
pids=
stop() {
	trap - EXIT INT TERM HUP
	for pid in $pids; do kill "$pid" 2>/dev/null || true; done
	for pid in $pids; do wait "$pid" 2>/dev/null || true; done
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM HUP

# What a master of the cluster knows from its last run: all of them, and who has which slots.
know() {
	number=0 first=0
	for other in $PORTS; do
		number=$((number + 1))
		last=$((number * 16384 / $(set -- $PORTS; echo $#) - 1))
		myself=
		if [ "$other" = "$1" ]; then myself=myself,; fi
		printf '%040d 127.0.0.1:%d@%d %smaster - 0 0 %d connected %d-%d\n' \
			"$number" "$other" $((other + 10000)) "$myself" "$number" "$first" "$last"
		first=$((last + 1))
	done
	echo "vars currentEpoch $number lastVoteEpoch 0"
}

urls=
for port in $PORTS; do
	mkdir "$dir/$port"
	if [ -n "$CLUSTER" ]; then
		know "$port" >"$dir/$port/nodes.conf"
		set -- --cluster-enabled yes --cluster-require-full-coverage no
		urls=$urls${urls:+,}redis://127.0.0.1:$port
	else
		set -- --aclfile "$here/users.acl"
		urls=$urls${urls:+,}redis://locks:change-me@127.0.0.1:$port
	fi
	"$server" --port "$port" --bind 127.0.0.1 --dir "$dir/$port" --save "" --appendonly yes \
		--maxmemory-policy noeviction "$@" >"$dir/$port/log" 2>&1 </dev/null &
	pids="$pids $!"
done

for port in $PORTS; do
	tries=0
	until grep -q "eady to accept connections" "$dir/$port/log"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 200 ] || grep -qi "address already in use\|fatal" "$dir/$port/log"; then
			echo "the node on port $port does not start:" >&2
			cat "$dir/$port/log" >&2
			exit 1
		fi
		sleep 0.05
	done
done

echo "REDLOCK_NODES=$urls"
# Its starter ends it by closing its input, or by dying; a terminal by ctrl-c or ctrl-d.
cat >/dev/null
