#!/usr/bin/env bash
# Proves that the core's release code has no panic path; see src/main.rs.
set -euo pipefail
cd "$(dirname "$0")"
exec cargo run --quiet
