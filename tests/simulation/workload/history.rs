//! [`History`]: what happened in a world as far as clients, processes and servers could see it. The checkers read
//! nothing else.

use std::collections::BTreeMap;

use tower_redlock_simulated::world::ProcessId;

/// What happened, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) holders: Vec<Holder>,
    pub(crate) events: Vec<Event>,
}

/// Something that happened at a time, in milliseconds since the beginning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) at: u64,
    pub(crate) what: What,
}

/// A client that was told that it has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) process: ProcessId,
    pub(crate) call: usize,
    /// Its keys, each with its namespace.
    pub(crate) keys: Vec<String>,
    /// The hash of the owner token.
    pub(crate) owner: String,
    pub(crate) fence: Option<u64>,
    /// When the client was told.
    pub(crate) granted: u64,
    /// When the round that won was sent, or earlier.
    pub(crate) started: u64,
    pub(crate) ttl: u64,
    /// Whether it has its key beside other readers.
    pub(crate) is_reader: bool,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// Something that a client or a process waited for took so many milliseconds, of `bound` at most.
    Took {
        process: ProcessId,
        text: String,
        took: u64,
        bound: u64,
    },
    /// A client waited for a key in vain, which no server had for the last so many milliseconds of that.
    Refused {
        call: usize,
        process: ProcessId,
        key: String,
        free: u64,
        bound: u64,
    },
    /// The holder was told that it has its lock. `valid` are all holders that have a key in common with it, itself
    /// included, and are within their validity at this moment by the clocks of their processes.
    Granted {
        holder: usize,
        valid: Vec<usize>,
    },
    /// The holder was told that its lock is lost, when so many microseconds of its validity were left.
    Told {
        holder: usize,
        reason: String,
        left: u64,
    },
    /// The lock ended by itself, whether its holder can be told or not.
    Expired {
        holder: usize,
    },
    /// The holder began to release its lock.
    Ended {
        holder: usize,
    },
    /// What the nodes have of a holder's lock.
    Sample(Sample),
    /// Idempotent work ran, as the run of this number.
    Ran {
        run: u64,
    },
    /// A client got a response that is to be the only one: that of a run, or a replay.
    Saw {
        work: String,
        told: Told,
        /// For how long it is stored.
        retention: u64,
    },
    /// A server lost something.
    Forgot {
        group: u32,
    },
    /// A failover: what the old master is told is lost, too, until it is demoted.
    Replaced {
        group: u32,
        until: u64,
    },
    Paused {
        place: u32,
    },
    Resumed {
        place: u32,
    },
    /// A process knows that its nodes serve it: those of these groups of servers.
    Connected {
        process: ProcessId,
        groups: Vec<u32>,
    },
    /// All machines stood still, and their clocks went on by so much.
    Suspended {
        ms: u64,
    },
    /// What is on a server that should not be.
    Left {
        host: u32,
        key: String,
        when: Stage,
    },
    /// A process acquired a key so long after everything worked again, or did not.
    Progress {
        process: ProcessId,
        key: String,
        took: Option<u64>,
        bound: u64,
    },
    /// What a process has in its memory when it has nothing to do.
    Rest {
        process: ProcessId,
        held: usize,
        keys: usize,
        waiting: usize,
    },
    /// A server keeps a lock that no holder has any more, for so long; it is to be released within `bound`.
    Orphan {
        host: u32,
        key: String,
        age: u64,
        bound: u64,
    },
    /// How many keys a server has in the end, and how many there may be.
    Size {
        host: u32,
        keys: usize,
        most: usize,
    },
    /// A call has not ended when everything else has.
    Hangs {
        call: usize,
    },
}

/// When something was left on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Right after an orderly shutdown that said that nothing is left.
    Shutdown,
    /// When the longest ttl was over.
    Ttl,
    /// A key without an expiry.
    Forever,
    /// A counter that lives longer than any process keeps counters.
    TooLong,
}

/// What a client was told about idempotent work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) process: ProcessId,
    pub(crate) call: usize,
    /// The run whose response it is; none: the response is not that of a run.
    pub(crate) run: Option<u64>,
    /// For whom it was made, as it says.
    pub(crate) addressee: String,
    pub(crate) replayed: bool,
}

/// What the nodes have of a holder's lock while it is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) holder: usize,
    /// How many microseconds of its validity are left, by the clock of its process.
    pub(crate) left: u64,
    /// How many nodes must have it.
    pub(crate) quorum: usize,
    /// For each group of servers that is a node: for how many milliseconds it keeps the holder's token, if it has it.
    pub(crate) nodes: BTreeMap<u32, Option<i64>>,
}

impl History {
    pub(crate) fn push(&mut self, at: u64, what: What) {
        self.events.push(Event { at, what });
    }
}
