//! `/proc/PID/limits` and `/proc/PID/stat`.

use crate::{text, Error, Result, TaskId};

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

/// The fields of `/proc/PID/stat` behind the name, from field 3 on.
///
/// # Errors
/// See [`Error`].
pub fn stat_fields(task: impl Into<TaskId>) -> Result<Vec<String>> {
    let task = task.into();
    let stat = text(task, "stat")?;
    // The name in parentheses may contain anything, parentheses included.
    let (_, rest) = stat.rsplit_once(')').ok_or_else(|| Error::no_field(task, "stat", "name"))?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
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
        let task = task.into();
        let fields = stat_fields(task)?;
        let field = |number: usize| {
            let found = fields.get(number - 3).and_then(|field| field.parse().ok());
            found.ok_or_else(|| Error::no_field(task, "stat", &format!("field {number}")))
        };
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
    fn own_marks_are_in_order() {
        let marks = Marks::of(ProcessId::own()).unwrap();
        assert!(marks.code[0] < marks.code[1] && marks.arguments[0] < marks.environment[0]);
    }
}
