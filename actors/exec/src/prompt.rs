//! Where the prompt goes: into the arguments, or to stdin. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use subagents_seam::{FailureCode, ProviderFailure};

/// What stands for the prompt in an argument.
const PLACE: &[u8] = b"{}";

/// The longest argument that the prompt may make: half of what Linux takes, so that a wrapper can hand it on.
const LONGEST_ARGUMENT: usize = 64 * 1024;

/// Whether any argument takes the prompt.
pub(crate) fn in_arguments(args: &[OsString]) -> bool {
    args.iter().any(|arg| find_place(arg.as_bytes()).is_some())
}

/// The arguments with the prompt in every place for it.
///
/// Refused with `PROMPT_TOO_LONG` when one becomes longer than is safe, and with `SPAWN_FAILED` when the
/// prompt holds a NUL.
pub(crate) fn substituted(args: &[OsString], prompt: &str) -> Result<Vec<OsString>, ProviderFailure> {
    if in_arguments(args) && prompt.contains('\0') {
        return Err(ProviderFailure::new(
            FailureCode::SpawnFailed,
            "the prompt holds a NUL byte, which no argument can; drop {} from the arguments, so that the prompt goes to \
             the program's stdin",
        ));
    }
    args.iter().map(|arg| substitute(arg, prompt)).collect()
}

/// The refusal of a prompt that fits no command line, with the way out.
pub(crate) fn too_long(bytes: usize) -> ProviderFailure {
    ProviderFailure::new(
        FailureCode::PromptTooLong,
        format!(
            "with the prompt in place of {{}} the arguments are too long ({bytes} bytes; {LONGEST_ARGUMENT} in one are \
             safe); drop {{}} from the arguments, so that the prompt goes to the program's stdin"
        ),
    )
}

fn substitute(arg: &OsStr, prompt: &str) -> Result<OsString, ProviderFailure> {
    let mut rest = arg.as_bytes();
    let mut whole = Vec::new();
    while let Some(place) = find_place(rest) {
        let length = whole.len() + place + prompt.len();
        // Before the copy: many places times a long prompt would be much memory for a refusal.
        if length > LONGEST_ARGUMENT {
            return Err(too_long(length));
        }
        whole.extend_from_slice(&rest[..place]);
        whole.extend_from_slice(prompt.as_bytes());
        rest = &rest[place + PLACE.len()..];
    }
    whole.extend_from_slice(rest);
    if whole.len() > LONGEST_ARGUMENT { Err(too_long(whole.len())) } else { Ok(OsString::from_vec(whole)) }
}

fn find_place(arg: &[u8]) -> Option<usize> {
    arg.windows(PLACE.len()).position(|window| window == PLACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[test]
    fn every_place_takes_the_prompt_and_nothing_else_changes() {
        let cases: &[(&[&str], bool, &[&str])] = &[
            (&[], false, &[]),
            (&["-w", "{", "}", "{ }"], false, &["-w", "{", "}", "{ }"]),
            (&["-p", "{}"], true, &["-p", "a {} $b"]),
            (&["--prompt={}!"], true, &["--prompt=a {} $b!"]),
            (&["{}{}", "{{}}"], true, &["a {} $ba {} $b", "{a {} $b}"]),
        ];
        for (given, takes, wanted) in cases {
            let given = args(given);
            assert_eq!(in_arguments(&given), *takes, "{given:?}");
            assert_eq!(substituted(&given, "a {} $b").unwrap(), args(wanted));
        }
    }

    #[test]
    fn an_argument_that_is_not_utf_8_takes_it_too() {
        let given = [OsString::from_vec(b"\xff{}".to_vec())];
        assert_eq!(substituted(&given, "x").unwrap()[0].as_bytes(), b"\xffx");
    }

    #[test]
    fn a_prompt_that_is_too_long_is_refused_with_a_way_out() {
        let fits = "x".repeat(LONGEST_ARGUMENT);
        assert!(substituted(&args(&["{}"]), &fits).is_ok());
        for given in [&["-{}"][..], &["{}-"], &["{}{}{}"]] {
            let refused = substituted(&args(given), &fits).unwrap_err();
            assert_eq!(refused.code(), FailureCode::PromptTooLong);
            assert!(refused.to_string().contains("stdin"), "{refused}");
        }
    }
}
