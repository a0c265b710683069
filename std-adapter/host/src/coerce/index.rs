//! Members by name and elements by index, in JSON that is text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rigline::json::{Json, JsonKind};
use rigline_std::mutex::lock;

/// Objects and lists that were looked into. Without it, each look at a member reads the text of all
/// the members before it.
#[derive(Debug, Default)]
pub(super) struct Index<'j>(Mutex<HashMap<usize, Arc<Inner<'j>>>>);

#[derive(Debug)]
enum Inner<'j> {
    Object(HashMap<String, Json<'j>>),
    Array(Vec<Json<'j>>),
}

/// A text of up to so many bytes is read again at each look.
const SHORT: usize = 256;

impl<'j> Index<'j> {
    /// The member with this name. Of several, the last counts, as for the validator.
    pub(super) fn member(&self, json: Json<'j>, name: &str) -> Option<Json<'j>> {
        if json.as_bytes().len() <= SHORT {
            return json.get(name);
        }
        match &*self.inner(json)? {
            Inner::Object(members) => members.get(name).copied(),
            Inner::Array(_) => None,
        }
    }

    pub(super) fn element(&self, json: Json<'j>, place: usize) -> Option<Json<'j>> {
        if json.as_bytes().len() <= SHORT {
            return json.elements().nth(place);
        }
        match &*self.inner(json)? {
            Inner::Array(elements) => elements.get(place).copied(),
            Inner::Object(_) => None,
        }
    }

    /// The member or the element that a step of a path means.
    pub(super) fn step(&self, json: Json<'j>, name: &str) -> Option<Json<'j>> {
        match json.kind() {
            JsonKind::Array => self.element(json, name.parse().ok()?),
            _ => self.member(json, name),
        }
    }

    fn inner(&self, json: Json<'j>) -> Option<Arc<Inner<'j>>> {
        let mut known = lock(&self.0);
        if let Some(inner) = known.get(&address(json)) {
            return Some(Arc::clone(inner));
        }
        let inner = Arc::new(match json.kind() {
            JsonKind::Object => {
                let mut members = HashMap::new();
                for (name, value) in json.members() {
                    members.insert(name.to_string(), value);
                }
                Inner::Object(members)
            }
            JsonKind::Array => Inner::Array(json.elements().collect()),
            _ => return None,
        });
        known.insert(address(json), Arc::clone(&inner));
        Some(inner)
    }
}

/// Where the text of a value begins, by which values of one text are told apart.
pub(super) fn address(json: Json<'_>) -> usize {
    json.as_bytes().as_ptr().addr()
}
