//! The references between functions of a linked program, from the relocations that `--emit-relocs` leaves in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};

/// The references of a program, backwards: for each function those that refer to it.
#[derive(Debug)]
pub(crate) struct Calls {
    referrers: BTreeMap<String, BTreeSet<String>>,
}

/// A way to a function, from the one whose own code it begins in.
#[derive(Debug)]
pub(crate) struct Path(Vec<String>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" -> "))
    }
}

impl Calls {
    pub(crate) fn of(program: &[u8]) -> object::Result<Self> {
        let file = object::File::parse(program)?;
        let mut functions = BTreeMap::new();
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
            functions.insert(code(symbol.address()), (symbol.size(), demangled(symbol.name()?)));
        }
        let function_at = |address: u64| {
            let (start, (size, name)) = functions.range(..=address).next_back()?;
            (address - start < *size).then(|| name.clone())
        };
        let mut referrers = BTreeMap::<_, BTreeSet<_>>::new();
        for section in file.sections() {
            for (place, relocation) in section.relocations() {
                let RelocationTarget::Symbol(target) = relocation.target() else { continue };
                let target = file.symbol_by_index(target)?;
                let address = match target.kind() {
                    // The address is in the place itself, which is linked.
                    SymbolKind::Section => match section.data_range(place, 4)?.and_then(|word| word.try_into().ok()) {
                        Some(word) => u32::from_le_bytes(word).into(),
                        None => continue,
                    },
                    _ => target.address(),
                };
                let Some(callee) = function_at(code(address)) else { continue };
                let caller = function_at(place).unwrap_or_else(|| format!("data in {}", section.name().unwrap_or("?")));
                if caller != callee && !is_debug_info(section.name()?) {
                    referrers.entry(callee).or_default().insert(caller);
                }
            }
        }
        Ok(Self { referrers })
    }

    /// The ways to the function `name` that lead through none of the `allowed` ones; each is followed back until it is out
    /// of the standard library.
    pub(crate) fn paths_to(&self, name: &str, allowed: &[&str]) -> Vec<Path> {
        let mut paths = Vec::new();
        let mut seen = BTreeSet::new();
        let mut open = vec![vec![name.to_owned()]];
        while let Some(path) = open.pop() {
            let Some(first) = path.first().cloned() else { continue };
            for referrer in self.referrers.get(&first).into_iter().flatten() {
                if allowed.contains(&referrer.as_str()) {
                    continue;
                }
                let longer = [std::slice::from_ref(referrer), &path].concat();
                if !is_of_std(referrer) {
                    paths.push(Path(longer));
                } else if seen.insert(referrer.clone()) {
                    open.push(longer);
                }
            }
        }
        paths
    }
}

/// The address of a function without the bit that says it is Thumb code.
fn code(address: u64) -> u64 {
    address & !1
}

fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

/// Code of the standard library, also where it is generic: what it is called by says more.
fn is_of_std(name: &str) -> bool {
    const OTHERS: [&str; 7] = ["_start", "data in ", "embedded_io", "heapless", "probe::", "rigline", "serde"];
    name.starts_with("__rustc") || !OTHERS.iter().any(|other| name.contains(other))
}

fn is_debug_info(section: &str) -> bool {
    section.starts_with(".debug") || section.starts_with(".ARM")
}
