//! Every transition, without a clock or a runtime.

use proptest::prelude::*;

use super::*;
use crate::protocol::on_nodes::Keys;
use crate::protocol::quorum::{Drift, Quorum};
use crate::protocol::renewal::Terms;
use crate::token::Holder;

const TTL: Duration = Duration::from_secs(10);
/// A hand-over is to be accepted within it.
const TIME: Duration = Duration::from_millis(200);
/// When the validity of a grant at the start ends, in milliseconds.
const END: u64 = 9_898;

fn terms() -> Terms {
    Terms {
        quorum: Quorum::masking(5, 0).unwrap(),
        ttl: TTL,
        drift: Drift::default(),
        retry: Duration::from_millis(400),
        max_hold: Duration::from_secs(60),
    }
}

fn at(millis: u64) -> Moment {
    Moment::ORIGIN + Duration::from_millis(1_000_000 + millis)
}

fn granted_on(nodes: impl IntoIterator<Item = usize>) -> LeaseState {
    held_on(granted(nodes))
}

fn granted(nodes: impl IntoIterator<Item = usize>) -> OnNodes {
    let mut granted = OnNodes::new(terms().quorum, Keys::All, terms().validity());
    for node in nodes {
        granted.land(node, at(0), OURS);
    }
    granted
}

fn held_on(nodes: OnNodes) -> LeaseState {
    LeaseState::new(nodes, Renewal::new(terms(), at(0)), at(0))
}

const OURS: Landed = Landed::Ours {
    fence: None,
    key: 0,
};
const ANOTHERS: Landed = Landed::Anothers(Holder {
    tag: 1,
    remaining: None,
    key: None,
});

fn lost(reason: LossReason, held_millis: u64) -> Effects {
    Effects {
        notify_ended: true,
        lost: Some(reason),
        pass_turn: true,
        held_for: Some(Duration::from_millis(held_millis)),
        ..Effects::default()
    }
}

fn released(held_millis: u64) -> Effects {
    Effects {
        notify_ended: true,
        held_for: Some(Duration::from_millis(held_millis)),
        ..Effects::default()
    }
}

const fn never() -> Moment {
    Moment::from_nanos(u64::MAX)
}

const fn nothing() -> Effects {
    Effects {
        notify_ended: false,
        notify_landed: false,
        lost: None,
        pass_turn: false,
        held_for: None,
        renew: Vec::new(),
        hand_over: None,
        lapsed: None,
    }
}

fn passing() -> HandOff {
    HandOff::new(2, Duration::from_secs(30))
}

#[track_caller]
fn assert_ended(state: &mut LeaseState, tenant: u32, because: LossReason) {
    let later = at(1_000_000);
    assert_eq!(
        state.ended_because(tenant, later),
        (Some(because), nothing())
    );
}

/// A state whose end was announced, at [`END`] less 5 ms.
fn ending() -> LeaseState {
    let mut state = granted_on(0..3);
    assert_eq!(state.tick(at(9_000)).renew, [0, 1, 2, 3, 4]);
    let announced = Effects {
        notify_ended: true,
        ..Effects::default()
    };
    assert_eq!(state.tick(at(END - 5)), announced);
    assert_eq!(state.due(), at(END));
    state
}

#[test]
fn it_is_lost_once_and_exactly_when_its_deadline_has_passed() {
    let mut state = granted_on(0..3);
    assert_eq!(state.deadline, at(END));
    assert_eq!(state.check(at(END - 1)), nothing());
    assert_eq!(state.ended_because(0, at(END - 1)), (None, nothing()));
    assert_eq!(state.check(at(END)), lost(LossReason::Expired, END));
    assert_eq!(state.check(at(END)), nothing());
    assert_eq!(state.deadline, Moment::ORIGIN);
    assert_eq!(state.tick(at(END)), nothing());
    assert_eq!(state.due(), never(), "it is looked at no more");
    assert_ended(&mut state, 0, LossReason::Expired);
}

#[test]
fn every_event_sees_that_the_deadline_has_passed() {
    let after = at(END + 2);
    let expired = || lost(LossReason::Expired, END + 2);
    assert_eq!(granted_on(0..3).tick(after), expired());
    assert_eq!(
        granted_on(0..3).land(3, at(0), Landed::NoEffect, after),
        expired()
    );
    assert_eq!(
        granted_on(0..3).ended_because(0, after),
        (Some(LossReason::Expired), expired())
    );
    assert_eq!(
        granted_on(0..3).share(0, after),
        (Err(LossReason::Expired), expired())
    );
    assert_eq!(ending().tick(after), expired());
    let (end, effects) = granted_on(0..3).let_go(after);
    assert_eq!((end.lost, effects), (Some(LossReason::Expired), expired()));
}

#[test]
fn a_tick_extends_and_the_replies_move_the_deadline() {
    let mut state = granted_on(0..3);
    let first = state.due();
    assert_eq!((state.tick(at(1)), state.due()), (nothing(), first));
    let due = state.tick(at(3_500));
    assert_eq!(due.renew, [0, 1, 2, 3, 4]);
    assert!(state.nodes.is_in_flight(0));
    for (node, deadline) in [(3, END), (4, END), (0, END + 3_500)] {
        let effects = state.land(node, at(3_500), OURS, at(3_510));
        assert_eq!(effects, nothing());
        assert_eq!(state.deadline, at(deadline));
    }
    assert!(!state.nodes.is_in_flight(0) && state.nodes.is_in_flight(1));
    assert_eq!(state.nodes.count_ours(), 5);
    assert_eq!(state.tick(at(3_600)), nothing(), "a quorum has it");
    assert!((at(6_000)..at(7_000)).contains(&state.due()));
}

#[test]
fn nodes_that_are_missing_are_topped_up_unless_they_are_busy() {
    let mut state = granted_on(0..3);
    assert!(state.plan_top_up(at(100)));
    assert_eq!(state.due(), at(100));
    assert_eq!(state.tick(at(100)).renew, [3, 4]);
    assert_eq!(state.land(3, at(100), Landed::Absent, at(110)), nothing());
    assert!(state.plan_top_up(at(200)));
    assert_eq!(state.tick(at(200)).renew, [3]);
    assert!(!granted_on(0..5).plan_top_up(at(100)));
    let (_, released) = state.let_go(at(300));
    assert!(released.notify_ended && !state.plan_top_up(at(400)));
}

#[test]
fn a_node_that_may_have_forgotten_the_lock_is_asked_until_it_answers() {
    let mut state = granted_on(0..3);
    assert_eq!(state.tick(at(3_500)).renew.len(), 5);
    for node in 1..4 {
        assert_eq!(state.land(node, at(3_500), OURS, at(3_510)), nothing());
    }
    let (deadline, forgot) = (state.deadline, at(3_600));
    assert!(!state.doubt(4, forgot, forgot), "it does not count");
    assert!(state.doubt(0, forgot, forgot));
    assert_eq!((state.due(), state.deadline), (forgot, deadline));
    assert_eq!(state.tick(forgot).renew, [0]);
    assert_eq!(
        state.land(0, at(3_500), OURS, at(3_605)),
        nothing(),
        "no answer to that"
    );
    assert_eq!(
        state.land(0, forgot, Landed::NoEffect, at(3_610)),
        nothing()
    );
    assert_eq!(state.tick(at(3_610)), nothing());
    assert!(state.doubt(0, forgot, at(4_600)));
    assert_eq!(state.tick(at(4_600)).renew, [0]);
    assert_eq!(state.land(0, at(4_600), OURS, at(4_610)), nothing());
    assert!(!state.doubt(0, forgot, at(5_600)), "it has answered");
    let late = at(END + 3_500);
    assert!(!state.doubt(1, late, late), "it counts no more");
    let (_, released) = state.let_go(at(5_700));
    assert!(released.notify_ended && !state.doubt(2, at(5_700), at(5_700)));
}

#[test]
fn once_the_end_is_announced_no_extension_revives_it() {
    let mut state = ending();
    for node in 0..5 {
        assert_eq!(state.land(node, at(9_000), OURS, at(END - 4)), nothing());
    }
    assert_eq!(state.deadline, at(END));
    assert_eq!(
        state.ended_because(0, at(END - 4)),
        (Some(LossReason::Expired), nothing())
    );
    assert_eq!(state.share(0, at(END - 4)).0, Err(LossReason::Expired));
    assert_eq!(state.offer(at(END - 4), &passing(), TIME), nothing());
    assert_eq!(state.tick(at(END - 4)), nothing());
    assert_eq!(state.due(), at(END));
    assert_eq!(state.tick(at(END)), lost(LossReason::Expired, END));
}

#[test]
fn an_extension_after_the_deadline_revives_nothing() {
    let mut state = granted_on(0..3);
    assert_eq!(state.tick(at(9_000)).renew.len(), 5);
    assert_eq!(
        state.land(0, at(9_000), OURS, at(END + 1)),
        lost(LossReason::Expired, END + 1)
    );
    for node in 1..5 {
        assert_eq!(state.land(node, at(9_000), OURS, at(END + 1)), nothing());
    }
    assert_eq!(state.deadline, Moment::ORIGIN);
    assert_ended(&mut state, 0, LossReason::Expired);
    assert_eq!(
        state.let_go(at(END + 2)).0.nodes.to_be_released().count(),
        5
    );
}

#[test]
fn too_many_nodes_with_another_token_are_a_loss() {
    let mut state = granted_on(0..5);
    let mut refuse = |node| state.land(node, at(50), ANOTHERS, at(60));
    assert_eq!((refuse(0), refuse(1)), (nothing(), nothing()));
    assert_eq!(refuse(2), lost(LossReason::Taken, 60));
    assert_eq!(refuse(3), nothing());
    assert_ended(&mut state, 0, LossReason::Taken);
}

#[test]
fn the_longest_hold_ends_it_for_that_reason() {
    let mut state = granted_on(0..3);
    for node in 0..3 {
        let effects = state.land(node, at(55_000), OURS, at(100));
        assert_eq!(effects, nothing());
    }
    assert_eq!(state.deadline, at(60_000));
    assert_eq!(state.check(at(60_000)), lost(LossReason::MaxHold, 60_000));
}

#[test]
fn it_is_lost_at_once_and_once() {
    let mut state = granted_on(0..3);
    assert_eq!(
        state.lose(LossReason::Shutdown, at(7)),
        lost(LossReason::Shutdown, 7)
    );
    assert_eq!(state.lose(LossReason::Taken, at(8)), nothing());
    assert_eq!(
        ending().lose(LossReason::Shutdown, at(END - 4)),
        lost(LossReason::Shutdown, END - 4)
    );
    let mut state = granted_on(0..3);
    assert_eq!(state.let_go(at(7)).1, released(7));
    assert_eq!(state.lose(LossReason::Shutdown, at(8)), nothing());
}

#[test]
fn a_lock_that_is_let_go_of_is_released_where_it_may_be_and_commands_in_flight_land_later() {
    let mut nodes = granted(0..3);
    nodes.send(4);
    let mut state = held_on(nodes);
    let (end, effects) = state.let_go(at(80));
    assert_eq!(
        (end.lost, end.given_up, effects),
        (None, None, released(80))
    );
    let to_be_released: Vec<usize> = end.nodes.to_be_released().collect();
    assert_eq!(
        (to_be_released, end.nodes.count_free()),
        (vec![0, 1, 2, 4], 1)
    );
    assert_ended(&mut state, 0, LossReason::Released);
    assert_eq!(state.deadline, Moment::ORIGIN);
    let landed = || Effects {
        notify_landed: true,
        ..Effects::default()
    };
    assert_eq!(state.land(4, at(0), OURS, at(90)), landed());
    assert!(!state.nodes.is_in_flight(4) && state.nodes.is_ours(4));
    assert_eq!(state.land(3, at(0), Landed::Abandoned, at(95)), landed());
    assert!(state.nodes.may_still_run(3));
    assert_eq!(state.deadline, Moment::ORIGIN, "it stays released");
    let (again, effects) = state.let_go(at(100));
    assert_eq!(
        (again.lost, effects),
        (Some(LossReason::Released), nothing())
    );
}

#[test]
fn a_lost_lock_is_let_go_of_without_a_word() {
    let mut state = granted_on(0..3);
    assert_eq!(
        state.lose(LossReason::Taken, at(5)),
        lost(LossReason::Taken, 5)
    );
    let (end, effects) = state.let_go(at(9));
    assert_eq!(end.lost, Some(LossReason::Taken));
    assert!(effects.held_for.is_none() && effects.lost.is_none() && !effects.pass_turn);
}

#[test]
fn work_that_was_told_of_the_end_counts_as_cut_off_though_it_is_released_in_time() {
    let (end, effects) = ending().let_go(at(END - 4));
    assert_eq!((end.lost, effects), (None, released(END - 4)));
    let mut state = ending();
    state.end_is_announced();
    let (end, effects) = state.let_go(at(END - 4));
    let cut_off = Effects {
        lost: Some(LossReason::Expired),
        ..released(END - 4)
    };
    assert_eq!((end.lost, effects), (None, cut_off));
}

#[test]
fn a_hand_over_changes_the_tenant_and_ends_the_lock_for_the_one_before() {
    let mut state = granted_on(0..3);
    assert!(state.leave());
    let handed_over = Effects {
        hand_over: Some(1),
        ..released(40)
    };
    assert_eq!(state.offer(at(40), &passing(), TIME), handed_over);
    assert_eq!((state.tenant, state.since), (1, at(40)));
    assert_eq!(
        state.ended_because(0, at(50)),
        (Some(LossReason::Released), nothing())
    );
    assert_eq!(state.ended_because(1, at(50)), (None, nothing()));
    assert_eq!(state.share(0, at(50)).0, Err(LossReason::Released));
    assert!(state.leave(), "the new tenant has one guard");
    assert_eq!(state.offer(at(60), &passing(), TIME).hand_over, Some(2));
    assert_eq!(state.let_go(at(90)).1, released(30));
}

#[test]
fn only_who_holds_it_sets_how_long_it_is_held() {
    let (mut state, longer) = (granted_on(0..3), Duration::from_secs(5));
    assert!(state.leave());
    let _ = state.offer(at(40), &passing(), TIME);
    assert!(!state.hold_for(0, longer), "it is another's");
    assert!(state.hold_for(1, longer) && !state.hold_for(1, longer));
    let _ = state.let_go(at(50));
    assert!(!state.hold_for(1, 2 * longer), "it is nobody's");
}

#[test]
fn a_hand_over_that_is_not_accepted_in_time_lapses_once() {
    let handed_over = || {
        let mut state = granted_on(0..3);
        let _ = state.offer(at(40), &passing(), TIME);
        state
    };
    let mut late = handed_over();
    assert_eq!((late.due(), late.tick(at(239))), (at(240), nothing()));
    let lapsed = Effects {
        lapsed: Some(1),
        ..nothing()
    };
    assert_eq!(late.tick(at(240)), lapsed);
    assert!(!late.accept(1), "it is another's");
    assert!(late.leave() && late.tick(at(241)) == nothing());
    let _ = late.offer(at(250), &passing(), TIME);
    assert!(!late.accept(1) && late.accept(2) && !late.accept(2));
    let mut taken = handed_over();
    assert!(!taken.accept(0) && taken.accept(1));
    assert!(taken.due() > at(240));
    assert_eq!(taken.tick(at(240)), nothing());
}

#[test]
fn it_is_handed_over_only_where_nothing_speaks_against_it() {
    let refused = |mut state: LeaseState, now: u64, terms: &HandOff| {
        assert_eq!(state.offer(at(now), terms, TIME), nothing());
        assert_eq!((state.tenant, state.since), (0, at(0)));
    };
    let state = || granted_on(0..3);
    refused(state(), 1, &HandOff::OFF);
    refused(state(), 1, &HandOff::new(9, Duration::from_millis(1)));
    refused(state(), END - 4_999, &passing());
    refused(ending(), 1, &passing());
    let mut lost = state();
    assert!(lost.lose(LossReason::Taken, at(0)).pass_turn);
    refused(lost, 1, &passing());
    let offered = state().offer(at(END - 5_000), &passing(), TIME);
    assert_eq!(offered.hand_over, Some(1));
}

#[test]
fn guards_share_it_until_the_last_leaves() {
    let mut state = granted_on(0..3);
    assert_eq!(state.share(0, at(1)), (Ok(()), nothing()));
    assert_eq!(state.share(1, at(1)).0, Err(LossReason::Released));
    assert!(!state.leave());
    assert!(state.leave());
    assert_eq!(state.share(0, at(1)).0, Err(LossReason::Released));
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick,
    Land(usize, u64, Landed),
    Lose,
    Offer,
    Accept(u32),
    Share(u32),
    Leave,
    LetGo,
    Look(u32),
}

fn event() -> impl Strategy<Value = Event> {
    let landed = prop_oneof![
        Just(OURS),
        Just(ANOTHERS),
        Just(Landed::Absent),
        Just(Landed::Abandoned),
        Just(Landed::NoEffect),
    ];
    prop_oneof![
        4 => Just(Event::Tick),
        4 => (0..5_usize, 0..30_000_u64, landed).prop_map(|(node, sent, it)| Event::Land(node, sent, it)),
        1 => Just(Event::Lose),
        2 => Just(Event::Offer),
        1 => (0..3_u32).prop_map(Event::Accept),
        1 => (0..3_u32).prop_map(Event::Share),
        1 => Just(Event::Leave),
        1 => Just(Event::LetGo),
        2 => (0..3_u32).prop_map(Event::Look),
    ]
}

fn perform(state: &mut LeaseState, event: Event, now: Moment) -> Effects {
    match event {
        Event::Tick => state.tick(now),
        Event::Land(node, sent, landed) => state.land(node, at(sent), landed, now),
        Event::Lose => state.lose(LossReason::Shutdown, now),
        Event::Offer => state.offer(now, &passing(), TIME),
        Event::Accept(tenant) => {
            state.accept(tenant);
            Effects::default()
        }
        Event::Share(tenant) => state.share(tenant, now).1,
        Event::LetGo => state.let_go(now).1,
        Event::Look(tenant) => state.ended_because(tenant, now).1,
        Event::Leave => {
            state.leave();
            Effects::default()
        }
    }
}

proptest! {
    #[test]
    fn an_end_is_final_and_told_once(
        events in proptest::collection::vec((0..2_000_u64, event()), 1..60),
    ) {
        let mut state = granted_on(0..3);
        let mut now = at(0);
        let (mut losses, mut held_for, mut ended) = (0, 0, false);
        for (pause, event) in events {
            now += Duration::from_millis(pause);
            let (tenant, phase, before) = (state.tenant, state.phase, state.deadline);
            let effects = perform(&mut state, event, now);
            losses += u32::from(effects.pass_turn);
            held_for += u32::from(effects.held_for.is_some());
            prop_assert_eq!(effects.hand_over.is_some(), state.tenant == tenant + 1);
            prop_assert!(effects.hand_over.is_some() || state.tenant == tenant);
            if ended || phase != Phase::Held {
                prop_assert!(state.deadline <= before, "nothing revives it");
                prop_assert!(effects.hand_over.is_none() && effects.renew.is_empty());
            }
            ended |= matches!(state.phase, Phase::Lost(_) | Phase::Released);
            prop_assert_eq!(ended, state.deadline == Moment::ORIGIN);
            prop_assert!(!ended || state.tick(now) == nothing());
        }
        prop_assert!(losses <= 1);
        prop_assert_eq!(held_for, state.tenant + u32::from(ended), "one time for each tenant");
    }
}
