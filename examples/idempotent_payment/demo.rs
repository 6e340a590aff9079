//! The service driving itself, as two replicas, over real HTTP connections.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower_redlock::LockManager;

use crate::bank::{ACCOUNT, BEGINNING, Bank, Outcome, Payment};
use crate::{AnyError, PATIENCE, app, fence};

/// How many requests come at the same time.
const CROWD: usize = 20;
const AMOUNT: u32 = 1_250;
/// The database may have the keys of earlier demonstrations.
static RUN: LazyLock<String> = LazyLock::new(|| {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    format!("{:?}", now.unwrap_or_default())
});

/// Runs through what can happen to a payment, and says how it went. Returns whether all went as it should. `itself` is
/// how to start a process of the service.
pub(crate) async fn run(
    bank: &Bank,
    locks: &LockManager,
    itself: Command,
) -> Result<bool, AnyError> {
    let patient = Replica::start(bank, locks, PATIENCE).await?;
    let hasty = Replica::start(bank, locks, Duration::ZERO).await?;
    let mut audit = Audit {
        bank,
        sound: true,
        payments: bank.audit().await?.0,
    };

    let first = patient.pay("a", AMOUNT).await?;
    audit
        .note("a payment", first.is(201, false), 1, &first)
        .await?;
    let again = hasty.pay("a", AMOUNT).await?;
    let same = again.is(201, true) && again.body == first.body;
    audit
        .note("sent again, to another replica", same, 0, &again)
        .await?;
    let other = patient.pay("a", AMOUNT + 1).await?;
    audit
        .note("another under its key", other.is(422, false), 0, &other)
        .await?;

    let (paid, others) = one_and_others(hasty.crowd(|_| "b".to_owned()).await?);
    let told = paid.is(201, false) && others.iter().all(|a| a.is(409, false) || a.is(201, true));
    let busy = others.iter().filter(|a| a.is(409, false)).count();
    let what = format!("{CROWD} times at once ({busy} are told 409)");
    audit.note(&what, told, 1, &paid).await?;

    let (paid, others) = one_and_others(patient.crowd(|_| "c".to_owned()).await?);
    let alike = others
        .iter()
        .all(|a| a.is(201, true) && a.body == paid.body);
    let what = format!("{CROWD} times at once, repeats wait");
    audit
        .note(&what, paid.is(201, false) && alike, 1, &paid)
        .await?;

    let (paid, others) = one_and_others(patient.crowd(|n| format!("d{n}")).await?);
    let all = paid.is(201, false) && others.iter().all(|a| a.is(201, false));
    let what = format!("{CROWD} payments of one account at once");
    audit.note(&what, all, i64::try_from(CROWD)?, &paid).await?;

    let refused = overtaken(bank, locks, &patient).await?;
    println!(
        "{:44} refused: {refused}",
        "a run that stood still and was overtaken"
    );
    audit.sound &= refused;
    let last = patient.pay("e", AMOUNT).await?;
    audit
        .note(
            "the payment that overtook it, again",
            last.is(201, true),
            1,
            &last,
        )
        .await?;

    let (told, last) = killed(itself).await?;
    audit
        .note("the process dies after the commit", told, 1, &last)
        .await?;

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

/// A run gets its lock and stands still until another had it. Then it goes on as if no time had passed. Returns whether
/// the database refused it.
async fn overtaken(bank: &Bank, locks: &LockManager, replica: &Replica) -> Result<bool, AnyError> {
    let resource = format!("account:{ACCOUNT}");
    let account = locks.acquire(&*resource).await?;
    let fence = fence(resource, &account.handle()).ok_or("the manager gives no fencing tokens")?;
    // In earnest the lease would end while it stands still; that another is let in is all the same.
    account.release().await?;
    replica.pay("e", AMOUNT).await?;
    let late = Payment {
        id: format!("late of {}", *RUN),
        encode: Arc::new(|response| response.body().clone()),
        fence: Some(fence),
        customer: "alice".to_owned(),
        account: ACCOUNT,
        amount: i64::from(AMOUNT),
    };
    Ok(matches!(bank.pay(late).await?, Outcome::Overtaken))
}

/// Two processes, one after the other. The first dies when it has committed a payment, and tells nobody; the second gets
/// the same request. Returns whether they said what they should, and the last answer.
async fn killed(mut itself: Command) -> Result<(bool, Answer), AnyError> {
    itself.env("LISTEN", "127.0.0.1:0").stdout(Stdio::piped());
    let mut first = Process::start(itself.env("DIE_AFTER_COMMIT", "1"))?;
    let told = first.replica.pay("f", AMOUNT).await;
    let has_died = !first.child.wait()?.success();
    let second = Process::start(itself.env_remove("DIE_AFTER_COMMIT"))?;
    // Where nodes outlive the process, so does its lock, for a ttl.
    let end = Instant::now() + Duration::from_secs(15);
    let mut again = second.replica.pay("f", AMOUNT).await?;
    while again.is(409, false) && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(100)).await;
        again = second.replica.pay("f", AMOUNT).await?;
    }
    let once_more = second.replica.pay("f", AMOUNT).await?;
    let same = again.is(201, true) && once_more.is(201, true) && once_more.body == again.body;
    Ok((told.is_err() && has_died && same, again))
}

/// A service in a process of its own, which ends with this value.
struct Process {
    child: Child,
    replica: Replica,
    // It writes more than is read.
    _output: BufReader<ChildStdout>,
}

impl Process {
    fn start(command: &mut Command) -> Result<Self, AnyError> {
        let mut child = command.spawn()?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        // Its first line is `payments on http://127.0.0.1:3000; try ..`.
        let address = loop {
            let mut line = String::new();
            if output.read_line(&mut line)? == 0 {
                return Err("the service did not start".into());
            }
            let address = line.split_once("http://").map(|(_, rest)| rest);
            if let Some((address, _)) = address.and_then(|rest| rest.split_once(';')) {
                break address.parse()?;
            }
        };
        Ok(Self {
            child,
            replica: Replica::at(address),
            _output: output,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Compares what clients were told with what stands in the database.
struct Audit<'a> {
    bank: &'a Bank,
    sound: bool,
    payments: i64,
}

impl Audit<'_> {
    /// `told` is whether the clients were told what they should; `more` is how many payments there should be since.
    async fn note(
        &mut self,
        what: &str,
        told: bool,
        more: i64,
        example: &Answer,
    ) -> Result<(), AnyError> {
        self.payments += more;
        let (payments, balance) = self.bank.audit().await?;
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

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    replayed: bool,
    pub(crate) body: Bytes,
}

impl Answer {
    fn is(&self, status: u16, replayed: bool) -> bool {
        self.status.as_u16() == status && self.replayed == replayed
    }
}

/// One server of the service.
#[derive(Clone)]
pub(crate) struct Replica {
    address: SocketAddr,
    client: Client<HttpConnector, Body>,
}

impl Replica {
    pub(crate) async fn start(
        bank: &Bank,
        locks: &LockManager,
        wait: Duration,
    ) -> Result<Self, AnyError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = app(bank, locks, wait);
        // It ends with the program.
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self::at(address))
    }

    fn at(address: SocketAddr) -> Self {
        let client = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        Self { address, client }
    }

    pub(crate) async fn pay(&self, key: &str, amount: u32) -> Result<Answer, AnyError> {
        let uri = format!("http://{}/accounts/{ACCOUNT}/payments", self.address);
        let request = Request::post(uri)
            // As a load balancer passes it on: to its clients the service has one name, whichever replica it is.
            .header("host", "bank.example")
            .header("authorization", "Bearer alices-secret")
            .header("idempotency-key", format!("\"{key} of {}\"", *RUN))
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
