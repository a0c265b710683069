//! A misspelt word of each attribute: the error names the word that was meant.
#![allow(deprecated)]
use rigline::{Context, Event, Failure, Outputs, Params};

#[derive(Params)]
#[param(rename_al = "camelCase")]
//~^ [rename_al] did you mean `rename_all`?
struct OnStruct {
    a: u8,
}

#[derive(Params)]
#[param(rename_all = "camel")]
//~^ ["camel"] did you mean `camelCase`?
struct OnCase {
    a: u8,
}

#[derive(Params)]
struct OnField {
    #[param(max = 1)]
    //~^ [max] did you mean `maximum`?
    a: u8,
}

#[derive(Params)]
enum OnVariant {
    #[param(renam = "a")]
    //~^ [renam] did you mean `rename`?
    A,
}

#[derive(Params)]
struct OtherAttribute {
    #[params(minimum = 1)]
    //~^ [params] did you mean `param`?
    a: u8,
}

#[derive(Params)]
#[serde(rename_al = "camelCase")]
//~^ [rename_al] did you mean `rename_all`?
struct OnStructOfSerde {
    a: u8,
}

#[derive(Params)]
struct OnFieldOfSerde {
    #[serde(defualt)]
    //~^ [defualt] did you mean `default`?
    a: u8,
}

#[derive(Outputs)]
#[output(rename = "a")]
//~^ [rename] did you mean `rename_all`?
struct OnOutputs {
    a: u8,
}

#[derive(Outputs)]
struct OnOutput {
    #[output(examples = 1)]
    //~^ [examples] did you mean `example`?
    a: u8,
}

#[derive(Outputs)]
struct OtherAttributeOfOutput {
    #[outputs(example = 1)]
    //~^ [outputs] did you mean `output`?
    a: u8,
}

struct OnBlock;

#[rigline::extension(name = "rig", require("true"))]
//~^ [require] did you mean `requires`?
impl OnBlock {}

struct OnKind;

#[rigline::extension(name = "rig", kind = "tol")]
//~^ ["tol"] did you mean `tool`?
impl OnKind {}

struct OnGuarantees;

#[rigline::extension(name = "rig", guarantees(no_net))]
//~^ [no_net] did you mean `no_network`?
impl OnGuarantees {}

struct OnMethods;

#[rigline::extension(name = "rig")]
impl OnMethods {
    #[operation(readonly)]
    //~^ [readonly] did you mean `read_only`?
    fn reads(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[opration]
    //~^ [opration] did you mean `#[operation]`?
    fn presses(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[rigline::operations(read_only)]
    //~^ [rigline::operations] did you mean `#[operation]`?
    fn holds(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[safestate]
    //~^ [safestate] did you mean `#[safe_state]`?
    fn off(&mut self) {}

    #[configur]
    //~^ [configur] did you mean `#[configure]`?
    fn settings(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    #[on_events]
    //~^ [on_events] did you mean `#[on_event]`?
    fn hears(&mut self, _: Event<'_>, _: &mut Context<'_>) {}

    #[run_tasks]
    //~^ [run_tasks] did you mean `#[run_task]`?
    fn works(&mut self) {}
}

fn main() {}
