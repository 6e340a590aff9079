//! The guide: how to choose, what is promised, and what to do when something goes wrong.
//!
//! | page | answers |
//! |---|---|
//! | [`getting_started`] | From an empty folder to a route that is locked. |
//! | [`choosing`] | Which ttl, how many nodes, which kind of node? |
//! | [`settings`] | What can be set, and what is the default? |
//! | [`promises`] | What can I rely on, what not, and which test shows it? |
//! | [`layers`] | Where does the lock stand among time-outs, tracing and authentication? Which requests, which keys? |
//! | [`body_keys`] | How is a key locked that is in the request's body? |
//! | [`waiting`] | How long does a request wait, and who is next? |
//! | [`backpressure`] | What happens when more requests come than can be served? |
//! | [`fencing`] | How does the database refuse a holder that is too late? |
//! | [`idempotency`] | What does a client get that sends a request again? |
//! | [`operations`] | What does this error mean, and what do I do? |
//! | [`break_glass`] | Who holds this key, how do I free it, and what now that too few nodes vote? |
//! | [`observing`] | What do events, metrics, snapshots and the page for operators tell me? |
//! | [`migrating`] | How do I come from rslock, redsync, node-redlock or Redisson, replica by replica? |
//! | [`managed_redis`] | Which servers can be nodes, and which rights do they need to grant? |
//! | [`rolling_out`] | How do I change the ttl or the list of nodes, and restart servers? |
//! | [`testing`] | How do I test my own service without a server, and with servers that fail? |
//!
//! These modules hold text and nothing else. They exist only for rustdoc.
//!
//! # The way of a request
//!
#![doc = include_str!("way.svg")]

pub mod getting_started {
    #![doc = include_str!("getting_started.md")]
}

pub mod choosing {
    #![doc = include_str!("choosing.md")]
}

pub mod settings {
    #![doc = include_str!("settings.md")]
}

pub mod promises {
    #![doc = include_str!("promises.md")]
}

pub mod layers {
    #![doc = include_str!("layers.md")]
}

pub mod body_keys {
    #![doc = include_str!("body_keys.md")]
}

pub mod waiting {
    #![doc = include_str!("waiting.md")]
}

pub mod backpressure {
    #![doc = include_str!("backpressure.md")]
}

pub mod fencing {
    #![doc = include_str!("fencing.md")]
}

pub mod idempotency {
    #![doc = include_str!("idempotency.md")]
}

pub mod operations {
    #![doc = include_str!("operations.md")]
}

pub mod break_glass {
    #![doc = include_str!("break_glass.md")]
}

pub mod observing {
    #![doc = include_str!("observing.md")]
}

pub mod migrating {
    #![doc = include_str!("migrating.md")]
}

pub mod managed_redis {
    #![doc = include_str!("managed_redis.md")]
}

pub mod rolling_out {
    #![doc = include_str!("rolling_out.md")]
}

pub mod testing {
    #![doc = include_str!("testing.md")]
}
