//! The time since the machine was started, which also passes while the machine sleeps
//! (clock_gettime(2), `CLOCK_BOOTTIME`).
//!
//! The limits of leases are compared with this clock and never with the time of day, which people
//! and servers set.

use std::fs;
use std::io;
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::unix::AsyncFd;

/// A time in milliseconds since the machine was started.
pub type BootTime = u64;

/// The current time, in milliseconds since the machine was started.
pub fn now() -> BootTime {
    let now = rustix::time::clock_gettime(ClockId::Boottime);
    let (seconds, nanos) =
        (u64::try_from(now.tv_sec).unwrap_or_default(), u64::try_from(now.tv_nsec).unwrap_or_default());
    seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
}

/// The id of the machine's current start. It is different after each start.
///
/// # Errors
/// The system does not provide the id.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// The time of day, in seconds since 1970. It is shown to people, and used only to decide what
/// belongs to one day.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Converts a duration to whole milliseconds.
pub fn to_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A timer on the clock of [`now`]. It also counts the time for which the machine has slept, where
/// tokio's timers are late.
pub struct Alarm(AsyncFd<rustix::fd::OwnedFd>);

impl Alarm {
    /// Makes a timer, in the current tokio runtime.
    ///
    /// # Errors
    /// The system has no such timer.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe; this one owns the descriptor, which is never another one"
        )]
        AsyncFd::new(timer).map(Self)
    }

    /// Waits until the time `due`. With none it waits forever.
    pub async fn at(&self, due: Option<BootTime>) {
        let Some(due) = due else { return std::future::pending().await };
        if due <= now() {
            return;
        }
        // Rounded up, so that the time has come when it rings.
        let seconds = i64::try_from(due / 1000).unwrap_or(i64::MAX / 2);
        let nanos = i64::try_from(due % 1000).unwrap_or_default() * 1_000_000;
        let value = Timespec { tv_sec: seconds, tv_nsec: nanos };
        let once = Itimerspec { it_interval: Timespec::default(), it_value: value };
        if rustix::time::timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once).is_err() {
            return tokio::time::sleep(Duration::from_millis(due.saturating_sub(now()))).await;
        }
        let Ok(mut ready) = self.0.readable().await else { return };
        let _ = rustix::io::read(self.0.get_ref(), &mut [0u8; 8]);
        ready.clear_ready();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_when_its_time_has_come_and_not_before() {
        let alarm = Alarm::new().unwrap();
        for after in [0, 1, 30] {
            let due = now() + after;
            alarm.at(Some(due)).await;
            assert!(now() >= due);
        }
        // One that was given up does not ring for the next.
        let early = tokio::time::timeout(Duration::from_millis(5), alarm.at(Some(now() + 5000))).await;
        assert!(early.is_err());
        let due = now() + 60;
        alarm.at(Some(due)).await;
        assert!(now() >= due);
        assert!(tokio::time::timeout(Duration::from_millis(20), alarm.at(None)).await.is_err());
    }
}
