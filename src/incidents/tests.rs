//! Reports are written, counted and forgotten.

use super::*;

fn death(reason: &str) -> Death {
    Death { reason: reason.to_owned(), exit_status: Some("killed".to_owned()), ..Death::default() }
}

#[test]
fn the_last_reports_are_kept_on_disk_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = IncidentLog::new(Some(folder.path().join("incidents")), |_| ());
    for i in 0..KEPT_INCIDENTS + 5 {
        log.engine_died(death(&format!("death {i}")));
        let newest = log.recent()[0].clone();
        assert_eq!(newest["reason"], format!("death {i}"));
    }
    assert_eq!(log.recent().len(), KEPT_INCIDENTS);
    let files = std::fs::read_dir(folder.path().join("incidents")).unwrap().count();
    assert!((1..=KEPT_INCIDENTS).contains(&files), "{files}");
    let again = IncidentLog::new(Some(folder.path().join("incidents")), |_| ());
    assert_eq!(again.recent()[0]["reason"], format!("death {}", KEPT_INCIDENTS + 4));
}

#[test]
fn each_new_report_is_told() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let hear = Arc::clone(&told);
    let log = IncidentLog::new(None, move |cause| hear.lock().unwrap().push(cause));
    log.engine_died(death("d"));
    log.engine_died(death("d"));
    assert_eq!(*told.lock().unwrap(), [Cause::EngineDead; 2]);
}

#[test]
fn what_the_engine_said_last_is_in_the_report() {
    let log = IncidentLog::new(None, |_| ());
    let rid = crate::io_struct::Rid::from_caller("r").unwrap();
    for _ in 0..100 {
        log.note(&EngineEvent::HopEntered { rid: rid.clone(), serial: 0, hop: Hop::Inbox }, MonoNanos::now());
    }
    log.engine_died(death("d"));
    let report = log.recent()[0].clone();
    let events = report["last_events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["what"]), (48, &serde_json::json!("r entered scheduler.inbox")));
}
