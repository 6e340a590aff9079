//! A manager over nodes that talk nonsense: whatever they reply, nothing breaks, every call ends, and nobody is told
//! that a lock is held for longer than was asked for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use tower_redlock::clock::TokioClock;
use tower_redlock::idempotency::IdempotentRun;
use tower_redlock::node::{
    AcquireReply, AcquireRequest, CheckInReply, CheckInRequest, CompleteReply, CompleteRequest,
    ExtendReplies, ExtendReply, ExtendRequest, Holder, KeyReply, Node, NodeContext, NodeError,
    NodeErrorKind, NodeFuture, NodeKeys, NodeState, Notifier, PromoteRequest, RaiseReply,
    RaiseRequest, RecallRequest, Record, ReleaseReply, ReleaseRequest, ScanReply, ScanRequest,
    TakeOverRequest,
};
use tower_redlock::{FencingToken, LockGuard, LockManager};

use super::input::Input;

const TTL: Duration = Duration::from_secs(1);
/// Longer than any call may take.
const BOUND: Duration = Duration::from_secs(30);

pub fn run(bytes: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(scene(bytes))
}

/// Two thirds of the nodes, or all of them, say what the input says, one byte after the other. At its end they do what
/// they are asked for.
async fn scene(bytes: &[u8]) -> bool {
    let script = Arc::new(Mutex::new((bytes.to_vec(), 0)));
    let count = match Input::new(bytes).byte() % 2 {
        0 => 1,
        _ => 3,
    };
    let long_leases = Arc::new(AtomicBool::new(false));
    let nodes = (0..count).map(|number| Liar {
        name: format!("liar-{number}"),
        script: Arc::clone(&script),
        long_leases: Arc::clone(&long_leases),
    });
    let builder = LockManager::builder().nodes(nodes).clock(TokioClock::new());
    let builder = builder.ttl(TTL).max_ttl(2 * TTL).connect_timeout(TTL);
    let Ok(connected) = timeout(BOUND, builder.connect()).await else {
        // It waits for the end of leases that nodes say there may be.
        assert!(long_leases.load(Ordering::SeqCst), "it connects for ever");
        return false;
    };
    let Ok(locks) = connected else {
        return false;
    };
    let mut any = false;
    for keys in [&["a"][..], &["a", "b"], &["c"]] {
        let acquired = timeout(BOUND, locks.acquire(keys)).await;
        match acquired.expect("an acquire ends") {
            Ok(guard) => {
                any = true;
                hold(guard).await;
            }
            Err(error) => assert!(error.to_string().len() < 4_000, "{error}"),
        }
    }
    let run = timeout(BOUND, locks.begin_idempotent("request", BOUND, TTL)).await;
    if let Ok(IdempotentRun::Execute(guard)) = run.expect("a recall ends") {
        let body = Bytes::from_static(b"done");
        let _ = timeout(BOUND, guard.complete(body))
            .await
            .expect("a completion ends");
    }
    let _ = format!("{:?}", locks.snapshot());
    let report = timeout(BOUND, locks.shutdown(TTL)).await;
    let _ = report.expect("a shutdown ends");
    any
}

async fn hold(guard: LockGuard) {
    assert!(guard.remaining() <= TTL);
    // It is renewed once or twice.
    tokio::time::sleep(TTL).await;
    assert!(guard.remaining() <= TTL);
    let before = Instant::now();
    let _ = timeout(BOUND, guard.release())
        .await
        .expect("a release ends");
    assert!(before.elapsed() < BOUND);
}

/// A node that says anything.
#[derive(Debug)]
struct Liar {
    name: String,
    script: Arc<Mutex<(Vec<u8>, usize)>>,
    /// Whether it was said that leases may last for longer than is waited here.
    long_leases: Arc<AtomicBool>,
}

impl Liar {
    /// Has `reply` choose by the next bytes of the script. Sometimes there is an error instead, or nothing for ever.
    fn say<T: Send + 'static>(
        &self,
        sound: T,
        reply: impl FnOnce(&mut Input<'_>) -> T,
    ) -> NodeFuture<Result<T, NodeError>> {
        let mut script = self.script.lock().unwrap();
        let (bytes, at) = &mut *script;
        let rest = bytes.get(*at..).unwrap_or_default();
        if rest.is_empty() {
            return Box::pin(std::future::ready(Ok(sound)));
        }
        let mut input = Input::new(rest);
        let kind = input.below(8);
        let said = match kind {
            0 | 1 => Some(Ok(sound)),
            2 => Some(Err(error(&mut input))),
            3 => None,
            _ => Some(Ok(reply(&mut input))),
        };
        let late = (kind == 7).then(|| Duration::from_millis(input.number() % 3_000));
        *at = bytes.len() - input.rest().len();
        Box::pin(async move {
            if let Some(late) = late {
                tokio::time::sleep(late).await;
            }
            match said {
                Some(said) => said,
                None => std::future::pending().await,
            }
        })
    }
}

fn error(input: &mut Input<'_>) -> NodeError {
    let kind = input.choose(&[
        NodeErrorKind::Unavailable,
        NodeErrorKind::Interrupted,
        NodeErrorKind::TimedOut,
        NodeErrorKind::Rejected,
        NodeErrorKind::WrongType,
        NodeErrorKind::NotReplicated,
        NodeErrorKind::Garbled,
        NodeErrorKind::Misconfigured,
        NodeErrorKind::Foreign,
        NodeErrorKind::Quarantined,
    ]);
    NodeError::of(kind, input.text(20))
}

fn time(input: &mut Input<'_>) -> Duration {
    match input.below(4) {
        0 => Duration::MAX,
        _ => Duration::from_millis(input.number()),
    }
}

fn token(input: &mut Input<'_>) -> Option<FencingToken> {
    FencingToken::new(input.number())
}

fn holder(input: &mut Input<'_>) -> Holder {
    Holder {
        remaining: input.flag().then(|| time(input)),
        tag: input.number(),
        key: input.flag().then(|| usize::from(input.byte())),
    }
}

fn record(input: &mut Input<'_>) -> Record {
    let ballot = token(input).unwrap_or(FencingToken::new(1).unwrap());
    Record {
        ballot,
        body: Bytes::copy_from_slice(input.bytes(20)),
        until: input.number(),
    }
}

fn acquired(input: &mut Input<'_>) -> AcquireReply {
    match input.below(4) {
        0 => AcquireReply::Granted {
            fence: token(input),
        },
        1 => AcquireReply::Held(holder(input)),
        2 => AcquireReply::Recorded(record(input)),
        _ => AcquireReply::Promised {
            fence: token(input),
            record: input.flag().then(|| record(input)),
            now: input.number(),
        },
    }
}

fn checked_in(input: &mut Input<'_>) -> CheckInReply {
    match input.below(3) {
        0 => CheckInReply::Voting {
            high_water: token(input),
        },
        1 => CheckInReply::Quarantined {
            id: input.text(20),
            former: time(input),
            accepted: input.flag(),
            unused: input.flag(),
        },
        _ => CheckInReply::Foreign {
            config: input.text(20),
            digest: input.text(20),
        },
    }
}

impl Node for Liar {
    fn name(&self) -> &str {
        &self.name
    }

    fn start(&self, _: NodeContext) {}

    fn state(&self) -> NodeState {
        NodeState::Up
    }

    fn ready(&self) -> NodeFuture<Result<(), NodeError>> {
        self.say((), |_| ())
    }

    fn acquire(&self, request: AcquireRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let fence = request.fence.map(|fence| fence.token);
        self.say(AcquireReply::Granted { fence }, acquired)
    }

    fn extend(&self, requests: Arc<[ExtendRequest]>) -> NodeFuture<ExtendReplies> {
        let sound = vec![Ok(ExtendReply::Extended); requests.len()];
        self.say(sound, |input| {
            // Too many of them, or too few.
            let count = requests.len() + usize::from(input.below(3));
            let replies = (1..count.max(1)).map(|_| match input.below(6) {
                0 => Ok(ExtendReply::Extended),
                1 => Ok(ExtendReply::Refilled),
                2 => Ok(ExtendReply::Quarantined),
                3 => Ok(ExtendReply::Absent),
                4 => Ok(ExtendReply::Held(holder(input))),
                _ => Err(error(input)),
            });
            replies.collect()
        })
    }

    fn release(&self, _: ReleaseRequest) -> NodeFuture<Result<ReleaseReply, NodeError>> {
        let sound = ReleaseReply::Released { listeners: 0 };
        self.say(sound, |input| match input.flag() {
            true => ReleaseReply::NotOwner,
            false => ReleaseReply::Released {
                listeners: u32::MAX,
            },
        })
    }

    fn raise(&self, _: RaiseRequest) -> NodeFuture<Result<RaiseReply, NodeError>> {
        self.say(RaiseReply::Raised, |_| RaiseReply::NotOwner)
    }

    fn recall(&self, request: RecallRequest) -> NodeFuture<Result<AcquireReply, NodeError>> {
        let fence = request.lock.fence.map(|fence| fence.token);
        let (record, now) = (None, 0);
        self.say(AcquireReply::Promised { fence, record, now }, acquired)
    }

    fn complete(&self, _: CompleteRequest) -> NodeFuture<Result<CompleteReply, NodeError>> {
        let sound = CompleteReply::Stored { listeners: 0 };
        self.say(sound, |_| CompleteReply::Refused)
    }

    fn check_in(&self, _: CheckInRequest) -> NodeFuture<Result<CheckInReply, NodeError>> {
        let sound = CheckInReply::Voting { high_water: None };
        let long_leases = Arc::clone(&self.long_leases);
        self.say(sound, move |input| {
            let reply = checked_in(input);
            let longest = match &reply {
                CheckInReply::Quarantined { former, .. } => *former,
                _ => Duration::ZERO,
            };
            long_leases.fetch_or(longest > BOUND / 4, Ordering::SeqCst);
            reply
        })
    }

    fn promote(&self, _: PromoteRequest) -> NodeFuture<Result<bool, NodeError>> {
        self.say(true, |input| input.flag())
    }

    fn holders(&self, _: NodeKeys) -> NodeFuture<Result<Vec<KeyReply>, NodeError>> {
        self.say(Vec::new(), |_| Vec::new())
    }

    fn scan(&self, _: ScanRequest) -> NodeFuture<Result<ScanReply, NodeError>> {
        let (keys, next) = (Vec::new(), 0);
        self.say(ScanReply { keys, next }, |_| ScanReply {
            keys: Vec::new(),
            next: 0,
        })
    }

    fn take_over(&self, _: TakeOverRequest) -> NodeFuture<Result<Option<Duration>, NodeError>> {
        self.say(None, |input| Some(time(input)))
    }

    fn notifier(&self) -> Option<Arc<dyn Notifier>> {
        None
    }

    fn close(&self) -> NodeFuture<()> {
        let closing = self.say((), |_| ());
        Box::pin(async move { drop(closing.await) })
    }
}
