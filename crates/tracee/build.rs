//! Builds the agent: a freestanding program with its own flags, as one flat image.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let manifest = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = manifest.parent().expect("crates/tracee has a parent");
    let agent = crates.join("agent");
    // As seen from here: a target directory that was copied with its checkout looks at the copy.
    for folder in ["agent", "agent-abi", "commit-clock", "epochs", "syscall-table"] {
        println!("cargo:rerun-if-changed=../{folder}/src");
        println!("cargo:rerun-if-changed=../{folder}/Cargo.toml");
    }
    let script = agent.join("agent.ld");
    println!("cargo:rerun-if-changed=../agent/agent.ld");
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets it"));
    let target = out.join("agent-target");
    let flags = [
        // Every vector register is the program's: the agent must not touch one (docs/decisions/0003).
        "-Ctarget-feature=-sse,-sse2".to_string(),
        "-Crelocation-model=pic".into(),
        "-Cno-redzone=yes".into(),
        format!("-Clink-arg=-T{}", script.display()),
        "-Clink-arg=-nostdlib".into(),
        "-Clink-arg=-static".into(),
        "-Clink-arg=-no-pie".into(),
        "-Clink-arg=-Wl,--oformat=binary".into(),
        "-Clink-arg=-Wl,--no-dynamic-linker".into(),
        "-Clink-arg=-Wl,--build-id=none".into(),
    ];
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(agent.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    for name in [
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
        "CARGO_BUILD_RUSTFLAGS",
    ] {
        command.env_remove(name);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    let output = command.output().expect("cannot start cargo to build the agent");
    if !output.status.success() {
        panic!("the agent does not build:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    std::fs::copy(target.join("release/agent"), out.join("agent.bin"))
        .expect("the agent's image is there once it is built");
}
