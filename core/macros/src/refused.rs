//! The replacement for code that could not be written.

use proc_macro2::TokenStream;
use quote::quote;

/// A function without a value, whose body is the error that ends the build: no build that succeeds
/// has it.
pub(crate) fn function(error: &TokenStream) -> TokenStream {
    quote! {
        fn __refused() -> ::core::convert::Infallible {
            #error
        }
    }
}

/// The body of each function of a stub. The type that `function` returns has no values, so nothing
/// runs here, and no value has to be made up.
pub(crate) fn body() -> TokenStream {
    quote!(match __refused() {})
}

#[cfg(test)]
mod tests {
    use quote::quote;
    use syn::visit::{self, Visit};

    /// The bodies of all functions of implementations, and of the one that has the error.
    #[derive(Default)]
    struct Bodies {
        of_traits: Vec<String>,
        of_refusal: Vec<String>,
    }

    impl Visit<'_> for Bodies {
        fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
            if item.trait_.is_some() {
                visit::visit_item_impl(self, item);
            }
        }

        fn visit_impl_item_fn(&mut self, function: &syn::ImplItemFn) {
            let block = &function.block;
            self.of_traits.push(quote!(#block).to_string());
        }

        fn visit_item_fn(&mut self, function: &syn::ItemFn) {
            let block = &function.block;
            self.of_refusal.push(quote!(#block).to_string());
        }
    }

    #[test]
    fn what_replaces_refused_code_runs_in_no_build_that_succeeds() {
        let block = quote! {
            impl Rig {
                #[operation]
                fn measure(&mut self) -> Result<(), Failure> { Ok(()) }
            }
        };
        for (code, functions) in [
            (crate::extension::expand(quote!(name = "rig", colour = "red"), block), 2),
            (
                crate::params::expand(quote!(
                    struct Args {
                        #[param(colour = 1)]
                        a: u8,
                    }
                )),
                1,
            ),
            (
                crate::outputs::expand(quote!(
                    struct Measured {
                        #[output(colour = 1)]
                        a: u8,
                    }
                )),
                2,
            ),
        ] {
            let mut bodies = Bodies::default();
            bodies.visit_file(&syn::parse2(code).expect("the macros write items"));
            assert_eq!(bodies.of_traits, vec!["{ match __refused () { } }"; functions]);
            let [refusal] = &bodies.of_refusal[..] else { panic!("{:?}", bodies.of_refusal) };
            assert!(refusal.starts_with("{ :: core :: compile_error ! { \"unknown attribute"), "{refusal}");
        }
    }
}
