use super::*;

const LIMITS: Limits = Limits {
    least_points: 5,
    stretch_points: 10,
    stretch_share: 0.5,
    gradual_share: 0.3,
    step_share: 0.67,
    pause_factor: 2.0,
    returned_share: 0.5,
    often_returned_share: 0.1,
    floor_share: 0.02,
    round_steps: 2.0,
    least_stairs: 2,
    stair_height_share: 0.5,
    stair_share: 0.1,
    stairs_share: 0.9,
    wanders_above: -0.25,
    slowing_share: 0.5,
    new_high_share: 0.5,
    pause_share: 0.15,
    parted_points: 8,
    bound_share: 0.25,
};

fn trend(levels: impl IntoIterator<Item = f64>) -> Trend {
    let points: Vec<Point> = (0..).zip(levels).map(|(x, y)| Point { x: f64::from(x), y, sort: 0 }).collect();
    Trend::of(&points, &LIMITS).unwrap()
}

/// Numbers between -1 and 1 that nobody would take for a line.
fn noise(place: u32) -> f64 {
    f64::from(place.wrapping_mul(2_654_435_761).rotate_left(13).wrapping_mul(2_246_822_519) >> 8) / 8_388_608.0 - 1.0
}

#[test]
fn a_rise_that_goes_on() {
    let line = trend((0..30).map(|step| 16384.0 + 4.0 * f64::from(step)));
    assert_eq!((line.course, line.rate(), line.slope.low, line.slope.high), (Course::Rises, 4.0, 4.0, 4.0));
    assert_eq!(trend((0..6).map(|step| 560.0 * f64::from(step))).course, Course::Rises);
    // One step in 20: the last stretch begins and ends somewhere on a stair.
    let stairs = trend((0..200).map(|step| f64::from(step / 20) * 512.0));
    assert!(stairs.slope.low <= 25.6 && stairs.slope.high >= 25.6, "{stairs:?}");
    // Now and then, and never for long.
    assert!(trend((0..60).map(|step| f64::from(step / 5) * 100.0)).rises());
}

#[test]
fn noise_hides_no_rise_that_goes_on_and_makes_none() {
    let noisy = trend((0..120).map(|step| 16384.0 + 4.0 * f64::from(step) + 40.0 * noise(step)));
    assert_eq!(noisy.course, Course::Rises, "{noisy:?}");
    assert!((noisy.slope.low..noisy.slope.high).contains(&4.0), "{noisy:?}");
    for shift in 0..40 {
        let level = trend((0..120).map(|step| 16384.0 + 40.0 * noise(step + 1000 * shift)));
        assert!(!level.rises(), "{shift}: {level:?}");
    }
}

/// Blocks that stay at random steps, one in ten: the interval has the rate in it about as often as it says.
#[test]
fn the_interval_of_random_steps_has_their_rate_in_it() {
    let (mut has, mut state) = (0, 1_u64);
    for _ in 0..200 {
        // Knuth's generator.
        let mut stays = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u8::from(state >> 33 < (1 << 31) / 10))
        };
        let levels: Vec<f64> = (0..400)
            .scan(0.0, |level, _| {
                *level += stays();
                Some(*level)
            })
            .collect();
        let slope = trend(levels).slope;
        has += u32::from((slope.low..=slope.high).contains(&0.1));
    }
    assert!(has >= 180, "{has} of 200");
}

#[test]
fn a_rise_that_is_over() {
    for flat in [3, 4, 5, 12, 40] {
        for steps in [5, 8, 12, 24] {
            let full = trend((0..=steps + flat).map(|step| 64.0 * f64::from(step.min(steps))));
            assert!(!full.rises() && full.rate() == 0.0, "{steps}, {flat}: {full:?}");
        }
    }
    // A full cache whose entries differ in size.
    let wavers = trend((0..26).map(|step| 64.0 * f64::from(step.min(20)) + 20.0 * noise(step)));
    assert_eq!(wavers.course, Course::Stopped);
    let slower = (0..40).map(|step| 1000.0 - 1000.0 * 0.92f64.powi(step));
    assert_eq!(trend(slower).course, Course::Slows);
}

/// Too short to tell: a leak that is now and then and a cache that is just full look the same.
#[test]
fn a_rise_that_pauses_longer_than_ever_is_not_surely_one() {
    for flat in [1, 2] {
        assert_eq!(trend((0..=24 + flat).map(|step| 64.0 * f64::from(step.min(24)))).course, Course::Pauses);
    }
    // It paused as long before.
    assert_eq!(trend((0..24).map(|step| 64.0 * f64::from(step / 3))).course, Course::Rises);
}

/// A label that comes once, where the program ends, is no new high: it has nothing to be compared with.
#[test]
fn a_label_of_another_sort_at_the_end_does_not_hide_that_a_rise_stopped() {
    let level = |step: u32| 40.0 * f64::from(step.saturating_sub(120).min(60));
    let mut points: Vec<Point> = (0..220).map(|step| Point { x: f64::from(step), y: level(step), sort: 0 }).collect();
    points.push(Point { x: 220.0, y: level(220), sort: 1 });
    let trend = Trend::of(&points, &LIMITS).unwrap();
    assert_eq!((trend.course, trend.rate()), (Course::Stopped, 0.0));
}

/// One long pause before does not make another one a part of the rise; its rate where it ends is then nothing.
#[test]
fn a_rise_that_paused_once_may_have_ended() {
    let level = |step: u32| f64::from(step.min(70) + step.saturating_sub(82).min(18));
    let paused = trend((0..111).map(level));
    assert_eq!((paused.course, paused.paused, paused.rate()), (Course::Pauses, 10, 0.0));
    assert_eq!(trend((0..103).map(level)).course, Course::Rises);
}

#[test]
fn one_step_up_is_no_rise_each_time() {
    for at in 1..39 {
        let step = trend((0..40).map(|cycle| if cycle < at { 2048.0 } else { 5120.0 }));
        assert!(!step.rises(), "{at}: {step:?}");
    }
    let stages = trend((0..47).map(|cycle| f64::from(cycle / 14) * 1024.0));
    assert!(!stages.rises(), "{stages:?}");
}

#[test]
fn what_was_given_back_before_will_be_again() {
    let rounds = |last: i32| (0..40 + last).map(|step| f64::from(step % 10) * 64.0);
    assert!((0..10).all(|last| !trend(rounds(last)).rises()));
    let twice = trend((0..34).map(|step| f64::from(step % 17) * 64.0));
    assert_eq!(twice.course, Course::GivenBack);
    // Four rounds of 100, and one of 500.
    let longer = (0..900).map(|step| f64::from(if step < 400 { step % 100 } else { step - 400 }));
    assert_eq!(trend(longer).course, Course::GivenBack);
    // What stays below the rounds goes on.
    let below = (0..400).map(|step| f64::from(step % 20) * 10.0 + f64::from(step) * 4.0);
    assert_ne!(trend(below).course, Course::GivenBack);
    // A load's buffers went before the first step.
    let load = trend((0..30).map(|step| if step == 0 { 9000.0 } else { 2000.0 + 20.0 * f64::from(step) }));
    assert_eq!(load.course, Course::Rises);
}

#[test]
fn levels_are_compared_with_their_own_sort() {
    let points = |rise: f64| -> Vec<Point> {
        let level = |place: u32| f64::from(place % 3) * 5000.0 + f64::from(place) * rise;
        (0..60).map(|place| Point { x: f64::from(place), y: level(place), sort: place % 3 }).collect()
    };
    let rises = Trend::of(&points(2.0), &LIMITS).unwrap();
    assert_eq!((rises.course, rises.rate()), (Course::Rises, 2.0));
    assert_eq!(Trend::of(&points(0.0), &LIMITS).unwrap().course, Course::Level);
}

#[test]
fn too_little_is_no_trend() {
    assert!(Trend::of(&[], &LIMITS).is_none());
    let points: Vec<Point> = (0..9).map(|sort| Point { x: 1.0, y: 2.0, sort }).collect();
    assert!(Trend::of(&points, &LIMITS).is_none());
}

/// Steps of 2 beside batches of changing length: noise may lay two quarters side by side, and makes no stairs of a steady rise.
#[test]
fn noise_makes_no_stairs_of_a_rise() {
    let levels = [
        140, 119, 140, 167, 170, 171, 192, 192, 189, 189, 207, 199, 201, 213, 210, 223, 213, 215, 239, 250, 229, 247,
        261, 261, 256, 275, 283, 273, 263, 263, 271, 293, 270, 303, 295, 295, 302, 288, 302,
    ];
    let course = |until: usize| trend(levels[..until].iter().map(|level| f64::from(*level))).course;
    assert!(course(39).rises() && course(26).rises(), "{:?} {:?}", course(39), course(26));
    // Two steps up with as much noise are two steps.
    let steps = (0..39).map(|place| f64::from(place / 13 * 60) + noise(place));
    assert!(!trend(steps).course.rises());
}
