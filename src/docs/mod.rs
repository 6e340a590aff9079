//! The guide, by task.
//!
//! | you | read |
//! |---|---|
//! | ask whether you need it | [Alternatives](need) |
//! | have one Redis | [From the first line to production](one_redis) |
//! | have several servers, replicas, Sentinels, a cluster, a managed service | [Several servers](several_servers) |
//! | need an ACL user, changing credentials, TLS | [The rights](several_servers#the-rights) and the next sections |
//! | look for a setting | [`Settings`](crate::Settings), [`RedlockLayer`](crate::RedlockLayer), `IdempotencyLayer`, `RedisNode` |
//! | start and stop a service without losing requests | [The end](one_redis#3-the-end), [the beginning](one_redis#the-beginning) |
//! | run a job on one replica only | [Without a layer](one_redis#without-a-layer) |
//! | choose keys, the place of the layer, waits and limits | [Requests](requests) |
//! | hold a lock for a stream, a WebSocket, a job | [Work that outlives its response](requests#work-that-outlives-its-response) |
//! | limit how many requests run at the same time | [Permits](sharing) |
//! | let reads run together, and a write alone | [Shared locks](sharing#shared-locks) |
//! | answer a repeated request with the first response | [Idempotency](one_effect#idempotency) |
//! | need one effect, even if a process dies half-way | [One effect](one_effect) |
//! | want to reject the writes of a late holder | [Fencing](one_effect#fencing) |
//! | want to know what is guaranteed | [Promises](promises) |
//! | meet an error, a refusal, or a lost lock | [Errors](errors) |
//! | want events, metrics, alarms, a readiness check | [Operating](operating) |
//! | restart servers, change settings, free a key by hand, move | [The runbook](operating#the-runbook), [moving](operating#moving) |
//! | test your service, or migrate from another library | [Testing](testing), [migrating](testing#migrating) |
//!
//! # The path of a request
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
