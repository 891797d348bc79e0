//! The watchdog as a program of the host's own, in place of a shell: it chases who forks too fast for the shell.

use std::io::{self, Read};
use std::time::Duration;

use crate::scope::{HostTag, Target};
use crate::sweep::{Order, Sweep};

/// How long it looks for what the host left.
const BUDGET: Duration = Duration::from_secs(30);

/// The work of a guardian: waits for the end of the host that started it, and ends all that the host left. For programs
/// that call [`Host::set_guardian`](crate::Host::set_guardian); `scope` is the argument that was added there, and
/// `lifeline` is stdin. Blocks until the host is gone or says farewell.
///
/// # Errors
///
/// `InvalidInput` where `scope` is none: nothing was waited for.
pub fn guard(scope: &str, mut lifeline: impl Read) -> io::Result<()> {
    let (target, since) = parse(scope).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "that is no scope; a host starts its guardian by itself")
    })?;
    let mut farewell = [0];
    loop {
        match lifeline.read(&mut farewell) {
            Ok(1..) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The host is gone; what cannot be read is at its end as well.
            Ok(0) | Err(_) => break,
        }
    }
    let mut sweep = Sweep::new(None);
    let order = Order { target, root: None, group: None, since, budget: BUDGET, reply: None, record: None };
    sweep.begin(order);
    while !sweep.is_idle() {
        sweep.round();
    }
    Ok(())
}

/// What a guardian is told: the host, and since when it has children.
pub(crate) fn scope(host: HostTag, since: u64) -> String {
    format!("{host}:{since}")
}

fn parse(scope: &str) -> Option<(Target, u64)> {
    let (host, since) = scope.split_once(':')?;
    Some((Target::Host(HostTag::parse(host)?), since.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_reads_back_and_nothing_else_is_one() {
        let host = HostTag::fresh();
        assert_eq!(parse(&scope(host, 7)), Some((Target::Host(host), 7)));
        for wrong in [
            "",
            "1:2",
            "x",
            "200000000068",
            "200000000068:",
            "200000000068:x",
            "-200000000068:1",
            "200000000099:1",
        ] {
            assert_eq!(guard(wrong, io::empty()).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn a_farewell_ends_it_and_so_does_the_end_where_nobody_is_left() {
        let scope = scope(HostTag::fresh(), 0);
        guard(&scope, &b"bye\n"[..]).unwrap();
        guard(&scope, io::empty()).unwrap();
    }
}
