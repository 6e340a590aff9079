//! Every record is decoded as it was encoded, and nothing else is decoded.

mod any_record;

use super::*;
use proptest::prelude::*;

fn headers(pairs: &[(String, Vec<u8>, bool)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value, sensitive) in pairs {
        let mut value = HeaderValue::from_bytes(value).unwrap();
        value.set_sensitive(*sensitive);
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
    }
    headers
}

fn any_headers() -> impl Strategy<Value = HeaderMap> {
    let value = prop::collection::vec(
        (b' '..=255).prop_filter("no DEL", |byte| *byte != 127),
        0..200,
    );
    let pair = ("[a-c-]{1,3}", value, any::<bool>());
    prop::collection::vec(pair, 0..6).prop_map(|pairs| headers(&pairs))
}

fn any_stored() -> impl Strategy<Value = StoredResponse> {
    let body = prop::collection::vec(any::<u8>(), 0..400).prop_map(Bytes::from);
    let status = (100_u16..1000).prop_map(|status| StatusCode::from_u16(status).unwrap());
    let trailers = prop::option::of(any_headers());
    let replay = (status.clone(), any_headers(), body, trailers).prop_map(
        |(status, headers, body, trailers)| {
            Outcome::Replayable(Replay {
                status,
                headers,
                body,
                trailers,
            })
        },
    );
    let outcome = prop_oneof![
        replay,
        status.prop_map(|status| Outcome::NotReplayable { status }),
    ];
    (any::<[u8; 32]>(), outcome)
        .prop_map(|(bytes, outcome)| StoredResponse::new(Fingerprint(bytes), outcome))
}

/// Equality of values does not see the mark.
fn marks(stored: &StoredResponse) -> Vec<bool> {
    let Outcome::Replayable(replay) = &stored.outcome else {
        return Vec::new();
    };
    let trailers = replay.trailers.iter().flat_map(HeaderMap::values);
    let values = replay.headers.values().chain(trailers);
    values.map(HeaderValue::is_sensitive).collect()
}

fn small() -> StoredResponse {
    let pairs = [
        ("location".to_owned(), b"/1".to_vec(), false),
        ("x-token".to_owned(), b"s".to_vec(), true),
    ];
    let replay = Replay {
        status: StatusCode::CREATED,
        headers: headers(&pairs),
        body: Bytes::from("ok"),
        trailers: None,
    };
    StoredResponse::new(Fingerprint([7; 32]), Outcome::Replayable(replay))
}

fn summed(mut content: Vec<u8>) -> Bytes {
    let sum = checksum(&content);
    content.extend(sum);
    content.into()
}

/// The content of `small`, changed by `change`, under a check sum that is right.
#[track_caller]
fn assert_malformed(how: &'static str, change: impl FnOnce(&mut Vec<u8>)) {
    let encoded = small().encode();
    let mut content = encoded[..encoded.len() - SUM_LEN].to_vec();
    change(&mut content);
    assert_eq!(StoredResponse::decode(summed(content)), Err(malformed(how)));
}

#[test]
fn the_encoding_stays_what_it_is() {
    let mut expected = vec![1];
    expected.extend([7; 32]);
    expected.extend([1, 0, 201, 2]);
    expected.extend(b"\x08location\0\x02/1\x07x-token\x01\x01s");
    expected.extend(b"\x02ok\0");
    // Records outlive the program that wrote them, so this one is spelt out to the last byte.
    expected.extend([90, 82, 92, 247, 47, 3, 235, 76]);
    assert_eq!(small().encode(), expected);
}

#[test]
fn what_is_not_a_record_is_told_apart() {
    assert_eq!(
        StoredResponse::decode(Bytes::new()),
        Err(malformed("is empty"))
    );
    let newer = StoredResponse::decode(Bytes::from_static(&[2, 1, 2, 3])).unwrap_err();
    assert_eq!(newer, StoredResponseError(Fault::Version(2)));
    let expected =
        "the record of a response is of version 2, and this program reads version 1 alone";
    assert_eq!(newer.to_string(), expected);
    let sum = Err(malformed("does not match its check sum"));
    assert_eq!(StoredResponse::decode(Bytes::from_static(&[1, 2, 3])), sum);
    assert_malformed("ends too early", |content| content.truncate(20));
    assert_malformed("holds an outcome of an unknown kind", |content| {
        content[33] = 3
    });
    assert_malformed("holds a status that is none", |content| content[34] = 99);
    assert_malformed("holds a header name that is none", |content| {
        content[38] = b'L'
    });
    assert_malformed("says neither yes nor no", |content| content[46] = 2);
    assert_malformed("holds a header value that is none", |content| {
        content[48] = b'\n'
    });
    assert_malformed("goes on after its end", |content| content.push(0));
    assert_malformed("ends too early", |content| content[37] = 0x7F);
}

#[test]
fn a_length_is_read_in_its_shortest_spelling_alone() {
    let none = Err(malformed("holds a length that is none"));
    let read = |bytes: &'static [u8]| Input(Bytes::from_static(bytes)).len();
    assert_eq!(read(&[0x80, 0x00]), none);
    assert_eq!(read(&[0xFF, 0xFF, 0x00]), none);
    assert_eq!(read(&[0xFF; 20]), none);
    assert_eq!(read(&[0x80]), Err(malformed("ends too early")));
    for len in [0, 1, 127, 128, 16_383, 16_384, 1 << 20, usize::MAX] {
        let mut out = BytesMut::new();
        put_len(&mut out, len);
        assert_eq!(Input(out.freeze()).len(), Ok(len));
    }
}

#[test]
fn a_claimed_length_allocates_nothing() {
    // As many headers, and a body as long, as can be said.
    let mut content = vec![1];
    content.extend([0; 32]);
    content.extend([1, 0, 200]);
    let mut huge = BytesMut::new();
    put_len(&mut huge, usize::MAX);
    content.extend(&huge);
    let early = Err(malformed("ends too early"));
    assert_eq!(StoredResponse::decode(summed(content.clone())), early);
    content.truncate(36);
    content.push(0);
    content.extend(&huge);
    assert_eq!(StoredResponse::decode(summed(content)), early);
}

#[test]
fn the_body_is_not_copied() {
    let encoded = small().encode();
    let Outcome::Replayable(replay) = StoredResponse::decode(encoded.clone()).unwrap().outcome
    else {
        panic!("a response");
    };
    assert!(encoded.as_ptr_range().contains(&replay.body.as_ptr()));
    let shown = "Replay { status: 201, headers: 2, len: 2, trailers: false, .. }";
    assert_eq!(format!("{replay:?}"), shown);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(stored in any_stored()) {
        let encoded = stored.encode();
        let read = StoredResponse::decode(encoded.clone()).unwrap();
        prop_assert_eq!(marks(&read), marks(&stored));
        prop_assert_eq!(&read, &stored);
        prop_assert_eq!(read.encode(), encoded);
    }
}
