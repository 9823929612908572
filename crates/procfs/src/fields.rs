//! `/proc/PID/limits`, `stat`, `statm` and `auxv`.

use crate::{read, text, Error, Result, TaskId};

/// `/proc/PID/limits`.
#[derive(Clone, Debug)]
pub struct Limits {
    task: TaskId,
    text: String,
}

impl Limits {
    /// Read them.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn of(task: impl Into<TaskId>) -> Result<Self> {
        let task = task.into();
        Ok(Self { task, text: text(task, "limits")? })
    }

    /// A soft limit, by its name (`Max open files`). `None`: unlimited.
    ///
    /// # Errors
    /// There is no such limit.
    pub fn soft(&self, name: &str) -> Result<Option<u64>> {
        let lacks = || Error::no_field(self.task, "limits", name);
        let line = self.text.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(lacks)?;
        match line.split_whitespace().next() {
            Some("unlimited") => Ok(None),
            Some(number) => number.parse().map(Some).map_err(|_| lacks()),
            None => Err(lacks()),
        }
    }
}

/// `/proc/PID/stat`. Fields have the numbers of proc_pid_stat(5), which begin at 1.
#[derive(Clone, Debug)]
pub struct Stat {
    task: TaskId,
    text: String,
    /// Where the third field begins.
    rest: usize,
}

impl Stat {
    /// Read it.
    ///
    /// # Errors
    /// See [`Error`]; the same holds for every method: a field that is not there is an error.
    pub fn of(task: impl Into<TaskId>) -> Result<Self> {
        let task = task.into();
        Self::parse(task, text(task, "stat")?)
    }

    /// Of a text that is the file of this task.
    ///
    /// # Errors
    /// It has no name in parentheses.
    pub fn parse(task: impl Into<TaskId>, text: String) -> Result<Self> {
        let task = task.into();
        // The name in parentheses may contain anything, parentheses included.
        let name_ends = text.rfind(')').ok_or_else(|| Error::no_field(task, "stat", "name"))?;
        Ok(Self { task, rest: name_ends + 1, text })
    }

    /// A field, from the third on.
    ///
    /// # Errors
    /// There is no such field, or it is no such number.
    pub fn field<T: std::str::FromStr>(&self, number: usize) -> Result<T> {
        let word = self.text[self.rest..].split_whitespace().nth(number.wrapping_sub(3));
        let lacks = || Error::no_field(self.task, "stat", &format!("field {number}"));
        word.and_then(|word| word.parse().ok()).ok_or_else(lacks)
    }

    /// The letter of the state: `R`, `S`, `t`, `Z`, …
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn state(&self) -> Result<char> {
        self.field(3)
    }

    /// The process group.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn group(&self) -> Result<i32> {
        self.field(5)
    }

    /// The session.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn session(&self) -> Result<i32> {
        self.field(6)
    }

    /// The number of the terminal's device, as of `st_rdev`, if it has one.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn terminal(&self) -> Result<Option<u64>> {
        let number: i32 = self.field(7)?;
        Ok((number != 0).then_some(u64::from(number as u32)))
    }

    /// The process group in the foreground of that terminal.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn foreground(&self) -> Result<i32> {
        self.field(8)
    }

    /// The kernel's flags of the task (`PF_…`).
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn flags(&self) -> Result<u64> {
        self.field(9)
    }

    /// How a process has ended, as of wait(2).
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn exit_code(&self) -> Result<i32> {
        self.field(52)
    }

    /// The signal by which its parent is told of its end; 0: none.
    ///
    /// # Errors
    /// See [`Self::field`].
    pub fn exit_signal(&self) -> Result<i32> {
        self.field(38)
    }
}

/// How many pages of a process are in memory.
///
/// # Errors
/// See [`Error`].
pub fn resident_pages(task: impl Into<TaskId>) -> Result<u64> {
    let task = task.into();
    let sizes = text(task, "statm")?;
    let resident = sizes.split(' ').nth(1).and_then(|word| word.parse().ok());
    resident.ok_or_else(|| Error::no_field(task, "statm", "resident pages"))
}

/// A value of the auxiliary vector of a program, by its kind (`AT_…`, getauxval(3)). `None`: it has none such.
///
/// # Errors
/// See [`Error`].
pub fn auxiliary(task: impl Into<TaskId>, kind: u64) -> Result<Option<u64>> {
    Ok(entry_of(&read(task, "auxv")?, kind))
}

/// Pairs of kind and value, each a word of 64 bits.
fn entry_of(vector: &[u8], kind: u64) -> Option<u64> {
    let word = |at: &[u8]| at.try_into().map_or(0, u64::from_ne_bytes);
    let mut pairs = vector.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..])));
    pairs.find(|&(found, _)| found == kind).map(|(_, value)| value)
}

/// Where the parts of a program lie in memory, in the order of `struct prctl_mm_map`, without `start_brk`'s companion
/// `brk`. All are 0 of a process that we may not trace (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Begin and end of the code.
    pub code: [u64; 2],
    /// Begin and end of the data.
    pub data: [u64; 2],
    /// Begin of the heap.
    pub start_brk: u64,
    /// Begin of the stack.
    pub start_stack: u64,
    /// Begin and end of the arguments.
    pub arguments: [u64; 2],
    /// Begin and end of the environment.
    pub environment: [u64; 2],
}

impl Marks {
    /// Read them.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn of(task: impl Into<TaskId>) -> Result<Self> {
        let stat = Stat::of(task)?;
        let field = |number: usize| stat.field(number);
        Ok(Self {
            code: [field(26)?, field(27)?],
            start_stack: field(28)?,
            data: [field(45)?, field(46)?],
            start_brk: field(47)?,
            arguments: [field(48)?, field(49)?],
            environment: [field(50)?, field(51)?],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessId;

    #[test]
    fn own_limits_are_numbers_or_none() {
        let limits = Limits::of(ProcessId::own()).unwrap();
        assert!(limits.soft("Max open files").unwrap().is_some_and(|most| most > 0));
        assert!(matches!(limits.soft("Max patience"), Err(Error::NoField { .. })));
        let one = Limits {
            task: ProcessId::from_raw(1).into(),
            text: "Max file size             unlimited            unlimited   bytes".into(),
        };
        assert_eq!(one.soft("Max file size").unwrap(), None);
    }

    #[test]
    fn fields_are_behind_a_name_with_everything() {
        let one = ProcessId::from_raw(77);
        let stat = Stat::parse(one, "77 (a) b (c)) S 1 70 71 34816 72 4194564 120".to_owned()).unwrap();
        assert_eq!((stat.state().unwrap(), stat.group().unwrap(), stat.session().unwrap()), ('S', 70, 71));
        assert_eq!((stat.terminal().unwrap(), stat.foreground().unwrap()), (Some(0x8800), 72));
        assert_eq!(stat.flags().unwrap(), 4_194_564);
        assert!(stat.exit_code().is_err() && stat.field::<i32>(1).is_err());
        assert!(Stat::parse(one, String::new()).is_err());
    }

    #[test]
    fn an_entry_is_found_by_its_kind() {
        let vector: Vec<u8> = [6, 4096, 31, 0x7ffd, 0, 0].iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        assert_eq!(
            (entry_of(&vector, 31), entry_of(&vector, 6), entry_of(&vector, 9)),
            (Some(0x7ffd), Some(4096), None)
        );
        const AT_PAGESZ: u64 = 6;
        assert_eq!(auxiliary(ProcessId::own(), AT_PAGESZ).unwrap(), Some(4096));
        assert!(resident_pages(ProcessId::own()).unwrap() > 0);
    }

    #[test]
    fn own_marks_are_in_order() {
        let marks = Marks::of(ProcessId::own()).unwrap();
        assert!(marks.code[0] < marks.code[1] && marks.arguments[0] < marks.environment[0]);
    }
}
