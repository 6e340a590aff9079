//! Which auto traits the public types have: a table, checked by the compiler.
//!
//! Auto traits are part of the interface and nobody writes them down: one `Rc` deep inside takes `Send` away
//! from a guard, and every user's handler stops to compile. So each public type has a row, with a `yes` or a `no`
//! for each trait; a `no` is a promise too, or a decision that may be lifted knowingly.

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Asks the compiler for the auto traits of `T`.
struct Probe<T>(PhantomData<T>);

/// For each trait an answer `false` for every type, which the inherent `true` of those that have it hides.
macro_rules! probes {
    ($($probe:ident $answer:ident: $wanted:ident;)*) => {$(
        trait $probe {
            const $answer: bool = false;
        }
        impl<T> $probe for Probe<T> {}
        impl<T: $wanted> Probe<T> {
            const $answer: bool = true;
        }
    )*};
}

probes! {
    MaybeSend IS_SEND: Send;
    MaybeSync IS_SYNC: Sync;
    MaybeUnpin IS_UNPIN: Unpin;
    MaybeUnwindSafe IS_UNWIND_SAFE: UnwindSafe;
    MaybeRefUnwindSafe IS_REF_UNWIND_SAFE: RefUnwindSafe;
}

/// One row per type: `type: send sync unpin unwind_safe ref_unwind_safe;`.
macro_rules! auto_traits {
    ($($subject:ty: $send:ident $sync:ident $unpin:ident $unwind:ident $ref_unwind:ident;)*) => {
        $(const _: () = {
            auto_traits!(@cell $subject, IS_SEND, $send);
            auto_traits!(@cell $subject, IS_SYNC, $sync);
            auto_traits!(@cell $subject, IS_UNPIN, $unpin);
            auto_traits!(@cell $subject, IS_UNWIND_SAFE, $unwind);
            auto_traits!(@cell $subject, IS_REF_UNWIND_SAFE, $ref_unwind);
        };)*
    };
    (@cell $subject:ty, $answer:ident, yes) => {
        assert!(
            Probe::<$subject>::$answer,
            concat!(stringify!($subject), ": ", stringify!($answer), " is `no`, the table says `yes`"),
        );
    };
    (@cell $subject:ty, $answer:ident, no) => {
        assert!(
            !Probe::<$subject>::$answer,
            concat!(stringify!($subject), ": ", stringify!($answer), " is `yes`, the table says `no`"),
        );
    };
}

/// Says that what an async method returns can be awaited on any thread. The closure is never called, and as the
/// compiler looks into an async block last of all, only a `yes` can be asked of it.
fn assert_future_is_send<A, F: Future + Send>(_method: impl FnOnce(A) -> F) {}

#[rustfmt::skip]
mod table {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Full;
    use std::time::Duration;
    use tower_redlock::error::{
        ConfigError, ConnectError, KeyError, LossReason, NoQuorum, NodeFailure, ReleaseError, RunError,
    };
    use tower_redlock::key::LockKeys;
    use tower_redlock::idempotency::{IdempotentRun, RunGuard};
    use tower_redlock::{Lost, OwnerHash};
    use tower_redlock::snapshot::{
        HeldLock, NodeStatus, QueueStatus, ShutdownReport, Snapshot, VotingStatus,
    };
    use tower_redlock::{
        key, AcquireError, FencingToken, LockGuard, LockHandle, LockKey, LockManager,
        Settings, LockScope, RedlockLayer,
    };
    use tower_redlock::clock::{Clock, Moment, SystemClock};
    use tower_redlock::error::FencingTokenError;
    use tower_redlock::layer::{
        LayerBody, OnDisconnect, OnNoQuorum, RedlockService, Rejection, RejectionKind, ResponseFuture, RunToEndService, UnlockedReason,
    };
    use tower_redlock::Held;
    use tower_redlock::node::{
        AcquireReply, AcquireRequest, CheckInMode, CheckInReply, CheckInRequest, ClusterConfig,
        CompleteReply, CompleteRequest, ExtendReply, ExtendRequest, Fence, Holder, Namespace, Node,
        Label, NodeContext, NodeError, NodeErrorKind, NodeFuture, NodeKey, NodeKeys, NodeState, NoticeReceiver,
        NoticeSender, Notices, Notifier, OwnerToken, PromoteRequest, RaiseReply, RaiseRequest, RecallRequest,
        Record, ReleaseReply, ReleaseRequest, ServerRegistry, Subscription,
    };
    use tower_redlock::node::{MemoryNode, MemorySnapshot};

    auto_traits! {
        //                  Send Sync Unpin UnwindSafe RefUnwindSafe
        LockKey:            yes  yes  yes   yes        yes;
        KeyError:           yes  yes  yes   yes        yes;
        Moment:             yes  yes  yes   yes        yes;
        OwnerToken:         yes  yes  yes   yes        yes;
        Label:              yes  yes  yes   yes        yes;
        OwnerHash:          yes  yes  yes   yes        yes;
        FencingToken:       yes  yes  yes   yes        yes;
        FencingTokenError:  yes  yes  yes   yes        yes;
        LockKeys:           yes  yes  yes   yes        yes;
        NodeKeys:           yes  yes  yes   yes        yes;
        ClusterConfig:            yes  yes  yes   yes        yes;
        CheckInRequest:            yes  yes  yes   yes        yes;
        CheckInMode:              yes  yes  yes   yes        yes;
        Fence:              yes  yes  yes   yes        yes;
        PromoteRequest:          yes  yes  yes   yes        yes;
        RaiseRequest:       yes  yes  yes   yes        yes;
        RaiseReply:         yes  yes  yes   yes        yes;
        Record:             yes  yes  yes   yes        yes;
        RecallRequest:      yes  yes  yes   yes        yes;
        CompleteRequest:    yes  yes  yes   yes        yes;
        CompleteReply:      yes  yes  yes   yes        yes;
        CheckInReply:           yes  yes  yes   yes        yes;
        Namespace:          yes  yes  yes   yes        yes;
        NodeKey:            yes  yes  yes   yes        yes;
        SystemClock:        yes  yes  yes   yes        yes;
        AcquireRequest:     yes  yes  yes   yes        yes;
        AcquireReply:       yes  yes  yes   yes        yes;
        ExtendRequest:      yes  yes  yes   yes        yes;
        ExtendReply:        yes  yes  yes   yes        yes;
        ReleaseRequest:     yes  yes  yes   yes        yes;
        ReleaseReply:       yes  yes  yes   yes        yes;
        Holder:             yes  yes  yes   yes        yes;
        NodeState:          yes  yes  yes   yes        yes;
        NodeError:          yes  yes  yes   yes        yes;
        NodeErrorKind:      yes  yes  yes   yes        yes;
        ServerRegistry:             yes  yes  yes   yes        yes;
        NoticeSender:       yes  yes  yes   yes        yes;
        NoticeReceiver:     yes  yes  yes   yes        yes;
        Notices:            yes  yes  yes   yes        yes;
        // A user's clock or node says nothing of unwinding, and a command's future is polled by one task.
        NodeContext:        yes  yes  yes   no         no;
        Box<dyn Clock>:     yes  yes  yes   no         no;
        Box<dyn Node>:      yes  yes  yes   no         no;
        Box<dyn Notifier>:  yes  yes  yes   no         no;
        Subscription:       yes  yes  yes   no         no;
        NodeFuture<()>:     yes  no   yes   no         no;
    }

    auto_traits! {
        //                  Send Sync Unpin UnwindSafe RefUnwindSafe
        AcquireError:       yes  yes  yes   yes        yes;
        RunError:           yes  yes  yes   yes        yes;
        ReleaseError:       yes  yes  yes   yes        yes;
        ConfigError:        yes  yes  yes   yes        yes;
        ConnectError:       yes  yes  yes   yes        yes;
        NodeFailure:        yes  yes  yes   yes        yes;
        NoQuorum:           yes  yes  yes   yes        yes;
        NodeStatus:         yes  yes  yes   yes        yes;
        VotingStatus:       yes  yes  yes   yes        yes;
        Snapshot:           yes  yes  yes   yes        yes;
        HeldLock:           yes  yes  yes   yes        yes;
        QueueStatus:              yes  yes  yes   yes        yes;
        LossReason:         yes  yes  yes   yes        yes;
        ShutdownReport:     yes  yes  yes   yes        yes;
        // They hold the user's clock and nodes, of which see above.
        MemoryNode:         yes  yes  yes   no         no;
        MemorySnapshot:     yes  yes  yes   yes        yes;
        Settings: yes  yes  yes   no         no;
        LockManager:        yes  yes  yes   no         no;
        LockGuard:          yes  yes  yes   no         no;
        RunGuard:           yes  yes  yes   no         no;
        IdempotentRun:      yes  yes  yes   no         no;
        LockScope:          yes  yes  yes   yes        yes;
        LockHandle:         yes  yes  yes   no         no;
        // To be pinned: it is in the list of those that wait.
        Lost:               yes  yes  no    no         no;
    }

    /// What a user's service may be at its worst: whatever it is not, the names-only parameters must not take away.
    type Inner = tower::util::BoxCloneSyncService<
        http::Request<Bytes>, http::Response<Full<Bytes>>, std::convert::Infallible,
    >;
    type Local = std::rc::Rc<()>;

    auto_traits! {
        //                                Send Sync Unpin UnwindSafe RefUnwindSafe
        RedlockLayer:                     yes  yes  yes   no         no;
        RedlockLayer<OnDisconnect>:       yes  yes  yes   no         no;
        RedlockService<Inner>:            yes  yes  yes   no         no;
        RedlockService<Local>:            no   no   yes   no         no;
        ResponseFuture<Inner, Bytes>:     yes  no   no    no         no;
        OnDisconnect:                     yes  yes  yes   yes        yes;
        RunToEndService<Inner>:           yes  yes  yes   no         no;
        RunToEndService<Local>:           no   no   yes   yes        yes;
        Held:                             yes  yes  yes   no         no;
        LayerBody<Bytes>:              yes  yes  yes   no         no;
        LayerBody<Local>:              no   no   yes   no         no;
        OnNoQuorum:                       yes  yes  yes   yes        yes;
        Rejection:                        yes  yes  yes   yes        yes;
        RejectionKind:                    yes  yes  yes   yes        yes;
        UnlockedReason:                   yes  yes  yes   yes        yes;
        // The closures in it say nothing of unwinding.
        key::Key:                         yes  yes  yes   no         no;
        key::Key<key::Value>:             yes  yes  yes   no         no;
        key::Also<Local, u8>:             no   no   yes   yes        yes;
    }

    #[cfg(feature = "inspect")]
    auto_traits! {
        //                                      Send Sync Unpin UnwindSafe RefUnwindSafe
        tower_redlock::InspectService: yes  yes  yes   no         no;
    }

    #[cfg(feature = "idempotency")]
    use tower_redlock::idempotency;

    #[cfg(feature = "idempotency")]
    auto_traits! {
        //                                      Send Sync Unpin UnwindSafe RefUnwindSafe
        idempotency::IdempotencyLayer:          yes  yes  yes   no         no;
        idempotency::WithLock<()>:              yes  yes  yes   no         no;
        idempotency::WithLock<Local>:           no   no   yes   no         no;
        idempotency::IdempotencyService<Inner>: yes  yes  yes   no         no;
        idempotency::Idempotent:                yes  yes  yes   no         no;
        idempotency::OnUnrecorded:              yes  yes  yes   yes        yes;
        idempotency::IdempotencyKey:            yes  yes  yes   yes        yes;
        idempotency::IdempotencyKeyError:       yes  yes  yes   yes        yes;
    }

    #[cfg(feature = "axum")]
    auto_traits! {
        tower_redlock::Locked<u8>:    yes yes yes no  no;
        tower_redlock::Locked<Local>: no  no  yes no  no;
        tower_redlock::extract::LockedRejection<u8>:    yes yes yes yes yes;
        tower_redlock::extract::LockedRejection<Local>: no  no  yes yes yes;
    }

    #[cfg(all(feature = "axum", feature = "idempotency"))]
    auto_traits! {
    }

    #[cfg(feature = "redis")]
    auto_traits! {
        tower_redlock::node::LiveNode:    yes yes yes no  no;
        tower_redlock::node::RedisNode:   yes yes yes yes yes;
        tower_redlock::node::Credentials: yes yes yes yes yes;
    }

    #[cfg(feature = "test-util")]
    auto_traits! {
        tower_redlock::clock::TokioClock: yes yes yes yes yes;
    }

    /// No handler could await them otherwise: handlers run on every thread.
    #[test]
    fn futures_of_async_methods_are_send() {
        assert_future_is_send(|node: &'static dyn Node| node.ready());
        assert_future_is_send(|locks: &'static LockManager| locks.acquire("key"));
        assert_future_is_send(|locks: &'static LockManager| locks.try_acquire("key"));
        assert_future_is_send(|locks: &'static LockManager| locks.try_acquire("key"));
        assert_future_is_send(|locks: &'static LockManager| locks.run("key", |_lock| async {}));
        assert_future_is_send(|locks: &'static LockManager| locks.shutdown(Duration::ZERO));
        assert_future_is_send(Settings::connect);
        assert_future_is_send(LockGuard::release);
    }
}

/// The method must be able to say `no`, or every `yes` above would be worth nothing.
#[test]
fn the_probes_tell_types_apart() {
    use std::cell::Cell;
    use std::marker::PhantomPinned;
    use std::rc::Rc;

    auto_traits! {
        u8:              yes yes yes yes yes;
        Rc<u8>:          no  no  yes yes yes;
        Cell<u8>:        yes no  yes yes no;
        PhantomPinned:   yes yes no  yes yes;
        &'static mut u8: yes yes yes no  yes;
    }
}
