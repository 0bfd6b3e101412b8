//! Plays all scenes of a test once, several at the same time.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::scene::{Played, Scene};

/// Scenes that are played at once: most of their time is spent on waiting for a process to end.
const AT_ONCE: usize = 4;

/// The scenes that `SCENE` asks for, played once for all tests of this binary.
pub(crate) fn played(scenes: fn() -> Vec<Scene>) -> &'static [(Scene, Played)] {
    static ALL: OnceLock<Vec<(Scene, Played)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let wanted = std::env::var("SCENE").unwrap_or_default();
        let scenes: Vec<Scene> = scenes().into_iter().filter(|scene| scene.id.contains(&wanted)).collect();
        let next = AtomicUsize::new(0);
        let play = || {
            let mut done = Vec::new();
            while let Some(scene) = scenes.get(next.fetch_add(1, Ordering::Relaxed)) {
                done.push((scene.clone(), scene.play()));
            }
            done
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(play)).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("a scene that can be played")).collect()
        })
    })
}

/// What was expected of a scene, and what came of it.
pub(crate) fn describe(scene: &Scene, expected: &str, played: &Played) -> String {
    let found: Vec<String> =
        played.found.iter().map(|found| format!("{} {} ({})", found.id, found.confidence, found.role)).collect();
    let details = if std::env::var_os("SCENE").is_some() { played.details.as_str() } else { "" };
    let causes = &played.causes;
    format!("{} ({}): {expected}; found {found:?}; causes {causes:?} {details}", scene.id, scene.story)
}
