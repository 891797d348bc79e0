//! What the suites of real programs, `tests/peers` and `tests/hosts`, have in common: the command line, what is installed,
//! who is alive, and the table.

#[path = "real/alive.rs"]
pub(crate) mod alive;
#[path = "real/arguments.rs"]
pub(crate) mod arguments;
#[path = "real/installed.rs"]
pub(crate) mod installed;
#[path = "real/table.rs"]
pub(crate) mod table;
