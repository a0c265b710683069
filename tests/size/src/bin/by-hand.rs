//! The same three operations by hand.
#![cfg_attr(target_os = "none", no_std, no_main)]

use rigline::json::Decimal;
use rigline::json::de::{DecodeError, Segment};
use rigline::{Call, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};
use rigline_size::Board;
use serde::Deserialize;

#[derive(Deserialize)]
struct Measure<'a> {
    channel: &'a str,
    #[serde(default = "sixteen")]
    samples: u16,
}

fn sixteen() -> u16 {
    16
}

#[derive(Deserialize)]
struct Power {
    rail: Rail,
    on: bool,
}

#[derive(Deserialize)]
enum Rail {
    #[serde(rename = "3V3")]
    Low,
    #[serde(rename = "5V")]
    High,
}

struct Rig(Board);

impl Extension for Rig {
    fn manifest(&self) -> &'static Manifest {
        const MEASURE: Schema = Schema::text(
            r#"{"type":"object","properties":{"channel":{"type":"string","description":"Channel to read, such as `3V3`."},"samples":{"type":"integer","minimum":1,"maximum":1000,"description":"Number of samples to average.","default":16}},"required":["channel"]}"#,
        );
        const POWER: Schema = Schema::text(
            r#"{"type":"object","properties":{"rail":{"enum":["3V3","5V"],"description":"Which rail."},"on":{"type":"boolean","description":"Whether it is on."}},"required":["rail","on"]}"#,
        );
        const MANIFEST: Manifest = Manifest::new("rig", "0.1.0").description("RP2040 hardware-test rig").operations(&[
            Operation::new("measure", MEASURE).description("Measure a rail's voltage."),
            Operation::new("power", POWER).description("Switch a rail."),
            Operation::new("identify", Schema::OBJECT).description("Say who this is."),
        ]);
        &MANIFEST
    }

    async fn call(&mut self, mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        match call.operation() {
            "measure" => {
                let args: Measure<'_> = call.args()?;
                let rule = match args.samples {
                    0 => Some("is below the minimum 1"),
                    1001.. => Some("is above the maximum 1000"),
                    _ => None,
                };
                if let Some(rule) = rule {
                    return Err(Failure::bad_arguments(DecodeError::rule(rule, "").within(Segment::Field("samples"))));
                }
                let volts = self.0.millivolts(args.channel, args.samples);
                cx.output("volts", &Decimal::<3>::from_mantissa(volts))?;
                cx.done("measured")
            }
            "power" => {
                let args: Power = call.args()?;
                self.0.power(args.rail as u8, args.on);
                Ok(Outcome::DONE)
            }
            "identify" => cx.done("a rig"),
            _ => Err(Failure::UNKNOWN_OPERATION),
        }
    }
}

rigline_size::program!(Rig(Board));
