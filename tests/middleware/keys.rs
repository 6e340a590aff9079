//! Which lock a request takes, and what is wrong with a request that gets none.

use http::request::{Builder, Parts};
use http::{HeaderValue, Method, Request};
use tower_redlock::error::KeyError;
use tower_redlock::key::LockKeys;
use tower_redlock::layer::KeyExtractor;
use tower_redlock::{LockKey, key};

/// The keys that `extractor` makes of `request`; nothing here ever pends.
fn extract(extractor: &impl KeyExtractor, request: Builder) -> Result<Option<String>, String> {
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

fn malformed(why: &str) -> Result<Option<String>, String> {
    Err(format!("the lock key is malformed: {why}"))
}

fn missing(what: &str) -> Result<Option<String>, String> {
    Err(format!("the lock key cannot be made: {what} is missing"))
}

fn to(uri: &str) -> Builder {
    Request::post(uri)
}

const TOO_LONG: &str = "the lock key has 513 bytes or more; at most 512 are allowed";

#[test]
fn several_keys_are_those_of_all_extractors() {
    let account = |header| key::header(header).parse::<u64>().prefix("account");
    let transfer = |from: &str, to_: &str| to("/").header("x-from", from).header("x-to", to_);
    let one = || to("/").header("x-from", "7");
    let both = account("x-from").also(account("x-to"));
    assert_eq!(
        extract(&both, transfer("7", "3")),
        found("account:3 account:7")
    );
    assert_eq!(extract(&both, transfer("7", "07")), found("account:7"));
    assert_eq!(extract(&both, one()), missing("the header `x-to`"));
    let maybe = account("x-from").also(account("x-to").optional());
    assert_eq!(extract(&maybe, one()), found("account:7"));
    let neither = key::header("x-a").optional();
    let neither = neither.also(key::header("x-b").optional());
    assert_eq!(extract(&neither, to("/")), Ok(None));
    let three = both.also(|parts: &Parts| LockKey::new(parts.method.as_str()).ok());
    let keys = "POST account:1 account:2";
    assert_eq!(extract(&three, transfer("1", "2")), found(keys));
}

#[test]
fn a_parsed_value_is_one_key_however_it_is_spelt() {
    let id = key::header("id").parse::<u64>().prefix("order");
    for spelling in ["42", "042", "+42", "00000000000042"] {
        let request = to("/").header("id", spelling);
        assert_eq!(extract(&id, request), found("order:42"), "{spelling}");
    }
    for nonsense in ["-42", "4 2", "0x2A", "42:", "99999999999999999999"] {
        let request = to("/").header("id", nonsense);
        let unreadable = malformed("the header `id` cannot be read as `u64`");
        assert_eq!(extract(&id, request), unreadable, "{nonsense}");
    }
    let query = key::query("id").parse::<u64>();
    for (uri, expected) in [
        ("/?id=%30%34%32", found("42")),
        (
            "/?id=42&id=42",
            malformed("the query parameter `id` is repeated"),
        ),
        ("/", missing("the query parameter `id`")),
    ] {
        assert_eq!(extract(&query, to(uri)), expected, "{uri}");
    }
    assert_eq!(extract(&query.optional(), to("/")), Ok(None));
}

#[test]
fn a_header() {
    let long = "x".repeat(512);
    let too_long = "x".repeat(513);
    for (lines, expected) in [
        (&["42"] as &[&str], found("42")),
        (&[], missing("the header `x-order-id`")),
        (&[""], malformed("the header `x-order-id` is empty")),
        (
            &["1", "1"],
            malformed("the header `x-order-id` is repeated"),
        ),
        (&[&long], found(&long)),
        (&[&too_long], Err(TOO_LONG.to_owned())),
    ] {
        let add = |request: Builder, line: &&str| request.header("X-Order-Id", *line);
        let request = lines.iter().fold(to("/"), add);
        assert_eq!(extract(&key::header("x-order-id"), request), expected);
    }
    let bytes = HeaderValue::from_bytes(b"\xFF\t\xC3\xA9").unwrap();
    let request = to("/").header("id", bytes);
    assert_eq!(extract(&key::header("id"), request), found("%FF%09é"));
}

#[test]
fn a_query_parameter() {
    let of = |why: &str| malformed(&format!("the query parameter `order id` {why}"));
    let too_long = format!("/?order+id={}", "x".repeat(513));
    for (uri, expected) in [
        ("/?a=1&order+id=4%2F2+x&b", found("4/2 x")),
        ("/?order%20id=42", found("42")),
        ("/", missing("the query parameter `order id`")),
        ("/?", missing("the query parameter `order id`")),
        ("/?order=1", missing("the query parameter `order id`")),
        ("/?order+id", of("is empty")),
        ("/?order+id=", of("is empty")),
        ("/?order+id=1&order%20id=2", of("is repeated")),
        (&too_long, Err(TOO_LONG.to_owned())),
        // Handlers that decode a form see U+FFFD in all of these, so they would be one resource with three keys.
        ("/?order+id=%FF", of("is not UTF-8")),
        ("/?order+id=%FE", of("is not UTF-8")),
        ("/?order+id=a%C3", of("is not UTF-8")),
        ("/?order+id=%EF%BF%BD", found("\u{FFFD}")),
        ("/?order+id=%00", found("%00")),
    ] {
        assert_eq!(extract(&key::query("order id"), to(uri)), expected, "{uri}");
    }
}

#[test]
fn closures() {
    let plain = |parts: &Parts| LockKey::join([parts.uri.path()]);
    assert_eq!(extract(&plain, to("/a:b")), found("/a%3Ab"));
    let control = |_: &Parts| LockKey::new("a\nb");
    let wrong = malformed("it holds a control character");
    assert_eq!(extract(&control, to("/")), wrong);
    let none = |_: &Parts| None::<LockKey>;
    assert_eq!(extract(&none, to("/")), Ok(None));
    let many = |_: &Parts| LockKeys::new((0..65).map(|n| n.to_string()));
    let error = extract(&many, to("/")).unwrap_err();
    assert!(error.contains("at most 64"), "{error}");
    let maybe =
        |_: &Parts| -> Result<Option<LockKey>, KeyError> { Err(KeyError::missing("the tenant")) };
    assert_eq!(extract(&maybe, to("/")), missing("the tenant"));
    let host = key::from_fn(|parts| parts.uri.host().map(str::to_owned)).prefix("host");
    let uri = "http://a.example:80/";
    assert_eq!(extract(&host, to(uri)), found("host:a.example"));
    assert_eq!(extract(&host, to("/")), Ok(None));
}

#[test]
fn combinations() {
    let tenant = || key::header("x-tenant");
    let all = key::method().and(tenant()).and(key::query("id"));
    let all = all.prefix("account");
    let of = |uri| to(uri).header("x-tenant", "a:b");
    assert_eq!(extract(&all, of("/?id=7")), found("account:POST:a%3Ab:7"));
    assert_eq!(extract(&all, of("/")), missing("the query parameter `id`"));
    // An optional part that is absent means no lock, whatever came before it.
    let optional = tenant().and(key::query("id").optional()).prefix("p");
    assert_eq!(extract(&optional, of("/")), Ok(None));
    let empty = malformed("the query parameter `id` is empty");
    let there = "optional, and there, and of no use";
    assert_eq!(extract(&optional, of("/?id=")), empty, "{there}");
    let puts = key::header("id").when(|parts| parts.method == Method::PUT);
    assert_eq!(extract(&puts, to("/")), Ok(None), "not even missed");
    let put = Request::put("/").header("id", "1");
    assert_eq!(extract(&puts, put), found("1"));
    // A prefix from a program is a part like any other.
    let odd = key::header("id").prefix("a:b");
    assert_eq!(extract(&odd, to("/").header("id", "c")), found("a%3Ab:c"));
}

/// It is the inner service's business: a body that may not even leave its thread is handed on as it is.
#[tokio::test(start_paused = true)]
async fn the_body_of_a_request_can_be_anything() {
    use std::rc::Rc;
    use tower::{Layer as _, service_fn};

    let inner = service_fn(async |request: Request<Rc<str>>| {
        assert_eq!(&**request.body(), "here");
        Ok::<_, std::convert::Infallible>(super::ok("read"))
    });
    let service = super::layer(&super::Nodes::five().manager()).layer(inner);
    let request = Request::post("/").body(Rc::from("here")).unwrap();
    assert_eq!(super::send(service, request).await.text, "read");
}
