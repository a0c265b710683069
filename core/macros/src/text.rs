//! Names, doc comments and JSON text.

use std::fmt::Write;

use proc_macro2::Span;
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta, UnOp};

use crate::spelling;

/// serde's `rename_all`.
#[derive(Clone, Copy)]
pub(crate) enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

const CASES: [&str; 8] = [
    "lowercase",
    "UPPERCASE",
    "PascalCase",
    "camelCase",
    "snake_case",
    "SCREAMING_SNAKE_CASE",
    "kebab-case",
    "SCREAMING-KEBAB-CASE",
];

impl Case {
    pub(crate) fn parse(text: &LitStr) -> syn::Result<Self> {
        Ok(match text.value().as_str() {
            "lowercase" => Self::Lower,
            "UPPERCASE" => Self::Upper,
            "PascalCase" => Self::Pascal,
            "camelCase" => Self::Camel,
            "snake_case" => Self::Snake,
            "SCREAMING_SNAKE_CASE" => Self::ScreamingSnake,
            "kebab-case" => Self::Kebab,
            "SCREAMING-KEBAB-CASE" => Self::ScreamingKebab,
            other => {
                let message = format!("unknown case{}", spelling::hint_for(other, &CASES));
                return Err(syn::Error::new(text.span(), message));
            }
        })
    }

    /// Renames a field (`snake_case`), as serde does.
    pub(crate) fn field(self, name: &str) -> String {
        match self {
            Self::Lower | Self::Snake => name.to_owned(),
            Self::Upper | Self::ScreamingSnake => name.to_ascii_uppercase(),
            Self::Pascal => name.split('_').map(capital).collect(),
            Self::Camel => decapital(&Self::Pascal.field(name)),
            Self::Kebab => name.replace('_', "-"),
            Self::ScreamingKebab => Self::ScreamingSnake.field(name).replace('_', "-"),
        }
    }

    /// Renames a variant (`PascalCase`), as serde does.
    pub(crate) fn variant(self, name: &str) -> String {
        match self {
            Self::Pascal => name.to_owned(),
            Self::Lower => name.to_ascii_lowercase(),
            Self::Upper => name.to_ascii_uppercase(),
            Self::Camel => decapital(name),
            Self::Snake => {
                let mut snake = String::new();
                for (place, letter) in name.char_indices() {
                    if place > 0 && letter.is_uppercase() {
                        snake.push('_');
                    }
                    snake.push(letter.to_ascii_lowercase());
                }
                snake
            }
            Self::ScreamingSnake => Self::Snake.variant(name).to_ascii_uppercase(),
            Self::Kebab => Self::Snake.variant(name).replace('_', "-"),
            Self::ScreamingKebab => Self::ScreamingSnake.variant(name).replace('_', "-"),
        }
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn decapital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

/// The text of doc comments up to the first heading or code block: the lines of a paragraph joined
/// by spaces, paragraphs by a line break.
pub(crate) fn description(attributes: &[Attribute]) -> String {
    let mut paragraphs = vec![String::new()];
    'text: for attribute in attributes {
        let Meta::NameValue(meta) = &attribute.meta else { continue };
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &meta.value else { continue };
        if !meta.path.is_ident("doc") {
            continue;
        }
        for line in text.value().split('\n').map(str::trim) {
            if line.starts_with('#') || line.starts_with("```") {
                break 'text;
            }
            match paragraphs.last_mut() {
                Some(last) if line.is_empty() && !last.is_empty() => paragraphs.push(String::new()),
                Some(last) => {
                    if !last.is_empty() {
                        last.push(' ');
                    }
                    last.push_str(line);
                }
                None => {}
            }
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs.join("\n")
}

/// A string as JSON, escaped as rigline's writer does.
pub(crate) fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            '\u{0}'..' ' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(json, "\\u{:04x}", u32::from(letter));
            }
            _ => json.push(letter),
        }
    }
    json.push('"');
    json
}

/// A number that was written as a literal, or in a string.
#[derive(Clone)]
pub(crate) struct Number {
    /// JSON text.
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl Number {
    pub(crate) fn of(expression: &Expr) -> Option<Self> {
        match expression {
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
                Some(Self { text: number.base10_digits().to_owned(), span: number.span() })
            }
            Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => {
                let text = number.base10_digits();
                // `1.` is a number in Rust only.
                Some(Self { text: text.strip_suffix('.').unwrap_or(text).to_owned(), span: number.span() })
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => {
                let Self { text, span } = Self::of(&unary.expr)?;
                (!text.starts_with('-')).then(|| Self { text: format!("-{text}"), span })
            }
            Expr::Group(group) => Self::of(&group.expr),
            _ => None,
        }
    }

    /// A bound: also `"3.135"`, in a string.
    pub(crate) fn bound(expression: &Expr) -> syn::Result<Self> {
        if let Some(number) = Self::of(expression) {
            return Ok(number);
        }
        if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = expression
            && let Ok(inner) = text.parse::<Expr>()
            && let Some(number) = Self::of(&inner)
        {
            return Ok(Self { span: text.span(), ..number });
        }
        Err(syn::Error::new_spanned(expression, "expected a number, such as 1, -0.5 or \"3.135\""))
    }

    /// The number as Rust's tokens.
    pub(crate) fn float(&self) -> proc_macro2::TokenStream {
        let (sign, digits) = match self.text.strip_prefix('-') {
            Some(digits) => (Some(proc_macro2::Punct::new('-', proc_macro2::Spacing::Alone)), digits),
            None => (None, self.text.as_str()),
        };
        let literal = format!("{digits}f64").parse::<proc_macro2::Literal>().expect("digits with a suffix");
        quote::quote!(#sign #literal)
    }
}

/// A literal, or an array of some, as JSON text.
pub(crate) fn json(expression: &Expr) -> Option<String> {
    if let Some(number) = Number::of(expression) {
        return Some(number.text);
    }
    match expression {
        Expr::Lit(ExprLit { lit, .. }) => match lit {
            Lit::Str(text) => Some(quoted(&text.value())),
            Lit::Char(letter) => Some(quoted(&letter.value().to_string())),
            Lit::Bool(value) => Some(value.value().to_string()),
            _ => None,
        },
        Expr::Array(array) => {
            let elements: Option<Vec<String>> = array.elems.iter().map(json).collect();
            elements.map(|elements| format!("[{}]", elements.join(",")))
        }
        Expr::Group(group) => json(&group.expr),
        _ => None,
    }
}
