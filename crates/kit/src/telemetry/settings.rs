//! How telemetry is set up, and what the environment says about it.

/// What a log line looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For the eye.
    Human,
    /// One object a line.
    Json,
    /// For the eye on a terminal, JSON elsewhere.
    #[default]
    Auto,
}

impl Format {
    /// What it comes to where the output is a terminal, or not. Never [`Format::Auto`].
    pub(super) fn on(self, terminal: bool) -> Format {
        match self {
            Format::Auto if terminal => Format::Human,
            Format::Auto => Format::Json,
            chosen => chosen,
        }
    }
}

/// How telemetry is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The program's name, in traces.
    pub service: String,
    /// Its version, in traces.
    pub version: String,
    /// What log lines look like.
    pub format: Format,
    /// What is logged, in the words of [`tracing_subscriber::EnvFilter`]; `info` unless said otherwise.
    /// The libraries below (`kube`, `hyper`, …) are kept at `warn` unless the filter names them.
    pub filter: Option<String>,
    /// Where traces go: the address of an OpenTelemetry collector that takes OTLP over HTTP, such as
    /// `http://collector:4318`, or with a path. It is used only with the feature `otel`.
    pub otlp: Option<String>,
}

impl Settings {
    /// What the environment says. A variable that is empty counts as not set.
    ///
    /// | variable | meaning |
    /// |---|---|
    /// | `LOG_FORMAT` | `human` or `json`; anything else is [`Format::Auto`] |
    /// | `LOG_LEVEL`, else `RUST_LOG` | the filter |
    /// | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | where traces go |
    /// | `OTEL_EXPORTER_OTLP_ENDPOINT` | the same without its last part, `/v1/traces` |
    /// | `OTEL_SDK_DISABLED` | `true`: no traces |
    ///
    /// With the feature `otel` the exporter itself reads others that are common to all programs, such as
    /// `OTEL_TRACES_SAMPLER`, `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_EXPORTER_OTLP_HEADERS`.
    pub fn from_env(service: impl Into<String>, version: impl Into<String>) -> Self {
        Self::read(service.into(), version.into(), |name| std::env::var(name).ok())
    }

    fn read(service: String, version: String, variable: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name| variable(name).filter(|value| !value.trim().is_empty());
        let format = match variable("LOG_FORMAT").map(|format| format.to_ascii_lowercase()).as_deref() {
            Some("human") => Format::Human,
            Some("json") => Format::Json,
            _ => Format::Auto,
        };
        let base = || variable("OTEL_EXPORTER_OTLP_ENDPOINT");
        let otlp = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| base().map(|base| format!("{}/v1/traces", base.trim_end_matches('/'))));
        let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        Settings {
            service,
            version,
            format,
            filter: variable("LOG_LEVEL").or_else(|| variable("RUST_LOG")),
            otlp: otlp.filter(|_| !disabled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Settings {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, v)| (*v).to_owned());
        Settings::read("greeter".into(), "1.2.3".into(), find)
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let settings = read(&[("LOG_LEVEL", ""), ("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]);
        assert_eq!(
            settings,
            Settings { service: "greeter".into(), version: "1.2.3".into(), ..Settings::default() }
        );
        assert_eq!((settings.format.on(true), settings.format.on(false)), (Format::Human, Format::Json));
    }

    #[test]
    fn the_environment_is_heard() {
        let settings = read(&[("LOG_FORMAT", "JSON"), ("RUST_LOG", "warn"), ("LOG_LEVEL", "debug")]);
        assert_eq!((settings.format, settings.filter.as_deref()), (Format::Json, Some("debug")));
        assert_eq!(settings.format.on(true), Format::Json);
        assert_eq!(read(&[("RUST_LOG", "warn")]).filter.as_deref(), Some("warn"));
    }

    #[test]
    fn the_endpoint_of_traces_is_taken_as_it_is_and_the_common_one_is_completed() {
        let common = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/in");
        assert_eq!(read(&[common]).otlp.as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!(read(&[common, own]).otlp.as_deref(), Some("http://traces/in"));
        assert_eq!(read(&[common, ("OTEL_SDK_DISABLED", "true")]).otlp, None);
    }
}
