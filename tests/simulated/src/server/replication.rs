//! Masters and replicas. The caller is the network between them: it takes the changes from the one, and gives them to
//! the other when it likes, in order.

use std::collections::BTreeMap;

use super::data::Data;
use super::image::Image;
use super::{Change, Output, Server};

pub use super::data::Logged;

/// A place in a history of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which history: it gets another name where it may have parted from another one.
    pub id: String,
    pub offset: u64,
}

/// What a replica gets from its master first.
#[derive(Clone, Debug)]
pub enum Sync {
    /// All data.
    Full { image: Image, position: Position },
    /// It has all changes up to its own offset, which are part of the history with this name.
    Continue { id: String },
}

/// The part of a server in replication.
#[derive(Debug)]
pub(super) struct Replication {
    pub(super) id: String,
    /// The history before the last promotion, and the first offset that is not part of it.
    pub(super) former: Option<Position>,
    /// Whether changes are kept for replicas, which begins with the first one.
    pub(super) backlog: bool,
    is_replica: bool,
    /// What each replica has acknowledged, by its address.
    replicas: BTreeMap<(String, u16), u64>,
}

impl Replication {
    pub(super) const fn new(id: String) -> Self {
        Self {
            id,
            former: None,
            backlog: false,
            is_replica: false,
            replicas: BTreeMap::new(),
        }
    }

    /// Whether files of the server tell the position in its history.
    pub(super) const fn tells(&self) -> bool {
        self.backlog || self.is_replica
    }

    /// A new process goes on from a file that tells this position. Returns the offset at which it does.
    pub(super) fn go_on_from(&mut self, position: Option<Position>) -> u64 {
        let Some(position) = position else {
            return 0;
        };
        let offset = position.offset;
        self.former = Some(Position {
            offset: offset + 1,
            ..position
        });
        self.backlog = true;
        offset
    }

    /// How many replicas have all changes up to `offset`.
    pub(super) fn count_acknowledged(&self, offset: u64) -> i64 {
        let replicas = self.replicas.values();
        let have = replicas.filter(|acknowledged| **acknowledged >= offset);
        i64::try_from(have.count()).unwrap()
    }

    /// Each replica with its address and what it has acknowledged.
    pub(super) fn replicas(&self) -> impl Iterator<Item = (&str, u16, u64)> {
        let replicas = self.replicas.iter();
        replicas.map(|((host, port), acknowledged)| (host.as_str(), *port, *acknowledged))
    }
}

impl Server {
    pub const fn is_master(&self) -> bool {
        !self.replication.is_replica
    }

    /// Its place in its history of changes.
    pub fn position(&self) -> Position {
        Position {
            id: self.replication.id.clone(),
            offset: self.data.offset(),
        }
    }

    /// A replica attaches that announces this address, and has what `has` tells. A backup attaches with port 0.
    pub fn attach(&mut self, host: &str, port: u16, has: Option<&Position>) -> Sync {
        let continues = has.is_some_and(|has| self.has_all_after(has));
        let replication = &mut self.replication;
        let acknowledged = has.filter(|_| continues).map_or(0, |has| has.offset);
        let address = (host.to_owned(), port);
        replication.replicas.insert(address, acknowledged);
        if continues {
            let id = replication.id.clone();
            return Sync::Continue { id };
        }
        if !replication.backlog && self.is_master() {
            // Nobody can have a part of its history up to here.
            self.replication.id = self.dice.name();
            self.replication.former = None;
        }
        self.replication.backlog = true;
        Sync::Full {
            image: self.image(),
            position: self.position(),
        }
    }

    /// Whether a server at that place needs nothing but later changes of this one.
    fn has_all_after(&self, has: &Position) -> bool {
        let own = &self.replication;
        let in_former = |former: &Position| has.id == former.id && has.offset < former.offset;
        let shared = has.id == own.id || own.former.as_ref().is_some_and(in_former);
        shared && own.backlog && self.data.changes_after(has.offset).is_some()
    }

    /// A replica's connection has ended.
    pub fn detach(&mut self, host: &str, port: u16) {
        self.replication.replicas.remove(&(host.to_owned(), port));
    }

    /// Its changes after `offset`, for its replicas; `None` if it has only later ones.
    pub fn changes_after(&self, offset: u64) -> Option<Vec<Logged>> {
        Some(self.data.changes_after(offset)?.cloned().collect())
    }

    /// A replica says that it has all changes up to `offset`.
    pub fn acknowledge(&mut self, host: &str, port: u16, offset: u64, now: u64) -> Vec<Output> {
        self.now = now;
        let replicas = &mut self.replication.replicas;
        if let Some(acknowledged) = replicas.get_mut(&(host.to_owned(), port)) {
            *acknowledged = offset.max(*acknowledged);
        }
        self.answer_waits();
        std::mem::take(&mut self.outbox)
    }

    /// Becomes a replica, or one of another master. It keeps its data until it is in [sync](Self::synchronize).
    /// Connections stay, but for those that wait; its own replicas are detached.
    pub fn follow(&mut self) -> Vec<Output> {
        self.unblock_all();
        self.replication.replicas.clear();
        self.replication.is_replica = true;
        std::mem::take(&mut self.outbox)
    }

    /// The master's reply to this replica. Changes follow. Its own replicas are detached.
    pub fn synchronize(&mut self, sync: Sync) {
        let offset = self.data.offset();
        let replication = &mut self.replication;
        match sync {
            Sync::Full { image, position } => {
                replication.id = position.id;
                replication.former = None;
                self.data = Data::new(image.keys, position.offset);
            }
            Sync::Continue { id } => {
                if id != replication.id {
                    let id = std::mem::replace(&mut replication.id, id);
                    let offset = offset + 1;
                    replication.former = Some(Position { id, offset });
                }
            }
        }
        replication.backlog = true;
        replication.replicas.clear();
    }

    /// A change arrives from the master. One that it has already is ignored.
    pub fn apply(&mut self, logged: &Logged, now: u64) -> Vec<Output> {
        self.now = now;
        if !self.is_master() && logged.end > self.data.offset() {
            let millis = |micros: u64| i64::try_from(micros / 1_000).unwrap();
            let later = millis(now) - millis(logged.at);
            self.data.append(Logged {
                end: logged.end,
                at: now,
                change: logged.change.clone().later_by(later),
            });
            if let Change::Publish { channel, message } = &logged.change {
                self.tell_listeners(channel, message);
            }
        }
        std::mem::take(&mut self.outbox)
    }

    /// Becomes a master. Its replicas are detached.
    pub fn promote(&mut self) {
        if self.is_master() {
            return;
        }
        let offset = self.data.offset() + 1;
        let replication = &mut self.replication;
        replication.is_replica = false;
        let id = std::mem::replace(&mut replication.id, self.dice.name());
        replication.former = Some(Position { id, offset });
        replication.replicas.clear();
        replication.backlog = true;
    }

    /// Its last promotion, as clients name it.
    pub fn promotion(&self) -> Option<String> {
        let former = self.replication.former.as_ref();
        former.map(|former| format!("/{}:{}", former.id, former.offset))
    }
}
