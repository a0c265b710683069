//! A recording in the place of an extension.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, duplex, split};

use super::error::HostError;
use super::transport::{Connect, Connecting, RawConnection, TransportTraits};
use crate::record::{Action, LoadedRecording, Player};
use crate::target::{Replay, Target};
use rigline_std::mutex::lock;

/// The most bytes on the way in each direction.
const IN_FLIGHT: usize = 64 * 1024;
/// The longest request, in bytes.
const LINE: u64 = 16 << 20;

/// Dials a recording.
pub(super) struct ReplayDialer {
    name: String,
    shared: Arc<Shared>,
}

struct Shared {
    recording: LoadedRecording,
    player: Mutex<Player>,
}

impl ReplayDialer {
    pub(super) fn new(target: &Replay) -> Result<Self, HostError> {
        let recording = LoadedRecording::load(&target.path).map_err(HostError::Unsupported)?;
        let player = Mutex::new(Player::new(target.keeps_pace));
        let name = Target::Replay(target.clone()).to_string();
        Ok(Self { name, shared: Arc::new(Shared { recording, player }) })
    }
}

impl Connect for ReplayDialer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async {
            let Shared { recording, player } = &*self.shared;
            let greeting = lock(player).connect(recording);
            let greeting =
                greeting.map_err(|why| HostError::Open { what: self.name(), source: io::Error::other(why) })?;
            let (ours, theirs) = duplex(IN_FLIGHT);
            tokio::spawn(play(Arc::clone(&self.shared), greeting, theirs));
            let (reader, writer) = split(ours);
            Ok(RawConnection::new(reader, writer, TransportTraits::CHILD))
        })
    }
}

async fn play(shared: Arc<Shared>, greeting: Vec<Action>, stream: DuplexStream) {
    let (reader, mut writer) = split(stream);
    let mut lines = BufReader::new(reader);
    let mut line = Vec::new();
    let mut actions = greeting;
    loop {
        for action in actions {
            match action {
                Action::Wait(time) => tokio::time::sleep(time).await,
                Action::Send(bytes) => {
                    if writer.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Action::Close => {
                    let _ = writer.shutdown().await;
                    return;
                }
            }
        }
        line.clear();
        match (&mut lines).take(LINE).read_until(b'\n', &mut line).await {
            Ok(1..) => {}
            _ => return,
        }
        let mut player = lock(&shared.player);
        actions = player.answer(&shared.recording, &line);
    }
}
