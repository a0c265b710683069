//! The work between two leases: the processes of the last one are ended, the rig is brought to its safe state, and says what it is.

use std::time::Duration;

use rigline_host::ports::Roots;
use rigline_host::target::Target;
use rigline_host::{Host, HostError, Options};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::book::Fault;
use crate::processes;
use crate::records::Lease;

/// How long a rig has for its safe state and its answer.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);
/// How long the keeper of a lease that was ended has to end its command.
const KEEPER: Duration = Duration::from_millis(2500);
/// How long a server has to see that a connection is closed.
const SEEN: Duration = Duration::from_millis(250);
/// How long processes that are left have to end by themselves.
const GRACE: Duration = Duration::from_millis(200);

/// Ends what is left of the lease, and checks the rig. Returns what it says that it is, if it is asked.
pub(crate) async fn run(
    target: &str,
    asks: bool,
    lease: Option<&Lease>,
    roots: &Roots,
) -> Result<Option<String>, Fault> {
    if let Some(lease) = lease {
        end_processes(lease).await?;
    }
    let target: Target = target.parse().map_err(|error| Fault::Bad(format!("its target is wrong: {error}")))?;
    free_port(&target, roots)?;
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

async fn end_processes(lease: &Lease) -> Result<(), Fault> {
    if let Some(keeper) = lease.keeper
        && !keeper.ended(KEEPER).await
    {
        keeper.signal(Signal::KILL);
        let _ = keeper.ended(Duration::from_secs(1)).await;
    }
    // The keeper may have been killed, and its command not.
    match processes::end(|| processes::of_lease(&lease.id), GRACE).await.first() {
        None => Ok(()),
        Some(process) => Err(Fault::Bad(format!("process {} of the last lease cannot be ended", process.pid))),
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

/// Ends what the rig does, by losing a session, and asks what it is.
async fn ask(target: &Target, roots: &Roots) -> Result<String, HostError> {
    let mut options = Options::default();
    options.start_timeout = LIMIT;
    options.shutdown_timeout = Duration::from_secs(1);
    options.roots = roots.clone();
    let mut host = Host::connect(target, options.clone()).await?;
    match target {
        Target::Serial(_) => host.cancel().await?,
        Target::Tcp(_) => {
            drop(host);
            // A server that has the next session before it has seen the end of the last one has lost none.
            sleep(SEEN).await;
            host = Host::connect(target, options).await?;
        }
        // A program is started anew for each session, and ends with it.
        _ => {}
    }
    let manifest = host.describe();
    let manifest = format!("{} {}", manifest.name, manifest.version);
    host.shutdown().await?;
    Ok(manifest)
}
