//! What clients do: each call of a plan is one task of its process.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tower_redlock::error::LossReason;
use tower_redlock::key::LockKeys;
use tower_redlock::{AcquireError, LockGuard, LockHandle, LockKey, LockScope};

use super::faults;
use super::history::What;
use super::scene::{Kind, Scene, Shop};
use super::{finish, http, once};
use crate::plan::{Action, Call, Cut, PERMITS, Share};
use tower_redlock_simulated::world::{Fault, ProcessId};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

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

/// Polls a future so many times.
struct Polls<F> {
    left: u32,
    work: F,
}

impl<F: Future<Output = ()> + Unpin> Future for Polls<F> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        if self.left == 0 {
            return Poll::Ready(false);
        }
        self.left -= 1;
        match Pin::new(&mut self.work).poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if self.left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Here {
    /// Makes the call, and drops it when its time has come.
    async fn make(self, call: Call) {
        let done = {
            let work = self.act(&call.action);
            match call.cut {
                Cut::Never => {
                    work.await;
                    true
                }
                Cut::After(span) => timeout(ms(span), work).await.is_ok(),
                Cut::Polls(left) => {
                    let work = Box::pin(work);
                    Polls { left, work }.await
                }
                Cut::Kept(left, span) => {
                    let mut work = Box::pin(work);
                    let first = Polls {
                        left,
                        work: work.as_mut(),
                    };
                    if !first.await {
                        sleep(ms(span)).await;
                        work.await;
                    }
                    true
                }
            }
        };
        if !done {
            self.scene.answered(self.process, self.call, "dropped");
        }
    }

    async fn act(&self, action: &Action) {
        match action {
            Action::Lock {
                keys,
                wait,
                hold,
                drops,
                ttl,
                share,
            } => {
                let own = ttl.and_then(|ttl| self.with_ttl(ttl));
                let here = own.as_ref().unwrap_or(self);
                here.lock(keys, *wait, *hold, *drops, *share).await;
            }
            Action::Nested {
                keys,
                inner,
                wait,
                hold,
            } => {
                self.nested(keys, inner, *wait, *hold).await;
            }
            Action::Run { key, hold } => self.run(*key, *hold).await,
            Action::Once {
                key,
                wait,
                work,
                end,
            } => once::once(self, *key, *wait, *work, *end).await,
            Action::Request {
                route,
                key,
                once,
                caller,
                host,
                work,
            } => {
                let request = http::Asked {
                    key: *key,
                    once: *once,
                    caller: *caller,
                    host: *host,
                    work: *work,
                };
                http::request(self, *route, &request).await;
            }
            Action::Stop { .. } => {}
        }
    }

    /// Asks for a lock; notes both question and answer.
    async fn asks<E: std::fmt::Display>(
        &self,
        text: &str,
        wait: u64,
        question: impl Future<Output = Result<LockGuard, E>>,
    ) -> Option<LockGuard> {
        let (scene, process, call) = (&self.scene, self.process, self.call);
        scene.called(process, call, text, ms(wait));
        match question.await {
            Ok(guard) => {
                scene.answered(process, call, "granted");
                Some(guard)
            }
            Err(error) => {
                scene.answered(process, call, error);
                None
            }
        }
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
            let left = handle.remaining().as_micros() as u64;
            let text = format!(
                "(call {}) is told that its lock is lost: {reason}",
                self.call
            );
            let reason = format!("{reason:?}");
            self.scene.tell(
                self.process,
                text,
                What::Told {
                    holder,
                    reason,
                    left,
                },
            );
        }
    }

    /// A holder begins to release.
    fn ends(&self, holder: Option<usize>) -> Ending<'_> {
        Ending { here: self, holder }
    }

    /// Notes that a key was refused, if that was for others who have it or wait for it.
    fn refused(&self, key: u32, since: u64, error: &AcquireError, share: Share) {
        if !matches!(error, AcquireError::WaitTimeout { .. }) {
            return;
        }
        let Self {
            scene,
            process,
            call,
            ..
        } = self;
        let (process, call) = (*process, *call);
        let settings = scene.settings(process);
        let (namespace, name) = (&settings.namespace, name(key));
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

    async fn lock(&self, keys: &[u32], wait: u64, hold: u64, drops: bool, share: Share) {
        let text = match share {
            Share::One => format!("{keys:?} within {wait} ms"),
            _ => format!("{keys:?} within {wait} ms, for {share:?}"),
        };
        let since = self.scene.world.millis();
        let locks = self.shop.locks.with_max_wait(ms(wait));
        let locks = match share {
            Share::One => locks,
            Share::Readers => locks.shared(),
            Share::Permits => locks.permits(PERMITS).unwrap(),
        };
        let question = async {
            let asked = locks.acquire(names(keys)).await;
            if let (Err(error), [key]) = (&asked, keys)
                && share != Share::Permits
            {
                self.refused(*key, since, error, share);
            }
            asked
        };
        let Some(guard) = self.asks(&text, wait, question).await else {
            return;
        };
        let handle = guard.handle();
        let kind = match share {
            Share::One | Share::Readers => Kind::Lock,
            Share::Permits => Kind::Permit,
        };
        let holder = self.granted(&handle, kind);
        let ending = self.ends(holder);
        self.hold(holder, &handle, hold).await;
        drop(ending);
        if drops {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
    }

    async fn nested(&self, keys: &[u32], inner: &[u32], wait: u64, hold: u64) {
        let scope = LockScope::new();
        let text = format!("{keys:?} within {wait} ms in a scope");
        let question = self.shop.locks.acquire_in(&scope, names(keys), ms(wait));
        let Some(outer) = self.asks(&text, wait, question).await else {
            return;
        };
        let handle = outer.handle();
        let outer_holder = self.granted(&handle, Kind::Lock);
        self.hold(outer_holder, &handle, hold / 3).await;
        let text = format!("{inner:?} within {wait} ms inside");
        let question = self.shop.locks.acquire_in(&scope, names(inner), ms(wait));
        let Some(guard) = self.asks(&text, wait, question).await else {
            self.scene.state().let_go.extend(outer_holder);
            let _ = outer.release().await;
            return;
        };
        let handle = guard.handle();
        let holder = self.granted(&handle, Kind::Lock);
        self.hold(holder, &handle, hold / 3).await;
        // What is shared lives on.
        let is_shared = inner.iter().any(|key| keys.contains(key));
        if !is_shared {
            self.scene.state().let_go.extend(outer_holder);
        }
        let _ = outer.release().await;
        self.hold(None, &handle, hold / 3).await;
        self.scene
            .state()
            .let_go
            .extend([outer_holder, holder].into_iter().flatten());
        drop(guard);
    }

    async fn run(&self, key: u32, hold: u64) {
        let (scene, process, call) = (&self.scene, self.process, self.call);
        let wait = scene.settings(process).max_wait;
        scene.called(process, call, &format!("a run under {key}"), ms(wait));
        let outcome = self
            .shop
            .locks
            .run(name(key), |handle| async move {
                scene.answered(process, call, "granted");
                self.granted(&handle, Kind::Lock);
                sleep(ms(hold)).await;
            })
            .await;
        if let Err(error) = outcome {
            scene.answered(process, call, error);
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
            let Here {
                scene,
                process,
                call,
                ..
            } = self.here;
            scene.tell(
                *process,
                format_args!("(call {call}) lets go"),
                What::Ended { holder },
            );
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

/// How long something took.
pub(super) fn millis_since(start: Instant) -> u64 {
    start.elapsed().as_millis() as u64
}
