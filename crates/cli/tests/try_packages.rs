//! Installers and clean-up scripts of real packages, and a git rebase gone wrong: undone exactly, and kept exactly as
//! without `try`.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::manifest::{assert_same, await_news, comparable, manifest, Manifest};
use support::{can_mount, skipped, tree};

struct Case<'a> {
    name: &'a str,
    /// Run in two folders that are otherwise empty.
    prepare: &'a str,
    /// What is tried there.
    script: &'a str,
    /// Its status.
    status: i32,
    /// Ends of the names of files that hold times or inode numbers.
    volatile: &'a [&'a str],
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/sources")
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    // Mounts that a script makes are its own.
    command.args(["-c", script]).stdin(Stdio::null());
    for (name, value) in [("GIT_COMMITTER_DATE", "2005-04-07T22:13:13"), ("GIT_AUTHOR_DATE", "2005-04-07T22:13:13")] {
        command.env(name, value);
    }
    for name in ["GIT_COMMITTER_NAME", "GIT_AUTHOR_NAME", "GIT_COMMITTER_EMAIL", "GIT_AUTHOR_EMAIL"] {
        command.env(name, "nobody");
    }
    command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").env("SOURCES", sources());
    command
}

impl Case<'_> {
    fn seen(&self, root: &Path, since: i64) -> Manifest {
        let mut found = comparable(manifest(root), since);
        for (path, entry) in &mut found {
            if self.volatile.iter().any(|end| path.to_string_lossy().ends_with(end)) {
                entry.contents.clear();
                entry.segments.clear();
                entry.blocks = 0;
            }
        }
        found
    }

    fn run(&self, root: &Path, decision: Option<&str>) -> Option<i32> {
        let speculator = env!("CARGO_BIN_EXE_speculator");
        let folder = root.parent().unwrap().display();
        let prefix = match decision {
            Some(decision) => format!("{speculator} try {decision} --layer-dir {folder} -- "),
            None => String::new(),
        };
        let output = shell(self.script).env("TRY", prefix).current_dir(root).output().unwrap();
        if std::env::var_os("TRY_SHOW").is_some() || output.status.code() != Some(self.status) {
            eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        output.status.code()
    }

    fn check(&self) {
        if !can_mount() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("place/root");
        std::fs::create_dir_all(&root).unwrap();
        let prepared = shell(self.prepare).current_dir(&root).output().unwrap();
        if prepared.status.code() == Some(77) {
            skipped(&format!("{}: {}", self.name, String::from_utf8_lossy(&prepared.stderr).trim()));
            return;
        }
        assert!(prepared.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&prepared.stderr));
        // Each run begins with the same tree at the same place.
        tree::run(folder.path(), "cp -a place original");
        let again = || tree::run(folder.path(), "rm -rf place && cp -a original place");
        again();
        let before = manifest(&root);
        assert_eq!(self.run(&root, Some("--no")), Some(self.status), "{}", self.name);
        assert_same(&before, &manifest(&root), &format!("{} undone", self.name));
        let since = await_news();
        assert_eq!(self.run(&root, None), Some(self.status), "{}", self.name);
        let expected = self.seen(&root, since);
        assert_ne!(expected, comparable(before, since), "{} must do something", self.name);
        again();
        assert_eq!(self.run(&root, Some("--yes")), Some(self.status), "{}", self.name);
        assert_same(&expected, &self.seen(&root, since), &format!("{} kept", self.name));
        // What was kept can be tried again, and undone again.
        let before = manifest(&root);
        self.run(&root, Some("--no"));
        assert_same(&before, &manifest(&root), &format!("{} undone after it was kept", self.name));
    }
}

#[test]
fn a_git_rebase_gone_wrong() {
    Case {
        name: "git rebase",
        prepare: "git init -q -b main . && for i in 1 2 3; do echo $i > f; echo $i > g$i; git add -A; git commit -qm $i; done &&
                  git checkout -qb topic HEAD~2 && for i in 4 5; do echo $i > f; echo $i > t$i; git add -A; git commit -qm $i; done &&
                  touch -d 2001-01-01 f t4",
        script: "$TRY git rebase main",
        status: 1,
        volatile: &[".git/index"],
    }
    .check();
}

#[test]
fn git_that_cleans_up_too_much() {
    Case {
        name: "git clean",
        prepare: "git init -q -b main . && echo 1 > f && git add f && git commit -qm 1 && echo 2 > f && mkdir -p new/dir && echo > new/dir/x &&
                  git stash -q && git branch other && echo '*.o' > .gitignore && touch a.o b.o",
        script: "$TRY sh -c 'git clean -qfdx && git stash drop -q && git branch -qD other && git gc -q --prune=now && git reset -q --hard'",
        status: 0,
        volatile: &[".git/index"],
    }
    .check();
}

/// Built once, beside the two roots.
const HELLO: &str = "test -e $SOURCES/hello_2.10.orig.tar.gz || { echo no sources of hello >&2; exit 77; }
    tar xzf $SOURCES/hello_2.10.orig.tar.gz && mv hello-2.10 ../build && cd ../build && ./configure -q --prefix=/usr >/dev/null 2>&1 && make -s >/dev/null 2>&1";

#[test]
fn make_install_and_uninstall() {
    Case {
        name: "make install",
        prepare: HELLO,
        script: "$TRY make -s -C ../build install DESTDIR=$PWD",
        status: 0,
        volatile: &[],
    }
    .check();
    Case {
        name: "make uninstall",
        prepare: &format!("({HELLO}) && make -s -C ../build install DESTDIR=$PWD >/dev/null 2>&1"),
        script: "$TRY make -s -C ../build uninstall DESTDIR=$PWD",
        status: 0,
        volatile: &[],
    }
    .check();
}

/// A root with the packages that Debian requires, as they are on this machine.
const DEBIAN: &str = r#"
command -v dpkg-query >/dev/null || { echo not Debian >&2; exit 77; }
for name in bin sbin lib lib64; do test -L /$name || { echo usr is not merged >&2; exit 77; }; cp -a /$name .; done
packages=$(dpkg-query -f '${Package} ${Priority} ${Essential}\n' -W | awk '$2 == "required" || $3 == "yes" {print $1}')
libraries='libc6 libtinfo6 libncursesw6 libcrypt1 debianutils libmd0 libdb5.3 libacl1 libattr1 libselinux1 libpcre2-8-0 zlib1g liblzma5 libbz2-1.0 libzstd1 libaudit1 libcap-ng0 libsemanage2 libpam0g libgmp10 libssl3 libgcc-s1 perl-base'
for package in $packages $libraries; do dpkg-query -L $package 2>/dev/null; done | sed 's#^/\(bin\|sbin\|lib\|lib64\)/#/usr/\1/#' | sort -u | grep -v '^/\.$' |
    while read -r file; do test -L "$file" && echo "$file" && continue; test -e "$file" && echo "$file"; done | grep -vx '/bin\|/sbin\|/lib\|/lib64' > ../list
tar -C / -c --no-recursion -T ../list 2>/dev/null | tar -x -p
mkdir -p dev proc tmp var/lib var/log etc
cp -a /var/lib/dpkg var/lib/; rm -f var/lib/dpkg/lock*; cp -a /etc/passwd /etc/group /etc/shadow /etc/shells etc/
cp -a /etc/alternatives etc/; cp -a /etc/ld.so.c* etc/
"#;

fn debian(name: &str, package: &str, prepare: &str, script: &str) {
    let fetch = format!(
        "ls $SOURCES/{package}_*.deb >/dev/null 2>&1 || (cd $SOURCES && apt-get download -q {package} >/dev/null 2>&1) || {{ echo no {package} >&2; exit 77; }}
         cp $SOURCES/{package}_*.deb package.deb"
    );
    // A mount namespace of the script's own, so that the root has a /dev while it runs, and afterwards nothing is
    // mounted.
    let inside = |script: &str| format!("unshare -m sh -ec 'mount --bind /dev dev; {script}'");
    Case {
        name,
        prepare: &format!(
            "set -e; {DEBIAN} {fetch}; {}",
            if prepare.is_empty() { "true".to_owned() } else { inside(prepare) }
        ),
        script: &inside(script),
        status: 0,
        volatile: &[".log", "aux-cache"],
    }
    .check();
}

#[test]
fn dpkg_installs() {
    for package in ["ed", "tcsh"] {
        debian(&format!("dpkg -i {package}"), package, "", "$TRY chroot . dpkg --force-all -i /package.deb");
    }
}

#[test]
fn dpkg_removes_and_purges() {
    for package in ["nano", "tcsh"] {
        let install = "chroot . dpkg --force-all -i /package.deb >/dev/null 2>&1";
        let purge = format!("$TRY chroot . dpkg --force-all --purge {package}");
        debian(&format!("dpkg --purge {package}"), package, install, &purge);
    }
}

const WHEEL: &str = r#"
python3 -m pip --version >/dev/null 2>&1 || { echo no pip >&2; exit 77; }
python3 - <<'P'
import zipfile
with zipfile.ZipFile("tiny-1.0-py3-none-any.whl", "w") as z:
    def add(name, text): z.writestr(zipfile.ZipInfo(name, (2001, 1, 1, 0, 0, 0)), text)
    for i in range(20): add(f"tiny/m{i}.py", f"x = {i}\n")
    add("tiny/__init__.py", "def main(): print('tiny')\n")
    d = "tiny-1.0.dist-info/"
    add(d + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
    add(d + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    add(d + "entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
    add(d + "RECORD", "".join(f"tiny/m{i}.py,,\n" for i in range(20)) + f"tiny/__init__.py,,\n{d}METADATA,,\n{d}WHEEL,,\n{d}entry_points.txt,,\n{d}RECORD,,\n")
P
"#;

#[test]
fn pip_installs_and_uninstalls() {
    let pip = |words: &str| {
        format!(
            "HOME=$PWD PYTHONUSERBASE=$PWD/user PIP_NO_CACHE_DIR=1 python3 -m pip --disable-pip-version-check {words}"
        )
    };
    let install = pip("install -q --user --no-index --no-warn-script-location ./tiny-1.0-py3-none-any.whl");
    let volatile = [".pyc", "RECORD", "direct_url.json", "user/bin/tiny"];
    Case {
        name: "pip install",
        prepare: WHEEL,
        script: &format!("export TRY; $TRY env {install}"),
        status: 0,
        volatile: &volatile,
    }
    .check();
    let prepare = format!("{WHEEL}\nenv {install} 2>/dev/null");
    let script = format!("$TRY env {}", pip("uninstall -q -y tiny"));
    Case { name: "pip uninstall", prepare: &prepare, script: &script, status: 0, volatile: &volatile }.check();
}

const NODE: &str = r#"
command -v npm >/dev/null || { echo no npm >&2; exit 77; }
mkdir -p tiny/lib home && cd tiny && echo '{"name":"tiny","version":"1.0.0","bin":{"tiny":"cli.js"},"scripts":{"postinstall":"node built.js"}}' > package.json
echo "require('fs').writeFileSync('built', 'x')" > built.js
printf '#!/usr/bin/env node\n' > cli.js; for i in $(seq 30); do echo "module.exports = $i" > lib/$i.js; done
HOME=$PWD/../home npm_config_cache=$PWD/../../cache npm pack -s >/dev/null; mv *.tgz ..; cd ..; rm -rf tiny home; echo '{"name":"top","version":"1.0.0"}' > package.json
"#;

#[test]
fn npm_installs_and_uninstalls() {
    let npm = |words: &str| format!("npm_config_cache=$PWD/../cache npm_config_update_notifier=false npm {words}");
    let install = npm("install -s --offline --no-audit --no-fund ./tiny-1.0.0.tgz");
    Case { name: "npm install", prepare: NODE, script: &format!("$TRY env {install}"), status: 0, volatile: &[] }
        .check();
    let prepare = format!("{NODE}\nenv {install} >/dev/null");
    let script = format!("$TRY env {}", npm("uninstall -s --offline --no-audit --no-fund tiny"));
    Case { name: "npm uninstall", prepare: &prepare, script: &script, status: 0, volatile: &[] }.check();
}

#[test]
fn an_rm_in_a_scratch_tree() {
    Case {
        name: "rm -rf",
        prepare: "for i in $(seq 30); do mkdir -p d$i/e/f; for j in $(seq 40); do echo $i $j > d$i/e/$j; done; ln d$i/e/1 d$i/f; done",
        script: "$TRY sh -c 'rm -rf d? d1* d2*/e'",
        status: 0,
        volatile: &[],
    }
    .check();
}
