//! Expansion of one task into several: `matrix`, `for`, and the values of placeholders such as `{{matrix.NAME}}`.

use std::collections::HashSet;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::yaml::{Node, NodeKind};
use rigline_host::coerce::nearest_or_longer;
use rigline_host::number;
use rigline_host::terminal::is_control;

/// Values by their names, which have the kind before them: `matrix.channel`, `for.rail`, `vars.column`, `inputs.board`, `env.BENCH`.
pub(super) type Values = Vec<(String, String)>;

/// The values of one case, of the kinds `matrix` and `for`.
pub(super) type Case = Values;

/// The values of `matrix` and `for`, with their lines.
#[derive(Clone, Copy)]
pub(super) struct Axes<'n> {
    pub(super) matrix: Option<&'n Node>,
    pub(super) rows: Option<&'n Node>,
}

/// The fault and its line, or that the option `--set` is at fault.
pub(super) type Fault = (u32, String);

/// In the place of a line: the fault is in the option `--set`.
pub(super) const OPTION: u32 = 0;

/// The pattern of variables: `{{.Vars.NAME}}`, `{{matrix.NAME}}`, `{{for.NAME}}`, `{{vars.NAME}}`, `{{inputs.NAME}}`,
/// `{{env.NAME}}`.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*(\.(?:Vars|vars|Inputs|inputs)|matrix|for|vars|inputs|env)\.([A-Za-z0-9_-]+)\s*\}\}")
        .expect("a constant pattern")
});
/// The beginning of a placeholder that must have a value.
static ALMOST: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\{\s*(matrix|for|vars|inputs|env)\b[^{}]*\}*").expect("a constant pattern"));

/// A name without its kind.
fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(_, plain)| plain)
}

/// The value of a placeholder of this kind and name.
fn find<'v>(kind: &str, name: &str, values: &'v [(String, String)]) -> Option<&'v str> {
    entry(kind, name, values).map(|(_, value)| value.as_str())
}

/// The value of a placeholder of this kind and name, with the name that it is known by.
fn entry<'v>(kind: &str, name: &str, values: &'v [(String, String)]) -> Option<&'v (String, String)> {
    let is_meant = |known: &str| match (kind, known.split_once('.').unwrap_or(("", known))) {
        ("matrix" | "for" | "env", (of, plain)) => of == kind && plain == name,
        // A column of the table goes before an input of the same name.
        ("inputs", (of, plain)) => matches!(of, "vars" | "inputs") && plain == name,
        (_, (of, plain)) => of != "env" && plain == name,
    };
    values.iter().find(|(known, _)| is_meant(known))
}

/// Whether a text has a placeholder that one of these values fills.
pub(super) fn mentions(text: &str, values: &[(String, String)]) -> bool {
    VARIABLE.captures_iter(text).any(|found| find(&found[1], &found[2], values).is_some())
}

/// Whether a text in a node has a variable.
pub(super) fn has_variable(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Text(text) => VARIABLE.is_match(text),
        NodeKind::List(elements) => elements.iter().any(has_variable),
        NodeKind::Map(members) => members.iter().any(|(_, member)| has_variable(member)),
        _ => false,
    }
}

/// Whether a text has a placeholder of an environment variable.
pub(super) fn has_env(text: &str) -> bool {
    VARIABLE.captures_iter(text).any(|found| &found[1] == "env")
}

/// The eval's `inputs` that are lists or maps and that the command line does not set.
pub(super) fn lists(eval: &Node, set: &[(String, String)]) -> Vec<(String, Node)> {
    let inputs = eval.get("inputs").map(Node::members).unwrap_or_default().iter();
    let lists =
        inputs.filter(|(name, node)| (node.is_list() || node.is_map()) && !set.iter().any(|(set, _)| set == name));
    lists.map(|(name, node)| (format!("inputs.{name}"), node.clone())).collect()
}

/// Keeps, for each text that is one variable and nothing else, the one of [`lists`] that [`fill`] will put there as a text.
pub(super) fn keep_lists(node: &mut Node, values: &[(String, String)], lists: &[(String, Node)]) {
    if lists.is_empty() {
        return;
    }
    node.keep_sources(&|text| {
        let found = VARIABLE.captures(text).filter(|found| found[0].len() == text.trim().len())?;
        let (known, _) = entry(&found[1], &found[2], values)?;
        lists.iter().find(|(name, _)| name == known).map(|(_, node)| node.clone())
    });
}

/// Puts values in the place of variables. Those that have no value stay as they are.
pub(super) fn fill(node: &mut Node, values: &[(String, String)]) {
    node.each_text_mut(&mut |text| {
        let is_whole = VARIABLE.find(text).is_some_and(|found| found.len() == text.trim().len());
        VARIABLE.is_match(text).then(|| {
            let changed = VARIABLE.replace_all(text, |found: &Captures<'_>| value_of(found, values).to_owned());
            (changed.into_owned(), is_whole)
        })
    });
}

fn value_of<'t>(found: &Captures<'t>, values: &'t [(String, String)]) -> &'t str {
    let part = |place| found.get(place).map_or("", |part| part.as_str());
    find(part(1), part(2), values).unwrap_or(part(0))
}

/// The faults of the variables that remain in a node after [`fill`], with their lines.
pub(super) fn unfilled(node: &Node, values: &[(String, String)], wrong: &mut Vec<(u32, String)>) {
    match &node.kind {
        NodeKind::Text(text) => {
            for found in ALMOST.captures_iter(text) {
                let (whole, kind) = (&found[0], &found[1]);
                let name = VARIABLE.captures(whole).map(|found| found[2].to_owned());
                let text = match (kind, name) {
                    (_, None) => format!("{whole}: write {{{{{kind}.NAME}}}}, NAME being of letters, digits, - and _"),
                    // It was not there when values were filled in, so one of them brought it.
                    (kind, Some(name)) if find(kind, &name, values).is_some() => {
                        format!("{whole}: this is part of a value, and placeholders in values are not filled in")
                    }
                    ("env", Some(name)) => format!("{whole}: add {name} to config.allow_env to let it in"),
                    (kind, Some(name)) => {
                        format!("{whole}: there is no value of this name{}", other(kind, &name, values))
                    }
                };
                wrong.push((node.line, text));
            }
        }
        NodeKind::List(elements) => elements.iter().for_each(|element| unfilled(element, values, wrong)),
        NodeKind::Map(members) => members.iter().for_each(|(_, member)| unfilled(member, values, wrong)),
        _ => {}
    }
}

/// A suggestion for a placeholder without a value: the same name of another kind, or another name of its kind.
fn other(kind: &str, name: &str, values: &[(String, String)]) -> String {
    let kinds = values.iter().filter(|(known, _)| !known.starts_with("env."));
    if let Some((known, _)) = kinds.clone().find(|(known, _)| plain(known) == name) {
        return format!("; did you mean `{{{{{known}}}}}`?");
    }
    let names = kinds.map(|(known, _)| plain(known));
    let known: Vec<&str> = names.filter(|known| find(kind, known, values).is_some()).collect();
    meant(name, &known)
}

/// "; did you mean …?", or the names there are.
pub(super) fn meant(name: &str, known: &[&str]) -> String {
    match (nearest_or_longer(name, known), known) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, []) => String::new(),
        (None, known) => format!("; known names: {}", known.join(", ")),
    }
}

/// The cases that `matrix` and `for` make of a task at this line; one without values, if there is neither. `set` has
/// the values of the command line, of which the last one of a name counts. At most `limit` tasks are allowed, of which
/// `taken` exist already.
///
/// # Errors
/// What is wrong, with its line.
pub(super) fn cases(
    of: Axes<'_>,
    line: u32,
    set: &[(String, String)],
    taken: usize,
    limit: usize,
) -> Result<Vec<Case>, Fault> {
    let rows = match of.rows {
        Some(node) => rows(node, set)?,
        None => vec![Vec::new()],
    };
    let axes = match of.matrix {
        Some(node) => axes(node, set)?,
        None => Vec::new(),
    };
    if let Some(row) = rows.first()
        && let Some((name, _)) = axes.iter().find(|(name, _)| row.iter().any(|(other, _)| plain(other) == plain(name)))
    {
        return Err((line, format!("{} is in both matrix and for", plain(name))));
    }
    // Counted before anything is made.
    let count = axes.iter().try_fold(rows.len() as u128, |count, (_, values)| count.checked_mul(values.len() as u128));
    if count.is_none_or(|count| count > limit.saturating_sub(taken) as u128) {
        let what = match (of.matrix, of.rows) {
            (Some(_), Some(_)) => "matrix and for",
            (None, Some(_)) => "for",
            _ => "matrix",
        };
        let count = count.map_or_else(|| format!("over {}", u128::MAX), |count| count.to_string());
        let before = if taken == 0 { String::new() } else { format!(" after {taken} tasks") };
        return Err((line, format!("{what}: {count} cases{before}, and an eval has at most {limit} tasks")));
    }
    let mut cases = rows;
    for (name, values) in axes {
        cases = cases
            .iter()
            .flat_map(|case| {
                values.iter().map(|value| {
                    let mut case = case.clone();
                    case.push((name.clone(), value.clone()));
                    case
                })
            })
            .collect();
    }
    Ok(cases)
}

/// The names of all axes.
pub(super) fn names(of: Axes<'_>) -> Vec<String> {
    let of_map = |node: &Node| node.members().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let mut names = of.matrix.map(of_map).unwrap_or_default();
    if let Some(node) = of.rows {
        names.extend(of_map(node.elements().first().unwrap_or(node)));
    }
    names
}

/// A case as the suffix of a task's id: `channel=3V3,samples=1`. Control characters are escaped.
pub(super) fn label(case: &Case, between: &str) -> String {
    case.iter().map(|(name, value)| format!("{}={}", plain(name), escaped(value))).collect::<Vec<_>>().join(between)
}

fn escaped(value: &str) -> String {
    value.chars().fold(String::with_capacity(value.len()), |mut text, char| {
        if is_control(char) {
            text.extend(char.escape_default());
        } else {
            text.push(char);
        }
        text
    })
}

fn scalar(what: &str, name: &str, node: &Node) -> Result<String, Fault> {
    let Some(text) = node.text() else {
        return Err((
            node.line,
            format!("{what}.{name}: expected a string, a number, true or false, found {}", node.what()),
        ));
    };
    if text.contains("{{") {
        return Err((node.line, format!("{what}.{name}: a value has no placeholders")));
    }
    Ok(text)
}

fn checked_name(what: &str, name: &str, node: &Node) -> Result<(), Fault> {
    let is_plain = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || "_-".contains(char));
    if is_plain {
        return Ok(());
    }
    Err((node.line, format!("{what}: the name {name:?} has other characters than letters, digits, - and _")))
}

/// A list of scalars that differ.
fn values(what: &str, name: &str, node: &Node) -> Result<Vec<String>, Fault> {
    checked_name(what, name, node)?;
    if !node.is_list() {
        return Err((node.line, format!("{what}.{name}: expected a list, found {}", node.what())));
    }
    let values = node.elements().iter().map(|element| scalar(what, name, element)).collect::<Result<Vec<_>, _>>()?;
    if values.is_empty() {
        return Err((node.line, format!("{what}.{name}: there are no values")));
    }
    Ok(values)
}

/// Whether two values are equal, numbers with all their digits: `3.10` is `3.1`.
fn is_same(one: &str, other: &str) -> bool {
    one == other || number::decimal(one).is_some_and(|one| number::decimal(other) == Some(one))
}

fn axes(node: &Node, set: &[(String, String)]) -> Result<Vec<(String, Vec<String>)>, Fault> {
    if !node.is_map() || node.members().is_empty() {
        return Err((node.line, format!("matrix: expected a map of lists, found {}", node.what())));
    }
    let mut axes = Vec::new();
    for (name, member) in node.members() {
        let mut values = values("matrix", name, member)?;
        let mut seen = HashSet::new();
        if let Some(twice) = values.iter().find(|value| !seen.insert(value.as_str())) {
            return Err((member.line, format!("matrix.{name}: {twice} is there twice")));
        }
        if let Some((_, value)) = set.iter().rev().find(|(set, _)| set == name) {
            // As in the file, so that the case keeps its id.
            let written = values.iter().find(|known| is_same(known, value)).unwrap_or(value);
            values = vec![written.clone()];
        }
        axes.push((format!("matrix.{name}"), values));
    }
    Ok(axes)
}

/// The rows of `for`: a list of maps, or a map of lists that step together.
fn rows(node: &Node, set: &[(String, String)]) -> Result<Vec<Case>, Fault> {
    let mut rows: Vec<Case> = Vec::new();
    if node.is_list() {
        for element in node.elements() {
            if !element.is_map() || element.members().is_empty() {
                return Err((element.line, format!("for: expected a map of values, found {}", element.what())));
            }
            let mut row = Vec::new();
            for (name, member) in element.members() {
                checked_name("for", name, member)?;
                row.push((format!("for.{name}"), scalar("for", name, member)?));
            }
            // Names are in the order of the first row, so that ids are stable.
            if let Some(first) = rows.first() {
                let place = |name: &str| first.iter().position(|(known, _)| known == name);
                if first.len() != row.len() || row.iter().any(|(name, _)| place(name).is_none()) {
                    return Err((element.line, "for: each map must have the same names".to_owned()));
                }
                row.sort_by_key(|(name, _)| place(name));
            }
            rows.push(row);
        }
    } else if node.is_map() {
        for (name, member) in node.members() {
            let values = values("for", name, member)?;
            if rows.is_empty() {
                rows = vec![Vec::new(); values.len()];
            }
            if values.len() != rows.len() {
                let text = format!("for.{name}: has {} values, and the others have {}", values.len(), rows.len());
                return Err((member.line, text));
            }
            rows.iter_mut().zip(values).for_each(|(row, value)| row.push((format!("for.{name}"), value)));
        }
    } else {
        return Err((node.line, format!("for: expected a list of maps, or a map of lists, found {}", node.what())));
    }
    if rows.is_empty() {
        return Err((node.line, "for: there are no values".to_owned()));
    }
    let mut seen = HashSet::new();
    if let Some(twice) = rows.iter().find(|row| !seen.insert(*row)) {
        return Err((node.line, format!("for: {} is there twice", label(twice, ", "))));
    }
    let names: Vec<String> = rows.first().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    for name in &names {
        let Some((set, value)) = set.iter().rev().find(|(set, _)| set == plain(name)) else { continue };
        let has_value = |row: &Case| row.iter().any(|(known, found)| known == name && is_same(found, value));
        // A row with one value needs no others that fit to it.
        if names.len() == 1 && !rows.iter().any(has_value) {
            return Ok(vec![vec![(name.clone(), value.clone())]]);
        }
        rows.retain(has_value);
        if rows.is_empty() {
            return Err((OPTION, format!("--set {set}={value}: no row of for has this value")));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(yaml: &str, set: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let node = Node::parse(yaml).unwrap();
        let set: Vec<_> = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let of = Axes { matrix: node.get("matrix"), rows: node.get("for") };
        let cases = cases(of, node.line, &set, 0, 10_000).map_err(|(_, text)| text)?;
        Ok(cases.iter().map(|case| label(case, ",")).collect())
    }

    #[test]
    fn cases_of_matrix_and_for() {
        assert_eq!(made("id: a\n", &[]).unwrap(), [""]);
        assert_eq!(
            made("matrix: { c: [3V3, 5V0], n: [1, 010] }\n", &[]).unwrap(),
            ["c=3V3,n=1", "c=3V3,n=010", "c=5V0,n=1", "c=5V0,n=010"]
        );
        assert_eq!(made("for: { r: [a, b], low: [1.10, 2] }\n", &[]).unwrap(), ["r=a,low=1.10", "r=b,low=2"]);
        assert_eq!(made("for: [{ r: a, low: 1 }, { low: 2, r: b }]\n", &[]).unwrap(), ["r=a,low=1", "r=b,low=2"]);
        assert_eq!(made("for: { r: [a, b] }\nmatrix: { on: [true, false] }\n", &[]).unwrap().len(), 4);
        // The command line.
        assert_eq!(
            made("matrix: { c: [3V3, 5V0], n: [1, 2] }\n", &[("c", "1V8")]).unwrap(),
            ["c=1V8,n=1", "c=1V8,n=2"]
        );
        assert_eq!(made("for: [{ r: a, low: 1 }, { r: b, low: 2 }]\n", &[("r", "b")]).unwrap(), ["r=b,low=2"]);
        assert_eq!(made("for: { r: [a, b] }\n", &[("r", "c")]).unwrap(), ["r=c"]);
        // The last one counts, and numbers are equal whatever their digits.
        let rows = "for: [{ r: 3.135, low: 1 }, { r: 5, low: 2 }]\n";
        assert_eq!(made(rows, &[("r", "5"), ("r", "3.1350")]).unwrap(), ["r=3.135,low=1"]);
        assert_eq!(made("matrix: { r: [1.0, 2] }\n", &[("r", "2"), ("r", "1")]).unwrap(), ["r=1.0"]);
    }

    #[test]
    fn mistakes_in_a_matrix_are_named() {
        let tens = |axes: usize| {
            let axes: Vec<_> = (0..axes).map(|n| format!("a{n}: [1,2,3,4,5,6,7,8,9,10]")).collect();
            format!("matrix: {{ {} }}\n", axes.join(", "))
        };
        let (many, more) = (tens(30), tens(60));
        for (yaml, why) in [
            (many.as_str(), "matrix: 1000000000000000000000000000000 cases, and an eval has at most 10000 tasks"),
            (more.as_str(), "matrix: over 340282366920938463463374607431768211455 cases"),
            (
                "matrix: { a: [1,2,3,4,5,6,7,8,9,10,11], b: &l [0,1,2,3,4,5,6,7,8,9], c: *l, d: *l }\n",
                "matrix: 11000 cases, and an eval has at most 10000 tasks",
            ),
            ("matrix: { a: [] }\n", "there are no values"),
            ("matrix: {}\n", "expected a map of lists"),
            ("matrix: { a: 1 }\n", "expected a list"),
            ("matrix: { a: [1, 1] }\n", "1 is there twice"),
            ("matrix: { a: [[1]] }\n", "expected a string, a number"),
            ("matrix: { a: [~] }\n", "found nothing"),
            ("matrix: { \"a b\": [1] }\n", "has other characters"),
            ("matrix: { a: [\"{{x}}\"] }\n", "a value has no placeholders"),
            ("for: { a: [1, 2], b: [1] }\n", "for.b: has 1 values, and the others have 2"),
            ("for: [{ a: 1 }, { b: 1 }]\n", "the same names"),
            ("for: [{ a: 1 }, { a: 1 }]\n", "a=1 is there twice"),
            ("for: []\n", "there are no values"),
            ("for: a\n", "for: expected a list of maps, or a map of lists, found a string"),
            ("for: { a: [1] }\nmatrix: { a: [1] }\n", "a is in both matrix and for"),
        ] {
            let error = made(yaml, &[]).unwrap_err();
            assert!(error.contains(why), "{yaml}: {error}");
        }
        assert!(made("for: [{ a: 1, b: 1 }]\n", &[("a", "2")]).unwrap_err().contains("no row of for has this value"));
    }
}
