# git: init, add, commit, status, diff, branch, merge with a conflict, rebase, stash, tag, log.
# @needs git
# @timeout 60
# @ignore index
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git config --global user.name Tester; git config --global user.email t@example.org; git config --global init.defaultBranch main
git init -q repository && cd repository || exit 1
for i in 1 2 3 4 5; do echo "line $i" >> file; mkdir -p "d$i"; echo "$i" > "d$i/f"; git add . && git commit -q -m "commit $i"; done
git status --short --branch
git checkout -q -b topic HEAD~2; echo topic >> file; git commit -q -am topic
git checkout -q main; git merge topic 2>&1; git status --short
printf 'merged\n' > file; git add file; git commit -q -m merged
git checkout -q -b rebased HEAD~1; echo new > new; git add new; git commit -q -m new; git rebase -q main; git log --oneline --graph --all
echo dirty >> file; git stash -q; git status --short; git stash pop -q; git diff; git checkout -q -- .
git tag -a v1 -m v1; git describe; git rev-list --count HEAD; git grep -n line; git blame -s file | head -3
git fsck 2>&1; git show --stat HEAD | cat
