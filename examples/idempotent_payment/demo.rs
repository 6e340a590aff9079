//! The service driving itself, as two replicas, over real HTTP connections.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower_redlock::LockManager;

use crate::bank::{ACCOUNT, BEGINNING, Bank, Order, Outcome, Run};
use crate::{AnyError, PATIENCE, app, fence};

/// How many requests come at the same time.
const CROWD: usize = 20;
const AMOUNT: u32 = 1_250;

/// Runs through what can happen to a payment, and says how it went. Returns whether all went as it should.
pub(crate) async fn run(bank: &Bank, locks: &LockManager) -> Result<bool, AnyError> {
    let patient = Replica::start(bank, locks, PATIENCE).await?;
    let hasty = Replica::start(bank, locks, Duration::ZERO).await?;
    let mut audit = Audit {
        bank,
        sound: true,
        payments: 0,
    };

    let first = patient.pay("a", AMOUNT).await?;
    audit.note("a payment", first.is(201, false), 1, &first)?;
    let again = hasty.pay("a", AMOUNT).await?;
    let same = again.is(201, true) && again.body == first.body;
    audit.note("sent again, to another replica", same, 0, &again)?;
    let other = patient.pay("a", AMOUNT + 1).await?;
    audit.note("another under its key", other.is(422, false), 0, &other)?;

    let (paid, others) = one_and_others(hasty.crowd(|_| "b".to_owned()).await?);
    let told = paid.is(201, false) && others.iter().all(|a| a.is(409, false) || a.is(201, true));
    let busy = others.iter().filter(|a| a.is(409, false)).count();
    let what = format!("{CROWD} times at once ({busy} are told 409)");
    audit.note(&what, told, 1, &paid)?;

    let (paid, others) = one_and_others(patient.crowd(|_| "c".to_owned()).await?);
    let alike = others
        .iter()
        .all(|a| a.is(201, true) && a.body == paid.body);
    let what = format!("{CROWD} times at once, repeats wait");
    audit.note(&what, paid.is(201, false) && alike, 1, &paid)?;

    let (paid, others) = one_and_others(patient.crowd(|n| format!("d{n}")).await?);
    let all = paid.is(201, false) && others.iter().all(|a| a.is(201, false));
    let what = format!("{CROWD} payments of one account at once");
    audit.note(&what, all, i64::try_from(CROWD)?, &paid)?;

    let refused = overtaken(bank, locks, &patient).await?;
    println!(
        "{:44} refused: {refused}",
        "a run that stood still and was overtaken"
    );
    audit.sound &= refused;
    let last = patient.pay("e", AMOUNT).await?;
    audit.note(
        "the payment that overtook it, again",
        last.is(201, true),
        1,
        &last,
    )?;

    println!(
        "{}",
        if audit.sound {
            "sound: every key was paid once, and every repeat was told what the first was told"
        } else {
            "BROKEN: see above"
        }
    );
    Ok(audit.sound)
}

/// A run gets its locks and stands still until others have them. Then it goes on as if no time had passed. Returns
/// whether the database refused it.
async fn overtaken(bank: &Bank, locks: &LockManager, replica: &Replica) -> Result<bool, AnyError> {
    let resource = format!("account:{ACCOUNT}");
    let account = locks.acquire(&*resource).await?;
    let key = locks.acquire("key:alice:stalled").await?;
    let fences = [
        fence(resource, &account.handle()),
        fence("key:alice:stalled".to_owned(), &key.handle()),
    ];
    let [Some(of_account), Some(of_key)] = fences else {
        return Err("the manager gives no fencing tokens".into());
    };
    let run = Run {
        customer: "alice".to_owned(),
        key: "stalled".to_owned(),
        fences: [of_account, of_key],
    };
    // In earnest the leases would end while it stands still; that another is let in is all the same.
    account.release().await?;
    key.release().await?;
    replica.pay("e", AMOUNT).await?;
    let order = Order::of(AMOUNT).ok_or("nothing to pay")?;
    let bank = bank.clone();
    let paid = tokio::task::spawn_blocking(move || bank.pay(&run, ACCOUNT, order)).await??;
    Ok(paid == Outcome::Overtaken)
}

/// Compares what clients were told with what stands in the database.
struct Audit<'a> {
    bank: &'a Bank,
    sound: bool,
    payments: i64,
}

impl Audit<'_> {
    /// `told` is whether the clients were told what they should; `more` is how many payments there should be since.
    fn note(
        &mut self,
        what: &str,
        told: bool,
        more: i64,
        example: &Answer,
    ) -> Result<(), AnyError> {
        self.payments += more;
        let (payments, balance) = self.bank.audit()?;
        let expected = BEGINNING - self.payments * i64::from(AMOUNT);
        let sound = told && payments == self.payments && balance == expected;
        self.sound &= sound;
        let replayed = if example.replayed { ", replayed" } else { "" };
        println!(
            "{what:44} {}{replayed}; payments made: {payments}{}",
            example.status.as_u16(),
            if sound { "" } else { "    <-- WRONG" }
        );
        Ok(())
    }
}

/// The answer of the one that ran, if there was one, and those of the others.
fn one_and_others(mut answers: Vec<Answer>) -> (Answer, Vec<Answer>) {
    let ran = answers.iter().position(|answer| answer.is(201, false));
    let one = answers.swap_remove(ran.unwrap_or(0));
    (one, answers)
}

struct Answer {
    status: StatusCode,
    replayed: bool,
    body: Bytes,
}

impl Answer {
    fn is(&self, status: u16, replayed: bool) -> bool {
        self.status.as_u16() == status && self.replayed == replayed
    }
}

/// One server of the service.
#[derive(Clone)]
struct Replica {
    address: SocketAddr,
    client: Client<HttpConnector, Body>,
}

impl Replica {
    async fn start(bank: &Bank, locks: &LockManager, wait: Duration) -> Result<Self, AnyError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = app(bank, locks, wait);
        // It ends with the program.
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        Ok(Self { address, client })
    }

    async fn pay(&self, key: &str, amount: u32) -> Result<Answer, AnyError> {
        let uri = format!("http://{}/accounts/{ACCOUNT}/payments", self.address);
        let request = Request::post(uri)
            // As a load balancer passes it on: to its clients the service has one name, whichever replica it is.
            .header("host", "bank.example")
            .header("authorization", "Bearer alices-secret")
            .header("idempotency-key", format!("\"{key}\""))
            .header("content-type", "application/json")
            .body(Body::from(format!("{{\"amount\":{amount}}}")))?;
        let response = self.client.request(request).await?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            replayed: head.headers.contains_key("idempotent-replayed"),
            body: body.collect().await?.to_bytes(),
        })
    }

    /// Sends many payments at once, each with its key.
    async fn crowd(&self, key: impl Fn(usize) -> String) -> Result<Vec<Answer>, AnyError> {
        let mut sent = JoinSet::new();
        for n in 0..CROWD {
            let (replica, key) = (self.clone(), key(n));
            sent.spawn(async move { replica.pay(&key, AMOUNT).await });
        }
        sent.join_all().await.into_iter().collect()
    }
}
