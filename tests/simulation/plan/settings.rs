//! [`Shape`]: the servers and processes of a plan.

use std::collections::BTreeSet;

use super::generate::QUIET;
use super::rolls::Rolls;
use super::{Class, Episode, Place, Replicas, Seen, Settings, USUAL_KEEP};
use tower_redlock_simulated::world::{Fault, Group, HostId, Named, Topology};

/// What a plan is about, without what happens in it.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) class: Class,
    pub(super) length: u64,
    pub(super) topology: Topology,
    pub(super) places: Vec<Place>,
    /// Groups whose servers may lose something unseen.
    pub(super) unseen: Vec<u32>,
    /// Groups that lists with other nodes have in common.
    pub(super) common: Vec<u32>,
    /// The dates of the processes at their start.
    pub(super) dates: Vec<Episode>,
    /// How many nodes a quorum can spare, in the process that can spare least.
    pub(super) spare: usize,
}

/// The kinds of lists of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nodes {
    Plain(u32),
    Masking(u32),
    Replicas,
    Sentinels,
    Overlapping,
    /// This many slots of a cluster.
    Cluster(u32),
}

pub(super) fn shape(seed: u64, class: Class, length: u64) -> Shape {
    let mut rolls = Rolls::new(seed, "shape");
    let nodes = rolls.weighted(&[
        (26, Nodes::Plain(3)),
        (9, Nodes::Plain(5)),
        (5, Nodes::Plain(1)),
        (2, Nodes::Plain(7)),
        (6, Nodes::Masking(4)),
        (2, Nodes::Masking(6)),
        (17, Nodes::Replicas),
        (26, Nodes::Sentinels),
        (14, Nodes::Overlapping),
        (6, Nodes::Cluster(3)),
        (3, Nodes::Cluster(1)),
    ]);
    let is_cluster = matches!(nodes, Nodes::Cluster(_));
    let topology = Topology {
        groups: groups(nodes, &mut rolls),
        cluster: is_cluster.then(|| rolls.pick(&[300, 600, 1_500])),
    };
    let mask = u32::from(matches!(nodes, Nodes::Masking(_)));
    let settings = first_settings(nodes, &topology, mask, &mut rolls);
    let count = rolls.weighted(&[(25, 2), (50, 3), (25, 4)]);
    let mut places: Vec<Place> = (0..count)
        .map(|place| one_place(place, nodes, &settings, &mut rolls))
        .collect();
    let foreign = class == Class::Beyond || rolls.percent(10);
    if foreign && nodes != Nodes::Overlapping && rolls.percent(60) {
        disagree(&mut places, class, &mut rolls);
    }
    let spare = places.iter().flat_map(|place| &place.lives);
    let spare = spare.map(Settings::spare).min().unwrap_or(0);
    let groups: Vec<u32> = (0..topology.groups.len() as u32).collect();
    let unseen = match (class, mask) {
        (Class::Beyond, _) => groups,
        (Class::Within, 0) => Vec::new(),
        (Class::Within, _) => vec![rolls.pick(&groups)],
    };
    let common = match nodes {
        Nodes::Overlapping => common(&places),
        _ => Vec::new(),
    };
    let dates = dates(&mut places, settings.skew.unwrap_or(1_000), &mut rolls);
    Shape {
        class,
        length,
        topology,
        places,
        unseen,
        common,
        dates,
        spare,
    }
}

fn groups(nodes: Nodes, rolls: &mut Rolls) -> Vec<Group> {
    let plain = |count: u32| vec![Group::default(); count as usize];
    let group = |replicas, sentinels| Group {
        replicas,
        sentinels,
    };
    match nodes {
        Nodes::Plain(count) | Nodes::Masking(count) => plain(count),
        Nodes::Overlapping => plain(rolls.weighted(&[(3, 5), (1, 4)])),
        Nodes::Cluster(_) => vec![group(rolls.weighted(&[(3, 1), (1, 2)]), 0); 3],
        Nodes::Replicas => {
            let mut groups = [0; 3].map(|_| group(rolls.percent(60).into(), 0));
            groups[0].replicas = 1;
            groups.into()
        }
        Nodes::Sentinels => {
            let mut groups = plain(3);
            for (index, one) in groups.iter_mut().enumerate() {
                if index == 0 || rolls.percent(30) {
                    *one = group(rolls.range(1, 2) as u32, 3);
                }
            }
            groups
        }
    }
}

/// The settings that all processes begin with.
fn first_settings(nodes: Nodes, topology: &Topology, mask: u32, rolls: &mut Rolls) -> Settings {
    let max_ttl = rolls.pick(&[1_000, 2_000, 2_000, 3_000]);
    let ttl = rolls.weighted(&[(2, 400), (2, 700), (2, 1_000), (3, max_ttl)]);
    let replicas = match nodes {
        Nodes::Replicas => rolls.pick(&[Replicas::Expected, Replicas::Required]),
        _ => Replicas::Plain,
    };
    let node_timeout = rolls.pick(&[25, 40, 60, 60, 200, 300]);
    Settings {
        nodes: match nodes {
            // The slot in the middle is that of the group in the middle.
            Nodes::Cluster(1) => vec![1],
            _ => (0..topology.groups.len() as u32).collect(),
        },
        namespace: "lk".to_owned(),
        ttl,
        max_ttl,
        node_timeout: match replicas {
            Replicas::Required => 90,
            _ => node_timeout,
        },
        max_wait: rolls.pick(&[500, 1_500, 3_000]),
        max_hold: rolls.pick(&[2_000, 10_000, 60_000]),
        mask,
        skew: Some(rolls.weighted(&[(5, 200), (3, 1_000), (2, 4_000)])),
        keep: Some(rolls.weighted(&[(6, USUAL_KEEP), (2, 3_000)])),
        passes: rolls.pick(&[0, 1, 8, 32]),
        pass_time: rolls.pick(&[50, 250, 1_000, 5_000]),
        bootstrap: nodes != Nodes::Overlapping && rolls.percent(75),
        lazy: false,
        replicas,
        confirm: rolls.pick(&[200, 500, 1_000, 2_000]),
        watchers: 3,
        retention: rolls.weighted(&[(3, 3_600_000), (2, 4_000), (2, 3_000), (1, 1_500)]),
        waiters: rolls.weighted(&[(4, 64), (1, 2)]),
    }
}

fn one_place(place: u32, nodes: Nodes, first: &Settings, rolls: &mut Rolls) -> Place {
    let mut own = first.clone();
    if nodes == Nodes::Overlapping {
        let from = (place % 2) * (first.nodes.len() as u32 - 3);
        own.nodes = (from..from + 3).collect();
        own.lazy = rolls.percent(40);
        // One that lists have in common may forget once, if this is so.
        own.skew = own.skew.map(|skew| skew.max(1_000));
    }
    let is_mixed = nodes != Nodes::Overlapping;
    if is_mixed && rolls.percent(40) {
        own.ttl = rolls.pick(&[300, own.ttl, own.max_ttl]);
    }
    let start = match rolls.percent(85) {
        true => 0,
        false => rolls.range(QUIET, 6_000),
    };
    own.bootstrap &= start == 0;
    own.lazy |= !own.bootstrap && rolls.percent(15);
    let mut lives = vec![own.clone()];
    // A new version of the program has other settings.
    let mut next = own;
    next.bootstrap = false;
    if is_mixed && rolls.percent(40) {
        next.ttl = rolls.pick(&[300, 700, next.max_ttl]);
        next.max_hold = rolls.pick(&[2_000, 10_000]).max(next.ttl);
    }
    if next.replicas != Replicas::Plain && rolls.percent(40) {
        next.replicas = rolls.pick(&[Replicas::Expected, Replicas::Required]);
        next.node_timeout = 90;
    }
    if nodes != Nodes::Replicas && rolls.percent(8) {
        next.replicas = Replicas::Expected;
    }
    lives.push(next);
    if nodes != Nodes::Replicas && rolls.percent(4) {
        lives[0].replicas = Replicas::Expected;
    }
    for settings in &mut lives {
        settings.max_hold = settings.max_hold.max(settings.ttl);
    }
    Place { start, lives }
}

/// One process, from the start or later, has settings that do not go with the others'.
fn disagree(places: &mut [Place], class: Class, rolls: &mut Rolls) {
    let odd = rolls.below(places.len() as u64) as usize;
    let lives = &mut places[odd].lives;
    let from = rolls.below(2) as usize;
    let what = rolls.below(if class == Class::Beyond { 8 } else { 7 });
    for settings in &mut lives[from..] {
        settings.bootstrap = false;
        match what {
            0 | 6 => settings.skew = None,
            1 => settings.keep = None,
            2 => settings.max_ttl += 1_000,
            3 => settings.namespace = "other".to_owned(),
            4 if settings.nodes.len() > 3 => settings.mask = 1 - settings.mask.min(1),
            4 => settings.ttl = settings.max_ttl + 1_000,
            5 => settings.watchers = 1,
            _ => settings.replicas = Replicas::Plain,
        }
    }
}

/// The groups in more than one of the lists, but not in all.
fn common(places: &[Place]) -> Vec<u32> {
    let lists: BTreeSet<_> = places.iter().map(|place| &place.lives[0].nodes).collect();
    let all: BTreeSet<u32> = lists.iter().flat_map(|list| list.iter().copied()).collect();
    let lists_of = |group: &u32| lists.iter().filter(|list| list.contains(group)).count();
    all.into_iter().filter(|one| lists_of(one) > 1).collect()
}

/// The dates of the processes: alike, apart as far as they were told, or wild.
fn dates(places: &mut [Place], told: u64, rolls: &mut Rolls) -> Vec<Episode> {
    let most = match rolls.below(10) {
        0..=4 => return Vec::new(),
        5..=8 => told.saturating_sub(200) as i64,
        _ => {
            // Records end by these clocks.
            for settings in places.iter_mut().flat_map(|place| &mut place.lives) {
                settings.retention = 86_400_000;
            }
            3 * 3_600_000
        }
    };
    // Those that are as far apart as they may be are the first to find what depends on dates.
    let steps = (0..places.len() as u32).map(|process| {
        let ms = match rolls.below(4) {
            0 => 0,
            1 => most,
            _ => rolls.below(most as u64 + 1) as i64,
        };
        (0, Fault::ProcessStep { process, ms })
    });
    vec![Episode {
        name: "dates".to_owned(),
        loses: None,
        steps: steps.collect(),
    }]
}

impl Shape {
    /// The places, as processes are named.
    pub(super) fn places(&self) -> Vec<u32> {
        (0..self.places.len() as u32).collect()
    }

    /// All servers and Sentinels.
    pub(super) fn hosts(&self) -> Vec<HostId> {
        let hosts = self.topology.hosts().into_iter();
        hosts.map(|(host, ..)| host).collect()
    }

    /// The group of a host.
    pub(super) fn group(&self, host: HostId) -> u32 {
        self.topology.hosts()[host.0 as usize].1 as u32
    }

    pub(super) fn groups(&self) -> Vec<u32> {
        (0..self.topology.groups.len() as u32).collect()
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.topology.cluster.is_some()
    }

    /// Groups with replicas and without Sentinels, or with both.
    pub(super) fn with_replicas(&self, watched: bool) -> Vec<u32> {
        let is_one = |group: &Group| group.replicas > 0 && (group.sentinels > 0) == watched;
        let mut groups = self.groups();
        groups.retain(|group| is_one(&self.topology.groups[*group as usize]));
        groups
    }

    /// Whether what is promised covers this.
    pub(super) fn covers(&self, episode: &Episode) -> bool {
        let is_covered = match episode.loses {
            // However many nodes forget at once.
            None | Some((_, Seen::Yes)) => true,
            Some((group, Seen::No)) => self.unseen.contains(&group),
        };
        // The node that two lists have in common must be reached, and must remember.
        let is_spared = |fault: &Fault| {
            let mut names = fault.names().into_iter();
            let host = names.find(|(named, _)| *named == Named::Host);
            leaves_alone(fault)
                || host
                    .is_none_or(|(_, host)| !self.common.contains(&self.group(HostId(host as u32))))
        };
        is_covered && episode.steps.iter().all(|(_, fault)| is_spared(fault))
    }
}

/// Whether a host that the fault is about is reached and remembers all the same.
fn leaves_alone(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Delay { max_ms: ..10, .. }
            | Fault::HostRate { .. }
            | Fault::KillClients { .. }
            | Fault::FlushScripts { .. }
            | Fault::Scribble { .. }
            | Fault::Heal { .. }
            | Fault::Thaw { .. }
    )
}
