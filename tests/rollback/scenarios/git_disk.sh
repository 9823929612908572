# git in a directory on a disk: init, commit, branch, merge.
# @heavy
# @needs git
# @timeout 120
# @ignore *
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git config --global user.name n; git config --global user.email e@e; git config --global init.defaultBranch main; git config --global gc.auto 0
git init -q a && cd a
for i in 1 2; do echo "$i" > "f$i"; git add "f$i"; git commit -qm "c$i"; done
git checkout -qb side HEAD~1; echo side > s; git add s; git commit -qm side; git rebase -q main; git log --oneline | cat
git checkout -q main; git merge -q --no-ff -m merged side; git fsck 2>/dev/null; git status --short; git rev-parse HEAD
