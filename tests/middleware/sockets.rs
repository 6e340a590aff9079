//! Real servers and clients whose handlers take a guard along into what goes on when the head of the response is out: a
//! WebSocket, a stream of events. The lock is held for as long as that lives, and no longer, whoever ends it and
//! however. Nothing here comes near the ttl, so whatever is free was released.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use futures_util::{SinkExt as _, Stream, StreamExt as _, stream};
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::{Error, Message as Sent};
use tokio_tungstenite::{WebSocketStream, client_async};
use tower_redlock::{Held, LockGuard, LockManager};

use super::http_wire::{clients, freed, serve};
use super::{KEY, Nodes, layer, to};

/// A server whose WebSocket at `/` echoes under the lock.
async fn echo(locks: &LockManager) -> String {
    // The handshake is a GET, which locks nothing unless the layer is told to.
    let layer = layer(locks).all_methods();
    let handler = async |upgrade: WebSocketUpgrade, held: Held| -> Response {
        let guard = held.into_guard().unwrap();
        upgrade.on_upgrade(|socket| talk(socket, guard))
    };
    serve(Router::new().route("/", any(handler).layer(layer))).await
}

async fn talk(mut socket: WebSocket, guard: LockGuard) {
    loop {
        let message = tokio::select! {
            biased;
            reason = guard.lost() => {
                let _ = socket.send(Message::text(reason.to_string())).await;
                return;
            }
            message = socket.recv() => message,
        };
        let Some(Ok(message)) = message else { return };
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

type Socket = WebSocketStream<TcpStream>;

/// A socket, or the status with which it was refused.
async fn dial(url: &str) -> Result<Socket, StatusCode> {
    let address = url.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    match client_async(format!("ws://{address}/"), stream).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(refusal)) => Err(refusal.status()),
        Err(error) => panic!("{error}"),
    }
}

async fn ask(socket: &mut Socket, text: &str) -> Option<String> {
    socket.send(Sent::text(text)).await.unwrap();
    heard(socket).await
}

/// The next text; `None` at the end.
async fn heard(socket: &mut Socket) -> Option<String> {
    match socket.next().await {
        Some(Ok(Sent::Text(text))) => Some(text.to_string()),
        _ => None,
    }
}

#[tokio::test]
async fn a_websocket_holds_its_lock_until_it_is_closed_lost_or_without_a_client() {
    for end in [End::Well, End::ByALoss, End::ByItsClient] {
        let (nodes, locks) = Nodes::with_manager();
        let url = echo(&locks).await;
        let mut socket = dial(&url).await.unwrap();
        assert_eq!(ask(&mut socket, "a").await.as_deref(), Some("a"));
        assert_eq!(nodes.holding(KEY), 5, "the answer 101 did not release it");
        assert_eq!(dial(&url).await.unwrap_err(), StatusCode::CONFLICT);
        assert_eq!(ask(&mut socket, "on").await.as_deref(), Some("on"));
        match end {
            End::ByALoss => {
                assert_eq!(locks.shutdown(Duration::ZERO).await.lost, 1);
                let told = heard(&mut socket).await.unwrap();
                assert!(told.contains("shut"), "{told}");
                assert_eq!(heard(&mut socket).await, None, "it has ended");
            }
            // The connection ends without a word.
            End::ByItsClient => drop(socket),
            _ => socket.close(None).await.unwrap(),
        }
        freed(&nodes).await;
        let again = dial(&url).await.map(drop);
        assert_eq!(again.is_ok(), end != End::ByALoss, "{again:?}");
    }
}

#[tokio::test]
async fn a_websocket_whose_client_goes_before_the_answer_can_have_come_frees_its_lock() {
    let (nodes, locks) = Nodes::with_manager();
    // From here on the manager asks the nodes as soon as a request is there.
    let guard = locks.try_acquire("another").await.unwrap();
    guard.release().await.unwrap();
    let url = echo(&locks).await;
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let hello = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
        sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n";
    let before = nodes.commands();
    stream.write_all(hello.as_bytes()).await.unwrap();
    drop(stream);
    while nodes.commands() == before {
        tokio::task::yield_now().await;
    }
    freed(&nodes).await;
}

/// What ends a WebSocket or a stream of events.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Well,
    ByAPanic,
    ByALoss,
    ByItsClient,
}

type Events = Pin<Box<dyn Stream<Item = Result<Event, axum::Error>> + Send>>;

/// One event, and then silence under the lock until something ends it.
fn events(guard: LockGuard, end: End, go: Arc<Notify>) -> Events {
    let rest = stream::once(async move {
        tokio::select! {
            () = go.notified() => assert_ne!(end, End::ByAPanic, "on purpose"),
            _ = guard.lost() => {}
        }
        drop(guard);
        Ok(Event::default().data("last"))
    });
    let first = stream::once(async { Ok(Event::default().data("first")) });
    Box::pin(first.chain(rest))
}

#[tokio::test]
async fn a_stream_of_events_holds_its_lock_until_it_ends_however_that_is() {
    for end in [End::Well, End::ByAPanic, End::ByALoss, End::ByItsClient] {
        for client in clients() {
            let (nodes, go) = (Nodes::five(), Arc::new(Notify::new()));
            let locks = nodes.manager();
            let handler = {
                let go = Arc::clone(&go);
                async move |held: Held| -> Response {
                    let guard = held.into_guard().unwrap();
                    Sse::new(events(guard, end, Arc::clone(&go))).into_response()
                }
            };
            // Browsers ask for events by GET.
            let route = any(handler).layer(layer(&locks).all_methods());
            let url = serve(Router::new().route("/", route)).await;
            let answer = client.request(to(Method::GET, &url)).await.unwrap();
            let mut body = answer.into_body();
            let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(first, "data: first\n\n");
            assert_eq!(nodes.holding(KEY), 5, "the head did not release it");
            let second = client.request(to(Method::GET, &url)).await.unwrap();
            assert_eq!(second.status(), StatusCode::CONFLICT);
            match end {
                End::Well | End::ByAPanic => go.notify_one(),
                End::ByALoss => assert_eq!(locks.shutdown(Duration::ZERO).await.lost, 1),
                End::ByItsClient => drop(client),
            }
            match end {
                End::ByItsClient => drop(body),
                End::ByAPanic => assert!(body.collect().await.is_err(), "it is cut off"),
                End::Well | End::ByALoss => {
                    assert_eq!(body.collect().await.unwrap().to_bytes(), "data: last\n\n");
                }
            }
            freed(&nodes).await;
        }
    }
}
