//! The kinds of faults, and how one of each is made.

mod cluster;
mod groups;
mod hosts;
mod network;
mod places;

use serde::Serialize;

use super::rolls::Rolls;
use super::settings::Shape;
use super::{Class, Episode, Seen, name_of};
use tower_redlock_simulated::world::{Fault, HostId};

pub(super) use self::hosts::common;
pub(super) use self::network::{late, together};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Slow,
    Cut,
    Partition,
    Flaky,
    Lopsided,
    Break,
    DrainLate,
    Duplicate,
    Crash,
    Forget,
    OldData,
    Flush,
    Freeze,
    Rates,
    StepBack,
    StepAhead,
    Evict,
    Full,
    Clients,
    Scribble,
    Lag,
    FailoverAndBack,
    Failover,
    Pause,
    Kill,
    DateSteps,
    Rollout,
    Jitter,
    Suspend,
    Majority,
    Block,
    Refuses,
    Divide,
    TakeOver,
}

impl Kind {
    /// All of them, and how many of each there are in a plan at most.
    pub(super) const ALL: [(Self, u64); 34] = [
        (Self::Slow, 5),
        (Self::Cut, 8),
        (Self::Partition, 8),
        // These two go on through the whole plan.
        (Self::Flaky, 1),
        (Self::Lopsided, 1),
        (Self::Break, 4),
        (Self::DrainLate, 3),
        (Self::Duplicate, 3),
        (Self::Crash, 3),
        (Self::Forget, 5),
        (Self::OldData, 5),
        (Self::Flush, 4),
        (Self::Freeze, 5),
        (Self::Rates, 2),
        (Self::StepBack, 2),
        (Self::StepAhead, 2),
        (Self::Evict, 3),
        (Self::Full, 2),
        (Self::Clients, 3),
        (Self::Scribble, 2),
        (Self::Lag, 2),
        (Self::FailoverAndBack, 6),
        (Self::Failover, 6),
        (Self::Pause, 5),
        (Self::Kill, 4),
        (Self::DateSteps, 2),
        (Self::Rollout, 2),
        (Self::Jitter, 2),
        (Self::Suspend, 2),
        (Self::Majority, 2),
        (Self::Block, 5),
        (Self::Refuses, 2),
        (Self::Divide, 2),
        (Self::TakeOver, 2),
    ];

    /// Its name: `old data`.
    pub(super) fn name(self) -> String {
        name_of(self, " ")
    }

    /// Whether it can be in a plan of this shape.
    pub(super) fn may_be(self, shape: &Shape) -> bool {
        match self {
            Self::Lopsided => shape.spare > 0,
            Self::FailoverAndBack => !shape.is_cluster() && !shape.with_replicas(false).is_empty(),
            Self::Divide | Self::TakeOver => shape.is_cluster(),
            Self::Failover => !shape.with_replicas(true).is_empty(),
            Self::Lag => shape.topology.groups.iter().any(|group| group.replicas > 0),
            Self::StepAhead => !shape.unseen.is_empty(),
            _ => true,
        }
    }

    /// Whether plans of this shape are made for it.
    pub(super) fn is_important(self, shape: &Shape) -> bool {
        match self {
            Self::Flaky | Self::Lopsided | Self::Forget | Self::OldData | Self::Evict => true,
            Self::StepAhead => shape.class == Class::Within,
            _ => false,
        }
    }

    /// One of it at this time, if it can be.
    pub(super) fn episode(self, shape: &Shape, rolls: &mut Rolls, at: u64) -> Vec<Episode> {
        let mut made = Made::new(&self.name(), at);
        match self {
            Self::Slow | Self::Cut | Self::Partition | Self::Break => {
                network::network(self, shape, rolls, &mut made);
            }
            Self::DrainLate | Self::Duplicate => network::copies(self, shape, rolls, &mut made),
            Self::Crash | Self::Forget | Self::OldData | Self::Flush | Self::Freeze => {
                hosts::host(self, shape, rolls, &mut made);
            }
            Self::Rates | Self::StepBack | Self::StepAhead | Self::DateSteps => {
                hosts::clocks(self, shape, rolls, &mut made);
            }
            Self::Evict | Self::Full | Self::Refuses | Self::Clients | Self::Scribble => {
                hosts::server(self, shape, rolls, &mut made);
            }
            Self::Lag | Self::FailoverAndBack | Self::Failover => {
                groups::replicas(self, shape, rolls, &mut made);
            }
            Self::Divide => cluster::divide(shape, rolls, &mut made),
            Self::TakeOver => cluster::take_over(shape, rolls, &mut made),
            Self::Pause
            | Self::Block
            | Self::Kill
            | Self::Rollout
            | Self::Jitter
            | Self::Suspend => {
                places::processes(self, shape, rolls, &mut made);
            }
            Self::Majority => return hosts::majority(shape, rolls, at),
            Self::Flaky => return network::flaky(shape, rolls),
            Self::Lopsided => return network::lopsided(shape, rolls),
        }
        vec![made.done()]
    }
}

/// An episode in the making.
struct Made {
    episode: Episode,
    at: u64,
}

impl Made {
    fn new(name: &str, at: u64) -> Self {
        Self {
            episode: Episode {
                name: name.to_owned(),
                loses: None,
                steps: Vec::new(),
            },
            at,
        }
    }

    /// A fault so long after the beginning.
    fn add(&mut self, after: u64, fault: Fault) {
        self.episode.steps.push((self.at + after, fault));
    }

    /// One process is cut off from one host, in one of the ways in which that happens.
    fn cut(&mut self, after: u64, process: u32, host: HostId, rolls: &mut Rolls) {
        for fault in network::cut(process, host, rolls) {
            self.add(after, fault);
        }
    }

    fn heal(&mut self, after: u64, process: u32, host: HostId) {
        self.add(after, Fault::Heal { process, host });
    }

    fn loses(&mut self, group: u32, seen: Seen) {
        self.episode.loses = Some((group, seen));
    }

    fn done(self) -> Episode {
        self.episode
    }
}
