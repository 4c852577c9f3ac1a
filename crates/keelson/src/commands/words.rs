//! Amounts, ages and lists as people read them.

use std::path::Path;
use std::sync::OnceLock;

use jiff::Timestamp;

/// How this program was called: a plug-in of kubectl is `kubectl-keelson` for the shell, and `kubectl keelson` for
/// people.
pub fn program() -> &'static str {
    static PROGRAM: OnceLock<&'static str> = OnceLock::new();
    PROGRAM.get_or_init(|| called(&std::env::args().next().unwrap_or_default()))
}

/// What people call a program of this path.
pub fn called(path: &str) -> &'static str {
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with("kubectl-keelson") || name.starts_with("kubectl_") {
        "kubectl keelson"
    } else {
        "keelson"
    }
}

/// `a, b and c`.
pub fn listed<T: AsRef<str>>(all: &[T]) -> String {
    match all {
        [] => "none".to_owned(),
        [only] => only.as_ref().to_owned(),
        [most @ .., last] => {
            let most: Vec<&str> = most.iter().map(AsRef::as_ref).collect();
            format!("{} and {}", most.join(", "), last.as_ref())
        }
    }
}

/// `1 pod`, `2 pods`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// Bytes, in powers of 1024, with three digits at the most.
pub fn bytes(number: i64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut amount, mut unit) = (number as f64, 0);
    while amount.abs() >= 1023.5 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    if unit == 0 || amount.abs() >= 9.95 {
        format!("{amount:.0} {}", UNITS[unit])
    } else {
        format!("{amount:.1} {}", UNITS[unit])
    }
}

/// A length of time in one unit or two: `45s`, `12m`, `3h20m`, `9d`.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |large: i64, unit: &str, rest: i64, small: &str| match rest {
        0 => format!("{large}{unit}"),
        rest => format!("{large}{unit}{rest}{small}"),
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7200 => format!("{minutes}m"),
        7200..172_800 => with(hours, "h", minutes % 60, "m"),
        172_800..864_000 => with(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// How many seconds ago that was.
pub fn since(then: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(then).as_secs()
}

/// A moment, to the second.
pub fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Those of the names that somebody may have meant, the nearest first.
pub fn near<'a>(meant: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let bound = (meant.len() / 3).max(1);
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let steps = steps_between(meant, name);
            let part = meant.len() > 2 && (name.starts_with(meant) || meant.starts_with(name));
            (steps <= bound || part).then_some((steps, name))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// How many characters to add, drop, change or swap with their neighbour to get from one to the other.
fn steps_between(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = table[i - 1][j - 1] + usize::from(one[i - 1] != other[j - 1]);
                let least = changed.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                let swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
                if swapped { least.min(table[i - 2][j - 2] + 1) } else { least }
            };
        }
    }
    table[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_read_at_a_glance() {
        let bytes: Vec<String> = [0, 900, 1024, 16 << 20, 1_500_000_000, 1023 << 20].map(bytes).to_vec();
        assert_eq!(bytes, ["0 B", "900 B", "1.0 KiB", "16 MiB", "1.4 GiB", "1023 MiB"]);
        let spans: Vec<String> =
            [-1, 59, 119, 120, 7199, 7200, 12_000, 172_800, 180_000, 900_000].map(span).to_vec();
        assert_eq!(spans, ["0s", "59s", "119s", "2m", "119m", "2h", "3h20m", "2d", "2d2h", "10d"]);
    }

    #[test]
    fn lists_are_as_people_write_them() {
        assert_eq!(listed::<&str>(&[]), "none");
        assert_eq!((listed(&["a"]), listed(&["a", "b", "c"])), ("a".to_owned(), "a, b and c".to_owned()));
        assert_eq!((count(1, "pod"), count(3, "pod")), ("1 pod".to_owned(), "3 pods".to_owned()));
    }

    #[test]
    fn names_that_may_have_been_meant_are_found() {
        let names = ["orders", "orders-copy", "billing", "users"];
        assert_eq!(near("ordres", names), ["orders"]);
        assert_eq!(near("order", names), ["orders", "orders-copy"]);
        assert_eq!(near("biling", names), ["billing"]);
        assert_eq!(near("warehouse", names), [""; 0]);
    }

    #[test]
    fn a_plug_in_is_called_as_people_call_it() {
        assert_eq!(called("/usr/local/bin/kubectl-keelson"), "kubectl keelson");
        assert_eq!((called("./keelson"), called("")), ("keelson", "keelson"));
    }
}
