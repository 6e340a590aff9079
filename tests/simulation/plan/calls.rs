//! What the clients of a plan do.

use super::rolls::Rolls;
use super::settings::Shape;
use super::{Action, Asked, Call, Cut, Lock, Nested, Once, OnceEnd, Route, Share};

/// The kinds of work, of which a plan has a random subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    Several,
    Nested,
    Run,
    Once,
    Request,
    Stop,
}

/// All calls of a plan.
pub(super) fn calls(seed: u64, shape: &Shape, keys: u32) -> Vec<Call> {
    let mut rolls = Rolls::new(seed, "calls");
    let mut kinds = vec![Kind::Lock];
    for (chance, kind) in [
        (35, Kind::Several),
        (25, Kind::Nested),
        (20, Kind::Run),
        (50, Kind::Once),
        (50, Kind::Request),
        (25, Kind::Stop),
    ] {
        if rolls.percent(chance) {
            kinds.push(kind);
        }
    }
    let mut work = Work {
        shape,
        keys,
        works: 0,
        holds: rolls.pick(&[100, 600, 2_000, 6_000]),
        cuts: rolls.pick(&[0, 10, 30]),
        routes: rolls.some(&Route::ALL, 30),
        rolls,
        kept: Rolls::new(seed, "kept"),
        calls: Vec::new(),
    };
    work.rolls = Rolls::new(seed, "repeats");
    for _ in 0..work.rolls.weighted(&[(4, 0), (3, 1), (2, 2)]) {
        work.come_back();
    }
    work.rolls = Rolls::new(seed, "work");
    let count = work.calls.len() + work.rolls.wide(25, 110) as usize;
    while work.calls.len() < count {
        // Locks are what it is about in the first place.
        let kind = if work.rolls.percent(45) {
            Kind::Lock
        } else {
            work.rolls.pick(&kinds)
        };
        let at = work.rolls.range(50, shape.length.saturating_sub(200));
        work.add(kind, at);
    }
    work.rolls = Rolls::new(seed, "shares");
    for (chance, share) in [(50, Share::Readers), (30, Share::Permits)] {
        if work.rolls.percent(chance) {
            for _ in 0..work.rolls.range(1, 6) {
                work.share(share);
            }
        }
    }
    work.calls
}

struct Work<'a> {
    shape: &'a Shape,
    keys: u32,
    works: u32,
    holds: u64,
    cuts: u64,
    routes: Vec<Route>,
    rolls: Rolls,
    kept: Rolls,
    calls: Vec<Call>,
}

impl Work<'_> {
    fn place(&mut self) -> u32 {
        self.rolls.below(self.shape.places.len() as u64) as u32
    }

    fn key(&mut self) -> u32 {
        self.rolls.below(u64::from(self.keys)) as u32
    }

    fn some_keys(&mut self) -> Vec<u32> {
        let all: Vec<u32> = (0..self.keys + 1).collect();
        self.rolls.some(&all, 60)
    }

    /// The number of some idempotent work: mostly one that there was not yet.
    fn work(&mut self) -> u32 {
        if self.rolls.percent(75) {
            self.works += 1;
        }
        let before = self.rolls.below(3) as u32;
        self.works
            .saturating_sub(if self.rolls.percent(70) { 0 } else { before })
    }

    fn wait(&mut self) -> u64 {
        if self.rolls.percent(45) {
            0
        } else {
            self.rolls.wide(20, 2_500)
        }
    }

    /// How long the repeats of something go on.
    fn span(&mut self, at: u64) -> u64 {
        let left = self.shape.length.saturating_sub(at).max(100);
        self.rolls.wide(10, 9_000).min(left)
    }

    /// Mostly short; but some work takes as long as it ever does.
    fn hold(&mut self) -> u64 {
        if self.rolls.percent(20) {
            self.rolls.range(self.holds / 3, self.holds)
        } else {
            self.rolls.wide(1, self.holds)
        }
    }

    /// When something is asked for again: now and then, or by a client that goes on asking.
    fn repeats(&mut self, at: u64, most: u64) -> Vec<u64> {
        let span = self.span(at);
        if self.rolls.percent(25) {
            let gap = self.rolls.range(150, 900);
            return (0..self.rolls.range(4, 25))
                .map(|again| at + again * gap)
                .take_while(|at| *at < self.shape.length)
                .collect();
        }
        (0..self.rolls.range(2, most))
            .map(|_| at + self.rolls.below(span))
            .collect()
    }

    fn push(&mut self, at: u64, place: u32, action: Action) {
        let cut = match self.rolls.below(100) {
            roll if roll >= self.cuts => Cut::Never,
            roll if roll % 2 == 0 => Cut::After(self.rolls.wide(1, 800)),
            _ => {
                let polls = self.rolls.range(1, 9) as u32;
                match self.kept.percent(40) {
                    true => Cut::Kept(polls, self.kept.wide(30, 5_000)),
                    false => Cut::Polls(polls),
                }
            }
        };
        self.calls.push(Call {
            at,
            place,
            cut,
            action,
        });
    }

    fn add(&mut self, kind: Kind, at: u64) {
        let place = self.place();
        let (wait, hold) = (self.wait(), self.hold());
        let key = self.key();
        match kind {
            Kind::Lock => self.lock(at, place, Lock::new(vec![key], wait, hold, false)),
            Kind::Several => {
                let (keys, drops) = (self.some_keys(), self.rolls.percent(30));
                self.push(at, place, Action::Lock(Lock::new(keys, wait, hold, drops)));
            }
            Kind::Nested => {
                let nested = Nested {
                    keys: self.some_keys(),
                    inner: self.some_keys(),
                    wait,
                    hold,
                };
                self.push(at, place, Action::Nested(nested));
            }
            Kind::Run => self.push(at, place, Action::Run { key, hold }),
            Kind::Once => self.once(at),
            Kind::Request => self.request(at),
            Kind::Stop => {
                let (grace, back) = (self.rolls.wide(1, 2_000), self.rolls.wide(1, 2_000));
                self.push(at.max(2_000), place, Action::Stop { grace, back });
            }
        }
    }

    fn lock(&mut self, at: u64, place: u32, mut lock: Lock) {
        lock.drops = self.rolls.percent(30);
        self.push(at, place, Action::Lock(lock.clone()));
        // Some ask again and again: they are the first to find what a node has forgotten.
        if self.rolls.percent(25) {
            let other = self.place();
            let gap = self.rolls.range(5, 60);
            (lock.wait, lock.drops) = (0, false);
            for again in 1..self.rolls.range(2, 6) {
                self.push(at + again * gap, other, Action::Lock(lock.clone()));
            }
        }
    }

    /// Several that may have a key at once, from several processes.
    fn share(&mut self, share: Share) {
        let at = self.rolls.range(50, self.shape.length.saturating_sub(200));
        let key = self.key();
        for at in self.repeats(at, 8) {
            let place = self.place();
            let (wait, hold) = (self.wait(), self.hold());
            let mut lock = Lock::new(vec![key], wait, hold, self.rolls.percent(30));
            lock.share = share;
            self.push(at, place, Action::Lock(lock));
        }
    }

    /// A client that comes back with one idempotency key, to whichever process, as long as the plan lasts.
    fn come_back(&mut self) {
        let once = self.work();
        let key = self.key();
        let route = self.rolls.pick(&Route::ALL);
        let is_request = self.rolls.percent(50);
        let (gap, work) = (self.rolls.range(200, 900), self.rolls.wide(1, 300));
        let action = match is_request {
            true => Action::Request(Asked {
                route,
                key,
                once,
                caller: 0,
                host: 0,
                work,
            }),
            false => Action::Once(Once {
                key: once,
                wait: 0,
                work,
                end: OnceEnd::Complete,
            }),
        };
        let mut at = self.rolls.range(300, self.shape.length / 2);
        while at < self.shape.length {
            let place = self.place();
            self.push(at, place, action.clone());
            at += gap + self.rolls.below(gap);
        }
    }

    /// Work under one idempotency key, from several processes.
    fn once(&mut self, at: u64) {
        let key = self.work();
        for at in self.repeats(at, 8) {
            let place = self.place();
            let once = Once {
                key,
                wait: self.wait(),
                work: self.rolls.wide(1, 1_200),
                end: self.rolls.weighted(&[
                    (8, OnceEnd::Complete),
                    (1, OnceEnd::Abandon),
                    (1, OnceEnd::Drop),
                ]),
            };
            self.push(at, place, Action::Once(once));
        }
    }

    /// A request, and its repeats in several processes.
    fn request(&mut self, at: u64) {
        let (route, key) = (self.rolls.pick(&self.routes.clone()), self.key());
        let (once, caller) = (self.work(), self.rolls.below(2) as u32);
        let host = self.rolls.below(2) as u32;
        for at in self.repeats(at, 6) {
            let place = self.place();
            let work = self.rolls.wide(1, 800);
            // Another client or another host with the same key is another matter.
            let mut or_other = |one: u32| if self.rolls.percent(10) { 1 - one } else { one };
            let asked = Asked {
                route,
                key,
                once,
                caller: or_other(caller),
                host: or_other(host),
                work,
            };
            self.push(at, place, Action::Request(asked));
        }
    }
}
