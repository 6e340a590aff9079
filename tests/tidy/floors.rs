//! Who may use whom: data flows down the floors and back up, and a file imports only from below its own floor.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Edge, Files, Place, Unit};

/// Files that may use each other, if not in a circle, and what else they may use.
struct Room {
    floor: u8,
    name: &'static str,
    /// Files, and directories (with a `/` at the end).
    files: &'static [&'static str],
    /// Files and directories of lower floors.
    may_use: &'static [&'static [&'static str]],
    /// Crates beside the standard library; `*` for any.
    crates: &'static [&'static str],
}

const VALUES: &[&str] = &[
    "src/key_error.rs",
    "src/lease.rs",
    "src/lock_key.rs",
    "src/moment.rs",
    "src/namespace.rs",
    "src/token.rs",
];
const PROTOCOL: &[&str] = &["src/protocol/"];
const BACKOFF: &[&str] = &["src/protocol/backoff.rs"];
const PORTS: &[&str] = &[
    "src/clock.rs",
    "src/node/commands/",
    "src/node/mod.rs",
    "src/node/notifier.rs",
    "src/node/port.rs",
    "src/node/state.rs",
];
const SEAM: &[&str] = &["src/seam.rs"];
const TRACE: &[&str] = &["src/instruments.rs", "src/metrics.rs", "src/trace.rs"];
const MEMORY: &[&str] = &["src/node/memory/"];
const REDIS: &[&str] = &["src/node/redis/"];
/// A command is a port, and stands in one file with what both kinds of nodes do: it may use their floor, too.
const COMMANDS: &[&str] = &["src/node/commands/"];
const MANAGER: &[&str] = &["src/manager/"];
const HTTP: &[&str] = &["src/http/"];
const LAYER: &[&str] = &["src/layer/"];
const IDEMPOTENCY: &[&str] = &["src/idempotency/"];
const INSPECT: &[&str] = &["src/inspect.rs"];
const EXTRACT: &[&str] = &["src/extract.rs"];
/// What services, bodies and problems are made of, and axum's routes.
const WEB: &[&str] = &[
    "axum",
    "bytes",
    "http",
    "http_body",
    "percent_encoding",
    "pin_project_lite",
    "postcard",
    "serde",
    "serde_json",
    "sha2",
    "tokio",
    "tower_layer",
    "tower_service",
];

const PROGRAM: &[&str] = &["src/bin/"];
const ASSEMBLY: &[&str] = &["src/settings/connect.rs"];
const SETTINGS: &[&str] = &["src/settings/"];

/// The house. The first room that names a file is its room.
#[rustfmt::skip]
const HOUSE: &[Room] = &[
    Room { floor: 0, name: "values", files: VALUES, may_use: &[], crates: &["bytes", "serde", "sha1_smol", "smallvec"] },
    Room { floor: 1, name: "protocol", files: PROTOCOL, may_use: &[VALUES], crates: &["smallvec"] },
    // The clocks are the operating system's and, for tests, tokio's.
    Room {
        floor: 2, name: "ports", files: PORTS, crates: &["bytes", "itoa", "nix", "redis", "serde", "sha1_smol", "tokio"],
        may_use: &[VALUES],
    },
    // Where the nodes and the manager are brought together; the other files of the folder are a room below both.
    Room {
        floor: 10, name: "assembly", files: ASSEMBLY, crates: &["*"],
        may_use: &[VALUES, PORTS, SETTINGS, MEMORY, REDIS, MANAGER],
    },
    Room {
        floor: 3, name: "settings", files: SETTINGS, may_use: &[VALUES, PROTOCOL, PORTS],
        crates: &["humantime_serde", "nix", "serde", "serde_path_to_error"],
    },
    // What a simulation takes the place of.
    Room { floor: 2, name: "seam", files: SEAM, may_use: &[], crates: &["getrandom", "tokio"] },
    Room { floor: 2, name: "trace", files: TRACE, may_use: &[], crates: &["metrics", "tracing"] },
    Room {
        floor: 4, name: "memory node", files: MEMORY, crates: &["tokio"],
        may_use: &[VALUES, BACKOFF, PORTS, TRACE],
    },
    Room {
        floor: 4, name: "redis node", files: REDIS, crates: &["bytes", "redis", "rustls", "tokio"],
        may_use: &[VALUES, BACKOFF, PORTS, SEAM, SETTINGS, TRACE],
    },
    Room {
        floor: 5, name: "manager", files: MANAGER,
        crates: &["bytes", "pin_project_lite", "serde", "smallvec", "tokio"],
        may_use: &[VALUES, PROTOCOL, PORTS, SEAM, SETTINGS, TRACE],
    },
    Room { floor: 6, name: "http", files: HTTP, crates: WEB, may_use: &[VALUES, SEAM, TRACE, MANAGER] },
    Room { floor: 7, name: "layer", files: LAYER, crates: WEB, may_use: &[VALUES, MANAGER, HTTP, TRACE] },
    Room {
        floor: 8, name: "idempotency", files: IDEMPOTENCY, crates: WEB,
        may_use: &[VALUES, MANAGER, HTTP, LAYER, TRACE],
    },
    Room {
        floor: 6, name: "inspect", files: INSPECT, may_use: &[VALUES, PORTS, MANAGER],
        crates: &["http", "serde_json", "tower_service"],
    },
    Room {
        floor: 9, name: "axum", files: EXTRACT, crates: &["axum", "http"],
        may_use: &[VALUES, MANAGER, HTTP, LAYER, IDEMPOTENCY, TRACE],
    },
    Room {
        floor: 12, name: "program", files: PROGRAM, may_use: &[],
        crates: &["clap", "clap_complete", "humantime", "nix", "serde", "serde_json", "tokio", "toml", "tower_redlock"],
    },
    Room { floor: 11, name: "roof", files: &["src/lib.rs", "src/docs/"], may_use: &[&["src/"]], crates: &["*"] },
];

/// Files on no floor, and entries of the table without a file.
pub(crate) fn unplaced_or_stale(files: &Files, units: &BTreeMap<String, Unit>) -> Vec<String> {
    let unplaced = units.keys().filter(|file| room_of(file).is_none());
    let unplaced = unplaced.map(|file| {
        format!("{file}: on no floor; add it to a room of the table HOUSE in tests/tidy/floors.rs")
    });
    let places = HOUSE.iter().flat_map(|room| room.files);
    let stale = places.filter(|place| !files.keys().any(|file| holds(&[place], file)));
    let stale = stale.map(|place| format!("{place}: in the table HOUSE, but not in the tree"));
    unplaced.chain(stale).collect()
}

/// Every use of a file or a crate that is not for the room of the file that uses it.
pub(crate) fn uses(
    units: &BTreeMap<String, Unit>,
    edges: &[Edge],
    crates: &BTreeSet<String>,
) -> Vec<String> {
    let wrong = edges.iter().filter(|edge| !may_use(&edge.from, &edge.to));
    let wrong = wrong.map(|edge| {
        let Edge {
            from,
            to,
            line,
            path,
        } = edge;
        format!("{from}:{line}: may not use `{path}` ({to})")
    });
    let foreign = units.iter().flat_map(|(file, unit)| {
        let used = unit
            .used
            .iter()
            .filter_map(|used| match unit.place(used, crates)? {
                Place::Theirs(path) => Some((used.line, path.into_iter().next()?)),
                Place::Ours(_) => None,
            });
        let wrong = used.filter(|(_, name)| !may_use_crate(file, name));
        wrong.map(move |(line, name)| format!("{file}:{line}: may not use the crate `{name}`"))
    });
    wrong.chain(foreign).collect()
}

fn may_use(from: &str, to: &str) -> bool {
    let is_kind = holds(MEMORY, to) || holds(REDIS, to);
    // A program is a crate of its own, and the library another one.
    if holds(PROGRAM, from) || holds(COMMANDS, from) && is_kind {
        return true;
    }
    let allowed =
        |room: &Room| holds(room.files, to) || room.may_use.iter().any(|files| holds(files, to));
    room_of(from).is_none_or(allowed)
}

fn may_use_crate(file: &str, name: &str) -> bool {
    let known = ["std", "core", "alloc"].contains(&name);
    let allowed = |room: &Room| room.crates.contains(&name) || room.crates.contains(&"*");
    known || room_of(file).is_none_or(allowed)
}

fn room_of(file: &str) -> Option<&'static Room> {
    HOUSE.iter().find(|room| holds(room.files, file))
}

fn holds(files: &[&str], file: &str) -> bool {
    files.iter().any(|entry| match entry.strip_suffix('/') {
        Some(_) => file.starts_with(entry),
        None => file == *entry,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{edges, product};

    #[test]
    fn the_table_only_points_downwards() {
        for room in HOUSE {
            let places = room.may_use.iter().copied().flatten();
            for place in places.filter(|place| **place != "src/") {
                let below = room_of(place).expect("a room may only use rooms of the table");
                assert!(below.floor < room.floor, "{} uses {place}", room.name);
            }
        }
    }

    /// What is wrong with the uses of a file in a small crate.
    fn uses_in(path: &str, text: &str) -> Vec<String> {
        let crates = ["redis", "tokio"].map(str::to_owned).into();
        let files = [
            ("src/lib.rs", "mod manager;\npub use manager::LockManager;"),
            ("src/clock.rs", ""),
            ("src/layer/service.rs", ""),
            ("src/manager/mod.rs", ""),
            ("src/manager/handle.rs", ""),
            ("src/node/memory/mod.rs", ""),
            (path, text),
        ];
        let files: Files = files
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into();
        let units = product(&files);
        uses(&units, &edges(&units, &crates), &crates)
    }

    #[test]
    fn uses_go_down_or_stay_in_the_room() {
        for (path, text, why) in [
            (
                "src/manager/mod.rs",
                "use crate::manager::handle::H; use tokio::sync;",
                "",
            ),
            (
                "src/manager/guard.rs",
                "use super::handle::H; use std::fmt;",
                "",
            ),
            ("src/node/commands/a.rs", "use crate::node::memory::M;", ""),
            ("src/extract.rs", "use crate::LockManager;", ""),
            (
                "src/protocol/quorum.rs",
                "use crate::clock::Clock;",
                "(src/clock.rs)",
            ),
            (
                "src/manager/a.rs",
                "use crate::node::memory::M;",
                "(src/node/memory/mod.rs)",
            ),
            (
                "src/manager/a.rs",
                "fn f() { crate::node::memory::M::new() }",
                "memory::M::new",
            ),
            (
                "src/node/redis/a.rs",
                "use super::super::memory::M;",
                "memory::M",
            ),
            (
                "src/manager/a.rs",
                "m!(crate::layer::service::L);",
                "(src/layer/service.rs)",
            ),
            (
                "src/token.rs",
                "use crate::LockManager;",
                "(src/manager/mod.rs)",
            ),
            (
                "src/lock_key.rs",
                "use tokio::sync::Mutex;",
                "crate `tokio`",
            ),
            (
                "src/protocol/quorum.rs",
                "use unlisted::X;",
                "crate `unlisted`",
            ),
            (
                "src/manager/a.rs",
                "type R = ::redis::RedisError;",
                "crate `redis`",
            ),
        ] {
            let found = uses_in(path, text);
            let is_right = match why {
                "" => found.is_empty(),
                why => found.len() == 1 && found[0].contains(why),
            };
            assert!(is_right, "{path}: {text}: {found:?}");
        }
    }

    #[test]
    fn files_without_a_floor_and_floors_without_a_file_are_named() {
        let files = Files::from([("src/util.rs".to_owned(), String::new())]);
        let found = unplaced_or_stale(&files, &product(&files));
        let names = |name: &str| found.iter().any(|it| it.starts_with(name));
        assert!(
            names("src/util.rs: on no floor") && names("src/token.rs: in the table"),
            "{found:?}"
        );
    }
}
