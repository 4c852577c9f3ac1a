//! What the metrics look like from outside, and that nothing makes them grow.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A family of metrics as it was read, strictly.
#[derive(Debug, Default)]
struct FamilyRead {
    kind: String,
    /// The whole name with its labels, and the value.
    samples: BTreeMap<String, f64>,
}

/// Reads the OpenMetrics text format, and accepts nothing that the rules do not allow: each family is described
/// once, before its samples, which stand together; no sample comes twice; names and suffixes fit
/// the kind; the end is marked.
fn read(text: &str) -> BTreeMap<String, FamilyRead> {
    let body = text.strip_suffix("# EOF\n").expect("the mark at the end");
    let mut families: BTreeMap<String, FamilyRead> = BTreeMap::new();
    let mut current = String::new();
    let mut described = BTreeSet::new();
    for line in body.lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", family, help] => {
                assert!(described.insert(family.to_owned()), "{family} twice");
                assert!(!help.is_empty(), "{line}");
                family.clone_into(&mut current);
            }
            ["#", "TYPE", family, kind] => {
                assert_eq!(family, current, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let read = FamilyRead { kind: kind.to_owned(), samples: BTreeMap::new() };
                assert!(families.insert(family.to_owned(), read).is_none(), "{line}");
            }
            ["#", ..] => panic!("{line}"),
            _ => sample(line, &current, families.get_mut(&current).expect(line)),
        }
    }
    families.values().filter(|family| family.kind == "histogram").for_each(check_histogram);
    families
}

fn sample(line: &str, family: &str, read: &mut FamilyRead) {
    let (series, value) = line.rsplit_once(' ').expect(line);
    let value: f64 = value.parse().expect(line);
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let suffixes: &[&str] = match read.kind.as_str() {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_sum", "_count"],
        _ => &[""],
    };
    assert!(name.strip_prefix(family).is_some_and(|suffix| suffixes.contains(&suffix)), "{line}");
    assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
    let labels = labels.strip_suffix('}').expect(line);
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        let (key, text) = label.split_once('=').expect(line);
        assert!(key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
        assert!(text.len() >= 2 && text.starts_with('"') && text.ends_with('"'), "{line}");
    }
    assert!(read.samples.insert(series.to_owned(), value).is_none(), "{line} twice");
}

/// Buckets grow, and the last holds as many as were counted.
fn check_histogram(family: &FamilyRead) {
    for (series, count) in family.samples.iter().filter(|(series, _)| series.contains("_count{")) {
        let labels = series.split_once('{').unwrap().1.trim_end_matches('}');
        let buckets =
            family.samples.iter().filter(|(name, _)| name.contains(labels) && name.contains("le=\""));
        let mut buckets: Vec<(f64, f64)> = buckets
            .map(|(name, value)| {
                let limit = name.split_once("le=\"").unwrap().1.split_once('"').unwrap().0;
                (limit.parse().unwrap(), *value)
            })
            .collect();
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{series}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
    }
}

fn value(families: &BTreeMap<String, FamilyRead>, family: &str, series: &str) -> f64 {
    *families[family].samples.get(series).unwrap_or_else(|| panic!("{series}: {:#?}", families[family]))
}

#[test]
fn what_happened_is_what_is_counted() {
    let metrics = Metrics::new("greeter");
    metrics.build("1.2.3");
    metrics.build("9.9.9");
    metrics.round("greeting", Ended::Well, SECOND / 5);
    metrics.round("greeting", Ended::Well, 3 * SECOND);
    metrics.round("greeting", Ended::Failed(Class::Conflict), SECOND);
    metrics.round("greeting", Ended::Panicked, SECOND);
    metrics.load("greeting", 7, 2);
    metrics.retry("greeting", Class::Transient);
    metrics.request("apply", 200, SECOND);
    metrics.request("apply", 0, SECOND);
    metrics.leading(true);
    metrics.watch_restarted("Greeting");

    let read = read(&metrics.render());
    let rounds = "greeter_reconciliation_duration_seconds";
    let of = |suffix: &str, labels: &str| value(&read, rounds, &format!("{rounds}{suffix}{{{labels}}}"));
    assert_eq!(of("_count", r#"controller="greeting",result="success""#), 2.0);
    assert_eq!(of("_sum", r#"controller="greeting",result="success""#), 3.2);
    assert_eq!(of("_bucket", r#"le="0.25",controller="greeting",result="success""#), 1.0);
    assert_eq!(of("_count", r#"controller="greeting",result="conflict""#), 1.0);
    let panics = r#"greeter_reconciliation_panics_total{controller="greeting"}"#;
    assert_eq!(value(&read, "greeter_reconciliation_panics", panics), 1.0);
    assert_eq!(value(&read, "greeter_queue_depth", r#"greeter_queue_depth{controller="greeting"}"#), 7.0);
    let running = r#"greeter_reconciliations_running{controller="greeting"}"#;
    assert_eq!(value(&read, "greeter_reconciliations_running", running), 2.0);
    let retries = r#"greeter_reconciliation_retries_total{controller="greeting",class="transient"}"#;
    assert_eq!(value(&read, "greeter_reconciliation_retries", retries), 1.0);
    for code in ["200", "none"] {
        let requests = format!(r#"greeter_api_requests_total{{verb="apply",code="{code}"}}"#);
        assert_eq!(value(&read, "greeter_api_requests", &requests), 1.0);
    }
    let durations = r#"greeter_api_request_duration_seconds_count{verb="apply"}"#;
    assert_eq!(value(&read, "greeter_api_request_duration_seconds", durations), 2.0);
    assert_eq!(value(&read, "greeter_leader", "greeter_leader"), 1.0);
    let restarts = r#"greeter_watch_restarts_total{kind="Greeting"}"#;
    assert_eq!(value(&read, "greeter_watch_restarts", restarts), 1.0);
    assert_eq!(value(&read, "greeter_build_info", r#"greeter_build_info{version="1.2.3"}"#), 1.0);
    assert_eq!(read["greeter_build_info"].samples.len(), 1, "the first one counts");
}

#[test]
fn the_process_is_told_of_as_the_kernel_sees_it() {
    let read = read(&Metrics::new("greeter").render());
    let of = |family: &str| read[family].samples.values().next().copied().unwrap();
    assert!((1e6..1e11).contains(&of("process_resident_memory_bytes")));
    assert!((0.0..1e6).contains(&of("process_cpu_seconds")));
    assert!((3.0..1e6).contains(&of("process_open_fds")));
    assert!((1.0..1e4).contains(&of("process_threads")));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 3600.0..now + 60.0).contains(&of("process_start_time_seconds")));
}

/// All that can happen, in a thousand odd ways.
fn everything(metrics: &Metrics, from: u16) {
    let endings = [Ended::Well, Ended::TooLong, Ended::Panicked]
        .into_iter()
        .chain([Class::Transient, Class::Permanent, Class::Conflict].map(Ended::Failed));
    for number in from..from + 1000 {
        let odd = format!("{}\"\\\n{number}", "x".repeat(usize::from(number % 300)));
        for ended in endings.clone() {
            metrics.observer(&*odd).round(&Key { namespace: odd.clone(), name: odd.clone() }, ended, SECOND);
        }
        metrics.load(&odd, 1, 1);
        metrics.request(&odd, number, SECOND);
        VERBS.iter().for_each(|verb| metrics.request(verb, number, SECOND));
        metrics.watch_restarted(&odd);
    }
}

#[test]
fn a_thousand_odd_values_do_not_make_the_output_grow_without_end() {
    let metrics = Metrics::new("greeter");
    metrics.build("1.2.3");
    everything(&metrics, 0);
    let series = |metrics: &Metrics| metrics.render().lines().filter(|line| !line.starts_with('#')).count();
    let once = series(&metrics);
    everything(&metrics, 1000);
    everything(&metrics, 30_000);
    assert_eq!(series(&metrics), once, "what is full stays as it is");
    let text = metrics.render();
    assert!(text.contains(r#"controller="other",result="panic""#), "what has no series is still counted");
    assert!(text.contains(r#"{verb="other",code="other"}"#));
    assert!(once < 10_000, "{once}");
}

#[test]
fn verbs_and_codes_are_those_that_exist() {
    assert_eq!(
        ["get", "deletecollection", "GET", "proxy"].map(known_verb),
        ["get", "deletecollection", "other", "other"]
    );
    assert_eq!(
        [0, 200, 409, 429, 299, 599, 65_535].map(known_code),
        ["none", "200", "409", "429", "other", "other", "other"]
    );
}

#[test]
fn an_observer_counts_a_retry_for_each_round_that_is_tried_again() {
    let metrics = Metrics::new("greeter");
    let mut observer = metrics.observer("greeting");
    let key = Key { namespace: "default".into(), name: "hello".into() };
    let permanent = Ended::Failed(Class::Permanent);
    for ended in [Ended::Well, permanent, Ended::Failed(Class::Conflict), Ended::TooLong, Ended::Panicked] {
        observer.round(&key, ended, SECOND);
    }
    observer.load(3, 1);
    let read = read(&metrics.render());
    let retries = &read["greeter_reconciliation_retries"].samples;
    let of = |class: &str| {
        retries
            .get(&format!(r#"greeter_reconciliation_retries_total{{controller="greeting",class="{class}"}}"#))
    };
    assert_eq!((of("transient"), of("conflict"), of("permanent")), (Some(&2.0), Some(&1.0), None));
    assert!(!metrics.render().contains("hello"), "objects are for logs and traces, not for metrics");
}

#[test]
fn metrics_of_ones_own_get_the_prefix_unless_they_are_common() {
    let metrics = Metrics::new("greeter");
    let hellos = Counter::<u64>::default();
    metrics.registry(|registry| registry.register("hellos", "Said so far", hellos.clone()));
    hellos.inc();
    assert_eq!(value(&read(&metrics.render()), "greeter_hellos", "greeter_hellos_total"), 1.0);
    metrics.common(|registry| registry.register("hellos", "Said by anybody", hellos.clone()));
    assert_eq!(value(&read(&metrics.render()), "hellos", "hellos_total"), 1.0);
}

#[test]
fn the_older_format_says_the_same() {
    let metrics = Metrics::new("greeter");
    metrics.request("get", 200, SECOND);
    let plain = metrics.render_plain();
    assert!(!plain.contains("# EOF"));
    let lines: Vec<&str> = plain.lines().filter(|line| line.contains("greeter_api_requests")).collect();
    assert_eq!(lines[1], "# TYPE greeter_api_requests_total counter");
    assert_eq!(lines[2], r#"greeter_api_requests_total{verb="get",code="200"} 1"#);
    assert!(lines[0].starts_with("# HELP greeter_api_requests_total Requests to the API server"));
    assert!(plain.contains("# TYPE greeter_api_request_duration_seconds histogram\n"));
    let info = "# HELP a_build b.\n# TYPE a_build info\n# UNIT x y\na_build_info{v=\"1\"} 1\n# EOF\n";
    assert_eq!(
        plain_of(info),
        "# HELP a_build_info b.\n# TYPE a_build_info gauge\na_build_info{v=\"1\"} 1\n"
    );
}

fn plain_of(open_metrics: &str) -> String {
    super::plain(open_metrics)
}
