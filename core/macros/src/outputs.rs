//! `#[derive(Outputs)]`.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DataEnum, DeriveInput, Field, Fields};

use crate::attributes::{Container, Derive, Member};
use crate::params::{bounded, keywords, node, undescribed, wrapped};
use crate::refused;

pub(crate) fn expand(item: TokenStream) -> TokenStream {
    let input: DeriveInput = match syn::parse2(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    derive(&input).unwrap_or_else(|error| stub(&input, &error.to_compile_error()))
}

/// Implementations that the compiler accepts in place of those that could not be written, as in
/// `params`.
fn stub(input: &DeriveInput, error: &TokenStream) -> TokenStream {
    let (refused, body) = (refused::function(error), refused::body());
    let name = &input.ident;
    let generics = bounded(&input.generics, &quote!(::rigline::params::OutputValue));
    let (impl_generics, types, where_clause) = generics.split_for_impl();
    quote! {
        const _: () = {
            use ::rigline::__private;
            #refused

            #[automatically_derived]
            impl #impl_generics ::rigline::params::OutputValue for #name #types #where_clause {
                const SCHEMA: &'static ::rigline::params::SchemaNode =
                    &::rigline::params::SchemaNode::Object { description: "", fields: &[], closed: false };
            }

            #[automatically_derived]
            impl #impl_generics __private::Serialize for #name #types #where_clause {
                fn serialize<__S: __private::Serializer>(&self, _: __S) -> ::core::result::Result<__S::Ok, __S::Error> {
                    #body
                }
            }

            #[automatically_derived]
            impl #impl_generics ::rigline::Outputs for #name #types #where_clause {
                fn write(&self, _: &mut ::rigline::Context<'_>) -> ::core::result::Result<(), ::rigline::Failure> {
                    #body
                }
            }
        };
    }
}

fn derive(input: &DeriveInput) -> syn::Result<TokenStream> {
    let container = Container::read(Derive::Outputs, &input.attrs)?;
    let code = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => newtype(input, &container, &fields.unnamed[0])?,
            Fields::Unnamed(fields) => {
                return Err(syn::Error::new_spanned(fields, "outputs have names: write a struct with named fields"));
            }
            fields => structure(input, &container, fields)?,
        },
        Data::Enum(data) => enumeration(input, &container, data)?,
        Data::Union(data) => {
            return Err(syn::Error::new_spanned(
                data.union_token,
                "a union cannot be written: write a struct or an enum",
            ));
        }
    };
    Ok(wrapped(input, &code, &quote!(::rigline::params::OutputValue)))
}

fn structure(input: &DeriveInput, container: &Container, fields: &Fields) -> syn::Result<TokenStream> {
    let mut members: Vec<(&Field, Member)> = Vec::new();
    for field in fields {
        let member = Member::field(Derive::Outputs, field, container.rename_all)?;
        if member.skip {
            continue;
        }
        if members.iter().any(|(_, other)| other.name == member.name) {
            let message = format!("two fields have the name `{}`: rename one of them", member.name);
            return Err(syn::Error::new(member.span, message));
        }
        members.push((field, member));
    }
    let (name, description) = (&input.ident, &container.description);
    let generics = bounded(&input.generics, &quote!(::rigline::params::OutputValue));
    let (impl_generics, types, where_clause) = generics.split_for_impl();
    let schemas = members.iter().map(|(field, member)| {
        let (node, keywords, json_name) =
            (node(&field.ty, member, &quote!(::rigline::params::OutputValue)), keywords(member), &member.name);
        if member.schema.is_some() {
            quote!(::rigline::params::Field::new(#json_name, #node, #keywords))
        } else {
            let ty = &field.ty;
            quote! {
                ::rigline::params::Field::new(#json_name, __private::present(#node), #keywords)
                    .optional(<#ty as ::rigline::params::OutputValue>::IS_ABSENT.is_some())
            }
        }
    });
    let present: Vec<_> = members
        .iter()
        .map(|(field, member)| {
            let (ty, ident) = (&field.ty, &field.ident);
            if member.schema.is_some() {
                quote!(true)
            } else {
                quote!(!<#ty as ::rigline::params::OutputValue>::IS_ABSENT.is_some_and(|is_absent| is_absent(&self.#ident)))
            }
        })
        .collect();
    let idents: Vec<_> = members.iter().map(|(field, _)| &field.ident).collect();
    let names: Vec<_> = members.iter().map(|(_, member)| &member.name).collect();
    let serialized = members.iter().map(|(field, member)| {
        let (ident, json_name) = (&field.ident, &member.name);
        quote_spanned!(field.ty.span()=> __private::SerializeStruct::serialize_field(&mut object, #json_name, &self.#ident)?;)
    });
    let type_name = name.to_string();
    let warnings = undescribed(input, "output", members.iter().map(|(_, member)| member));
    Ok(quote! {
        #warnings

        #[automatically_derived]
        impl #impl_generics ::rigline::params::OutputValue for #name #types #where_clause {
            const SCHEMA: &'static ::rigline::params::SchemaNode =
                &::rigline::params::SchemaNode::Object { description: #description, fields: &[#(#schemas),*], closed: false };
        }

        #[automatically_derived]
        impl #impl_generics __private::Serialize for #name #types #where_clause {
            fn serialize<__S: __private::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                let count = 0usize #(+ if #present { 1usize } else { 0usize })*;
                let mut object = serializer.serialize_struct(#type_name, count)?;
                #(
                    if #present {
                        #serialized
                    }
                )*
                __private::SerializeStruct::end(object)
            }
        }

        #[automatically_derived]
        impl #impl_generics ::rigline::Outputs for #name #types #where_clause {
            fn write(&self, cx: &mut ::rigline::Context<'_>) -> ::core::result::Result<(), ::rigline::Failure> {
                #(
                    if #present {
                        cx.output(#names, &self.#idents)?;
                    }
                )*
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// A struct of one field without a name: as that field is. It is an output, not a set of them.
fn newtype(input: &DeriveInput, container: &Container, field: &Field) -> syn::Result<TokenStream> {
    let mut member = Member::field(Derive::Outputs, field, None)?;
    if member.description.is_empty() {
        member.description.clone_from(&container.description);
    }
    let (name, ty) = (&input.ident, &field.ty);
    let generics = bounded(&input.generics, &quote!(::rigline::params::OutputValue));
    let (impl_generics, types, where_clause) = generics.split_for_impl();
    let (node, keywords) = (node(ty, &member, &quote!(::rigline::params::OutputValue)), keywords(&member));
    let optional = member.schema.is_none().then(|| {
        quote! {
            const IS_ABSENT: ::core::option::Option<fn(&Self) -> bool> =
                match <#ty as ::rigline::params::OutputValue>::IS_ABSENT {
                    ::core::option::Option::Some(_) => ::core::option::Option::Some(|value| {
                        <#ty as ::rigline::params::OutputValue>::IS_ABSENT.is_some_and(|is_absent| is_absent(&value.0))
                    }),
                    ::core::option::Option::None => ::core::option::Option::None,
                };
        }
    });
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::rigline::params::OutputValue for #name #types #where_clause {
            const SCHEMA: &'static ::rigline::params::SchemaNode = &::rigline::params::SchemaNode::Said(#node, #keywords);
            #optional
        }

        #[automatically_derived]
        impl #impl_generics __private::Serialize for #name #types #where_clause {
            fn serialize<__S: __private::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                __private::Serialize::serialize(&self.0, serializer)
            }
        }
    })
}

fn enumeration(input: &DeriveInput, container: &Container, data: &DataEnum) -> syn::Result<TokenStream> {
    let mut members: Vec<(&syn::Ident, Member)> = Vec::new();
    for variant in &data.variants {
        members.push((&variant.ident, Member::variant(Derive::Outputs, variant, container.rename_all)?));
    }
    if members.is_empty() {
        return Err(syn::Error::new_spanned(&input.ident, "an enum without variants has no value"));
    }
    let (name, description) = (&input.ident, &container.description);
    let (impl_generics, types, where_clause) = input.generics.split_for_impl();
    let names = members.iter().map(|(_, member)| &member.name);
    let arms = members.iter().map(|(variant, member)| {
        let json_name = &member.name;
        quote!(Self::#variant => #json_name,)
    });
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::rigline::params::OutputValue for #name #types #where_clause {
            const SCHEMA: &'static ::rigline::params::SchemaNode =
                &::rigline::params::SchemaNode::Enum { names: &[#(#names),*], description: #description };
        }

        #[automatically_derived]
        impl #impl_generics __private::Serialize for #name #types #where_clause {
            fn serialize<__S: __private::Serializer>(
                &self,
                serializer: __S,
            ) -> ::core::result::Result<__S::Ok, __S::Error> {
                serializer.serialize_str(match self {
                    #(#arms)*
                })
            }
        }
    })
}
