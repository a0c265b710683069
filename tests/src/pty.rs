//! A pty in front of a TCP port that emulates a serial port, so that any program for serial ports can use an emulated
//! board.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, QueueSelector};

/// A pty with a serial port behind it. It ends when it is dropped, and so does its path.
///
/// Opening the path connects to the port, which raises DTR; when the last program closes it, the connection ends, and DTR
/// drops. (A pty has no modem lines.) It is raw and does not echo, until a program changes that.
///
/// When the port's side ends the connection, as it does when the board is unplugged, the pty is hung up: a program that has
/// the path open reads its end. After it has closed it, the path is there again. Linux gives a new pty the lowest number that
/// is free, so the path is the same unless another program was faster; then the new path is printed on standard error.
#[derive(Debug)]
pub struct Pty {
    path: Arc<Mutex<String>>,
    ended: Arc<AtomicBool>,
    pump: Option<JoinHandle<()>>,
}

/// How long the pump takes at most to see that the path was opened, or that this was dropped.
const ATTENTION: Duration = Duration::from_millis(10);
/// The most bytes that wait in this program, each way.
const WAITING: usize = 4096;

impl Pty {
    /// In front of this TCP port of 127.0.0.1.
    ///
    /// # Errors
    /// The system has no pty left.
    pub fn in_front_of(port: u16) -> io::Result<Self> {
        Self::start(port, None)
    }

    /// In front of this TCP port of 127.0.0.1, with a link to its path. While the pty is hung up the link is gone, so that
    /// nobody opens another pty that has got the number.
    ///
    /// # Errors
    /// The system has no pty left, or the link cannot be made.
    pub fn linked(link: &Path, port: u16) -> io::Result<Self> {
        Self::start(port, Some(link.to_owned()))
    }

    fn start(port: u16, link: Option<PathBuf>) -> io::Result<Self> {
        let (mut controller, first) = raw()?;
        if let Some(link) = &link {
            symlink(&first, link)?;
        }
        let (path, ended) = (Arc::new(Mutex::new(first)), Arc::new(AtomicBool::new(false)));
        let (is_over, shown) = (Arc::clone(&ended), Arc::clone(&path));
        let pump = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if is_hung_up(&controller) {
                    thread::sleep(ATTENTION);
                    continue;
                }
                match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    // Ends when the path is closed, or the connection is.
                    Ok(board) => drop(pump(&controller, board, &is_over)),
                    Err(_) => {
                        thread::sleep(ATTENTION);
                        continue;
                    }
                }
                if is_hung_up(&controller) {
                    // The next program must not find what the last one did not read.
                    let _ = rustix::termios::tcflush(&controller, QueueSelector::IOFlush);
                    continue;
                }
                if let Some(link) = &link {
                    let _ = fs::remove_file(link);
                }
                drop(controller);
                let old = shown.lock().map_or_else(|_| String::new(), |path| path.clone());
                while link.is_none() && Path::new(&old).exists() && !is_over.load(Ordering::Relaxed) {
                    thread::sleep(ATTENTION);
                }
                let Ok((new, path)) = raw() else { return };
                controller = new;
                match &link {
                    Some(link) if symlink(&path, link).is_err() => return,
                    None if path != old => eprintln!("{old} is now {path}"),
                    _ => {}
                }
                if let Ok(mut shown) = shown.lock() {
                    *shown = path;
                }
            }
            if let Some(link) = &link {
                let _ = fs::remove_file(link);
            }
        });
        Ok(Self { path, ended, pump: Some(pump) })
    }

    /// The path to open.
    ///
    /// # Panics
    /// Never: no code panics while it holds the lock.
    pub fn path(&self) -> String {
        self.path.lock().expect("nothing panics while it holds this").clone()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(pump) = self.pump.take() {
            let _ = pump.join();
        }
    }
}

/// A raw pty that no program has open, and its path.
fn raw() -> io::Result<(File, String)> {
    let pty = rustix_openpty::openpty(None, None)?;
    let path = rustix::pty::ptsname(&pty.controller, Vec::new())?.into_string().map_err(io::Error::other)?;
    let mut settings = rustix::termios::tcgetattr(&pty.user)?;
    settings.make_raw();
    rustix::termios::tcsetattr(&pty.user, OptionalActions::Now, &settings)?;
    // From now on it is hung up while no program has it open.
    drop(pty.user);
    rustix::io::ioctl_fionbio(&pty.controller, true)?;
    Ok((File::from(pty.controller), path))
}

fn is_hung_up(controller: &File) -> bool {
    let mut fds = [PollFd::new(controller, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Carries bytes both ways until either side ends.
fn pump(mut controller: &File, mut board: TcpStream, is_over: &AtomicBool) -> io::Result<()> {
    board.set_nonblocking(true)?;
    board.set_nodelay(true)?;
    let (mut to_board, mut to_user) = (Vec::new(), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let wanted = |incoming: &Vec<u8>, outgoing: &Vec<u8>| {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, incoming.len() < WAITING);
            wanted.set(PollFlags::OUT, !outgoing.is_empty());
            wanted
        };
        let mut fds = [
            PollFd::from_borrowed_fd(controller.as_fd(), wanted(&to_board, &to_user)),
            PollFd::from_borrowed_fd(board.as_fd(), wanted(&to_user, &to_board)),
        ];
        let limit = Timespec::try_from(ATTENTION).map_err(io::Error::other)?;
        poll(&mut fds, Some(&limit))?;
        // What was written before the path was closed is carried first: then reading fails.
        carry(&mut controller, &mut to_board)?;
        carry(&mut board, &mut to_user)?;
        deliver(&mut controller, &mut to_user)?;
        deliver(&mut board, &mut to_board)?;
    }
    Ok(())
}

/// Takes what is there, up to what may wait.
fn carry(from: &mut impl Read, waiting: &mut Vec<u8>) -> io::Result<()> {
    let mut bytes = [0; WAITING];
    let room = WAITING.saturating_sub(waiting.len());
    if room == 0 {
        return Ok(());
    }
    match from.read(&mut bytes[..room]) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            waiting.extend_from_slice(&bytes[..count]);
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Gives what is taken.
fn deliver(to: &mut impl Write, waiting: &mut Vec<u8>) -> io::Result<()> {
    if waiting.is_empty() {
        return Ok(());
    }
    match to.write(waiting) {
        Ok(count) => {
            waiting.drain(..count);
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
        Err(error) => Err(error),
    }
}
