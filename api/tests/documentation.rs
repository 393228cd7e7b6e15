//! Everything that a user can meet is documented in `docs/`.

use api::{EtcdCluster, EtcdadmConfig};
use kube::CustomResourceExt;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Values of the string constants of a source file, from `from` on.
fn constants(path: &str, from: &str) -> BTreeSet<String> {
    let source = read(path);
    let (_, part) = source.split_once(from).unwrap_or_else(|| panic!("{path} has no {from:?}"));
    let constants = part.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split('"').nth(1));
    constants.map(str::to_owned).collect()
}

/// The words in backquotes in the first columns of tables.
fn explained(document: &str) -> BTreeSet<String> {
    let cells = document.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').step_by(2).filter(|word| is_name(word)).map(str::to_owned)).collect()
}

fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_uppercase()) && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[test]
fn every_condition_and_reason_is_explained_and_nothing_else() {
    let mut known = constants("api/src/conditions.rs", "use ");
    known.extend(constants("local-infrastructure/src/crd.rs", "pub mod conditions"));
    assert!(known.len() > 40, "{known:?}");
    let explained = explained(&read("docs/conditions.md"));
    let missing: Vec<_> = known.difference(&explained).collect();
    assert!(missing.is_empty(), "docs/conditions.md does not explain {missing:?}");
    let invented: Vec<_> = explained.difference(&known).collect();
    assert!(invented.is_empty(), "docs/conditions.md explains {invented:?}, which nothing has");
}

/// Reasons of events that a source file has as texts. The reasons of other events are those of conditions.
fn event_reasons(path: &Path) -> BTreeSet<String> {
    /// The calls that record an event, and which of the texts after the call is the reason: the first one may be the
    /// action.
    const RECORDS: [(&str, usize); 7] = [
        ("events.normal(", 1),
        ("events.warning(", 1),
        ("record_event(", 1),
        (" event(context,", 0),
        (" normal(\"", 0),
        (" warning(\"", 0),
        ("reason: \"", 0),
    ];
    let source = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (source, _) = source.split_once("#[cfg(test)]").unwrap_or((&source, ""));
    let mut found = BTreeSet::new();
    for (record, number) in RECORDS {
        for (at, _) in source.match_indices(record) {
            let rest = &source[at..];
            let call = rest.split(';').next().unwrap_or(rest);
            let texts = call.split('"').skip(1).step_by(2);
            found.extend(texts.filter(|text| is_name(text)).nth(number).map(str::to_owned));
        }
    }
    found
}

/// The sources of a crate.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut all = Vec::new();
    sources_and_tests(folder, &mut all);
    let is_of_a_test = |path: &PathBuf| path.strip_prefix(folder).unwrap().iter().any(|part| part == "tests");
    found.extend(all.into_iter().filter(|path| !is_of_a_test(path)));
}

/// The sources of a crate, including those of its tests.
fn sources_and_tests(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources_and_tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_event_is_explained_and_no_other() {
    let mut files = Vec::new();
    for of in ["cluster-hooks", "etcd-cluster-controller", "etcdadm-bootstrap", "local-infrastructure"] {
        sources(&repository(of).join("src"), &mut files);
    }
    let known: BTreeSet<String> = files.iter().flat_map(|file| event_reasons(file)).collect();
    assert!(known.len() > 20 && known.contains("MachineDeleted"), "{known:?}");
    let page = read("docs/operations.md");
    let (_, section) = page.split_once("\n## Events").unwrap();
    let explained = explained(section.split("\n## ").next().unwrap());
    let mut conditions = constants("api/src/conditions.rs", "use ");
    conditions.extend(constants("local-infrastructure/src/crd.rs", "pub mod conditions"));
    let missing: Vec<_> = known.iter().filter(|reason| !explained.contains(*reason)).collect();
    assert!(missing.is_empty(), "docs/operations.md does not explain the events {missing:?}");
    let invented: Vec<_> = explained.difference(&known).filter(|reason| !conditions.contains(*reason)).collect();
    assert!(invented.is_empty(), "docs/operations.md explains events {invented:?}, which nothing records");
}

/// Fields whose inner fields are explained elsewhere, or together with the field itself.
const CLOSED: [&str; 4] = ["conditions", "etcdadmConfigSpec", "passwdFrom", "contentFrom"];

/// Paths of all fields of an object's schema.
fn paths(schema: &Value, above: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{above}{name}");
        if !CLOSED.contains(&name.as_str()) {
            found.extend(paths(field, &format!("{path}.")));
            found.extend(paths(&field["items"], &format!("{path}[].")));
        }
        found.push(path);
    }
    found
}

#[test]
fn every_field_is_explained() {
    let document = read("docs/api.md");
    for crd in [EtcdCluster::crd(), EtcdadmConfig::crd()] {
        let (kind, crd) = (crd.spec.names.kind.clone(), serde_json::to_value(crd).unwrap());
        let section = document.split("\n## ").find(|section| section.starts_with(&kind)).unwrap_or_default();
        let properties = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let text = section.split("\n### ").find(|text| text.starts_with(part)).unwrap_or_default();
            let paths = paths(&properties[part], "");
            assert!(paths.len() > 4, "{paths:?}");
            let missing: Vec<&String> = paths.iter().filter(|path| !text.contains(&format!("`{path}`"))).collect();
            assert!(missing.is_empty(), "docs/api.md does not explain {missing:?} of the {part} of {kind}");
        }
    }
}

/// The numbers in a text, times in milliseconds: those of `5 starts, 1 s` are 5 and 1000.
fn numbers_in(text: &str) -> Vec<u64> {
    let mut words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).peekable();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let Ok(number) = word.parse::<u64>() else { continue };
        let unit = match words.peek() {
            Some(&"s") => 1000,
            Some(&"min") => 60_000,
            Some(&"h") => 3_600_000,
            Some(&"days") => 86_400_000,
            _ => 1,
        };
        found.push(number * unit);
    }
    found
}

/// The numbers in the value of a constant of a source file, each with the milliseconds of its unit, if it has one.
fn numbers_of(source: &str, name: &str) -> Option<Vec<(u64, Option<u64>)>> {
    let (_, rest) = source.split_once(&format!("const {name}: "))?;
    let (_, value) = rest.split(';').next()?.split_once(" = ")?;
    let value = value.replace(" * ", "*");
    let (mut found, mut unit) = (Vec::new(), None);
    for word in value.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '*')).filter(|word| !word.is_empty()) {
        let factors = word.split('*').map(|factor| factor.replace('_', "").parse::<u64>().ok());
        match (word, factors.product::<Option<u64>>()) {
            (_, Some(number)) => found.push((number, unit)),
            ("from_millis", None) => unit = Some(1),
            ("from_secs", None) => unit = Some(1000),
            ("from_mins", None) => unit = Some(60_000),
            ("from_hours" | "hours", None) => unit = Some(3_600_000),
            ("days", None) => unit = Some(86_400_000),
            // What came before is for tests.
            ("else", None) => found.clear(),
            (other, None) if is_constant(other) => found.extend(numbers_of(source, other)?),
            _ => {}
        }
    }
    Some(found)
}

fn is_constant(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

#[test]
fn timers_are_what_the_code_has() {
    let (page, mut count) = (read("docs/timers.md"), 0);
    for section in page.split("\n## ") {
        // A section with a table of constants names its crate in its title.
        let title = section.lines().next().unwrap_or_default();
        let Some(folder) = title.split('`').nth(1) else { continue };
        for row in section.lines() {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [names, value, _, file] = cells[..] else { continue };
            let names: Vec<&str> = names.split('`').skip(1).step_by(2).filter(|name| is_constant(name)).collect();
            if names.is_empty() {
                continue;
            }
            let file = format!("{folder}/{}", file.split('`').nth(1).unwrap_or_else(|| panic!("{row}: which file?")));
            let source = read(&file);
            let of = |name: &&str| numbers_of(&source, name).unwrap_or_else(|| panic!("{file} has no constant {name}"));
            let (set, said): (Vec<_>, _) = (names.iter().flat_map(of).collect(), numbers_in(value));
            // Numbers without a unit are seconds, or count something.
            let is_same = |(said, set): (&u64, &(u64, Option<u64>))| match *set {
                (number, Some(unit)) => *said == number * unit,
                (number, None) => *said == number || *said == number * 1000,
            };
            let same = said.len() == set.len() && said.iter().zip(&set).all(is_same);
            assert!(same, "docs/timers.md says {value} of {names:?}, and {file} has {set:?}");
            count += names.len();
        }
    }
    assert!(count > 80, "{count}");
}

#[test]
fn every_time_in_the_code_is_among_the_timers() {
    let (page, mut count) = (read("docs/timers.md"), 0);
    for folder in [
        "cluster-hooks",
        "controller-support",
        "etcd-cluster-controller",
        "etcdadm",
        "etcdadm-bootstrap",
        "kubectl-etcdcluster",
        "local-infrastructure",
        "manager",
    ] {
        let (folder, mut files) = (repository(folder), Vec::new());
        sources(&folder.join("src"), &mut files);
        for file in &files {
            let source = std::fs::read_to_string(file).unwrap();
            // Tests are at the end of a file, and have their own times.
            let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let path = file.strip_prefix(&folder).unwrap().to_string_lossy();
            for line in product.lines() {
                let constant = line.split_once("const ").and_then(|(_, rest)| rest.split_once(": "));
                let Some((name, kind)) = constant.filter(|(name, _)| is_constant(name)) else { continue };
                // One time, or two.
                if !kind.trim_start_matches('(').trim_start_matches("Signed").starts_with("Duration") {
                    continue;
                }
                count += 1;
                let (name, path) = (format!("`{name}`"), format!("`{path}`"));
                let there = page.lines().any(|row| row.contains(&name) && row.contains(&path));
                assert!(there, "docs/timers.md lacks {name} of {}", file.display());
            }
        }
    }
    assert!(count > 60, "{count}");
}

/// The tests that replay faults of others exist, and run where the table says: without `E2E_FULL=1`, or only with it.
#[test]
fn faults_of_others_are_replayed() {
    let (mut lists, mut files, mut count) = (String::new(), Vec::new(), 0);
    for member in std::fs::read_dir(repository("")).unwrap() {
        let member = member.unwrap().path();
        for folder in ["src", "tests"].map(|folder| member.join(folder)) {
            if member.join("Cargo.toml").exists() && folder.exists() {
                sources_and_tests(&folder, &mut files);
            }
        }
    }
    for file in files.iter().filter(|file| file.starts_with(repository("e2e/tests")) && file.ends_with("main.rs")) {
        lists += &std::fs::read_to_string(file).unwrap();
    }
    let tests: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();

    let page = read("docs/testbed.md");
    let (_, section) = page.split_once("\n## Faults of others").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).skip(1);
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", _, core, full, ""] = cells[..] else { panic!("{row}: these are not three columns") };
        assert!(core.contains('`') || full.contains('`'), "{row}: nobody replays it");
        for (cell, is_core) in [(core, true), (full, false)] {
            for name in cell.split('`').skip(1).step_by(2) {
                count += 1;
                let is_it =
                    |line: &&str| [format!("!({name})"), format!("!({name},")].iter().any(|list| line.contains(list));
                let is_long = |line: &str| line.contains(".long(true)") || line.contains("core: false");
                let there = if name.contains("::") {
                    lists.lines().filter(is_it).any(|line| is_long(line) != is_core)
                } else {
                    let is_listed = || lists.contains(&format!("\"{name}\""));
                    is_core && (is_listed() || tests.contains(&format!("fn {name}(")))
                };
                assert!(there, "docs/testbed.md: {name} is not there, or not where {row:?} says");
            }
        }
    }
    assert!(count > 60, "{count}");
}

/// The lines `NAME = ...` and `NAME.workspace = true` of the sections of a Cargo.toml whose names end in `section`.
fn dependencies(manifest: &str, section: &str) -> Vec<(String, String)> {
    let mut within = false;
    let entries = manifest.lines().filter(|line| {
        if let Some(title) = line.strip_prefix('[') {
            within = title.ends_with(&format!("{section}]"));
        }
        within && line.starts_with(|first: char| first.is_ascii_alphabetic())
    });
    let name = |line: &str| line.split([' ', '.']).next().unwrap_or_default().to_owned();
    entries.map(|line| (name(line), line.to_owned())).collect()
}

#[test]
fn every_dependency_is_justified_and_used() {
    let all = dependencies(&read("Cargo.toml"), "workspace.dependencies");
    let (ours, others): (Vec<_>, Vec<_>) = all.iter().partition(|(_, line)| line.contains("{ path = "));
    let names = |list: Vec<&(String, String)>| list.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<String>>();
    let (ours, others) = (names(ours), names(others));
    assert!(ours.len() > 5 && others.len() > 30, "{ours:?} {others:?}");

    let page = read("docs/dependencies.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `")).map(|row| row.split('|').collect()).collect();
    for row in &rows {
        assert!(row.len() == 5 && row.iter().skip(1).take(3).all(|cell| cell.trim().len() > 2), "{row:?}");
    }
    let justified: Vec<String> = rows.iter().map(|row| row[1].trim().trim_matches('`').to_owned()).collect();
    assert_eq!(justified.iter().cloned().collect::<BTreeSet<_>>(), others, "docs/dependencies.md on the left");
    assert_eq!(justified.len(), others.len(), "a crate has two rows");

    let mut used = BTreeSet::new();
    for member in std::fs::read_dir(repository("")).unwrap() {
        let Ok(manifest) = std::fs::read_to_string(member.unwrap().path().join("Cargo.toml")) else { continue };
        used.extend(dependencies(&manifest, "dependencies").into_iter().map(|(name, _)| name));
    }
    let unused: Vec<_> = others.iter().chain(&ours).filter(|name| !used.contains(name.as_str())).collect();
    assert!(unused.is_empty(), "no crate of ours uses {unused:?}");
}

/// Every page: those of the folders of `docs/`, and the ones beside it.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(repository).to_vec();
    let folders = ["docs", "docs/decisions", "docs/tasks"].map(|folder| std::fs::read_dir(repository(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    pages.extend(files.filter(|path| path.is_file()));
    pages
}

/// The headings of a page as links name them: in lower case, without punctuation, with dashes for spaces.
fn headings(text: &str) -> BTreeSet<String> {
    // What is between fences is not a heading.
    let parts = text.split("```").step_by(2);
    let headings = parts.flat_map(str::lines).filter(|line| line.starts_with('#')).map(|line| line.trim_matches('#'));
    headings
        .map(|heading| {
            let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for page in &pages() {
        let text = std::fs::read_to_string(page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            count += 1;
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            assert!(path.exists(), "{}: {target} does not exist", page.display());
            if !heading.is_empty() {
                let there = headings(&std::fs::read_to_string(&path).unwrap());
                assert!(there.contains(heading), "{}: {target} is not a heading there", page.display());
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// Whatever people are told to type exists: scripts, folders and files of the repository, and targets of the Makefile.
#[test]
fn what_commands_name_is_there() {
    let makefile = read("Makefile");
    let mut count = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let blocks = text.split("```").skip(1).step_by(2).flat_map(str::lines);
        let around = text.split("```").step_by(2).flat_map(|text| text.split("\n\n"));
        for line in blocks.chain(around.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2))) {
            let words: Vec<&str> = line.split_whitespace().collect();
            for word in &words {
                // In a copy, the source comes before a colon.
                let path = word.trim_start_matches("./").split(':').next().unwrap_or_default();
                if ["hack/", "config/", "examples/"].iter().any(|folder| path.starts_with(folder)) {
                    count += 1;
                    assert!(repository(path).exists(), "{}: {line}: {path} does not exist", page.display());
                }
            }
            // Variables may come before the command.
            let command: Vec<&str> = words.iter().copied().skip_while(|word| word.contains('=')).collect();
            if let ["make", target, ..] = command[..] {
                count += 1;
                let there = makefile.lines().any(|rule| rule.starts_with(&format!("{target}:")));
                assert!(there, "{}: {line}: the Makefile has no {target}", page.display());
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// Another operator may have a kind EtcdCluster too, and kubectl then uses the short name for either.
#[test]
fn commands_name_etcd_clusters_in_full() {
    let (full, mut count) = (EtcdCluster::crd().metadata.name.unwrap(), 0);
    // The demo prints commands too.
    let printed = ["e2e/src/demo.rs", "e2e/src/demo/docker.rs"].map(repository);
    for page in pages().into_iter().chain(printed) {
        let text = std::fs::read_to_string(&page).unwrap();
        for command in text.split("kubectl ").skip(1) {
            let command = command.split(['\n', '`']).next().unwrap_or_default();
            // The first word is a verb, or the plugin's name.
            for word in command.split([' ', ',', '/', '=']).skip(1) {
                count += usize::from(word == full);
                let short = word == "etcdcluster" || word == "etcdclusters";
                assert!(!short, "{}: kubectl {command}: {word} should be {full}", page.display());
            }
        }
    }
    assert!(count > 20, "{count}");
}

/// What `sed` replaces or removes in a file of ours is in that file, and no longer in the result.
#[test]
fn what_sed_is_to_change_is_there() {
    let mut count = 0;
    for page in ["README.md", "docs/examples.md", "docs/install.md"] {
        let text = read(page).replace("\\\n", " ");
        for line in text.lines().map(str::trim).filter(|line| line.starts_with("sed ")) {
            let mut words = line.split('\'').step_by(2).flat_map(str::split_whitespace);
            let file = words.find(|word| word.ends_with(".yaml")).unwrap_or_else(|| panic!("{line}: of which file?"));
            // As hack/release.sh names it.
            let file = file.replace("out/release/cluster-template-docker", "examples/docker/cluster-template");
            let file = file.replace("out/release/install.yaml", "config/default/kustomization.yaml");
            let mut made: Vec<String> = read(&file).lines().map(str::to_owned).collect();
            let mut gone = Vec::new();
            for script in line.split('\'').skip(1).step_by(2) {
                let parts: Vec<&str> = script.split('|').collect();
                let (from, to) = match parts[..] {
                    ["s", from, to, ""] => (from, Some(to)),
                    [taken] => (taken.trim_start_matches('/').trim_end_matches("/d"), None),
                    _ => panic!("{line}: what is {script}?"),
                };
                assert!(made.iter().any(|line| line.contains(from)), "{page}: {file} has no {from}");
                match to {
                    Some(to) => made.iter_mut().for_each(|line| *line = line.replacen(from, to, 1)),
                    None => made.retain(|line| !line.contains(from)),
                }
                gone.push(from);
                count += 1;
            }
            let left: Vec<&String> = made.iter().filter(|line| gone.iter().any(|from| line.contains(from))).collect();
            assert!(left.is_empty(), "{page}: {file} still has {left:?}");
        }
    }
    assert!(count > 4, "{count}");
}

#[test]
fn every_page_is_in_the_contents_and_in_the_index() {
    let docs = repository("docs");
    let pages = pages();
    let names = pages.iter().filter_map(|page| page.strip_prefix(&docs).ok()).map(|page| page.to_string_lossy());
    let names: Vec<_> = names.filter(|name| name != "SUMMARY.md").collect();
    assert!(names.len() > 30, "{names:?}");
    let (contents, index) = (read("docs/SUMMARY.md"), read("docs/README.md"));
    for name in &names {
        let link = format!("]({name})");
        assert_eq!(contents.matches(&link).count(), 1, "docs/SUMMARY.md has {name} not once");
        let is_decision = name.starts_with("decisions/0");
        assert!(is_decision || name == "README.md" || index.contains(&link), "docs/README.md lacks {name}");
    }
}

/// Whoever names the page of the dashboard wants a picture of it. No browser is needed to see that there is no page.
#[test]
fn a_page_that_is_not_there_has_no_picture() {
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    let mut script = std::process::Command::new(repository("hack/pictures.sh"));
    let out = script.arg("site").arg(&pictures).arg(pictures.join("no-page.html")).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("no-page.html does not exist"), "{said}");
}
