//! The guide, by task.
//!
//! | you | read |
//! |---|---|
//! | ask whether you need it | [When you do not](not_needed) |
//! | have one Redis | [You have one Redis](one_redis) |
//! | have a managed service | [Managed services](managed), by name |
//! | have Sentinels or replicas | [A server with replicas](nodes#a-server-with-replicas) |
//! | have three or five | [Three or five](nodes#three-or-five) |
//! | have a Redis Cluster | [Its slots as nodes](cluster) |
//! | start | [From an empty folder to a route that is locked](getting_started) |
//! | need a password, an ACL user or TLS | [The rights](nodes#the-rights), [credentials that change](nodes#credentials-that-change), [TLS](nodes#tls) |
//! | choose a ttl, or several | [The ttl](nodes#the-ttl) |
//! | look for a setting and its default | [`Settings`](crate::Settings), [`RedlockLayer`](crate::RedlockLayer), `IdempotencyLayer`, `RedisNodeBuilder` |
//! | stop and start a service without lost requests | [The end](getting_started#3-the-end), [the beginning](getting_started#the-beginning) |
//! | run a job on one replica only | [Without a layer](getting_started#without-a-layer) |
//! | place the layer among others | [The order of layers](requests#the-order-of-layers), [path parameters](requests#path-parameters) |
//! | lock a key from the path, a header, the body | [The key](requests#the-key), [a key in the body](requests#a-key-in-the-body) |
//! | lock several keys at once | [Several keys](requests#several-keys) |
//! | limit how many run at once | [At most `k` at once](permits) |
//! | let reads run together, and a write alone | [Shared locks](shared) |
//! | let requests wait, or refuse them | [Waiting](requests#waiting), [limits under load](requests#limits-under-load) |
//! | hold a lock for a stream, a WebSocket, a job | [Work that outlives its response](requests#work-that-outlives-its-response) |
//! | call another service under a lock | [Services that call services](requests#services-that-call-services) |
//! | use tonic | [gRPC](requests#grpc) |
//! | must not lose an update to a late holder | [Fencing](fencing) |
//! | answer a repeated request as the first | [Idempotency](idempotency) |
//! | must have one effect, although a process dies half-way | [Which of the four](one_effect) |
//! | want to know on what you can rely | [Promises](promises), each with its test |
//! | meet an error, a refusal, or a lost lock | [Operations](operations): what to do about each |
//! | want logs, metrics, alarms, a page, a readiness check | [Observing](observing) |
//! | restart servers, change nodes or settings, free a key by hand, have no quorum | [The runbook](runbook) |
//! | move to other nodes, need a longer `ttl` | [Moving](moving), without a stop |
//! | come from rslock, redsync, node-redlock or Redisson | [Migrating](migrating) |
//! | test your service | [Testing](testing) |
//!
//! # The way of a request
//!
#![doc = include_str!("way.svg")]

pub mod getting_started {
    #![doc = include_str!("getting_started.md")]
}

pub mod one_redis {
    #![doc = include_str!("one_redis.md")]
}

pub mod managed {
    #![doc = include_str!("managed.md")]
}

pub mod nodes {
    #![doc = include_str!("nodes.md")]
}

pub mod cluster {
    #![doc = include_str!("cluster.md")]
}

pub mod moving {
    #![doc = include_str!("moving.md")]
}

pub mod requests {
    #![doc = include_str!("requests.md")]
}

pub mod permits {
    #![doc = include_str!("permits.md")]
}

pub mod shared {
    #![doc = include_str!("shared.md")]
}

pub mod fencing {
    #![doc = include_str!("fencing.md")]
}

pub mod idempotency {
    #![doc = include_str!("idempotency.md")]
}

pub mod one_effect {
    #![doc = include_str!("one_effect.md")]
}

pub mod not_needed {
    #![doc = include_str!("not_needed.md")]
}

pub mod promises {
    #![doc = include_str!("promises.md")]
}

pub mod operations {
    #![doc = include_str!("operations.md")]
}

pub mod observing {
    #![doc = include_str!("observing.md")]
}

pub mod runbook {
    #![doc = include_str!("runbook.md")]
}

pub mod migrating {
    #![doc = include_str!("migrating.md")]
}

pub mod testing {
    #![doc = include_str!("testing.md")]
}
