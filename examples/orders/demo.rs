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
/// The order that all pay at once, the one for which they all wait, and the first of the distinct orders.
const SAME: u64 = 1;
const WAITED_FOR: u64 = 2;
const FIRST: u64 = 1_000;

type HttpClient = Client<HttpConnector, Body>;

/// Pays one order 100 times at once, another 100 times by requests that wait for their turn, then 100 orders at
/// once. Returns whether every order was paid exactly once and no two requests were ever inside the payment of one
/// order.
pub(crate) async fn run(address: SocketAddr, shop: &Shop) -> Result<bool, AnyError> {
    // One order in four spellings: the handler takes them all for order 1, and so must the lock.
    let spellings = ["1", "01", "+1", "001"];
    let same = |n| (*spellings.iter().cycle().nth(n).unwrap_or(&"1")).to_owned();
    let rounds = [
        round(address, [SAME].into(), None, same).await?,
        round(address, [WAITED_FOR].into(), Some("5"), |_| {
            WAITED_FOR.to_string()
        })
        .await?,
        round(address, (FIRST..).take(REQUESTS).collect(), None, |n| {
            (FIRST + n as u64).to_string()
        })
        .await?,
    ];

    let heading = format!("{REQUESTS} payments at once for");
    print_row(&heading, ["one order", "one, waiting", "100 orders"]);
    for answer in ANSWERS {
        let count = |round: &Round| round.answers.get(answer).copied().unwrap_or(0);
        print_row(answer, rounds.each_ref().map(count));
    }
    print_row("anything else", rounds.each_ref().map(|round| round.others));
    let took = |round: &Round| format!("{:.3} s", round.took.as_secs_f64());
    print_row("took", rounds.each_ref().map(took));
    print_row(
        "most inside one payment at once",
        rounds.each_ref().map(|round| most(shop, &round.orders)),
    );
    print_row(
        "orders charged exactly once",
        rounds.each_ref().map(|round| once(shop, &round.orders)),
    );

    let exclusive = rounds.iter().all(|round| most(shop, &round.orders) == 1);
    let complete = rounds
        .iter()
        .all(|round| once(shop, &round.orders) == round.orders.len());
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

/// The answers that are to be expected.
const ANSWERS: [&str; 4] = [CHARGED, PAID, BUSY, FULL];
const CHARGED: &str = "200 charged";
const PAID: &str = "200 paid before";
const BUSY: &str = "409 another is paying";
const FULL: &str = "503 too many wait already";

fn print_row<T: std::fmt::Display>(name: &str, cells: [T; 3]) {
    let [first, second, third] = cells;
    println!("{name:<34} {first:>14} {second:>14} {third:>14}");
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
    orders: Vec<u64>,
    answers: BTreeMap<&'static str, u64>,
    others: u64,
    took: std::time::Duration,
}

/// Sends all requests at once and counts the answers. `spelt` is how a request names its one of the `orders`.
async fn round(
    address: SocketAddr,
    orders: Vec<u64>,
    wait: Option<&'static str>,
    spelt: impl Fn(usize) -> String,
) -> Result<Round, AnyError> {
    let client: HttpClient = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    let begin = Instant::now();
    let requests: Vec<_> = (0..REQUESTS)
        .map(|n| tokio::spawn(pay(client.clone(), address, spelt(n), wait)))
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
        orders,
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
    wait: Option<&'static str>,
) -> Result<Option<&'static str>, AnyError> {
    let mut request = Request::post(format!("http://{address}/orders/{order}/pay"));
    if let Some(wait) = wait {
        request = request.header("x-wait", wait);
    }
    let response = client.request(request.body(Body::empty())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok(match status {
        StatusCode::OK if serde_json::from_slice::<Receipt>(&body)?.charged_now => Some(CHARGED),
        StatusCode::OK => Some(PAID),
        StatusCode::CONFLICT => Some(BUSY),
        StatusCode::SERVICE_UNAVAILABLE if is_queue_full(&body) => Some(FULL),
        _ => None,
    })
}

fn is_queue_full(problem: &[u8]) -> bool {
    let wanted = b"urn:tower-redlock:problem:queue-full";
    problem.windows(wanted.len()).any(|part| part == wanted)
}
