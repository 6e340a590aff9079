//! The span of a call for a lock.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_redlock::LockKey;
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument as _, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::{Line, five};

/// That something ran inside of a span.
struct Entered;

/// Writes every span down with that around it, at its end: `outer > name field=value ..`, and whether anything ran in
/// it.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl<S> Layer<S> for Spans
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let this = context.span(id).unwrap();
        let outer = this.parent().map(|outer| format!("{} > ", outer.name()));
        let mut line = Line(outer.unwrap_or_default() + this.name());
        span.record(&mut line);
        this.extensions_mut().insert(line);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let this = context.span(id).unwrap();
        values.record(this.extensions_mut().get_mut::<Line>().unwrap());
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        context.span(id).unwrap().extensions_mut().replace(Entered);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let this = context.span(&id).unwrap();
        let mut told = this.extensions_mut();
        let Line(mut line) = told.remove().unwrap();
        if told.remove::<Entered>().is_some() {
            line.push_str(" entered");
        }
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_has_a_span_inside_of_the_callers() {
    let spans = Spans::default();
    let _listening = tracing_subscriber::registry()
        .with(spans.clone())
        .set_default();
    let (_nodes, builder) = five();
    let locks = builder.redact_keys(true).connect().await.unwrap();
    let told = || std::mem::take(&mut *spans.0.lock().unwrap());
    let hidden = LockKey::new("order:1").unwrap().redacted();
    let begin = |inside: &str, outcome: &str| {
        format!("{inside}acquire key=\"{hidden}\" outcome=\"{outcome}\" nodes=\"")
    };
    let request = tracing::info_span!("request");
    let guard = locks.acquire("order:1").instrument(request.clone()).await;
    // What the late nodes say is heard in it, too.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lines = told();
    let of_call = begin("request > ", "acquired") + "n0, n1, n2";
    let is_told = |line: &String| line.starts_with(&of_call) && line.ends_with("\" entered");
    assert!(lines.len() == 1 && is_told(&lines[0]), "{lines:?}");
    // The loss of the lock would be told in the caller's span, not in that of the call.
    drop(request);
    assert_eq!(told(), [""; 0]);
    let locks = locks.with_max_wait(Duration::from_secs(60));
    let second = locks.acquire("order:1");
    let gone = tokio::time::timeout(Duration::from_millis(1), second).await;
    assert!(gone.is_err());
    assert_eq!(told(), [begin("", "cancelled") + "\" entered"]);
    drop(guard);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(told(), ["request entered"]);
}
