
use rigline::Failure;

struct Rig;

#[rigline::extension(name = "rig")]
impl Rig {
    /// Described.
    #[operation]
    fn health(&mut self) -> Result<(), Failure> {
    //~^ [health] `Amplifier_has_its_own_operation_health`: this one can be reached there by a nested `invoke` only
        Ok(())
    }

    /// Described.
    #[operation(name = "describe")]
    //~^ ["describe"] `Amplifier_has_its_own_operation_describe`: this one can be reached there by a nested `invoke` only
    fn tell(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

fn main() {}
