//! The writer of a recording.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::{Instant, SystemTime};

use rigline::Level;
use rigline::json::{Json, JsonKind};
use serde_json::{Value, json};

use super::clock::Offset;
use super::days::{self, Days};
use super::folder::{Folder, FolderError, SESSION, UART};
use super::transcript::{self, Direction, Entry, What};
use crate::files;
use rigline_std::clock::unix_millis;
use rigline_std::mutex::lock;
use rigline_std::stderr;

/// The number of requests without a reply that are remembered for a connection.
const PENDING: usize = 64;
/// The longest line that is searched for the device's clock, in bytes.
const SEARCHED: usize = 64 * 1024;
/// How many different rigs are described.
const RIGS: usize = 64;

/// A writer of a recording: a folder, or a single transcript. All recorded connections share it.
#[derive(Debug)]
pub struct Recorder {
    folder: Option<Folder>,
    started: Instant,
    started_ms: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    /// Of a recording that goes on for days: what begins further files.
    days: Option<Further>,
    /// The connections that are open.
    open: BTreeSet<u32>,
    uart: Option<File>,
    /// The first error. After it nothing is written.
    failed: Option<String>,
    connections: u32,
    rigs: Vec<Value>,
    offsets: BTreeMap<u32, Offset>,
    /// The requests without a reply, by connection: each one's id, if it has one, and when it was sent.
    pending: BTreeMap<u32, VecDeque<(Option<String>, f64)>>,
}

/// How a recording goes on in further files.
#[derive(Debug)]
struct Further {
    days: Days,
    target: String,
    /// How many bytes are in the file.
    size: u64,
    /// When the file was begun, in milliseconds since the start.
    begun: f64,
}

impl Recorder {
    /// Begins a recording that goes on for days, as transcripts in `folder`. A missing folder is
    /// made so that only this user can read it.
    ///
    /// A transcript ends with its day (UTC), or when it has a sixteenth of `limit` or 64 MiB. The
    /// oldest transcripts are removed, so that all together have at most `limit` bytes. Each can be
    /// read without the others.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn days(folder: &Path, target: &str, limit: u64) -> io::Result<Self> {
        let mut days = Days::open(folder, limit)?;
        let file = days.begin(days::today())?;
        let started_ms = unix_millis(SystemTime::now());
        let recorder = Self::new(file, started_ms);
        {
            let mut state = recorder.lock();
            let header = transcript::header(target, started_ms);
            state.file.write_all(header.as_bytes())?;
            state.days = Some(Further { days, target: target.to_owned(), size: header.len() as u64, begun: 0.0 });
        }
        Ok(recorder)
    }

    /// Begins a recording in the folder `path`, which is made if it is missing.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn folder(path: &Path, target: &str) -> Result<Self, FolderError> {
        let folder = Folder::create(path)?;
        let started_ms = unix_millis(SystemTime::now());
        folder.say("rigline_version", env!("CARGO_PKG_VERSION").into());
        folder.say("host", json!({ "os": std::env::consts::OS, "arch": std::env::consts::ARCH }));
        folder.say("target", target.into());
        folder.say("started_ms", started_ms.into());
        let file = folder.begin(SESSION, &transcript::header(target, started_ms));
        let file = file.map_err(|source| FolderError::Io { path: path.join(SESSION), source })?;
        Ok(Self { folder: Some(folder), ..Self::new(file, started_ms) })
    }

    /// Begins a transcript in the file `path`. An earlier transcript is replaced.
    ///
    /// # Errors
    /// The file cannot be written, or is no transcript.
    pub fn file(path: &Path, target: &str) -> io::Result<Self> {
        let started_ms = unix_millis(SystemTime::now());
        let is_ours = |first: String| serde_json::from_str(&first).is_ok_and(|first| transcript::is_header(&first));
        if files::first_line(path)?.is_some_and(|first| !is_ours(first)) {
            let text = "there is a file that is not a transcript; nothing was changed";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        files::write_private(path, transcript::header(target, started_ms).as_bytes())?;
        let file = files::open_own(OpenOptions::new().append(true), path)?;
        Ok(Self::new(file, started_ms))
    }

    fn new(file: File, started_ms: u64) -> Self {
        let state = State {
            file,
            days: None,
            open: BTreeSet::new(),
            uart: None,
            failed: None,
            connections: 0,
            rigs: Vec::new(),
            offsets: BTreeMap::new(),
            pending: BTreeMap::new(),
        };
        Self { folder: None, started: Instant::now(), started_ms, state: Mutex::new(state) }
    }

    /// Sets the member `name` of the recording's file [`RUN`](super::RUN).
    pub fn say(&self, name: &str, value: Value) {
        self.folder.iter().for_each(|folder| folder.say(name, value.clone()));
    }

    /// Adds the identity of a rig to the recording. The same identity is added once.
    pub fn rig(&self, rig: Value) {
        let mut state = self.lock();
        let without_time = |rig: &Value| {
            let mut rig = rig.clone();
            if let Some(identity) = rig.get_mut("identity").and_then(Value::as_object_mut) {
                identity.retain(|name, _| unit(name).is_none());
            }
            rig
        };
        let is_new = state.rigs.iter().all(|known| without_time(known) != without_time(&rig));
        if is_new && state.rigs.len() < RIGS {
            state.rigs.push(rig);
        }
    }

    /// Writes one of the recording's files. A recording without a folder ignores it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.folder.as_ref().map_or(Ok(()), |folder| folder.write(name, bytes))
    }

    /// Ends the recording. `exit_code` is that of the command.
    ///
    /// # Errors
    /// A file of the recording could not be written, now or before.
    pub fn finish(&self, exit_code: u8) -> io::Result<()> {
        let (failed, rigs, clocks) = {
            let state = self.lock();
            let clock = |(connection, offset): (&u32, &Offset)| {
                let mut clock = offset.to_json();
                clock["connection"] = (*connection).into();
                clock
            };
            (state.failed.clone(), state.rigs.clone(), state.offsets.iter().map(clock).collect::<Vec<_>>())
        };
        let failed = failed.map_or(Ok(()), |failed| Err(io::Error::other(failed)));
        let Some(folder) = &self.folder else { return failed };
        folder.say("rigs", rigs.into());
        folder.say("clocks", clocks.into());
        folder.say("duration_ms", json!((self.now() * 1000.0).round() / 1000.0));
        folder.say("exit_code", exit_code.into());
        let finished = folder.finish(if failed.is_ok() { "complete" } else { "incomplete" });
        failed.and(finished)
    }

    /// Records that a connection was opened; returns its number.
    pub(crate) fn open(&self) -> u32 {
        let mut state = self.lock();
        state.connections += 1;
        let connection = state.connections;
        self.add(&mut state, connection, What::Open);
        connection
    }

    /// A connection could not be opened.
    pub(crate) fn unopened(&self, why: String) {
        let mut state = self.lock();
        let connection = state.connections + 1;
        self.add(&mut state, connection, What::Unopened(why));
    }

    /// Something happened on a connection.
    pub(crate) fn note(&self, connection: u32, what: What) {
        let mut state = self.lock();
        self.add(&mut state, connection, what);
    }

    /// Has `write` send something, and notes what of it was sent before any answer to it can be noted.
    pub(crate) fn while_sending<T>(&self, write: impl FnOnce(&mut dyn FnMut(u32, What)) -> T) -> T {
        let mut state = self.lock();
        write(&mut |connection, what| self.add(&mut state, connection, what))
    }

    fn add(&self, state: &mut State, connection: u32, mut what: What) {
        let ms = self.now();
        match &mut what {
            What::Line { direction: Direction::Sent, bytes, .. } => sent(state, connection, bytes, ms),
            What::Line { direction: Direction::Received, bytes, device_ms, .. } => {
                *device_ms = self.received(state, connection, bytes, ms);
            }
            What::Open => {
                state.open.insert(connection);
            }
            What::Gone(_) | What::Closed => {
                state.pending.remove(&connection);
                state.open.remove(&connection);
                if state.days.is_some() {
                    state.offsets.remove(&connection);
                }
            }
            _ => {}
        }
        if state.failed.is_none()
            && let Err(error) = write(state, Entry { ms, connection, what })
        {
            if state.days.is_some() {
                stderr::log(Level::Error, &format!("the recording has ended: {error}"));
            }
            state.failed = Some(error.to_string());
        }
    }

    /// Records the UART's text that a line has, and returns the device's clock, if the line has it.
    fn received(&self, state: &mut State, connection: u32, line: &[u8], ms: f64) -> Option<f64> {
        let json = Some(line).filter(|line| line.len() <= SEARCHED).and_then(|line| Json::parse(line).ok())?;
        let data = json.get("params").and_then(|params| params.get("data"));
        // By MCP, the data of a log is beside its message.
        let data = [data.and_then(|data| data.get("data")), data];
        if let Some(text) = data.into_iter().flatten().find_map(|data| data.get("uart")?.text()) {
            self.uart(state, &text.to_string(), ms);
        }
        let id = json.get("id").map(|id| id.as_str().to_owned());
        let asked = if json.get("method").is_some() { None } else { asked(state, connection, id.as_deref()) };
        let result = json.get("result");
        let places = [result.and_then(|result| result.get("outputs")), result].into_iter().chain(data);
        let (device, resolution) = places.flatten().find_map(device_time)?;
        if let Some(sent) = asked {
            state
                .offsets
                .entry(connection)
                .and_modify(|offset| offset.add(sent, ms, device, resolution))
                .or_insert_with(|| Offset::new(sent, ms, device, resolution));
        }
        Some(device)
    }

    fn uart(&self, state: &mut State, text: &str, ms: f64) {
        let Some(folder) = self.folder.as_ref().filter(|_| state.failed.is_none()) else { return };
        let line = format!("{}\n", json!({ "ms": (ms * 1000.0).round() / 1000.0, "text": text }));
        let written = match &mut state.uart {
            Some(file) => file.write_all(line.as_bytes()),
            None => folder.begin(UART, &line).map(|file| state.uart = Some(file)),
        };
        if let Err(error) = written {
            state.failed = Some(format!("{UART}: {error}"));
        }
    }

    /// Milliseconds since the start.
    fn now(&self) -> f64 {
        self.started.elapsed().as_secs_f64() * 1000.0
    }

    /// Returns the time at which the recording began, in milliseconds since 1970 (UTC).
    pub fn started_ms(&self) -> u64 {
        self.started_ms
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Adds an entry to the file, or to a new one if the file is full or of an earlier day.
fn write(state: &mut State, mut entry: Entry) -> io::Result<()> {
    let Some(Further { days, target, size, begun }) = &mut state.days else {
        return state.file.write_all(entry.to_line().as_bytes());
    };
    let begins_with = |entry: &Entry| matches!(entry.what, What::Open).then_some(entry.connection);
    let now = entry.ms;
    entry.ms = now - *begun;
    let mut line = entry.to_line();
    let today = days::today();
    let is_full = *size + line.len() as u64 > days.file_limit() && *size > transcript::header(target, 0).len() as u64;
    if is_full || days.is_past(&today) {
        state.file = days.begin(today)?;
        *begun = now;
        entry.ms = 0.0;
        let mut head = transcript::header(target, unix_millis(SystemTime::now()));
        let is_new = begins_with(&entry);
        for connection in state.open.iter().filter(|connection| Some(**connection) != is_new) {
            head += &Entry { ms: 0.0, connection: *connection, what: What::Open }.to_line();
        }
        state.file.write_all(head.as_bytes())?;
        *size = head.len() as u64;
        line = entry.to_line();
    }
    *size += line.len() as u64;
    state.file.write_all(line.as_bytes())
}

fn sent(state: &mut State, connection: u32, line: &[u8], ms: f64) {
    let Ok(json) = Json::parse(line) else { return };
    let id = json.get("id").map(|id| id.as_str().to_owned());
    // A notification is not answered.
    if json.kind() != JsonKind::Object || (json.get("method").is_some() && id.is_none()) {
        return;
    }
    let pending = state.pending.entry(connection).or_default();
    if pending.len() >= PENDING {
        pending.pop_front();
    }
    pending.push_back((id, ms));
}

/// When the request was sent that a reply is to.
fn asked(state: &mut State, connection: u32, id: Option<&str>) -> Option<f64> {
    let pending = state.pending.get_mut(&connection)?;
    let place = pending.iter().position(|(asked, _)| asked.as_deref() == id)?;
    pending.remove(place).map(|(_, ms)| ms)
}

/// A reading of the device's clock, and what it shows at least, both in milliseconds.
fn device_time(json: Json<'_>) -> Option<(f64, f64)> {
    json.members().find_map(|(name, value)| {
        let unit = unit(name.as_str()?)?;
        // gevals outputs are strings.
        let text = value.text().map_or_else(|| value.as_str().to_owned(), |text| text.to_string());
        let time: f64 = text.parse().ok()?;
        (time.is_finite() && time >= 0.0).then_some((time * unit, unit))
    })
}

/// How many milliseconds the unit has of a reading of this name.
fn unit(name: &str) -> Option<f64> {
    match name {
        "uptime_ms" => Some(1.0),
        "uptime_us" => Some(0.001),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn line(text: &str) -> What {
        What::Line {
            direction: Direction::Received,
            bytes: text.as_bytes().to_vec(),
            cut: false,
            dropped: 0,
            device_ms: None,
        }
    }

    fn files(folder: &Path) -> Vec<std::path::PathBuf> {
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    #[test]
    fn a_recording_of_days_stays_below_its_limit_and_each_file_can_be_read() {
        const LIMIT: u64 = 64 << 10;
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("days");
        let recorder = Recorder::days(&folder, "sim", LIMIT).unwrap();
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        let first = recorder.open();
        let second = recorder.open();
        for n in 0..2000 {
            recorder.note(
                if n % 2 == 0 { first } else { second },
                line(&format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(80))),
            );
        }
        let all = files(&folder);
        let size = |path: &std::path::PathBuf| fs::metadata(path).unwrap().len();
        let recorded: Vec<_> = all.iter().filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
        let total: u64 = recorded.iter().map(|path| size(path)).sum();
        assert!(total <= LIMIT && total > LIMIT / 2, "{total} bytes");
        assert!(recorded.iter().all(|path| size(path) <= LIMIT / 16), "no file is longer than its share");
        assert_eq!(fs::read_to_string(folder.join("notes.txt")).unwrap(), "mine", "other files stay");
        let mut numbers = Vec::new();
        for path in &recorded {
            let read = transcript::read(fs::read(path).unwrap().as_slice()).unwrap();
            assert_eq!(read.target, "sim");
            let opened: Vec<_> =
                read.entries.iter().filter(|entry| entry.what == What::Open).map(|entry| entry.connection).collect();
            assert_eq!(opened, [1, 2], "each file says which connections are open");
            let lines = read.entries.iter().filter_map(Entry::line);
            numbers
                .extend(lines.map(|(_, line)| serde_json::from_slice::<Value>(line).unwrap()["n"].as_u64().unwrap()));
        }
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "nothing is missing between the files");
        assert_eq!(numbers.last(), Some(&1999));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&folder), 0o700);
            assert!(recorded.iter().all(|path| mode(path) == 0o600));
        }
        // A later recording goes on behind the last file.
        let last = (*recorded.last().unwrap()).clone();
        drop(recorder);
        Recorder::days(&folder, "sim", LIMIT).unwrap();
        assert!(files(&folder).iter().filter(|path| **path > last).count() >= 1);
    }

    #[test]
    #[cfg(unix)]
    fn a_folder_of_days_that_is_a_link_or_a_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
        fs::write(root.path().join("file"), "x").unwrap();
        for (name, why) in [("link", "a link"), ("file", "not a folder")] {
            let error = Recorder::days(&root.path().join(name), "sim", 1 << 20).unwrap_err();
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
        assert_eq!(fs::read_dir(root.path().join("real")).unwrap().count(), 0);
    }
}
