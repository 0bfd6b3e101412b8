//! A. Capacity and the shape of requests, I. the host's memory, and J. the hardware.

use crate::scene::Scene;

pub(crate) fn scenes() -> Vec<Scene> {
    Vec::new()
}
