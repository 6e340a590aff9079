//! The kinds of faults, and how one of each is made.

use super::rolls::Rolls;
use super::settings::Shape;
use super::{Class, Episode, Seen};
use crate::world::{Fault, HostId, Memory, Way};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Slow,
    Cut,
    Partition,
    Flaky,
    Break,
    Drain,
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
    Lag,
    Failback,
    Failover,
    Pause,
    Kill,
    Dates,
    Jitter,
    Suspend,
    Majority,
}

impl Kind {
    pub(super) const ALL: [Self; 27] = [
        Self::Slow,
        Self::Cut,
        Self::Partition,
        Self::Flaky,
        Self::Break,
        Self::Drain,
        Self::Duplicate,
        Self::Crash,
        Self::Forget,
        Self::OldData,
        Self::Flush,
        Self::Freeze,
        Self::Rates,
        Self::StepBack,
        Self::StepAhead,
        Self::Evict,
        Self::Full,
        Self::Clients,
        Self::Lag,
        Self::Failback,
        Self::Failover,
        Self::Pause,
        Self::Kill,
        Self::Dates,
        Self::Jitter,
        Self::Suspend,
        Self::Majority,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Cut => "cut",
            Self::Partition => "partition",
            Self::Flaky => "flaky",
            Self::Break => "break",
            Self::Drain => "drain late",
            Self::Duplicate => "duplicate",
            Self::Crash => "crash",
            Self::Forget => "forget",
            Self::OldData => "old data",
            Self::Flush => "flush",
            Self::Freeze => "freeze",
            Self::Rates => "rates",
            Self::StepBack => "step back",
            Self::StepAhead => "step ahead",
            Self::Evict => "evict",
            Self::Full => "full",
            Self::Clients => "clients",
            Self::Lag => "lag",
            Self::Failback => "failover and back",
            Self::Failover => "failover",
            Self::Pause => "pause",
            Self::Kill => "kill",
            Self::Dates => "date steps",
            Self::Jitter => "jitter",
            Self::Suspend => "suspend",
            Self::Majority => "majority",
        }
    }

    /// How many of them there are in a plan at most.
    pub(super) const fn most(self) -> u64 {
        match self {
            Self::Cut | Self::Partition => 8,
            Self::Slow | Self::Forget | Self::OldData | Self::Freeze | Self::Pause => 5,
            Self::Break | Self::Flush | Self::Failback | Self::Failover | Self::Kill => 4,
            Self::Crash | Self::Drain | Self::Duplicate | Self::Evict | Self::Clients => 3,
            Self::Rates | Self::Jitter | Self::Dates => 3,
            Self::StepBack | Self::StepAhead | Self::Full | Self::Lag => 2,
            Self::Suspend | Self::Majority => 2,
            // It goes on through the whole plan.
            Self::Flaky => 1,
        }
    }

    /// Whether it can be in a plan of this shape.
    pub(super) fn may_be(self, shape: &Shape) -> bool {
        let beyond = shape.class == Class::Beyond;
        match self {
            Self::Forget | Self::OldData | Self::Flush => beyond || shape.spare > 0,
            Self::Evict => beyond || shape.spare > 0,
            Self::Failback => !shape.with_replicas(false).is_empty(),
            Self::Failover => !shape.with_replicas(true).is_empty(),
            Self::Lag => shape.topology.groups.iter().any(|group| group.replicas > 0),
            Self::StepAhead => !shape.unseen.is_empty(),
            Self::Majority => beyond,
            _ => true,
        }
    }

    /// Whether plans of this shape are made for it.
    pub(super) fn is_important(self, shape: &Shape) -> bool {
        match self {
            Self::Flaky | Self::Forget | Self::OldData => true,
            Self::Failback | Self::Failover => true,
            Self::StepAhead => shape.class == Class::Within,
            _ => false,
        }
    }

    /// One of it at this time, if it can be.
    pub(super) fn episode(self, shape: &Shape, rolls: &mut Rolls, at: u64) -> Vec<Episode> {
        let mut made = Made::new(self.name(), at);
        match self {
            Self::Slow | Self::Cut | Self::Partition | Self::Break => {
                network(self, shape, rolls, &mut made);
            }
            Self::Drain | Self::Duplicate => copies(self, shape, rolls, &mut made),
            Self::Crash | Self::Forget | Self::OldData | Self::Flush | Self::Freeze => {
                host(self, shape, rolls, &mut made);
            }
            Self::Rates | Self::StepBack | Self::StepAhead | Self::Dates => {
                clocks(self, shape, rolls, &mut made);
            }
            Self::Evict | Self::Full | Self::Clients => {
                server(self, shape, rolls, &mut made);
            }
            Self::Lag | Self::Failback | Self::Failover => {
                replicas(self, shape, rolls, &mut made);
            }
            Self::Pause | Self::Kill | Self::Jitter | Self::Suspend => {
                processes(self, shape, rolls, &mut made);
            }
            Self::Majority => return majority(shape, rolls, at),
            Self::Flaky => return flaky(shape, rolls),
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

    fn loses(&mut self, group: u32, seen: Seen) {
        self.episode.loses = Some((group, seen));
    }

    fn done(self) -> Episode {
        self.episode
    }
}

fn way(rolls: &mut Rolls) -> Way {
    rolls.weighted(&[(3, Way::Both), (1, Way::There), (1, Way::Back)])
}

/// One process is cut off from one host, in one of the ways in which that happens.
fn cut(process: u32, host: HostId, rolls: &mut Rolls) -> Vec<Fault> {
    match rolls.below(4) {
        0 => vec![Fault::Hold {
            process,
            host,
            way: way(rolls),
        }],
        1 => vec![Fault::Lose {
            process,
            host,
            way: way(rolls),
        }],
        2 => vec![
            Fault::Refuse { process, host },
            Fault::Break { process, host },
        ],
        _ => vec![Fault::Hold {
            process,
            host,
            way: Way::Both,
        }],
    }
}

fn network(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let (places, hosts) = (shape.places(), shape.hosts());
    let time = rolls.wide(100, 6_000);
    match kind {
        Kind::Slow => {
            let max_ms = rolls.wide(3, 300);
            for process in rolls.some(&places, 40) {
                for host in rolls.some(&hosts, 40) {
                    let min_ms = rolls.below(max_ms);
                    made.add(
                        0,
                        Fault::Delay {
                            process,
                            host,
                            min_ms,
                            max_ms,
                        },
                    );
                    made.add(time, Fault::Heal { process, host });
                }
            }
        }
        Kind::Cut => {
            let (process, host) = (rolls.pick(&places), rolls.pick(&hosts));
            for fault in cut(process, host, rolls) {
                made.add(0, fault);
            }
            made.add(time, Fault::Heal { process, host });
        }
        Kind::Break => {
            for host in rolls.some(&hosts, 30) {
                for process in rolls.some(&places, 50) {
                    made.add(0, Fault::Break { process, host });
                }
            }
        }
        _ => {
            // Each process and each host is on one side; some hosts are on both.
            let sides: Vec<bool> = places.iter().map(|_| rolls.percent(50)).collect();
            for host in hosts {
                let side = rolls.weighted(&[(35, Some(true)), (35, Some(false)), (30, None)]);
                for (process, own) in places.iter().zip(&sides) {
                    if side.is_none_or(|side| side == *own) {
                        continue;
                    }
                    let process = *process;
                    for fault in cut(process, host, rolls) {
                        made.add(0, fault);
                    }
                    made.add(time, Fault::Heal { process, host });
                }
            }
        }
    }
}

/// What connections carried arrives late, or once more.
fn copies(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let (process, host) = (rolls.pick(&shape.places()), rolls.pick(&shape.hosts()));
    let late_ms = rolls.wide(20, 5_000);
    if kind == Kind::Drain {
        made.add(
            0,
            Fault::DrainLate {
                process,
                host,
                late_ms,
            },
        );
        let time = rolls.range(50, 1_500);
        if rolls.percent(60) {
            made.add(
                time,
                Fault::Hold {
                    process,
                    host,
                    way: Way::Both,
                },
            );
            made.add(
                time + rolls.range(50, 1_000),
                Fault::Break { process, host },
            );
        } else {
            made.add(time, Fault::Break { process, host });
        }
        made.add(time + 2_000, Fault::Heal { process, host });
    } else {
        made.add(
            0,
            Fault::Duplicate {
                process,
                host,
                late_ms,
            },
        );
        made.add(rolls.range(100, 3_000), Fault::Heal { process, host });
    }
}

fn host(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups());
    let master = shape.topology.master(group as usize);
    let host = master;
    let back_after_ms = rolls.wide(10, 3_000);
    let silent = rolls.percent(40);
    let crash = |memory| Fault::Crash {
        host,
        memory,
        back_after_ms,
        silent,
    };
    match kind {
        Kind::Crash => {
            let host = rolls.pick(&shape.hosts());
            let memory = Memory::All;
            made.add(
                0,
                Fault::Crash {
                    host,
                    memory,
                    back_after_ms,
                    silent,
                },
            );
        }
        Kind::Freeze => {
            let host = rolls.pick(&shape.hosts());
            made.add(0, Fault::Freeze { host });
            made.add(rolls.wide(30, 4_000), Fault::Thaw { host });
        }
        Kind::Flush => {
            made.add(0, Fault::Flush { host });
            made.loses(group, Seen::Yes);
        }
        Kind::OldData => {
            let age_ms = rolls.wide(50, 4_000);
            let memory = if rolls.percent(75) {
                Memory::Old { age_ms }
            } else {
                Memory::Cut { ms: age_ms }
            };
            made.add(0, crash(memory));
            made.loses(group, Seen::Yes);
        }
        _ => {
            let percent = rolls.range(10, 90) as u32;
            let memory = if rolls.percent(70) {
                Memory::None
            } else {
                Memory::Some { percent }
            };
            made.add(0, crash(memory));
            made.loses(group, Seen::Yes);
        }
    }
}

/// No clock that leases depend on runs faster or slower than the drift allows for: together less than a hundredth.
const MOST_PPM: u64 = 3_500;

fn clocks(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups());
    let host = shape.topology.master(group as usize);
    let process = rolls.pick(&shape.places());
    match kind {
        Kind::Rates => {
            let ppm = rolls.below(2 * MOST_PPM) as i64 - MOST_PPM as i64;
            if rolls.percent(50) {
                made.add(0, Fault::HostRate { host, ppm });
            } else {
                made.add(0, Fault::ProcessRate { process, ppm });
            }
        }
        Kind::StepBack => {
            let ms = -(rolls.wide(1, 1_500) as i64);
            made.add(0, Fault::HostStep { host, ms });
        }
        Kind::StepAhead => {
            let group = rolls.pick(&shape.unseen);
            let host = shape.topology.master(group as usize);
            let ms = rolls.wide(100, 20_000) as i64;
            made.add(0, Fault::HostStep { host, ms });
            made.loses(group, Seen::No);
        }
        _ => {
            let ms = rolls.range(1, 150) as i64;
            made.add(
                0,
                Fault::ProcessStep {
                    process,
                    ms: if rolls.percent(50) { ms } else { -ms },
                },
            );
        }
    }
}

fn server(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let group = rolls.pick(&shape.groups());
    let host = shape.topology.master(group as usize);
    match kind {
        Kind::Evict => {
            let unseen = shape.unseen.contains(&group) && rolls.percent(50);
            // By then each process that can reach it has seen that it may evict, and uses it no more.
            let after = if unseen { 0 } else { 2_700 };
            made.add(0, Fault::EvictionPolicy { host, on: true });
            for _ in 0..rolls.range(1, 3) {
                let keys = rolls.range(1, 20) as u32;
                made.add(after + rolls.below(500), Fault::Evict { host, keys });
            }
            made.add(
                after + rolls.range(501, 1_200),
                Fault::EvictionPolicy { host, on: false },
            );
            made.loses(group, if unseen { Seen::No } else { Seen::Yes });
        }
        Kind::Full => {
            made.add(0, Fault::OutOfMemory { host, on: true });
            made.add(
                rolls.wide(50, 4_000),
                Fault::OutOfMemory { host, on: false },
            );
        }
        _ => {
            if rolls.percent(50) {
                made.add(0, Fault::FlushScripts { host });
            } else {
                made.add(0, Fault::KillClients { host });
            }
        }
    }
}

fn replicas(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let watched = kind == Kind::Failover;
    let mut groups = shape.with_replicas(watched);
    if kind == Kind::Lag {
        groups.extend(shape.with_replicas(!watched));
    }
    let group = rolls.pick(&groups);
    let servers = shape.topology.servers(group as usize);
    let (master, replica) = (servers[0], servers[1]);
    match kind {
        Kind::Lag => {
            let time = rolls.range(300, 3_000);
            if rolls.percent(50) {
                made.add(
                    0,
                    Fault::ReplicaLag {
                        host: replica,
                        ms: rolls.wide(5, 500),
                    },
                );
                made.add(
                    time,
                    Fault::ReplicaLag {
                        host: replica,
                        ms: 0,
                    },
                );
            } else {
                made.add(
                    0,
                    Fault::ReplicaCut {
                        host: replica,
                        on: true,
                    },
                );
                made.add(
                    time,
                    Fault::ReplicaCut {
                        host: replica,
                        on: false,
                    },
                );
            }
        }
        Kind::Failback => {
            let mut after = rolls.wide(10, 1_500);
            if rolls.percent(70) {
                made.add(
                    0,
                    Fault::ReplicaCut {
                        host: replica,
                        on: true,
                    },
                );
            }
            made.add(after, Fault::Promote { host: replica });
            after += rolls.wide(5, 1_500);
            made.add(
                after,
                Fault::Demote {
                    host: master,
                    of: replica,
                },
            );
            after += rolls.wide(5, 300);
            made.add(after, Fault::Promote { host: master });
            after += rolls.wide(5, 500);
            made.add(
                after,
                Fault::Demote {
                    host: replica,
                    of: master,
                },
            );
            made.add(
                after,
                Fault::ReplicaCut {
                    host: replica,
                    on: false,
                },
            );
            made.loses(group, Seen::Yes);
        }
        _ => {
            let to = rolls.pick(&servers);
            if rolls.percent(40) {
                made.add(0, Fault::ReplicaCut { host: to, on: true });
            }
            let after = rolls.wide(5, 800);
            // The number of a failover is higher than that of every one before.
            let epoch = made.at;
            let (learn_ms, demote_ms) = if rolls.percent(70) {
                let time = after + rolls.range(500, 7_000);
                apart(shape, rolls, made, (group, to), time);
                // The old master learns of it when the network is whole again.
                (rolls.wide(5, 1_000), time - after + rolls.wide(1, 500))
            } else {
                (rolls.wide(5, 3_000), rolls.wide(5, 6_000))
            };
            made.add(
                after,
                Fault::Failover {
                    group,
                    to,
                    epoch,
                    learn_ms,
                    demote_ms,
                },
            );
            made.loses(group, Seen::Yes);
        }
    }
}

/// The network is in two parts, with the new master of a group and most of its Sentinels on one side and its other
/// servers on the other. That is why there is a new one.
fn apart(shape: &Shape, rolls: &mut Rolls, made: &mut Made, new: (u32, HostId), time: u64) {
    let (group, to) = new;
    let servers = shape.topology.servers(group as usize);
    let places = shape.places();
    let sides: Vec<bool> = places.iter().map(|_| rolls.percent(50)).collect();
    let mut left_behind = rolls.below(4);
    for host in shape.hosts() {
        let side = if shape.group(host) != group {
            rolls.weighted(&[(30, Some(true)), (30, Some(false)), (40, None)])
        } else if servers.contains(&host) {
            Some(host == to)
        } else {
            left_behind = left_behind.wrapping_sub(1);
            Some(left_behind != 0)
        };
        for (process, own) in places.iter().zip(&sides) {
            if side.is_some_and(|side| side != *own) {
                let process = *process;
                for fault in cut(process, host, rolls) {
                    made.add(0, fault);
                }
                made.add(time, Fault::Heal { process, host });
            }
        }
    }
}

/// Through the whole plan, each process is cut off now from these hosts, now from those.
fn flaky(shape: &Shape, rolls: &mut Rolls) -> Vec<Episode> {
    let chance = rolls.pick(&[8, 15, 25]);
    let longest = rolls.pick(&[700, 1_500, 4_000]);
    let mut all = Vec::new();
    for host in shape.hosts() {
        for process in shape.places() {
            let mut at = super::generate::QUIET + rolls.below(longest);
            while at < shape.length {
                let time = rolls.range(100, longest);
                if rolls.percent(chance) {
                    let mut made = Made::new(Kind::Flaky.name(), at);
                    for fault in cut(process, host, rolls) {
                        made.add(0, fault);
                    }
                    made.add(time, Fault::Heal { process, host });
                    all.push(made.done());
                }
                at += time + 1;
            }
        }
    }
    all
}

/// A node that two lists have in common is cut off from some processes before anything was granted.
pub(super) fn late(shape: &Shape, rolls: &mut Rolls) -> Vec<Episode> {
    let mut made = Made::new("late", 0);
    let time = rolls.wide(300, 5_000);
    for group in &shape.common {
        let host = shape.topology.master(*group as usize);
        for process in rolls.some(&shape.places(), 70) {
            for fault in cut(process, host, rolls) {
                made.add(0, fault);
            }
            made.add(time, Fault::Heal { process, host });
        }
    }
    vec![made.done()]
}

fn processes(kind: Kind, shape: &Shape, rolls: &mut Rolls, made: &mut Made) {
    let process = rolls.pick(&shape.places());
    match kind {
        Kind::Pause => {
            made.add(0, Fault::Pause { process });
            made.add(rolls.wide(30, 5_000), Fault::Resume { process });
        }
        Kind::Kill => {
            made.add(0, Fault::Kill { process });
            made.add(rolls.wide(5, 3_000), Fault::Start { process });
        }
        Kind::Jitter => {
            let (permille, max_ms) = (rolls.range(5, 100) as u32, rolls.wide(1, 20));
            made.add(
                0,
                Fault::Jitter {
                    process,
                    permille,
                    max_ms,
                },
            );
            let quiet = Fault::Jitter {
                process,
                permille: 0,
                max_ms: 0,
            };
            made.add(rolls.range(500, 4_000), quiet);
        }
        _ => made.add(
            0,
            Fault::Suspend {
                ms: rolls.wide(20, 20_000),
            },
        ),
    }
}

/// Most nodes lose everything at once.
fn majority(shape: &Shape, rolls: &mut Rolls, at: u64) -> Vec<Episode> {
    let groups = rolls.some(&shape.groups(), 80);
    let one = |group: u32| {
        let mut made = Made::new("majority", at + rolls.below(50));
        let host = shape.topology.master(group as usize);
        let memory = Memory::None;
        let back_after_ms = rolls.wide(5, 500);
        made.add(
            0,
            Fault::Crash {
                host,
                memory,
                back_after_ms,
                silent: false,
            },
        );
        made.loses(group, Seen::Yes);
        made.done()
    };
    groups.into_iter().map(one).collect()
}
