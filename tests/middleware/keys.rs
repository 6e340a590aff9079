//! Which lock a request takes, and what is wrong with a request that gets none.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request};
use tower_redlock::error::KeyError;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::KeyExtractor;
use tower_redlock::{LockKey, key};

/// The keys that `extractor` makes of `request`; nothing here ever pends.
fn extract(
    extractor: &impl KeyExtractor,
    request: http::request::Builder,
) -> Result<Option<String>, String> {
    let mut parts = request.body(()).unwrap().into_parts().0;
    let mut future = std::pin::pin!(extractor.extract(&mut parts));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(keys) = future.as_mut().poll(&mut context) else {
        panic!("a key that waits");
    };
    let text = |keys: LockKeys| {
        let keys: Vec<&str> = keys.as_slice().iter().map(LockKey::as_str).collect();
        keys.join(" ")
    };
    keys.map(|keys| keys.map(text))
        .map_err(|error| error.to_string())
}

fn found(key: &str) -> Result<Option<String>, String> {
    Ok(Some(key.to_owned()))
}

fn fault(text: &str) -> Result<Option<String>, String> {
    Err(text.to_owned())
}

#[test]
fn several_keys_are_those_of_all_extractors() {
    let account = |header| key::header(header).parse::<u64>().prefix("account");
    let both = account("x-from").also(account("x-to"));
    let transfer = |from: &str, to_: &str| {
        let request = to("/").header("x-from", from);
        request.header("x-to", to_)
    };
    assert_eq!(
        extract(&both, transfer("7", "3")),
        found("account:3 account:7")
    );
    assert_eq!(extract(&both, transfer("7", "07")), found("account:7"));
    assert!(extract(&both, to("/").header("x-from", "7")).is_err());
    let maybe = account("x-from").also(account("x-to").optional());
    let one = to("/").header("x-from", "7");
    assert_eq!(extract(&maybe, one), found("account:7"));
    let neither = key::header("x-a").optional();
    let neither = neither.also(key::header("x-b").optional());
    assert_eq!(extract(&neither, to("/")), Ok(None));
    let three = account("x-from").also(account("x-to")).also(method_only);
    assert_eq!(
        extract(&three, transfer("1", "2")),
        found("POST account:1 account:2")
    );
    let many = |_: &Parts| LockKeys::new((0..65).map(|n| n.to_string()));
    let error = extract(&many, to("/")).unwrap_err();
    assert!(error.contains("at most 64"), "{error}");
}

fn method_only(parts: &Parts) -> Option<LockKey> {
    LockKey::new(parts.method.as_str()).ok()
}

#[test]
fn a_parsed_value_is_one_key_however_it_is_spelt() {
    let id = key::header("x-order-id").parse::<u64>().prefix("order");
    for spelling in ["42", "042", "+42", "00000000000042"] {
        let request = to("/").header("x-order-id", spelling);
        assert_eq!(extract(&id, request), found("order:42"), "{spelling}");
    }
    for nonsense in ["-42", "4 2", "0x2A", "42:", "99999999999999999999"] {
        assert_eq!(
            extract(&id, to("/").header("x-order-id", nonsense)),
            fault("the lock key is malformed: the header `x-order-id` cannot be read as `u64`"),
            "{nonsense}"
        );
    }
    let query = key::query("id").parse::<u64>();
    assert_eq!(extract(&query, to("/?id=%30%34%32")), found("42"));
    assert_eq!(
        extract(&query, to("/?id=42&id=42")),
        fault("the lock key is malformed: the query parameter `id` is repeated")
    );
    assert_eq!(
        extract(&query, to("/")),
        fault("the lock key cannot be made: the query parameter `id` is missing")
    );
    assert_eq!(extract(&query.optional(), to("/")), Ok(None));
}

fn to(uri: &str) -> http::request::Builder {
    Request::post(uri)
}

#[test]
fn a_header() {
    let id = key::header("x-order-id");
    assert_eq!(
        extract(&id, to("/").header("X-Order-Id", "42")),
        found("42")
    );
    assert_eq!(
        extract(&id, to("/")),
        fault("the lock key cannot be made: the header `x-order-id` is missing")
    );
    assert_eq!(
        extract(&id, to("/").header("x-order-id", "")),
        fault("the lock key is malformed: the header `x-order-id` is empty")
    );
    assert_eq!(
        extract(
            &id,
            to("/").header("x-order-id", "1").header("x-order-id", "1")
        ),
        fault("the lock key is malformed: the header `x-order-id` is repeated")
    );
    assert_eq!(
        extract(&id, to("/").header("x-order-id", "x".repeat(513))),
        fault("the lock key has 513 bytes or more; at most 512 are allowed")
    );
    assert!(extract(&id, to("/").header("x-order-id", "x".repeat(512))).is_ok());
    let bytes = HeaderValue::from_bytes(b"\xFF\t\xC3\xA9").unwrap();
    assert_eq!(
        extract(&id, to("/").header("x-order-id", bytes)),
        found("%FF%09é")
    );
}

#[test]
fn a_query_parameter() {
    let id = key::query("order id");
    assert_eq!(extract(&id, to("/?a=1&order+id=4%2F2+x&b")), found("4/2 x"));
    assert_eq!(extract(&id, to("/?order%20id=42")), found("42"));
    for uri in ["/", "/?", "/?order=1"] {
        assert_eq!(
            extract(&id, to(uri)),
            fault("the lock key cannot be made: the query parameter `order id` is missing")
        );
    }
    for uri in ["/?order+id", "/?order+id="] {
        assert_eq!(
            extract(&id, to(uri)),
            fault("the lock key is malformed: the query parameter `order id` is empty")
        );
    }
    assert_eq!(
        extract(&id, to("/?order+id=1&order%20id=2")),
        fault("the lock key is malformed: the query parameter `order id` is repeated")
    );
    assert_eq!(
        extract(&id, to(&format!("/?order+id={}", "x".repeat(513)))),
        fault("the lock key has 513 bytes or more; at most 512 are allowed")
    );
    // Handlers that decode a form see U+FFFD in all of these, so they would be one resource with three keys.
    for uri in ["/?order+id=%FF", "/?order+id=%FE", "/?order+id=a%C3"] {
        assert_eq!(
            extract(&id, to(uri)),
            fault("the lock key is malformed: the query parameter `order id` is not UTF-8")
        );
    }
    assert_eq!(extract(&id, to("/?order+id=%EF%BF%BD")), found("\u{FFFD}"));
    assert_eq!(extract(&id, to("/?order+id=%00")), found("%00"));
}

#[test]
fn closures() {
    let plain = |parts: &Parts| LockKey::join([parts.uri.path()]);
    assert_eq!(extract(&plain, to("/a:b")), found("/a%3Ab"));
    let control = |_: &Parts| LockKey::new("a\nb");
    assert_eq!(
        extract(&control, to("/")),
        fault("the lock key is malformed: it holds a control character")
    );
    let empty = |_: &Parts| LockKey::new("");
    assert_eq!(extract(&empty, to("/")), fault("the lock key is empty"));
    let none = |_: &Parts| None::<LockKey>;
    assert_eq!(extract(&none, to("/")), Ok(None));
    let maybe =
        |_: &Parts| -> Result<Option<LockKey>, KeyError> { Err(KeyError::missing("the tenant")) };
    assert_eq!(
        extract(&maybe, to("/")),
        fault("the lock key cannot be made: the tenant is missing")
    );
    let part = key::from_fn(|parts| parts.uri.host().map(str::to_owned)).prefix("host");
    assert_eq!(
        extract(&part, to("http://a.example:80/")),
        found("host:a.example")
    );
    assert_eq!(extract(&part, to("/")), Ok(None));
}

#[test]
fn combinations() {
    let all = key::method()
        .and(key::header("x-tenant"))
        .and(key::query("id"))
        .prefix("account");
    assert_eq!(
        extract(&all, to("/?id=7").header("x-tenant", "a:b")),
        found("account:POST:a%3Ab:7")
    );
    assert_eq!(
        extract(&all, to("/").header("x-tenant", "a:b")),
        fault("the lock key cannot be made: the query parameter `id` is missing")
    );
    // An optional part that is absent means no lock, whatever came before it.
    let optional = key::header("x-tenant")
        .and(key::query("id").optional())
        .prefix("p");
    assert_eq!(
        extract(&optional, to("/").header("x-tenant", "a")),
        Ok(None)
    );
    assert_eq!(
        extract(&optional, to("/?id=").header("x-tenant", "a")),
        fault("the lock key is malformed: the query parameter `id` is empty"),
        "optional, and there, and of no use"
    );
    let puts = key::header("id").when(|parts| parts.method == Method::PUT);
    assert_eq!(extract(&puts, to("/")), Ok(None), "not even missed");
    assert_eq!(
        extract(&puts, Request::put("/").header("id", "1")),
        found("1")
    );
    // A prefix from a program is a part like any other.
    let odd = key::header("id").prefix("a:b");
    assert_eq!(extract(&odd, to("/").header("id", "c")), found("a%3Ab:c"));
}

/// The body is the inner service's business: not read, not held back, not changed.
#[tokio::test(start_paused = true)]
async fn a_huge_body_passes_through_untouched() {
    use http_body_util::{BodyExt as _, Full};
    use tower::{Layer as _, ServiceExt as _, service_fn};

    let nodes = super::Nodes::five();
    let huge = Bytes::from(vec![7; 32 << 20]);
    let address = huge.as_ptr() as usize;
    let inner = service_fn(move |request: Request<Full<Bytes>>| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!((body.len(), body.as_ptr() as usize), (32 << 20, address));
        Ok::<_, std::convert::Infallible>(super::ok("read"))
    });
    let service = super::layer(&nodes.manager()).layer(inner);
    let response = service
        .oneshot(Request::post("/").body(Full::new(huge)).unwrap())
        .await;
    assert_eq!(super::text(response.unwrap()).await, "read");
}

/// A body that may not leave its thread is no reason for the layer not to work.
#[tokio::test(start_paused = true)]
async fn a_request_body_need_not_be_send() {
    use std::rc::Rc;
    use tower::{Layer as _, ServiceExt as _, service_fn};

    let nodes = super::Nodes::five();
    let inner = service_fn(async |request: Request<Rc<str>>| {
        assert_eq!(&**request.body(), "here");
        Ok::<_, std::convert::Infallible>(super::ok("read"))
    });
    let service = super::layer(&nodes.manager()).layer(inner);
    let response = service
        .oneshot(Request::post("/").body(Rc::from("here")).unwrap())
        .await;
    assert_eq!(super::text(response.unwrap()).await, "read");
}
