//! What a host has started, kept where the next one finds it.
//!
//! A folder for each host, with a file for each child that is not known to be gone, and one for the host itself, which is
//! locked while the host lives. A host whose lock is free, whose process is not there, and that belongs to this boot of
//! the machine is dead: what still bears its tags is ended, never a process by its number alone.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::error::LedgerError;
use crate::reaper::Reaper;
use crate::scope::{HostTag, Tag, Target};
use crate::sweep::{Order, SweepReport};
use crate::table;

/// The file that is locked.
const HOST: &str = "host.json";

/// How long the search for what one dead host left may take.
const BUDGET: Duration = Duration::from_secs(5);

/// The most that is read of a file.
const LONGEST: u64 = 64 * 1024;

/// How long a host may take to write its file.
const UNWRITTEN: Duration = Duration::from_secs(10);

/// A record of every child that this process starts, in a folder that survives it. For a library it is opt-in.
///
/// While a `Ledger` lives, each child of this process has a file in the folder from its start until it is known to be
/// gone. When this process dies of something that the [watchdog](crate::Host::watchdog) cannot make good either, such
/// as both being killed, the next one that opens a ledger there finds out, and ends what is left:
/// [`reap`](Self::reap).
///
/// Dropping it ends the recording, and removes the folder of this process where nothing is recorded in it.
#[derive(Debug)]
pub struct Ledger {
    records: Arc<HostRecords>,
    reaper: Arc<Reaper>,
}

/// What a dead host has left in the ledger: a child that nobody saw end.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leftover {
    /// The process id that the dead host had.
    pub host: u32,
    /// The process id that the child had; 0 where the host was killed as it started it.
    pub pid: u32,
    /// The program that it ran; empty where the record was cut off.
    pub program: String,
    /// What [`Command::note`](crate::Command::note) said of it.
    pub note: Option<String>,
    /// When it was started.
    pub started: SystemTime,
    /// Whether the host was killed. One that ended in order has left what it could not end.
    pub killed: bool,
}

/// What [`Ledger::reap`] found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reaped {
    /// The children that dead hosts have left, their delegations interrupted.
    pub interrupted: Vec<Leftover>,
    /// How many processes of theirs were alive still, and were ended.
    pub ended: u32,
    /// The processes that could not be ended; their host's records stay for the next time.
    pub alive: Vec<u32>,
    /// What else did not work: a folder, and why. What is told of it above holds all the same.
    pub faults: Vec<String>,
}

/// The records of this process.
#[derive(Debug)]
pub(crate) struct HostRecords {
    folder: PathBuf,
    /// Locked while it is open.
    host: File,
    record: HostFile,
    fault: Mutex<Option<Arc<LedgerError>>>,
}

/// One child's record; its drop takes it out.
#[derive(Debug)]
pub(crate) struct Record {
    records: Arc<HostRecords>,
    /// None where it is to stay.
    file: Option<PathBuf>,
    child: ChildFile,
}

#[derive(Debug, Serialize, Deserialize)]
struct HostFile {
    boot: String,
    pid: u32,
    start: u64,
    /// It came to its end in order.
    #[serde(default)]
    ended: bool,
}

impl HostFile {
    fn write(&self, file: &File) -> io::Result<()> {
        let bytes = serde_json::to_vec(self)?;
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)
    }

    fn unknown() -> Self {
        Self { boot: String::new(), pid: 0, start: 0, ended: false }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct ChildFile {
    pid: u32,
    program: String,
    note: Option<String>,
    started_ms: u64,
}

impl Ledger {
    /// Opens a ledger in `folder`, which is made where it is missing, for this user alone. Only children that are
    /// started from now on are recorded. Blocks for a few system calls.
    ///
    /// # Errors
    ///
    /// A [`LedgerError`]: the folder cannot be used, or this process has a ledger already.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, LedgerError> {
        let folder = folder.as_ref();
        let unusable = |source| LedgerError::Unusable { folder: folder.to_owned(), source };
        let reaper = Reaper::current().map_err(unusable)?;
        let boot = table::boot_id().ok_or(LedgerError::Unsupported)?;
        let me = table::own_entry().ok_or(LedgerError::Unsupported)?;
        make_private(folder).map_err(unusable)?;
        // Whatever becomes of the working directory, and however it is spelt.
        let own = fs::canonicalize(folder).map_err(unusable)?.join(reaper.host().to_string());
        let opened = reaper.open_records(&own, || {
            make_private(&own)?;
            let file = own.join(HOST);
            let host = File::options().write(true).create(true).truncate(false).open(&file)?;
            lock(&host)?;
            let record = HostFile { boot, pid: std::process::id(), start: me.key.start, ended: false };
            if let Err(error) = record.write(&host) {
                // It is ours, and nothing is recorded beside it.
                let _ = fs::remove_file(file);
                return Err(error);
            }
            Ok(HostRecords { folder: own.clone(), host, record, fault: Mutex::default() })
        });
        match opened {
            None => Err(LedgerError::AlreadyOpen),
            Some(Ok(records)) => Ok(Self { records, reaper }),
            Some(Err(source)) => {
                // An error says that there is something in it.
                let _ = fs::remove_dir(&own);
                Err(unusable(source))
            }
        }
    }

    /// Ends what dead hosts have left alive, and tells what they had under way. Their records are removed, but for
    /// those of hosts with processes that could not be ended.
    ///
    /// Not cancel-safe in what it tells: a host that was done with when the future was dropped is not told again.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Unusable`] where the folder cannot be read. Records that cannot be read are told without details.
    pub async fn reap(&self) -> Result<Reaped, LedgerError> {
        let mut reaped = Reaped::default();
        let folder = self.records.folder.parent().unwrap_or(&self.records.folder);
        let unusable = |source| LedgerError::Unusable { folder: folder.to_owned(), source };
        let boot = table::boot_id().ok_or(LedgerError::Unsupported)?;
        for entry in fs::read_dir(folder).map_err(unusable)?.flatten() {
            let folder = entry.path();
            let Some(tag) = entry.file_name().to_str().and_then(HostTag::parse) else { continue };
            if tag == self.reaper.host() {
                continue;
            }
            // The lock is held until its records are gone, so that two of us do not tell the same.
            let Some((lock, host)) = dead(&folder, &boot) else { continue };
            reaped.interrupted.extend(records(&folder, &host));
            let report =
                if host.boot == boot { self.sweep(tag, host.start).await } else { SweepReport::default() };
            reaped.ended += report.ended.saturating_sub(u32::try_from(report.left.len()).unwrap_or(u32::MAX));
            if report.unknown {
                let why = "whether all that it left is ended is not known; the next time tells";
                reaped.faults.push(format!("{}: {why}", folder.display()));
            } else if report.left.is_empty()
                && let Err(error) = remove(&folder)
            {
                reaped.faults.push(format!("{}: its records cannot be removed: {error}", folder.display()));
            }
            reaped.alive.extend(report.left);
            drop(lock);
        }
        Ok(reaped)
    }

    async fn sweep(&self, host: HostTag, since: u64) -> SweepReport {
        let report = self.reaper.sweep(Order {
            target: Target::Host(host),
            root: None,
            group: None,
            since,
            budget: BUDGET,
            reply: None,
            record: None,
        });
        report.await.unwrap_or(SweepReport { unknown: true, ..SweepReport::default() })
    }

    /// Why the recording is not whole: the first record that could not be written, on a full disk for example. The
    /// children run all the same.
    pub fn fault(&self) -> Option<Arc<LedgerError>> {
        self.records.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.reaper.close_records();
    }
}

impl HostRecords {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Records a child that is about to be started, so that none is ever without. Without a record it is a child all the
    /// same.
    pub(crate) fn record(self: &Arc<Self>, tag: Tag, program: &Path, note: Option<&str>) -> Option<Record> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let child = ChildFile {
            pid: 0,
            program: program.to_string_lossy().into_owned(),
            note: note.map(str::to_owned),
            started_ms: u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
        };
        let file = Some(self.folder.join(record_name(tag)));
        // Its drop takes it out, half written or not.
        let record = Record { records: self.clone(), file, child };
        record.write().then_some(record)
    }

    fn report(&self, source: io::Error) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if fault.is_none() {
            let error = LedgerError::NotRecorded { folder: self.folder.clone(), source };
            tracing::warn!(%error, "the ledger is not whole");
            *fault = Some(Arc::new(error));
        }
    }
}

impl Drop for HostRecords {
    fn drop(&mut self) {
        if records(&self.folder, &self.record).is_empty() {
            // An error says that somebody was faster.
            let _ = remove(&self.folder);
            return;
        }
        // What was left on purpose is for the next host, which needs this file to know when this one is dead.
        self.record.ended = true;
        // What cannot be written is told as if we had been killed.
        let _ = self.record.write(&self.host);
    }
}

impl Record {
    /// The child has started, with this process id.
    pub(crate) fn started(&mut self, pid: u32) {
        self.child.pid = pid;
        self.write();
    }

    fn write(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let written = serde_json::to_vec(&self.child).map_err(io::Error::from);
        match written.and_then(|bytes| fs::write(file, bytes)) {
            Ok(()) => true,
            Err(source) => {
                self.records.report(source);
                false
            }
        }
    }

    /// Leaves it in the ledger.
    pub(crate) fn keep(mut self) {
        self.file = None;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // What cannot be removed is reported once more by the next host, no more.
        let _ = self.file.as_ref().map(fs::remove_file);
    }
}

/// Nobody else holds it for longer than it takes to see that it is not dead.
fn lock(host: &File) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match host.try_lock() {
            Err(TryLockError::WouldBlock) if tries < 100 => std::thread::sleep(Duration::from_millis(1)),
            locked => return locked.map_err(io::Error::from),
        }
        tries += 1;
    }
}

fn make_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn record_name(tag: Tag) -> String {
    format!("{tag}.json")
}

/// Opens a plain file that a ledger may have written. What else may stand there could be waited for, or lead elsewhere.
fn open_plain(path: &Path, write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options().read(true).write(write).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn read_plain(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path, false)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The lock and the record of a host, where it is dead.
fn dead(folder: &Path, boot: &str) -> Option<(File, HostFile)> {
    let made = fs::symlink_metadata(folder).ok()?;
    if !made.is_dir() {
        return None;
    }
    let file = folder.join(HOST);
    let lock = match open_plain(&file, true) {
        Ok(lock) => lock,
        // Just being made, or its removal was cut short.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let forgotten = made.modified().ok()?.elapsed().is_ok_and(|age| age >= UNWRITTEN);
            return forgotten.then_some((File::open(folder).ok()?, HostFile::unknown()));
        }
        Err(_) => return None,
    };
    match lock.try_lock() {
        // A file system without locks leaves it to the process to tell.
        Ok(()) | Err(TryLockError::Error(_)) => {}
        Err(TryLockError::WouldBlock) => return None,
    }
    // It may have been done with between the opening and the lock.
    let host: HostFile = match serde_json::from_slice(&read_plain(&file).ok()?) {
        Ok(host) => host,
        // Just being written, or left so by a host that had no room for it.
        Err(_) if lock.metadata().ok()?.modified().ok()?.elapsed().ok()? < UNWRITTEN => return None,
        Err(_) => HostFile::unknown(),
    };
    let there = host.boot == boot
        && i32::try_from(host.pid)
            .ok()
            .and_then(table::entry)
            .is_some_and(|entry| entry.key.start == host.start && entry.alive);
    (!there).then_some((lock, host))
}

/// The names of the children's files in a host's folder.
fn record_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let is_record = |name: &str| {
        name.strip_suffix(".json").and_then(Tag::parse).is_some_and(|tag| record_name(tag) == name)
    };
    let files = files.flatten().filter(|file| {
        file.file_name().to_str().is_some_and(is_record) && file.file_type().is_ok_and(|kind| kind.is_file())
    });
    files.map(|file| file.path()).collect()
}

fn records(folder: &Path, host: &HostFile) -> Vec<Leftover> {
    let leftovers = record_files(folder).into_iter().map(|file| {
        let read = read_plain(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // Cut off, by a full disk for example: that there was one is known all the same.
        let child = read.unwrap_or(ChildFile { pid: 0, program: String::new(), note: None, started_ms: 0 });
        Leftover {
            host: host.pid,
            pid: child.pid,
            program: child.program,
            note: child.note,
            started: UNIX_EPOCH.checked_add(Duration::from_millis(child.started_ms)).unwrap_or(UNIX_EPOCH),
            killed: !host.ended,
        }
    });
    leftovers.collect()
}

/// Only what a ledger has put there: a folder that is something else is left alone.
fn remove(folder: &Path) -> io::Result<()> {
    for file in record_files(folder) {
        fs::remove_file(file)?;
    }
    match fs::remove_file(folder.join(HOST)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::remove_dir(folder)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::scope::Tags;

    #[test]
    fn a_host_that_ends_in_order_says_so_where_something_is_left_and_takes_all_away_where_nothing_is() {
        let temp = tempfile::tempdir().unwrap();
        let tags = Tags::new(None, None);
        for left in [true, false] {
            let folder = temp.path().join(left.to_string());
            fs::create_dir(&folder).unwrap();
            let host = File::create(folder.join(HOST)).unwrap();
            // Longer than what replaces it.
            let record = HostFile { boot: "b".repeat(36), pid: 7, start: 8, ended: false };
            record.write(&host).unwrap();
            let records =
                Arc::new(HostRecords { folder: folder.clone(), host, record, fault: Mutex::default() });
            let mut child = records.record(tags.next(), Path::new("/bin/x"), Some("a note")).unwrap();
            child.started(9);
            assert!(child.write());
            if left {
                child.keep();
            } else {
                drop(child);
            }
            drop(records);
            if !left {
                assert!(!folder.exists());
                continue;
            }
            let read: HostFile = serde_json::from_slice(&fs::read(folder.join(HOST)).unwrap()).unwrap();
            assert!(read.ended && read.pid == 7);
            let (_lock, host) = dead(&folder, "another boot").unwrap();
            let told = super::records(&folder, &host);
            assert_eq!((told.len(), told[0].pid, told[0].host, told[0].killed), (1, 9, 7, false));
            assert_eq!((&*told[0].program, told[0].note.as_deref()), ("/bin/x", Some("a note")));
        }
    }
}
