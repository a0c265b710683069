//! The check of a rig between two leases: processes of the last lease are ended, the rig is brought
//! to its safe state, and is asked for its manifest.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use rigline_host::ports::Roots;
use rigline_host::target::{Port, Target};
use rigline_host::{CallContext, Host, HostError, Options, wire};
use rustix::process::{Pid, Signal};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use crate::book::Fault;
use crate::processes;
use crate::records::Lease;

/// How long a rig has for its safe state and its answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// How long the keeper of a lease that was ended has to end its command.
const KEEPER: Duration = Duration::from_millis(2500);
/// How long a server has to see that a connection is closed, and to close it too.
const SEEN: Duration = Duration::from_secs(1);
/// How long the recovery of a rig may take.
const RECOVERY: Duration = Duration::from_secs(10);
/// The operation that switches everything off, in the manifest of an extension that has a safe state.
const ALL_OFF: &str = "all-off";
/// How long processes that are left have to end by themselves.
const GRACE: Duration = Duration::from_millis(200);

/// The target that is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RigCheck<'a> {
    pub(crate) target: &'a str,
    /// Whether it is asked for its manifest.
    pub(crate) asks: bool,
    /// The lease that it had.
    pub(crate) lease: Option<&'a Lease>,
    /// The program that brings it back.
    pub(crate) recover: &'a [String],
    /// Which board it was.
    pub(crate) board: Option<&'a str>,
}

/// Ends what is left of the lease, and checks the rig. Returns what it says that it is, if it is asked.
pub(crate) async fn run(what: &RigCheck<'_>, roots: &Roots) -> Result<Option<String>, Fault> {
    let RigCheck { target, asks, lease, recover, board } = *what;
    if let Some(lease) = lease {
        end_processes(lease).await?;
    }
    let target: Target = target.parse().map_err(|error| Fault::Bad(format!("its target is wrong: {error}")))?;
    if !recover.is_empty() {
        // A port that others have is theirs.
        if let Err(fault @ Fault::Busy(_)) = looked(&target, roots, free_port).await {
            return Err(fault);
        }
        run_recovery(recover)
            .await
            .map_err(|why| Fault::Bad(format!("its recovery `{}`: {why}", recover.join(" "))))?;
        came_back(&target, roots).await;
    }
    let known = board.map(str::to_owned);
    looked(&target, roots, move |target, roots| ensure_board(target, known.as_deref(), roots).map_err(Fault::Bad))
        .await?;
    looked(&target, roots, free_port).await?;
    if !asks || matches!(target, Target::Http(_) | Target::Replay(_)) {
        return Ok(None);
    }
    match timeout(LIMIT, ask(&target, roots)).await {
        Ok(Ok(manifest)) => Ok(Some(manifest)),
        Ok(Err(error @ HostError::Busy { .. })) => Err(Fault::Busy(error.to_string())),
        Ok(Err(error)) => Err(Fault::Bad(error.to_string())),
        Err(_) => Err(Fault::Bad(format!("it was not safe within {LIMIT:?}"))),
    }
}

/// Looks into the system's files, which takes its time on a busy machine, beside the agent's own thread.
async fn looked(
    target: &Target,
    roots: &Roots,
    look: impl FnOnce(&Target, &Roots) -> Result<(), Fault> + Send + 'static,
) -> Result<(), Fault> {
    let (target, roots) = (target.clone(), roots.clone());
    let found = tokio::task::spawn_blocking(move || look(&target, &roots)).await;
    found.unwrap_or_else(|error| Err(Fault::Bad(error.to_string())))
}

/// Runs what the list names to bring a rig back, and nothing else of the lab.
async fn run_recovery(recover: &[String]) -> Result<(), String> {
    let (program, args) = recover.split_first().ok_or("it is empty")?;
    let mut command = tokio::process::Command::new(program);
    command.args(args).current_dir("/").process_group(0).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
    let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let ended = timeout(RECOVERY, child.wait_with_output()).await;
    if let Some(group) = group {
        // What it has left running too.
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    match ended {
        Err(_) => Err(format!("it was not done within {RECOVERY:?}")),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("it failed ({}): {}", output.status, said.lines().last().unwrap_or_default()))
        }
    }
}

/// Waits until a board that was switched off and on is there again.
async fn came_back(target: &Target, roots: &Roots) {
    let Target::Serial(serial) = target else { return };
    let _ = timeout(LIMIT, async {
        while roots.find(&serial.port).is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn end_processes(lease: &Lease) -> Result<(), Fault> {
    if let Some(keeper) = lease.keeper
        && !keeper.ended(KEEPER).await
    {
        keeper.signal(Signal::KILL);
        let _ = keeper.ended(Duration::from_secs(1)).await;
    }
    // The keeper may have been killed, and its command not.
    let (id, uid) = (lease.id.clone(), lease.holder.uid);
    match processes::end(move || processes::of_lease(&id, uid), GRACE).await.first() {
        None => Ok(()),
        Some(process) => Err(Fault::Bad(format!("process {} of the last lease cannot be ended", process.pid))),
    }
}

/// Which board is at a port that is named by its path, which may be given to another board. Targets that name the board itself need none.
pub(crate) fn board_at(target: &Target, roots: &Roots) -> Option<String> {
    let Target::Serial(serial) = target else { return None };
    let Port::Path(_) = &serial.port else { return None };
    let usb = roots.find(&serial.port).ok()?.usb?;
    Some(match usb.serial_number.is_empty() {
        false => format!("{:04x}:{:04x} {}", usb.vendor_id, usb.product_id, usb.serial_number),
        true => format!("{:04x}:{:04x} at the USB port {}", usb.vendor_id, usb.product_id, usb.place),
    })
}

/// Refuses a board that has taken the name of another one's port, before a byte is written to it.
pub(crate) fn ensure_board(target: &Target, known: Option<&str>, roots: &Roots) -> Result<(), String> {
    match (known, board_at(target, roots)) {
        (Some(known), Some(found)) if known != found => {
            Err(format!("another board is at {target}: it was {known}, and is {found} now"))
        }
        _ => Ok(()),
    }
}

/// Whether nobody has the rig's port open: each byte of the device goes to one reader only.
fn free_port(target: &Target, roots: &Roots) -> Result<(), Fault> {
    let Target::Serial(serial) = target else { return Ok(()) };
    let port = match roots.find(&serial.port) {
        Ok(port) => port,
        Err(error @ HostError::SeveralDevices { .. }) => return Err(Fault::Bad(format!("ambiguous: {error}"))),
        Err(error) => return Err(Fault::Bad(error.to_string())),
    };
    match roots.rivals(&port.path).first() {
        None => Ok(()),
        Some(holder) => Err(Fault::Busy(format!("{} is open in {holder}", port.path.display()))),
    }
}

/// The largest line that a check reads, such as the manifest of a rig: 1 MiB.
const LINE_LIMIT: usize = 1 << 20;

/// Ends what the rig does, by losing a session, and asks what it is.
async fn ask(target: &Target, roots: &Roots) -> Result<String, HostError> {
    let mut options = Options::default();
    // The agent keeps what the buffer for a line takes: the default of 16 MiB would be more than all else.
    options.line_limit = LINE_LIMIT;
    options.start_timeout = LIMIT;
    options.shutdown_timeout = Duration::from_secs(1);
    options.roots = roots.clone();
    if matches!(target, Target::Tcp(_)) {
        lose_session(target, &options).await?;
    }
    let host = Host::connect(target, options).await?;
    // A program is started anew for each session, and ends with it.
    if matches!(target, Target::Serial(_)) {
        host.cancel().await?;
    }
    // A board whose DTR line is not connected, or is a pseudo-terminal's, has not noticed that.
    if !matches!(target, Target::Exec(_) | Target::Sim) && host.describe().operation(ALL_OFF).is_some() {
        let made = host.call(ALL_OFF, &json!({}), CallContext::default()).await?;
        if let Some(why) = made.failure() {
            return Err(HostError::Unsupported(format!("its operation {ALL_OFF} has failed: {why}")));
        }
    }
    let manifest = host.describe();
    let manifest = format!("{} {}", manifest.name, manifest.version);
    host.shutdown().await?;
    Ok(manifest)
}

/// Begins a session with a server and loses it. The server closes the connection when it has seen that, and has brought about its safe state: one
/// that got the next session before would not have lost any.
async fn lose_session(target: &Target, options: &Options) -> Result<(), HostError> {
    const INITIALIZE: &[u8] =
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"0.0.1\"}}\n";
    let dialer = wire::dialer(target, options)?;
    let mut connection = wire::open(&*dialer, options, Duration::ZERO).await?;
    let mut said = [0; 512];
    let lost = async {
        connection.writer.write_all(INITIALIZE).await?;
        connection.writer.flush().await?;
        // The answer: what it says, the next session finds out.
        let count = connection.reader.read(&mut said).await?;
        if count == 0 {
            return Ok(());
        }
        connection.writer.shutdown().await?;
        while connection.reader.read(&mut said).await? > 0 {}
        Ok::<(), io::Error>(())
    };
    // One that never closes has had the time to see it.
    let _ = timeout(SEEN, lost).await;
    Ok(())
}
