//! `#[rigline::extension]`.

use std::collections::HashMap;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{
    Attribute, FnArg, GenericParam, ImplItem, ImplItemFn, ItemImpl, LitStr, Meta, ReceiverKind, ReturnType, Token, Type,
};

use crate::attributes::{Once, unknown};
use crate::params::in_constants;
use crate::{refused, spelling, text};

/// The most operations of one extension.
const MAX_OPERATIONS: usize = 500;

/// The words of the attribute on the block.
const ON_BLOCK: [&str; 8] =
    ["name", "version", "description", "kind", "requires", "guarantees", "secrets", "separate_frames"];

/// The words of `#[operation]`.
const ON_OPERATION: [&str; 6] = ["name", "description", "outputs", "read_only", "destructive", "idempotent"];

/// The attributes of methods.
const ON_METHODS: [&str; 5] = ["operation", "configure", "safe_state", "on_event", "run_task"];

/// Amplifier's own operations, which take these names on the wire.
const RESERVED: [&str; 3] = ["health", "describe", "invoke"];

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let Ok(mut block) = syn::parse2::<ItemImpl>(item.clone()) else {
        let error = syn::Error::new_spanned(&item, "#[rigline::extension] goes on an `impl` block of your type");
        let error = error.to_compile_error();
        return quote!(#error #item);
    };
    let mut faults = Faults::default();
    let said = Said::read(attribute, &mut faults);
    let methods = Methods::take(&mut block, &mut faults);
    let implementation = methods.implementation(&said, &block);
    if let Some(error) = faults.0 {
        // The block stands in any case, and the trait is there, so that one fault is not followed
        // by one at each use of the type or of a method.
        let refusal = stub(&block, &error.to_compile_error());
        quote!(#block #refusal)
    } else {
        quote!(#block #implementation)
    }
}

/// One of our attributes where [`expand`] has not removed it.
pub(crate) fn misplaced(name: &str, item: TokenStream) -> TokenStream {
    let message = format!(
        "#[{name}] goes on a method in an `impl` block under #[rigline::extension]: put that attribute on the block"
    );
    let error = syn::Error::new(Span::call_site(), message).to_compile_error();
    quote!(#error #item)
}

/// An implementation that the compiler accepts in place of one that could not be written.
fn stub(block: &ItemImpl, error: &TokenStream) -> TokenStream {
    if block.trait_.is_some() {
        return error.clone();
    }
    let (refused, body) = (refused::function(error), refused::body());
    let ty = &block.self_ty;
    let (impl_generics, _, where_clause) = block.generics.split_for_impl();
    quote! {
        const _: () = {
            use ::rigline::__private;
            #refused

            #[automatically_derived]
            impl #impl_generics ::rigline::Extension for #ty #where_clause {
                fn manifest(&self) -> &'static ::rigline::Manifest {
                    #body
                }

                async fn call(
                    &mut self,
                    _: ::rigline::Call<'_>,
                    _: &mut ::rigline::Context<'_>,
                ) -> ::core::result::Result<::rigline::Outcome, ::rigline::Failure> {
                    #body
                }
            }
        };
    }
}

#[derive(Default)]
struct Faults(Option<syn::Error>);

impl Faults {
    fn add(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Reports attributes that are left on a method. They are another macro's, or a misspelt one of
    /// ours, which the compiler would not know.
    fn misspelt(&mut self, attributes: &mut Vec<Attribute>) {
        attributes.retain(|attribute| {
            let path = attribute.path();
            let name = match &path.segments.iter().map(|segment| &segment.ident).collect::<Vec<_>>()[..] {
                [name] | [_, name] if path.segments.len() == 1 || path.segments[0].ident == "rigline" => name.to_string(),
                _ => return true,
            };
            let Some(meant) = spelling::misspelt(&name, &ON_METHODS) else { return true };
            let message = format!(
                "rigline has no attribute `{name}`; did you mean `#[{meant}]`? An attribute of another crate is written with \
                 its path here"
            );
            self.add(syn::Error::new_spanned(path, message));
            false
        });
    }

    /// Our attributes go on methods; these are of another item.
    fn no_method(&mut self, attributes: &mut Vec<Attribute>) {
        for name in ON_METHODS {
            if let Some(attribute) = take_attribute(attributes, name) {
                self.add(syn::Error::new_spanned(attribute, format_args!("#[{name}] goes on a method")));
            }
        }
    }
}

/// The words of the attribute on the block.
#[derive(Default)]
struct Said {
    name: Option<LitStr>,
    version: Option<LitStr>,
    description: Option<LitStr>,
    requires: Vec<LitStr>,
    guarantees: Vec<Ident>,
    secrets: Vec<LitStr>,
    kind: Option<Ident>,
    /// Whether each operation is polled in a stack frame of its own.
    separate_frames: bool,
}

/// The kinds of Amplifier modules by their names on the wire and in Rust.
const KINDS: [(&str, &str); 6] = [
    ("provider", "Provider"),
    ("tool", "Tool"),
    ("agent", "Agent"),
    ("hook", "Hook"),
    ("orchestrator", "Orchestrator"),
    ("context", "Context"),
];

/// The guarantees by their names on the wire and in Rust.
const GUARANTEES: [(&str, &str); 6] = [
    ("no_filesystem_write", "NoFilesystemWrite"),
    ("no_filesystem_read", "NoFilesystemRead"),
    ("no_network", "NoNetwork"),
    ("no_subprocess", "NoSubprocess"),
    ("no_env_read", "NoEnvRead"),
    ("no_env_write", "NoEnvWrite"),
];

impl Said {
    fn read(attribute: TokenStream, faults: &mut Faults) -> Self {
        let mut this = Self::default();
        let mut once = Once::default();
        let parser = syn::meta::parser(|meta| {
            once.check(&meta)?;
            if meta.path.is_ident("name") {
                this.name = Some(not_empty(meta.value()?.parse()?)?);
            } else if meta.path.is_ident("version") {
                this.version = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("description") {
                this.description = Some(meta.value()?.parse()?);
            } else if meta.path.is_ident("kind") {
                let name: LitStr = meta.value()?.parse()?;
                let Some((_, variant)) = KINDS.iter().find(|(known, _)| name.value() == *known) else {
                    let hint = spelling::hint_for(&name.value(), &KINDS.map(|(known, _)| known));
                    return Err(syn::Error::new(name.span(), format!("unknown kind{hint}")));
                };
                this.kind = Some(Ident::new(variant, name.span()));
            } else if meta.path.is_ident("requires") {
                let content;
                syn::parenthesized!(content in meta.input);
                let commands = Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?;
                this.requires.extend(commands);
            } else if meta.path.is_ident("secrets") {
                let content;
                syn::parenthesized!(content in meta.input);
                this.secrets.extend(Punctuated::<LitStr, Token![,]>::parse_terminated(&content)?);
            } else if meta.path.is_ident("separate_frames") {
                this.separate_frames = true;
            } else if meta.path.is_ident("guarantees") {
                let content;
                syn::parenthesized!(content in meta.input);
                for name in Punctuated::<Ident, Token![,]>::parse_terminated(&content)? {
                    let Some((_, variant)) = GUARANTEES.iter().find(|(known, _)| name == *known) else {
                        let hint = spelling::hint_for(&name.to_string(), &GUARANTEES.map(|(known, _)| known));
                        return Err(syn::Error::new(name.span(), format!("unknown guarantee{hint}")));
                    };
                    this.guarantees.push(Ident::new(variant, name.span()));
                }
            } else {
                return Err(unknown(&meta, &ON_BLOCK));
            }
            Ok(())
        });
        faults.take(parser.parse2(attribute));
        this
    }
}

fn not_empty(text: LitStr) -> syn::Result<LitStr> {
    if text.value().is_empty() { Err(syn::Error::new(text.span(), "a name is not empty")) } else { Ok(text) }
}

/// The methods with attributes of this macro.
#[derive(Default)]
struct Methods {
    operations: Vec<Operation>,
    configure: Option<Method>,
    safe_state: Option<Method>,
    on_event: Option<Passed>,
    run_task: Option<Passed>,
}

/// A method that has the parameters of the trait's own, in its order.
struct Passed {
    ident: Ident,
    is_async: bool,
    cfg: Vec<Attribute>,
}

/// The `#[cfg]` attributes of a method, for the code that is written in its stead.
fn conditions(function: &ImplItemFn) -> Vec<Attribute> {
    function.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect()
}

impl Passed {
    fn with(&self, values: &TokenStream) -> TokenStream {
        let (ident, wait) = (&self.ident, self.is_async.then(|| quote!(.await)));
        quote!(self.#ident(#values)#wait)
    }
}

struct Operation {
    name: String,
    span: Span,
    description: String,
    outputs: Option<Type>,
    effects: SaidEffects,
    method: Method,
    cfg: Vec<Attribute>,
    /// Lints that are turned on or off for it.
    lints: Vec<Attribute>,
}

/// The declared effects of an operation on the world.
#[derive(Default)]
struct SaidEffects {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
}

/// A method as it is to be called.
struct Method {
    ident: Ident,
    has_receiver: bool,
    is_async: bool,
    parameters: Vec<Parameter>,
    returns: Option<Type>,
}

enum Parameter {
    Context,
    CallContext,
    /// [`Call`](https://docs.rs/rigline/latest/rigline/struct.Call.html) or `Config`, as it is.
    Whole,
    Arguments(Box<Type>),
}

impl Methods {
    /// Finds the methods, and takes our attributes off them.
    fn take(block: &mut ItemImpl, faults: &mut Faults) -> Self {
        let mut this = Self::default();
        if let Some((path, _)) = &block.trait_ {
            faults.add(syn::Error::new_spanned(
                path,
                "#[rigline::extension] goes on an `impl` block without a trait: it writes the one of `Extension` itself",
            ));
        }
        let (mut names, mut tools) = (HashMap::new(), HashMap::new());
        for item in &mut block.items {
            let function = match item {
                ImplItem::Fn(function) => function,
                ImplItem::Const(item) => {
                    faults.no_method(&mut item.attrs);
                    continue;
                }
                ImplItem::Type(item) => {
                    faults.no_method(&mut item.attrs);
                    continue;
                }
                _ => continue,
            };
            faults.misspelt(&mut function.attrs);
            if let Some(attribute) = take_attribute(&mut function.attrs, "operation") {
                let Some(operation) = faults.take(Operation::read(&attribute, function)) else { continue };
                if operation.cfg.is_empty()
                    && let Some(first) = names.insert(operation.name.clone(), operation.span)
                {
                    let message = format!("two operations have the name `{}`: rename one of the two", operation.name);
                    let mut error = syn::Error::new(operation.span, message);
                    error.combine(syn::Error::new(first, "the other operation of this name"));
                    faults.add(error);
                }
                if operation.cfg.is_empty() && !operation.name.is_empty() {
                    let tool = tool_name(&operation.name);
                    if let Some((known, first)) = tools.insert(tool, (operation.name.clone(), operation.span))
                        && known != operation.name
                    {
                        let message = format!(
                            "`{known}` and `{}` are one name for MCP clients, which accept only letters, digits and `_`, and 64 \
                             characters: rename one of the two",
                            operation.name
                        );
                        let mut error = syn::Error::new(operation.span, message);
                        error.combine(syn::Error::new(first, "the other operation of this name"));
                        faults.add(error);
                    }
                }
                if this.operations.len() == MAX_OPERATIONS {
                    faults.add(syn::Error::new(
                        operation.span,
                        format_args!("an extension has at most {MAX_OPERATIONS} operations: split it"),
                    ));
                }
                this.operations.push(operation);
            }
            for (name, place) in [("on_event", &mut this.on_event), ("run_task", &mut this.run_task)] {
                let Some(attribute) = take_attribute(&mut function.attrs, name) else { continue };
                faults.take(attribute.meta.require_path_only());
                if place.is_some() {
                    faults.add(syn::Error::new_spanned(attribute, format_args!("an extension has one #[{name}]")));
                }
                let signature = &function.sig;
                *place = Some(Passed {
                    ident: signature.ident.clone(),
                    is_async: signature.asyncness.is_some(),
                    cfg: conditions(function),
                });
            }
            for (name, place) in [("configure", &mut this.configure), ("safe_state", &mut this.safe_state)] {
                let Some(attribute) = take_attribute(&mut function.attrs, name) else { continue };
                faults.take(attribute.meta.require_path_only());
                let Some(method) = faults.take(Method::read(function)) else { continue };
                if place.is_some() {
                    faults.add(syn::Error::new_spanned(attribute, format_args!("an extension has one #[{name}]")));
                }
                if name == "safe_state"
                    && let Some(parameter) = function.sig.inputs.iter().find(|input| matches!(input, FnArg::Typed(_)))
                {
                    faults.add(syn::Error::new_spanned(
                        parameter,
                        "a #[safe_state] method has no argument except `&mut self`",
                    ));
                }
                *place = Some(method);
            }
        }
        this
    }

    /// The operations that an extension with a safe state has by itself, unless it has its own of
    /// these names.
    fn own_operations(&self) -> Vec<(&'static str, TokenStream, TokenStream)> {
        let Some(safe_state) = &self.safe_state else { return Vec::new() };
        let has = |tool: &str| self.operations.iter().any(|operation| tool_name(&operation.name) == tool);
        let off = safe_state.invocation(&quote!(), &quote!(), false);
        let mut own = Vec::new();
        if !has("state") {
            let manifest = quote! {
                ::rigline::Operation::new("state", ::rigline::Schema::OBJECT)
                    .description("Tell whether something may be switched on: whether a tool that can change outputs has run since all were off")
                    .effects(::rigline::Effects::READ_ONLY)
            };
            let code = quote! {{
                let may_be_on = cx.may_be_on();
                cx.output("may_be_on", &may_be_on)?;
                cx.done(if may_be_on { "outputs may be on" } else { "no outputs were switched on" })
            }};
            own.push(("state", manifest, code));
        }
        if !has("all_off") {
            let manifest = quote! {
                ::rigline::Operation::new("all-off", ::rigline::Schema::OBJECT)
                    .description("Switch all outputs off: the safe state")
                    .effects(::rigline::Effects::changes(true, true))
            };
            let code = quote! {{
                #off;
                cx.done("all outputs are off")
            }};
            own.push(("all_off", manifest, code));
        }
        own
    }

    fn implementation(&self, said: &Said, block: &ItemImpl) -> TokenStream {
        let (ty, generics) = (&block.self_ty, &block.generics);
        let (impl_generics, _, where_clause) = generics.split_for_impl();
        let attributes = block.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg"));
        let manifest = self.manifest(said, block);
        let call = self.call(said);
        let configure = self.configure.as_ref().map(|method| {
            let code = method.invocation(&quote!(config), &quote!(configuration), false);
            quote! {
                async fn configure(
                    &mut self,
                    mut config: ::rigline::Config<'_>,
                    cx: &mut ::rigline::Context<'_>,
                ) -> ::core::result::Result<(), ::rigline::Failure> {
                    ::core::result::Result::Ok(#code?)
                }
            }
        });
        let safe_state = self.safe_state.as_ref().map(|method| {
            let code = method.invocation(&quote!(), &quote!(), false);
            quote! {
                async fn safe_state(&mut self) {
                    #code
                }
            }
        });
        let on_event = self.on_event.as_ref().map(|method| {
            let (code, cfg) = (method.with(&quote!(event, cx)), &method.cfg);
            quote! {
                #(#cfg)*
                async fn on_event(&mut self, event: ::rigline::Event<'_>, cx: &mut ::rigline::Context<'_>) {
                    #code
                }
            }
        });
        let run_task = self.run_task.as_ref().map(|method| {
            let (code, cfg) = (method.with(&quote!(eval, task, cx)), &method.cfg);
            quote! {
                #(#cfg)*
                async fn run_task(
                    &mut self,
                    eval: usize,
                    task: usize,
                    cx: &mut ::rigline::Context<'_>,
                ) -> ::core::result::Result<::rigline::Outcome, ::rigline::Failure> {
                    #code
                }

                #(#cfg)*
                async fn run_job<'__job>(
                    &mut self,
                    job: ::rigline::service::JobRun<'__job>,
                    cx: &mut ::rigline::Context<'__job>,
                ) {
                    job.run(self, cx).await
                }
            }
        });
        let warnings = self.warnings(block);
        quote! {
            #(#attributes)*
            #[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, unused_qualifications)]
            const _: () = {
                use ::rigline::__private;

                #[automatically_derived]
                impl #impl_generics ::rigline::Extension for #ty #where_clause {
                    fn manifest(&self) -> &'static ::rigline::Manifest {
                        #manifest
                    }

                    #call
                    #configure
                    #safe_state
                    #on_event
                    #run_task
                }

                #(#warnings)*
            };
        }
    }

    fn warnings(&self, block: &ItemImpl) -> Vec<TokenStream> {
        let mut warnings = Vec::new();
        for Operation { name, span, description, cfg, lints, .. } in &self.operations {
            let mut warn = |sentence: &str, note: &str| {
                let warning = warning(sentence, *span, note);
                warnings.push(quote!(#(#cfg)* #(#lints)* #warning));
            };
            if RESERVED.contains(&name.as_str()) {
                let note = "this one can be reached there by a nested `invoke` only: give it another name";
                warn(&format!("Amplifier has its own operation {name}"), note);
            }
            if description.is_empty() {
                let note = "hosts show it to agents and people: write `/// …` above the method, or \
                            `#[operation(description = \"…\")]`";
                warn(&format!("the operation {name} has no doc comment"), note);
            }
        }
        if self.operations.is_empty() && self.on_event.is_none() && self.run_task.is_none() {
            let note = "no host can call anything of it: put `#[operation]` on the methods that are operations";
            warnings.push(warning("this extension has no operation", block.self_ty.span(), note));
        }
        let allowed: Vec<_> = block.attrs.iter().filter(|attribute| is_lint_level(attribute)).collect();
        warnings.into_iter().map(|warning| quote!(#(#allowed)* #warning)).collect()
    }

    fn manifest(&self, said: &Said, block: &ItemImpl) -> TokenStream {
        let generic: Vec<&Ident> = block
            .generics
            .params
            .iter()
            .filter_map(|param| match param {
                GenericParam::Type(param) => Some(&param.ident),
                GenericParam::Const(param) => Some(&param.ident),
                GenericParam::Lifetime(_) => None,
            })
            .collect();
        let is_generic = |ty: &Type| mentions(ty.to_token_stream(), &generic);
        let operations: Vec<(TokenStream, bool)> =
            self.operations.iter().map(|operation| operation.manifest(&is_generic)).collect();
        let all_concrete = operations.iter().all(|(_, concrete)| *concrete);
        let own = self.own_operations().into_iter().map(|(_, code, _)| code);
        let operations: Vec<_> = operations.into_iter().map(|(code, _)| code).chain(own).collect();
        let name = said.name.as_ref().map_or_else(|| quote!(::core::env!("CARGO_PKG_NAME")), ToTokens::to_token_stream);
        let version =
            said.version.as_ref().map_or_else(|| quote!(::core::env!("CARGO_PKG_VERSION")), ToTokens::to_token_stream);
        let description = said.description.as_ref().map_or_else(|| text::description(&block.attrs), LitStr::value);
        let (requires, guarantees, secrets) = (&said.requires, &said.guarantees, &said.secrets);
        // Only hooks receive events.
        let usual = if self.on_event.is_some() { "Hook" } else { "Tool" };
        let kind = said.kind.clone().unwrap_or_else(|| Ident::new(usual, Span::call_site()));
        let has_safe_state = self.safe_state.is_some();
        let manifest = |operations: TokenStream| {
            quote_spanned! {block.self_ty.span()=>
                ::rigline::Manifest::new(#name, #version)
                    .description(#description)
                    .kind(::rigline::ModuleKind::#kind)
                    .requires(&[#(#requires),*])
                    .guarantees(&[#(::rigline::Guarantee::#guarantees),*])
                    .secrets(&[#(#secrets),*])
                    .safe_state(#has_safe_state)
                    .operations(#operations)
                    .with_gevals_line_limit()
                    .with_distinct_identifiers()
            }
        };
        if all_concrete {
            let manifest = manifest(quote!(OPERATIONS));
            quote! {
                const OPERATIONS: &[::rigline::Operation] = &[#(#operations),*];
                const MANIFEST: &::rigline::Manifest = &#manifest;
                MANIFEST
            }
        } else {
            // Only a constant of this form can name generic types.
            let manifest = manifest(quote!(const { &[#(#operations),*] }));
            quote!(const { &#manifest })
        }
    }

    fn call(&self, said: &Said) -> TokenStream {
        // Places in the manifest; operations that are configured away have none.
        let places: Vec<_> = (0..self.operations.len()).map(|place| format_ident!("PLACE_{place}")).collect();
        let mut before = quote!(0);
        let constants: Vec<_> = self
            .operations
            .iter()
            .zip(&places)
            .map(|(Operation { cfg, .. }, place)| {
                let conditions = cfg.iter().filter_map(|attribute| attribute.meta.require_list().ok());
                let conditions: Vec<_> = conditions.map(|list| &list.tokens).collect();
                let constant = quote!(#(#cfg)* const #place: ::core::primitive::usize = #before;);
                before = if conditions.is_empty() {
                    quote!(#place + 1)
                } else {
                    quote!(#before + ::core::cfg!(all(#(#conditions),*)) as ::core::primitive::usize)
                };
                constant
            })
            .collect();
        let arms = self.operations.iter().zip(&places).map(|(operation, place)| {
            let Operation { cfg, method, .. } = operation;
            let code = method.invocation(&quote!(call), &quote!(arguments), said.separate_frames);
            let span = operation.method.returns.as_ref().map_or(operation.span, Spanned::span);
            let result = quote_spanned!(span=> __private::Returned::result(#code));
            let end = quote_spanned!(span=> ::rigline::params::Ending::end(value, cx));
            let failure = quote_spanned!(span=> ::core::convert::From::from(error));
            let takes = |parameter: &Parameter| matches!(parameter, Parameter::Arguments(_) | Parameter::Whole);
            let check = (!method.parameters.iter().any(takes)).then(|| quote!(__private::no_arguments(&mut call)?;));
            let result = quote!({ #check #result });
            quote! {
                #(#cfg)*
                #place => match #result {
                    ::core::result::Result::Ok(value) => #end,
                    ::core::result::Result::Err(error) => ::core::result::Result::Err(#failure),
                },
            }
        });
        let own = self.own_operations();
        let own_places: Vec<_> =
            own.iter().map(|(name, ..)| format_ident!("PLACE_OF_{}", name.to_uppercase())).collect();
        let mut own_constants = Vec::new();
        for place in &own_places {
            own_constants.push(quote!(const #place: ::core::primitive::usize = #before;));
            before = quote!(#place + 1);
        }
        let own_arms = own
            .iter()
            .zip(&own_places)
            .map(|((.., code), place)| quote!(#place => { __private::no_arguments(&mut call)?; #code }));
        quote! {
            async fn call(
                &mut self,
                mut call: ::rigline::Call<'_>,
                cx: &mut ::rigline::Context<'_>,
            ) -> ::core::result::Result<::rigline::Outcome, ::rigline::Failure> {
                #(#constants)*
                #(#own_constants)*
                match call.index {
                    #(#arms)*
                    #(#own_arms)*
                    _ => ::core::result::Result::Err(::rigline::Failure::UNKNOWN_OPERATION),
                }
            }
        }
    }
}

/// Code that the compiler warns of, at `span`. Only the lint `deprecated` carries a text of ours,
/// behind "use of deprecated macro" and its name: so the name is the sentence. The name of a macro
/// is shown as it is, that of any other item with its path.
pub(crate) fn warning(sentence: &str, span: Span, note: &str) -> TokenStream {
    let name: String = sentence.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
    let ident = Ident::new(&name, span);
    let note = format!("{note} (a warning of rigline: nothing is deprecated)");
    quote_spanned! {span=>
        const _: () = {
            #[deprecated(note = #note)]
            macro_rules! #ident {
                () => {};
            }
            #ident!();
        };
    }
}

/// The name that an operation has as a tool of MCP, whose clients accept no others.
fn tool_name(operation: &str) -> String {
    operation.bytes().take(64).map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte) } else { '_' }).collect()
}

/// Whether an attribute turns lints on or off: `allow` on the user's item counts for the warnings
/// about it.
pub(crate) fn is_lint_level(attribute: &Attribute) -> bool {
    ["allow", "warn", "deny", "forbid"].iter().any(|level| attribute.path().is_ident(level))
}

/// Whether one of these names stands in the tokens, or `Self`.
fn mentions(tokens: TokenStream, names: &[&Ident]) -> bool {
    tokens.into_iter().any(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => ident == "Self" || names.iter().any(|name| **name == ident),
        proc_macro2::TokenTree::Group(group) => mentions(group.stream(), names),
        _ => false,
    })
}

/// Takes the attribute off an item: as `#[operation]`, or `#[rigline::operation]` or with its path.
fn take_attribute(attributes: &mut Vec<Attribute>, name: &str) -> Option<Attribute> {
    let ours = |attribute: &Attribute| {
        let path = attribute.path();
        path.is_ident(name)
            || (path.segments.len() == 2 && path.segments[0].ident == "rigline" && path.segments[1].ident == name)
    };
    let place = attributes.iter().position(ours)?;
    Some(attributes.remove(place))
}

impl Operation {
    fn read(attribute: &Attribute, function: &ImplItemFn) -> syn::Result<Self> {
        let ident = &function.sig.ident;
        let mut this = Self {
            name: ident.unraw().to_string().trim_matches('_').replace('_', "-"),
            span: ident.span(),
            description: text::description(&function.attrs),
            outputs: None,
            effects: SaidEffects::default(),
            method: Method::read(function)?,
            cfg: conditions(function),
            lints: function.attrs.iter().filter(|attribute| is_lint_level(attribute)).cloned().collect(),
        };
        if this.method.returns.is_none() {
            return Err(syn::Error::new(
                ident.span(),
                "an operation returns `Result<Outcome, Failure>`, or a `Result` of a struct with #[derive(rigline::Outputs)]",
            ));
        }
        if !matches!(attribute.meta, Meta::Path(_)) {
            let mut once = Once::default();
            attribute.parse_nested_meta(|meta| {
                once.check(&meta)?;
                if meta.path.is_ident("name") {
                    let name = not_empty(meta.value()?.parse()?)?;
                    (this.name, this.span) = (name.value(), name.span());
                } else if meta.path.is_ident("description") {
                    this.description = meta.value()?.parse::<LitStr>()?.value();
                } else if meta.path.is_ident("outputs") {
                    this.outputs = Some(meta.value()?.parse()?);
                } else if meta.path.is_ident("read_only") {
                    this.effects.read_only = Some(flag(&meta)?);
                } else if meta.path.is_ident("destructive") {
                    this.effects.destructive = Some(flag(&meta)?);
                } else if meta.path.is_ident("idempotent") {
                    this.effects.idempotent = Some(flag(&meta)?);
                } else {
                    return Err(unknown(&meta, &ON_OPERATION));
                }
                Ok(())
            })?;
            let SaidEffects { read_only, destructive, idempotent } = this.effects;
            if read_only == Some(true) && (destructive == Some(true) || idempotent == Some(false)) {
                let text =
                    "an operation that changes nothing is neither destructive nor different when it is run again";
                return Err(syn::Error::new_spanned(attribute, text));
            }
        }
        Ok(this)
    }

    /// The operation in the manifest, and whether that is free of generic types.
    fn manifest(&self, is_generic: &impl Fn(&Type) -> bool) -> (TokenStream, bool) {
        let mut concrete = true;
        let arguments = self.method.parameters.iter().find_map(|parameter| match parameter {
            Parameter::Arguments(ty) => Some(&**ty),
            _ => None,
        });
        let takes_whole_call = self.method.parameters.iter().any(|parameter| matches!(parameter, Parameter::Whole));
        let params = match arguments {
            None if takes_whole_call => quote!(::rigline::Schema::ANY),
            None => quote!(::rigline::Schema::OBJECT),
            Some(ty) => {
                concrete &= !is_generic(ty);
                let ty = in_constants(ty);
                let node = quote_spanned!(ty.span()=> <#ty as ::rigline::Params>::SCHEMA);
                let check = quote_spanned!(ty.span()=> __private::arguments_are_an_object(#node););
                if is_generic(&ty) {
                    quote!(const { #check ::rigline::Schema::of::<#ty>() })
                } else {
                    quote!({ #check ::rigline::__schema!(#node) })
                }
            }
        };
        let returns = self.outputs.clone().or_else(|| {
            let ty = self.method.returns.as_ref().map(in_constants)?;
            Some(syn::parse_quote_spanned!(ty.span()=> <#ty as __private::Returned>::Ok))
        });
        let outputs = returns.map(|ty| {
            concrete &= !is_generic(&ty);
            let ty = in_constants(&ty);
            let schema = if is_generic(&ty) {
                quote_spanned!(ty.span()=> const { __private::outputs_of::<#ty>() })
            } else {
                quote_spanned!(ty.span()=> ::rigline::__optional_schema!(<#ty as ::rigline::params::Ending>::OUTPUTS))
            };
            quote!(.optional_outputs(#schema))
        });
        let (cfg, name, description) = (&self.cfg, &self.name, &self.description);
        let effects = self.effects.manifest();
        let code = quote! {
            #(#cfg)*
            ::rigline::Operation::new(#name, #params).description(#description) #outputs #effects
        };
        (code, concrete)
    }
}

impl SaidEffects {
    /// Its part of the operation in the manifest; nothing where nothing is said.
    fn manifest(&self) -> Option<TokenStream> {
        match *self {
            Self { read_only: None, destructive: None, idempotent: None } => None,
            Self { read_only: Some(true), .. } => Some(quote!(.effects(::rigline::Effects::READ_ONLY))),
            Self { destructive, idempotent, .. } => {
                let (destructive, idempotent) = (destructive.unwrap_or(false), idempotent.unwrap_or(false));
                Some(quote!(.effects(::rigline::Effects::changes(#destructive, #idempotent))))
            }
        }
    }
}

/// An attribute that says something alone, or `= true` or `= false`.
fn flag(meta: &syn::meta::ParseNestedMeta<'_>) -> syn::Result<bool> {
    if meta.input.peek(syn::Token![=]) {
        return Ok(meta.value()?.parse::<syn::LitBool>()?.value);
    }
    Ok(true)
}

impl Method {
    fn read(function: &ImplItemFn) -> syn::Result<Self> {
        let signature = &function.sig;
        if let Some(param) = signature.generics.params.iter().find(|param| !matches!(param, GenericParam::Lifetime(_)))
        {
            return Err(syn::Error::new_spanned(
                param,
                "this method cannot be generic: its caller cannot choose the types",
            ));
        }
        let mut parameters = Vec::new();
        let mut has_receiver = false;
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    has_receiver = true;
                    if !matches!(receiver.kind, ReceiverKind::Reference(..)) {
                        return Err(syn::Error::new_spanned(receiver, "expected `&mut self` or `&self`"));
                    }
                }
                FnArg::Typed(input) => parameters.push(Parameter::of(&input.ty)?),
            }
        }
        let takers = parameters.iter().filter(|one| matches!(one, Parameter::Arguments(_) | Parameter::Whole)).count();
        if takers > 1 {
            return Err(syn::Error::new_spanned(
                &signature.inputs,
                "an operation has one struct with all its arguments: write one with a field for each, and #[derive(rigline::Params)]",
            ));
        }
        Ok(Self {
            ident: signature.ident.clone(),
            has_receiver,
            is_async: signature.asyncness.is_some(),
            parameters,
            returns: match &signature.output {
                ReturnType::Default => None,
                ReturnType::Type(_, ty) => Some((**ty).clone()),
            },
        })
    }

    /// Calls the method, with arguments taken out of `source` by the function `take`.
    fn invocation(&self, source: &TokenStream, take: &TokenStream, in_separate_frame: bool) -> TokenStream {
        let ident = &self.ident;
        let function = if self.has_receiver { quote!(self.#ident) } else { quote!(Self::#ident) };
        let mut before = TokenStream::new();
        let values = self.parameters.iter().map(|parameter| match parameter {
            Parameter::Context => quote!(cx),
            Parameter::CallContext => quote!(#source.context),
            Parameter::Whole => source.clone(),
            Parameter::Arguments(ty) => {
                let name = format_ident!("arguments");
                before.extend(quote_spanned!(ty.span()=> let #name = __private::#take(&mut #source)?;));
                quote!(#name)
            }
        });
        let values: Vec<_> = values.collect();
        let mut call = quote!(#function(#(#values),*));
        if self.is_async {
            call = if in_separate_frame {
                // The arguments are decoded in a frame that has no room for any operation.
                quote! {
                    let future = ::core::pin::pin!(#call);
                    let result = ::rigline::own_frame(future).await;
                    result
                }
            } else {
                quote!(#call.await)
            };
        }
        quote!({
            #before
            #call
        })
    }
}

impl Parameter {
    fn of(ty: &Type) -> syn::Result<Self> {
        let named = |ty: &Type, name: &str| match ty {
            Type::Path(path) => path.path.segments.last().is_some_and(|last| last.ident == name),
            _ => false,
        };
        match ty {
            Type::Reference(reference) if named(&reference.elem, "Context") => match reference.mutability {
                Some(_) => Ok(Self::Context),
                None => Err(syn::Error::new_spanned(ty, "expected `&mut Context<'_>`")),
            },
            Type::Reference(_) => Err(syn::Error::new_spanned(
                ty,
                "expected `&mut Context<'_>`, or the arguments: a type with #[derive(rigline::Params)], by value",
            )),
            Type::ImplTrait(_) => Err(syn::Error::new_spanned(ty, "expected the arguments' own type")),
            _ if named(ty, "CallContext") => Ok(Self::CallContext),
            _ if named(ty, "Call") || named(ty, "Config") => Ok(Self::Whole),
            _ => Ok(Self::Arguments(Box::new(ty.clone()))),
        }
    }
}
