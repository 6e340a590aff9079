//! Requests to nodes in few words: what is not said is what most tests want.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test binary uses a part of it"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tower_redlock::FencingToken;
use tower_redlock::clock::Moment;
use tower_redlock::node::{
    AcquireRequest, CheckInMode, CheckInRequest, ClusterConfig, CompleteRequest, ExtendRequest,
    Fence, Namespace, NodeKeys, OwnerToken, PromoteRequest, RaiseRequest, RecallRequest, Record,
    ReleaseRequest,
};

type Config = Arc<ClusterConfig>;

/// `$type::new` with these fields; the others are as given.
macro_rules! new {
    ($($name:ident: $type:ident ($($field:ident: $kind:ty),*) { $($other:ident: $value:expr),* })*) => {$(
        pub trait $name: Sized {
            fn new($($field: $kind),*) -> Self;
        }

        impl $name for $type {
            fn new($($field: $kind),*) -> Self {
                Self { $($field: $field.into(),)* $($other: $value),* }
            }
        }
    )*};
}

new! {
    NewAcquire: AcquireRequest(keys: impl Into<NodeKeys>, token: OwnerToken, ttl: Duration) {
        config: None, fence: None, any: false
    }
    NewExtend: ExtendRequest(keys: impl Into<NodeKeys>, token: OwnerToken, ttl: Duration, refill: bool) {
        config: None, fence: None
    }
    NewRelease: ReleaseRequest(keys: impl Into<NodeKeys>, token: OwnerToken, announce: bool) {
        waited: Duration::ZERO, since: None, background: false
    }
    NewRaise: RaiseRequest(keys: impl Into<NodeKeys>, token: OwnerToken, fence: Fence) { config: None }
    NewRecall: RecallRequest(lock: AcquireRequest, adopt: bool, linger: Duration) {}
    NewComplete: CompleteRequest(release: ReleaseRequest, record: Option<Record>) { chosen: false, config: None }
    NewCheckIn: CheckInRequest(
        namespace: Namespace, config: Config, quarantine: Duration, fresh: String, mode: CheckInMode
    ) {}
    NewPromote: PromoteRequest(
        namespace: Namespace, config: Config, quarantine: String, floor: Option<FencingToken>
    ) {}
    NewFence: Fence(token: FencingToken, keep: Duration) {}
    NewRecord: Record(ballot: FencingToken, body: Bytes, until: u64) {}
}

/// `$type` with another value in one field.
macro_rules! with {
    ($($name:ident: $method:ident $arguments:tt $body:tt of $($type:ident),*;)*) => {$(
        pub trait $name {
            fn $method $arguments -> Self;
        }

        $(impl $name for $type {
            fn $method $arguments -> Self $body
        })*
    )*};
}

with! {
    Under: under(self, config: Option<Config>) { Self { config, ..self } }
        of AcquireRequest, ExtendRequest, RaiseRequest, CompleteRequest;
    Fenced: fenced(self, fence: Option<Fence>) { Self { fence, ..self } } of AcquireRequest, ExtendRequest;
    Since: since(self, since: Moment) { Self { since: Some(since), ..self } } of ReleaseRequest;
    Chosen: chosen(self) { Self { chosen: true, ..self } } of CompleteRequest;
    Unguarded: unguarded(self) { Self { guarded: false, ..self } } of ClusterConfig;
}
