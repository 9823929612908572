//! What happens to whom, told in a line each. The words are explained in `language.rs`.

mod language;

use language::check;

#[test]
fn reading_a_pipe() {
    check(
        "A speculates s1; A writes x to p; B reads p; s1 fails",
        "B back to its read; A back to its speculate; p empty",
    );
    check("A speculates s1; A writes x to p; B reads p; s1 commits", "B runs on; A runs on; p empty; B free; p free");
    check("A writes x to p; B speculates s1; B reads p; s1 fails", "B back to its speculate; p holds x; A runs on");
    check("A speculates s1; A writes x to p; B writes y to p; s1 fails", "B back to its write; p empty");
    check("B writes y to p; A speculates s1; A writes x to p; s1 fails", "B runs on; p holds y");
    check(
        "A writes x to p; A writes y to p; B speculates s1; B reads p; C reads p; s1 fails",
        "C back to its read; p holds x y",
    );
}

#[test]
fn two_speculations() {
    check(
        "A speculates s1; B speculates s2; A writes x to f; B writes y to f; s1 fails",
        "A back to its speculate; B back to its write; f empty; B depends on s2",
    );
    check(
        "A speculates s1; B speculates s2; A writes x to f; B writes y to f; s2 fails",
        "A runs on; B back to its speculate; f holds x; f depends on s1",
    );
    check(
        "A speculates s1; B speculates s2; A writes x to f; B writes y to f; s2 commits; s1 fails",
        "B back to its write; f empty; B free; f free",
    );
    check(
        "A speculates s1; B speculates s2; A writes x to f; B writes y to f; s1 commits; s2 fails",
        "A runs on; f holds x; B back to its speculate; f free",
    );
    check("A speculates s1; 600 ms pass; A speculates s2; s2 fails", "A depends on s1; s1 open");
    check("A speculates s1; 600 ms pass; A speculates s2; s1 fails", "A free; s2 failed");
    check("A speculates s1; A speculates s2; s2 fails", "A free; s1 failed");
    check("A speculates s1 to mutate; A speculates s2; s2 fails", "A depends on s1; s1 open");
}

#[test]
fn a_chain_of_processes() {
    check(
        "A speculates s1; A writes x to p; B reads p; B writes y to q; C reads q; C prints z; s1 fails",
        "A back to its speculate; B back to its read; C back to its read; p empty; q empty; z dropped",
    );
    check(
        "A speculates s1; A writes x to p; B reads p; B writes y to q; C reads q; C prints z; s1 commits",
        "z shown; q empty; C free; B runs on; C runs on",
    );
    check(
        "A speculates s1; A writes x to p; B reads p; B speculates s2; B writes y to q; C reads q; s1 fails",
        "s2 failed; C back to its read; q empty; C free",
    );
    check("C reads f; A speculates s1; A writes x to f; s1 fails", "C runs on; C free");
}

#[test]
fn output() {
    check("A speculates s1; A prints x", "x held");
    check("A speculates s1; A prints x; s1 commits", "x shown");
    check("A speculates s1; A prints x; s1 fails", "x dropped");
    check("A prints x; A speculates s1; s1 fails", "x shown");
    // 000, 5.3: output can appear before all of the process's speculations are resolved.
    check("A speculates s1; A prints x; 600 ms pass; A speculates s2; A prints y; s1 commits", "x shown; y held");
    check("A speculates s1; A prints x; 600 ms pass; A speculates s2; A prints y; s2 commits", "x held; y held");
    check(
        "A speculates s1; A prints x; 600 ms pass; A speculates s2; A prints y; s2 fails; s1 commits",
        "x shown; y dropped",
    );
    check("A speculates s1; A prints x; A speculates s2; s1 commits", "x held");
    check("A speculates s1; A prints x; A writes u to p; B reads p; B prints y; s1 commits", "shown x y");
    check("A speculates s1; A writes u to p; B reads p; B prints y; A prints x; s1 commits", "shown y x");
    check("A speculates s1; A prints x; B prints y; s1 commits", "shown y x");
}

#[test]
fn fork_and_exit() {
    check("A speculates s1; A forks B; s1 fails", "B gone; A back to its speculate");
    check("A speculates s1; A forks B; B prints x; s1 fails", "B gone; x dropped");
    check("A speculates s1; A forks B; B forks C; C writes x to f; s1 fails", "B gone; C gone; f empty");
    check("A forks B; A speculates s1; s1 fails", "B runs on");
    check("A speculates s1; A forks B; s1 commits; B speculates s2; s2 fails", "B back to its speculate");
    check(
        "A speculates s1; A forks B; B speculates s2; s2 fails",
        "B back to its speculate; B depends on s1; A runs on",
    );
    check("A speculates s1; A forks B; B speculates s2; s1 fails", "B gone; s2 failed");
    // 000, 6.9
    check("A speculates s1; A exits", "pid of A taken");
    check("A speculates s1; A exits; s1 commits", "pid of A free");
    check("A speculates s1; A exits; s1 fails", "A back to its speculate; pid of A taken");
    check("A exits", "pid of A free");
    check("B speculates s1; B exits; A waits for B; s1 fails", "A back to its wait; B back to its speculate");
    check("B speculates s1; B exits; A waits for B; A prints x; s1 commits", "x shown; pid of B free");
}

/// A signal is an object of its own (000, 6.7): sending makes it and observes the receiver, delivery modifies it.
#[test]
fn signals() {
    check("A speculates s1; A signals B with k; s1 fails", "B runs on; k empty");
    check("A speculates s1; A signals B with k; B receives k; s1 fails", "B back to its receive; k empty");
    check("B speculates s1; A signals B with k; s1 fails", "A back to its signal; k empty");
    check("A signals B with k; B speculates s1; B receives k; s1 fails", "B back to its speculate; k holds sent");
    check("A speculates s1; A signals B with k; s1 commits", "k free; k holds sent");
}

#[test]
fn commit_dependencies() {
    check("A depends on transaction t1; A writes x to f; B reads f; B prints y", "y held; B depends on t1");
    check("A depends on transaction t1; A writes x to f; B reads f; B prints y; t1 commits", "y shown; B free; f free");
    check("A depends on transaction t1; A speculates s1; A prints x; s1 commits", "x held");
    check(
        "A depends on transaction t1; A prints w; A speculates s1; A prints x; s1 fails; t1 commits",
        "w shown; x dropped",
    );
    check("A speculates s1; A depends on transaction t1; A writes x to f; s1 fails", "A free; f empty; f free");
    check("A depends on transaction t1; B depends on transaction t1; t1 commits", "A free; B free");
}
