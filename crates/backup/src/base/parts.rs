//! Which file goes into which part.

/// Parts are at least this large, unless there is less: each costs a few requests.
const SMALLEST: u64 = 64 << 20;
/// And no larger than this, if files allow: a part is what is read again when it breaks off.
const LARGEST: u64 = 1 << 30;

/// Puts files together, in their order, so that there are several parts for each of those who work on them, and
/// the last to finish does not finish long after the others. Gives the indices of the files of each part.
pub(crate) fn plan(sizes: &[u64], workers: usize) -> Vec<Vec<usize>> {
    let total: u64 = sizes.iter().sum();
    let limit = (total / (workers.max(1) as u64 * 4)).clamp(SMALLEST, LARGEST);
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut filled = u64::MAX;
    for (index, size) in sizes.iter().enumerate() {
        match parts.last_mut() {
            Some(part) if filled.saturating_add(*size) <= limit => {
                part.push(index);
                filled += size;
            }
            _ => {
                parts.push(vec![index]);
                filled = *size;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_small_database_is_one_part() {
        assert_eq!(plan(&[8192; 1000], 4).len(), 1);
        assert!(plan(&[], 4).is_empty());
    }

    proptest! {
        #[test]
        fn every_file_is_in_one_part_and_none_is_too_large(
            sizes in prop::collection::vec(0_u64..2 << 30, 0..200), workers in 0_usize..9,
        ) {
            let parts = plan(&sizes, workers);
            let all: Vec<usize> = parts.iter().flatten().copied().collect();
            prop_assert_eq!(all, (0..sizes.len()).collect::<Vec<_>>());
            for part in &parts {
                let size: u64 = part.iter().map(|index| sizes[*index]).sum();
                prop_assert!(part.len() == 1 || size <= LARGEST);
            }
            // Two neighbours would not both have fitted into one.
            for pair in parts.windows(2) {
                let size: u64 = pair.iter().flatten().map(|index| sizes[*index]).sum();
                prop_assert!(size > SMALLEST);
            }
        }
    }
}
