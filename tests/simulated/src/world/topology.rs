//! [`Topology`]: which servers, replicas and Sentinels a world has, and their names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A server or a Sentinel: everything that has an address of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(pub u32);

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "h{}", self.0)
    }
}

/// A master with its replicas and Sentinels: what one node of a lock manager leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// How many replicas the master has.
    pub replicas: u32,
    /// How many Sentinels watch it.
    pub sentinels: u32,
}

/// All servers of a world. Hosts are numbered group by group: the master, its replicas, its Sentinels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    pub groups: Vec<Group>,
    /// The `cluster-node-timeout`, in milliseconds, if all servers are those of one cluster, in which the masters of the
    /// groups have even ranges of the slots. It has no Sentinels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<u64>,
}

/// What a host is at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    Master,
    /// A replica, counted from 0 in its group.
    Replica(u32),
    /// A Sentinel, counted from 0 in its group.
    Sentinel(u32),
}

/// The name by which the Sentinels of every group know their master.
pub const MASTER_NAME: &str = "mymaster";

impl Topology {
    /// So many servers without replicas.
    pub fn plain(count: usize) -> Self {
        Self {
            groups: vec![Group::default(); count],
            cluster: None,
        }
    }

    /// A cluster of so many masters, each with so many replicas.
    pub fn cluster(masters: usize, replicas: u32, timeout_ms: u64) -> Self {
        let group = Group {
            replicas,
            sentinels: 0,
        };
        Self {
            groups: vec![group; masters],
            cluster: Some(timeout_ms),
        }
    }

    /// Every host with its group and kind, in order of their ids.
    pub fn hosts(&self) -> Vec<(HostId, usize, HostKind)> {
        let mut hosts = Vec::new();
        for (index, group) in self.groups.iter().enumerate() {
            let replicas = (0..group.replicas).map(HostKind::Replica);
            let sentinels = (0..group.sentinels).map(HostKind::Sentinel);
            for kind in [HostKind::Master]
                .into_iter()
                .chain(replicas)
                .chain(sentinels)
            {
                hosts.push((HostId(hosts.len() as u32), index, kind));
            }
        }
        hosts
    }

    fn find(&self, group: usize, kind: HostKind) -> HostId {
        let hosts = self.hosts();
        let found = hosts.iter().find(|(_, at, is)| (*at, *is) == (group, kind));
        found.expect("the topology has no such host").0
    }

    /// The server that is the group's master at the start.
    pub fn master(&self, group: usize) -> HostId {
        self.find(group, HostKind::Master)
    }

    /// A replica of the group, counted from 0.
    pub fn replica(&self, group: usize, replica: u32) -> HostId {
        self.find(group, HostKind::Replica(replica))
    }

    /// A Sentinel of the group, counted from 0.
    pub fn sentinel(&self, group: usize, sentinel: u32) -> HostId {
        self.find(group, HostKind::Sentinel(sentinel))
    }

    /// The servers of the group, the first master first, without its Sentinels.
    pub fn servers(&self, group: usize) -> Vec<HostId> {
        let replicas = self.groups[group].replicas;
        let replicas = (0..replicas).map(|replica| self.replica(group, replica));
        [self.master(group)].into_iter().chain(replicas).collect()
    }

    /// The URL of the server that is the group's master at the start.
    pub fn url(&self, group: usize) -> String {
        let (host, port) = self.address(self.master(group));
        format!("redis://{host}:{port}")
    }

    /// The URLs of the group's Sentinels.
    pub fn sentinel_urls(&self, group: usize) -> Vec<String> {
        let sentinels = 0..self.groups[group].sentinels;
        let addresses = sentinels.map(|sentinel| self.address(self.sentinel(group, sentinel)));
        addresses
            .map(|(host, port)| format!("redis://{host}:{port}"))
            .collect()
    }

    /// The name and port of a host: `g0`, `g0r1`, `g0s2`.
    pub fn address(&self, host: HostId) -> (String, u16) {
        let hosts = self.hosts();
        let (_, group, kind) = hosts[host.0 as usize];
        match kind {
            HostKind::Master => (format!("g{group}"), 6379),
            HostKind::Replica(number) => (format!("g{group}r{number}"), 6379),
            HostKind::Sentinel(number) => (format!("g{group}s{number}"), 26379),
        }
    }
}

#[test]
fn hosts_are_numbered_group_by_group() {
    let group = Group {
        replicas: 1,
        sentinels: 2,
    };
    let topology = Topology {
        groups: vec![group, Group::default()],
        cluster: None,
    };
    assert_eq!(topology.hosts().len(), 5);
    assert_eq!(topology.replica(0, 0), HostId(1));
    assert_eq!(topology.address(HostId(3)), ("g0s1".to_owned(), 26379));
    assert_eq!(topology.master(1), HostId(4));
    assert_eq!(topology.url(1), "redis://g1:6379");
}
