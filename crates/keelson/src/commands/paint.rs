//! Colour, for those who look at a terminal and want it.

use std::io::IsTerminal;

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing in particular.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
    /// Of less interest than the rest.
    Faint,
    /// A heading.
    Strong,
}

/// Whether there is colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint(bool);

impl Paint {
    /// None: what is printed goes into a file.
    pub const NONE: Paint = Paint(false);
    /// None: what is printed is compared by a test.
    #[cfg(test)]
    pub const OFF: Paint = Paint(false);

    /// As standard output allows, and as the person wishes: <https://no-color.org>.
    pub fn of_stdout() -> Paint {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Paint(std::io::stdout().is_terminal() && !unwanted && !dumb)
    }

    /// The text in the colour of what it means.
    pub fn tone(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if !self.0 || text.is_empty() => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Warn => "33",
            Tone::Bad => "31",
            Tone::Faint => "2",
            Tone::Strong => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_around_the_text_and_only_when_wanted() {
        assert_eq!(Paint(true).tone(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Paint(true).tone(Tone::Plain, "x"), "x");
        assert_eq!(Paint::OFF.tone(Tone::Bad, "x"), "x");
    }
}
