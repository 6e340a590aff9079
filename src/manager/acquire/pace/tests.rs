use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_millis(200);
const CONTENDED: Verdict = Verdict::Contended { remaining: None };
const SPLIT: Verdict = Verdict::Split {
    contenders: 3,
    remaining: None,
};

fn times(waited: u32, left: u32) -> Times {
    Times {
        waited: waited * MS,
        left: left * MS,
        node_timeout: TIMEOUT,
    }
}

#[test]
fn a_caller_that_does_not_wait_gives_up_where_another_has_the_lock() {
    let mut pace = Pace::new(false);
    assert_eq!(pace.next(CONTENDED, || times(1, 0)), Step::GiveUp);
    assert_eq!(pace.next(Verdict::Granted, || times(1, 0)), Step::Take);
    assert_eq!(pace.next(Verdict::NoQuorum, || times(1, 0)), Step::NoQuorum);
}

#[test]
fn a_caller_that_does_not_wait_tries_split_votes_again_for_a_bounded_time() {
    let mut pace = Pace::new(false);
    for _ in 1..MAX_SPLITS {
        assert_eq!(pace.next(SPLIT, || times(1, 0)), Step::StandBack);
    }
    assert_eq!(pace.next(SPLIT, || times(1, 0)), Step::GiveUp);
    let mut slow = Pace::new(false);
    assert_eq!(slow.next(SPLIT, || times(399, 0)), Step::StandBack);
    assert_eq!(slow.next(SPLIT, || times(400, 0)), Step::GiveUp);
}

#[test]
fn a_caller_that_waits_listens_until_its_time_is_over() {
    let mut pace = Pace::new(true);
    assert_eq!(pace.next(CONTENDED, || times(1, 9)), Step::Listen);
    for _ in 1..MAX_SPLITS {
        assert_eq!(pace.next(SPLIT, || times(900, 9)), Step::StandBack);
    }
    assert_eq!(
        pace.next(SPLIT, || times(900, 9)),
        Step::Listen,
        "contenders are stuck"
    );
    assert_eq!(pace.next(CONTENDED, || times(900, 9)), Step::Listen);
    assert_eq!(
        pace.next(SPLIT, || times(900, 9)),
        Step::StandBack,
        "counted anew"
    );
    assert_eq!(pace.next(SPLIT, || times(909, 0)), Step::GiveUp);
    assert_eq!(pace.next(CONTENDED, || times(909, 0)), Step::GiveUp);
}

#[test]
fn only_the_second_token_that_is_not_settled_for_lack_of_a_quorum_ends_the_call() {
    let mut pace = Pace::new(true);
    assert!(!pace.must_end(true, MS));
    assert!(pace.must_end(true, MS));
    assert!(Pace::new(true).must_end(false, MS), "another error");
    assert!(
        Pace::new(true).must_end(true, Duration::ZERO),
        "no time is left"
    );
    assert!(!Pace::new(false).must_end(true, Duration::ZERO));
}

#[test]
fn a_lone_contender_does_not_stand_back_and_draws_no_random_number() {
    let pace = Pace::new(true);
    let draw = || unreachable!("nothing is drawn");
    assert_eq!(pace.after_split(MS, draw), None);
    assert_eq!(pace.after_release(MS, Duration::ZERO, MS, draw), None);
    // A caller that has waited for longer than the holder had does not pause.
    assert_eq!(pace.after_release(9 * MS, 5 * MS, MS, draw), None);
    let younger = pace.after_release(MS, 10 * MS, MS, draw);
    assert!(younger.is_some_and(|delay| delay <= 2 * MS), "{younger:?}");
}

#[test]
fn of_the_contenders_that_split_the_nodes_those_that_draw_a_short_pause_ask_at_once() {
    let mut pace = Pace::new(true);
    let (contenders, remaining) = (2, None);
    pace.next(
        Verdict::Split {
            contenders,
            remaining,
        },
        || times(1, 9),
    );
    // Two contenders draw up to a round trip, and pause only from three quarters of one on.
    let paused = |eighths: u64| pace.after_split(4 * MS, || (u64::MAX / 8 + 1) * eighths);
    assert_eq!((paused(1), paused(5)), (None, None));
    assert_eq!(
        (paused(6), paused(7)),
        (Some(3 * MS), Some(3500 * MS / 1000))
    );
}

#[test]
fn the_nodes_are_asked_again_when_the_lease_of_the_holder_is_over() {
    let mut pace = Pace::new(true);
    let end = pace.listen_for(Some(7 * MS), true, u64::MAX);
    assert_eq!(end, 8 * MS, "a server keeps a key for its last millisecond");
    // If no notice announces the end, the contender polls for it, soon at first.
    let polled = Pace::new(true).listen_for(Some(Duration::ZERO), true, u64::MAX);
    assert!(polled < FIRST_POLL && polled > FIRST_POLL / 2, "{polled:?}");
    let notified = Pace::new(true).listen_for(None, true, u64::MAX);
    assert!(notified < FIRST_POLL_NOTIFIED && notified > FIRST_POLL_NOTIFIED / 2);
}

#[test]
fn callers_of_several_keys_do_not_hurry_twice_because_subscriptions_work() {
    let mut pace = Pace::new(true);
    assert!(pace.ends_when_open(true));
    pace.woken(Some(Woken::Opened));
    assert!(!pace.ends_when_open(true) && pace.ends_when_open(false));
    pace.woken(Some(Woken::Released));
    assert!(pace.ends_when_open(true));
}

proptest! {
    /// For any verdicts: a caller whose time is over does not go on, and waits are bounded.
    #[test]
    fn it_comes_to_an_end(
        verdicts in prop::collection::vec((0_u8..4, 0_usize..9), 1..40),
        random in any::<u64>(),
        is_patient in any::<bool>(),
    ) {
        let mut pace = Pace::new(is_patient);
        let mut splits = 0;
        for (kind, contenders) in verdicts {
            let verdict = match kind {
                0 => Verdict::Granted,
                1 => Verdict::NoQuorum,
                2 => CONTENDED,
                _ => Verdict::Split { contenders, remaining: None },
            };
            splits = if kind == 3 { splits + 1 } else { splits };
            let left = u32::from(is_patient) * 5;
            let step = pace.next(verdict, || times(1, left));
            let goes_on = matches!(step, Step::StandBack | Step::Listen);
            prop_assert!(!goes_on || is_patient || splits < MAX_SPLITS);
            let over = pace.clone().next(verdict, || times(1_000, 0));
            prop_assert!(!matches!(over, Step::StandBack | Step::Listen));
            if let Some(delay) = pace.after_split(MS, || random) {
                prop_assert!(delay <= MS * u32::try_from(contenders.max(9)).unwrap() / 2);
            }
            prop_assert!(pace.listen_for(None, false, random) <= SLOWEST_POLL);
        }
    }
}
