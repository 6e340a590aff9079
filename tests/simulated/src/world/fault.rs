//! [`Fault`]: everything that can be done to a world while it runs.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::topology::HostId;

/// One direction between a process and a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the process to the host.
    There,
    /// From the host to the process.
    Back,
    Both,
}

/// What a server that crashed knows when it is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Memory {
    /// Everything.
    All,
    /// Nothing.
    None,
    /// Each key with this chance, in percent.
    Some { percent: u32 },
    /// What it had so long ago: its log is cut short, or it has an old file.
    Old { age_ms: u64 },
}

/// Why a server refuses commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// `BUSY`: somebody's script does not end.
    Busy,
    /// `MISCONF`: it cannot save.
    CannotSave,
    /// `NOPERM`: its users may not run scripts.
    NoScripts,
}

/// What can be done to a world. Everything lasts until something else ends it; `HealAll` ends all.
///
/// Processes are named by their place, so a fault of the network outlives the process in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub enum Fault {
    // The network between one process and one host.
    /// Every message takes between so many milliseconds, each way.
    Delay {
        process: u32,
        host: HostId,
        min_ms: u64,
        max_ms: u64,
    },
    /// Messages wait, and are delivered when the pair is healed. New connections wait, too, if the way is `There` or
    /// `Both`.
    Hold {
        process: u32,
        host: HostId,
        way: Way,
    },
    /// Messages vanish, and with them all that follow on the same connection: such a connection carries nothing any
    /// more in that direction, also after the pair is healed, and breaks at last.
    Lose {
        process: u32,
        host: HostId,
        way: Way,
    },
    /// New connections are refused at once; those that exist go on.
    Refuse {
        process: u32,
        host: HostId,
    },
    /// Connections that exist break at once, on both sides.
    Break {
        process: u32,
        host: HostId,
    },
    /// What a client wrote before it gave up a connection arrives so much later, from now on.
    DrainLate {
        process: u32,
        host: HostId,
        late_ms: u64,
    },
    /// What is written on connections that exist now is delivered a second time, so much later, on a connection of its
    /// own, whose replies nobody reads.
    Duplicate {
        process: u32,
        host: HostId,
        late_ms: u64,
    },
    /// Ends all of the above for the pair.
    Heal {
        process: u32,
        host: HostId,
    },

    // A host.
    /// It dies and is back after a time. Its clients see their connections break, unless it falls `silent`: then they
    /// see nothing until they try again (as when power is lost).
    Crash {
        host: HostId,
        memory: Memory,
        back_after_ms: u64,
        silent: bool,
    },
    /// It stands still; what is sent to it waits.
    Freeze {
        host: HostId,
    },
    Thaw {
        host: HostId,
    },
    /// Its clock runs so many parts per million too fast, or too slow.
    HostRate {
        host: HostId,
        ppm: i64,
    },
    /// Its clock jumps.
    HostStep {
        host: HostId,
        ms: i64,
    },
    /// It throws away so many random keys, if its policy allows that.
    Evict {
        host: HostId,
        keys: u32,
    },
    /// Its eviction policy becomes `allkeys-random`, or `volatile-random`, or `noeviction` again.
    EvictionPolicy {
        host: HostId,
        on: bool,
        /// What never expires is kept.
        #[serde(default)]
        volatile: bool,
    },
    OutOfMemory {
        host: HostId,
        on: bool,
    },
    /// It refuses commands for this reason.
    Refuses {
        host: HostId,
        why: Refusal,
        on: bool,
    },
    /// `FLUSHALL`.
    Flush {
        host: HostId,
    },
    /// `CLIENT KILL` of every client.
    KillClients {
        host: HostId,
    },
    /// `SCRIPT FLUSH`.
    FlushScripts {
        host: HostId,
    },
    /// Another client writes nonsense over a counter of fencing tokens: one of them, and one of some kinds of nonsense,
    /// both by this number.
    Scribble {
        host: HostId,
        seed: u64,
    },

    // Replicas and Sentinels.
    /// What the master of the host writes reaches it so much later, from now on.
    ReplicaLag {
        host: HostId,
        ms: u64,
    },
    /// The link from its master to it is cut, or healed.
    ReplicaCut {
        host: HostId,
        on: bool,
    },
    /// It becomes a master. In a cluster it asks for votes at once, and becomes one with most of them.
    Promote {
        host: HostId,
    },
    /// It becomes a replica of another host of its group, and takes over that one's data.
    Demote {
        host: HostId,
        of: HostId,
    },
    /// A Sentinel comes to the opinion that a host is the master, by the failover of this number.
    Opinion {
        sentinel: HostId,
        master: HostId,
        epoch: u64,
    },
    /// A whole failover in the group: `to` is promoted now, the Sentinels learn of it one after the other within
    /// `learn_ms`, and all other servers of the group are demoted `demote_ms` later.
    Failover {
        group: u32,
        to: HostId,
        epoch: u64,
        learn_ms: u64,
        demote_ms: u64,
    },
    /// Between two servers of a cluster, a message takes so many milliseconds each way (0: as ever, 1 to 3); without a
    /// number nothing arrives, and nothing is replicated.
    Bus {
        host: HostId,
        to: HostId,
        ms: Option<u64>,
    },

    // A process.
    /// It stands still; its clock goes on.
    Pause {
        process: u32,
    },
    Resume {
        process: u32,
    },
    /// Handlers block its threads: only what is aside goes on.
    Block {
        process: u32,
    },
    Unblock {
        process: u32,
    },
    /// It dies at once, with everything in it. What it sent may still arrive.
    Kill {
        process: u32,
    },
    /// A new process takes the place of one that died. No effect if one lives there.
    Start {
        process: u32,
    },
    /// Its clock, by which it measures leases, runs so many parts per million too fast or too slow.
    ProcessRate {
        process: u32,
        ppm: i64,
    },
    /// Its clock, by which it tells the date, jumps.
    ProcessStep {
        process: u32,
        ms: i64,
    },
    /// Each step of its tasks is put off, with this chance in thousand, by up to `max_ms`.
    Jitter {
        process: u32,
        permille: u32,
        max_ms: u64,
    },

    // All.
    /// All machines are suspended at once: every clock goes on by so much, and nothing happens meanwhile.
    Suspend {
        ms: u64,
    },
    /// Everything works again: pairs are healed, hosts are back and thawed and have their memory, processes resumed
    /// (not started), clocks run right. Where a group without Sentinels has its master at another address than its
    /// processes were given, the servers get their first roles back, as somebody would do. Failovers by Sentinels
    /// and dates stay as they are.
    HealAll,
}

/// What a fault names by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Process,
    Host,
    Group,
}

impl Fault {
    /// Everything that it names, each with its number.
    pub fn names(&self) -> Vec<(Named, u64)> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        let fields = fields.as_object().into_iter().flatten();
        let name = |(field, number): (&String, &serde_json::Value)| {
            let named = match field.as_str() {
                "process" => Named::Process,
                "group" => Named::Group,
                "host" | "of" | "to" | "sentinel" | "master" => Named::Host,
                _ => return None,
            };
            Some((named, number.as_u64()?))
        };
        fields.filter_map(name).collect()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
