//! What clients do: each call of a plan is one task of its process.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower_redlock::error::LossReason;
use tower_redlock::key::LockKeys;
use tower_redlock::{AcquireError, LockGuard, LockHandle, LockKey, LockScope};

use super::faults;
use super::history::What;
use super::scene::{Kind, Scene, Shop};
use super::{finish, http, ms, once};
use crate::plan::{Action, Call, Cut, Lock, Nested, PERMITS, Share};
use tower_redlock_simulated::world::{Fault, ProcessId};

/// Begins a call of the plan, if a process lives in its place that has connected.
pub(super) fn begin(scene: &Arc<Scene>, index: usize) {
    let call = scene.plan.calls[index].clone();
    let Some(process) = scene.world.living(call.place) else {
        return;
    };
    let Some(shop) = scene.shop(process) else {
        return;
    };
    let here = Here {
        scene: Arc::clone(scene),
        process,
        call: index,
        shop,
    };
    if let Action::Stop { grace, back } = call.action {
        tokio::spawn(stop(here, ms(grace), ms(back)));
        return;
    }
    let open = Open::new(scene, index);
    drop(scene.world.spawn_in(process, async move {
        here.make(call).await;
        drop(open);
    }));
}

/// Where a call is made.
pub(super) struct Here {
    pub(super) scene: Arc<Scene>,
    pub(super) process: ProcessId,
    pub(super) call: usize,
    pub(super) shop: Shop,
}

/// A task of a call that has not ended.
pub(super) struct Open {
    scene: Arc<Scene>,
    call: usize,
}

impl Open {
    fn new(scene: &Arc<Scene>, call: usize) -> Self {
        *scene.state().open.entry(call).or_default() += 1;
        let scene = Arc::clone(scene);
        Self { scene, call }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(count) = self.scene.state().open.get_mut(&self.call) {
            *count -= 1;
        }
    }
}

/// The keys of these numbers, as clients name them.
pub(super) fn names(keys: &[u32]) -> LockKeys {
    let names = keys.iter().map(|key| format!("order:{key}"));
    LockKeys::new(names).unwrap_or_else(|error| panic!("a plan with keys that are none: {error}"))
}

pub(super) fn name(key: u32) -> LockKey {
    names(&[key]).as_slice()[0].clone()
}

/// Polls some work so many times at most: whether it has ended by then.
async fn polls(mut left: u32, mut work: impl Future<Output = ()> + Unpin) -> bool {
    let poll = |cx: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match Pin::new(&mut work).poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    };
    poll_fn(poll).await
}

impl Here {
    /// Makes the call, and drops it when its time has come.
    async fn make(self, call: Call) {
        let done = {
            let mut work = Box::pin(self.act(&call.action));
            match call.cut {
                Cut::After(span) => timeout(ms(span), work).await.is_ok(),
                Cut::Polls(most) => polls(most, work).await,
                Cut::Kept(first, span) => {
                    if !polls(first, work.as_mut()).await {
                        sleep(ms(span)).await;
                        work.await;
                    }
                    true
                }
                Cut::Never => {
                    work.await;
                    true
                }
            }
        };
        if !done {
            self.answered("dropped");
        }
    }

    async fn act(&self, action: &Action) {
        match action {
            Action::Lock(lock) => {
                let own = lock.ttl.and_then(|ttl| self.with_ttl(ttl));
                own.as_ref().unwrap_or(self).lock(lock).await;
            }
            Action::Nested(nested) => self.nested(nested).await,
            Action::Run { key, hold } => self.run(*key, *hold).await,
            Action::Once(asked) => once::once(self, asked).await,
            Action::Request(asked) => http::request(self, asked).await,
            Action::Stop { .. } => {}
        }
    }

    /// Shows people something of the call.
    pub(super) fn record(&self, text: impl fmt::Display) {
        let text = format_args!("(call {}) {text}", self.call);
        self.scene.world.record(Some(self.process), text);
    }

    /// Notes something of the call, also for people.
    pub(super) fn tell(&self, text: impl fmt::Display, what: What) {
        self.record(text);
        self.scene.note(what);
    }

    /// The client asks for a lock.
    pub(super) fn called(&self, text: &str, wait: u64) {
        let bound = self.scene.bound(self.process, self.call, wait);
        self.record(format_args!("asks for {text}"));
        let asked = (self.scene.world.millis(), bound);
        self.scene.state().asked.insert(self.call, asked);
    }

    /// It is answered, or has given up.
    pub(super) fn answered(&self, outcome: impl fmt::Display) {
        let text = format!("is told: {outcome}");
        self.record(&text);
        let asked = self.scene.state().asked.remove(&self.call);
        if let Some((since, bound)) = asked {
            self.scene.note(What::Took {
                process: self.process,
                text: format!("(call {}) {text}", self.call),
                took: self.scene.world.millis() - since,
                bound,
            });
        }
    }

    /// Asks for a lock; notes both question and answer.
    async fn asks<E: fmt::Display>(
        &self,
        text: &str,
        wait: u64,
        question: impl Future<Output = Result<LockGuard, E>>,
    ) -> Option<LockGuard> {
        self.called(text, wait);
        let answer = question.await;
        match &answer {
            Ok(_) => self.answered("granted"),
            Err(error) => self.answered(error),
        }
        answer.ok()
    }

    pub(super) fn granted(&self, handle: &LockHandle, kind: Kind) -> Option<usize> {
        self.scene.granted(self.process, self.call, handle, kind)
    }

    /// Holds a lock for some time, or until it is lost.
    async fn hold(&self, holder: Option<usize>, handle: &LockHandle, span: u64) {
        let mut time = pin!(sleep(ms(span)));
        tokio::select! {
            biased;
            () = &mut time => {}
            reason = handle.lost() => self.told(holder, handle, reason),
        }
    }

    /// The holder was told that its lock is lost.
    pub(super) fn told(&self, holder: Option<usize>, handle: &LockHandle, reason: LossReason) {
        if let Some(holder) = holder
            && reason != LossReason::Released
        {
            let told = What::Told {
                holder,
                reason: format!("{reason:?}"),
                left: handle.remaining().as_micros() as u64,
            };
            let text = format_args!("is told that its lock is lost: {reason}");
            self.tell(text, told);
        }
    }

    /// Notes that a key was refused, if that was for others who have it or wait for it.
    fn refused(&self, key: u32, since: u64, error: &AcquireError, share: Share) {
        if !matches!(error, AcquireError::WaitTimeout { .. }) {
            return;
        }
        let (scene, process, call) = (&self.scene, self.process, self.call);
        let (namespace, name) = (&scene.settings(process).namespace, name(key));
        let key = format!("{namespace}:{name}");
        let hint = format!("{namespace}!writer:{name}");
        let seen = |key: &String| scene.state().seen.get(key).copied().unwrap_or(0);
        let seen = match share {
            // A writer that waits keeps them out.
            Share::Readers => seen(&key).max(seen(&hint)),
            _ => seen(&key),
        };
        let free = scene.world.millis() - since.max(seen);
        // An attempt that failed, the pause after it, and another one, all without time-outs.
        let bound = 250;
        scene.note(What::Refused {
            call,
            process,
            key,
            free,
            bound,
        });
    }

    /// The same place with a handle of its own ttl, unless the process may not have one as long.
    fn with_ttl(&self, ttl: u64) -> Option<Self> {
        let locks = self.shop.locks.with_ttl(ms(ttl)).ok()?;
        Some(Self {
            scene: Arc::clone(&self.scene),
            shop: Shop {
                locks,
                ..self.shop.clone()
            },
            ..*self
        })
    }

    async fn lock(&self, lock: &Lock) {
        let Lock {
            keys, wait, share, ..
        } = lock;
        let text = match share {
            Share::One => format!("{keys:?} within {wait} ms"),
            _ => format!("{keys:?} within {wait} ms, for {share:?}"),
        };
        let since = self.scene.world.millis();
        let locks = self.shop.locks.with_max_wait(ms(*wait));
        let (locks, kind) = match share {
            Share::One => (locks, Kind::Lock),
            Share::Readers => (locks.shared(), Kind::Lock),
            Share::Permits => (locks.permits(PERMITS).unwrap(), Kind::Permit),
        };
        let question = async {
            let asked = locks.acquire(names(keys)).await;
            if let (Err(error), [key]) = (&asked, &keys[..])
                && *share != Share::Permits
            {
                self.refused(*key, since, error, *share);
            }
            asked
        };
        let Some(guard) = self.asks(&text, *wait, question).await else {
            return;
        };
        let handle = guard.handle();
        let holder = self.granted(&handle, kind);
        let ending = Ending { here: self, holder };
        self.hold(holder, &handle, lock.hold).await;
        drop(ending);
        if lock.drops {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
    }

    async fn nested(&self, nested: &Nested) {
        let Nested {
            keys, inner, wait, ..
        } = nested;
        let scope = LockScope::new();
        let acquire = |keys: &[u32]| {
            let locks = &self.shop.locks;
            locks.acquire_in(&scope, names(keys), ms(*wait))
        };
        let let_go = |holder: Option<usize>| self.scene.state().let_go.extend(holder);
        let text = format!("{keys:?} within {wait} ms in a scope");
        let Some(outer) = self.asks(&text, *wait, acquire(keys)).await else {
            return;
        };
        let (handle, third) = (outer.handle(), nested.hold / 3);
        let outer_holder = self.granted(&handle, Kind::Lock);
        self.hold(outer_holder, &handle, third).await;
        let text = format!("{inner:?} within {wait} ms inside");
        let Some(guard) = self.asks(&text, *wait, acquire(inner)).await else {
            let_go(outer_holder);
            let _ = outer.release().await;
            return;
        };
        let handle = guard.handle();
        let holder = self.granted(&handle, Kind::Lock);
        self.hold(holder, &handle, third).await;
        // What is shared lives on.
        if !inner.iter().any(|key| keys.contains(key)) {
            let_go(outer_holder);
        }
        let _ = outer.release().await;
        self.hold(None, &handle, third).await;
        [outer_holder, holder].into_iter().for_each(let_go);
        drop(guard);
    }

    async fn run(&self, key: u32, hold: u64) {
        let wait = self.scene.settings(self.process).max_wait;
        self.called(&format!("a run under {key}"), wait);
        let work = |handle: LockHandle| async move {
            self.answered("granted");
            self.granted(&handle, Kind::Lock);
            sleep(ms(hold)).await;
        };
        if let Err(error) = self.shop.locks.run(name(key), work).await {
            self.answered(error);
        }
    }
}

/// Notes that a holder releases its lock, when it does or is dropped.
struct Ending<'a> {
    here: &'a Here,
    holder: Option<usize>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if let Some(holder) = self.holder {
            self.here.tell("lets go", What::Ended { holder });
        }
    }
}

/// An orderly shutdown of a process, and a new one in its place.
async fn stop(here: Here, grace: Duration, back: Duration) {
    let Here {
        scene,
        process,
        shop,
        ..
    } = here;
    let place = process.place;
    finish::shut(&scene, process, shop, grace).await;
    if scene.is_over() || scene.world.living(place) != Some(process) {
        return;
    }
    faults::kill(&scene, place);
    sleep(back).await;
    if !scene.is_over() {
        scene.world.apply(&Fault::Start { process: place });
    }
}
