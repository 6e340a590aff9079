//! Claims for any bytes that a node returns as a record: `tests/fuzz/corpus` has inputs.

use bytes::Bytes;

use super::super::{StoredResponse, checksum};
use crate::fuzzed::replay;

fn record(input: &[u8]) -> bool {
    // As it is, and, as few inputs have the right check sum by chance, with one behind it.
    let sum = checksum(input);
    let alone = is_record(input);
    let summed = is_record(&[input, &sum].concat());
    alone || summed
}

fn is_record(encoded: &[u8]) -> bool {
    let stored = match StoredResponse::decode(&Bytes::copy_from_slice(encoded)) {
        Ok(stored) => stored,
        Err(error) => {
            let text = error.to_string();
            let start = "the record of a response ";
            assert!(text.starts_with(start) && text.len() < 120, "{text}");
            return false;
        }
    };
    // Nothing was left out.
    assert_eq!(
        StoredResponse::decode(&stored.encode()).as_ref(),
        Ok(&stored)
    );
    if let Some(replay) = &stored.replay {
        let trailers = replay.trailers.as_ref().map_or(0, http::HeaderMap::len);
        // Each takes three bytes at least.
        let most = encoded.len() / 3;
        assert!(replay.headers.len() + trailers <= most && replay.body.len() < encoded.len());
        // A response is private to its client.
        let shown = format!("{stored:?}");
        assert!(shown.len() < 400, "{shown}");
    }
    true
}

#[test]
fn what_a_fuzzer_found_and_what_is_like_it_is_a_record_or_none() {
    replay("record", record);
}
