use rigline::Outputs;

#[derive(Outputs)]
struct Measured {
    /// The voltage.
    volts: u8,
    /// The same.
    #[output(rename = "volts")]
    again: u8,
    //~^ [again] two fields have the name `volts`: rename one of them
}

fn main() {}
