//! The guide, by task.
//!
//! | you | read |
//! |---|---|
//! | ask whether you need it | [When you do not](need) |
//! | have one Redis | [You have one Redis](one_redis#one-redis) |
//! | have a managed service | [Managed services](several_servers#managed-services), by name |
//! | have Sentinels or replicas | [A server with replicas](several_servers#a-server-with-replicas) |
//! | have three or five | [Three or five](several_servers#three-or-five) |
//! | have a Redis Cluster | [Its slots as nodes](several_servers#a-redis-cluster) |
//! | start | [From an empty folder to a route that is locked](one_redis) |
//! | need a password, an ACL user or TLS | [The rights](several_servers#the-rights), [credentials that change](several_servers#credentials-that-change), [TLS](several_servers#tls) |
//! | choose a ttl, or several | [The ttl](several_servers#the-ttl) |
//! | look for a setting and its default | [`Settings`](crate::Settings), [`RedlockLayer`](crate::RedlockLayer), `IdempotencyLayer`, `RedisNode` |
//! | stop and start a service without lost requests | [The end](one_redis#3-the-end), [the beginning](one_redis#the-beginning) |
//! | run a job on one replica only | [Without a layer](one_redis#without-a-layer) |
//! | place the layer among others | [The order of layers](requests#the-order-of-layers), [path parameters](requests#path-parameters) |
//! | lock a key from the path, a header, the body | [The key](requests#the-key), [a key in the body](requests#a-key-in-the-body) |
//! | lock several keys at once | [Several keys](requests#several-keys) |
//! | limit how many run at once | [At most `k` at once](sharing) |
//! | let reads run together, and a write alone | [Shared locks](sharing#shared-locks) |
//! | let requests wait, or refuse them | [Waiting](requests#waiting), [limits under load](requests#limits-under-load) |
//! | hold a lock for a stream, a WebSocket, a job | [Work that outlives its response](requests#work-that-outlives-its-response) |
//! | call another service under a lock | [Services that call services](requests#services-that-call-services) |
//! | use tonic | [gRPC](requests#grpc) |
//! | must not lose an update to a late holder | [Fencing](one_effect#fencing) |
//! | answer a repeated request as the first | [Idempotency](one_effect#idempotency) |
//! | must have one effect, although a process dies half-way | [Which of the four](one_effect) |
//! | want to know on what you can rely | [Promises](promises), each with its test |
//! | meet an error, a refusal, or a lost lock | [Operations](errors): what to do about each |
//! | want logs, metrics, alarms, a page, a readiness check | [Observing](operating) |
//! | restart servers, change nodes or settings, free a key by hand, have no quorum | [The runbook](operating#the-runbook) |
//! | move to other nodes, need a longer `ttl` | [Moving](operating#moving), without a stop |
//! | come from rslock, redsync, node-redlock or Redisson | [Migrating](testing#migrating) |
//! | test your service | [Testing](testing) |
//!
//! # The way of a request
//!
#![doc = include_str!("way.svg")]

pub mod need {
    #![doc = include_str!("need.md")]
}

pub mod one_redis {
    #![doc = include_str!("one_redis.md")]
}

pub mod requests {
    #![doc = include_str!("requests.md")]
}

pub mod one_effect {
    #![doc = include_str!("one_effect.md")]
}

pub mod sharing {
    #![doc = include_str!("sharing.md")]
}

pub mod several_servers {
    #![doc = include_str!("several_servers.md")]
}

pub mod operating {
    #![doc = include_str!("operating.md")]
}

pub mod errors {
    #![doc = include_str!("errors.md")]
}

pub mod promises {
    #![doc = include_str!("promises.md")]
}

pub mod testing {
    #![doc = include_str!("testing.md")]
}
