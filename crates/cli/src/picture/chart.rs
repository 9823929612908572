//! The picture over time. A lane for each process; its guesses as bars, its checkpoints as triangles; an arrow where it
//! came to depend on what another one did; a red line through everybody whom a rollback took back. What a thing is, its
//! tooltip says.

use std::collections::HashSet;

use supervisor::{Flow, Guess, History, Outcome, TakenBack};
use svg::node::element::{Definitions, Group, Line, Marker, Path, Polygon, Rectangle, Text, Title};
use svg::{Document, Node};

use super::scale::Scale;
use super::{life_at, title, word};

const LEFT: f64 = 190.0;
const TOP: f64 = 74.0;
const ROW: f64 = 9.0;
/// Rows of bars in a lane; further guesses that are open at the same time share the last one.
const ROWS_MAX: usize = 16;
/// A lane without its bars.
const LANE: f64 = 30.0;
/// Lanes; of more processes only the first are drawn.
const LANES_MAX: usize = 200;

/// Where a lane is.
struct Lane {
    top: f64,
    rows: usize,
}

impl Lane {
    /// The process's own line, below its bars.
    fn base(&self) -> f64 {
        self.top + self.rows as f64 * ROW + 14.0
    }

    fn bottom(&self) -> f64 {
        self.top + self.rows as f64 * ROW + LANE
    }
}

struct Chart<'a> {
    history: &'a History,
    scale: Scale,
    lanes: Vec<Lane>,
    /// Row in its lane, of each guess.
    rows: Vec<usize>,
    end_us: u64,
}

/// The picture as an SVG document.
pub fn chart(history: &History) -> String {
    let chart = Chart::new(history);
    let width = chart.scale.end().max(LEFT + 620.0) + 40.0;
    let bottom = chart.lanes.last().map_or(TOP, Lane::bottom);
    let document = Document::new()
        .set("viewBox", (0.0, 0.0, width, bottom + 44.0))
        .set("width", width)
        .set("height", bottom + 44.0)
        .set("font-family", "sans-serif")
        .set("font-size", 11)
        .add(arrow_head())
        .add(Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white"))
        .add(heading(history))
        .add(legend())
        .add(chart.axis(bottom))
        .add(chart.lives(width))
        .add(chart.rollbacks())
        .add(chart.bars())
        .add(chart.checkpoints())
        .add(chart.flows());
    document.to_string() + "\n"
}

impl<'a> Chart<'a> {
    fn new(history: &'a History) -> Self {
        let moments = moments(history);
        let end_us = moments.iter().copied().max().unwrap_or(0);
        let mut chart = Self { history, scale: Scale::new(moments, LEFT), lanes: Vec::new(), rows: Vec::new(), end_us };
        let used = chart.place_guesses();
        let mut top = TOP;
        for rows in used.into_iter().take(LANES_MAX) {
            let lane = Lane { top, rows };
            top = lane.bottom();
            chart.lanes.push(lane);
        }
        chart
    }

    /// Give each guess a row in which no other one is open at the same time; how many rows each lane needs.
    fn place_guesses(&mut self) -> Vec<usize> {
        let mut ends: Vec<Vec<u64>> = vec![Vec::new(); self.history.lives.len()];
        for guess in &self.history.guesses {
            let until = guess.until_us.unwrap_or(self.end_us);
            let lane = life_at(self.history, guess.pid, guess.since_us).map(|index| &mut ends[index]);
            let row = lane.map_or(0, |rows| match rows.iter().position(|&end| end <= guess.since_us) {
                Some(row) => {
                    rows[row] = until;
                    row
                }
                None if rows.len() < ROWS_MAX => {
                    rows.push(until);
                    rows.len() - 1
                }
                None => ROWS_MAX - 1,
            });
            self.rows.push(row);
        }
        ends.into_iter().map(|rows| rows.len()).collect()
    }

    fn lane(&self, pid: i32, at_us: u64) -> Option<&Lane> {
        self.lanes.get(life_at(self.history, pid, at_us)?)
    }

    fn axis(&self, bottom: f64) -> Group {
        let mut group = Group::new().set("fill", "#666");
        for tick in self.scale.ticks() {
            let x = self.scale.x(tick);
            group.append(line(x, TOP - 8.0, x, bottom, "#eee"));
            group.append(words(x, bottom + 16.0, &format!("{:.1} ms", tick as f64 / 1000.0)));
        }
        group.append(words(
            LEFT,
            bottom + 34.0,
            "time since the start; waits in which nothing happens are drawn short",
        ));
        group
    }

    fn lives(&self, width: f64) -> Group {
        let mut group = Group::new();
        for (life, lane) in self.history.lives.iter().zip(&self.lanes) {
            let (base, until) = (lane.base(), life.until_us.unwrap_or(self.end_us));
            group.append(line(0.0, lane.bottom() - 2.0, width, lane.bottom() - 2.0, "#f0f0f0"));
            for &(from, to) in &life.ahead_us {
                let (from, to) = (self.scale.x(from), self.scale.x(to.unwrap_or(self.end_us)));
                let height = lane.bottom() - lane.top - 4.0;
                group.append(bar(from, lane.top, to - from, height, "#fff6d5", "depends on a guess"));
            }
            group.append(line(self.scale.x(life.since_us), base, self.scale.x(until), base, "#888"));
            group.append(words(LEFT - 10.0, base + 4.0, &title(life)).set("text-anchor", "end"));
        }
        group
    }

    fn bars(&self) -> Group {
        let mut group = Group::new().set("fill-opacity", 0.85);
        for (guess, &row) in self.history.guesses.iter().zip(&self.rows) {
            let Some(lane) = self.lane(guess.pid, guess.since_us) else { continue };
            let (from, to) = (self.scale.x(guess.since_us), self.scale.x(guess.until_us.unwrap_or(self.end_us)));
            let y = lane.top + 2.0 + row as f64 * ROW;
            group.append(bar(from, y, (to - from).max(2.0), ROW - 2.0, colour(guess.outcome), &told(guess)));
        }
        group
    }

    fn checkpoints(&self) -> Group {
        let mut group = Group::new().set("fill", "#1f5fb4");
        for taken in &self.history.checkpoints {
            let Some(lane) = self.lane(taken.pid, taken.at_us) else { continue };
            let (x, y) = (self.scale.x(taken.at_us), lane.base());
            let corners = format!("{},{y} {},{} {},{}", x, x - 4.0, y + 8.0, x + 4.0, y + 8.0);
            let told = format!("checkpoint of {}, {} µs", taken.pid, taken.cost_us);
            group.append(Polygon::new().set("points", corners).add(Title::new(told)));
        }
        group
    }

    fn rollbacks(&self) -> Group {
        let mut group = Group::new().set("stroke", "#c01818");
        for back in &self.history.rollbacks {
            let x = self.scale.x(back.at_us);
            let lanes: Vec<f64> =
                back.pids.iter().filter_map(|&pid| self.lane(pid, back.at_us)).map(Lane::base).collect();
            let (top, bottom) = lanes.iter().fold((f64::MAX, f64::MIN), |(a, b), &y| (a.min(y), b.max(y)));
            let mut marks = Group::new().add(Title::new(explained(back)));
            if top < bottom {
                marks.append(line(x, top, x, bottom, "#c01818").set("stroke-dasharray", "4 2"));
            }
            for y in lanes {
                let cross = format!("M{} {}l10 10m0 -10l-10 10", x - 5.0, y - 5.0);
                marks.append(Path::new().set("d", cross).set("stroke-width", 2).set("fill", "none"));
            }
            group.append(marks);
        }
        group
    }

    fn flows(&self) -> Group {
        let mut group = Group::new().set("fill", "none").set("stroke", "#555");
        let mut named = HashSet::new();
        for flow in &self.history.flows {
            let ends = self.lane(flow.from, flow.at_us).zip(self.lane(flow.to, flow.at_us));
            let Some((from, to)) = ends.map(|(from, to)| (from.base(), to.base())) else { continue };
            let x = self.scale.x(flow.at_us);
            let curve = format!("M{} {from}Q{} {} {x} {to}", x - 3.0, x - 9.0, (from + to) / 2.0);
            let arrow = Path::new().set("d", curve).set("marker-end", "url(#head)");
            group.append(arrow.add(Title::new(carried(flow))));
            if named.insert((flow.from, flow.to, &flow.via)) {
                let middle = (from + to) / 2.0;
                let name = words(x + 2.0, middle, &flow.via).set("font-size", 9).set("fill", "#555");
                group.append(name.set("stroke", "none"));
            }
        }
        group
    }
}

/// Everything that has a place on the axis.
fn moments(history: &History) -> Vec<u64> {
    let lives = history.lives.iter().flat_map(|life| [Some(life.since_us), life.until_us]);
    let guesses = history.guesses.iter().flat_map(|guess| [Some(guess.since_us), guess.until_us]);
    let ahead = history.lives.iter().flat_map(|life| &life.ahead_us).flat_map(|&(from, to)| [Some(from), to]);
    let mut moments: Vec<u64> = lives.chain(guesses).chain(ahead).flatten().collect();
    moments.extend(history.checkpoints.iter().map(|taken| taken.at_us));
    moments.extend(history.rollbacks.iter().map(|back| back.at_us));
    moments.extend(history.flows.iter().map(|flow| flow.at_us));
    moments
}

fn told(guess: &Guess) -> String {
    let took = guess.until_us.map_or("?".to_owned(), |until| (until - guess.since_us).to_string());
    format!("guess of {} at {}: {}, {took} µs", guess.pid, guess.why, word(guess.outcome))
}

fn explained(back: &TakenBack) -> String {
    let (why, cause, cost, operations) = (&back.why, back.cause, back.cost_us, back.operations);
    let pids: Vec<String> = back.pids.iter().map(i32::to_string).collect();
    format!(
        "rollback: a guess of {cause} at {why} was wrong; {cost} µs, {operations} operations, of {}",
        pids.join(", ")
    )
}

fn carried(flow: &Flow) -> String {
    format!("{} depends on {} through {}", flow.to, flow.from, flow.via)
}

fn colour(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Open => "#8fb7e8",
        Outcome::Right => "#3c9a48",
        Outcome::Wrong => "#d62728",
        Outcome::Unmade => "#b0a8a8",
    }
}

fn heading(history: &History) -> Group {
    let (guesses, rollbacks) = (history.guesses.len(), history.rollbacks.len());
    let mut said = format!("{} processes, {guesses} guesses, {rollbacks} rollbacks", history.lives.len());
    if history.left_out > 0 {
        said += &format!("; {} later events are not shown", history.left_out);
    }
    if history.lives.len() > LANES_MAX {
        said += &format!("; the first {LANES_MAX} processes are shown");
    }
    Group::new()
        .add(words(12.0, 20.0, "Who guessed, and who depended on whom").set("font-size", 15))
        .add(words(12.0, 37.0, &said).set("fill", "#444"))
}

fn legend() -> Group {
    let mut group = Group::new();
    let bars = [
        ("#3c9a48", "right"),
        ("#d62728", "wrong"),
        ("#b0a8a8", "taken back with an older one"),
        ("#fff6d5", "depends on a guess"),
    ];
    let mut x = 12.0;
    for (colour, name) in bars {
        group.append(bar(x, 46.0, 18.0, 9.0, colour, name));
        group.append(words(x + 23.0, 54.0, name));
        x += 45.0 + name.len() as f64 * 5.6;
    }
    group.append(words(x, 54.0, "▲ checkpoint   ✕ rollback   → depends on what the other did"));
    group
}

fn arrow_head() -> Definitions {
    let head = Path::new().set("d", "M0 0L6 3L0 6z").set("fill", "#555");
    let marker = Marker::new().set("id", "head").set("orient", "auto").set("refX", 6).set("refY", 3);
    Definitions::new().add(marker.set("markerWidth", 6).set("markerHeight", 6).add(head))
}

fn bar(x: f64, y: f64, width: f64, height: f64, fill: &str, told: &str) -> Rectangle {
    let place = Rectangle::new().set("x", x).set("y", y).set("width", width).set("height", height);
    place.set("fill", fill).add(Title::new(told))
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, stroke: &str) -> Line {
    Line::new().set("x1", x1).set("y1", y1).set("x2", x2).set("y2", y2).set("stroke", stroke)
}

fn words(x: f64, y: f64, text: &str) -> Text {
    Text::new(text).set("x", x).set("y", y)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{history, life};
    use super::*;

    #[test]
    fn everything_that_happened_has_its_mark() {
        let text = chart(&history());
        for (mark, count) in
            [("guess of 7 at stat: ", 1), ("checkpoint of", 2), ("rollback: ", 1), ("depends on 7 through pipe 12", 2)]
        {
            assert_eq!(text.matches(mark).count(), count, "{mark}: {text}");
        }
        assert!(text.contains("sort \"&lt;&amp;&gt;\" 8"), "names are text, whatever they are: {text}");
    }

    #[test]
    fn guesses_that_are_open_at_the_same_time_lie_beside_each_other() {
        let history = history();
        let chart = Chart::new(&history);
        assert_eq!(chart.rows, [0, 1, 0, 0]);
        assert_eq!(chart.lanes.iter().map(|lane| lane.rows).collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn many_guesses_and_no_guess_can_be_drawn() {
        let guess = Guess { pid: 7, why: "stat".into(), since_us: 5, until_us: None, outcome: Outcome::Open };
        let many = History { lives: vec![life(7, "x", 0, Some(100))], guesses: vec![guess; 500], ..History::default() };
        assert_eq!(Chart::new(&many).lanes[0].rows, ROWS_MAX);
        assert!(chart(&History::default()).starts_with("<svg"));
    }
}
