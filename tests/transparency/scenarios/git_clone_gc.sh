# git clone (local, over a pipe, shallow), push, fetch, gc, repack, worktree, archive, bundle.
# @needs git
# @timeout 120
# @ignore index FETCH_HEAD
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git config --global user.name Tester; git config --global user.email t@example.org; git config --global init.defaultBranch main
git config --global pack.threads 1; git config --global gc.auto 0; git config --global protocol.file.allow always; git config --global core.fsync all
git init -q source; cd source || exit 1
for i in $(seq 40); do seq $((i * 50)) > "file$i"; git add .; git commit -q -m "commit $i"; done
git gc -q; git count-objects | cut -d, -f1; ls .git/objects/pack | wc -l
cd ..; git clone -q source local; git clone -q --no-local source piped; git clone -q --depth 3 "file://$PWD/source" shallow; git clone -q --bare source bare.git
git -C shallow rev-list --count HEAD
cd local; echo more > more; git add more; git commit -q -m more; git push -q ../bare.git main 2>&1; git -C ../bare.git log --oneline -1
cd ../piped; git pull -q ../bare.git main; git log --oneline -2; git repack -q -a -d; git fsck 2>&1
git worktree add -q ../tree HEAD~5 2>&1; ls ../tree | wc -l; git archive HEAD | sha256sum; git bundle create -q ../bundle HEAD; git bundle verify -q ../bundle && echo verified
git status --short; rm -rf ../tree
