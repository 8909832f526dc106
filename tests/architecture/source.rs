//! What the rules ask about a source file: who it imports, what it calls, which names it writes down.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::logs::{self, LogCall};

/// One source file and everything that the rules ask about it, test modules left out.
pub struct Source {
    /// Relative to the repository.
    pub path: PathBuf,
    /// `["scheduler", "event_loop"]`
    pub module: Vec<String>,
    pub text: String,
    /// Paths from the root: `["crate", "io_struct", "Rid"]` or `["axum", "Router"]`.
    pub paths: BTreeSet<Vec<String>>,
    pub attributes: BTreeSet<String>,
    pub macros: BTreeSet<String>,
    pub strings: Vec<String>,
    /// First arguments of `.route("..", ..)`.
    pub routes: Vec<String>,
    pub logs: Vec<LogCall>,
}

impl Source {
    pub fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(root.join(path)).expect("a file that was just listed");
        let file = syn::parse_file(&text).expect("a source that the compiler accepts");
        let mut module: Vec<String> =
            path.with_extension("").iter().skip(1).map(|part| part.to_string_lossy().into_owned()).collect();
        if module == ["lib"] {
            module.clear();
        }
        let mut source = Self {
            path: path.to_owned(),
            module,
            text,
            paths: BTreeSet::new(),
            attributes: BTreeSet::new(),
            macros: BTreeSet::new(),
            strings: Vec::new(),
            routes: Vec::new(),
            logs: Vec::new(),
        };
        source.visit_file(&file);
        source
    }

    pub fn station(&self) -> &str {
        self.module.first().map_or("lib", String::as_str)
    }

    pub fn is_telemetry(&self) -> bool {
        self.station() == "telemetry"
    }

    /// Imports of ours from outside of this station: `["io_struct", "Rid"]`.
    pub fn imports(&self) -> impl Iterator<Item = &[String]> {
        let ours = self.paths.iter().filter(|path| path[0] == "crate" && path.len() > 1).map(|path| &path[1..]);
        ours.filter(|path| path[0] != self.station())
    }

    /// Lines before the test module.
    pub fn production_lines(&self) -> usize {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{'));
        tests.unwrap_or(lines.len())
    }

    fn add_path(&mut self, segments: Vec<String>) {
        let up = segments.iter().take_while(|segment| *segment == "super").count();
        let absolute = match segments[0].as_str() {
            "super" => {
                let parent = &self.module[..self.module.len().saturating_sub(up)];
                let root = ["crate".to_owned()];
                root.iter().chain(parent).chain(&segments[up..]).cloned().collect()
            }
            "radiosonde" => ["crate".to_owned()].into_iter().chain(segments[1..].iter().cloned()).collect(),
            _ => segments,
        };
        self.paths.insert(absolute);
    }

    fn add_use(&mut self, prefix: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [prefix, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.add_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.add_path(with(&name.ident)),
            syn::UseTree::Rename(rename) => self.add_path(with(&rename.ident)),
            syn::UseTree::Glob(_) => self.add_path(prefix.to_vec()),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_use(prefix, tree)),
        }
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
        });
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let name = attribute.path().segments.last().expect("a path has a segment").ident.to_string();
        // Doc comments are strings of nobody.
        if name != "doc" {
            visit::visit_attribute(self, attribute);
        }
        self.attributes.insert(name);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let ("route", Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }))) =
            (call.method.to_string().as_str(), call.args.first())
        {
            self.routes.push(path.value());
        }
        visit::visit_expr_method_call(self, call);
    }

    /// The inside of a macro is not parsed: paths and strings are picked from its text.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.macros.insert(call.path.segments.last().expect("a path has a segment").ident.to_string());
        self.logs.extend(logs::calls(call));
        let tokens = call.tokens.to_string();
        self.strings.extend(tokens.split('"').skip(1).step_by(2).map(str::to_owned));
        let dense = tokens.replace(" :: ", "::");
        for word in dense.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)) {
            let segments: Vec<String> = word.split("::").map(str::to_owned).collect();
            if segments.len() > 1 && !segments[0].is_empty() {
                self.add_path(segments);
            }
        }
        visit::visit_macro(self, call);
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.strings.push(literal.value());
    }
}

/// All Rust files below `folder` of the repository, in order.
pub fn rust_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).into_iter().flatten() {
            let entry = entry.expect("a folder can be listed");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The rules must be able to fail.
#[test]
fn a_source_that_breaks_every_rule() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(folder.path().join("src/scheduler")).expect("a folder");
    let text = r#"
        use crate::{http_server::health, clock::MonoNanos as Now};
        use super::super::runtime;
        fn f() { let _s = tracing::info_span!("x", "radiosonde_in_macro"); std::thread::sleep(d); axum::serve(); }
        fn g() -> &'static str { log!(crate :: ipc :: Frame); todo!() }
        fn h(r: Router) -> Router { r.route("/a", get(g)).route("/b/{c}", get(g)).layer("/d") }
        #[allow(dead_code)] const NAME: &str = "radiosonde_x_total";
        #[cfg(test)] mod tests { use crate::config; }
    "#;
    fs::write(folder.path().join("src/scheduler/bad.rs"), text).expect("a file");
    let source = Source::read(folder.path(), Path::new("src/scheduler/bad.rs"));
    let imports: Vec<String> = source.imports().map(|path| path.join("::")).collect();
    assert_eq!(imports, ["clock::MonoNanos", "http_server::health", "ipc::Frame", "runtime"]);
    assert_eq!(source.macros.iter().map(String::as_str).collect::<Vec<_>>(), ["info_span", "log", "todo"]);
    assert!(source.attributes.contains("allow"));
    assert!(source.strings.iter().filter(|text| text.starts_with("radiosonde_")).count() == 2);
    assert!(source.paths.iter().any(|path| path[0] == "axum"));
    assert_eq!(source.routes.iter().collect::<BTreeSet<_>>(), BTreeSet::from([&"/a".to_owned(), &"/b/{c}".to_owned()]));
    assert!(source.paths.iter().any(|path| path.last().is_some_and(|name| name == "sleep")));
}
