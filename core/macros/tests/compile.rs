//! What must compile, and what must not: there, the error points at the user's token and says what to do.
//!
//! The texts are those of the compiler that is installed; after an update, `TRYBUILD=overwrite cargo test -p rigline-macros`.

#[test]
fn faults_are_told_where_they_are() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/fail/*.rs");
    cases.pass("tests/pass/*.rs");
}
