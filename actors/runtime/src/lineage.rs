//! Who asked for whom, and how deep and how many that may be. Pure.

use subagents_seam::StartError;

/// The depth of a child below a parent at `parent`, under the smallest of the caps that apply (SPEC 5.2).
///
/// A cap is absolute: a depth in the tree, not what is left. At the edge of the domain the depth is refused rather
/// than wrapped.
pub(crate) fn child_depth(parent: u32, cap: Option<u32>) -> Result<u32, StartError> {
    let Some(attempted) = parent.checked_add(1) else {
        return Err(StartError::InvalidDepth { given: (u64::from(parent) + 1).to_string().into() });
    };
    match cap {
        Some(max) if attempted > max => Err(StartError::DepthExceeded { attempted, max }),
        _ => Ok(attempted),
    }
}

/// The smaller of two caps, where `None` is no cap.
pub(crate) fn tighter(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (cap, None) | (None, cap) => cap,
    }
}

#[cfg(test)]
mod tests {
    use super::{child_depth, tighter};

    #[test]
    fn spec_5_2_the_cap_is_absolute_and_zero_forbids_all() {
        assert_eq!(child_depth(0, Some(0)).unwrap_err().code(), "DEPTH_EXCEEDED");
        assert_eq!(child_depth(0, Some(1)).unwrap(), 1);
        assert_eq!(child_depth(1, Some(1)).unwrap_err().code(), "DEPTH_EXCEEDED");
        assert_eq!(child_depth(7, None).unwrap(), 8);
        assert_eq!(child_depth(u32::MAX, None).unwrap_err().code(), "INVALID_DEPTH");
    }

    #[test]
    fn the_smallest_cap_holds() {
        assert_eq!(tighter(None, None), None);
        assert_eq!(tighter(Some(2), None), Some(2));
        assert_eq!(tighter(None, Some(3)), Some(3));
        assert_eq!(tighter(Some(2), Some(3)), Some(2));
    }
}
