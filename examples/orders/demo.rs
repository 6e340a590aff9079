//! The service driving itself: many payments at once, over real HTTP connections, and what came of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::AnyError;
use crate::shop::{Receipt, Shop};

const REQUESTS: usize = 100;
/// The first of the distinct orders.
const FIRST: u64 = 1_000;

type HttpClient = Client<HttpConnector, Body>;

/// Pays one order 100 times at once, then 100 orders at once. Returns whether every order was paid exactly once
/// and no two requests were ever inside the payment of one order.
pub(crate) async fn run(address: SocketAddr, shop: &Shop) -> Result<bool, AnyError> {
    // One order in four spellings: the handler takes them all for order 1, and so must the lock.
    let spellings = ["1", "01", "+1", "001"];
    let same = round(address, |n| {
        spellings
            .into_iter()
            .cycle()
            .nth(n)
            .unwrap_or("1")
            .to_owned()
    })
    .await?;
    let distinct = round(address, |n| (FIRST + n as u64).to_string()).await?;

    println!(
        "{:<38} {:>14} {:>14}",
        format!("{REQUESTS} payments at once for"),
        "one order",
        "100 orders"
    );
    for answer in ["200 charged", "200 paid before", "409 another is paying"] {
        let count = |round: &Round| round.answers.get(answer).copied().unwrap_or(0);
        println!("{answer:<38} {:>14} {:>14}", count(&same), count(&distinct));
    }
    println!(
        "{:<38} {:>14} {:>14}",
        "anything else", same.others, distinct.others
    );
    println!("{:<38} {:>14?} {:>14?}", "took", same.took, distinct.took);

    let one = [1];
    let many: Vec<u64> = (FIRST..).take(REQUESTS).collect();
    println!(
        "{:<38} {:>14} {:>14}",
        "most inside one payment at once",
        most(shop, &one),
        most(shop, &many)
    );
    println!(
        "{:<38} {:>14} {:>14}",
        "orders charged exactly once",
        once(shop, &one),
        once(shop, &many)
    );

    let exclusive = most(shop, &one) == 1 && most(shop, &many) == 1;
    let complete = once(shop, &one) == 1 && once(shop, &many) == many.len();
    println!(
        "{}",
        match (exclusive, complete) {
            (true, true) => "sound: every order was charged once, one request at a time",
            (false, _) => "BROKEN: two requests were inside one payment at once",
            (true, false) => "BROKEN: an order was not charged exactly once",
        }
    );
    Ok(exclusive && complete)
}

fn most(shop: &Shop, orders: &[u64]) -> u32 {
    orders
        .iter()
        .map(|id| shop.order(*id).most_inside())
        .max()
        .unwrap_or(0)
}

fn once(shop: &Shop, orders: &[u64]) -> usize {
    orders
        .iter()
        .filter(|id| shop.order(**id).charges() == 1)
        .count()
}

struct Round {
    answers: BTreeMap<&'static str, u64>,
    others: u64,
    took: std::time::Duration,
}

/// Sends all requests at once and counts the answers.
async fn round(address: SocketAddr, order: impl Fn(usize) -> String) -> Result<Round, AnyError> {
    let client: HttpClient = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let begin = Instant::now();
    let requests: Vec<_> = (0..REQUESTS)
        .map(|n| tokio::spawn(pay(client.clone(), address, order(n))))
        .collect();
    let mut answers = BTreeMap::new();
    let mut others = 0;
    for request in requests {
        match request.await?? {
            Some(answer) => *answers.entry(answer).or_insert(0) += 1,
            None => others += 1,
        }
    }
    Ok(Round {
        answers,
        others,
        took: begin.elapsed(),
    })
}

/// Pays one order; names the answer if it is one that was to be expected.
async fn pay(
    client: HttpClient,
    address: SocketAddr,
    order: String,
) -> Result<Option<&'static str>, AnyError> {
    let request =
        Request::post(format!("http://{address}/orders/{order}/pay")).body(Body::empty())?;
    let response = client.request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(match status {
        StatusCode::OK if serde_json::from_slice::<Receipt>(&body)?.charged_now => {
            Some("200 charged")
        }
        StatusCode::OK => Some("200 paid before"),
        StatusCode::CONFLICT => Some("409 another is paying"),
        _ => None,
    })
}
