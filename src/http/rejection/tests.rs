use super::*;
use crate::http::OnNoQuorum;
use crate::manager::{LockManager, NoQuorum, NodeFailure};
use crate::node::{NodeError, NodeErrorKind};

const ALL: [RejectionKind; 21] = [
    RejectionKind::InvalidKey,
    RejectionKind::MissingIdempotencyKey,
    RejectionKind::InvalidIdempotencyKey,
    RejectionKind::BodyUnreadable,
    RejectionKind::CallerUnknown,
    RejectionKind::Contended,
    RejectionKind::WaitTimeout,
    RejectionKind::RequestInProgress,
    RejectionKind::NotReplayable,
    RejectionKind::BodyTooLarge,
    RejectionKind::IdempotencyKeyReused,
    RejectionKind::Misconfigured,
    RejectionKind::QueueFull,
    RejectionKind::BuffersFull,
    RejectionKind::TooManyDetached,
    RejectionKind::NoQuorum,
    RejectionKind::NodesFull,
    RejectionKind::LockLost,
    RejectionKind::OutcomeUnknown,
    RejectionKind::RecordUnreadable,
    RejectionKind::ShuttingDown,
];

/// The guide repeats the table, with what an operator does about each row.
#[test]
fn the_guide_has_the_row_of_each_kind() {
    let guide = include_str!("../../docs/errors.md");
    for (number, kind) in ALL.into_iter().enumerate() {
        assert_eq!(kind as usize, number, "the list lacks a kind");
        let row = kind.row();
        let retry = if row.retry { "yes" } else { "no" };
        let (word, status) = (row.word, row.status.as_u16());
        let start = format!("| `{word}` (`RejectionKind::{kind:?}`) | {status} | {retry} | ");
        assert!(
            guide.lines().any(|line| line.starts_with(&start)),
            "{start}"
        );
        assert!(by(By::Lock, kind).detail().len() > 40 && !row.urn.is_empty());
    }
}

/// The fragment of an OpenAPI document that users include in theirs.
#[test]
fn the_openapi_fragment_has_the_response_of_each_kind() {
    use serde_json::{Value, json};

    let fragment = include_str!("../../docs/openapi.json");
    let fragment: Value = serde_json::from_str(fragment).unwrap();
    let components = &fragment["components"];
    let schema = &components["schemas"]["LockProblem"];
    let urns: Vec<&str> = ALL.iter().map(|kind| kind.row().urn).collect();
    assert_eq!(schema["properties"]["type"]["enum"], json!(urns));
    let responses = components["responses"].as_object().unwrap();
    assert_eq!(responses.len(), ALL.len());
    for kind in ALL {
        let (row, rejection) = (kind.row(), by(By::Lock, kind));
        let (response, problem) = (&responses[row.word], body(&rejection));
        let status = row.status.as_u16();
        assert_eq!(response["description"], format!("{status}: {}", row.title));
        let retry_after = rejection.retry_after().is_some();
        assert_eq!(response["headers"]["Retry-After"].is_object(), retry_after);
        let content = &response["content"]["application/problem+json"];
        let own = &content["schema"]["allOf"][1]["properties"];
        assert_eq!(own["type"]["const"], row.urn);
        let of_run = body(&by(By::Idempotency, kind))["executed"].clone();
        let executed = [&problem["executed"], &of_run];
        match executed[0] == executed[1] {
            true => assert_eq!(own["executed"]["const"], of_run),
            false => assert_eq!(own["executed"]["enum"], json!(executed)),
        }
        // Those of busy locks can be set.
        let is_one = own["status"]["const"] == status;
        assert!(is_one || rejection.is_busy() && own["status"]["enum"][0] == status);
        for (member, value) in problem.as_object().unwrap() {
            let kind = match value {
                Value::Number(_) => "integer",
                _ => "string",
            };
            assert_eq!(schema["properties"][member]["type"], kind, "{member}");
        }
        for member in schema["required"].as_array().unwrap() {
            assert!(problem[member.as_str().unwrap()] != Value::Null, "{member}");
        }
    }
}

/// An error that only a manager makes.
async fn contended() -> AcquireError {
    let locks = LockManager::builder().memory(3).connect().await.unwrap();
    let _held = locks.acquire("key").await.unwrap();
    locks.try_acquire("key").await.unwrap_err()
}

#[test]
fn nodes_without_room_are_told_from_nodes_that_do_not_vote() {
    let of = |kinds: [NodeErrorKind; 2]| {
        let failures = kinds.map(|kind| NodeFailure::new("a", NodeError::of(kind, "x")));
        let error = NoQuorum {
            needed: 2,
            nodes: 3,
            failures: failures.into(),
            retry_after: None,
            disagreed: false,
        };
        by(By::Lock, AcquireError::NoQuorum(error)).kind()
    };
    let (full, down) = (NodeErrorKind::Full, NodeErrorKind::Unavailable);
    assert_eq!(of([full, full]), RejectionKind::NodesFull);
    assert_eq!(
        of([full, down]),
        RejectionKind::NodesFull,
        "two of three, if it had room"
    );
    assert_eq!(of([down, down]), RejectionKind::NoQuorum);
}

#[test]
fn only_nodes_that_fail_let_a_request_run_without_its_lock() {
    let (ttl, elapsed) = (Duration::from_secs(1), Duration::from_secs(2));
    let too_slow = AcquireError::TooSlow { ttl, elapsed };
    let (limit, of_key) = (7, true);
    let full = AcquireError::QueueFull { limit, of_key };
    assert!(OnNoQuorum::RunUnlocked.lets_run(&too_slow));
    assert!(!OnNoQuorum::RunUnlocked.lets_run(&full));
    assert!(!OnNoQuorum::Reject.lets_run(&too_slow));
}

fn by(by: By, cause: impl Into<Cause>) -> Rejection {
    Rejection::new(by, cause, StatusCode::LOCKED)
}

fn body(rejection: &Rejection) -> serde_json::Value {
    serde_json::from_slice(rejection.to_response().body()).unwrap()
}

#[tokio::test]
async fn the_response_is_written_from_the_row() {
    let rejection = by(By::Lock, contended().await);
    assert_eq!(rejection.kind(), RejectionKind::Contended);
    let response = rejection.to_response();
    assert_eq!(response.status(), 423, "as set");
    let header = |name| response.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!(header(RETRY_AFTER), "1", "whole seconds");
    assert_eq!(header(CONTENT_TYPE), "application/problem+json");
    assert_eq!(header(CACHE_CONTROL), "no-store");
    let body = body(&rejection);
    assert_eq!(body["type"], "urn:tower-redlock:problem:contended");
    assert_eq!(
        (&body["status"], &body["title"]),
        (&423.into(), &"In use by other requests".into())
    );
    assert_eq!(body["detail"], &*rejection.detail());
    assert_eq!(body["executed"], "no");
    assert!(rejection.remaining().is_some() && body["remaining_ms"].is_u64());
    let lost = by(By::Lock, LossReason::Released);
    assert_eq!(lost.to_response().headers().get(RETRY_AFTER), None);
    assert!(lost.remaining().is_none() && lost.source().is_none());
    assert!(lost.to_string().contains(&LossReason::Released.to_string()));
}

#[cfg(feature = "idempotency")]
mod of_idempotency {
    use super::*;
    use crate::idempotency::IdempotencyKey;

    #[tokio::test]
    async fn the_same_error_means_something_else_for_an_idempotency_key() {
        let layer = By::Idempotency;
        let invalid = AcquireError::InvalidKey(KeyError::reserved());
        let lost = AcquireError::Lost(LossReason::Released);
        let text = invalid.to_string();
        let hidden = by(layer, invalid.clone()).detail().into_owned();
        assert!(!hidden.contains(&text), "the program's mistake: {hidden}");
        let unknown = RejectionKind::OutcomeUnknown;
        for (rejection, kind, status, executed) in [
            (
                by(layer, contended().await),
                "request-in-progress",
                409,
                "unknown",
            ),
            (by(layer, invalid), "misconfigured", 500, "unknown"),
            (
                by(layer, RejectionKind::MissingIdempotencyKey),
                "missing-idempotency-key",
                400,
                "no",
            ),
            (
                by(layer, RejectionKind::NoQuorum),
                "no-quorum",
                503,
                "unknown",
            ),
            (by(layer, lost), "lock-lost", 503, "unknown"),
            (by(layer, unknown), "outcome-unknown", 503, "unknown"),
        ] {
            assert_eq!(body(&rejection)["executed"], executed, "{kind}");
            assert_eq!(rejection.kind().to_string(), kind);
            assert_eq!(rejection.to_response().status(), status, "{kind}");
            assert!(
                rejection
                    .to_string()
                    .starts_with("the idempotency layer rejected")
            );
        }
    }

    #[test]
    fn the_client_is_not_repeated_and_no_text_comes_twice() {
        let error = IdempotencyKey::from_value(b"SECRET;v=1").unwrap_err();
        let cause = Cause::because(RejectionKind::InvalidIdempotencyKey, error);
        let rejection = by(By::Idempotency, cause);
        assert!(!format!("{rejection} {rejection:?} {}", rejection.detail()).contains("SECRET"));
        assert!(rejection.detail().contains("parameters"));
        let source = rejection.source().unwrap();
        assert!(!rejection.to_string().contains(&source.to_string()));
        assert!(source.source().is_none());
    }
}

#[tokio::test]
async fn the_detail_speaks_of_the_very_case() {
    let contended = contended().await;
    let detail = |rejection: &Rejection| rejection.detail().into_owned();
    let plain = by(By::Lock, contended.clone());
    assert_eq!(
        detail(&plain),
        "Another request is using this resource. This request was not processed."
    );
    assert_eq!(
        detail(&plain.clone().of_permits(Some(2))),
        "The limit of 2 concurrent requests for this resource is reached. This request was not processed."
    );
    let in_run = detail(&plain.of_run(true));
    assert!(
        in_run.ends_with("This request was not processed. An earlier request with the same idempotency key may have been processed."),
        "{in_run}"
    );
    let lost = by(By::Lock, LossReason::Expired);
    assert!(detail(&lost).contains("look before you send it again"));
    let lost = detail(&lost.of_run(true));
    assert!(
        lost.contains("Send it again with the same idempotency key"),
        "{lost}"
    );
}
