//! `--report`: what was guessed, committed and taken back; told on stderr, or drawn. Files are opened before COMMAND
//! starts.

use std::ffi::OsString;
use std::path::PathBuf;

use supervisor::{History, Report};

use crate::picture;
use crate::stats::{form_and_file, StatsError, StatsFile};

/// A value of `--report`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportForm {
    /// For people, on stderr.
    Text,
    /// For programs.
    Json(PathBuf),
    /// Who depended on whom, for Graphviz.
    Dot(PathBuf),
    /// What happened over time, as a picture.
    Svg(PathBuf),
}

impl ReportForm {
    /// Reads a value.
    pub fn parse(text: OsString) -> Result<Self, &'static str> {
        match form_and_file(&text) {
            ("text", None) => Ok(Self::Text),
            ("json", Some(file)) => Ok(Self::Json(file)),
            ("dot", Some(file)) => Ok(Self::Dot(file)),
            ("svg", Some(file)) => Ok(Self::Svg(file)),
            _ => Err("use text, json:FILE, dot:FILE or svg:FILE"),
        }
    }

    /// Whether it needs to know everything that happened, in its order.
    pub fn needs_history(&self) -> bool {
        *self != Self::Text
    }

    fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Text => None,
            Self::Json(path) | Self::Dot(path) | Self::Svg(path) => Some(path),
        }
    }

    fn text(&self, report: &Report) -> String {
        let history = report.history.as_ref().unwrap_or(&NOTHING);
        match self {
            Self::Text => report.to_string() + "\n",
            Self::Json(_) => serde_json::to_string_pretty(report).expect("numbers and strings") + "\n",
            Self::Dot(_) => picture::graph(history),
            Self::Svg(_) => picture::chart(history),
        }
    }
}

static NOTHING: std::sync::LazyLock<History> = std::sync::LazyLock::new(History::default);

/// Reports that are wanted, with their files open.
#[derive(Debug)]
pub struct Reports(Vec<(ReportForm, Option<StatsFile>)>);

impl Reports {
    /// Open the files; nothing in existing ones changes yet.
    pub fn open(forms: &[ReportForm]) -> Result<Self, StatsError> {
        let open = |form: &ReportForm| -> Result<_, StatsError> {
            let file = form.file().map(|path| StatsFile::open(path, "the report")).transpose()?;
            Ok((form.clone(), file))
        };
        forms.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there is any.
    pub fn are_wanted(&self) -> bool {
        !self.0.is_empty()
    }

    /// Tell and write them all.
    pub fn tell(self, report: &Report) -> Result<(), StatsError> {
        for (form, file) in self.0 {
            match file {
                None => crate::tell::text(&form.text(report)),
                Some(file) => file.write(&form.text(report))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(ReportForm::parse("text".into()), Ok(ReportForm::Text));
        assert_eq!(ReportForm::parse("svg:a:b".into()), Ok(ReportForm::Svg("a:b".into())));
        for bad in ["", "svg", "dot:", "png:x", "text:x"] {
            assert!(ReportForm::parse(bad.into()).is_err(), "{bad}");
        }
    }
}
