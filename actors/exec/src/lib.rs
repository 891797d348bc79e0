//! The provider for any program: the prompt goes to its stdin, its stdout is the answer.
//!
//! ```
//! use subagents_exec::Exec;
//!
//! let count_words = Exec::new("wc").arg("-w");
//! let ask = Exec::new("some-agent").args(["--print", "--", "{}"]).pass_env(["SOME_AGENT_API_KEY"]);
//! # let _ = (count_words, ask);
//! ```
//!
//! - The program runs directly, never through a shell, in the delegation's working directory, in a process group
//!   of its own and with a scrubbed environment (`SPEC 17.2`, `17.3`, `17.7`).
//! - The value of a variable that is set or passed, and whose name looks like a secret, is masked in whatever the program
//!   says: answer, progress, diagnostic.
//! - Whatever it leaves behind is found and ended, in other groups and sessions too.
//! - `{}` anywhere in an argument is replaced by the prompt, and stdin is then empty. A prompt may begin with a
//!   dash: give `--` before it where the program knows that.
//! - Exit code 0 completes the run with what was written to stdout, unchanged. Any other exit is stop reason
//!   `error`, with the end of stderr in the diagnostic; what was written until then is the partial output.
//! - A program that writes more than [`Exec::max_total_output`] in all is ended: category `output-limit`.
//! - Settlement takes the program's own exit. A descendant that keeps stdout open delays it by half a second at
//!   most, and is ended by the teardown like everything that descends from the program.

mod answer;
mod child;
mod prompt;
mod provider;

pub use child::ExecChild;
pub use provider::Exec;
