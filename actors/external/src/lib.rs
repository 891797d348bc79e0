//! What the providers of other programs share, whatever these speak.
//!
//! [`Program`] is how one is run; [`Place`] is what its environment tells it of the tree; [`failure`] and [`closed`] are
//! what its start and its end are to a caller.

mod ending;
mod place;
mod program;
mod shown;

pub use ending::{closed, end};
pub use place::Place;
pub use program::{Program, failure};
pub use shown::shown;
