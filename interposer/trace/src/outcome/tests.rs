use proptest::prelude::*;

use super::*;
use crate::record::{Kind, NO_DEVICE};

const OOM: i32 = 2;
const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
const WORK: Step = Step::GpuWork { failed_pointer: false };
const TEXT: Step = Step::ErrorText { status: OOM };

/// The request that fails: 1 GiB of device memory, at 10 ms.
const FAILED: Request = Request {
    at_ns: 10 * MS,
    requested_bytes: 1024 * MIB,
    place: 0x100,
    path: 1,
    device: 0,
    kind: Kind::Device as u8,
    same_variable: false,
};

/// One millisecond after the failure, from another place, to another variable.
const ELSEWHERE: Request = Request { at_ns: 11 * MS, place: 0x200, path: 2, ..FAILED };

fn elsewhere(bytes: u64) -> Request {
    Request { requested_bytes: bytes, ..ELSEWHERE }
}

/// The same some seconds later.
fn late(request: Request) -> Request {
    Request { at_ns: 5000 * MS, ..request }
}

fn got(request: Request) -> Step {
    Step::Allocated(request)
}

fn after(steps: &[Step]) -> (Outcome, Because) {
    let mut watched = Watched::new(FAILED, OOM);
    let mut decided = steps.iter().find_map(|step| watched.step(*step, &Limits::DEFAULT));
    *decided.get_or_insert_with(|| watched.undecided())
}

#[track_caller]
fn expect(story: &str, steps: &[Step], outcome: Outcome, because: Because) {
    assert_eq!(after(steps), (outcome, because), "{story}: {steps:?}");
}

use Because::*;
use Outcome::*;

#[test]
fn the_rules_of_the_contract() {
    let failed_pointer = Step::GpuWork { failed_pointer: true };
    let [well, badly] = [false, true].map(|failure| Step::Ended { failure });
    for (story, steps, outcome, because) in [
        ("nothing more", &[][..], Unresolved, TraceEnded),
        ("a clean end", &[well], Unresolved, TraceEnded),
        ("an end with a failure", &[badly], Propagated, ProcessExited),
        ("work", &[WORK], Dropped, GpuWorkContinued),
        ("work, and memory only then", &[WORK, got(FAILED)], Dropped, GpuWorkContinued),
        ("the pointer is used", &[failed_pointer], Dropped, FailedPointerUsed),
        ("the pointer is used after all", &[Step::LastErrorRead, failed_pointer], Dropped, FailedPointerUsed),
        ("the pointer is used after a report", &[TEXT, failed_pointer], Dropped, FailedPointerUsed),
        ("the pointer is used after other work", &[WORK, WORK, failed_pointer], Dropped, FailedPointerUsed),
        (
            "the pointer is used after a read and work",
            &[Step::LastErrorRead, WORK, failed_pointer],
            Dropped,
            FailedPointerUsed,
        ),
        (
            "the pointer is used after an exception and work",
            &[Step::Thrown, WORK, failed_pointer],
            Dropped,
            FailedPointerUsed,
        ),
        ("work, a bad end", &[WORK, badly], Dropped, GpuWorkContinued),
        ("work, a report, more work", &[WORK, TEXT, Step::Thrown, WORK], Dropped, GpuWorkContinued),
        ("the last error is read", &[Step::LastErrorRead], Propagated, StatusChecked),
        ("the last error is read at the end", &[Step::LastErrorRead, well], Propagated, StatusChecked),
        ("the last error is read before a bad end", &[Step::LastErrorRead, badly], Propagated, StatusChecked),
        ("the last error is cleared, and work goes on", &[Step::LastErrorRead, WORK], Unresolved, ErrorRead),
        ("it is reported", &[Step::LastErrorRead, TEXT], Propagated, ErrorReported),
        ("it is reported, and work goes on", &[Step::LastErrorRead, TEXT, WORK], Propagated, ErrorReported),
        ("another error is reported", &[Step::ErrorText { status: 1 }, WORK], Dropped, GpuWorkContinued),
        ("it is reported at the end", &[TEXT, badly], Propagated, ErrorReported),
        ("an exception, caught", &[Step::Thrown, Step::LastErrorRead, WORK], Propagated, Exception),
        ("an exception, not caught", &[Step::Thrown, badly], Propagated, Exception),
    ] {
        expect(story, steps, outcome, because);
    }
}

#[test]
fn a_retry_is_the_same_again() {
    let other_path = Request { path: 2, ..FAILED };
    for (story, request) in [
        ("from the same place", Request { at_ns: 11 * MS, ..other_path }),
        ("more from the same place", Request { requested_bytes: 1500 * MIB, ..other_path }),
        ("by the same way, whenever", late(FAILED)),
        ("the same size from another place", ELSEWHERE),
        ("the same size, rounded up", elsewhere(1024 * MIB + 4096)),
        ("more into the same variable", Request { same_variable: true, ..elsewhere(2048 * MIB) }),
        ("the same into the same variable, whenever", late(Request { same_variable: true, ..ELSEWHERE })),
        ("more into the same variable, whenever", late(Request { same_variable: true, ..elsewhere(2048 * MIB) })),
        ("more, where nobody knows from which place", Request { place: 0, path: 0, ..elsewhere(2048 * MIB) }),
    ] {
        expect(story, &[got(request), WORK], Recovered, RetrySucceeded);
        expect(story, &[Step::LastErrorRead, TEXT, got(request), WORK], Recovered, RetrySucceeded);
        expect("GPU work first", &[WORK, got(request)], Dropped, GpuWorkContinued);
    }
    for (story, request) in [
        ("more from another place", elsewhere(2048 * MIB)),
        ("more from another place, later", late(elsewhere(2048 * MIB))),
        ("the same size from another place, much later", late(ELSEWHERE)),
        (
            "more from a wrapper that all calls come from, much later",
            late(Request { requested_bytes: 2048 * MIB, ..other_path }),
        ),
        ("the same into a wrapper's own variable, much later", late(Request { same_variable: true, ..other_path })),
        ("less into the same variable, much later", late(Request { same_variable: true, ..elsewhere(512 * MIB) })),
        ("nothing", elsewhere(0)),
    ] {
        expect(story, &[got(request), WORK], Dropped, GpuWorkContinued);
    }
}

#[test]
fn a_fall_back_is_something_else_in_its_place() {
    let pinned = Request { device: NO_DEVICE, kind: Kind::HostPinned as u8, ..ELSEWHERE };
    let pool = Request { kind: Kind::Pool as u8, ..ELSEWHERE };
    for (story, request) in [
        ("half", elsewhere(512 * MIB)),
        ("a trifle into the same variable", Request { same_variable: true, ..elsewhere(4096) }),
        ("a trifle by the same way, whenever", late(Request { requested_bytes: 4096, ..FAILED })),
        ("a trifle from the same place", Request { requested_bytes: 4096, path: 0, ..FAILED }),
        ("pinned host memory", pinned),
        ("less of it", Request { requested_bytes: 512 * MIB, ..pinned }),
        ("more of it", Request { requested_bytes: 2048 * MIB, ..pinned }),
        ("the same of a pool", pool),
        ("another device", Request { device: 1, ..ELSEWHERE }),
    ] {
        expect(story, &[got(request), WORK], Recovered, FellBack);
        expect(story, &[Step::LastErrorRead, got(request), WORK], Recovered, FellBack);
        expect(story, &[TEXT, got(request), WORK], Recovered, FellBack);
    }
    for (story, request) in [
        ("half from another place, seconds later", late(elsewhere(512 * MIB))),
        ("pinned memory from another place, seconds later", late(pinned)),
        ("a trifle for something else", elsewhere(4096)),
        ("a trifle for something else, from the same wrapper", Request { place: FAILED.place, ..elsewhere(4096) }),
        ("a trifle of pinned memory for something else", Request { requested_bytes: 4096, ..pinned }),
        ("something whose size nobody knows", elsewhere(UNKNOWN_BYTES)),
    ] {
        expect(story, &[got(request), WORK], Dropped, GpuWorkContinued);
    }
}

/// A program that gives memory back and takes one larger block for all has memory after all.
#[test]
fn a_joint_block_after_memory_was_given_back_is_a_fall_back() {
    let joint = got(elsewhere(2048 * MIB));
    expect("at once", &[Step::GaveBack, joint, WORK], Recovered, FellBack);
    expect("seconds later", &[Step::GaveBack, got(late(elsewhere(2048 * MIB))), WORK], Dropped, GpuWorkContinued);
    expect("work in between", &[Step::GaveBack, WORK, joint], Dropped, GpuWorkContinued);
    let other = Step::Refused(elsewhere(64 * 1024 * MIB));
    expect("given back for another request", &[Step::GaveBack, other, joint, WORK], Dropped, GpuWorkContinued);
}

/// What an interface above makes of a refusal inside one of its calls, its answer tells.
#[test]
fn an_answer_decides_what_memory_that_came_inside_the_call_was_for() {
    let answered = |failure| Step::Answered { began_ns: 9 * MS, failure };
    let earlier = |failure| Step::Answered { began_ns: 11 * MS, failure };
    let pinned = got(Request { device: NO_DEVICE, kind: Kind::HostPinned as u8, ..ELSEWHERE });
    let badly = Step::Ended { failure: true };
    for (story, steps, outcome, because) in [
        ("it succeeded all the same", &[answered(false), WORK][..], Recovered, FellBack),
        ("it took other memory", &[pinned, answered(false), WORK], Recovered, FellBack),
        ("other memory, and yet it failed", &[pinned, answered(true)], Unresolved, TraceEnded),
        ("and the program ended", &[pinned, answered(true), badly], Propagated, ProcessExited),
        ("and the program went on", &[pinned, answered(true), WORK], Dropped, GpuWorkContinued),
        ("and the program asked again", &[answered(true), got(ELSEWHERE), WORK], Recovered, RetrySucceeded),
        ("the answer of a later call", &[earlier(false), WORK], Dropped, GpuWorkContinued),
        ("the same where memory came", &[pinned, earlier(true), badly], Recovered, FellBack),
    ] {
        expect(story, steps, outcome, because);
    }
    let mut watched = Watched::new(FAILED, OOM);
    watched.step(got(elsewhere(512 * MIB)), &Limits::DEFAULT);
    assert!(watched.is_made_up_by_time_alone());
    watched.step(answered(false), &Limits::DEFAULT);
    assert!(!watched.is_made_up_by_time_alone() && watched.is_made_up());
}

/// What time alone ties to a failure is told as that.
#[test]
fn what_ties_memory_to_a_failure_is_known() {
    let by_time_alone = |steps: &[Step]| {
        let mut watched = Watched::new(FAILED, OOM);
        steps.iter().for_each(|step| _ = watched.step(*step, &Limits::DEFAULT));
        assert!(watched.is_made_up());
        watched.is_made_up_by_time_alone()
    };
    let half = elsewhere(512 * MIB);
    assert!(by_time_alone(&[got(half), WORK]));
    assert!(!by_time_alone(&[Step::GaveBack, got(half)]), "room was made");
    assert!(!by_time_alone(&[got(Request { same_variable: true, ..half })]));
    let wrappers = Request { same_variable: true, place: FAILED.place, ..half };
    assert!(by_time_alone(&[got(wrappers)]), "a wrapper writes to its own variable for all");
    assert!(!by_time_alone(&[got(Request { path: 0, ..wrappers })]), "where the way is not known, it may be a loop");
    assert!(!by_time_alone(&[got(Request { path: FAILED.path, ..half })]));
    assert!(!by_time_alone(&[got(ELSEWHERE)]), "the same size");
    let pinned = |bytes| Request { device: NO_DEVICE, kind: Kind::HostPinned as u8, ..elsewhere(bytes) };
    assert!(by_time_alone(&[got(pinned(600 * MIB))]));
    assert!(by_time_alone(&[got(pinned(2048 * MIB))]), "more of another sort");
    let trifle = |path| got(Request { same_variable: true, path, ..elsewhere(4096) });
    assert!(by_time_alone(&[trifle(2)]), "a variable of the stack has the address of another function's");
    assert!(!by_time_alone(&[trifle(FAILED.path)]), "a loop of attempts");
    assert!(!by_time_alone(&[TEXT, trifle(2)]));
    assert!(!by_time_alone(&[Step::LastErrorRead, got(half)]));
    assert!(!by_time_alone(&[got(half), WORK, TEXT]));
}

/// Memory that comes after GPU work changes nothing of what became of a failure, and is told.
#[test]
fn memory_after_work_is_known() {
    let given_after_work = |by: Request| {
        let mut watched = Watched::new(FAILED, OOM);
        for step in [WORK, Step::GaveBack, got(by), WORK] {
            assert_eq!(watched.step(step, &Limits::DEFAULT), None);
        }
        assert_eq!(watched.undecided(), (Dropped, GpuWorkContinued));
        watched.was_given_after_work()
    };
    assert!(given_after_work(late(FAILED)));
    assert!(given_after_work(Request { requested_bytes: 512 * MIB, ..FAILED }));
    assert!(!given_after_work(elsewhere(512 * MIB)));
    assert!(!given_after_work(elsewhere(2048 * MIB)));
}

/// Memory that came to another variable makes up for nothing if the program uses the one that the failed call left behind.
#[test]
fn a_failed_pointer_that_is_used_after_all_was_not_made_up_for() {
    let used = Step::GpuWork { failed_pointer: true };
    let half = got(elsewhere(512 * MIB));
    for by in [half, got(ELSEWHERE), got(Request { path: 1, ..FAILED })] {
        expect("at once", &[by, used], Dropped, FailedPointerUsed);
        expect("after other work and more memory", &[by, WORK, by, WORK, used], Dropped, FailedPointerUsed);
        expect("after an error was read", &[by, Step::LastErrorRead, TEXT, used], Dropped, FailedPointerUsed);
        expect("the process ends", &[by, WORK, Step::Ended { failure: true }], Recovered, because_of(by));
    }
    // A wrapper's own variable has one address in each call, and what it returned the first time is a null.
    let same_variable = got(Request { same_variable: true, ..ELSEWHERE });
    expect("the same address has memory now", &[same_variable, WORK], Recovered, RetrySucceeded);
    expect("and yet the null is used", &[same_variable, used], Dropped, FailedPointerUsed);
    let late: Vec<Step> = [half].into_iter().chain([WORK; 32]).chain([used]).collect();
    expect("much later", &late, Recovered, FellBack);
    let late: Vec<Step> = [WORK; 33].into_iter().chain([used]).collect();
    expect("much later, unnoticed", &late, Dropped, GpuWorkContinued);
    // Two failures leave the same null behind.
    let another = Step::Refused(self::late(Request { requested_bytes: 64 * 1024 * MIB, ..ELSEWHERE }));
    expect("after a newer failure", &[half, another, used], Recovered, FellBack);
}

fn because_of(by: Step) -> Because {
    after(&[by]).1
}

#[test]
fn memory_of_a_card_is_no_fall_back_for_that_of_the_host() {
    let pinned = Request { device: NO_DEVICE, kind: Kind::HostPinned as u8, requested_bytes: MIB, ..FAILED };
    let then = |request: Request| {
        let mut watched = Watched::new(pinned, OOM);
        let decided = [got(request), WORK].iter().find_map(|step| watched.step(*step, &Limits::DEFAULT));
        decided.unwrap_or(watched.undecided())
    };
    assert_eq!(then(elsewhere(2048 * MIB)), (Dropped, GpuWorkContinued));
    assert_eq!(then(elsewhere(MIB)), (Recovered, FellBack));
    let by_time_alone = |request: Request| {
        let mut watched = Watched::new(pinned, OOM);
        _ = watched.step(got(request), &Limits::DEFAULT);
        watched.is_made_up_by_time_alone()
    };
    assert!(by_time_alone(elsewhere(MIB)), "it may be the block that the host's was to be copied to");
    assert!(!by_time_alone(Request { same_variable: true, ..elsewhere(MIB) }));
    let registered = Request { kind: Kind::Registered as u8, place: 0x200, path: 2, at_ns: 11 * MS, ..pinned };
    assert_eq!(then(registered), (Recovered, FellBack));
}

/// A register gives no memory: a smaller buffer of the program's own, pinned for its transfers, stands for nothing that was refused.
#[test]
fn what_the_program_has_makes_up_only_for_as_much() {
    let registers =
        |bytes| got(Request { device: NO_DEVICE, kind: Kind::Registered as u8, requested_bytes: bytes, ..ELSEWHERE });
    expect("less", &[registers(600 * MIB), WORK], Dropped, GpuWorkContinued);
    expect("less, often", &[registers(600 * MIB), registers(600 * MIB), WORK], Dropped, GpuWorkContinued);
    expect("as much", &[registers(1024 * MIB), WORK], Recovered, FellBack);
    expect("more", &[registers(2048 * MIB), WORK], Recovered, FellBack);
}

#[test]
fn pieces_count_together() {
    let piece = got(elsewhere(8 * MIB));
    expect("one of 128", &[piece, WORK], Dropped, GpuWorkContinued);
    expect("two of 128", &[piece, piece, WORK], Recovered, FellBack);
    expect("two, of which one comes late", &[piece, got(late(elsewhere(8 * MIB))), WORK], Dropped, GpuWorkContinued);
}

#[test]
fn after_an_exception_only_what_is_tied_to_the_failure_makes_up_for_it() {
    let path_unknown = Request { path: 0, ..FAILED };
    for (request, outcome, because) in [
        (ELSEWHERE, Recovered, RetrySucceeded),
        (late(FAILED), Recovered, RetrySucceeded),
        (late(Request { requested_bytes: 512 * MIB, ..FAILED }), Recovered, FellBack),
        (Request { same_variable: true, ..elsewhere(512 * MIB) }, Propagated, Exception),
        (elsewhere(512 * MIB), Propagated, Exception),
        (Request { requested_bytes: 512 * MIB, ..path_unknown }, Propagated, Exception),
        (Request { requested_bytes: 2048 * MIB, ..path_unknown }, Propagated, Exception),
    ] {
        expect("an exception first", &[Step::Thrown, got(request), WORK], outcome, because);
    }
}

#[test]
fn what_sets_something_up_makes_up_for_its_own_sort() {
    let handle = Request { requested_bytes: UNKNOWN_BYTES, ..FAILED };
    let mut watched = Watched::new(handle, OOM);
    assert_eq!(watched.step(got(FAILED), &Limits::DEFAULT), None);
    assert_eq!(watched.step(got(late(handle)), &Limits::DEFAULT), None);
    assert_eq!(watched.undecided(), (Recovered, RetrySucceeded));
}

#[test]
fn attempts_are_compared_with_the_one_before() {
    // Each from a place of its own, half as large as the last, and half a second after it.
    let attempt = |number: u64| Request {
        at_ns: FAILED.at_ns + number * 500 * MS,
        requested_bytes: (1024 * MIB) >> number,
        place: 0x200 + number,
        path: 2 + number as u32,
        ..FAILED
    };
    let mut steps: Vec<Step> = (1..10).map(|number| Step::Refused(attempt(number))).collect();
    steps.extend([got(attempt(10)), WORK]);
    expect("ten attempts", &steps, Recovered, FellBack);
    expect("the last one alone", &steps[9..], Dropped, GpuWorkContinued);
    let unrelated = [Step::Refused(elsewhere(64 * 1024 * MIB)), got(late(elsewhere(32 * 1024 * MIB))), WORK];
    expect("another request is refused", &unrelated, Dropped, GpuWorkContinued);
}

#[test]
fn the_same_variable_is_that_of_the_last_failure() {
    let same_variable = |bytes| Request { same_variable: true, ..elsewhere(bytes) };
    let steps = [Step::Refused(elsewhere(64 * 1024 * MIB)), got(same_variable(4096)), WORK];
    expect("it belongs to the other request", &steps, Dropped, GpuWorkContinued);
    let steps = [Step::Refused(elsewhere(512 * MIB)), got(same_variable(4096)), WORK];
    expect("it belongs to an attempt of this one", &steps, Recovered, FellBack);
}

/// A null in another variable may be used by itself, so its failure ends by itself.
#[test]
fn an_attempt_for_another_variable_is_not_taken_in() {
    for same_variable in [true, false] {
        let attempt = Request { same_variable, ..elsewhere(512 * MIB) };
        let mut watched = Watched::new(FAILED, OOM);
        assert_eq!(watched.step(Step::Refused(attempt), &Limits::DEFAULT), None);
        assert_eq!(watched.last_attempt(), &attempt);
        assert_eq!(watched.takes_in(&Watched::new(attempt, OOM)), same_variable);
    }
}

#[test]
fn time_that_the_recorder_took_is_not_the_programs() {
    let mut watched = Watched::new(FAILED, OOM);
    watched.held_up(4900 * MS);
    assert_eq!(watched.step(got(late(ELSEWHERE)), &Limits::DEFAULT), None);
    assert_eq!(watched.undecided(), (Recovered, RetrySucceeded));
}

/// Failures that are watched one by one, and the same with each attempt taken in by the failure that it belongs to.
#[derive(Default)]
struct Story {
    alone: Vec<(Watched, Option<(Outcome, Because)>)>,
    joined: Vec<(Watched, Vec<usize>)>,
    decided: Vec<Option<Outcome>>,
}

impl Story {
    fn step(&mut self, step: Step) {
        for (watched, decided) in self.alone.iter_mut().filter(|(_, decided)| decided.is_none()) {
            *decided = watched.step(step, &Limits::DEFAULT);
        }
        let decided = &mut self.decided;
        self.joined.retain_mut(|(watched, members)| match watched.step(step, &Limits::DEFAULT) {
            Some((outcome, _)) => {
                members.iter().for_each(|member| decided[*member] = Some(outcome));
                false
            }
            None => true,
        });
        if let Step::Refused(request) = step {
            self.joined.push((Watched::new(request, OOM), vec![self.alone.len()]));
            self.alone.push((Watched::new(request, OOM), None));
            self.decided.push(None);
        }
        let mut index = 1;
        while index < self.joined.len() {
            if self.joined[index - 1].0.takes_in(&self.joined[index].0) {
                let (_, members) = self.joined.remove(index);
                self.joined[index - 1].1.extend(members);
            } else {
                index += 1;
            }
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let request = (0u64..3000, 0u32..12, 0u32..3, 0u8..2, any::<bool>()).prop_map(
        |(at_ms, halves, path, device, same_variable)| Request {
            at_ns: at_ms * MS,
            requested_bytes: (1024 * MIB) >> halves,
            place: u64::from(path) * 16,
            path,
            device,
            kind: Kind::Device as u8,
            same_variable,
        },
    );
    prop_oneof![
        4 => request.clone().prop_map(Step::Refused),
        2 => request.prop_map(Step::Allocated),
        1 => Just(Step::GaveBack),
        2 => Just(Step::LastErrorRead),
        1 => Just(TEXT),
        1 => Just(Step::Thrown),
        1 => any::<bool>().prop_map(|failed_pointer| Step::GpuWork { failed_pointer }),
    ]
}

proptest! {
    /// Joining is for bounded memory and for the page: GPU work, errors and exceptions decide the same for both. Memory that
    /// comes may decide for the whole story where it is too little for its first request alone.
    #[test]
    fn a_joined_story_ends_as_its_parts(steps in proptest::collection::vec(any_step(), 1..40)) {
        let mut story = Story::default();
        let memory_came = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Allocated(_)));
        for (index, step) in steps.iter().enumerate() {
            story.step(*step);
            if memory_came(&steps[..=index]) {
                break;
            }
            for ((_, alone), joined) in story.alone.iter().zip(&story.decided) {
                prop_assert_eq!(alone.map(|(outcome, _)| outcome), *joined);
            }
        }
        prop_assert!(story.joined.len() <= story.alone.len());
    }

    /// A request that recovers the last attempt of a story recovers all of it.
    #[test]
    fn forty_attempts_are_one_story(count in 1usize..40, apart_ms in 0u64..1000, clears in any::<bool>()) {
        let mut story = Story::default();
        let attempt = |number: usize| Request {
            at_ns: number as u64 * apart_ms * MS,
            requested_bytes: (1 << 44) >> number,
            same_variable: number > 0,
            ..FAILED
        };
        for number in 0..count {
            story.step(Step::Refused(attempt(number)));
            if clears {
                story.step(Step::LastErrorRead);
            }
        }
        prop_assert_eq!(story.joined.len(), 1);
        story.step(got(attempt(count)));
        story.step(Step::Ended { failure: false });
        prop_assert!(story.decided.iter().all(|decided| *decided == Some(Recovered)));
        prop_assert!(story.alone.iter().all(|(_, decided)| matches!(decided, Some((Recovered, _)))));
    }
}
