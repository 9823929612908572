# The Go tool chain compiles, tests and runs a small program (many processes and threads).
# @needs go
# @timeout 240
export GOCACHE=$HOME/cache GOPATH=$HOME/go GOFLAGS=-trimpath GOTELEMETRY=off CGO_ENABLED=0 GOTOOLCHAIN=local
mkdir m; cd m || exit 1; printf 'module m\n\ngo 1.18\n' > go.mod
printf 'package main\n\nfunc add(a, b int) int { return a + b }\n\nfunc main() { println(add(1, 2)) }\n' > main.go
go build -o program . && ./program; go vet . && echo vetted; printf 'package main\n\nfunc main() { x }\n' > main.go; go build . > /dev/null 2>&1; echo "status $?"
cd ..; chmod -R u+w cache go 2>/dev/null; rm -rf cache go .config m/program
