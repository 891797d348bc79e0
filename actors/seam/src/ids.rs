//! Who is who. The runtime mints every id before a provider is asked, so that no provider can choose one.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id: UUID version 7, so ids sort by the time they were minted.
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            #[doc(hidden)]
            pub fn mint(ms: u64, count: u64, random: u64) -> Self {
                let mut tail = [0; 10];
                // The counter keeps the order within a millisecond (RFC 9562, method 1).
                tail[..2].copy_from_slice(&((count & 0xfff) as u16).to_be_bytes());
                tail[2..].copy_from_slice(&random.to_be_bytes());
                Self(uuid::Builder::from_unix_timestamp_millis(ms, &tail).into_uuid())
            }

            /// The id as a UUID.
            pub const fn as_uuid(&self) -> &Uuid {
                &self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

id! {
    /// One delegation. Minted by the runtime per start (SPEC 1.8).
    RunId
}
id! {
    /// The child itself. For a local child it equals the id of its session (SPEC 1.1, 1.7).
    AgentId
}
id! {
    /// A node of the [tree](crate::Tree). A run's node has the run's id.
    NodeId
}

impl From<RunId> for NodeId {
    fn from(id: RunId) -> Self {
        Self(id.0)
    }
}

impl From<AgentId> for NodeId {
    fn from(id: AgentId) -> Self {
        Self(id.0)
    }
}

/// Which life of an agent is meant: an id alone would readmit a stale handle after the agent came back (SPEC 23.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

#[cfg(test)]
mod tests {
    use super::RunId;

    #[test]
    fn ids_are_version_7_and_sort_by_the_order_of_minting() {
        let minted: Vec<_> =
            (0..4096).map(|count| RunId::mint(1_796_043_757_754, count, 0xdead_beef ^ count)).collect();
        assert!(minted.is_sorted());
        assert_eq!(minted[0].as_uuid().get_version_num(), 7);
        assert_eq!(minted[9].to_string().parse::<RunId>().expect("it reads what it writes"), minted[9]);
    }
}
