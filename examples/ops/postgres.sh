#!/bin/sh
# A PostgreSQL server of its own for the example `idempotent_payment`, whose files go away with it. Prints one line,
# DATABASE_URL=.., and stops when its input ends. POSTGRES_BIN is the directory of the programs, if they are elsewhere.
set -eu

bin=
for dir in "${POSTGRES_BIN:-}" $(command -v initdb | xargs -r readlink -f | xargs -r dirname) /usr/lib/postgresql/*/bin; do
    if [ -x "$dir/initdb" ]; then bin=$dir; break; fi
done
if [ -z "$bin" ]; then
    echo "no PostgreSQL: install it (Debian: postgresql), or set POSTGRES_BIN to the directory of initdb" >&2
    exit 1
fi

dir=$(mktemp -d)
end() {
    if [ -f "$dir/data/postmaster.pid" ]; then kill -QUIT "$(head -n 1 "$dir/data/postmaster.pid")" || true; fi
    wait
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 1' INT TERM
cd "$dir"
# It does not run as root.
as=
if [ "$(id -u)" = 0 ]; then
    chown nobody "$dir"
    as="runuser -u nobody --"
fi
$as "$bin/initdb" -D "$dir/data" -U bank --auth=trust --no-sync --no-locale --encoding=UTF8 >log 2>&1 || {
    cat log >&2
    exit 1
}
$as "$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off >>log 2>&1 &
tries=0
until "$bin/psql" -qXAt -h "$dir" -U bank -d postgres -c "SELECT 1" >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then
        cat log >&2
        exit 1
    fi
    sleep 0.1
done
echo "DATABASE_URL=host=$dir user=bank dbname=postgres"
cat >/dev/null
