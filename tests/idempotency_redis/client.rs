//! Clients, and what they are answered.

use std::net::SocketAddr;

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Http, Error};
use hyper_util::rt::TokioExecutor;

/// An answer but for what belongs to one exchange: the date, and whether it is a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: Vec<(String, Bytes)>,
    pub(crate) body: Bytes,
}

impl Reply {
    /// The answer, and whether it says that it is a replay.
    pub(crate) async fn read<B>(response: Response<B>) -> (Self, bool)
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: std::fmt::Debug,
    {
        let (mut head, body) = response.into_parts();
        let replayed = head.headers.remove("idempotent-replayed");
        head.headers.remove("date");
        let headers = head.headers.iter();
        let mut headers: Vec<_> = headers
            .map(|(name, value)| (name.to_string(), Bytes::copy_from_slice(value.as_bytes())))
            .collect();
        headers.sort();
        let reply = Self {
            status: head.status,
            headers,
            body: body.collect().await.unwrap().to_bytes(),
        };
        (reply, replayed.is_some_and(|value| value == "true"))
    }

    /// The kind of a problem.
    pub(crate) fn problem(&self) -> String {
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        let kind = problem["type"].as_str().unwrap();
        let kind = kind.strip_prefix("urn:tower-redlock:problem:").unwrap();
        kind.to_owned()
    }

    #[track_caller]
    pub(crate) fn assert_outcome_unknown(&self) {
        let told = (self.status.as_u16(), self.problem());
        assert_eq!(told, (503, "outcome-unknown".to_owned()));
    }

    /// A header that is a number.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let mut found = self.headers.iter().filter(|(other, _)| other == name);
        let (_, value) = found.next().unwrap();
        std::str::from_utf8(value).unwrap().parse().unwrap()
    }
}

/// The request called `key`, which is the same each time.
pub(crate) fn request(uri: String, key: &str) -> Request<Body> {
    // Each process has its own address, and all of them are one service.
    let request = Request::post(uri).header("host", "shop.example");
    let request = request.header("idempotency-key", key);
    request.body(Body::from(format!("tea for {key}"))).unwrap()
}

#[derive(Clone)]
pub(crate) struct Client(Http<HttpConnector, Body>);

impl Client {
    pub(crate) fn new() -> Self {
        Self(Http::builder(TokioExecutor::new()).build(HttpConnector::new()))
    }

    /// Sends the request called `key`.
    ///
    /// # Errors
    ///
    /// If the process at `address` ends before it has answered.
    pub(crate) async fn send(
        &self,
        address: SocketAddr,
        key: &str,
    ) -> Result<(Reply, bool), Error> {
        let request = request(format!("http://{address}/orders"), key);
        Ok(Reply::read(self.0.request(request).await?).await)
    }
}
