//! Two lists of nodes that share one: never do both grant.

use std::sync::OnceLock;
use std::task::Poll;

use futures_util::future::OptionFuture;
use tokio::time::advance;

use super::*;

/// The processes of the old list, and of the new one that shares `n2` with it.
fn lists(nodes: &[MemoryNode]) -> (Process, Process) {
    (Process::on(&nodes[..3]), Process::on(&nodes[2..]))
}

/// Looks again and again for `time` whether `new` gets the lock that `old` has or could have.
async fn never_both(old: &LockManager, new: &LockManager, time: Duration) {
    let held = old.try_acquire("k").await.ok();
    never_both_after(old, new, held, time).await;
}

/// The same where `old` has it already, or has not; returns the lock that it has at last.
async fn never_both_after(
    old: &LockManager,
    new: &LockManager,
    mut held: Option<LockGuard>,
    time: Duration,
) -> Option<LockGuard> {
    let began = Instant::now();
    while began.elapsed() < time {
        if held.as_ref().is_none_or(|guard| guard.is_lost()) {
            held = old.try_acquire("k").await.ok();
        }
        if let Ok(other) = new.try_acquire("k").await {
            let valid = held.as_ref().is_some_and(|guard| !guard.is_lost());
            assert!(!valid, "two holders after {:?}", began.elapsed());
            drop(other);
        }
        sleep(37 * MS).await;
    }
    held
}

/// The same where `old` has the lock `guard`, and keeps it.
async fn never_both_beside(guard: LockGuard, old: &LockManager, new: &LockManager, time: Duration) {
    let fence = guard.fence();
    let held = never_both_after(old, new, Some(guard), time).await;
    let held = held.filter(|held| !held.is_lost());
    let kept = held.and_then(|held| held.fence());
    assert_eq!(kept, fence, "nothing has happened to the old ones");
}

fn foreign(locks: &LockManager) -> Vec<String> {
    let nodes = locks.snapshot().nodes.into_iter();
    let foreign = nodes.filter(|node| matches!(node.voting, VotingStatus::Foreign { .. }));
    foreign.map(|node| node.name).collect()
}

/// It grants locks, and takes them back.
async fn grants(locks: &LockManager) {
    let guard = locks.try_acquire("another").await.unwrap();
    guard.release().await.unwrap();
}

fn is_voting(locks: &LockManager, node: usize) -> bool {
    locks.snapshot().nodes[node].voting == VotingStatus::Voting
}

async fn refusal(locks: &LockManager) -> String {
    no_quorum(locks, "refused").await.to_string()
}

const OLD: &str = "nodes n0, n1, n2; quorum 2";
const NEW: &str = "nodes n2, n3, n4; quorum 2";

#[tokio::test(start_paused = true)]
async fn who_does_not_connect_first_finds_the_node_that_others_have_all_the_same() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let old = connected(old.builder().max_hold(100 * TTL)).await;
    let guard = old.try_acquire("k").await.unwrap();
    let new = lazy(new.builder());
    let text = refusal(&new).await;
    assert!(text.contains(OLD) && text.contains(NEW), "{text}");
    assert_eq!(foreign(&new), ["n2"]);
    never_both_beside(guard, &old, &new, 4 * TTL).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_one_node_of_which_was_never_reached_grants_nothing() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let old = connected(old.builder().max_hold(100 * TTL)).await;
    let guard = old.try_acquire("k").await.unwrap();
    new.0[0].cut();
    let locks = lazy(new.builder());
    never_both_beside(guard, &old, &locks, 8 * TTL).await;
    // And when it is reached at last, it is another's.
    new.0[0].mend();
    sleep(2 * SECOND).await;
    assert_eq!(foreign(&locks), ["n2"]);
    never_both(&old, &locks, 2 * TTL).await;
}

/// Both lists are complete by then, so that each could go on at once.
#[tokio::test(start_paused = true)]
async fn who_gets_a_node_back_from_another_list_waits_until_that_must_have_noticed() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let (old_link, new_link) = (&old.0[2], &new.0[0]);
    let hour = 3_600 * SECOND;
    let old_locks = old.builder().max_hold(hour).connect().await.unwrap();
    let new_locks = lazy(new.builder().max_hold(hour));
    sleep(2 * SECOND).await;
    let (mut one, mut other) = ((&old_locks, old_link), (&new_locks, new_link));
    let mut held = one.0.try_acquire("k").await.unwrap();
    for turn in 0..4 {
        // It forgets, and the first to look at it is of the other list.
        one.1.cut();
        nodes[2].forget();
        sleep(1_850 * MS).await;
        // As late as can be, so that it ends later than whatever was forgotten.
        held.release().await.unwrap();
        held = one.0.try_acquire("k").await.unwrap();
        one.1.mend();
        assert!(foreign(other.0).is_empty(), "turn {turn}");
        never_both_after(one.0, other.0, Some(held), 6 * TTL).await;
        grants(other.0).await;
        refusal(one.0).await;
        (one, other) = (other, one);
        held = one.0.try_acquire("k").await.unwrap();
    }
}

/// The node that the others have is the last to be connected to.
#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_wait_when_it_starts_waits_for_its_connections() {
    for (connecting, waits) in [(300 * MS, true), (900 * MS, true), (3 * SECOND, false)] {
        let nodes = nodes(5);
        let (old, new) = lists(&nodes);
        let locks = connected(old.builder()).await;
        let others = lazy(new.builder());
        sleep(2 * SECOND).await;
        old.0[2].cut();
        nodes[2].forget();
        sleep(30 * SECOND).await;
        old.0[2].mend();
        sleep(2 * SECOND).await;
        assert_eq!(foreign(&locks), ["n2"]);
        grants(&others).await;
        let again = Process::on(&nodes[..3]);
        again.0[2].connect_for(connecting);
        let again = lazy(again.builder());
        let began = Instant::now();
        let outcome = again.try_acquire("k").await;
        let took = began.elapsed();
        if waits {
            let Err(AcquireError::NoQuorum(error)) = outcome else {
                panic!("{outcome:?}");
            };
            assert!(error.is_disagreement(), "{error}");
            let soon = connecting..connecting + 50 * MS;
            assert!(soon.contains(&took), "{took:?}");
        } else {
            // As where it cannot be reached at all; see `docs::promises`.
            drop(outcome.unwrap());
            assert!(took >= SECOND && took < 1_200 * MS, "{took:?}");
        }
        // Only the first callers wait.
        let began = Instant::now();
        let _ = again.try_acquire("other").await;
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}

/// Two lists, complete, of which the one has the node that both have; it forgets, and the other takes it.
async fn taken_back(nodes: &[MemoryNode]) -> (Process, LockManager) {
    let (old, new) = lists(nodes);
    let _old = connected(old.builder()).await;
    let locks = lazy(new.builder());
    sleep(15 * SECOND).await;
    assert_eq!(foreign(&locks), ["n2"]);
    // Whoever is the first to look at it.
    old.0[2].cut();
    nodes[2].forget();
    while !foreign(&locks).is_empty() {
        sleep(5 * MS).await;
    }
    (new, locks)
}

/// It is waited for as long as for any quarantine, and the node costs its vote alone then.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_taken_back_and_cannot_be_promoted_blocks_for_a_while_only() {
    for is_down in [true, false] {
        let nodes = nodes(5);
        let (new, locks) = taken_back(&nodes).await;
        if is_down {
            new.0[0].cut();
        } else {
            new.0[0].refuse_promotion();
        }
        let began = Instant::now();
        // At least a lock of the others, and what they need to notice; 60 s are agreed on as the longest ttl.
        while began.elapsed() < TTL + 2 * SECOND {
            let text = refusal(&locks).await;
            assert!(text.contains("must have noticed"), "{text}");
            sleep(500 * MS).await;
        }
        while locks.try_acquire("k").await.is_err() {
            assert!(began.elapsed() < 70 * SECOND, "down: {is_down}");
            sleep(100 * MS).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_need_not_wait_for_others_to_notice() {
    for adopts in [true, false] {
        let nodes = nodes(5);
        let (_new, locks) = taken_back(&nodes).await;
        refusal(&locks).await;
        if adopts {
            locks.adopt_nodes(None).await.unwrap();
        } else {
            let began = Instant::now();
            locks.bootstrap().await.unwrap();
            assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
        }
        grants(&locks).await;
    }
}

/// The nodes that the list between had not have voted for the first one all the time.
#[tokio::test(start_paused = true)]
async fn who_takes_a_list_back_waits_until_the_list_between_must_have_noticed() {
    for (groups, restarts) in [(1, false), (1, true), (2, false), (2, true)] {
        let nodes = nodes(6);
        let first = || Process::on(&nodes).builder().groups(groups);
        let mut old = first().connect().await.unwrap();
        let between = Process::on(&nodes[..1]).builder().max_hold(100 * TTL);
        let between = lazy(between);
        between.adopt_nodes(None).await.unwrap();
        let held = between.try_acquire("k").await.unwrap();
        assert_eq!(foreign(&old), ["n0"]);

        let back = old.clone();
        let adopting = begun(async move { back.adopt_nodes(None).await.unwrap() }).await;
        let adopting = tokio::spawn(adopting);
        if restarts {
            // By then it serves the first list.
            sleep(MS).await;
            old = first().connect_lazy().unwrap();
        }
        let began = Instant::now();
        assert!(!held.is_lost());
        never_both_after(&between, &old, Some(held), 2 * SECOND).await;
        let text = refusal(&old).await;
        assert!(text.contains("must have noticed"), "{text}");
        refusal(&between).await;
        adopting.await.unwrap();
        let waited = began.elapsed();
        assert!(waited >= TTL + 2 * SECOND, "{groups}: {waited:?}");
        if restarts {
            sleep(SECOND).await;
        }
        grants(&old).await;
    }
}

/// Else a process that starts then would wait for the last of them anew.
#[tokio::test(start_paused = true)]
async fn a_list_is_taken_over_when_all_of_its_nodes_vote() {
    let nodes = nodes(3);
    nodes.iter().for_each(MemoryNode::forget);
    // The last one is new in the list, and then it is not.
    for (before, max_ttl) in [(2, SECOND), (3, 3 * SECOND)] {
        let old = over(nodes[..before].to_vec()).ttl(SECOND);
        drop(old.connect().await.unwrap());
        let operator = Process::on(&nodes);
        let locks = lazy(operator.builder().ttl(SECOND).max_ttl(max_ttl));
        operator.0[2].refuse_promotion();
        let mut adopting = Box::pin(locks.adopt_nodes(None));
        while !is_voting(&locks, 1) {
            assert!(poll_once(&mut adopting).await.is_none());
            sleep(MS).await;
        }
        let votes = |node: usize| is_voting(&locks, node);
        assert!(votes(0) && votes(1) && !votes(2));
        assert!(poll_once(&mut adopting).await.is_none(), "by two of three");
        // It is not waited for for ever.
        adopting.await.unwrap();
        if before == 2 {
            // As the next operator finds them.
            drop(locks);
            nodes.iter().for_each(MemoryNode::forget);
        }
    }
    // And without such trouble whoever comes next is granted locks at once.
    let third = || over(nodes.clone()).ttl(2 * SECOND).max_ttl(2 * SECOND);
    let locks = lazy(third());
    locks.adopt_nodes(None).await.unwrap();
    let next = connected(third()).await;
    grants(&next).await;
}

/// However late the node answers that is still on its way from the other list.
#[tokio::test(start_paused = true)]
async fn who_starts_before_the_last_node_is_taken_over_waits_for_it() {
    for slow in [0, 50, 150] {
        let nodes = nodes(3);
        drop(over(nodes.clone()).ttl(SECOND).connect().await.unwrap());
        let operator = Process::on(&nodes);
        let new = |settings: Settings| settings.ttl(SECOND).max_ttl(2 * SECOND);
        let locks = lazy(new(operator.builder()));
        operator.0[2].refuse_promotion();
        locks.adopt_nodes(None).await.unwrap();
        drop(locks);
        nodes[2].freeze();
        let last = nodes[2].clone();
        tokio::spawn(async move {
            sleep(slow * MS).await;
            last.thaw();
        });
        let next = connected(new(over(nodes.clone()))).await;
        assert!(is_voting(&next, 2), "{slow}");
        grants(&next).await;
    }
}

/// At each reading of it, a request asks for a lock, as it could on another thread.
#[derive(Debug, Default)]
struct Asking {
    locks: OnceLock<LockManager>,
    is_asking: AtomicBool,
    granted: AtomicUsize,
    refused: AtomicUsize,
}

impl Asking {
    fn ask(&self, locks: &LockManager) {
        let asked = locks.try_acquire("k");
        let outcome = pin!(asked).poll(&mut Context::from_waker(Waker::noop()));
        match outcome {
            Poll::Ready(Err(AcquireError::NoQuorum(error))) if error.is_disagreement() => {
                self.refused.fetch_add(1, Ordering::SeqCst);
            }
            _ => drop(self.granted.fetch_add(1, Ordering::SeqCst)),
        }
    }
}

#[derive(Clone, Debug)]
struct AskingClock(TokioClock, Arc<Asking>);

impl Clock for AskingClock {
    fn follows_runtime(&self) -> bool {
        true
    }

    fn now(&self) -> Moment {
        if let Some(locks) = self.1.locks.get()
            && !self.1.is_asking.swap(true, Ordering::SeqCst)
        {
            self.1.ask(locks);
            self.1.is_asking.store(false, Ordering::SeqCst);
        }
        self.0.now()
    }

    fn unix_micros(&self) -> u64 {
        self.0.unix_micros()
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_no_moment_between_their_node_and_ours() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let _old = connected(old.builder()).await;
    let asking = Arc::new(Asking::default());
    let clock = AskingClock(TokioClock::new(), Arc::clone(&asking));
    let locks = lazy(new.builder().clock(clock));
    sleep(15 * SECOND).await;
    assert_eq!(foreign(&locks), ["n2"]);
    asking.locks.set(locks.clone()).unwrap();
    old.0[2].cut();
    nodes[2].forget();
    sleep(9 * SECOND).await;
    assert!(foreign(&locks).is_empty());
    // It has not been promoted, and not a single one of many was let through.
    let (granted, refused) = (&asking.granted, &asking.refused);
    assert_eq!(granted.load(Ordering::SeqCst), 0);
    assert!(refused.load(Ordering::SeqCst) > 20);
}

#[tokio::test(start_paused = true)]
async fn of_two_lists_that_share_a_node_which_forgets_only_one_goes_on() {
    // Whoever is the first to look at it then: each looks every second.
    let mut first = Vec::new();
    for late in [50 * MS, 980 * MS] {
        let nodes = nodes(5);
        let (old, new) = lists(&nodes);
        let old = connected(old.builder().max_hold(100 * TTL)).await;
        sleep(300 * MS).await;
        let new = lazy(new.builder());
        // Longer than any quarantine that had begun before.
        sleep(15 * SECOND).await;
        let held = old.try_acquire("k").await.unwrap();
        sleep(late).await;
        nodes[2].forget();
        never_both_after(&old, &new, Some(held), 4 * TTL).await;
        first.push(foreign(&new).is_empty());
        assert_eq!(foreign(&old).len() + foreign(&new).len(), 1);
        let (on, off) = if foreign(&new).is_empty() {
            (&new, &old)
        } else {
            (&old, &new)
        };
        grants(on).await;
        let text = refusal(off).await;
        assert!(text.contains(OLD) && text.contains(NEW), "{text}");
        assert!(text.starts_with("nothing is granted while"), "{text}");
    }
    assert_eq!(first, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn what_is_held_ends_with_its_validity_when_a_node_turns_out_to_be_another_s() {
    let nodes = nodes(5);
    let (a, b) = lists(&nodes);
    let old = connected(a.builder().max_hold(100 * TTL)).await;
    let guard = old.try_acquire("k").await.unwrap();
    let new = lazy(b.builder());
    sleep(2 * SECOND).await;
    a.0[2].cut();
    nodes[2].forget();
    sleep(30 * SECOND).await;
    assert!(foreign(&new).is_empty() && !guard.is_lost());
    grants(&new).await;
    // The two that are left would extend it, and nobody knows better.
    a.0[2].mend();
    let seen = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(seen.elapsed() < TTL + SECOND, "{:?}", seen.elapsed());
    assert_eq!(foreign(&old), ["n2"]);
    for node in &nodes[..2] {
        assert!(!node.keys().contains(&"lk:another".to_owned()));
    }
    refusal(&old).await;
    // Who is right is for somebody to say.
    sleep(TTL).await;
    old.adopt_nodes(None).await.unwrap();
    grants(&old).await;
    sleep(2 * SECOND).await;
    refusal(&new).await;
}

/// All of its nodes accept a list before it grants; and one that others have blocks it until it is taken over.
#[tokio::test(start_paused = true)]
async fn a_node_that_was_left_behind_when_the_settings_changed_has_to_be_taken_over_too() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let before = connected(a.builder()).await;
    grants(&before).await;
    drop(before);
    let locks = lazy(b.builder().ttl(SECOND).max_ttl(SECOND));
    let adopting = begun(locks.adopt_nodes(None)).await;
    // All were connected, and this one was not asked yet.
    b.0[2].cut();
    let error = adopting.await.unwrap_err().to_string();
    let why = "every node has accepted this list";
    assert!(error.contains(why), "{error}");
    // It comes back with what it knew.
    b.0[2].mend();
    sleep(2 * SECOND).await;
    assert_eq!(foreign(&locks), ["n2"]);
    let text = refusal(&locks).await;
    let both = ["max_ttl 10s", "max_ttl 1s"];
    assert!(both.iter().all(|ttl| text.contains(ttl)), "{text}");
    locks.adopt_nodes(None).await.unwrap();
    grants(&locks).await;
    // Those with the settings from before get nothing.
    let before = lazy(a.builder());
    refusal(&before).await;
}

#[tokio::test(start_paused = true)]
async fn no_node_is_taken_over_while_another_is_not_connected() {
    let nodes = nodes(3);
    let (a, b) = (Process::on(&nodes), Process::on(&nodes));
    let before = connected(a.builder()).await;
    b.0[2].cut();
    let locks = lazy(b.builder().ttl(SECOND).max_ttl(SECOND));
    let began = Instant::now();
    let error = locks.adopt_nodes(None).await.unwrap_err();
    assert_eq!(began.elapsed(), 5 * SECOND, "the connect time-out");
    let failures = error.failures().iter().map(|failure| &*failure.node);
    assert_eq!(failures.collect::<Vec<_>>(), ["n2"], "{error}");
    grants(&before).await;
    // Nor is it later.
    b.0[2].mend();
    sleep(2 * SECOND).await;
    assert_eq!(foreign(&locks), ["n0", "n1", "n2"]);
    grants(&before).await;
    drop(before);
    locks.adopt_nodes(None).await.unwrap();
    grants(&locks).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_cannot_start_is_told_of_the_nodes_of_others_too() {
    let nodes = nodes(5);
    let (old, new) = lists(&nodes);
    let _old = connected(old.builder()).await;
    nodes[3].go_down();
    nodes[4].go_down();
    let error = new.builder().connect().await.unwrap_err();
    let ConnectError::NoQuorum(error) = error else {
        panic!("{error:?}");
    };
    let kinds: Vec<_> = error.failures().iter().map(|it| it.error.kind()).collect();
    let down = NodeErrorKind::Unavailable;
    assert_eq!(kinds, [NodeErrorKind::Foreign, down, down], "{error}");
}

/// From `before`, where the old process runs, to `after`, where the new one does: a runtime that nobody polls stands still.
#[test]
fn a_process_that_was_stopped_while_its_list_was_replaced_asks_before_it_is_granted_anything() {
    for holds in [true, false] {
        let (before, after) = (paused(), paused());
        let nodes = nodes(5);
        let (old, new) = lists(&nodes);
        // The two that only the old list has answer first.
        old.0[2].recede(20 * MS);
        let (locks, held) = before.block_on(async {
            let locks = connected(old.builder()).await;
            grants(&locks).await;
            let held = holds.then(|| locks.try_acquire("k"));
            let held = OptionFuture::from(held).await.transpose().unwrap();
            (locks, held)
        });
        let (others, stop) = after.block_on(async {
            let (began, others) = (Instant::now(), lazy(new.builder()));
            let adopted = timeout(TTL - SECOND, others.adopt_nodes(None)).await;
            assert!(adopted.is_err(), "nothing may be granted yet");
            if !holds {
                others.all_voting().await.unwrap();
                grants(&others).await;
            }
            (others, began.elapsed())
        });
        before.block_on(async {
            advance(stop).await;
            match &held {
                None => drop(locks.try_acquire("k").await.unwrap_err()),
                Some(held) => {
                    assert!(!held.is_lost());
                    sleep(2 * SECOND).await;
                    assert!(held.is_lost(), "it is not extended");
                }
            }
            drop((held, locks));
        });
        after.block_on(async { drop(others) });
    }
}

/// Whatever it serves, it cannot be asked.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_being_connected_or_hangs_delays_the_first_caller_alone() {
    for hangs in [false, true] {
        let nodes = nodes(3);
        let process = Process::on(&nodes);
        if hangs {
            process.0[2].recede(60 * SECOND);
        } else {
            process.0[2].connect_for(60 * SECOND);
        }
        let _met = connected(over(nodes.clone())).await;
        let locks = lazy(process.builder().node_timeout(TTL / 3));
        grants(&locks).await;
        for _ in 0..200 {
            sleep(97 * MS).await;
            let began = Instant::now();
            drop(locks.try_acquire("k").await.unwrap());
            assert_eq!(began.elapsed(), Duration::ZERO);
        }
    }
}
