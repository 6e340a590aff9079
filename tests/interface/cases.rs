//! The mistakes, and what their makers must be told.

/// A mistake about one of our traits.
pub(crate) struct Case {
    /// The trait that is missing.
    pub(crate) of: &'static str,
    pub(crate) code: &'static str,
    /// All of our own words, as they stand at the trait.
    pub(crate) says: &'static [&'static str],
}

/// Before the code of each case.
pub(crate) const PRELUDE: &str = r#"
use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;
use tower_layer::Layer;
use tower_redlock::extract::{AsLockKeys, Locked};
use tower_redlock::idempotency::{IdempotencyLayer, caller};
use tower_redlock::node::{Node, Notifier};
use tower_redlock::{KeyError, LockKey, LockKeys, LockManager, RedlockLayer, key};
use tower_service::Service;

pub struct OrderId(pub u64);

impl<S: Send + Sync> FromRequestParts<S> for OrderId {
    type Rejection = axum::extract::rejection::PathRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Path::from_request_parts(parts, state).await?.0))
    }
}

pub struct Nothing;

pub type Order = RedlockLayer<key::Key<key::Header>>;
pub type Once = IdempotencyLayer<caller::Nobody>;

pub fn is_extractor<S, T: FromRequestParts<S>>() {}
pub fn is_service<S: Service<http::Request<String>>>(_: S) {}
"#;

/// What is right, so that a case is refused for its mistake and for nothing else.
pub(crate) const RIGHT: &str = r#"
impl AsLockKeys for OrderId {
    fn as_lock_keys(&self) -> Result<LockKeys, KeyError> { Ok(LockKey::new("order")?.into()) }
}

pub fn right(locks: LockManager, layer: Order, once: Once) {
    let _ = RedlockLayer::new(locks.clone(), |parts: &Parts| LockKey::join(["order", parts.uri.path()]));
    let _ = once.clone().with_lock(layer.clone()).layer(());
    let _ = once.record_if(|answer: &http::response::Parts| answer.status.is_success());
    is_extractor::<LockManager, Locked<OrderId>>();
    is_service(layer.layer(tower::service_fn(async |_: http::Request<String>| {
        Ok::<_, Infallible>(http::Response::new(String::new()))
    })));
}
"#;

pub(crate) const CASES: &[Case] = &[
    Case {
        of: "KeyExtractor",
        code: r#"pub fn f(locks: LockManager) { let _ = RedlockLayer::new(locks, "order"); }"#,
        says: KEY_EXTRACTOR,
    },
    Case {
        of: "KeyExtractor",
        code: "pub fn f(locks: LockManager) { let _ = RedlockLayer::new(locks, Nothing); }",
        says: KEY_EXTRACTOR,
    },
    Case {
        of: "IntoKey",
        code: "pub fn f(locks: LockManager) {
            let _ = RedlockLayer::new(locks, |parts: &Parts| parts.uri.path().to_owned());
        }",
        says: &[
            "a key extractor cannot return `{Self}`",
            "return a `LockKey` or `LockKeys`, or an `Option<_>`, `Result<_, KeyError>` or \
             `Result<Option<_>, KeyError>` of one",
            "text becomes a key by `LockKey::join([\"order\", text])`, which escapes it",
            "a closure cannot be `async` here; implement `KeyExtractor` for a type of your own, which can",
        ],
    },
    Case {
        of: "KeyValue",
        code: r#"pub fn f() { let _ = key::header("x-order").prefix("order").parse::<u64>(); }"#,
        says: &[
            "`{Self}` is not a single value that a client sent, so it cannot be parsed",
            "call `.parse::<T>()` right behind `key::path(..)`, `key::header(..)` or `key::query(..)`",
        ],
    },
    Case {
        of: "KeySource",
        code: r#"pub fn f() { let _ = key::Key::new("order"); }"#,
        says: &[
            "`{Self}` is not a source of lock keys",
            "begin with one of `tower_redlock::key`, such as `key::header`, or implement `KeySource`",
        ],
    },
    Case {
        of: "IntoKeyPart",
        code: "pub fn f() { let _ = key::from_fn(|_: &Parts| 7_u64); }",
        says: &[
            "`{Self}` cannot be a part of a lock key",
            "return a `String`, `&'static str` or `Vec<u8>`, or an `Option` or `Result<_, KeyError>` of one",
        ],
    },
    Case {
        of: "AsLockKeys",
        code: "pub fn f() { is_extractor::<LockManager, Locked<OrderId>>(); }",
        says: &[
            "`{Self}` is not the name of a lock",
            "`Locked<{Self}>` needs to know which keys to lock",
            "implement `tower_redlock::extract::AsLockKeys` for `{Self}`: which keys does it stand for?",
            "for a value that is taken out of the path, wrap it: `struct OrderId(u64)` with `FromRequestParts` and \
             `AsLockKeys`",
        ],
    },
    Case {
        of: "CallerSource",
        code: "pub fn f(locks: LockManager) { let _ = IdempotencyLayer::new(locks, Nothing); }",
        says: &[
            "`{Self}` does not say who the caller of a request is",
            "must be a `CallerSource`",
            "use one of `tower_redlock::idempotency::caller`, such as `caller::extension(|user: &User| user.id.clone())`",
            "wrap a closure: `caller::from_fn(|parts: &Parts| ..)`; if there are no callers, say `caller::nobody()`",
        ],
    },
    Case {
        of: "RecordPolicy",
        code: "pub fn f(once: Once) { let _ = once.record_if(http::StatusCode::OK); }",
        says: &[
            "`{Self}` does not decide which responses are stored",
            "must be a `RecordPolicy`",
            "a closure or function `Fn(&http::response::Parts) -> bool` is one; annotate its argument: \
             `|response: &Parts| ..`",
        ],
    },
    Case {
        of: "Node",
        code: r#"pub fn f() { let _ = LockManager::builder().nodes(["redis://10.0.0.1"]); }"#,
        says: NODE,
    },
    Case {
        of: "Node",
        code: "pub fn f() { let _: Arc<dyn Node> = Arc::new(Nothing); }",
        says: NODE,
    },
    Case {
        of: "Notifier",
        code: "pub fn f() -> Option<Arc<dyn Notifier>> { Some(Arc::new(Nothing)) }",
        says: &[
            "`{Self}` cannot tell of releases",
            "must be a `Notifier`",
            "implement it, or return `None` from `Node::notifier`: whoever waits then asks again now and then",
        ],
    },
    Case {
        of: "Clock",
        code: "pub fn f() { let _ = LockManager::builder().clock(std::time::Instant::now()); }",
        says: &[
            "`{Self}` is not a clock that leases can be measured with",
            "must be a `Clock`",
            "leave it to the default, `SystemClock`; tests have `TokioClock`, which follows tokio's paused time",
        ],
    },
];

const KEY_EXTRACTOR: &[&str] = &[
    "`{Self}` cannot extract a lock key from a request",
    "must be a `KeyExtractor`",
    "use one of `tower_redlock::key`, such as `key::header(\"x-order-id\").prefix(\"order\")`",
    "a closure `Fn(&http::request::Parts) -> R` is one where `R` is a `LockKey` or `LockKeys`, or an `Option` or \
     `Result` of one; annotate its argument: `|parts: &Parts| ..`",
];

const NODE: &[&str] = &[
    "`{Self}` is not a node that can hold locks",
    "must be a `Node`",
    "give URLs to `LockManager::builder().redis(..)`, and `RedisNode`s, `MemoryNode`s or nodes of your own to \
     `.nodes(..)`",
];

/// A mistake about a trait of others, where only the compiler can speak; what it must name at the least.
pub(crate) const THEIRS: &[(&str, &[&str])] = &[
    // What should make responses to refusals is no closure.
    (
        "pub fn f(layer: Order) { let _ = layer.rejection_response(http::StatusCode::CONFLICT); }",
        &["Fn(&Rejection)", "StatusCode", "rejection_response"],
    ),
    (
        "pub fn f(once: Once) { let _ = once.rejection_response(http::StatusCode::OK); }",
        &["Fn(&IdempotencyRejection)", "StatusCode", "rejection_response"],
    ),
    // The state has no manager.
    (
        "#[derive(Clone)] pub struct App;
        impl AsLockKeys for OrderId {
            fn as_lock_keys(&self) -> Result<LockKeys, KeyError> { Ok(LockKey::new(\"order\")?.into()) }
        }
        pub fn f() { is_extractor::<App, Locked<OrderId>>(); }",
        &["LockManager", "FromRef<App>", "Locked<OrderId>"],
    ),
    // What should come from the head of the request is no extractor.
    (
        "pub fn f() { let _ = key::from_extractor(|_: Nothing| String::new()); }",
        &["Nothing", "FromRequestParts", "from_extractor"],
    ),
    // The answer's body is none.
    (
        "pub fn f(layer: Order) {
            is_service(layer.layer(tower::service_fn(async |_: http::Request<String>| {
                Ok::<_, Infallible>(http::Response::new(7_u64))
            })));
        }",
        &["u64", "Body", "RedlockService"],
    ),
    // The answer is none.
    (
        "pub fn f(layer: Order) {
            is_service(layer.layer(tower::service_fn(async |_: http::Request<String>| {
                Ok::<_, Infallible>(\"an answer\")
            })));
        }",
        &["Response<_>", "&str", "RedlockService"],
    ),
    // The service inside takes requests with the body that the idempotency layer was given, not with the one it gives.
    (
        "pub fn f(layer: Once) {
            is_service(layer.layer(tower::service_fn(async |_: http::Request<String>| {
                Ok::<_, Infallible>(http::Response::new(String::new()))
            })));
        }",
        &["RequestBody<String>", "IdempotencyService"],
    ),
    // Something stands between the two layers.
    (
        "pub fn f(once: Once, order: Order) {
            let between = tower::layer::layer_fn(|inner| tower::util::MapRequest::new(inner, |request| request));
            let _ = once.with_lock((between, order)).layer(());
        }",
        &["Service = RedlockService<_, _>", "WithLock"],
    ),
];
