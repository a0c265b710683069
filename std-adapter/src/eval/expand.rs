//! What makes several tasks of one: `matrix`, `for`, and the values that placeholders such as `{{matrix.NAME}}` stand for.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::node::{Kind, Node};

/// The values of one case, by their names.
pub(super) type Case = Vec<(String, String)>;

/// What is wrong, and in which line.
pub(super) type Fault = (u32, String);

/// Where variables stand: `{{.Vars.NAME}}`, `{{matrix.NAME}}`, `{{for.NAME}}`, `{{vars.NAME}}`, `{{inputs.NAME}}`, `{{env.NAME}}`.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{\s*(\.(?:Vars|vars|Inputs|inputs)|matrix|for|vars|inputs|env)\.([A-Za-z0-9_-]+)\s*\}\}")
        .expect("a constant pattern")
});
/// What begins as one of those that must have a value.
static ALMOST: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\{\s*(matrix|for|vars|inputs|env)\b[^{}]*\}*").expect("a constant pattern"));

/// The name under which an environment variable is kept among the other values.
pub(super) fn env_name(name: &str) -> String {
    format!("env.{name}")
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
    let name = if part(1) == "env" { env_name(part(2)) } else { part(2).to_owned() };
    values.iter().find(|(known, _)| *known == name).map_or(part(0), |(_, value)| value.as_str())
}

/// What is wrong with the variables that are left in a node after [`fill`], with their lines.
pub(super) fn unfilled(node: &Node, values: &[(String, String)], wrong: &mut Vec<(u32, String)>) {
    match &node.kind {
        Kind::Text(text) => {
            for found in ALMOST.captures_iter(text) {
                let (whole, kind) = (&found[0], &found[1]);
                let name = VARIABLE.captures(whole).map(|found| found[2].to_owned());
                let text = match (kind, name) {
                    (_, None) => format!("{whole}: write {{{{{kind}.NAME}}}}, NAME being of letters, digits, - and _"),
                    ("env", Some(name)) => format!("{whole}: add {name} to config.allow_env to let it in"),
                    (_, Some(name)) => {
                        let known: Vec<&str> = values
                            .iter()
                            .map(|(name, _)| name.as_str())
                            .filter(|name| !name.starts_with("env."))
                            .collect();
                        format!("{whole}: there is no value of this name{}", meant(&name, &known))
                    }
                };
                wrong.push((node.line, text));
            }
        }
        Kind::List(elements) => elements.iter().for_each(|element| unfilled(element, values, wrong)),
        Kind::Map(members) => members.iter().for_each(|(_, member)| unfilled(member, values, wrong)),
        _ => {}
    }
}

/// "; did you mean …?", or the names there are.
pub(super) fn meant(name: &str, known: &[&str]) -> String {
    match (nearest(name, known), known) {
        (Some(near), _) => format!("; did you mean `{near}`?"),
        (None, []) => String::new(),
        (None, known) => format!("; known names: {}", known.join(", ")),
    }
}

/// The known name that was probably meant: one that differs by a letter or two, in case, or by what stands behind it.
pub(super) fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', ' '], "_");
    let lower = plain(name);
    let distance = |known: &str| {
        let distance = strsim::damerau_levenshtein(&lower, &plain(known));
        let is_longer = |long: &str, short: &str| short.len() >= 3 && long.starts_with(short);
        match () {
            () if distance * 3 <= known.len().max(3) => Some(distance),
            () if is_longer(&lower, known) || (lower.len() >= 3 && is_longer(known, &lower)) => Some(100 + distance),
            () => None,
        }
    };
    known.iter().filter_map(|known| Some((distance(known)?, *known))).min().map(|(_, known)| known)
}

/// The cases that a task's `matrix` and `for` make of it; one without values, if it has neither. `set` has the values that the command line
/// gives, and `limit` is the most cases there may be.
///
/// # Errors
/// What is wrong, with its line.
pub(super) fn cases(task: &Node, set: &[(String, String)], limit: usize) -> Result<Vec<Case>, Fault> {
    let rows = match task.get("for") {
        Some(node) => rows(node, set)?,
        None => vec![Vec::new()],
    };
    let axes = match task.get("matrix") {
        Some(node) => axes(node, set)?,
        None => Vec::new(),
    };
    if let Some(row) = rows.first()
        && let Some((name, _)) = axes.iter().find(|(name, _)| row.iter().any(|(other, _)| other == name))
    {
        return Err((task.line, format!("{name} is in both matrix and for")));
    }
    // Counted before anything is made.
    let count = axes.iter().try_fold(rows.len(), |count, (_, values)| count.checked_mul(values.len()));
    match count {
        Some(count) if count <= limit => {}
        Some(count) => {
            return Err((task.line, format!("matrix: {count} cases, and an eval has at most {limit} tasks")));
        }
        None => {
            return Err((
                task.line,
                format!("matrix: more cases than can be counted; an eval has at most {limit} tasks"),
            ));
        }
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

/// The names of a task's axes.
pub(super) fn names(task: &Node) -> Vec<String> {
    let of_map = |node: &Node| node.members().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let mut names = task.get("matrix").map(of_map).unwrap_or_default();
    if let Some(node) = task.get("for") {
        names.extend(of_map(node.elements().first().unwrap_or(node)));
    }
    names
}

/// A case as it stands behind a task's id: `channel=3V3,samples=1`.
pub(super) fn label(case: &Case, between: &str) -> String {
    case.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(between)
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

fn axes(node: &Node, set: &[(String, String)]) -> Result<Vec<(String, Vec<String>)>, Fault> {
    if !node.is_map() || node.members().is_empty() {
        return Err((node.line, format!("matrix: expected a map of lists, found {}", node.what())));
    }
    let mut axes = Vec::new();
    for (name, member) in node.members() {
        let mut values = values("matrix", name, member)?;
        if let Some((place, twice)) =
            values.iter().enumerate().find(|(place, value)| values.iter().take(*place).any(|other| other == *value))
        {
            let _ = place;
            return Err((member.line, format!("matrix.{name}: {twice} is there twice")));
        }
        if let Some((_, value)) = set.iter().rev().find(|(set, _)| set == name) {
            values = vec![value.clone()];
        }
        axes.push((name.clone(), values));
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
                row.push((name.clone(), scalar("for", name, member)?));
            }
            if let Some(first) = rows.first()
                && (first.len() != row.len()
                    || first.iter().any(|(name, _)| row.iter().all(|(other, _)| other != name)))
            {
                return Err((element.line, "for: each map must have the same names".to_owned()));
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
            rows.iter_mut().zip(values).for_each(|(row, value)| row.push((name.clone(), value)));
        }
    }
    if rows.is_empty() {
        return Err((node.line, "for: there are no values".to_owned()));
    }
    for (place, row) in rows.iter().enumerate() {
        if rows.iter().take(place).any(|other| other == row) {
            return Err((node.line, format!("for: {} is there twice", label(row, ", "))));
        }
    }
    for (name, value) in set {
        let has_name = rows.first().is_some_and(|row| row.iter().any(|(known, _)| known == name));
        if !has_name {
            continue;
        }
        if rows.first().is_some_and(|row| row.len() == 1) {
            rows = vec![vec![(name.clone(), value.clone())]];
            continue;
        }
        rows.retain(|row| row.iter().any(|(known, found)| known == name && found == value));
        if rows.is_empty() {
            return Err((node.line, format!("for: no values have {name}={value}, which is set")));
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
        let cases = cases(&node, &set, 10_000).map_err(|(_, text)| text)?;
        Ok(cases.iter().map(|case| label(case, ",")).collect())
    }

    #[test]
    fn l_04_cases_of_matrix_and_for() {
        assert_eq!(made("id: a\n", &[]).unwrap(), [""]);
        assert_eq!(
            made("matrix: { c: [3V3, 5V0], n: [1, 010] }\n", &[]).unwrap(),
            ["c=3V3,n=1", "c=3V3,n=010", "c=5V0,n=1", "c=5V0,n=010"]
        );
        assert_eq!(made("for: { r: [a, b], low: [1.10, 2] }\n", &[]).unwrap(), ["r=a,low=1.10", "r=b,low=2"]);
        assert_eq!(made("for: [{ r: a, low: 1 }, { low: 2, r: b }]\n", &[]).unwrap(), ["r=a,low=1", "low=2,r=b"]);
        assert_eq!(made("for: { r: [a, b] }\nmatrix: { on: [true, false] }\n", &[]).unwrap().len(), 4);
        // The command line.
        assert_eq!(
            made("matrix: { c: [3V3, 5V0], n: [1, 2] }\n", &[("c", "1V8")]).unwrap(),
            ["c=1V8,n=1", "c=1V8,n=2"]
        );
        assert_eq!(made("for: [{ r: a, low: 1 }, { r: b, low: 2 }]\n", &[("r", "b")]).unwrap(), ["r=b,low=2"]);
        assert_eq!(made("for: { r: [a, b] }\n", &[("r", "c")]).unwrap(), ["r=c"]);
    }

    #[test]
    fn l_04_what_is_wrong_with_a_matrix() {
        let many = format!(
            "matrix: {{ {} }}\n",
            (0..30).map(|n| format!("a{n}: [1,2,3,4,5,6,7,8,9,10]")).collect::<Vec<_>>().join(", ")
        );
        for (yaml, why) in [
            (many.as_str(), "matrix: more cases than can be counted"),
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
            ("for: { a: [1] }\nmatrix: { a: [1] }\n", "a is in both matrix and for"),
        ] {
            let error = made(yaml, &[]).unwrap_err();
            assert!(error.contains(why), "{yaml}: {error}");
        }
        assert!(made("for: [{ a: 1, b: 1 }]\n", &[("a", "2")]).unwrap_err().contains("no values have a=2"));
    }
}
