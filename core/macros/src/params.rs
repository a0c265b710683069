//! `#[derive(Params)]`.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Data, DataEnum, DeriveInput, Field, Fields, GenericParam, Generics, Lifetime, LifetimeParam, Type, parse_quote,
    visit_mut::VisitMut,
};

use crate::attributes::{Container, Default, Derive, Member, is_option};
use crate::extension::{is_lint_level, warning};
use crate::refused;

pub(crate) fn expand(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    derive(&input).unwrap_or_else(|error| stub(&input, &error.to_compile_error()))
}

/// Implementations that the compiler accepts in place of those that could not be written, so that
/// one fault is not followed by one at each use of the type.
fn stub(input: &DeriveInput, error: &TokenStream) -> TokenStream {
    let (refused, body) = (refused::function(error), refused::body());
    let name = &input.ident;
    let (_, types, _) = input.generics.split_for_impl();
    let params_generics = bounded(&input.generics, &quote!(::rigline::Params));
    let (params_impl, _, params_where) = params_generics.split_for_impl();
    let de_generics = deserializing(&input.generics);
    let (de_impl, _, de_where) = de_generics.split_for_impl();
    quote! {
        const _: () = {
            use ::rigline::__private;
            #refused

            #[automatically_derived]
            impl #params_impl ::rigline::Params for #name #types #params_where {
                const SCHEMA: &'static ::rigline::params::SchemaNode =
                    &::rigline::params::SchemaNode::Object { description: "", fields: &[], closed: false };
            }

            #[automatically_derived]
            impl #de_impl __private::Deserialize<'__de> for #name #types #de_where {
                fn deserialize<__D: __private::Deserializer<'__de>>(_: __D) -> ::core::result::Result<Self, __D::Error> {
                    #body
                }
            }
        };
    }
}

/// Warnings about fields without a description. A schema in words has its own description, or none
/// on purpose.
pub(crate) fn undescribed<'a>(
    input: &DeriveInput,
    what: &str,
    members: impl Iterator<Item = &'a Member>,
) -> TokenStream {
    let allowed: Vec<_> = input.attrs.iter().filter(|attribute| is_lint_level(attribute)).collect();
    let silent = |member: &&Member| !member.skip && member.description.is_empty() && member.schema.is_none();
    members
        .filter(silent)
        .map(|member| {
            let (name, own) = (&member.name, &member.lints);
            let note = format!("hosts show it to agents and people: write `/// …` above `{name}`");
            let warning = warning(&format!("the {what} {name} has no doc comment"), member.span, &note);
            quote!(#(#allowed)* #(#own)* #warning)
        })
        .collect()
}

fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let container = Container::read(Derive::Params, &input.attrs)?;
    let code = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => newtype(input, &container, &fields.unnamed[0])?,
            Fields::Unnamed(fields) => {
                return Err(syn::Error::new_spanned(
                    fields,
                    "arguments have names: write a struct with named fields (or one without a name, to be as that is)",
                ));
            }
            fields => structure(input, &container, fields)?,
        },
        Data::Enum(data) => enumeration(input, &container, data)?,
        Data::Union(data) => {
            return Err(syn::Error::new_spanned(
                data.union_token,
                "a union cannot be decoded: write a struct or an enum",
            ));
        }
    };
    Ok(wrapped(input, &code, &quote!(::rigline::Params)))
}

/// Code in a scope of its own, with the schema looked at, so that a fault in it is one of `cargo check`.
pub(crate) fn wrapped(input: &DeriveInput, code: &TokenStream, schema_of: &TokenStream) -> TokenStream {
    let generic = input.generics.params.iter().any(|param| !matches!(param, GenericParam::Lifetime(_)));
    let check = (!generic).then(|| {
        let name = &input.ident;
        let lifetimes = input.generics.params.iter().map(|_| quote!('static));
        quote!(const _: &::rigline::params::SchemaNode = <#name<#(#lifetimes),*> as #schema_of>::SCHEMA;)
    });
    quote! {
        #[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, unused_qualifications)]
        const _: () = {
            use ::rigline::__private;
            #code
            #check
        };
    }
}

/// The generics of an implementation, with these bounds on each type.
pub(crate) fn bounded(generics: &Generics, bounds: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    for param in generics.type_params_mut() {
        let bounds: syn::TypeParam = parse_quote!(T: #bounds);
        param.bounds.extend(bounds.bounds);
    }
    generics
}

/// The generics of the implementation of `Deserialize`, with its lifetime first.
fn deserializing(generics: &Generics) -> Generics {
    let mut generics = bounded(generics, &quote!(::rigline::Params + __private::Deserialize<'__de>));
    let mut de: LifetimeParam = parse_quote!('__de);
    de.bounds = generics.lifetimes().map(|param| param.lifetime.clone()).collect();
    if !de.bounds.is_empty() {
        de.colon_token = Some(parse_quote!(:));
    }
    generics.params.insert(0, GenericParam::Lifetime(de));
    generics
}

#[allow(clippy::too_many_lines, reason = "it reads as the code that it writes")]
fn structure(input: &DeriveInput, container: &Container, fields: &Fields) -> syn::Result<TokenStream> {
    let mut members = Vec::new();
    for field in fields {
        members.push((field, Member::field(Derive::Params, field, container.rename_all)?));
    }
    let read: Vec<&(&Field, Member)> = members.iter().filter(|(_, member)| !member.skip).collect();
    let known = names(read.iter().map(|(_, member)| member))?;
    let primary: Vec<&str> = read.iter().map(|(_, member)| member.name.as_str()).collect();

    let name = &input.ident;
    let (_, types, _) = input.generics.split_for_impl();
    let params_generics = bounded(&input.generics, &quote!(::rigline::Params));
    let (params_impl, _, params_where) = params_generics.split_for_impl();
    let de_generics = deserializing(&input.generics);
    let (de_impl, de_types, de_where) = de_generics.split_for_impl();

    let checks = read.iter().map(|(field, member)| checks(&field.ty, member)).collect::<syn::Result<Vec<_>>>()?;
    let schemas = read.iter().map(|(field, member)| {
        let node = node(&field.ty, member, &quote!(::rigline::Params));
        let keywords = keywords(member);
        let json_name = &member.name;
        let optional = if container.default || !matches!(member.default, Default::None) {
            quote!(true)
        } else if member.schema.is_some() {
            let option = is_option(&field.ty);
            quote!(#option)
        } else {
            let ty = &field.ty;
            quote!(<#ty as ::rigline::Params>::OPTIONAL)
        };
        quote!(::rigline::params::Field::new(#json_name, #node, #keywords).optional(#optional))
    });
    let (description, closed) = (&container.description, container.deny_unknown_fields);

    let slots: Vec<_> = (0..read.len()).map(|place| format_ident!("__field{place}")).collect();
    let places = read.iter().zip(&slots).map(|((field, _), slot)| quote_spanned!(field.ty.span()=> &mut #slot));
    let arguments = read.iter().map(|(field, member)| argument(&field.ty, member, container.default));
    let mut slot = slots.iter();
    let values = members.iter().map(|(field, member)| {
        let ident = &field.ident;
        let otherwise = if container.default {
            quote!(__default.#ident)
        } else {
            quote!(return ::core::result::Result::Err(__private::incomplete()))
        };
        let value = match &member.default {
            Default::None if member.skip && container.default => return quote!(#ident: #otherwise),
            _ if member.skip => default(&field.ty, member),
            _ => {
                let slot = slot.next();
                quote!(#slot.value)
            }
        };
        quote! {
            #ident: match #value {
                ::core::option::Option::Some(value) => value,
                ::core::option::Option::None => #otherwise,
            }
        }
    });
    let all = container.default.then(|| quote!(let __default: #name #types = ::core::default::Default::default();));
    let known_names = known.iter().map(|(name, _)| name);
    let aliases = known.iter().skip(read.len()).map(|(_, owner)| Literal::usize_unsuffixed(*owner));
    let otherwise = match (closed, container.allow_unknown) {
        (true, _) => quote!(UnknownField(&[#(#primary),*])),
        (false, true) => quote!(Ignored),
        (false, false) => quote!(RefusedInArguments(&[#(#primary),*])),
    };
    let visitor_generics = &de_generics;
    let visitor_where = &de_generics.where_clause;

    let warnings = undescribed(input, "argument", members.iter().map(|(_, member)| member));
    Ok(quote! {
        #warnings

        #[automatically_derived]
        impl #params_impl ::rigline::Params for #name #types #params_where {
            const SCHEMA: &'static ::rigline::params::SchemaNode = {
                #(#checks)*
                &::rigline::params::SchemaNode::Object { description: #description, fields: &[#(#schemas),*], closed: #closed }
            };
        }

        struct __Visitor #visitor_generics (
            ::core::marker::PhantomData<(&'__de (), fn() -> #name #types)>,
        ) #visitor_where;

        #[automatically_derived]
        impl #de_impl __private::Visitor<'__de> for __Visitor #de_types #de_where {
            type Value = #name #types;

            fn expecting(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str("an object")
            }

            fn visit_seq<__A: __private::SeqAccess<'__de>>(
                self,
                _: __A,
            ) -> ::core::result::Result<Self::Value, __A::Error> {
                ::core::result::Result::Err(::rigline::json::de::expected(const { &["an object"] }))
            }

            fn visit_map<__A: __private::MapAccess<'__de>>(
                self,
                mut __map: __A,
            ) -> ::core::result::Result<Self::Value, __A::Error> {
                #all
                #(let mut #slots = __private::Slot::new(#arguments);)*
                __private::members(&mut __map, &__NAMES, &mut [#(#places),*])?;
                ::core::result::Result::Ok(#name { #(#values),* })
            }
        }

        static __NAMES: __private::Names = __private::Names {
            names: &[#(#known_names),*],
            aliases: &[#(#aliases),*],
            otherwise: __private::Otherwise::#otherwise,
        };

        #[automatically_derived]
        impl #de_impl __private::Deserialize<'__de> for #name #types #de_where {
            fn deserialize<__D: __private::Deserializer<'__de>>(
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                __private::Deserializer::deserialize_struct(
                    deserializer,
                    ::rigline::json::de::ARGUMENTS,
                    __NAMES.names,
                    __Visitor(::core::marker::PhantomData),
                )
            }
        }
    })
}

/// A struct of one field without a name: as that field is.
fn newtype(input: &DeriveInput, container: &Container, field: &Field) -> syn::Result<TokenStream> {
    let mut member = Member::field(Derive::Params, field, None)?;
    if member.description.is_empty() {
        member.description.clone_from(&container.description);
    }
    if member.skip || !matches!(member.default, Default::None) || !member.aliases.is_empty() {
        return Err(syn::Error::new_spanned(field, "a field without a name cannot have a default, an alias or skip"));
    }
    let (name, ty) = (&input.ident, &field.ty);
    let (_, types, _) = input.generics.split_for_impl();
    let params_generics = bounded(&input.generics, &quote!(::rigline::Params));
    let (params_impl, _, params_where) = params_generics.split_for_impl();
    let de_generics = deserializing(&input.generics);
    let (de_impl, _, de_where) = de_generics.split_for_impl();
    let (checks, node, keywords) =
        (checks(ty, &member)?, node(ty, &member, &quote!(::rigline::Params)), keywords(&member));
    let optional = member.schema.is_none().then(|| {
        quote! {
            const OPTIONAL: bool = <#ty as ::rigline::Params>::OPTIONAL;

            const MISSING: fn() -> ::core::option::Option<Self> = || (<#ty as ::rigline::Params>::MISSING)().map(Self);
        }
    });
    let value = if rules(ty, &member).is_some() {
        let argument = argument(ty, &member, true);
        quote!(__private::DeserializeSeed::deserialize(#argument, deserializer))
    } else {
        quote!(<#ty as __private::Deserialize>::deserialize(deserializer))
    };
    Ok(quote! {
        #[automatically_derived]
        impl #params_impl ::rigline::Params for #name #types #params_where {
            const SCHEMA: &'static ::rigline::params::SchemaNode = {
                #checks
                &::rigline::params::SchemaNode::Said(#node, #keywords)
            };
            #optional
        }

        #[automatically_derived]
        impl #de_impl __private::Deserialize<'__de> for #name #types #de_where {
            fn deserialize<__D: __private::Deserializer<'__de>>(
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                #value.map(Self)
            }
        }
    })
}

fn enumeration(input: &DeriveInput, container: &Container, data: &DataEnum) -> syn::Result<TokenStream> {
    let mut members = Vec::new();
    for variant in &data.variants {
        let member = Member::variant(Derive::Params, variant, container.rename_all)?;
        if !member.skip {
            members.push((&variant.ident, member));
        }
    }
    let Some(((last, _), _)) = members.split_last() else {
        return Err(syn::Error::new_spanned(&input.ident, "an enum without variants has no value"));
    };
    let known = names(members.iter().map(|(_, member)| member))?;
    let primary: Vec<&str> = members.iter().map(|(_, member)| member.name.as_str()).collect();
    let known_names = known.iter().map(|(name, _)| name);
    let arms = known.iter().enumerate().map(|(place, (_, owner))| {
        let (place, variant) = (Literal::usize_unsuffixed(place), &members[*owner].0);
        quote!(#place => Self::#variant,)
    });
    let text_arms = known.iter().map(|(name, owner)| {
        let variant = &members[*owner].0;
        quote!(#name => Self::#variant,)
    });
    let (name, description) = (&input.ident, &container.description);
    let (impl_generics, types, where_clause) = input.generics.split_for_impl();
    let de_generics = deserializing(&input.generics);
    let (de_impl, _, de_where) = de_generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::rigline::Params for #name #types #where_clause {
            const SCHEMA: &'static ::rigline::params::SchemaNode =
                &::rigline::params::SchemaNode::Enum { names: &[#(#primary),*], description: #description };
        }

        const __KNOWN: &[&::core::primitive::str] = &[#(#known_names),*];

        static __NAMES: __private::Names = __private::Names {
            names: __KNOWN,
            aliases: &[],
            otherwise: __private::Otherwise::UnknownVariant(&[#(#primary),*]),
        };

        #[automatically_derived]
        impl #impl_generics __private::FromText for #name #types #where_clause {
            const TAKES: __private::Takes = __private::Takes::OneOf(__KNOWN);

            fn from_text(text: &'static ::core::primitive::str) -> ::core::option::Option<Self> {
                ::core::option::Option::Some(match text {
                    #(#text_arms)*
                    _ => return ::core::option::Option::None,
                })
            }
        }

        #[automatically_derived]
        impl #de_impl __private::Deserialize<'__de> for #name #types #de_where {
            fn deserialize<__D: __private::Deserializer<'__de>>(
                deserializer: __D,
            ) -> ::core::result::Result<Self, __D::Error> {
                let place = __private::DeserializeSeed::deserialize(&__NAMES, deserializer)?;
                ::core::result::Result::Ok(match place {
                    #(#arms)*
                    _ => Self::#last,
                })
            }
        }
    })
}

/// Names and aliases, each with the place of its owner: all names first. No two are the same.
fn names<'a>(members: impl Iterator<Item = &'a Member> + Clone) -> syn::Result<Vec<(String, usize)>> {
    let own = members.clone().enumerate().map(|(owner, member)| (member.name.clone(), owner, member.span));
    let aliases = members
        .enumerate()
        .flat_map(|(owner, member)| member.aliases.iter().map(move |alias| (alias.value(), owner, alias.span())));
    let mut names: Vec<(String, usize)> = Vec::new();
    for (name, owner, span) in own.chain(aliases) {
        match names.iter().find(|(known, _)| *known == name) {
            Some((_, first)) if *first == owner => {}
            Some(_) => {
                return Err(syn::Error::new(
                    span,
                    format_args!("two fields have the name `{name}`: rename one of them"),
                ));
            }
            None => names.push((name, owner)),
        }
    }
    Ok(names)
}

/// The schema node of a member, by way of the trait `schema_of`.
pub(crate) fn node(ty: &Type, member: &Member, schema_of: &TokenStream) -> TokenStream {
    if let Some(schema) = &member.schema {
        quote_spanned!(schema.span()=> const { &::rigline::params::SchemaNode::text(#schema) })
    } else {
        quote_spanned!(ty.span()=> <#ty as #schema_of>::SCHEMA)
    }
}

pub(crate) fn keywords(member: &Member) -> TokenStream {
    let mut code = quote!(::rigline::params::Keywords::NONE);
    let mut say = |keyword: &str, value: TokenStream| {
        let keyword = format_ident!("{keyword}");
        code.extend(quote!(.#keyword(#value)));
    };
    if !member.description.is_empty() {
        say("description", member.description.to_token_stream());
    }
    for (keyword, number) in [("minimum", &member.minimum), ("maximum", &member.maximum)] {
        if let Some(number) = number {
            say(keyword, number.text.to_token_stream());
        }
    }
    for (keyword, length) in [("min_length", &member.min_length), ("max_length", &member.max_length)] {
        if let Some(length) = length {
            say(keyword, length.to_token_stream());
        }
    }
    if let Some(list) = &member.one_of {
        say("one_of", quote_spanned!(list.span()=> __private::List(#list).one_of()));
    }
    if !member.default_json.is_empty() {
        say("default", member.default_json.to_token_stream());
    }
    if !member.examples.is_empty() {
        let examples = &member.examples;
        say("examples", quote!(const { &[#(#examples),*] }));
    }
    code
}

/// A number as a constant of the field's type.
fn limit(ty: &Type, number: &crate::text::Number) -> TokenStream {
    let (text, float) = (&number.text, number.float());
    quote_spanned!(number.span=> const {
        __private::Limit::new(#text, #float, <#ty as __private::Number>::KIND)
    })
}

/// The faults of the attributes themselves, which are checked with the schema.
fn checks(ty: &Type, member: &Member) -> syn::Result<TokenStream> {
    let default = match &member.default {
        Default::Number(number) if member.schema.is_none() => Some(number),
        _ => None,
    };
    let mut code = TokenStream::new();
    let numbers = [("minimum", member.minimum.as_ref()), ("maximum", member.maximum.as_ref()), ("default", default)];
    for (name, number) in numbers {
        if let Some(number) = number {
            let (name, limit) = (format_ident!("_{name}"), limit(ty, number));
            code.extend(quote!(let #name = #limit;));
        }
    }
    for (low, high, at, message) in [
        (0, 1, 1, "the minimum is above the maximum"),
        (0, 2, 2, "the default is below the minimum"),
        (2, 1, 2, "the default is above the maximum"),
    ] {
        if let ((low, Some(_)), (high, Some(_)), Some(at)) = (numbers[low], numbers[high], numbers[at].1) {
            let (low, high) = (format_ident!("_{low}"), format_ident!("_{high}"));
            code.extend(quote_spanned! {at.span=>
                ::core::assert!(#low.at_most(&#high, <#ty as __private::Number>::KIND), #message);
            });
        }
    }
    if let Default::Text(text) = &member.default
        && member.schema.is_none()
    {
        code.extend(quote_spanned!(text.span()=> <#ty as __private::FromText>::TAKES.check(#text);));
        let length = text.value().chars().count();
        let breaks = |limit: &Option<syn::LitInt>, broken: fn(&usize, &usize) -> bool| -> syn::Result<bool> {
            Ok(limit.as_ref().map(syn::LitInt::base10_parse).transpose()?.is_some_and(|limit| broken(&length, &limit)))
        };
        if breaks(&member.min_length, usize::lt)? || breaks(&member.max_length, usize::gt)? {
            return Err(syn::Error::new(text.span(), "the default breaks the rule for the field's length"));
        }
    }
    Ok(code)
}

/// The rule for a value, as its decoding seed gets it, if there is one.
fn rules(ty: &Type, member: &Member) -> Option<TokenStream> {
    let mut code = TokenStream::new();
    let mut rule = |test: TokenStream, text: String| {
        code.extend(quote! {
            if #test {
                return ::core::option::Option::Some(const { &[#text] });
            }
        });
    };
    if let Some(number) = &member.minimum {
        let limit = limit(ty, number);
        rule(
            quote!(<#ty as __private::Number>::is_below(value, #limit)),
            format!("is below the minimum {}", number.text),
        );
    }
    if let Some(number) = &member.maximum {
        let limit = limit(ty, number);
        rule(
            quote!(<#ty as __private::Number>::is_above(value, #limit)),
            format!("is above the maximum {}", number.text),
        );
    }
    if let Some(least) = &member.min_length {
        let test = quote_spanned!(least.span()=> <#ty as __private::Length>::length(value).is_some_and(|length| length < #least));
        rule(test, format!("is below the minimum {}", least.base10_digits()));
    }
    if let Some(most) = &member.max_length {
        let test = quote_spanned!(most.span()=> <#ty as __private::Length>::length(value).is_some_and(|length| length > #most));
        rule(test, format!("is above the maximum {}", most.base10_digits()));
    }
    if let Some(list) = &member.one_of {
        code.extend(quote_spanned! {list.span()=>
            const NAMES: &[&::core::primitive::str] = &{
                const ONE_OF: ::rigline::params::OneOf = __private::List(#list).one_of();
                ONE_OF.names::<{ __private::places(&ONE_OF) }>()
            };
            if __private::is_none_of(value, NAMES) {
                return ::core::option::Option::Some(NAMES);
            }
        });
    }
    // The type's own error would name the type's bounds.
    let expected = match (&member.minimum, &member.maximum) {
        (Some(minimum), Some(maximum)) => {
            let text = format!("an integer from {} to {}", minimum.text, maximum.text);
            quote!(const { <#ty as __private::Number>::KIND.if_integer(&[#text]) })
        }
        (None, Some(maximum)) => {
            let text = format!("an integer from 0 to {}", maximum.text);
            quote!(const { <#ty as __private::Number>::KIND.if_from_0(&[#text]) })
        }
        _ => quote!(::core::option::Option::None),
    };
    (!code.is_empty()).then(|| {
        quote! {
            .checked(#expected, |value| {
                #code
                ::core::option::Option::None
            })
        }
    })
}

/// How a field is decoded, as a constant.
fn argument(ty: &Type, member: &Member, may_be_absent: bool) -> TokenStream {
    let rules = rules(ty, member);
    let value = match &member.default {
        Default::None if may_be_absent => None,
        Default::None if member.schema.is_none() => Some(quote!((<#ty as ::rigline::Params>::MISSING)())),
        Default::None => Some(quote!(__private::missing_field::<#ty>())),
        _ => Some(default(ty, member)),
    };
    let absent = value.map_or(quote!(|_| true), |value| {
        quote! {
            |value| {
                *value = #value;
                value.is_some()
            }
        }
    });
    quote!(const { &__private::Argument::<#ty>::new(#absent) #rules })
}

/// The value of a field that is not given, as an `Option`.
fn default(ty: &Type, member: &Member) -> TokenStream {
    let value = match &member.default {
        Default::Text(text) if member.schema.is_none() => {
            return quote!(<#ty as __private::FromText>::from_text(#text));
        }
        Default::None | Default::Trait => quote_spanned!(ty.span()=> ::core::default::Default::default()),
        Default::Number(number) if member.schema.is_none() => {
            let limit = limit(ty, number);
            quote!(<#ty as __private::Number>::from_limit(#limit))
        }
        Default::Number(number) => {
            let literal = number.text.parse::<TokenStream>().unwrap_or_default();
            quote!(#literal)
        }
        Default::Text(text) => quote!(#text),
        Default::Bool(value) if member.schema.is_none() => quote!(<#ty as __private::FromBool>::from_bool(#value)),
        Default::Bool(value) => quote!(#value),
        Default::Expression(value) => quote! {{
            let value: #ty = #value;
            value
        }},
        Default::Function(path) => quote!(#path()),
    };
    quote!(::core::option::Option::Some(#value))
}

/// Makes every lifetime `'static`, for constants.
pub(crate) fn in_constants(ty: &Type) -> Type {
    struct Static;

    impl VisitMut for Static {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = Lifetime::new("'static", lifetime.span());
        }

        fn visit_type_reference_mut(&mut self, reference: &mut syn::TypeReference) {
            let span = reference.and_token.span();
            reference.lifetime = Some(Lifetime::new("'static", span));
            syn::visit_mut::visit_type_reference_mut(self, reference);
        }
    }

    let mut ty = ty.clone();
    Static.visit_type_mut(&mut ty);
    ty
}
