//! What the suites of real programs, `tests/peers` and `tests/hosts`, have in common: the command line, what is installed,
//! the home of each, who is alive, and the table.

#[path = "real/alive.rs"]
pub(crate) mod alive;
#[path = "real/arguments.rs"]
pub(crate) mod arguments;
#[path = "real/home.rs"]
pub(crate) mod home;
#[path = "real/installed.rs"]
pub(crate) mod installed;
#[path = "real/program.rs"]
pub(crate) mod program;
#[path = "real/table.rs"]
pub(crate) mod table;
