//! What all reports are written with: numbers, tables, and on what it was measured.

use std::fmt::Write;

use crate::machine::Machine;

/// When and on what it was measured, as a list.
pub(super) fn conditions(text: &mut String, machine: &Machine, what: &str) {
    let Machine { date, cores, memory_gib, processor, load, versions } = machine;
    let versions: Vec<String> = versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    put(text, format_args!("- {date}, {what}\n"));
    put(text, format_args!("- {cores} cores ({processor}), {memory_gib} GiB, load at the end {load}\n"));
    put(text, format_args!("- {}\n\n", versions.join(", ")));
}

pub(super) fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string can't fail.
    let _ = text.write_fmt(what);
}

pub(super) fn heading(text: &mut String, first: &str, others: impl Iterator<Item = String>) {
    let others: Vec<String> = others.collect();
    line(text, first, others.iter().cloned());
    put(text, format_args!("|---|{}\n", "---:|".repeat(others.len())));
}

pub(super) fn line(text: &mut String, first: &str, others: impl Iterator<Item = String>) {
    put(text, format_args!("| {first} | {} |\n", others.collect::<Vec<_>>().join(" | ")));
}

pub(super) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

/// The one in the middle; of an even number, the mean of the two.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_moved_by_one_bad_run() {
        assert_eq!(median(vec![900.0, 2.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![1.0, 2.0]), Some(1.5));
        assert_eq!(median(vec![]), None);
    }
}
