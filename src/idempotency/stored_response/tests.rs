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
    let replay =
        (status, any_headers(), body, trailers).prop_map(|(status, headers, body, trailers)| {
            Replay {
                status,
                headers,
                body,
                trailers,
            }
        });
    (any::<[u8; 32]>(), prop::option::of(replay)).prop_map(|(bytes, replay)| StoredResponse {
        fingerprint: Fingerprint(bytes),
        replay,
    })
}

/// Equality of values does not see the mark.
fn marks(stored: &StoredResponse) -> Vec<bool> {
    let Some(replay) = &stored.replay else {
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
    StoredResponse {
        fingerprint: Fingerprint([7; 32]),
        replay: Some(replay),
    }
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
    assert_eq!(
        StoredResponse::decode(&summed(content)),
        Err(malformed(how))
    );
}

#[test]
fn the_encoding_stays_what_it_is() {
    let mut expected = vec![2];
    expected.extend([7; 32]);
    // There is a response; its status is a varint.
    expected.extend([1, 0xC9, 1, 2]);
    expected.extend(b"\x08location\0\x02/1\x07x-token\x01\x01s");
    expected.extend(b"\x02ok\0");
    let encoded = small().encode();
    // Records outlive the program that wrote them, so this one is spelt out.
    assert_eq!(encoded, summed(expected));
}

#[test]
fn what_is_not_a_record_is_told_apart() {
    let decode = |bytes| StoredResponse::decode(&Bytes::from_static(bytes));
    assert_eq!(decode(&[]), Err(malformed("is empty")));
    let older = decode(&[1, 1, 2, 3]).unwrap_err();
    assert_eq!(older, StoredResponseError(Fault::Version(1)));
    let expected =
        "the record of a response is of version 1, and this program only reads version 2";
    assert_eq!(older.to_string(), expected);
    let sum = Err(malformed("does not match its check sum"));
    assert_eq!(decode(&[2]), sum);
    assert_eq!(decode(&[2, 2, 3]), sum);
    let form = "has another form than this version";
    assert_malformed(form, |content| content.truncate(20));
    assert_malformed(form, |content| content[33] = 2);
    assert_malformed("has an invalid status", |content| {
        content.splice(34..36, [99]);
    });
    assert_malformed("has an invalid header name", |content| content[38] = b'L');
    assert_malformed(form, |content| content[46] = 2);
    assert_malformed("has an invalid header value", |content| content[48] = b'\n');
    assert_malformed("goes on after its end", |content| content.push(0));
    assert_malformed(form, |content| content[37] = 0x7F);
}

/// As many headers, and a body as long, as can be said.
#[test]
fn a_claimed_length_allocates_little() {
    for before in [&[1, 0xC8, 1][..], &[1, 0xC8, 1, 0]] {
        let mut content = [&[2][..], &[0; 32], before].concat();
        content.extend([0xFF; 9]);
        content.push(1);
        let malformed = Err(malformed("has another form than this version"));
        assert_eq!(StoredResponse::decode(&summed(content)), malformed);
    }
}

#[test]
fn the_body_is_not_copied() {
    let encoded = small().encode();
    let replay = StoredResponse::decode(&encoded).unwrap().replay.unwrap();
    assert!(encoded.as_ptr_range().contains(&replay.body.as_ptr()));
    let shown = "Replay { status: 201, headers: 2, len: 2, trailers: false, .. }";
    assert_eq!(format!("{replay:?}"), shown);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(stored in any_stored()) {
        let encoded = stored.encode();
        let read = StoredResponse::decode(&encoded).unwrap();
        prop_assert_eq!(marks(&read), marks(&stored));
        prop_assert_eq!(&read, &stored);
        prop_assert_eq!(read.encode(), encoded);
    }
}
