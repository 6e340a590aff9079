//! What every node must do with the loans of a lock, and with those who borrow.

use std::time::Duration;

use tower_redlock::lock::OwnerHash;
use tower_redlock::node::{Claim, EndClaim, Node, ReleaseReply, VerifyReply, VerifyRequest};

use crate::claims::{Bench, Remote, holder, released};
use crate::records::outlast;
use crate::support::nodes::{LONG, acquire, key, release, token};

const BRIEF: Duration = Duration::from_millis(20);
/// What is left of a lock that has just been taken.
const FULL: &str = "the whole ttl";

/// The first contender, by its hash: `printf 00000001%032d 0 | sha1sum`.
fn owner() -> OwnerHash {
    OwnerHash::parse(b"63e83b92a1574efe6e48e80c871398bbd84aeecb").unwrap()
}

fn claim_of(loan: u32, borrower: u32) -> Claim {
    Claim::new(loan, token(borrower), LONG)
}

/// Claims a loan of the lock `k`, which is the first contender's.
async fn claim(node: &dyn Node, loan: u32, borrower: u32) -> &'static str {
    claim_as(node, claim_of(loan, borrower)).await
}

async fn claim_as(node: &dyn Node, claim: Claim) -> &'static str {
    let request = VerifyRequest::new(key("k"), owner(), None).claiming(claim);
    match node.verify(request).await.unwrap() {
        VerifyReply::Owner { remaining } if remaining > LONG / 2 => FULL,
        VerifyReply::Taken => "taken",
        VerifyReply::NotOwner => "not the owner",
        other => panic!("{other:?}"),
    }
}

async fn end(node: &dyn Node, loan: u32, borrower: u32, ran: bool) {
    let request = EndClaim::new(key("k"), owner(), claim_of(loan, borrower), ran);
    node.end_claim(request).await.unwrap();
}

/// Gives the lock back, which was lent.
async fn give_back(node: &dyn Node) -> ReleaseReply {
    node.release(release("k", 1).lent(true)).await.unwrap()
}

const RELEASED: ReleaseReply = ReleaseReply::Released { listeners: 0 };

pub(crate) async fn a_loan_is_his_who_claims_it_first(bench: &impl Bench) {
    let node = bench.node();
    assert_eq!(claim(&*node, 1, 7).await, "not the owner", "nobody is");
    node.acquire(acquire("k", 1)).await.unwrap();
    // Who was told so has no claim.
    assert_eq!(claim(&*node, 1, 8).await, FULL);
    for _ in 0..2 {
        assert_eq!(claim(&*node, 1, 8).await, FULL, "again");
        assert_eq!(claim(&*node, 1, 7).await, "taken");
        assert_eq!(claim(&*node, 2, 9).await, FULL, "another loan");
        assert_eq!(claim(&*node, 2, 8).await, "taken");
    }
    let looking = VerifyRequest::new(key("k"), owner(), None);
    let reply = node.verify(looking).await.unwrap();
    assert!(matches!(reply, VerifyReply::Owner { .. }), "{reply:?}");
    // The next owner's loans are others.
    assert!(released(&*node, "k", 1).await);
    node.acquire(acquire("k", 2)).await.unwrap();
    assert_eq!(claim(&*node, 1, 8).await, "not the owner");
}

pub(crate) async fn a_lent_lock_stays_while_a_borrower_is_at_work(bench: &impl Bench) {
    let node = bench.node();
    for ran in [true, false] {
        node.acquire(acquire("k", 1)).await.unwrap();
        assert_eq!(claim(&*node, 1, 7).await, FULL);
        assert_eq!(claim(&*node, 2, 8).await, FULL);
        for ended in 0..2 {
            if ended == 1 {
                end(&*node, 1, 7, ran).await;
                // Of what they do not have nobody ends anything.
                end(&*node, 2, 7, ran).await;
            }
            assert_eq!(give_back(&*node).await, ReleaseReply::Lent, "{ended}");
            let held = holder(&*node, "k").await.unwrap();
            assert!(held.remaining.unwrap() > LONG / 2, "{held:?}");
        }
        end(&*node, 2, 8, ran).await;
        let listener = bench.listen("k");
        let reply = give_back(&*node).await;
        assert!(
            matches!(reply, ReleaseReply::Released { listeners: 1 }),
            "{reply:?}"
        );
        drop(listener);
        assert_eq!(holder(&*node, "k").await, None);
        assert_eq!(give_back(&*node).await, ReleaseReply::NotOwner);
    }
    // The loans of a lock that is given back without that are of no more use.
    node.acquire(acquire("k", 1)).await.unwrap();
    assert_eq!(give_back(&*node).await, RELEASED);
}

pub(crate) async fn who_ran_had_the_loan_for_good(bench: &impl Bench) {
    let node = bench.node();
    node.acquire(acquire("k", 1)).await.unwrap();
    assert_eq!(claim(&*node, 1, 7).await, FULL);
    end(&*node, 1, 7, false).await;
    assert_eq!(claim(&*node, 1, 8).await, FULL, "nobody ran");
    for _ in 0..2 {
        end(&*node, 1, 8, true).await;
        assert_eq!(claim(&*node, 1, 7).await, "taken");
    }
    // The end of what was not claimed here, or will be: what was sent before may come later.
    end(&*node, 3, 9, true).await;
    assert_eq!(claim(&*node, 3, 7).await, "taken");
    end(&*node, 4, 9, false).await;
    assert_eq!(claim(&*node, 4, 7).await, FULL);
    end(&*node, 4, 7, true).await;
    assert_eq!(give_back(&*node).await, RELEASED);
}

pub(crate) async fn a_claim_is_remembered_for_as_long_as_was_asked(bench: &impl Bench) {
    let node = bench.node();
    node.acquire(acquire("k", 1)).await.unwrap();
    let brief = Claim::new(1, token(7), BRIEF);
    assert_eq!(claim_as(&*node, brief).await, FULL);
    outlast(&*node, BRIEF).await;
    assert_eq!(claim(&*node, 1, 8).await, FULL);
    // From then on for longer, and nobody shortens that.
    assert_eq!(claim_as(&*node, Claim::new(2, token(7), BRIEF)).await, FULL);
    outlast(&*node, BRIEF).await;
    assert_eq!(claim(&*node, 1, 7).await, "taken");
    assert_eq!(give_back(&*node).await, ReleaseReply::Lent);
}

pub(crate) async fn nothing_is_left_of_loans_that_have_ended(bench: &impl Remote) {
    let node = bench.node();
    let keys = || bench.command(&["KEYS", "lk!*"]);
    node.acquire(acquire("k", 1)).await.unwrap();
    claim(&*node, 1, 7).await;
    claim(&*node, 2, 8).await;
    for key in keys().lines() {
        let left = bench.command(&["PTTL", key]).parse::<i64>().unwrap();
        assert!(left > 0, "{key} stays for ever");
    }
    end(&*node, 1, 7, true).await;
    end(&*node, 2, 8, false).await;
    assert_eq!(give_back(&*node).await, RELEASED);
    end(&*node, 3, 9, true).await;
    assert_eq!(keys(), "");
}

pub(crate) async fn without_memory_nobody_borrows_and_who_does_can_end(bench: &impl Remote) {
    let node = bench.node();
    node.acquire(acquire("k", 1)).await.unwrap();
    assert_eq!(claim(&*node, 1, 7).await, FULL);
    bench.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let request = VerifyRequest::new(key("k"), owner(), None).claiming(claim_of(2, 8));
    let error = node.verify(request).await.unwrap_err();
    assert!(error.to_string().contains("maxmemory"), "{error}");
    // Who has it goes on, and tells when it is done.
    assert_eq!(claim(&*node, 1, 7).await, FULL);
    end(&*node, 3, 9, true).await;
    end(&*node, 1, 7, true).await;
    assert_eq!(give_back(&*node).await, RELEASED);
    bench.command(&["CONFIG", "SET", "maxmemory", "0"]);
}
