//! The tool `sum` over rigline.

use rigline::{Failure, Outputs, Params};

/// Two numbers.
#[derive(Params)]
struct Sum {
    /// The first.
    a: i32,
    /// The second.
    b: i32,
}

#[derive(Outputs)]
struct Summed {
    /// The sum.
    sum: i64,
}

struct Server;

#[rigline::extension(name = "sum", version = "1.0.0", description = "Adds")]
impl Server {
    /// Adds two numbers.
    #[operation(read_only)]
    fn sum(args: Sum) -> Result<Summed, Failure> {
        Ok(Summed { sum: i64::from(args.a) + i64::from(args.b) })
    }
}

fn main() -> std::process::ExitCode {
    rigline_std::stdio::serve(Server)
}
