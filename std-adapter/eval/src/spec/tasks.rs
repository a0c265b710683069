//! The tasks of an eval: its list, the files and tables that it names, and the cases of a task.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::members::{TASK_MEMBERS, rest};
use super::reader::Reader;
use super::shared_graders::{Graders, tell_measurements_apart};
use super::source::read;
use super::task::{prompt, task};
use super::texts::unescape;
use super::{Fault, SIZE_LIMIT, TASK_LIMIT, Task};
use crate::expand::{self, Axes};
use crate::walk;
use crate::yaml::{Node, NodeKind};

pub(super) fn tasks(reader: &mut Reader<'_>, eval: &Node, folder: &Path, set: &[(String, String)]) -> Vec<Task> {
    let mut listing = Tasks {
        folder,
        tasks: Vec::new(),
        ids: HashSet::new(),
        files: HashSet::new(),
        found: HashMap::new(),
        read: HashMap::new(),
        room: SIZE_LIMIT,
        set,
        lists: expand::lists(eval, set),
        axes: HashSet::new(),
        common: Axes { matrix: eval.get("matrix"), rows: eval.get("for") },
        is_broken: false,
        graders: Graders::read(reader, eval),
    };
    // Those of the eval are read once, so that their faults are reported once, with the place in this
    // file.
    if let Err((line, text)) = expand::cases(listing.common, eval.line, set, 0, TASK_LIMIT) {
        reader.fault_of_cases(line, text);
        return Vec::new();
    }
    listing.axes.extend(expand::names(listing.common));
    let rows = match eval.get("tasks_from") {
        Some(from) => match rows(reader, from, eval, folder) {
            Some(rows) => rows,
            None => return Vec::new(),
        },
        None => {
            if let Some(range) = eval.get("range") {
                reader.warn(range, "range: it has no effect without tasks_from");
            }
            vec![Vec::new()]
        }
    };
    let Some(member) = eval.get("tasks") else {
        match eval.get("tasks_from") {
            None => reader.fault(eval, "Missing required field: tasks"),
            Some(from) => {
                for (place, row) in rows.iter().enumerate() {
                    listing.row(reader, from, row, place);
                }
            }
        }
        listing.unknown_names(reader, eval);
        return listing.tasks;
    };
    let listed = match &member.kind {
        NodeKind::Text(_) => std::slice::from_ref(member),
        _ => reader.list(eval, "tasks"),
    };
    if listed.is_empty() && matches!(member.kind, NodeKind::List(_)) {
        reader.fault(member, "tasks: there are none");
    }
    let own = reader.vars.to_vec();
    for (place, row) in rows.iter().enumerate() {
        let suffix = eval.get("tasks_from").map(|_| format!("-row-{}", place + 1));
        // A row's columns go before the eval's inputs of the same names.
        let vars: Vec<_> = columns(row).chain(own.iter().cloned()).collect();
        let mut reader = reader.with(&vars);
        listing.files.clear();
        // The other rows have the same broken cases.
        if !listing.list(&mut reader, listed, suffix.as_deref()) || listing.is_broken {
            break;
        }
    }
    listing.unknown_names(reader, eval);
    listing.tasks
}

/// The tasks of an eval, as they are found.
struct Tasks<'f> {
    folder: &'f Path,
    tasks: Vec<Task>,
    ids: HashSet<String>,
    files: HashSet<PathBuf>,
    /// The files of patterns. Each pattern is searched once, for any number of rows.
    found: HashMap<String, Vec<PathBuf>>,
    /// Task files that were read, with their sizes.
    read: HashMap<PathBuf, (Node, usize)>,
    /// How many bytes of task files may still be made tasks of.
    room: usize,
    /// Values that the command line sets.
    set: &'f [(String, String)],
    /// The eval's inputs that are lists or maps.
    lists: Vec<(String, Node)>,
    /// The names of all axes there are.
    axes: HashSet<String>,
    /// The eval's `matrix` and `for`, for tasks without them.
    common: Axes<'f>,
    /// Whether cases could not be made of a task.
    is_broken: bool,
    /// The eval's graders.
    graders: Graders<'f>,
}

impl Tasks<'_> {
    /// Records the names of `--set` that nothing has as faults.
    fn unknown_names(&self, reader: &mut Reader<'_>, eval: &Node) {
        let inputs = eval.get("inputs").map(Node::members).unwrap_or_default();
        let known: Vec<&str> =
            inputs.iter().map(|(name, _)| name.as_str()).chain(self.axes.iter().map(String::as_str)).collect();
        for (name, _) in self.set.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            let text = format!(
                "--set {name}: no input and no value of matrix or for has this name{}",
                expand::meant(name, &known)
            );
            reader.fault_of_cases(expand::OPTION, text);
        }
    }

    /// Whether there is room for more.
    fn list(&mut self, reader: &mut Reader<'_>, listed: &[Node], suffix: Option<&str>) -> bool {
        for element in listed {
            match &element.kind {
                NodeKind::Text(pattern) => {
                    let Some(found) = self.matching(reader, element, pattern) else { continue };
                    // A pattern that takes in the eval's own file does not mean it.
                    let (is_pattern, own) = (pattern.contains(['*', '?', '[']), reader.path);
                    for path in found.into_iter().filter(|path| !is_pattern || path != own) {
                        if self.is_full(reader, element) {
                            return false;
                        }
                        if self.files.insert(path.clone()) {
                            self.file(reader, &path, None, suffix);
                        }
                    }
                }
                NodeKind::Map(_) => {
                    if self.is_full(reader, element) {
                        return false;
                    }
                    match element.get("file").map(|file| (file, file.text())) {
                        Some((_, Some(file))) => self.file(reader, &self.folder.join(file), Some(element), suffix),
                        Some((file, None)) => {
                            reader.fault(file, format!("file: expected a string, found {}", file.what()));
                        }
                        None => {
                            let file = reader.file.to_owned();
                            self.cases(reader, element, &file, suffix);
                        }
                    }
                }
                _ => {
                    reader
                        .fault(element, format!("tasks: expected a file's name or pattern, found {}", element.what()));
                }
            }
        }
        true
    }

    fn matching(&mut self, reader: &mut Reader<'_>, element: &Node, pattern: &str) -> Option<Vec<PathBuf>> {
        if let Some(found) = self.found.get(pattern) {
            return Some(found.clone());
        }
        let found = match walk::matching(self.folder, pattern) {
            Ok(found) => found,
            Err(error) => {
                reader.fault(element, format!("tasks: {pattern}: {error}"));
                return None;
            }
        };
        for trouble in found.troubles {
            reader.warn(element, format!("tasks: {pattern}: {trouble}"));
        }
        if found.files.is_empty() {
            reader.fault(element, format!("No task file matches {pattern}"));
        }
        self.found.insert(pattern.to_owned(), found.files.clone());
        Some(found.files)
    }

    fn is_full(&self, reader: &mut Reader<'_>, element: &Node) -> bool {
        let is_full = self.tasks.len() >= TASK_LIMIT;
        if is_full {
            reader.fault(element, format!("An eval has at most {TASK_LIMIT} tasks"));
        }
        is_full
    }

    /// Reads a task's file. The members of its entry in the eval replace those of the file.
    fn file(&mut self, reader: &mut Reader<'_>, path: &Path, entry: Option<&Node>, suffix: Option<&str>) {
        let file = path.strip_prefix(self.folder).unwrap_or(path).to_string_lossy().into_owned();
        let mut fault =
            |text, line| reader.faults.push(Fault { text, path: path.to_owned(), file: file.clone(), line });
        let (mut node, size) = match self.read.get(path) {
            Some((node, size)) => (node.clone(), *size),
            None => {
                let source = match read(path) {
                    Ok(source) => source,
                    Err(error) => return fault(format!("Cannot be read: {error}"), None),
                };
                match Node::parse(&source) {
                    Ok(node) => {
                        self.read.insert(path.to_owned(), (node.clone(), source.len()));
                        (node, source.len())
                    }
                    Err(error) => return fault(format!("Not valid YAML: {}", error.text), error.line),
                }
            }
        };
        match self.room.checked_sub(size) {
            Some(room) => self.room = room,
            None => return fault(format!("An eval's tasks have at most {SIZE_LIMIT} bytes"), None),
        }
        for (name, member) in entry.map(Node::members).unwrap_or_default().iter().filter(|(name, _)| name != "file") {
            node.set(name, member.clone());
        }
        let mut inner = Reader { path, file: &file, ..reader.with(reader.vars) };
        self.cases(&mut inner, &node, &file, suffix);
    }

    /// The tasks that a task of a file expands to: one, or one for each case of `matrix` and `for`.
    fn cases(&mut self, reader: &mut Reader<'_>, node: &Node, file: &str, suffix: Option<&str>) {
        let axes =
            Axes { matrix: node.get("matrix").or(self.common.matrix), rows: node.get("for").or(self.common.rows) };
        self.axes.extend(expand::names(axes));
        let cases = match expand::cases(axes, node.line, self.set, self.tasks.len(), TASK_LIMIT) {
            Ok(cases) => cases,
            Err((line, text)) => {
                self.is_broken = true;
                return reader.fault_of_cases(line, text);
            }
        };
        // Clients see these, also while the task runs.
        for name in ["id", "name", "description"] {
            if let Some(member) =
                node.get(name).filter(|member| member.text().is_some_and(|text| expand::has_env(&text)))
            {
                let text = format!("{name}: clients see it, so it must not have the value of an environment variable");
                return reader.fault(member, text);
            }
        }
        // A case has its own values only: all of them, in each, would be their square.
        let mut plain = node.clone();
        plain.remove(&["matrix", "for"]);
        let node = &plain;
        for case in cases {
            let vars: Vec<_> = case.iter().chain(reader.vars).cloned().collect();
            let public: Vec<_> = vars.iter().filter(|(name, _)| !name.starts_with("env.")).cloned().collect();
            let (mut shown, mut full) = (node.clone(), node.clone());
            expand::fill(&mut shown, &public);
            expand::keep_lists(&mut full, &vars, &self.lists);
            expand::fill(&mut full, &vars);
            for filled in [&mut shown, &mut full] {
                distinguish(filled, node, suffix, &case, reader.vars);
            }
            let mut reader = reader.with(&vars);
            let faults = reader.faults.len();
            reader.unfilled(&full, "");
            if reader.faults.len() == faults {
                unescape(&mut full);
                if let Some(mut made) = task(&mut reader, &full, file, &mut self.ids) {
                    // What an environment variable held is not shown.
                    made.members = rest(&shown, TASK_MEMBERS);
                    made.shown_prompt = prompt(&shown).and_then(Node::text);
                    made.graders_json = shown.get("graders").map_or_else(|| "[]".to_owned(), Node::json);
                    self.graders.add_to(&mut reader, &mut made);
                    tell_measurements_apart(&mut made.graders);
                    self.tasks.push(made);
                }
            }
            // The other cases have the same faults.
            if reader.faults.len() > faults {
                break;
            }
        }
    }

    /// The task of a row of `tasks_from`: its columns `id`, `name`, `prompt` and so on are the members.
    fn row(&mut self, reader: &mut Reader<'_>, from: &Node, row: &[(String, String)], place: usize) {
        if self.is_full(reader, from) {
            return;
        }
        let mut node = Node::empty_map(from);
        for (name, text) in row {
            if ["id", "name", "description", "prompt", "timeout"].contains(&name.as_str()) && !text.is_empty() {
                node.set(name, Node::of_column(text, from));
            }
        }
        if node.get("id").is_none() {
            node.set("id", Node::of_text(&format!("row-{}", place + 1), from));
        }
        let file = from.text().unwrap_or_default();
        if self.common.matrix.is_some() || self.common.rows.is_some() {
            return self.cases(reader, &node, &file, None);
        }
        if let Some(mut made) = task(reader, &node, &file, &mut self.ids) {
            let vars: Vec<_> = columns(row).chain(reader.vars.iter().cloned()).collect();
            self.graders.add_to(&mut reader.with(&vars), &mut made);
            tell_measurements_apart(&mut made.graders);
            self.tasks.push(made);
        }
    }
}

/// Adds the row and the case to the id and the name of a task, unless a placeholder did. `before` is the
/// task as it was written, and `vars` has the row's columns.
fn distinguish(node: &mut Node, before: &Node, suffix: Option<&str>, case: &expand::Case, vars: &[(String, String)]) {
    let text = |node: &Node, name: &str| node.get(name).and_then(Node::text);
    let columns: Vec<_> = vars.iter().filter(|(name, _)| name.starts_with("vars.")).cloned().collect();
    if let (Some(id), Some(written)) = (text(node, "id"), text(before, "id").filter(|id| !id.trim().is_empty())) {
        let suffix = suffix.filter(|_| !expand::mentions(&written, &columns)).unwrap_or_default();
        let case = if case.is_empty() || expand::mentions(&written, case) {
            String::new()
        } else {
            format!("[{}]", expand::label(case, ","))
        };
        node.set("id", Node::of_text(&format!("{id}{suffix}{case}"), node));
    }
    if let (Some(name), Some(written)) = (text(node, "name"), text(before, "name"))
        && !case.is_empty()
        && !expand::mentions(&written, case)
    {
        node.set("name", Node::of_text(&format!("{name} ({})", expand::label(case, ", ")), node));
    }
}

/// The rows of the CSV file that `tasks_from` names, by their columns' names.
fn rows(reader: &mut Reader<'_>, from: &Node, eval: &Node, folder: &Path) -> Option<Vec<Vec<(String, String)>>> {
    let Some(name) = from.text() else {
        reader.fault(from, format!("tasks_from: expected the name of a CSV file, found {}", from.what()));
        return None;
    };
    let path = folder.join(&name);
    let mut fault = |text: String, line| {
        reader.faults.push(Fault { text, path: path.clone(), file: name.clone(), line });
    };
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) => {
            fault(format!("tasks_from: cannot be read: {error}"), None);
            return None;
        }
    };
    let mut table = csv::ReaderBuilder::new().from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let header = match table.headers() {
        Ok(header) => header.clone(),
        Err(error) => {
            fault(format!("tasks_from: not valid CSV: {error}"), None);
            return None;
        }
    };
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    let mut named = names.iter().enumerate().filter(|(_, name)| !name.is_empty());
    if let Some((_, twice)) = named.find(|(place, name)| names.iter().take(*place).any(|known| known == *name)) {
        fault(format!("tasks_from: two columns have the name {twice}"), Some(1));
        return None;
    }
    let mut rows = Vec::new();
    for record in table.records() {
        match record {
            Ok(record) => {
                let row = header.iter().zip(record.iter());
                rows.push(row.map(|(name, value)| (name.trim().to_owned(), value.to_owned())).collect());
            }
            Err(error) => {
                let line = error.position().and_then(|position| u32::try_from(position.line()).ok());
                fault(format!("tasks_from: not valid CSV: {error}"), line);
                return None;
            }
        }
    }
    // `range: [first, last]`, from 1, both included.
    if let Some(range) = eval.get("range") {
        let ends: Option<Vec<usize>> = range.elements().iter().map(|end| end.digits()?.parse().ok()).collect();
        match ends.as_deref() {
            Some([first, last]) if *first >= 1 && first <= last => {
                rows = rows.into_iter().take(*last).skip(first - 1).collect();
            }
            _ => reader.fault(range, "range: expected the first and the last row, such as [1, 10]"),
        }
    }
    if rows.is_empty() {
        reader.fault(from, format!("tasks_from: {name} has no rows"));
    }
    Some(rows)
}

/// A row's columns, as variables.
fn columns(row: &[(String, String)]) -> impl Iterator<Item = (String, String)> {
    row.iter().map(|(name, value)| (format!("vars.{name}"), value.clone()))
}
