//! The header of a loan: as a proof, and sent to a layer that trusts everybody.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_redlock::clock::TokioClock;
use tower_redlock::lock::{LoanProof, OwnerHash};
use tower_redlock::middleware::{LOAN_HEADER, loan_header};
use tower_redlock::node::memory::MemoryNode;
use tower_redlock::{LockKey, LockManager, RedlockLayer};

use super::assert_short;
use super::input::Input;

pub fn run(bytes: &[u8]) -> bool {
    let is_proof = proof(&String::from_utf8_lossy(bytes));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    let ran = runtime.unwrap().block_on(requests(bytes));
    is_proof || ran
}

/// Whether `text` is a proof. If so, it is written in the one way.
fn proof(text: &str) -> bool {
    match text.parse::<LoanProof>() {
        Ok(proof) => {
            assert_eq!(proof.expose(), text);
            assert!(!format!("{proof:?}").contains(proof.owner().as_str()));
            let fence = proof.fence();
            assert!(fence.is_none_or(|fence| text.ends_with(&format!(";{fence}"))));
            true
        }
        Err(error) => {
            assert_short(&error.to_string(), 200);
            false
        }
    }
}

/// Sends a request that shows what the input says. Returns whether it ran.
async fn requests(bytes: &[u8]) -> bool {
    let node = MemoryNode::new("memory");
    let [lender, borrower] = [(); 2].map(|()| {
        let builder = LockManager::builder().nodes([node.clone()]);
        builder.clock(TokioClock::new()).lazy().unwrap()
    });
    let guard = lender.try_acquire("order:1").await.unwrap();
    let loan = guard.lend().unwrap();
    let (_, real) = loan_header(&loan);
    let mut input = Input::new(bytes);
    let shown = shown(&mut input, &real);
    let ran = send(&borrower, &shown).await;
    let owners: Vec<Option<OwnerHash>> = shown.iter().map(owner).collect();
    match (shown.as_slice(), owners.as_slice()) {
        ([one], _) if *one == real => assert!(ran, "the real one is refused"),
        // Who knows the hash knows the secret of the proof; its numbers are the lender's word.
        (_, [Some(owner)]) if *owner == guard.owner_hash() => {}
        _ => assert!(!ran, "{shown:?}"),
    }
    loan.returned();
    // Who changes the numbers of the real proof may have left a claim of another number.
    let _ = guard.release().await;
    ran
}

/// The headers: the real one, one that differs in a few places, or any at all.
fn shown(input: &mut Input<'_>, real: &HeaderValue) -> Vec<HeaderValue> {
    let mut shown = Vec::new();
    for _ in 0..input.below(3) {
        let mut text = real.as_bytes().to_vec();
        for _ in 0..input.below(4) {
            let (at, byte) = (usize::from(input.byte()) % text.len(), input.byte());
            text[at] = byte;
        }
        shown.extend(HeaderValue::from_bytes(&text).ok());
    }
    let lines = input.rest().split(|byte| *byte == b'\n').take(3);
    let lines = lines.filter(|line| !line.is_empty());
    shown.extend(lines.filter_map(|line| HeaderValue::from_bytes(line).ok()));
    shown
}

fn owner(shown: &HeaderValue) -> Option<OwnerHash> {
    let proof: LoanProof = shown.to_str().ok()?.parse().ok()?;
    Some(proof.owner())
}

fn order(_: &Parts) -> LockKey {
    LockKey::new("order:1").unwrap()
}

/// Whether a request that shows these headers runs. The header goes no further, and nobody is told what is in it.
async fn send(locks: &LockManager, shown: &[HeaderValue]) -> bool {
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        assert!(!request.headers().contains_key(LOAN_HEADER));
        count.fetch_add(1, Ordering::SeqCst);
        let mut response = Response::new(Full::<Bytes>::from("done"));
        let secret = HeaderValue::from_static("secret");
        response.headers_mut().insert(LOAN_HEADER, secret);
        async { Ok::<_, Infallible>(response) }
    });
    let mut request = Request::post("/").body(Empty::new()).unwrap();
    for value in shown {
        request.headers_mut().append(LOAN_HEADER, value.clone());
    }
    let layer = RedlockLayer::new(locks.clone(), order as fn(&Parts) -> LockKey);
    let layer = layer.max_wait(std::time::Duration::ZERO);
    let service = layer.borrow_from(|_| true).layer(inner);
    let response = service.oneshot(request).await.unwrap();
    let ran = runs.load(Ordering::SeqCst);
    assert!(!response.headers().contains_key(LOAN_HEADER));
    assert_eq!(response.status().is_success(), ran == 1);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert_short(&text, 1_000);
    for part in shown
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
    {
        let part = String::from_utf8_lossy(part);
        assert!(part.len() < 30 || !text.contains(&*part), "{text}");
    }
    ran == 1
}
