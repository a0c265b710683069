//! Lifetimes of the type, of arguments and of methods, named and not; attributes in both spellings.
#![deny(unused, elided_lifetimes_in_paths)]
#![allow(deprecated)]

use rigline::json::RawJson;
use rigline::{Call, CallContext, Config, Context, Failure, Outcome, Outputs, Params};

#[derive(Params, Clone, Copy)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Two<'a, 'b: 'a> {
    #[serde(borrow, alias = "other_name")]
    pub first_one: &'a str,
    #[param(default)]
    pub second: Option<&'b str>,
    pub any: RawJson<'a>,
}

#[derive(Params)]
pub struct Holds<'a, T: Copy, const N: usize>
where
    T: 'a,
{
    pub inner: Two<'a, 'a>,
    pub values: [T; 2],
    pub list: heapless::Vec<&'a str, N>,
    pub map: heapless::LinearMap<&'a str, &'a str, 4>,
}

#[derive(Outputs)]
pub struct Borrowed<'a, T> {
    pub name: &'a str,
    pub value: T,
    pub value_again: &'a T,
}

pub struct Greeter<'g, const LIMIT: usize> {
    pub name: &'g str,
}

#[rigline::extension(name = "greeter")]
impl<'g, const LIMIT: usize> Greeter<'g, LIMIT> {
    pub const LIMIT: usize = LIMIT;

    /// Greet.
    #[operation]
    pub async fn named<'c>(&mut self, cx: &mut Context<'_>, args: Two<'c, 'c>) -> Result<Outcome, Failure> {
        cx.done(args.first_one)
    }

    #[operation]
    async fn elided(&self, args: Holds<'_, u8, LIMIT>) -> Result<(), Failure> {
        let _ = args;
        Ok(())
    }

    #[operation]
    fn borrows(&mut self) -> Result<Borrowed<'_, u8>, Failure> {
        Ok(Borrowed { name: self.name, value: 1, value_again: &2 })
    }

    #[operation(outputs = Borrowed<'_, heapless::Vec<u8, LIMIT>>)]
    fn whole(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let args: Two<'_, '_> = call.args()?;
        cx.done(args.second.unwrap_or_default())
    }

    #[operation]
    #[cfg(any())]
    fn left_out(&mut self, args: NoSuchType) -> Result<(), Failure> {}

    #[operation]
    #[rustfmt::skip]
    fn r#type(&mut self, about: CallContext<'_>) -> Result<(), Failure> {
        let _ = rigline::protocol::gevals::TaskContext::of(&about).workdir;
        Ok(())
    }

    #[configure]
    fn configure(&mut self, mut config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        let Two { first_one, .. } = config.get()?;
        cx.info(first_one);
        Ok(())
    }
}

fn main() {}
