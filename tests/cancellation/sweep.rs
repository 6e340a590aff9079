//! The sweep: an operation is dropped at every moment, at every gate, and nothing may be left.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::panic;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Once;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};
use tower_redlock::idempotency::IdempotentRun;

use super::gates::{Behaviour, Setting};
use super::scene::{NODES, RUN, SECOND, Scene, TTL, alive, within};
use super::wrapper::Call;

/// The operation itself, which may be dropped at any time.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// What goes before it.
pub(crate) type Preparing = Pin<Box<dyn Future<Output = Work>>>;

/// What goes before an operation.
pub(crate) type Prepare = fn(Rc<Scene>) -> Preparing;

/// One public asynchronous operation in one situation.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    name: &'static str,
    /// What of the crate it is, as `census` calls it.
    pub(crate) covers: &'static [&'static str],
    prepare: Prepare,
    leaves: Leaves,
}

/// What it may leave for a while, or must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    Nothing,
    /// The result of its run, as soon as it was polled once: it goes on until that is stored.
    Result,
    /// Nodes that do not vote.
    Quarantine,
    /// A key that it has taken to its end, so that its holder loses it first: for the rest of a ttl and a second.
    Key,
}

/// Operations that cover the same of the crate.
pub(crate) fn covering<const N: usize>(
    covers: &'static [&'static str],
    leaves: Leaves,
    operations: [(&'static str, Prepare); N],
) -> Vec<Operation> {
    let operations = operations.map(|(name, prepare)| Operation {
        name,
        covers,
        prepare,
        leaves,
    });
    operations.into()
}

/// An operation, by the name of the asynchronous function that goes before it.
macro_rules! by {
    ($prepare:ident) => {
        (stringify!($prepare), {
            let prepare: crate::sweep::Prepare = |scene| Box::pin($prepare(scene));
            prepare
        })
    };
}

pub(crate) use by;

/// Takes what an operation came to, and drops it.
pub(crate) fn end<T>(outcome: T) {
    drop(outcome);
}

/// Boxes an operation.
pub(crate) fn work(work: impl Future<Output = ()> + 'static) -> Work {
    Box::pin(work)
}

/// When an operation is dropped.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// After it was polled so often.
    polls: usize,
    /// Not before it is woken once more: what it was woken for has happened, and it does not come to see it.
    woken: bool,
}

/// How far an operation came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Half,
    ToItsEnd,
    /// It was not woken any more.
    ToAHalt,
}

/// When the gates are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    AfterTheDrop,
    Never,
}

/// How long an operation may take, its waits for nodes included.
const LONGEST: Duration = Duration::from_secs(60);
/// By then all is gone once the gates are open: a node time-out, the wait for a node that does not answer a release,
/// and the pause before the next try. Far less than the ttl.
const SOON: Duration = Duration::from_secs(4);
/// By then the ttl has ended whatever was left on nodes, and nobody tries to release it any more.
const EXPIRED: Duration = Duration::from_secs(2 * TTL.as_secs() + 4);
/// By then nodes that may have forgotten locks vote again: the longest ttl of any process is over.
const QUARANTINE: Duration = Duration::from_secs(70);
/// More often than this nothing is polled.
const MOST: usize = 200;

/// Drops each of `operations` at every moment and every gate.
///
/// # Panics
///
/// If anything is left, with all cases in which it is; and if a task panicked.
pub(crate) fn sweep(operations: &[Operation]) {
    let mut complaints = Vec::new();
    for operation in operations {
        let mut runs = 0;
        let mut case = Case {
            operation,
            setting: Setting::OPEN,
            opened: Opened::AfterTheDrop,
            calls: BTreeSet::new(),
            runs: &mut runs,
        };
        complaints.extend(case.every_moment());
        let calls = std::mem::take(&mut case.calls);
        for (setting, opened) in settings(&calls) {
            (case.setting, case.opened) = (setting, opened);
            complaints.extend(case.every_moment());
        }
        println!("{}: dropped {runs} times", operation.name);
        assert!(runs > 1, "{} was not dropped half-way", operation.name);
    }
    assert!(
        complaints.is_empty(),
        "{} complaint(s), the first:\n{}",
        complaints.len(),
        complaints[..complaints.len().min(20)].join("\n")
    );
}

/// All gates for an operation that makes `calls`.
fn settings(calls: &BTreeSet<Call>) -> Vec<(Setting, Opened)> {
    let kinds: Vec<Option<Call>> = calls.iter().copied().map(Some).chain([None]).collect();
    let mut settings = Vec::new();
    for call in kinds {
        let mut add = |behaviour, nodes, opened| {
            let setting = Setting {
                behaviour,
                call,
                nodes,
            };
            settings.push((setting, opened));
        };
        for behaviour in Behaviour::ODD {
            for nodes in [1, NODES] {
                add(behaviour, nodes, Opened::AfterTheDrop);
            }
        }
        // Where releases fail for ever, and where everything does.
        if matches!(call, None | Some(Call::Release | Call::Complete)) {
            for behaviour in [Behaviour::Error, Behaviour::Never] {
                add(behaviour, NODES, Opened::Never);
            }
        }
    }
    settings
}

/// An operation and its gates.
struct Case<'a> {
    operation: &'a Operation,
    setting: Setting,
    opened: Opened,
    // The kinds of commands that were sent.
    calls: BTreeSet<Call>,
    runs: &'a mut usize,
}

impl Case<'_> {
    /// Drops it after every number of polls; says what was left.
    fn every_moment(&mut self) -> Option<String> {
        for polls in 0..MOST {
            // Where nothing is ever repaired, one moment of each poll will do: that takes a while.
            let moments = match (polls, self.opened) {
                (0, _) | (_, Opened::Never) => &[false][..],
                (_, Opened::AfterTheDrop) => &[false, true],
            };
            for &woken in moments {
                let moment = Moment { polls, woken };
                *self.runs += 1;
                match self.run(moment) {
                    Ok(Came::Half) => {}
                    Ok(Came::ToItsEnd) => return None,
                    Ok(Came::ToAHalt) => return Some(self.complaint(moment, "it hangs")),
                    Err(left) => return Some(self.complaint(moment, &left)),
                }
            }
        }
        Some(format!("{}: it is polled without end", self.operation.name))
    }

    fn complaint(&self, moment: Moment, left: &str) -> String {
        let (name, opened) = (self.operation.name, self.opened);
        format!(
            "{name}, {:?}, opened {opened:?}, {moment:?}: {left}",
            self.setting
        )
    }

    /// Drops it once; how far it came, or what was left.
    fn run(&mut self, moment: Moment) -> Result<Came, String> {
        count_panics();
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let came = runtime.block_on(self.drop_at(moment));
        drop(runtime);
        match PANICS.replace(0) {
            0 => came,
            panics => Err(format!("{panics} panic(s)")),
        }
    }

    /// Notes which kinds of commands the operation sent, and what went on in the background `later`. Of these, the
    /// check-ins are not its own.
    fn note(&mut self, own: &BTreeSet<Call>, later: &BTreeSet<Call>) {
        let is_own = |call: &&Call| {
            own.contains(call) || !matches!(call, Call::Ready | Call::CheckIn | Call::Promote)
        };
        self.calls.extend(later.iter().filter(is_own));
    }

    async fn drop_at(&mut self, moment: Moment) -> Result<Came, String> {
        let scene = Scene::new();
        let prepared = (self.operation.prepare)(Rc::clone(&scene)).await;
        let before = scene.waiting();
        scene.gates.set(self.setting);
        let came = polled(prepared, moment).await;
        let own = scene.gates.calls();
        if self.opened == Opened::AfterTheDrop {
            scene.gates.lift();
        }
        let more_wait = || {
            let now = scene.waiting();
            let more = now.0 > before.0 || now.1 > before.1;
            more.then(|| format!("{now:?} wait and listen, and before it were {before:?}"))
        };
        within(SOON, more_wait).await?;
        scene.let_go();
        let (leaves, opened) = (self.operation.leaves, self.opened);
        let limit = if opened == Opened::Never || leaves == Leaves::Key {
            EXPIRED
        } else {
            SOON
        };
        within(limit, || scene.left()).await?;
        if leaves == Leaves::Quarantine {
            sleep(QUARANTINE).await;
        }
        self.note(&own, &scene.gates.calls());
        let is_stored = moment.polls > 0 && opened == Opened::AfterTheDrop;
        if leaves == Leaves::Result && is_stored {
            stored(&scene).await?;
        }
        refuse(scene.in_the_way().await)?;
        let mut unreleased = scene.shut_down().await;
        if unreleased.is_some() && limit == EXPIRED {
            // Until then it is not known whether a node has what was given up.
            sleep(TTL + 2 * SECOND).await;
            unreleased = scene.shut_down().await;
        }
        refuse(unreleased)?;
        drop(scene);
        let tasks = || (alive() > 0).then(|| format!("{} tasks of nobody", alive()));
        within(SECOND, tasks).await?;
        Ok(came)
    }
}

fn refuse(left: Option<String>) -> Result<(), String> {
    left.map_or(Ok(()), Err)
}

/// Whether the run has its result.
async fn stored(scene: &Scene) -> Result<(), String> {
    let next = scene.other().await;
    match next.begin_idempotent(RUN, TTL, Duration::ZERO).await {
        Ok(IdempotentRun::Replay(_)) => Ok(()),
        other => Err(format!("its result was not stored: {other:?}")),
    }
}

/// Polls `work` until then, and drops it.
async fn polled(mut work: Work, moment: Moment) -> Came {
    let mut left = moment.polls;
    let polled = poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(Came::Half);
        }
        left -= 1;
        if work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Came::ToItsEnd);
        }
        if left == 0 && !moment.woken {
            return Poll::Ready(Came::Half);
        }
        Poll::Pending
    });
    timeout(LONGEST, polled).await.unwrap_or(Came::ToAHalt)
}

thread_local! {
    /// Panics on this thread, those in tasks included, which the runtime keeps to itself.
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            usual(info);
        }));
    });
}
