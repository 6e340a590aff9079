use super::*;

fn at(secs: u64) -> Moment {
    Moment::ORIGIN + Duration::from_secs(secs)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Groups of nodes that have said nothing. Processes with another list notice that a node has left them in 3 s.
fn roll(groups: usize, size: usize) -> Roll {
    let names = (0..groups * size).map(|node| node.to_string());
    Roll::new(names.collect(), (size, size / 2 + 1), secs(1), true)
}

/// A quarantine of 10 s, of a node that has neither voted nor served another list unless `said` says so.
fn enters(roll: &mut Roll, node: usize, (id, since): (&str, u64), said: fn(&mut Quarantine)) {
    let mut found = Quarantine {
        id: id.to_owned(),
        since: at(since),
        length: secs(10),
        origin: Origin::default(),
        former: Duration::ZERO,
        accepted: false,
        unused: false,
        logged: Logged::default(),
    };
    said(&mut found);
    roll.quarantined(node, found);
    roll.completes(at(since));
}

const fn nothing(_: &mut Quarantine) {}

const fn accepted(it: &mut Quarantine) {
    it.accepted = true;
}

const fn unused(it: &mut Quarantine) {
    it.unused = true;
}

const fn former(it: &mut Quarantine) {
    it.former = secs(60);
}

fn origin(roll: &Roll, node: usize) -> Origin {
    roll.quarantine(node).unwrap().origin
}

#[test]
fn a_quarantine_says_why_it_lasts() {
    let mut roll = roll(1, 1);
    enters(&mut roll, 0, ("a", 100), nothing);
    let mut found = roll.quarantine(0).unwrap().clone();
    for (origin, remembered, start, few) in [
        (Origin::New, false, "it is new or was emptied,", false),
        (
            Origin::Forgot,
            true,
            "it restarted or lost its data,",
            false,
        ),
        (
            Origin::Forgot,
            false,
            "it restarted or lost its data,",
            true,
        ),
        (
            Origin::TakenOver,
            true,
            "it served processes with another list,",
            false,
        ),
    ] {
        found.origin = origin;
        let text = found.explain(Some(secs(5)), remembered);
        assert!(
            text.starts_with(start) && text.contains("another 5.0s"),
            "{text}"
        );
        assert_eq!(
            text.contains("fewer than a quorum of nodes remember"),
            few,
            "{text}"
        );
        assert!(
            found
                .explain(None, remembered)
                .contains("every node has accepted this list")
        );
    }
}

#[test]
fn an_override_lasts_until_the_last_call_that_began_it() {
    const TRUST: Call = |roll| &mut roll.trust;
    const ADOPT: Call = |roll| &mut roll.adoption;
    let mut roll = roll(1, 1);
    let former = secs(60);
    roll.begin(ADOPT, former);
    roll.begin(ADOPT, Duration::ZERO);
    roll.begin(TRUST, Duration::ZERO);
    roll.adoption.end();
    assert_eq!(roll.mode(0), CheckInMode::Adopt { former });
    // The end of the last call of one kind changes nothing for the other.
    roll.trust.end();
    assert_eq!(roll.mode(0), CheckInMode::Adopt { former });
    assert!(!roll.is_trusted(0));
    roll.begin(TRUST, Duration::ZERO);
    roll.adoption.end();
    assert_eq!(roll.mode(0), CheckInMode::Normal);
    assert!(roll.is_trusted(0));
    // A later call begins anew, and ends for each node that it has reached.
    let former = Duration::ZERO;
    roll.begin(ADOPT, former);
    assert_eq!(roll.mode(0), CheckInMode::Adopt { former });
    roll.adoption.pending.remove(&0);
    assert_eq!(roll.mode(0), CheckInMode::Normal);
    roll.voted(0);
    assert!(!roll.is_trusted(0));
}

/// The first check-in of a process may reach a new node before the operator's word does.
#[test]
fn a_new_node_is_taken_over_when_it_is_told_of_the_list_before() {
    let mut roll = roll(1, 1);
    enters(&mut roll, 0, ("a", 0), nothing);
    assert_eq!(origin(&roll, 0), Origin::Unclear);
    // The same answer twice does not prolong the wait.
    for since in [1, 2] {
        enters(&mut roll, 0, ("a", since), former);
        assert_eq!(origin(&roll, 0), Origin::TakenOver);
        assert_eq!(roll.left(0, at(4)), Some(secs(60)));
    }
}

#[test]
fn a_node_that_others_have_lost_blocks_all_grants_even_if_it_forgets_once_more() {
    let mut roll = roll(1, 1);
    roll.foreign(0, "another list".to_owned(), Some("digest".to_owned()));
    assert!(roll.serves_others() && !roll.blocking(at(0)).is_empty());
    // It is theirs until they must have noticed, and then in quarantine.
    for (id, since, ends) in [("first", 0, 13), ("second", 1, 14), ("second", 5, 14)] {
        enters(&mut roll, 0, (id, since), accepted);
        assert_eq!(origin(&roll, 0), Origin::TakenOver);
        assert!(!roll.blocking(at(ends - 1)).is_empty(), "{id}");
        assert!(roll.blocking(at(ends)).is_empty(), "{id}");
    }
    roll.voted(0);
    enters(&mut roll, 0, ("third", 20), nothing);
    assert_eq!(origin(&roll, 0), Origin::Forgot);
}

#[test]
fn the_origin_follows_from_what_was_known_and_what_the_node_says() {
    let mut roll = roll(1, 4);
    roll.voted(1);
    for node in 0..3 {
        enters(&mut roll, node, ("first", 0), nothing);
    }
    enters(&mut roll, 3, ("first", 0), former);
    let origins = |roll: &Roll| [0, 1, 2, 3].map(|node| origin(roll, node));
    use Origin::{Forgot, New, TakenOver, Unclear};
    assert_eq!(origins(&roll), [Unclear, Forgot, Unclear, TakenOver]);
    // The first answer of the other nodes decides, and later ones change nothing.
    for (node, intact, is_new) in [(0, 0, true), (0, 1, true), (2, 1, false), (2, 0, false)] {
        assert_eq!(roll.is_new(node, intact), is_new);
    }
    assert!(!roll.is_new(1, 0) && !roll.is_new(3, 0));
    assert_eq!(origins(&roll), [New, Forgot, Forgot, TakenOver]);
    // The same quarantine stays what it was; another one shows that the node forgot.
    enters(&mut roll, 0, ("first", 1), nothing);
    enters(&mut roll, 3, ("second", 1), nothing);
    assert_eq!(origins(&roll), [New, Forgot, Forgot, TakenOver]);
    assert_eq!(roll.quarantine(3).unwrap().former, secs(60));
    enters(&mut roll, 0, ("second", 1), nothing);
    assert_eq!(origin(&roll, 0), Forgot);
    // It has voted under this list.
    let mut roll = self::roll(1, 1);
    enters(&mut roll, 0, ("first", 0), accepted);
    assert!(!roll.is_new(0, 0));
}

#[test]
fn a_wait_begins_when_all_nodes_have_accepted_the_list_and_others_had_time_to_notice() {
    let mut roll = roll(1, 2);
    enters(&mut roll, 0, ("a", 1), nothing);
    assert_eq!(roll.left(0, at(9)), None);
    enters(&mut roll, 1, ("b", 2), nothing);
    // All have accepted it at 2 s; processes with another list have noticed at 5 s.
    assert_eq!(
        [0, 1].map(|node| roll.left(node, at(5))),
        [Some(secs(10)); 2]
    );
    assert!(!roll.may_promote(0, at(14)) && roll.may_promote(0, at(15)));
    // A node that goes over to others takes the acceptance back.
    roll.foreign(1, "another list".to_owned(), None);
    roll.completes(at(6));
    assert_eq!(roll.left(0, at(9)), None);
    assert!(!roll.may_promote(0, at(99)));
    // A node that votes is proof.
    roll.voted(1);
    roll.completes(at(7));
    assert_eq!(roll.left(0, at(9)), Some(secs(2)));
    // The longest quarantine of a list that was replaced counts for all.
    enters(&mut roll, 1, ("c", 7), |it| {
        former(it);
        accepted(it);
    });
    roll.voted(1);
    enters(&mut roll, 1, ("d", 7), former);
    enters(&mut roll, 0, ("a", 8), accepted);
    assert_eq!(roll.left(0, at(9)), Some(secs(52)));
}

#[test]
fn the_setting_bootstrap_trusts_only_the_first_quarantine_of_a_node() {
    let mut roll = roll(1, 2);
    roll.trust_new(true);
    roll.voted(0);
    enters(&mut roll, 1, ("a", 1), former);
    assert!(roll.is_exempt(1) && roll.blocking(at(1)).is_empty());
    enters(&mut roll, 0, ("b", 1), nothing);
    assert!(!roll.is_exempt(0));
    enters(&mut roll, 1, ("c", 1), nothing);
    assert!(!roll.is_exempt(1));
    let mut roll = self::roll(1, 1);
    roll.trust_new(true);
    enters(&mut roll, 0, ("a", 1), nothing);
    assert!(roll.is_exempt(0));
    roll.trust_new(false);
    assert!(!roll.is_exempt(0));
}

#[test]
fn each_line_on_a_quarantine_is_logged_once() {
    let mut roll = roll(1, 2);
    enters(&mut roll, 0, ("a", 1), nothing);
    // The other node may answer within a second.
    assert_eq!(roll.next_line(0, at(1)), None);
    assert_eq!(roll.next_line(0, at(2)), Some(Logged::Incomplete));
    assert_eq!(roll.next_line(0, at(3)), None);
    roll.voted(1);
    assert_eq!(roll.next_line(0, at(3)), Some(Logged::Wait));
    assert_eq!(roll.next_line(0, at(4)), None);
    // Nobody waits for a node that has nothing to forget.
    enters(&mut roll, 0, ("b", 5), unused);
    assert_eq!(roll.next_line(0, at(9)), None);
}

#[test]
fn fencing_tokens_are_lost_where_too_few_nodes_remember_them() {
    let lost = |warns| Some(Tokens::Lost { warns });
    let mut roll = roll(1, 3);
    roll.voted(1);
    roll.voted(2);
    enters(&mut roll, 0, ("a", 0), nothing);
    assert_eq!(roll.promotion(0, 2, at(9)), None, "the wait goes on");
    assert_eq!(roll.promotion(0, 2, at(10)), Some(Tokens::Remembered));
    assert_eq!(roll.promotion(0, 1, at(10)), lost(true));
    // Nothing says that this one was ever used.
    let mut roll = self::roll(1, 3);
    roll.voted(1);
    enters(&mut roll, 0, ("a", 0), nothing);
    assert_eq!(roll.promotion(0, 0, at(10)), lost(false));
    // An operator says that no lock is held.
    let mut roll = self::roll(1, 3);
    roll.voted(1);
    enters(&mut roll, 0, ("a", 0), nothing);
    roll.begin(|roll| &mut roll.trust, Duration::ZERO);
    assert_eq!(roll.promotion(0, 1, at(0)), lost(false));
    // Where nodes have nothing to forget, nothing is lost.
    let mut roll = self::roll(1, 3);
    for node in 0..3 {
        enters(&mut roll, node, ("a", 0), unused);
    }
    assert_eq!(roll.promotion(0, 0, at(0)), Some(Tokens::Remembered));
}

#[test]
fn a_node_that_is_taken_over_keeps_the_nodes_of_all_groups_waiting() {
    let mut roll = roll(2, 2);
    for node in 0..3 {
        roll.voted(node);
    }
    assert_eq!(roll.until_votes(2..4, at(0), |_| true), [Duration::ZERO]);
    enters(&mut roll, 3, ("a", 0), nothing);
    assert_eq!(roll.until_votes(2..4, at(4), |_| true), [secs(0), secs(6)]);
    assert_eq!(roll.until_votes(0..2, at(4), |_| true), [Duration::ZERO; 2]);
    enters(&mut roll, 3, ("b", 1), former);
    // It is theirs until they have noticed, at 4 s.
    assert_eq!(roll.until_votes(0..2, at(4), |_| true), [secs(60); 2]);
    assert_eq!(roll.until_votes(0..2, at(4), |node| node > 0), [secs(60)]);
    assert!(roll.is_any_quarantined() && roll.remembers(0) && !roll.remembers(2));
}

#[test]
fn a_node_that_refuses_what_it_needs_for_its_vote_is_explained_by_that() {
    let refusal = |text: &'static str| ("check-in", NodeError::new(NodeErrorKind::Rejected, text));
    let mut roll = roll(1, 1);
    enters(&mut roll, 0, ("a", 1), nothing);
    assert!(roll.refuses(0, refusal("no")) && !roll.refuses(0, refusal("no")));
    assert_eq!(roll.explain(0, at(1)), Some(refusal("no").1));
    assert!(roll.refuses(0, refusal("never")));
    assert_eq!(roll.runs(0, Some("promotion")), None);
    assert_eq!(roll.runs(0, Some("check-in")), Some("check-in"));
    let kind = roll.explain(0, at(1)).map(|error| error.kind());
    assert_eq!(kind, Some(NodeErrorKind::Quarantined));
    assert!(roll.refuses(0, refusal("no")));
    assert_eq!(
        (roll.runs(0, None), roll.runs(0, None)),
        (Some("check-in"), None)
    );
}

#[test]
fn a_node_was_asked_before_it_has_answered() {
    let mut roll = roll(1, 1);
    assert!(!roll.all_asked());
    assert!(roll.unanswered(0, at(1)) && !roll.unanswered(0, at(2)));
    // Nor is what it answers to others an answer to a check-in.
    roll.refused_as_foreign(0, &NodeError::new(NodeErrorKind::Foreign, "other"));
    assert!(roll.all_asked() && !roll.has_answered(0) && roll.is_foreign(0, None));
    assert!(!roll.is_foreign(0, Some("of another list")));
    roll.voted(0);
    assert!(roll.has_answered(0) && !roll.unanswered(0, at(3)));
}

#[test]
fn a_lock_may_count_from_two_seconds_after_each_node_was_asked_at_most() {
    let mut roll = roll(1, 2);
    roll.asked(0, at(10));
    assert_eq!(roll.relied_until(), Moment::ORIGIN, "one was never asked");
    // It hangs: the next question is not over before that.
    roll.unanswered(1, at(9));
    assert_eq!(roll.relied_until(), at(12));
    roll.asked(0, at(20));
    assert_eq!(roll.relied_until(), at(9 + 3 + 1));
    roll.asked(1, at(15));
    assert_eq!(roll.relied_until(), at(17));
    // An earlier question, whose answer comes late.
    assert!(roll.is_outdated(1, at(14)) && !roll.is_outdated(1, at(15)));
}
