//! Programs that people use, in a directory of the local disk and on a mount of the same name: what they write and
//! leave is the same. `cargo xtask programs` runs all of it; without `BLUEFS_PROGRAMS` what takes long is left out.
//! Mounts need root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::bluefs_support as support;

use support::{Mount, Scene};

/// What `cargo xtask setup` fetches.
const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/sources/hello_2.10.orig.tar.gz");

/// What is run.
struct Work {
    name: &'static str,
    /// Programs without which it is left out.
    needs: &'static [&'static str],
    script: &'static str,
    /// Names, of files and of directories with all that is in them, of which only the kind is compared: numbers of
    /// inodes, times, what a race between two processes decides.
    differ: &'static [&'static str],
}

/// Everything in a directory: of each path what it is, its mode, how many names it has, and its contents.
type Tree = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

fn tree(root: &Path, dir: &Path, differ: &[&str], all: &mut Tree) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let meta = fs::symlink_metadata(&path).expect("there");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let is_other = |other: &&str| name == **other || other.strip_prefix('*').is_some_and(|end| name.ends_with(end));
        let own = !differ.iter().any(is_other);
        let contents = match meta.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes(),
            kind if kind.is_file() && own => fs::read(&path).expect("read"),
            _ => Vec::new(),
        };
        if meta.is_dir() && own {
            tree(root, &path, differ, all);
        }
        let names = if meta.is_file() && own { meta.nlink() } else { 1 };
        let at = path.strip_prefix(root).expect("below it").to_owned();
        all.insert(at, (meta.permissions().mode(), names, contents));
    }
}

/// Runs it in a directory. Says what it has written and left.
fn run(work: &Work, dir: &Path) -> (Tree, String) {
    let home = |name: &str| std::env::var_os(name).unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-ec", work.script]).current_dir(dir).env("HOME", dir).env("LC_ALL", "C").env("TZ", "UTC");
    let root = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    for (name, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let set = home(name);
        shell.env(name, if set.is_empty() { root.join(below).into_os_string() } else { set });
    }
    shell.env("HELLO", HELLO);
    shell.env("GIT_AUTHOR_DATE", "1700000000 +0000").env("GIT_COMMITTER_DATE", "1700000000 +0000");
    shell.env("GIT_CONFIG_NOSYSTEM", "1").env("CARGO_NET_OFFLINE", "true").env_remove("CARGO_TARGET_DIR");
    shell.envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_NAME", "a")]);
    shell.env("GIT_COMMITTER_EMAIL", "a@b").env_remove("RUSTFLAGS").env_remove("MAKEFLAGS");
    let output = shell.output().expect("a shell");
    let said = support::text(&output.stdout);
    assert!(
        output.status.success(),
        "{} in {}: {}\n{said}\n{}",
        work.name,
        dir.display(),
        output.status,
        support::text(&output.stderr)
    );
    let mut all = Tree::new();
    tree(dir, dir, work.differ, &mut all);
    (all, said)
}

fn is_there(program: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", "command -v \"$0\" > /dev/null || test -e \"$0\"", program]);
    shell.status().is_ok_and(|status| status.success())
}

#[track_caller]
fn same_on_a_mount(work: &Work) {
    if let Some(missing) = work.needs.iter().find(|needed| !is_there(needed)) {
        return println!("{}: left out, as {missing} is missing", work.name);
    }
    let scene = Scene::new();
    let server = scene.serve();
    let dir = scene.path("work");
    fs::create_dir(&dir).expect("a directory");
    let begun = Instant::now();
    let (locally, said) = run(work, &dir);
    let took = begun.elapsed();
    fs::rename(&dir, scene.path("local")).expect("renamed");
    let mount = Mount::new(&server.address, &dir, &[]);
    let begun = Instant::now();
    let (there, said_there) = run(work, &mount.0);
    println!("{}: {:.1?} on the disk, {:.1?} on a mount, {} names", work.name, took, begun.elapsed(), there.len());
    assert_eq!(said, said_there, "{}", work.name);
    let paths = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(&locally), paths(&there), "{}", work.name);
    for (path, was) in &locally {
        let is = &there[path];
        let name = path.display();
        assert_eq!((was.0, was.1), (is.0, is.1), "{}: mode and names of {name}", work.name);
        assert!(was.2 == is.2, "{}: {name} has other contents", work.name);
    }
    // A second machine sees the same.
    let second = Mount::new(&server.address, &scene.path("second"), &[]);
    let mut seen = Tree::new();
    tree(&second.0, &second.0, work.differ, &mut seen);
    assert!(seen == there, "{}: another mount sees something else", work.name);
}

fn all() -> bool {
    std::env::var_os("BLUEFS_PROGRAMS").is_some()
}

/// How objects are packed is not compared. On a mount one of eight runs packs the same objects in another way
/// (docs/NEXT.md).
#[test]
fn git_and_its_own_commands() {
    same_on_a_mount(&Work {
        name: "git",
        needs: &["git"],
        script: r#"
            exec 2>&1
            git config --global pack.threads 1; git config --global init.defaultBranch main
            git config --global advice.detachedHead false; git config --global gc.auto 0
            git init -q one; cd one
            for d in a b c; do mkdir $d; for f in 1 2 3 4; do echo $d $f > $d/$f; done; done
            ln -s a/1 soft; chmod +x b/2; git add -A; git commit -qm first
            git checkout -qb side; echo side >> a/1; git mv b/3 c/moved; git commit -qam side
            git checkout -q main; echo main >> c/1; git rm -q a/4; git commit -qam main
            git merge -q --no-edit side; git tag -a -m tag v1; git status --short
            echo more >> a/2; git stash -q; git stash pop -q; git diff --stat; git checkout -q -- a/2
            git checkout -qb third HEAD~1; echo third > third; git add third; git commit -qm third; git rebase -q main
            git log --format='%H %s' --graph; git worktree add -q ../tree side; git worktree list | wc -l
            cd ..; git clone -q one two; git clone -q --no-hardlinks file://$PWD/one three; git clone -q --bare one four
            cd two; echo two > two; git add two; git commit -qm two; git push -q origin HEAD:refs/heads/two; cd ..
            cd three; git fetch -q; git merge -q origin/two; git grep -n third || true
            git read-tree HEAD; git gc -q --prune=now; git fsck --strict
            cd ../one; git read-tree HEAD; git -C ../tree read-tree HEAD; git repack -adq; git prune; git fsck --strict
            git clean -fdxq; git ls-files -s; git reflog | wc -l; git bundle create -q ../bundle --all
            git archive --format=tar HEAD | tar -t; git status --short
            cd ..; git clone -q --bare bundle five
            for r in one two three four five; do git -C $r fsck --strict
            git -C $r cat-file --batch-all-objects --batch-check; done"#,
        // It has numbers of inodes and times in it. All objects are printed: how they are packed is not compared.
        differ: &["index", "pack", "packs", "bundle"],
    });
}

#[test]
fn cargo_builds_and_tests() {
    same_on_a_mount(&Work {
        name: "cargo",
        needs: &["cargo", "gcc"],
        script: r#"
            mkdir -p app/src app/part/src; cd app
            package() { printf '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2021"\n' $1; }
            package app > Cargo.toml; package part > part/Cargo.toml
            printf 'build = "build.rs"\n[dependencies]\npart = { path = "part" }\n[workspace]\n' >> Cargo.toml
            echo 'fn main() { let to = std::env::var("OUT_DIR").unwrap() + "/n.rs";' > build.rs
            echo 'std::fs::write(to, "7").unwrap(); }' >> build.rs
            echo 'pub fn twice(n: u32) -> u32 { 2 * n }' > part/src/lib.rs
            echo '#[test] fn doubles() { assert_eq!(twice(2), 4); }' >> part/src/lib.rs
            echo 'const N: u32 = include!(concat!(env!("OUT_DIR"), "/n.rs"));' > src/main.rs
            echo 'fn main() { println!("{}", part::twice(N)); }' >> src/main.rs
            cargo build -q; target/debug/app; cargo test -q --workspace > /dev/null
            cargo build -q --release; target/release/app
            echo '// changed' >> part/src/lib.rs; cargo build -q; cargo run -q
            cp target/debug/app debug; cp target/release/app release; cargo clean -q; test ! -e target"#,
        differ: &[],
    });
}

#[test]
fn npm_installs() {
    same_on_a_mount(&Work {
        name: "npm",
        needs: &["npm", "node"],
        script: r#"
            export npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
            for p in left right; do mkdir -p $p/bin
                printf '{"name": "%s", "version": "1.0.0", "bin": "bin/run.js"}' $p > $p/package.json
                echo "module.exports = '$p';" > $p/index.js
                printf '#!/usr/bin/env node\nconsole.log("ran");\n' > $p/bin/run.js
                (cd $p; npm pack --silent > /dev/null)
            done
            mkdir app; cd app; npm init -y > /dev/null
            npm install --silent --offline ../left/left-1.0.0.tgz ../right/right-1.0.0.tgz
            node -e 'console.log(require("left"), require("right"))'; npx --no-install left; npm ls
            rm -rf node_modules; npm ci --silent --offline; npm uninstall --silent --offline right; npm ls"#,
        differ: &[".npm", ".package-lock.json"],
    });
}

/// SQLite keeps an index of its log in a shared mapping.
#[test]
fn sqlite_with_a_write_ahead_log() {
    same_on_a_mount(&Work {
        name: "SQLite",
        needs: &["sqlite3"],
        script: r#"
            sqlite3 t.db 'pragma journal_mode = wal; create table t (writer, n);'
            for writer in 1 2 3; do (
                for n in 1 2 3 4 5 6 7 8; do
                    sqlite3 -cmd '.timeout 60000' t.db "insert into t values ($writer, $n)"
                done
            ) & done
            wait
            sqlite3 t.db 'select * from t order by writer, n; pragma integrity_check; pragma journal_mode;'"#,
        differ: &["t.db"],
    });
}

#[test]
fn a_c_package_is_configured_built_and_checked() {
    if !all() {
        return;
    }
    same_on_a_mount(&Work {
        name: "GNU hello",
        needs: &["gcc", "make", "gzip", HELLO],
        script: r#"
            tar xzf "$HELLO"; cd hello-2.10
            ./configure --quiet --disable-nls > ../configure.out 2>&1
            make -j2 > ../make.out 2>&1; sort -o ../make.out ../make.out
            make check > ../check.out 2>&1; grep '^# ' ../check.out
            ./hello; make install DESTDIR="$HOME/installed" > /dev/null 2>&1
            "$HOME/installed/usr/local/bin/hello" --greeting=inside; make distclean > /dev/null"#,
        differ: &["config.log", "*.a"],
    });
}

/// What a registry lets through: some packages with what they need.
#[test]
fn npm_installs_from_a_registry() {
    if !all() {
        return;
    }
    let reaches = Command::new("npm").args(["view", "is-odd@3.0.1", "version"]).output();
    if !reaches.is_ok_and(|output| output.status.success()) {
        return println!("npm, from a registry: left out, as there is none");
    }
    same_on_a_mount(&Work {
        name: "npm, from a registry",
        needs: &["npm", "node"],
        script: r#"
            export npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
            mkdir app; cd app; npm init -y > /dev/null; npm install --silent is-odd@3.0.1 express@4.19.2
            node -e 'console.log(require("is-odd")(3), typeof require("express"))'; npm ls
            rm -rf node_modules; npm ci --silent"#,
        differ: &[".npm", ".package-lock.json"],
    });
}
