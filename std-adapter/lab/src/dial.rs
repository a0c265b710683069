//! Targets `rig:…` of all commands: a lease for as long as the target is used, and a connection through the agent.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rigline::frame::LineEnds;
use rigline_host::wire::{Connect, Connecting, Control, RawConnection, TransportTraits};
use rigline_host::{HostError, Options};
use rigline_std::sync::lock;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, DuplexStream, ReadBuf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::book::Refusal;
use crate::client::{self, Connection, Place, Trouble, Want};
use crate::clock;
use crate::processes::LEASE;

/// The longest time of a lease for one command.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How old what is sent may be when the rig gets it.
const FRESH: u64 = 5_000;
/// How long a lease that is being given back is waited for.
const GIVEN_BACK: Duration = Duration::from_secs(10);
/// How many bytes are sent at once.
const PIECE: usize = 32 << 10;

/// Dials a rig of the lab.
pub struct RigDialer {
    place: Place,
    selector: String,
    wait: Duration,
    state: tokio::sync::Mutex<State>,
}

enum State {
    Unknown,
    /// It waits for its lease, also while nobody waits for the connection: so it keeps its place.
    Asking(JoinHandle<Result<Held, Refusal>>),
    Held(Held),
}

/// A lease of this process, or one that it has joined.
struct Held {
    lease: String,
    rig: String,
    /// The reason of the loss.
    lost: Arc<Mutex<Option<String>>>,
    /// The lease is given back when this is dropped.
    _keeps: Option<Keeps>,
}

/// How many leases of this process are being given back.
static GIVING_BACK: LazyLock<watch::Sender<usize>> = LazyLock::new(|| watch::Sender::new(0));

/// Gives a lease back when it is dropped.
struct Keeps(Option<oneshot::Sender<GivingBack>>);

impl Drop for Keeps {
    fn drop(&mut self) {
        if let Some(keeps) = self.0.take() {
            // Nobody has it, if the lease is lost.
            let _ = keeps.send(GivingBack::new());
        }
    }
}

/// While it is there, this process asks for no lease: it would find the rig with itself.
struct GivingBack;

impl GivingBack {
    fn new() -> Self {
        GIVING_BACK.send_modify(|count| *count += 1);
        Self
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        GIVING_BACK.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// Returns the dialler of `rig:SELECTOR`.
///
/// # Errors
/// It is no selector.
pub fn dialer(place: &Place, selector: &str, options: &Options) -> Result<Box<dyn Connect>, HostError> {
    let selector = format!("rig:{selector}");
    selector.parse::<crate::rigs::Selector>().map_err(HostError::Unsupported)?;
    Ok(Box::new(RigDialer {
        place: place.clone(),
        selector,
        wait: options.wait,
        state: tokio::sync::Mutex::new(State::Unknown),
    }))
}

impl Connect for RigDialer {
    fn name(&self) -> String {
        self.selector.clone()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let failed = |refusal: Refusal| match refusal.code {
                2 => HostError::Unsupported(refusal.why),
                124 => HostError::Waited { what: self.selector.clone(), why: refusal.why },
                _ => self.unopened(io::Error::other(refusal.why)),
            };
            let mut state = self.state.lock().await;
            if let State::Unknown = &*state {
                *state = State::Asking(tokio::spawn(ask(self.place.clone(), self.selector.clone(), self.wait)));
            }
            if let State::Asking(asking) = &mut *state {
                let asked = asking.await.map_err(|error| self.unopened(io::Error::other(error)))?;
                *state = State::Unknown;
                *state = State::Held(asked.map_err(failed)?);
            }
            let State::Held(held) = &*state else { return Err(self.unopened(io::ErrorKind::NotConnected.into())) };
            if let Some(why) = lock(&held.lost).clone() {
                return Err(self.unopened(io::Error::other(why)));
            }
            open(&self.place, &held.lease, &held.rig).await.map_err(|trouble| failed(trouble.into()))
        })
    }
}

impl RigDialer {
    fn unopened(&self, source: io::Error) -> HostError {
        HostError::Open { what: self.selector.clone(), source }
    }
}

impl Drop for RigDialer {
    fn drop(&mut self) {
        if let State::Asking(asking) = self.state.get_mut() {
            asking.abort();
        }
    }
}

/// Joins the lease that this command runs within, if that has such a rig, and gets one otherwise.
async fn ask(place: Place, selector: String, wait: Duration) -> Result<Held, Refusal> {
    if let Ok(id) = std::env::var(LEASE) {
        let mut connection = Connection::open(&place).await?;
        let joined = connection.ask("join", json!({ "lease": id, "selector": selector })).await?;
        if let Some(rig) = joined.get("rig").and_then(Value::as_str) {
            return Ok(Held { lease: id, rig: rig.to_owned(), lost: Arc::default(), _keeps: None });
        }
    }
    let want = Want {
        rigs: vec![selector],
        count: 1,
        wait: (!wait.is_zero()).then_some(wait),
        ttl: LONGEST,
        idle: None,
        is_raw: false,
        purpose: std::env::args().nth(1).unwrap_or_default(),
    };
    // An agent that does not answer is reported by what is asked next.
    let mut giving_back = GIVING_BACK.subscribe();
    let _ = tokio::time::timeout(GIVEN_BACK, giving_back.wait_for(|count| *count == 0)).await;
    let (connection, granted) = client::acquire(&place, &want, |_, _| {}).await?;
    let rig = granted.lease.rigs.first().cloned().unwrap_or_default();
    let lost = Arc::new(Mutex::new(None));
    let (keeps, dropped) = oneshot::channel::<GivingBack>();
    let (told, lease) = (Arc::clone(&lost), granted.lease.clone());
    tokio::spawn(async move {
        tokio::select! {
            why = client::keep(&place, connection, &lease, false) => *lock(&told) = Some(why.why),
            giving_back = dropped => {
                let _ = client::release(&place, &lease.id).await;
                drop(giving_back);
            }
        }
    });
    Ok(Held { lease: granted.lease.id, rig, lost, _keeps: Some(Keeps(Some(keeps))) })
}

/// Opens the rig's port by the agent.
async fn open(place: &Place, lease: &str, rig: &str) -> Result<RawConnection, Trouble> {
    let mut agent = Connection::open(place).await?;
    agent.ask("open", json!({ "lease": lease, "rig": rig })).await?;
    let traits = loop {
        let (method, params) = agent.event().await.map_err(Trouble::Lost)?;
        match method.as_str() {
            "opened" => break params,
            "closed" => {
                let why = params.get("why").and_then(Value::as_str).unwrap_or_default();
                return Err(Trouble::Refused(Refusal::refused(why)));
            }
            _ => {}
        }
    };
    let is = |name: &str| traits.get(name).and_then(Value::as_bool).unwrap_or_default();
    let mut found = TransportTraits::CHILD;
    found.resend = traits.get("resend_ms").and_then(Value::as_u64).map(Duration::from_millis);
    found.shared = is("shared");
    found.ends = if is("serial") { LineEnds::Serial } else { LineEnds::Lf };
    let (writer, written) = tokio::io::duplex(PIECE * 2);
    let (said, reader) = mpsc::channel(64);
    let (complained, stderr) = mpsc::channel(64);
    let (lines, controls) = mpsc::unbounded_channel();
    tokio::spawn(pass_on(agent, written, controls, said, complained));
    let mut connection = RawConnection::new(Pieces::new(reader), writer, found);
    connection.stderr = Some(Box::new(Pieces::new(stderr)));
    if is("control") {
        connection.control = Some(Arc::new(Lines(lines)));
    }
    Ok(connection)
}

/// The lines of a port that the agent has.
struct Lines(mpsc::UnboundedSender<Value>);

impl Control for Lines {
    fn set_dtr(&self, on: bool) -> io::Result<()> {
        self.0.send(json!({ "dtr": on })).map_err(|_| io::ErrorKind::NotConnected.into())
    }

    fn discard(&self) -> io::Result<()> {
        self.0.send(json!({ "discard": true })).map_err(|_| io::ErrorKind::NotConnected.into())
    }
}

type Said = mpsc::Sender<io::Result<Vec<u8>>>;

/// Passes bytes on between this process and the agent.
async fn pass_on(
    mut agent: Connection,
    mut written: DuplexStream,
    mut controls: mpsc::UnboundedReceiver<Value>,
    said: Said,
    complained: Said,
) {
    let mut piece = vec![0; PIECE];
    let (mut seq, mut has_ended, mut has_controls) = (0, false, true);
    loop {
        let what = tokio::select! {
            biased;
            event = agent.event() => {
                let (method, params) = match event {
                    Ok(event) => event,
                    Err(error) => {
                        // What was sent last may have been done or not.
                        let text = format!("the lab's agent is gone ({error}): it is not known what the rig has done");
                        let _ = said.send(Err(io::Error::other(text))).await;
                        return;
                    }
                };
                let is_gone = match method.as_str() {
                    "said" => said.send(Ok(bytes_of(&params))).await.is_err(),
                    "stderr" => {
                        let _ = complained.try_send(Ok(bytes_of(&params)));
                        false
                    }
                    "closed" => {
                        let why = params.get("why").and_then(Value::as_str).unwrap_or_default();
                        if !why.is_empty() {
                            let _ = said.send(Err(io::Error::other(why.to_owned()))).await;
                        }
                        true
                    }
                    _ => false,
                };
                if is_gone {
                    return;
                }
                continue;
            }
            control = controls.recv(), if has_controls => match control {
                Some(control) => control,
                None => {
                    has_controls = false;
                    continue;
                }
            },
            count = written.read(&mut piece), if !has_ended => match count {
                Ok(0) | Err(_) => {
                    has_ended = true;
                    json!({ "end": true })
                }
                Ok(count) => {
                    let bytes = piece.get(..count).unwrap_or_default();
                    match std::str::from_utf8(bytes) {
                        Ok(text) => json!({ "text": text }),
                        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
                    }
                }
            },
            // Nobody reads or writes any more.
            () = said.closed() => return,
        };
        seq += 1;
        let mut params = what;
        params["seq"] = json!(seq);
        params["until"] = json!(clock::now() + FRESH);
        if let Err(error) = agent.tell("send", params).await {
            let _ = said.send(Err(error)).await;
            return;
        }
    }
}

fn bytes_of(params: &Value) -> Vec<u8> {
    match (params.get("text").and_then(Value::as_str), params.get("base64").and_then(Value::as_str)) {
        (Some(text), _) => text.as_bytes().to_vec(),
        (None, Some(text)) => BASE64_STANDARD.decode(text).unwrap_or_default(),
        (None, None) => Vec::new(),
    }
}

/// Bytes that come in pieces.
struct Pieces {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    read: usize,
}

impl Pieces {
    fn new(pieces: mpsc::Receiver<io::Result<Vec<u8>>>) -> Self {
        Self { pieces, piece: Vec::new(), read: 0 }
    }
}

impl AsyncRead for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.read >= self.piece.len() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(Ok(piece)) => (self.piece, self.read) = (piece, 0),
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Ok(())),
            }
        }
        let rest = self.piece.get(self.read..).unwrap_or_default();
        let count = rest.len().min(into.remaining());
        into.put_slice(rest.get(..count).unwrap_or_default());
        self.read += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folders::Folders;

    #[tokio::test]
    async fn no_lease_is_asked_for_while_another_one_of_this_process_is_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { folders: Folders::in_one(folder.path().into()), program: "/bin/false".into() };
        let agent = tokio::net::UnixListener::bind(place.folders.socket()).unwrap();
        let (keeps, dropped) = oneshot::channel();
        drop(Keeps(Some(keeps)));
        let asking = tokio::spawn(ask(place, "rig:r1".into(), Duration::ZERO));
        assert!(tokio::time::timeout(Duration::from_millis(200), agent.accept()).await.is_err());
        drop(dropped.await.unwrap());
        tokio::time::timeout(Duration::from_secs(5), agent.accept()).await.unwrap().unwrap();
        asking.abort();
    }
}
