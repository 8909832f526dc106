//! A hub repository that is a model as a whole, fetched file by file.

use std::fmt;
use std::fs;
use std::path::Path;

use serde_json::Value;
use ureq::http::StatusCode;

use super::folder::CONFIG;
use super::spec::is_segment;
use super::{Artifact, Expected, Hub, HubError, HubFile};

/// How a model reads texts; its weights and its configuration aside, it needs nothing else.
const TOKENIZER: &str = "tokenizer.json";
/// The weights of a model that is in one piece.
const WEIGHTS: &str = "model.safetensors";
/// Which files the weights are in, of a model that is not.
const INDEX: &str = "model.safetensors.index.json";
/// What says how texts are embedded, how chats are rendered and where a turn ends, where it is there.
const OPTIONAL: [&str; 5] = [
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
/// The modules of sentence-transformers; each that has a folder may have a configuration in it.
const MODULES: &str = "modules.json";

/// A hub repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubFolder {
    /// `owner/name`.
    pub repo: String,
    /// A commit, a tag or a branch.
    pub revision: String,
}

impl fmt::Display for HubFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}@{}", self.repo, self.revision)
    }
}

impl HubFolder {
    /// Fetches the files into their place. The configuration comes last: with it, the folder is a model.
    pub(super) fn fetch(&self, hub: &Hub, artifact: &Artifact) -> Result<(), HubError> {
        let folder = artifact.folder();
        self.fetch_file(hub, &folder, MODULES, Needed::No)?;
        for module in modules(&folder.join(MODULES)) {
            self.fetch_file(hub, &folder, &format!("{module}/{CONFIG}"), Needed::No)?;
        }
        for file in OPTIONAL {
            self.fetch_file(hub, &folder, file, Needed::No)?;
        }
        self.fetch_file(hub, &folder, INDEX, Needed::No)?;
        for file in [TOKENIZER.to_owned()].into_iter().chain(shards(&folder.join(INDEX))).chain([CONFIG.to_owned()]) {
            self.fetch_file(hub, &folder, &file, Needed::Yes)?;
        }
        Ok(())
    }

    fn fetch_file(&self, hub: &Hub, folder: &Path, file: &str, needed: Needed) -> Result<(), HubError> {
        let artifact = Artifact { path: folder.join(file), expected: Expected::default() };
        let parent = artifact.path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|source| artifact.cache_error(source))?;
        let HubFolder { repo, revision } = self.clone();
        match (HubFile { repo, revision, file: file.to_owned() }.fetch(hub, &artifact), needed) {
            (Err(HubError::Status { status, .. }), Needed::No) if status == StatusCode::NOT_FOUND => Ok(()),
            (fetched, _) => fetched,
        }
    }
}

/// Must a file be there?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needed {
    Yes,
    No,
}

/// The folders of the modules. What cannot be read is for the loader to refuse.
fn modules(path: &Path) -> Vec<String> {
    let modules: Value = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let paths = modules.as_array().into_iter().flatten().filter_map(|module| module["path"].as_str());
    paths.filter(|path| path.split('/').all(is_segment)).map(str::to_owned).collect()
}

/// The files of the weights. What cannot be read is for the loader to refuse.
fn shards(index: &Path) -> Vec<String> {
    let Ok(text) = fs::read(index) else { return vec![WEIGHTS.to_owned()] };
    let index: Value = serde_json::from_slice(&text).unwrap_or_default();
    let files = index["weight_map"].as_object().into_iter().flatten().filter_map(|(_, file)| file.as_str());
    let mut files: Vec<_> = files.filter(|file| is_segment(file)).map(str::to_owned).collect();
    files.sort_unstable();
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_stay_inside_of_the_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |text: &str, want: &[&str]| {
            fs::write(file.path(), text).unwrap();
            assert_eq!(modules(file.path()), want, "{text}");
        };
        check(
            r#"[{"path": ""}, {"path": "1_Pooling"}, {"path": "../up"}, {"path": ".."}, {"kind": 1}]"#,
            &["1_Pooling"],
        );
        check("{}", &[]);
        check("no JSON", &[]);
    }
    #[test]
    fn an_index_names_the_files_of_the_weights() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let check = |text: &str, want: &[&str]| {
            fs::write(file.path(), text).unwrap();
            assert_eq!(shards(file.path()), want, "{text}");
        };
        check(r#"{"weight_map": {"x": "b", "y": "a", "z": "b", "u": "../up", "v": 1}}"#, &["a", "b"]);
        check("no JSON", &[]);
        assert_eq!(shards(Path::new("/nosuch")), [WEIGHTS]);
    }
}
