//! Where reports are kept: in memory, and as one JSON file each, the last 32.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Incident, KEPT_INCIDENTS};

/// The reports, oldest first.
#[derive(Debug)]
pub struct Store {
    folder: Option<PathBuf>,
    kept: VecDeque<Arc<Value>>,
}

impl Store {
    /// Opens `folder` and reads what earlier runs left there. A folder that cannot be had is a warning: reports must
    /// not be a fault of their own.
    pub fn open(folder: Option<PathBuf>) -> Self {
        let mut store = Self { folder, kept: VecDeque::new() };
        let Some(folder) = &store.folder else { return store };
        match fs::create_dir_all(folder).and_then(|()| reports(folder)) {
            Ok(paths) => {
                let newest = paths.len().saturating_sub(KEPT_INCIDENTS);
                store.kept.extend(paths[newest..].iter().filter_map(|path| read(path)).map(Arc::new));
            }
            Err(error) => {
                tracing::warn!(%error, folder = %folder.display(), "incident reports are kept in memory alone");
                store.folder = None;
            }
        }
        store
    }

    /// Keeps a report; the oldest makes room.
    pub fn add(&mut self, incident: Incident) {
        tracing::warn!(id = incident.id, cause = %incident.cause, reason = incident.reason, "incident reported");
        let report = Arc::new(json!(incident));
        self.write(&report);
        if self.kept.len() == KEPT_INCIDENTS {
            self.kept.pop_front();
        }
        self.kept.push_back(report);
    }

    /// Adds a failed probe to the newest report of its cause. False if there is none.
    pub fn count_probe(&mut self, failed: &Incident) -> bool {
        let cause = json!(failed.cause);
        let Some(newest) = self.kept.iter_mut().rev().find(|report| report["cause"] == cause) else { return false };
        let mut report = (**newest).clone();
        report["failed_probes"] = json!(report["failed_probes"].as_u64().unwrap_or(0) + 1);
        if report["probe"].is_null() {
            report["probe"] = json!(failed.probe);
            report["stalled_at"] = json!(failed.stalled_at);
        }
        *newest = Arc::new(report);
        let report = Arc::clone(newest);
        self.write(&report);
        true
    }

    /// The reports, newest first.
    pub fn recent(&self) -> Vec<Arc<Value>> {
        self.kept.iter().rev().cloned().collect()
    }

    fn write(&self, report: &Value) {
        let (Some(folder), Some(id)) = (&self.folder, report["id"].as_str()) else { return };
        let path = folder.join(format!("{id}.json"));
        let written =
            serde_json::to_vec_pretty(report).map_err(io::Error::other).and_then(|text| fs::write(&path, text));
        let pruned = written.and_then(|()| prune(folder));
        if let Err(error) = pruned {
            tracing::warn!(%error, path = %path.display(), "incident report not written");
        }
    }
}

/// Reports in `folder`, oldest first: their names begin with the time.
fn reports(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    Ok(paths)
}

fn prune(folder: &Path) -> io::Result<()> {
    let paths = reports(folder)?;
    for old in &paths[..paths.len().saturating_sub(KEPT_INCIDENTS)] {
        fs::remove_file(old)?;
    }
    Ok(())
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}
