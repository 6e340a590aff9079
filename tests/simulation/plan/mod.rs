//! [`Plan`]: everything that happens in one world, as a function of a seed: servers, processes, faults and calls.
//!
//! A plan is text that can be read, edited and run again (`text`; `sense` refuses what makes none). It is made by
//! weighted choices (`generate`), each seed from a random subset of all kinds of faults, topologies and settings, so that
//! rare combinations come up.

mod calls;
mod episodes;
mod generate;
mod rolls;
mod rushes;
mod sense;
mod settings;
mod text;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use tower_redlock_simulated::world::{Fault, Topology};

pub(crate) use self::sense::counted;

/// For how many milliseconds counters of fencing tokens are kept unless it is set.
pub(crate) const USUAL_KEEP: u64 = 300_000;

/// Everything that happens in one world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) class: Class,
    /// When the faults end, in milliseconds.
    pub(crate) length: u64,
    /// How many locks the calls are about.
    pub(crate) keys: u32,
    pub(crate) topology: Topology,
    // These have lines of their own.
    #[serde(skip)]
    pub(crate) processes: Vec<Place>,
    #[serde(skip)]
    pub(crate) episodes: Vec<Episode>,
    #[serde(skip)]
    pub(crate) calls: Vec<Call>,
}

/// What may be expected of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// Nothing happens beyond what the promises cover: all of them are checked.
    Within,
    /// More is lost than the promises cover: that nothing hangs or panics, that it goes on afterwards, and whatever
    /// else holds even then.
    Beyond,
}

/// What one process after the other in one place is like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// When the first of them starts, in milliseconds.
    pub(crate) start: u64,
    /// The settings of the first, the second and so on; the last are those of all that follow.
    #[serde(skip)]
    pub(crate) lives: Vec<Settings>,
}

impl Place {
    /// The settings of the process that was started there after so many others.
    pub(crate) fn settings(&self, life: u32) -> &Settings {
        &self.lives[(life as usize).min(self.lives.len() - 1)]
    }
}

/// The settings of one process, in milliseconds where they are times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// The groups of servers that are its nodes.
    pub(crate) nodes: Vec<u32>,
    pub(crate) namespace: String,
    pub(crate) ttl: u64,
    pub(crate) max_ttl: u64,
    pub(crate) node_timeout: u64,
    pub(crate) max_wait: u64,
    pub(crate) max_hold: u64,
    /// How many losses the quorum masks.
    pub(crate) mask: u32,
    /// `max_clock_skew` of the restart guard; none: it is off.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) skew: Option<u64>,
    /// How long fencing counters are kept, [`USUAL_KEEP`] without being set; none: no fencing tokens.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) keep: Option<u64>,
    /// How often a lock is handed on, and for how long.
    pub(crate) passes: u32,
    pub(crate) pass_time: u64,
    pub(crate) bootstrap: bool,
    /// Made without waiting for any node.
    pub(crate) lazy: bool,
    pub(crate) replicas: Replicas,
    /// `confirm_within` of nodes behind Sentinels, or in a cluster.
    pub(crate) confirm: u64,
    /// How many of the Sentinels of each node it knows, or of the masters of the cluster.
    pub(crate) watchers: u32,
    /// How long idempotent responses are stored.
    pub(crate) retention: u64,
    /// How many may wait for one key.
    pub(crate) waiters: u32,
}

/// What a process makes of a server with replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Replicas {
    /// There are none, or it does not know of them.
    Plain,
    Expected,
    /// One must acknowledge.
    Required,
}

/// Faults that belong together, each at its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Episode {
    pub(crate) name: String,
    /// The group whose server forgets, and whether the restart guard can see that.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(crate) loses: Option<(u32, Seen)>,
    #[serde(skip)]
    pub(crate) steps: Vec<(u64, Fault)>,
}

/// Whether the restart guard sees that a server lost something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Seen {
    Yes,
    No,
}

/// Something that a client does in a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    /// When it begins, in milliseconds.
    pub(crate) at: u64,
    pub(crate) place: u32,
    pub(crate) cut: Cut,
    pub(crate) action: Action,
}

/// When a call is dropped, if it has not ended by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Cut {
    Never,
    /// After so many milliseconds.
    After(u64),
    /// When it has been polled so many times.
    Polls(u32),
    /// Never; but when it has been polled so many times, it is kept for so many milliseconds and not polled.
    Kept(u32, u64),
}

/// What a call is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Action {
    Lock(Lock),
    Nested(Nested),
    /// `LockManager::run`.
    Run {
        key: u32,
        hold: u64,
    },
    Once(Once),
    Request(Asked),
    /// An orderly shutdown, after which the process ends and, so long after that, another takes its place.
    Stop {
        grace: u64,
        back: u64,
    },
}

/// Acquires some keys, holds them, and releases them or drops the guard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    pub(crate) keys: Vec<u32>,
    pub(crate) wait: u64,
    pub(crate) hold: u64,
    pub(crate) drops: bool,
    /// By a handle with a ttl of its own, if the process may have one as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<u64>,
    #[serde(default, skip_serializing_if = "Share::is_one")]
    pub(crate) share: Share,
}

/// The same in a scope, inside which some keys are acquired once more for some time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nested {
    pub(crate) keys: Vec<u32>,
    pub(crate) inner: Vec<u32>,
    pub(crate) wait: u64,
    pub(crate) hold: u64,
}

/// `LockManager::begin_idempotent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Once {
    pub(crate) key: u32,
    pub(crate) wait: u64,
    pub(crate) work: u64,
    pub(crate) end: OnceEnd,
}

/// A request through the layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    pub(crate) route: Route,
    pub(crate) key: u32,
    pub(crate) once: u32,
    pub(crate) caller: u32,
    pub(crate) host: u32,
    pub(crate) work: u64,
}

impl Lock {
    /// With the ttl of the process, and for one at a time.
    fn new(keys: Vec<u32>, wait: u64, hold: u64, drops: bool) -> Self {
        Self {
            keys,
            wait,
            hold,
            drops,
            ttl: None,
            share: Share::One,
        }
    }
}

/// How many may have a key at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Share {
    #[default]
    One,
    /// Any number of readers, or one of the others.
    Readers,
    /// As many as there are permits, whoever has the key.
    Permits,
}

impl Share {
    fn is_one(&self) -> bool {
        *self == Self::One
    }
}

/// How many permits a key has.
pub(crate) const PERMITS: u32 = 2;

/// How idempotent work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnceEnd {
    Complete,
    Abandon,
    Drop,
}

/// Which layers a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Route {
    /// The lock layer.
    Lock,
    /// The idempotency layer.
    Once,
    /// The idempotency layer, and requests that carry what is left of an earlier one that has ended.
    OnceAgain,
    /// The idempotency layer and the lock layer directly inside.
    OnceLock,
    /// The lock layer, and the idempotency layer inside.
    LockOnce,
    /// The idempotency layer, a layer that has an effect, and the lock layer.
    OnceChargeLock,
    /// The idempotency layer around a handler that has an effect, calls a service with a lock, and passes its response
    /// on.
    OnceCalls,
}

impl Route {
    pub(crate) const ALL: [Self; 7] = [
        Self::Lock,
        Self::Once,
        Self::OnceAgain,
        Self::OnceLock,
        Self::LockOnce,
        Self::OnceChargeLock,
        Self::OnceCalls,
    ];

    /// Its path: `/once-again`.
    pub(crate) fn path(self) -> String {
        format!("/{}", name_of(self, "-"))
    }
}

/// The name of an enum's value as in plans, with this between its words.
fn name_of(value: impl Serialize, gap: &str) -> String {
    let name = serde_json::to_string(&value).unwrap_or_default();
    name.trim_matches('"').replace('_', gap)
}

impl Settings {
    /// How many nodes must grant.
    pub(crate) fn quorum(&self) -> usize {
        (self.nodes.len() + self.mask as usize + 2) / 2
    }

    /// How many nodes a quorum can spare.
    pub(crate) fn spare(&self) -> usize {
        self.nodes.len() - self.quorum()
    }
}

impl Plan {
    /// All settings of all processes.
    pub(crate) fn all_settings(&self) -> impl Iterator<Item = &Settings> {
        self.processes.iter().flat_map(|place| &place.lives)
    }

    /// All faults.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &Fault> {
        let steps = self.episodes.iter().flat_map(|episode| &episode.steps);
        steps.map(|(_, fault)| fault)
    }

    /// Whether all processes agree on the nodes and on what else they must agree on.
    pub(crate) fn agrees(&self) -> bool {
        let groups = &mut self.topology.groups.iter();
        let declared = self.topology.cluster.is_none()
            && groups.any(|group| group.replicas > 0 && group.sentinels == 0);
        let is_plain = |settings: &Settings| declared && settings.replicas == Replicas::Plain;
        let mut all = self.all_settings();
        let agreed = all.next().map(|first| (agreed(first), is_plain(first)));
        all.all(|other| Some((self::agreed(other), is_plain(other))) == agreed)
            && self.all_settings().all(|all| all.ttl <= all.max_ttl)
    }

    /// Whether there are two lists of nodes, with one node in common, and all else is agreed on.
    pub(crate) fn overlaps_once(&self) -> bool {
        let list = |settings: &Settings| settings.nodes.iter().copied().collect::<BTreeSet<u32>>();
        let lists: BTreeSet<BTreeSet<u32>> = self.all_settings().map(list).collect();
        let lists: Vec<_> = lists.into_iter().collect();
        let [one, two] = &*lists else {
            return false;
        };
        let mut alike = self.clone();
        for place in &mut alike.processes {
            (place.lives.iter_mut()).for_each(|settings| settings.nodes = vec![0]);
        }
        one.intersection(two).count() == 1 && alike.agrees()
    }

    /// By how much the dates of two processes may differ at some time, in milliseconds.
    pub(crate) fn skew(&self) -> u64 {
        let mut now = vec![0_i64; self.processes.len()];
        let (mut least, mut most) = (0, 0);
        let mut steps: Vec<_> = self.episodes.iter().flat_map(|e| e.steps.iter()).collect();
        steps.sort_by_key(|(at, _)| *at);
        for (_, fault) in steps {
            if let Fault::ProcessStep { process, ms } = fault {
                let date = &mut now[*process as usize];
                *date += ms;
                (least, most) = (least.min(*date), most.max(*date));
            }
        }
        // Rates, too: at most half a per cent either way.
        (most - least).unsigned_abs() + self.length / 100
    }

    /// Whether dates differ by no more than all processes were told.
    pub(crate) fn dates_agree(&self) -> bool {
        let told = self.all_settings().filter_map(|settings| settings.skew);
        told.min().is_some_and(|told| self.skew() <= told)
    }
}

/// What processes on the same nodes must have in common.
fn agreed(settings: &Settings) -> impl PartialEq + use<> {
    let mut nodes = settings.nodes.clone();
    nodes.sort_unstable();
    (
        nodes,
        settings.namespace.clone(),
        settings.mask,
        settings.max_ttl,
        settings.skew.is_some(),
        settings.keep.is_some(),
        settings.confirm,
        settings.watchers,
    )
}
