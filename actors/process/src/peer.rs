//! Who is at the other end of a connection over the loopback, as far as `/proc` shows it.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;

use crate::reaper::Reaper;
use crate::table;

/// Nobody has more of them; the parents of one that ends meanwhile are not followed in a circle.
const ANCESTORS: usize = 256;

/// How deep a process is, by what a host above it has said to whatever it started (`SUBAGENTS_DEPTH`, `SUBAGENTS_MAX_DEPTH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedDepth {
    /// How deep it delegates already.
    pub depth: u32,
    /// How deep it may.
    pub max_depth: Option<u32>,
}

/// What the nearest ancestor of this process has been told, as its environment was when its program began: an intermediary
/// that clears the environment of what it starts does not hide it. Blocking I/O, some microseconds for each ancestor.
///
/// `None` where no ancestor has been told anything, or none that can be seen: other users' cannot, nor can any where there is
/// no `/proc`.
pub fn handed_depth() -> Option<HandedDepth> {
    table::is_ours().ok()?;
    let parent = rustix::process::getppid()?;
    depth_above(parent.as_raw_nonzero().get())
}

/// A variable of the nearest ancestor of this process whose environment has it, as that was when its program began. Blocking
/// I/O, as [`handed_depth`].
///
/// `None` where no ancestor has it, or none that can be seen.
pub fn inherited_variable(name: &str) -> Option<OsString> {
    table::is_ours().ok()?;
    let parent = rustix::process::getppid()?;
    above(parent.as_raw_nonzero().get(), |environment| {
        let value = variable_of(environment, name.as_bytes())?;
        Some(OsString::from_vec(value.to_vec()))
    })
}

/// Whose child a process is, however far and wherever it has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Descent {
    /// None of this process's.
    #[default]
    None,
    /// It is the child with this process id, or descends from it.
    Child(u32),
    /// It is, or descends from, a child that has only just been started, or that nobody holds any more.
    Unknown,
}

/// A process at the other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// Whose child it is.
    pub descent: Descent,
    /// What it has been told of its depth, it or the nearest above it.
    pub depth: Option<HandedDepth>,
}

/// Who holds the other end of a connection over the loopback: `local` is the address of our end, `remote` that of the other.
/// Blocking I/O: it looks through the open files of all processes of this user, a few milliseconds for each hundred of them.
///
/// `None` where nobody is seen: other users' processes are not, nor is anything where there is no `/proc`, or only that of
/// another PID namespace.
///
/// # Errors
/// Where there is one, and it cannot be read now: no descriptor left.
pub fn peer(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Peer>> {
    if table::is_ours().is_err() {
        return Ok(None);
    }
    let Some(inode) = inode(local, remote)? else { return Ok(None) };
    let reaper = Reaper::existing();
    let mut seen = None;
    for id in holders(&format!("socket:[{inode}]"))? {
        let descent = reaper.as_ref().map_or(Descent::None, |reaper| reaper.descent(id));
        let peer = Peer { descent, depth: depth_above(id) };
        // One that descends from a child of ours may have handed it on to one that does not show it.
        if descent != Descent::None {
            return Ok(Some(peer));
        }
        seen = seen.or(Some(peer));
    }
    Ok(seen)
}

/// What this process, or the nearest above it, has been told.
fn depth_above(id: i32) -> Option<HandedDepth> {
    above(id, handed)
}

/// What is found in the environment of this process, or of the nearest above it.
fn above<T>(mut id: i32, found: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    for _ in 0..ANCESTORS {
        if id <= 1 {
            return None;
        }
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        if let Some(found) = found(&environment) {
            return Some(found);
        }
        id = table::entry(id)?.parent;
    }
    None
}

/// Of an environment as `/proc` shows it.
fn variable_of<'a>(environment: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(name)?.strip_prefix(b"="))
}

/// What is no number has not been said by a host.
fn handed(environment: &[u8]) -> Option<HandedDepth> {
    let number = |name: &[u8]| std::str::from_utf8(variable_of(environment, name)?).ok()?.parse().ok();
    Some(HandedDepth { depth: number(b"SUBAGENTS_DEPTH")?, max_depth: number(b"SUBAGENTS_MAX_DEPTH") })
}

/// The processes of this user that hold this file.
fn holders(file: &str) -> io::Result<Vec<i32>> {
    let us = rustix::process::geteuid().as_raw();
    let mut holders = Vec::new();
    for process in fs::read_dir("/proc")?.flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if !process.metadata().is_ok_and(|metadata| metadata.uid() == us) {
            continue;
        }
        let mut files = match fs::read_dir(process.path().join("fd")) {
            Ok(files) => files.flatten().map(|entry| fs::read_link(entry.path())),
            // One that ends meanwhile, or keeps its files to itself, holds none.
            Err(error) if is_gone_or_closed(&error) => continue,
            Err(error) => return Err(error),
        };
        if files.any(|link| link.is_ok_and(|link| link.as_os_str() == file)) {
            holders.push(id);
        }
    }
    Ok(holders)
}

fn is_gone_or_closed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM))
}

/// The inode of the other end. An end of the fourth version may stand among those of the sixth.
fn inode(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u64>> {
    let mut tables = vec![("/proc/net/tcp6", shown(six(remote)), shown(six(local)))];
    if local.is_ipv4() {
        tables.insert(0, ("/proc/net/tcp", shown(remote), shown(local)));
    }
    for (table, ours, theirs) in tables {
        let rows = match fs::read_to_string(table) {
            Ok(rows) => rows,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(inode) = inode_in(&rows, &ours, &theirs) {
            return Ok(Some(inode));
        }
    }
    Ok(None)
}

/// Of the row with these addresses. One that nobody holds any more has none.
fn inode_in(rows: &str, local: &str, remote: &str) -> Option<u64> {
    rows.lines().find_map(|row| {
        let mut fields = row.split_ascii_whitespace().skip(1);
        let found = fields.next()? == local && fields.next()? == remote;
        found.then(|| fields.nth(6)?.parse().ok())?.filter(|inode| *inode > 0)
    })
}

fn six(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// As the table shows it: words of 32 bits in the order of this machine, then the port.
fn shown(address: SocketAddr) -> String {
    let word = |bytes: [u8; 4]| u32::from_ne_bytes(bytes);
    let mut text = String::with_capacity(37);
    match address.ip() {
        IpAddr::V4(ip) => write!(text, "{:08X}", word(Ipv4Addr::octets(&ip))),
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            octets.as_chunks().0.iter().try_for_each(|bytes| write!(text, "{:08X}", word(*bytes)))
        }
    }
    .and_then(|()| write!(text, ":{:04X}", address.port()))
    .map_or_else(|_| String::new(), |()| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_row_is_found_by_both_addresses() {
        let rows = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                    0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0 100 0\n\
                    1: 0100007F:223D 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 22 1 0 20 4\n\
                    2: 0100007F:D431 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1000        0 33 1 0 20 4\n\
                    3: 0100007F:D432 0100007F:223D 06 00000000:00000000 03:00000000 00000000  0           0 0 3 0\n";
        assert_eq!(inode_in(rows, "0100007F:D431", "0100007F:223D"), Some(33));
        assert_eq!(inode_in(rows, "0100007F:D432", "0100007F:223D"), None);
        assert_eq!(inode_in(rows, "0100007F:D433", "0100007F:223D"), None);
        assert_eq!(inode_in("", "0100007F:D431", "0100007F:223D"), None);
        if cfg!(target_endian = "little") {
            assert_eq!(shown("127.0.0.1:8765".parse().expect("an address")), "0100007F:223D");
            let six = six("127.0.0.1:8765".parse().expect("an address"));
            assert_eq!(shown(six), "0000000000000000FFFF00000100007F:223D");
        }
    }

    #[test]
    fn a_depth_is_what_a_host_has_said() {
        let of = |text: &str| {
            handed(text.replace(' ', "\0").as_bytes()).map(|handed| (handed.depth, handed.max_depth))
        };
        assert_eq!(of("A=1 SUBAGENTS_DEPTH=2 SUBAGENTS_MAX_DEPTH=3 B="), Some((2, Some(3))));
        assert_eq!(of("SUBAGENTS_DEPTH=2"), Some((2, None)));
        for none in
            ["", "SUBAGENTS_MAX_DEPTH=3", "SUBAGENTS_DEPTH=", "SUBAGENTS_DEPTH=x", "XSUBAGENTS_DEPTH=1"]
        {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn the_other_end_of_a_connection_is_seen_where_it_is_this_user_s() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens");
            let (ours, remote) = listener.accept().expect("a connection");
            let local = ours.local_addr().expect("its address");
            let seen = peer(local, remote).expect("it can be looked");
            assert_eq!(
                seen.map(|peer| peer.descent),
                Some(Descent::None),
                "{address}: it is this process itself"
            );
            drop(stream);
            assert_eq!(peer(local, remote).expect("it can be looked"), None, "{address}: nobody holds it");
        }
    }
}
