//! Who may use whom: data flows down the floors and back up, and a file imports only from below its own floor.

use std::collections::BTreeSet;

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
/// Names both kinds of nodes for users, and does nothing else.
const NODES: &str = "src/node/mod.rs";
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

/// The floors inside of the manager, from the top. A room uses rooms of the floors below it, and none beside it. Of two
/// rooms that hold a file, the one with the longer name is its room.
#[rustfmt::skip]
const INSIDE: &[&[Inner]] = &[
    // Features, each an `impl LockManager`, which `mod.rs` only names.
    &[
        &["lifecycle.rs"], &["holders.rs"], &["snapshot.rs"], &["scope.rs"],
        &["records/"],
    ],
    &[&["mod.rs"]],
    &[&["acquire/"]],
    &[&["asking.rs"], &["guard.rs"]],
    &[&["want/"]],
    &[&["freeing.rs"], &["watchdog.rs"], &["handle.rs"]],
    &[&["shared.rs"]],
    &[&["lease/"]],
    &[&["queue/"], &["nodes/"]],
    &[&["ledger.rs"], &["error.rs"]],
    &[&["tasks.rs"]],
];

/// Files, and directories (with a `/` at the end), as seen from [`ROOM_WITH_FLOORS`].
type Inner = &'static [&'static str];

const ROOM_WITH_FLOORS: &str = "src/manager/";

/// Every use of one file by another inside of the manager that does not go down.
pub(crate) fn inside_manager(edges: &[Edge]) -> Vec<String> {
    let wrong = edges.iter().filter_map(|edge| {
        let Edge {
            from,
            to,
            line,
            path,
        } = edge;
        let ((floor, room), (below, used)) = (inner_room(from)?, inner_room(to)?);
        (room != used && below <= floor).then(|| {
            let (room, used) = (room.join(", "), used.join(", "));
            format!(
                "{from}:{line}: `{room}` may not use `{path}` of `{used}`, which is not below it"
            )
        })
    });
    wrong.collect()
}

/// Files of the manager that are on none of its floors, and entries of the tables without a file.
pub(crate) fn unplaced_or_stale(files: &Files) -> Vec<String> {
    let inside = files
        .keys()
        .filter(|file| file.starts_with(ROOM_WITH_FLOORS));
    let unplaced = inside.filter(|file| inner_room(file).is_none()).map(|file| {
        format!("{file}: on no floor of the manager; add it to the table INSIDE in tests/tidy/floors.rs")
    });
    let outer = HOUSE
        .iter()
        .flat_map(|room| room.files.iter().map(|place| (*place).to_owned()));
    let inner = INSIDE.iter().copied().flatten().copied().flatten();
    let inner = inner.map(|place| format!("{ROOM_WITH_FLOORS}{place}"));
    let stale = outer
        .chain(inner)
        .filter(|place| !files.keys().any(|file| holds(&[place.as_str()], file)));
    let stale = stale.map(|place| {
        format!("{place}: in the tables of tests/tidy/floors.rs, but not in the tree")
    });
    unplaced.chain(stale).collect()
}

/// The floor, counted from the top, and the room of a file of the manager.
fn inner_room(file: &str) -> Option<(usize, Inner)> {
    let file = file.strip_prefix(ROOM_WITH_FLOORS)?;
    let rooms = INSIDE
        .iter()
        .enumerate()
        .flat_map(|(floor, rooms)| rooms.iter().map(move |room| (floor, *room)));
    let places =
        rooms.flat_map(|(floor, room)| room.iter().map(move |place| (*place, floor, room)));
    let held = places.filter(|(place, ..)| holds(&[place], file));
    held.max_by_key(|(place, ..)| place.len())
        .map(|(_, floor, room)| (floor, room))
}

/// Every import of a file that goes to the same floor, a higher one, or a crate that its floor does not use.
pub(crate) fn check(path: &str, unit: &Unit, crates: &BTreeSet<String>) -> Vec<String> {
    let Some(room) = room_of(path) else {
        return vec![format!(
            "{path}: on no floor; add it to a room of the table HOUSE in tests/tidy/floors.rs"
        )];
    };
    let mut complaints = Vec::new();
    for used in &unit.used {
        let problem = match unit.place(used, crates) {
            // A program is a crate of its own, and the library another one.
            Some(Place::Ours(_)) if holds(PROGRAM, path) => None,
            Some(Place::Ours(target)) => inside(room, path, &target),
            Some(Place::Theirs(target)) => outside(room, &target),
            None => None,
        };
        if let Some(problem) = problem {
            let (line, floor, name) = (used.line, room.floor, room.name);
            complaints.push(format!("{path}:{line}: floor {floor} ({name}) {problem}"));
        }
    }
    complaints.dedup();
    complaints
}

/// What is wrong with a path inside this crate.
fn inside(room: &Room, path: &str, target: &[String]) -> Option<String> {
    let Some(file) = file_of(target) else {
        // A name of the crate's root, or of an unknown module, whose own file is complained of.
        let ours = path == "src/lib.rs" || target.is_empty();
        let name = target.join("::");
        return (!ours).then(|| {
            format!("may not use `crate::{name}` from the roof; name the module it lives in")
        });
    };
    let own = holds(room.files, file);
    let lower = room.may_use.iter().any(|files| holds(files, file));
    let is_kind = holds(MEMORY, file) || holds(REDIS, file);
    let both = is_kind && (holds(COMMANDS, path) || path == NODES);
    (!own && !lower && !both)
        .then(|| format!("may not use `crate::{}` ({file})", target.join("::")))
}

/// What is wrong with a path into another crate.
fn outside(room: &Room, target: &[String]) -> Option<String> {
    let name = target.first()?.as_str();
    let known = matches!(name, "std" | "core" | "alloc");
    let allowed = room
        .crates
        .iter()
        .any(|allowed| [name, "*"].contains(allowed));
    (!known && !allowed).then(|| format!("may not use the crate `{name}`"))
}

fn room_of(file: &str) -> Option<&'static Room> {
    HOUSE.iter().find(|room| holds(room.files, file))
}

/// The file or directory of the table that a module path leads to; the longest match wins.
fn file_of(target: &[String]) -> Option<&'static str> {
    let places = || {
        HOUSE
            .iter()
            .flat_map(|room| {
                room.files
                    .iter()
                    .chain(room.may_use.iter().copied().flatten())
            })
            .filter(|place| **place != "src/")
    };
    (1..=target.len()).rev().find_map(|len| {
        let module = format!("src/{}", target[..len].join("/"));
        let shapes = [".rs", "/mod.rs", "/"].map(|end| format!("{module}{end}"));
        shapes
            .iter()
            .find_map(|shape| places().find(|place| *place == shape))
            .copied()
    })
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

    #[track_caller]
    fn assert_complaint(path: &str, text: &str, why: &str) {
        let crates = ["axum", "http", "redis", "tokio", "tracing"];
        let found = check(
            path,
            &Unit::read(path, text),
            &crates.map(str::to_owned).into(),
        );
        match why {
            "" => assert_eq!(found, [""; 0], "{text}"),
            why => assert!(
                found.len() == 1 && found[0].contains(why),
                "{text}: {found:?}"
            ),
        }
    }

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

    #[test]
    fn imports_go_down_or_stay_in_the_room() {
        let memory = "(src/node/memory/)";
        for (path, text, why) in [
            (
                "src/manager/mod.rs",
                "mod guard;\nuse guard::LockGuard; use tokio::sync;",
                "",
            ),
            (
                "src/manager/guard.rs",
                "use super::handle::H; use std::fmt;",
                "",
            ),
            ("src/node/mod.rs", "pub mod memory;\npub mod redis;", ""),
            (
                "src/lib.rs",
                "mod manager;\npub use manager::LockManager;",
                "",
            ),
            (
                "src/protocol/quorum.rs",
                "use crate::clock::Clock;",
                "(src/clock.rs)",
            ),
            ("src/manager/mod.rs", "use crate::node::memory::M;", memory),
            (
                "src/manager/mod.rs",
                "fn f() { crate::node::memory::M::new() }",
                memory,
            ),
            (
                "src/node/redis/a.rs",
                "use super::super::memory::M;",
                memory,
            ),
            ("src/extract.rs", "use crate::LockHandle;", "from the roof"),
            (
                "src/manager/a.rs",
                "m!(crate::layer::service::L);",
                "(src/layer/)",
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
                "src/manager/mod.rs",
                "type R = ::redis::RedisError;",
                "crate `redis`",
            ),
            ("src/util.rs", "", "on no floor; add it"),
        ] {
            assert_complaint(path, text, why);
        }
    }

    #[test]
    fn inside_of_the_manager_imports_go_down_or_stay_in_the_room() {
        for (from, to, count) in [
            ("scope.rs", "mod.rs", 0),
            ("queue/mod.rs", "queue/fifo/mod.rs", 0),
            ("mod.rs", "scope.rs", 1),
            ("scope.rs", "snapshot.rs", 1),
            ("queue/mod.rs", "nodes/waiting.rs", 1),
        ] {
            let edge = Edge {
                from: format!("{ROOM_WITH_FLOORS}{from}"),
                to: format!("{ROOM_WITH_FLOORS}{to}"),
                line: 7,
                path: "x::Y".to_owned(),
            };
            assert_eq!(inside_manager(&[edge]).len(), count, "{from} -> {to}");
        }
    }

    #[test]
    fn files_without_a_floor_and_floors_without_a_file_are_named() {
        let files = Files::from([("src/manager/util.rs".to_owned(), String::new())]);
        let found = unplaced_or_stale(&files);
        let names = |name: &str| found.iter().any(|it| it.starts_with(name));
        assert!(
            names("src/manager/util.rs: on no floor") && names("src/token.rs: in the tables"),
            "{found:?}"
        );
    }
}
