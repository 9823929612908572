//! Draws programs of several processes that talk through pipes and sockets, and share files. A pair of sockets is used
//! in one direction, as a pipe.
//!
//! A program is drawn by running it, one operation after the other, in a model: what would block in the model is not
//! drawn. What its processes read does not depend on their order, because each end of a pipe has one user at a time
//! (Kahn), so that every order of the real processes gives the same, and none of them blocks for ever.

use std::fmt::Write;

/// A source of chance: splitmix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The same seed, the same program.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// 0 to `below` - 1.
    pub fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % below
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize])
    }
}

const PROCESSES_MAX: usize = 7;
const PIPES_MAX: usize = 12;
const FILES_MAX: usize = 4;
const SCENES: u64 = 28;
/// Scenes of directories, links, mappings and locks, which come after the others.
const SCENES_OF_NAMES: u64 = 6;
/// Programs before this one have none of those: what they have found once they find again.
const NAMES_FROM: u64 = 2500;
/// Less than a pipe holds, so that nobody waits for room but where a scene is about that.
const IN_A_PIPE_MAX: u64 = 40_000;

#[derive(Clone, Debug, Default)]
struct End {
    /// Who has it open.
    open: Vec<usize>,
    /// Who may use it.
    user: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct Pipe {
    reader: End,
    writer: End,
    bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct Member {
    ops: Vec<String>,
    has_ended: bool,
    /// Children that are to be waited for.
    children: Vec<usize>,
    /// Ends of pipes that it got from its parent, and that go back to it.
    lent_readers: Vec<usize>,
    lent_writers: Vec<usize>,
    files: [bool; FILES_MAX],
    made: [bool; FILES_MAX],
}

struct Model {
    chance: Chance,
    pipes: Vec<Pipe>,
    members: Vec<Member>,
    has_names: bool,
}

/// The program of this seed, as the interpreter reads it.
pub fn program(seed: u64) -> String {
    let (chance, has_names) = (Chance::new(seed), seed >= NAMES_FROM);
    let mut model = Model { chance, pipes: Vec::new(), members: vec![Member::default()], has_names };
    let steps = 5 + model.chance.below(40);
    for _ in 0..steps {
        model.step();
    }
    model.finish();
    let mut text = format!("program {seed}\n");
    for (number, member) in model.members.iter().enumerate() {
        let _ = writeln!(text, "process {number}\n{}", member.ops.join("\n"));
    }
    text
}

impl Model {
    fn step(&mut self) {
        let alive: Vec<usize> = (0..self.members.len()).filter(|&who| !self.members[who].has_ended).collect();
        let Some(who) = self.chance.pick(&alive) else { return };
        match self.chance.below(20) {
            0 | 1 => self.make_pipe(who),
            2 | 3 => self.fork(who),
            4..=6 => self.write(who),
            7..=9 => self.read(who),
            10 => self.close_end(who),
            11 => self.rename_end(who),
            12 => self.end_or_wait(who),
            13 => self.read_end(who),
            14 => self.say(who, "exec".to_owned()),
            15..=17 => self.file(who),
            _ => {
                let (scene, n) = (self.scene(), 1 + self.chance.below(5000));
                self.say(who, format!("scene {scene} {n}"));
            }
        }
    }

    fn scene(&mut self) -> u64 {
        if self.has_names && self.chance.below(2) == 0 {
            return SCENES + self.chance.below(SCENES_OF_NAMES);
        }
        self.chance.below(SCENES)
    }

    fn say(&mut self, who: usize, op: String) {
        self.members[who].ops.push(op);
    }

    fn make_pipe(&mut self, who: usize) {
        if self.pipes.len() == PIPES_MAX {
            return;
        }
        let end = End { open: vec![who], user: Some(who) };
        self.pipes.push(Pipe { reader: end.clone(), writer: end, bytes: 0 });
        let kind = if self.chance.below(3) == 0 { "pair" } else { "pipe" };
        self.say(who, format!("{kind} {}", self.pipes.len() - 1));
    }

    /// The child gets the use of some of its parent's ends, and at once closes some of the others.
    fn fork(&mut self, who: usize) {
        if self.members.len() == PROCESSES_MAX {
            return;
        }
        let child = self.members.len();
        self.members.push(Member::default());
        self.members[who].children.push(child);
        self.say(who, format!("fork {child}"));
        for number in 0..self.pipes.len() {
            for is_reader in [true, false] {
                self.inherit(who, child, number, is_reader);
            }
        }
    }

    fn inherit(&mut self, who: usize, child: usize, number: usize, is_reader: bool) {
        let gives = self.chance.below(2) == 0;
        let keeps = self.chance.below(3) == 0;
        let end = self.end(number, is_reader);
        if !end.open.contains(&who) {
            return;
        }
        end.open.push(child);
        if gives && end.user == Some(who) {
            end.user = Some(child);
            let lent = &mut self.members[child];
            match is_reader {
                true => lent.lent_readers.push(number),
                false => lent.lent_writers.push(number),
            }
        } else if !keeps {
            self.close(child, number, is_reader);
        }
    }

    fn end(&mut self, number: usize, is_reader: bool) -> &mut End {
        let pipe = &mut self.pipes[number];
        match is_reader {
            true => &mut pipe.reader,
            false => &mut pipe.writer,
        }
    }

    fn close(&mut self, who: usize, number: usize, is_reader: bool) {
        let end = self.end(number, is_reader);
        end.open.retain(|&other| other != who);
        self.say(who, format!("{} {number}", if is_reader { "closer" } else { "closew" }));
    }

    /// Numbers of the pipes whose end this process may use.
    fn usable(&self, who: usize, is_reader: bool) -> Vec<usize> {
        let usable = self.pipes.iter().enumerate().filter(|(_, pipe)| {
            let end = if is_reader { &pipe.reader } else { &pipe.writer };
            end.user == Some(who) && end.open.contains(&who)
        });
        usable.map(|(number, _)| number).collect()
    }

    fn write(&mut self, who: usize) {
        let mut usable = self.usable(who, false);
        // Without a reader it would be killed; a reader that may close first would make that a matter of order.
        usable.retain(|&number| {
            let reader = &self.pipes[number].reader;
            reader.user.is_some_and(|user| reader.open.contains(&user))
        });
        let Some(number) = self.chance.pick(&usable) else { return };
        let room = IN_A_PIPE_MAX - self.pipes[number].bytes;
        let most = match self.chance.below(4) {
            0 => 9000,
            _ => 100,
        };
        if room == 0 {
            return;
        }
        let n = 1 + self.chance.below(room.min(most));
        self.pipes[number].bytes += n;
        self.say(who, format!("write {number} {n}"));
    }

    fn read(&mut self, who: usize) {
        let usable = self.usable(who, true);
        let full: Vec<usize> = usable.into_iter().filter(|&number| self.pipes[number].bytes > 0).collect();
        let Some(number) = self.chance.pick(&full) else { return };
        let n = 1 + self.chance.below(self.pipes[number].bytes);
        self.pipes[number].bytes -= n;
        if self.chance.below(4) == 0 {
            self.say(who, format!("poll {number}"));
        }
        self.say(who, format!("read {number} {n}"));
    }

    /// A reader keeps its end as long as somebody may write: who writes then must not meet a closed pipe in one order
    /// only.
    fn close_end(&mut self, who: usize) {
        let number = self.chance.below(PIPES_MAX as u64) as usize;
        let is_reader = self.chance.below(2) == 0;
        if number >= self.pipes.len() || !self.end(number, is_reader).open.contains(&who) {
            return;
        }
        if is_reader && self.pipes[number].reader.user == Some(who) {
            return;
        }
        self.close(who, number, is_reader);
    }

    fn rename_end(&mut self, who: usize) {
        let is_reader = self.chance.below(2) == 0;
        let usable = self.usable(who, is_reader);
        let Some(number) = self.chance.pick(&usable) else { return };
        self.say(who, format!("{} {number}", if is_reader { "dupr" } else { "dupw" }));
    }

    /// The end of a pipe, once nobody can write any more.
    fn read_end(&mut self, who: usize) {
        let usable = self.usable(who, true);
        let ended = |&number: &usize| self.pipes[number].bytes == 0 && self.pipes[number].writer.open.is_empty();
        let ended: Vec<usize> = usable.into_iter().filter(ended).collect();
        let Some(number) = self.chance.pick(&ended) else { return };
        self.say(who, format!("end {number}"));
    }

    fn end_or_wait(&mut self, who: usize) {
        let children = self.members[who].children.clone();
        let ended: Vec<usize> = children.into_iter().filter(|&child| self.members[child].has_ended).collect();
        if let Some(child) = self.chance.pick(&ended) {
            self.wait(who, child);
        } else if who != 0 && self.members[who].children.is_empty() {
            self.exit(who);
        }
    }

    fn wait(&mut self, who: usize, child: usize) {
        self.say(who, format!("wait {child}"));
        self.members[who].children.retain(|&other| other != child);
        // What was lent to it can be used again.
        for is_reader in [true, false] {
            let lent = match is_reader {
                true => std::mem::take(&mut self.members[child].lent_readers),
                false => std::mem::take(&mut self.members[child].lent_writers),
            };
            for number in lent {
                self.end(number, is_reader).user = Some(who);
            }
        }
    }

    fn exit(&mut self, who: usize) {
        // Whoever writes to it may be late: the last reader leaves when everything was read.
        for number in self.usable(who, true) {
            let n = std::mem::take(&mut self.pipes[number].bytes);
            if n > 0 {
                self.say(who, format!("read {number} {n}"));
            }
        }
        let code = self.chance.below(128);
        self.say(who, format!("exit {code}"));
        for pipe in &mut self.pipes {
            pipe.reader.open.retain(|&other| other != who);
            pipe.writer.open.retain(|&other| other != who);
        }
        self.members[who].has_ended = true;
    }

    fn file(&mut self, who: usize) {
        let slot = self.chance.below(FILES_MAX as u64) as usize;
        let (is_open, is_made) = (self.members[who].files[slot], self.members[who].made[slot]);
        let size = 1 + self.chance.below(6000);
        let op = match (is_open, self.chance.below(9)) {
            (false, 0) if is_made => {
                self.members[who].made[slot] = false;
                format!("funlink {slot}")
            }
            (false, _) => {
                self.members[who].files[slot] = true;
                self.members[who].made[slot] = true;
                format!("open {slot}")
            }
            (true, 0..=2) => format!("fwrite {slot} {size}"),
            (true, 3 | 4) => format!("fread {slot} {size}"),
            (true, 5) => format!("fseek {slot} {size} 0"),
            (true, 6) => format!("ftrunc {slot} {size}"),
            (true, 7) => format!("fstat {slot}"),
            (true, _) => {
                self.members[who].files[slot] = false;
                format!("fclose {slot}")
            }
        };
        self.say(who, op);
    }

    /// Everybody ends, children before their parents.
    fn finish(&mut self) {
        for who in (0..self.members.len()).rev() {
            if self.members[who].has_ended {
                continue;
            }
            for child in self.members[who].children.clone() {
                self.wait(who, child);
            }
            self.exit(who);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_program() {
        assert_eq!(program(7), program(7));
        assert_ne!(program(7), program(8));
        for seed in 0..200 {
            let text = program(seed);
            let (exits, processes) = (text.matches("\nexit ").count(), text.matches("\nprocess ").count());
            assert_eq!(exits, processes, "{text}");
        }
    }

    /// The scenes that this program plays.
    fn scenes(seed: u64) -> Vec<u64> {
        let text = program(seed);
        let played = text.lines().filter_map(|line| line.strip_prefix("scene "));
        played.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect()
    }

    #[test]
    fn scenes_of_names_are_played_from_their_first_program_on() {
        let is_of_names = |scene: &u64| *scene >= SCENES;
        assert!((0..NAMES_FROM).flat_map(scenes).all(|scene| !is_of_names(&scene)));
        let played: std::collections::HashSet<u64> = (NAMES_FROM..NAMES_FROM + 100).flat_map(scenes).collect();
        assert_eq!(played.into_iter().filter(is_of_names).count() as u64, SCENES_OF_NAMES);
    }

    #[test]
    fn the_interpreter_has_as_many_scenes() {
        let source = include_str!("../interpreter.c");
        let (_, list) = source.split_once("scenes[])(long) = {").unwrap();
        let (list, _) = list.split_once('}').unwrap();
        assert_eq!(list.matches("scene_").count() as u64, SCENES + SCENES_OF_NAMES);
    }
}
