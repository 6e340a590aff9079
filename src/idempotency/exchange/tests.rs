//! Bodies of scripted frames are read up to a limit and handed on; what comes out must be what went in.

use super::*;
use http::HeaderValue;
use http_body::{Frame, SizeHint};
use pin_project_lite::pin_project;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::marker::PhantomPinned;
use std::task::{Context, Poll};

/// One step of a body.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Data(Vec<u8>),
    Trailers,
    Wait,
    Fail,
}

pin_project! {
    /// A body that goes through its steps. It is not `Unpin`, and its data are not `Bytes`.
    struct Script {
        steps: VecDeque<Step>,
        tells_length: bool,
        #[pin]
        pinned: PhantomPinned,
    }
}

fn script(steps: &[Step]) -> Script {
    Script {
        steps: steps.iter().cloned().collect(),
        tells_length: false,
        pinned: PhantomPinned,
    }
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))])
}

impl Body for Script {
    type Data = VecDeque<u8>;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<VecDeque<u8>>, &'static str>>> {
        Poll::Ready(match self.project().steps.pop_front() {
            None => None,
            Some(Step::Data(bytes)) => Some(Ok(Frame::data(bytes.into()))),
            Some(Step::Trailers) => Some(Ok(Frame::trailers(trailers()))),
            Some(Step::Fail) => Some(Err("failed")),
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.tells_length {
            SizeHint::with_exact(as_u64(bytes_of(self.steps.iter()).len()))
        } else {
            SizeHint::default()
        }
    }
}

fn bytes_of<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Vec<u8> {
    let data = steps.into_iter().filter_map(|step| match step {
        Step::Data(bytes) => Some(bytes.as_slice()),
        _ => None,
    });
    data.flatten().copied().collect()
}

/// All that comes out of a body, and what it says of its length and end on the way.
async fn drain(body: LayerBody<Script>) -> (Vec<u8>, bool, Option<String>) {
    let mut body = Box::pin(body);
    let (mut bytes, mut trailed) = (Vec::new(), false);
    let first_hint = body.size_hint();
    let error = loop {
        let (ended, hint) = (body.is_end_stream(), body.size_hint());
        let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else {
            break None;
        };
        assert!(!ended, "a frame after the end");
        match frame.map(Frame::into_data) {
            Err(error) => break Some(error.to_string()),
            Ok(Err(_)) => trailed = true,
            Ok(Ok(data)) => {
                assert!(hint.upper().is_none_or(|upper| as_u64(data.len()) <= upper));
                bytes.extend_from_slice(&data);
            }
        }
    };
    assert!(body.is_end_stream(), "it does not say that it has ended");
    if error.is_none() {
        let len = as_u64(bytes.len());
        assert!((first_hint.lower()..=first_hint.upper().unwrap_or(len)).contains(&len));
    } else {
        assert_eq!(first_hint.upper(), None, "a broken body looks whole");
    }
    (bytes, trailed, error)
}

/// Reads up to `limit` and hands on.
async fn through(body: Script, limit: usize) -> (&'static str, LayerBody<Script>) {
    let collected = collect_up_to(body, limit, |_| true).await;
    let what = match &collected {
        Collected::All { bytes, .. } => {
            assert!(bytes.len() <= limit);
            "all"
        }
        Collected::TooLarge { .. } => "large",
        Collected::Failed { .. } => "failed",
    };
    (what, collected.again())
}

fn failed() -> Option<String> {
    Some("failed".to_owned())
}

fn data(text: &str) -> Step {
    Step::Data(text.into())
}

#[tokio::test]
async fn a_body_within_the_limit_is_read_whole() {
    let steps = [
        data("ab"),
        Step::Wait,
        data(""),
        data("cd"),
        data("e"),
        Step::Trailers,
    ];
    let (what, body) = through(script(&steps), 5).await;
    assert_eq!(what, "all");
    let hint = body.size_hint();
    assert_eq!((hint.lower(), hint.upper()), (5, None), "trailers follow");
    assert_eq!(drain(body).await, (b"abcde".to_vec(), true, None));
    let (_, body) = through(script(&steps[..5]), 5).await;
    assert_eq!(body.size_hint().exact(), Some(5));
    let (what, body) = through(script(&[]), 0).await;
    assert!(what == "all" && body.is_end_stream());
    let (what, body) = through(script(&[Step::Trailers]), 0).await;
    assert!(what == "all" && !body.is_end_stream());
    assert_eq!(drain(body).await, (Vec::new(), true, None));
}

#[tokio::test]
async fn a_body_beyond_the_limit_goes_on_where_it_was() {
    let steps = [
        data("ab"),
        data("cde"),
        Step::Wait,
        data("f"),
        Step::Trailers,
    ];
    for limit in 0..6 {
        let (what, body) = through(script(&steps), limit).await;
        assert_eq!(what, "large", "{limit}");
        assert_eq!(drain(body).await, (b"abcdef".to_vec(), true, None));
    }
}

#[tokio::test]
async fn a_body_that_tells_that_it_is_too_long_is_not_read() {
    let mut body = script(&[data("abc"), Step::Fail]);
    body.tells_length = true;
    let Collected::TooLarge { read, rest } = collect_up_to(body, 2, |_| true).await else {
        panic!("too large");
    };
    assert!(read.concat().is_empty() && rest.steps.len() == 2);
    let mut body = script(&[data("ab"), data("cd")]);
    body.tells_length = true;
    let (what, body) = through(body, 3).await;
    assert_eq!((what, body.size_hint().exact()), ("large", Some(4)));
}

#[tokio::test]
async fn the_length_of_what_was_read_counts_with_the_rest() {
    let mut rest = script(&[data("cd"), Step::Trailers]);
    rest.tells_length = true;
    let read = [Bytes::from("a"), Bytes::from("b")];
    let body = LayerBody::read(read, Rest::Body(Box::pin(rest)));
    assert_eq!(body.size_hint().exact(), Some(4));
    assert_eq!(drain(body).await, (b"abcd".to_vec(), true, None));
    let read = [Bytes::new(), Bytes::from("a")];
    let body = LayerBody::read(read, Rest::Body(Box::pin(script(&[]))));
    assert_eq!(
        (body.size_hint().lower(), body.size_hint().upper()),
        (1, None)
    );
}

#[tokio::test]
async fn a_body_that_fails_gives_what_it_gave_and_then_fails() {
    let (what, body) = through(script(&[data("ab"), data("c"), Step::Fail]), 3).await;
    assert_eq!(what, "failed");
    assert_eq!(drain(body).await, (b"abc".to_vec(), false, failed()));
    let (what, body) = through(script(&[data("ab"), data("c"), Step::Fail]), 2).await;
    assert_eq!(what, "large");
    assert_eq!(drain(body).await, (b"abc".to_vec(), false, failed()));
}

#[tokio::test]
async fn one_chunk_is_not_copied() {
    let chunk = Bytes::from(vec![7; 64]);
    let body = http_body_util::Full::new(chunk.clone());
    let Collected::All { bytes, .. } = collect_up_to(body, 64, |_| true).await else {
        panic!("all of it");
    };
    assert_eq!(bytes.as_ptr(), chunk.as_ptr());
}

#[tokio::test]
async fn a_body_is_handed_on_unchanged() {
    let steps = [data("ab"), Step::Wait, Step::Trailers];
    let passed = LayerBody::passed(script(&steps));
    assert_eq!(format!("{passed:?}"), "LayerBody { state: passed, .. }");
    assert_eq!(drain(passed).await, (b"ab".to_vec(), true, None));
    let whole = LayerBody::whole(Bytes::from("ab"), Some(trailers()));
    assert_eq!(drain(whole).await, (b"ab".to_vec(), true, None));
    assert!(LayerBody::<Script>::default().is_end_stream());
}

proptest! {
    #[test]
    fn whatever_the_limit_nothing_is_lost_or_added(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..5), 0..6),
        end in prop_oneof![Just(None), Just(Some(Step::Trailers)), Just(Some(Step::Fail))],
        limit in 0_usize..20,
        tells_length: bool,
    ) {
        let mut steps: Vec<Step> = chunks.into_iter().map(Step::Data).collect();
        let fails = end == Some(Step::Fail);
        let trailed = end == Some(Step::Trailers);
        steps.extend(end);
        let bytes = bytes_of(&steps);
        let mut body = script(&steps);
        // A body that fails cannot know how long it is.
        body.tells_length = tells_length && !fails;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (what, body) = runtime.block_on(through(body, limit));
        let large = bytes.len() > limit;
        prop_assert_eq!(what == "large", large);
        prop_assert_eq!(what == "failed", fails && !large);
        let out = runtime.block_on(drain(body));
        prop_assert_eq!(out, (bytes, trailed, failed().filter(|_| fails)));
    }
}
