//! Files that were cut off.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::real_model;

/// How a server ended that was given the file at `path`: what it said.
fn refused(path: &Path) -> String {
    let began = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
    let ended = command.args(["--port=0", "--model"]).arg(path).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    assert_eq!((ended.status.code(), ended.status.signal()), (Some(1), None), "{said}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(said.contains(path.to_str().unwrap()) && !said.contains("panicked"), "{said}");
    assert!(!said.contains("to=up"), "it was never healthy: {said}");
    said
}

/// llama.cpp#6774, Luce-Org/lucebox#438, candle#3583
#[tokio::test]
async fn a_file_that_was_cut_off_is_refused_with_its_numbers() {
    let whole = std::fs::read(real_model().await).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cut = |len: usize| {
        let path = folder.path().join("cut.gguf");
        std::fs::write(&path, &whole[..len]).unwrap();
        refused(&path)
    };
    let (len, present) = (whole.len(), whole.len() - 1000);
    let said = cut(present);
    let wants = format!("is truncated: tensor output_norm.weight needs {len} bytes of file, {present} are present");
    assert!(said.contains(&wants), "{wants}: {said}");
    let said = cut(100);
    assert!(said.contains("272 tensors") && said.contains("76 remaining"), "beside the 24 that were read: {said}");
    assert!(cut(0).contains("it ends too early, after 0 bytes"));
}
