//! The quick ways of a recall and of a completion beside the general ones, which are taken where the marker has no
//! vote.

use std::collections::BTreeMap;
use std::sync::Arc;

use tower_redlock::node::{
    AcquireReply, AcquireRequest, CompleteReply, CompleteRequest, Fence, Node as _, NodeError,
    NodeKey, RecallRequest, Record, ReleaseRequest,
};
use tower_redlock::{FencingToken, LockKey};

use crate::quick::{Dice, Side, odd};
use crate::support::nodes::{FAR, LONG, ready, token, unix_millis};
use crate::support::server::{Kind, Server, cannot};

const STEPS: u32 = 3_000;
/// How many keys there are.
const KEYS: u64 = 3;
/// By how many milliseconds two sides may differ where they tell times.
const NEAR: u64 = 20_000;
/// When grants are forgotten that somebody else wrote.
const EARLIER: u64 = 3_000_000;

/// What happens to both.
#[derive(Clone, Debug)]
enum Step {
    Recall {
        owner: u32,
        number: Option<u64>,
        adopt: bool,
    },
    Complete {
        owner: u32,
        ballot: Option<u64>,
        until: u64,
        chosen: bool,
    },
    Release(u32),
    Write(&'static str, String),
}

impl Step {
    /// For a key whose lock was `granted` last with this number to this owner.
    fn random(dice: &mut Dice, granted: Option<(u32, u64)>) -> Self {
        let now = unix_millis();
        let owner = u32::try_from(dice.below(3)).unwrap();
        let number = ((now * 1_000 + dice.below(50)) << 10) + dice.below(6).saturating_sub(2);
        match dice.below(32) {
            0..13 => Self::Recall {
                owner,
                number: (dice.below(12) > 0).then_some(number),
                adopt: dice.below(4) == 0,
            },
            13..25 => {
                let (last, promised) = granted.unwrap_or((owner, number));
                let ballot = match dice.below(8) {
                    0 => promised - 1,
                    1 => promised + dice.below(3),
                    2 => dice.below(1_000) + 1,
                    _ => promised,
                };
                Self::Complete {
                    owner: if dice.below(5) == 0 { owner } else { last },
                    ballot: (dice.below(8) > 0).then_some(ballot),
                    // The grant is remembered for longer than the second.
                    until: [now - 5_000, now + 60_000, FAR, FAR]
                        [usize::try_from(dice.below(4)).unwrap()],
                    chosen: dice.below(8) == 0,
                }
            }
            25 | 26 => Self::Release(owner),
            27 | 28 => Self::Write("forget", String::new()),
            29 => Self::Write("record", foreign(dice, now, number)),
            _ => match dice.below(8) {
                0 => Self::Write("hash", String::new()),
                1 => Self::Write("lock", String::new()),
                2 => Self::Write("counter", odd(dice, number)),
                3 => Self::Write("hwm", odd(dice, number)),
                4 => Self::Write("floor", odd(dice, number)),
                5 => Self::Write("floor", (number + 9_999_999).to_string()),
                _ => Self::Write("floor", (number - 9_999_999).to_string()),
            },
        }
    }
}

/// What may stand in a record, be it of ours or of somebody else.
fn foreign(dice: &mut Dice, now: u64, number: u64) -> String {
    let owner = u32::try_from(dice.below(3)).unwrap();
    let owner = String::from_utf8_lossy(token(owner).expose()).into_owned();
    let (soon, past) = (now + EARLIER, now - 5_000);
    match dice.below(6) {
        0 => "abc".to_owned(),
        1 => format!("{owner} {number} {soon} "),
        2 => format!("{owner} {number} {soon} {number} {past} ended"),
        3 => format!("{owner} {number} {past} {} {FAR} other", number + 1),
        4 => format!("  0 {number} {FAR} without a grant"),
        _ => format!("{owner}  {soon} "),
    }
}

/// A namespace of the server, in which the node votes.
struct Records<'a>(Side<'a>);

impl<'a> Records<'a> {
    fn key(&self, number: u64) -> NodeKey {
        let namespace = self.0.namespace.idempotency();
        namespace.node_key(&LockKey::new(format!("k{number}")).unwrap())
    }

    async fn recall(
        &self,
        key: u64,
        owner: u32,
        number: Option<u64>,
        adopt: bool,
    ) -> Result<AcquireReply, NodeError> {
        let fence = |number| Fence::new(FencingToken::new(number).unwrap(), LONG);
        let lock = AcquireRequest::new(self.key(key), token(owner), LONG)
            .under(Some(Arc::clone(&self.0.config)))
            .fenced(number.map(fence));
        let request = RecallRequest::new(lock, adopt, LONG);
        self.0.node.recall(request).await
    }

    async fn complete(
        &self,
        key: u64,
        owner: u32,
        record: Option<Record>,
        chosen: bool,
    ) -> Result<CompleteReply, NodeError> {
        let release = ReleaseRequest::new(self.key(key), token(owner), true);
        let request = CompleteRequest::new(release, record);
        let request = request.under(Some(Arc::clone(&self.0.config)));
        let request = if chosen { request.chosen() } else { request };
        self.0.node.complete(request).await
    }

    /// Returns what it came to, and the number of a grant.
    async fn run(&self, key: u64, step: &Step) -> (String, Option<u64>) {
        match step {
            Step::Recall {
                owner,
                number,
                adopt,
            } => {
                let reply = self.recall(key, *owner, *number, *adopt).await;
                let granted = match &reply {
                    Ok(AcquireReply::Promised { fence, .. }) => fence.map(FencingToken::get),
                    _ => None,
                };
                (told(reply), granted)
            }
            Step::Complete {
                owner,
                ballot,
                until,
                chosen,
            } => {
                let record = ballot.map(|ballot| {
                    let body = format!("by {owner}\n\0 under {ballot}");
                    Record::new(FencingToken::new(ballot).unwrap(), body.into(), *until)
                });
                let reply = self.complete(key, *owner, record, *chosen).await;
                (format!("{reply:?}"), None)
            }
            Step::Release(owner) => {
                let request = ReleaseRequest::new(self.key(key), token(*owner), true);
                (format!("{:?}", self.0.node.release(request).await), None)
            }
            Step::Write(what, text) => (self.write(key, what, text), None),
        }
    }

    fn write(&self, key: u64, what: &str, text: &str) -> String {
        let (server, key) = (self.0.server, self.key(key));
        let marker = self.0.namespace.marker();
        match what {
            "forget" => server.command(&["DEL", &key.record(), key.as_str()]),
            "record" => server.command(&["SET", &key.record(), text, "PXAT", &FAR.to_string()]),
            "hash" => {
                server.command(&["DEL", &key.record()]);
                server.command(&["HSET", &key.record(), "field", "value"])
            }
            "lock" => {
                server.command(&["DEL", key.as_str()]);
                server.command(&["HSET", key.as_str(), "field", "value"])
            }
            "counter" => server.command(&["SET", &key.counter(), text]),
            field => {
                // A floor comes with a promotion, which the vote does not outlive.
                server.command(&["HDEL", &marker, "vote"]);
                server.command(&["HSET", &marker, field, text])
            }
        }
    }

    /// All that the server has, and the times in it.
    fn content(&self) -> (Vec<String>, Vec<u64>) {
        let server = self.0.server;
        let (mut content, mut times) = (Vec::new(), Vec::new());
        for number in 0..KEYS {
            let key = self.key(number);
            content.push(server.command(&["GET", key.as_str()]));
            content.push(server.command(&["GET", &key.counter()]));
            let record = server.command(&["GET", &key.record()]);
            let left = server.command(&["PTTL", &key.record()]).parse::<i64>();
            times.push(u64::try_from(left.unwrap().max(0)).unwrap());
            let mut parts: Vec<&str> = record.splitn(4, ' ').collect();
            if let [_, _, stays, _] = parts.as_mut_slice()
                && let Ok(time) = stays.parse()
            {
                times.push(time);
                *stays = "";
            }
            content.push(parts.join(" "));
        }
        let marker = self.0.namespace.marker();
        content.push(server.command(&["HMGET", &marker, "hwm", "floor"]));
        (content, times)
    }
}

/// A reply without times that differ, but with the content of the record.
fn told(reply: Result<AcquireReply, NodeError>) -> String {
    match reply {
        Ok(AcquireReply::Held(holder)) => format!("held: {:?}, {:?}", holder.tag, holder.key),
        Ok(AcquireReply::Promised {
            fence, record, now, ..
        }) => {
            assert!(now.abs_diff(unix_millis()) < NEAR, "{now}");
            let body = record.as_ref().map(|record| record.body.clone());
            format!("promised: {fence:?}, {record:?}, {body:?}")
        }
        Ok(AcquireReply::Recorded(record)) => format!("recorded: {record:?}, {:?}", record.body),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn the_quick_ways_of_records_decide_as_the_general_ones() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    let (quick, general) = (
        Records(Side::new(&server, &node, "quick").await),
        Records(Side::new(&server, &node, "general").await),
    );
    let mut dice = Dice(0x77777);
    let mut granted: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    let mut outcomes: BTreeMap<String, u32> = BTreeMap::new();
    for number in 0..STEPS {
        let key = dice.below(KEYS);
        let step = Step::random(&mut dice, granted.get(&key).copied());
        if matches!(step, Step::Recall { .. } | Step::Complete { .. }) {
            let marker = general.0.namespace.marker();
            server.command(&["HDEL", &marker, "vote"]);
        }
        let ours = quick.run(key, &step).await;
        assert_eq!(
            ours,
            general.run(key, &step).await,
            "{number}: {key}, {step:?}"
        );
        let (first, second) = (quick.content(), general.content());
        assert_eq!(first.0, second.0, "{number}: {key}, {step:?}");
        let mut times = first.1.iter().zip(&second.1);
        let near = times.all(|(one, other)| one.abs_diff(*other) < NEAR);
        assert!(near, "{number}: {key}, {step:?}: {first:?}, {second:?}");
        if let (Step::Recall { owner, .. }, Some(number)) = (&step, ours.1) {
            granted.insert(key, (*owner, number));
        }
        let name: String = ours.0.chars().take_while(|c| *c != ':').take(12).collect();
        *outcomes.entry(name).or_default() += 1;
    }
    for name in [
        "promised",
        "recorded",
        "held",
        "Ok(Stored { ",
        "Ok(Refused)",
    ] {
        assert!(outcomes.get(name) > Some(&50), "{name}: {outcomes:?}");
    }
}

/// How often each command ran since the statistics were reset.
fn calls(server: &Server) -> BTreeMap<String, u32> {
    let theirs = ["evalsha", "ping", "info"];
    let calls = server.calls().into_iter();
    calls
        .filter(|(name, _)| !theirs.contains(&name.as_str()) && !name.starts_with("config"))
        .collect()
}

#[tokio::test]
async fn a_first_request_a_completion_and_a_repeat_take_few_calls() {
    let server = Server::start(Kind::Redis, &[]);
    let node = ready(&server.url()).await;
    let side = Records(Side::new(&server, &node, "quick").await);
    let now = unix_millis();
    let recall = async |key, owner| {
        // As of processes a millisecond apart: else the floor is looked at, too.
        let number = ((now + key) * 1_000) << 10;
        side.recall(key, owner, Some(number), false).await.unwrap()
    };
    // It leaves the vote.
    recall(0, 1).await;
    let mut counted = Vec::new();
    for (key, owner) in [(1, 1), (1, 2)] {
        server.run("CONFIG RESETSTAT");
        let reply = recall(key, owner).await;
        counted.push(calls(&server));
        let AcquireReply::Promised {
            fence: Some(ballot),
            ..
        } = reply
        else {
            assert!(matches!(reply, AcquireReply::Recorded(_)), "{reply:?}");
            break;
        };
        server.run("CONFIG RESETSTAT");
        let record = Record::new(ballot, "done".into(), FAR);
        let reply = side.complete(key, owner, Some(record), false).await;
        assert_eq!(reply, Ok(CompleteReply::Stored { listeners: 0 }));
        counted.push(calls(&server));
    }
    let named = |calls: &[(&str, u32)]| -> BTreeMap<String, u32> {
        let calls = calls.iter();
        calls
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    if !counted.iter().flatten().any(|(name, _)| name == "mget") {
        return cannot("count calls within scripts");
    }
    let first = [
        ("hmget", 1),
        ("mget", 1),
        ("time", 1),
        ("set", 3),
        ("hset", 1),
    ];
    let completion = [
        ("hmget", 1),
        ("time", 1),
        ("get", 2),
        ("set", 1),
        ("del", 1),
        ("publish", 1),
    ];
    let repeat = [("hmget", 1), ("mget", 1)];
    let expected = [named(&first), named(&completion), named(&repeat)];
    assert_eq!(counted, expected);
}
