//! What clients see of a cluster: `CLUSTER NODES`, and the refusal of commands whose slot is elsewhere.

use super::cluster::{Cluster, Member, Packet, Step};
use super::commands::{Call, Command};
use super::numbers::integer;
use super::resp::Reply;
use super::{Dialect, Server};

const SLOTS: usize = 16_384;
const CROSS_SLOT: Reply = Reply::error("CROSSSLOT Keys in request don't hash to the same slot");
const NOT_SERVED: Reply = Reply::error("CLUSTERDOWN Hash slot not served");
const DOWN: Reply = Reply::error("CLUSTERDOWN The cluster is down");
const NO_CLUSTER: Reply = Reply::error("ERR This instance has cluster support disabled");

/// What a script is told whose key is elsewhere.
pub(super) const fn not_local(dialect: Dialect) -> Reply {
    Reply::error(match dialect {
        Dialect::Redis62 => "Lua script attempted to access a non local key in a cluster node",
        Dialect::Valkey91 => "ERR Attempted to access a non local key in a cluster node",
        _ => "ERR Script attempted to access a non local key in a cluster node",
    })
}

/// The slot of a key: of what is in its first braces, if it has any that are not empty.
fn slot_of(key: &[u8]) -> usize {
    let open = key.iter().position(|byte| *byte == b'{');
    let inner = open.and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close]).filter(|inner| !inner.is_empty())
    });
    // CRC-16/XMODEM.
    let shift = |crc: u16, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
    let step = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), shift);
    usize::from(inner.unwrap_or(key).iter().fold(0, step)) % SLOTS
}

/// The keys and sharded channels of a call.
fn keys<'a>(name: &str, words: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
    match name {
        "eval" | "evalsha" => {
            let count = integer(words[2]).and_then(|count| usize::try_from(count).ok());
            words[3..].get(..count.unwrap_or(0)).unwrap_or_default()
        }
        "mget" | "del" | "ssubscribe" | "sunsubscribe" => &words[1..],
        "get" | "set" | "hmget" | "hset" | "pttl" | "pexpire" | "hdel" | "spublish" | "type"
        | "pexpiretime" | "hgetall" => &words[1..2],
        _ => &[],
    }
}

impl Cluster {
    /// The range of slots that this one is in.
    fn range_of(&self, slot: usize) -> usize {
        ((slot + 1) * self.owners.len() - 1) / SLOTS
    }

    fn elsewhere(&self, keys: &[&[u8]]) -> Option<Reply> {
        let slot = slot_of(keys.first()?);
        if keys.iter().any(|key| slot_of(key) != slot) {
            return Some(CROSS_SLOT);
        }
        match self.owners[self.range_of(slot)] {
            None => Some(NOT_SERVED),
            Some(_) if self.is_down => Some(DOWN),
            Some(owner) if owner == self.own => None,
            Some(owner) => {
                let there = &self.members[owner];
                let (host, port) = (&there.host, there.port);
                Some(Reply::failure(format!("MOVED {slot} {host}:{port}")))
            }
        }
    }

    /// A line of `CLUSTER NODES`.
    fn line(&self, member: Member, now: u64) -> String {
        let known = &self.members[member];
        let (host, port, bus) = (&known.host, known.port, known.port + 10_000);
        let own = if member == self.own { "myself," } else { "" };
        let role = known.master.map_or("master", |_| "slave");
        let failed = self.silent(member, now).map(|failed| format!(",{failed}"));
        let failed = failed.unwrap_or_default();
        let master = known.master.map_or_else(|| "-".to_owned(), id);
        let config = self.members[known.master.unwrap_or(member)].config;
        let ranges = self.owners.iter().enumerate();
        let ranges = ranges.filter(|(_, owner)| **owner == Some(member));
        let first = |range: usize| range * SLOTS / self.owners.len();
        let ranges = ranges.map(|(range, _)| format!(" {}-{}", first(range), first(range + 1) - 1));
        let (id, ranges) = (id(member), ranges.collect::<String>());
        format!(
            "{id} {host}:{port}@{bus} {own}{role}{failed} {master} 0 0 {config} connected{ranges}\n"
        )
    }
}

/// The name of a server, which it keeps.
fn id(member: Member) -> String {
    format!("{:040x}", member + 1)
}

pub(super) fn nodes(server: &mut Server, _: &Call<'_>) -> Reply {
    let Some(cluster) = &server.cluster else {
        return NO_CLUSTER;
    };
    let all = 0..cluster.members.len();
    let lines = all.map(|member| cluster.line(member, server.now));
    Reply::Verbatim(lines.collect::<String>().into_bytes())
}

impl Server {
    /// Makes it a server of a cluster.
    pub fn join_cluster(&mut self, cluster: Cluster) {
        self.cluster = Some(cluster);
    }

    /// How it calls itself.
    pub(super) const fn mode(&self) -> &'static str {
        match self.cluster {
            Some(_) => "cluster",
            None => "standalone",
        }
    }

    /// Why this server does not run a command in its cluster.
    pub(super) fn elsewhere(&self, command: &Command, words: &[&[u8]]) -> Option<Reply> {
        let cluster = self.cluster.as_ref()?;
        cluster.elsewhere(keys(command.name, words))
    }

    /// Time has passed in its cluster: to be called ten times a second.
    pub fn tick_cluster(&mut self, now: u64) -> Vec<Step> {
        self.in_cluster(now, |server, cluster| {
            let mut steps = cluster.tick(now);
            steps.extend(cluster.elect(now, &mut server.dice));
            steps
        })
    }

    /// Another server tells it something.
    pub fn hear(&mut self, packet: &Packet, now: u64) -> Vec<Step> {
        self.in_cluster(now, |_, cluster| cluster.hear(packet, now))
    }

    /// It is told to take the place of its master: `CLUSTER FAILOVER FORCE`.
    pub fn demand_failover(&mut self, now: u64) -> Vec<Step> {
        self.in_cluster(now, |server, cluster| {
            cluster.demand(now);
            cluster.elect(now, &mut server.dice)
        })
    }

    /// Who listens to a slot that gets another server listens no more.
    fn in_cluster(
        &mut self,
        now: u64,
        work: impl FnOnce(&mut Self, &mut Cluster) -> Vec<Step>,
    ) -> Vec<Step> {
        let Some(mut cluster) = self.cluster.take() else {
            return Vec::new();
        };
        self.now = now;
        let before = cluster.owners.clone();
        let steps = work(self, &mut cluster);
        let has_moved = |channel: &[u8]| {
            let range = cluster.range_of(slot_of(channel));
            cluster.owners[range] != before[range]
        };
        if cluster.owners != before {
            self.end_sharded(has_moved);
        }
        self.cluster = Some(cluster);
        steps
    }
}

#[test]
fn slots_are_those_of_the_specification() {
    assert_eq!(slot_of(b"123456789"), 12_739);
    assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
    assert_eq!(slot_of(b"foo{}{bar}"), slot_of(b"foo{}{bar}"));
    assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
}
