//! The attributes `#[param(…)]`, `#[output(…)]` and `#[serde(…)]`.

use std::collections::HashSet;

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::ParseStream;
use syn::spanned::Spanned;
use syn::{Attribute, Expr, ExprLit, ExprPath, Lit, LitInt, LitStr, Token, Type};

use crate::extension::is_lint_level;
use crate::spelling;
use crate::text::{self, Case, Number};

/// The derive macro whose attributes are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Derive {
    Params,
    Outputs,
}

impl Derive {
    fn attribute(self) -> &'static str {
        match self {
            Self::Params => "param",
            Self::Outputs => "output",
        }
    }

    /// A common misspelling of it. It is declared as an attribute, for an error of ours.
    fn misspelt(self) -> &'static str {
        match self {
            Self::Params => "params",
            Self::Outputs => "outputs",
        }
    }

    /// The words of its attribute on a struct or an enum.
    fn on_types(self) -> &'static [&'static str] {
        match self {
            Self::Params => &["rename_all", "allow_unknown", "deny_unknown_fields", "default"],
            Self::Outputs => &["rename_all"],
        }
    }

    /// The words of its attribute on a field or a variant.
    fn on_fields(self) -> &'static [&'static str] {
        match self {
            Self::Params => &[
                "rename",
                "alias",
                "skip",
                "default",
                "minimum",
                "maximum",
                "min_length",
                "max_length",
                "one_of",
                "example",
                "schema",
            ],
            Self::Outputs => &["rename", "skip", "example", "schema"],
        }
    }

    /// Which of serde's two forms of an attribute is meant:
    /// `rename(serialize = "a", deserialize = "b")`.
    fn direction(self) -> &'static str {
        match self {
            Self::Params => "deserialize",
            Self::Outputs => "serialize",
        }
    }
}

/// The attributes of a struct or an enum.
#[derive(Default)]
pub(crate) struct Container {
    pub(crate) rename_all: Option<Case>,
    pub(crate) deny_unknown_fields: bool,
    /// Members that are not known are no fault, also in a call's arguments.
    pub(crate) allow_unknown: bool,
    pub(crate) default: bool,
    pub(crate) description: String,
}

/// The value for a missing field.
#[derive(Clone)]
pub(crate) enum Default {
    /// Nothing: the field is required, unless its type says otherwise.
    None,
    /// `Default::default()`.
    Trait,
    Number(Number),
    Text(LitStr),
    Bool(syn::LitBool),
    /// A value of the field's type.
    Expression(Expr),
    /// A function that gives one.
    Function(ExprPath),
}

/// The attributes of a field or a variant.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) aliases: Vec<LitStr>,
    pub(crate) skip: bool,
    pub(crate) default: Default,
    /// The default as JSON, where that is known.
    pub(crate) default_json: String,
    pub(crate) minimum: Option<Number>,
    pub(crate) maximum: Option<Number>,
    pub(crate) min_length: Option<LitInt>,
    pub(crate) max_length: Option<LitInt>,
    pub(crate) one_of: Option<Expr>,
    pub(crate) examples: Vec<String>,
    pub(crate) schema: Option<LitStr>,
    pub(crate) description: String,
    /// Lints that are turned on or off for it.
    pub(crate) lints: Vec<Attribute>,
}

impl Container {
    pub(crate) fn read(derive: Derive, attributes: &[Attribute]) -> syn::Result<Self> {
        let mut this = Self { description: text::description(attributes), ..Self::default() };
        each(derive, attributes, |meta, ours| {
            match name(&meta).as_str() {
                "rename_all" => this.rename_all = string(&meta, derive)?.map(|case| Case::parse(&case)).transpose()?,
                "deny_unknown_fields" if derive == Derive::Params => this.deny_unknown_fields = true,
                "allow_unknown" if ours && derive == Derive::Params => this.allow_unknown = true,
                "default" if derive == Derive::Params && !meta.input.peek(Token![=]) => this.default = true,
                // These say nothing about what is read and written here.
                "deny_unknown_fields" | "default" | "rename" | "crate" | "bound" | "expecting" if !ours => {
                    skip_value(&meta)?;
                }
                _ if ours => return Err(unknown(&meta, derive.on_types())),
                _ => return Err(unread(&meta, derive.on_types())),
            }
            Ok(())
        })?;
        if this.allow_unknown && this.deny_unknown_fields {
            let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("params"));
            let text = "`allow_unknown` and `deny_unknown_fields` contradict each other: remove one of the two";
            return Err(syn::Error::new(attribute.map_or_else(Span::call_site, Spanned::span), text));
        }
        Ok(this)
    }
}

impl Member {
    /// Reads what is said of a field; `case` renames it.
    pub(crate) fn field(derive: Derive, field: &syn::Field, case: Option<Case>) -> syn::Result<Self> {
        let (name, span) = match &field.ident {
            Some(ident) => (ident.unraw().to_string(), ident.span()),
            None => (String::new(), field.ty.span()),
        };
        let renamed = case.map(|case| case.field(&name));
        Self::read(derive, &field.attrs, renamed.unwrap_or(name), span)
    }

    pub(crate) fn variant(derive: Derive, variant: &syn::Variant, case: Option<Case>) -> syn::Result<Self> {
        let name = variant.ident.unraw().to_string();
        let renamed = case.map(|case| case.variant(&name));
        let this = Self::read(derive, &variant.attrs, renamed.unwrap_or(name), variant.ident.span())?;
        if !variant.fields.is_empty() {
            return Err(syn::Error::new_spanned(
                &variant.fields,
                "only an enum of names is supported: derive serde's trait for this one, and give the fields of its type \
                 a schema, #[param(schema = \"…\")]",
            ));
        }
        Ok(this)
    }

    fn read(derive: Derive, attributes: &[Attribute], own_name: String, span: Span) -> syn::Result<Self> {
        let mut this = Self {
            name: own_name,
            span,
            aliases: Vec::new(),
            skip: false,
            default: Default::None,
            default_json: String::new(),
            minimum: None,
            maximum: None,
            min_length: None,
            max_length: None,
            one_of: None,
            examples: Vec::new(),
            schema: None,
            description: text::description(attributes),
            lints: attributes.iter().filter(|attribute| is_lint_level(attribute)).cloned().collect(),
        };
        let reads = derive == Derive::Params;
        each(derive, attributes, |meta, ours| {
            match name(&meta).as_str() {
                "rename" => {
                    if let Some(name) = string(&meta, derive)? {
                        this.name = name.value();
                    }
                }
                "alias" if reads => this.aliases.push(meta.value()?.parse()?),
                "skip" => this.skip = true,
                "skip_deserializing" if !ours && reads => this.skip = true,
                "skip_serializing" if !ours && !reads => this.skip = true,
                "default" if reads => this.read_default(&meta, ours)?,
                "minimum" if ours && reads => this.minimum = Some(Number::bound(&meta.value()?.parse()?)?),
                "maximum" if ours && reads => this.maximum = Some(Number::bound(&meta.value()?.parse()?)?),
                "min_length" if ours && reads => this.min_length = Some(length(&meta)?),
                "max_length" if ours && reads => this.max_length = Some(length(&meta)?),
                "one_of" if ours && reads => this.one_of = Some(meta.value()?.parse()?),
                "example" if ours => {
                    let value: Expr = meta.value()?.parse()?;
                    let json = text::json(&value).ok_or_else(|| {
                        syn::Error::new_spanned(&value, "expected a literal, or an array of literals")
                    })?;
                    this.examples.push(json);
                }
                "schema" if ours => this.schema = Some(meta.value()?.parse()?),
                // What serde does in the other direction, or what this derive does not need.
                "alias"
                | "default"
                | "skip_serializing"
                | "skip_deserializing"
                | "skip_serializing_if"
                | "borrow"
                | "serialize_with"
                | "getter"
                    if !ours =>
                {
                    skip_value(&meta)?;
                }
                _ if ours => return Err(unknown(&meta, derive.on_fields())),
                _ => return Err(unread(&meta, derive.on_fields())),
            }
            Ok(())
        })?;
        Ok(this)
    }

    fn read_default(&mut self, meta: &ParseNestedMeta<'_>, ours: bool) -> syn::Result<()> {
        if !meta.input.peek(Token![=]) {
            self.default = Default::Trait;
            return Ok(());
        }
        let value: Expr = meta.value()?.parse()?;
        if !ours {
            let Expr::Lit(ExprLit { lit: Lit::Str(path), .. }) = &value else {
                return Err(syn::Error::new_spanned(value, "expected the path of a function, in a string"));
            };
            self.default = Default::Function(path.parse()?);
            return Ok(());
        }
        self.default_json = text::json(&value).unwrap_or_default();
        self.default = if let Some(number) = Number::of(&value) {
            Default::Number(number)
        } else {
            match value {
                Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Default::Text(text),
                Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Default::Bool(value),
                Expr::Paren(inner) => Default::Expression(*inner.expr),
                value => Default::Expression(value),
            }
        };
        Ok(())
    }
}

/// Calls `read` for each part of each of the attributes that a derive reads; the second argument
/// says whether the attribute is the derive's own.
fn each(
    derive: Derive,
    attributes: &[Attribute],
    mut read: impl FnMut(ParseNestedMeta<'_>, bool) -> syn::Result<()>,
) -> syn::Result<()> {
    let mut once = Once::default();
    for attribute in attributes {
        let ours = attribute.path().is_ident(derive.attribute());
        if let Some(other) = attribute.path().get_ident()
            && other == derive.misspelt()
        {
            // What is said of all arguments together is said with this name.
            if derive == Derive::Params
                && let syn::Meta::List(list) = &attribute.meta
                && list.tokens.to_string() == "allow_unknown"
            {
                attribute.parse_nested_meta(|meta| {
                    once.check(&meta)?;
                    read(meta, true)
                })?;
                continue;
            }
            let message = format!("rigline has no attribute `{other}`; did you mean `{}`?", derive.attribute());
            return Err(syn::Error::new(other.span(), message));
        }
        if ours || attribute.path().is_ident("serde") {
            attribute.parse_nested_meta(|meta| {
                if ours {
                    once.check(&meta)?;
                }
                read(meta, ours)
            })?;
        }
    }
    Ok(())
}

/// Refuses what is said twice, but for what makes a list.
#[derive(Default)]
pub(crate) struct Once(HashSet<String>);

impl Once {
    pub(crate) fn check(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let name = name(meta);
        match name.as_str() {
            "alias" | "example" | "requires" | "guarantees" | "secrets" => Ok(()),
            _ if self.0.insert(name.clone()) => Ok(()),
            _ => Err(meta.error(format_args!("`{name}` is given twice: remove one of the two"))),
        }
    }
}

fn length(meta: &ParseNestedMeta<'_>) -> syn::Result<LitInt> {
    let length: LitInt = meta.value()?.parse()?;
    match length.base10_parse::<u32>() {
        Ok(_) => Ok(length),
        Err(_) => Err(syn::Error::new(length.span(), "expected a length: an integer from 0 to 4294967295")),
    }
}

fn name(meta: &ParseNestedMeta<'_>) -> String {
    meta.path.get_ident().map(Ident::to_string).unwrap_or_default()
}

/// The error for a word that our attributes do not know.
pub(crate) fn unknown(meta: &ParseNestedMeta<'_>, known: &[&str]) -> syn::Error {
    meta.error(format_args!("unknown attribute{}", spelling::hint(&meta.path, known)))
}

/// The error for a word that serde may know, but not this crate.
fn unread(meta: &ParseNestedMeta<'_>, known: &[&str]) -> syn::Error {
    let name = name(meta);
    match spelling::nearest(&name, known) {
        Some(meant) => meta.error(format_args!("rigline does not read `{name}` of serde; did you mean `{meant}`?")),
        None => meta.error(
            "rigline does not read this attribute of serde: derive serde's trait for a type of its own, and give the \
             field a schema, #[param(schema = \"…\")]",
        ),
    }
}

/// `= "name"`, or the one for this direction of `(serialize = "name", deserialize = "name")`.
fn string(meta: &ParseNestedMeta<'_>, derive: Derive) -> syn::Result<Option<LitStr>> {
    if meta.input.peek(Token![=]) {
        return Ok(Some(meta.value()?.parse()?));
    }
    let mut found = None;
    meta.parse_nested_meta(|inner| {
        let value: LitStr = inner.value()?.parse()?;
        if inner.path.is_ident(derive.direction()) {
            found = Some(value);
        }
        Ok(())
    })?;
    Ok(found)
}

/// Steps over what follows the name of an attribute.
fn skip_value(meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    fn value(input: ParseStream<'_>) -> syn::Result<()> {
        input.parse::<Token![=]>()?;
        input.parse::<Expr>().map(drop)
    }
    if meta.input.peek(Token![=]) {
        value(meta.input)
    } else if meta.input.peek(syn::token::Paren) {
        let content;
        syn::parenthesized!(content in meta.input);
        content.parse::<proc_macro2::TokenStream>().map(drop)
    } else {
        Ok(())
    }
}

/// Whether a type is written as an `Option`: for types that do not implement our traits, which
/// would know.
pub(crate) fn is_option(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Option"))
}
