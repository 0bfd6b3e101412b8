//! Who started whom, and the order in which processes are listed.

use rustc_hash::FxHashMap;

use super::Member;

/// By this, processes are ordered: nothing in it depends on how the traces were given.
pub(super) fn rank_of(member: &Member) -> (&str, u32, u64, u32, &str) {
    let process = &member.summary.facts.process;
    (&process.hostname, process.rank.unwrap_or(0), member.first.wall_ns, process.pid, &member.summary.facts.trace.path)
}

/// The parent of each, and the order in which children stand behind their parents.
pub(super) fn order(members: &[Member]) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut parents = find_parents(members);
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); members.len()];
    for (child, parent) in parents.iter().enumerate() {
        parent.iter().for_each(|parent| children[*parent].push(child));
    }
    let mut order = Vec::with_capacity(members.len());
    let mut placed = vec![false; members.len()];
    let roots = (0..members.len()).filter(|index| parents[*index].is_none());
    // What no root leads to would be its own ancestor, which no file can make true.
    let (roots, others): (Vec<usize>, Vec<usize>) = (roots.collect(), (0..members.len()).collect());
    for root in roots.into_iter().chain(others) {
        if !placed[root] {
            parents[root] = None;
            walk(root, &children, &mut placed, &mut order);
        }
    }
    (parents, order)
}

fn walk(root: usize, children: &[Vec<usize>], placed: &mut [bool], order: &mut Vec<usize>) {
    let mut waiting = vec![root];
    while let Some(index) = waiting.pop() {
        if !std::mem::replace(&mut placed[index], true) {
            order.push(index);
            waiting.extend(children[index].iter().rev());
        }
    }
}

/// A parent has the number that the child says, on the same host. A process that called `exec` left several traces under
/// one number: the last one that had begun before the child did is meant, else the first.
fn find_parents(members: &[Member]) -> Vec<Option<usize>> {
    let mut by_pid: FxHashMap<(&str, u32), Vec<usize>> = FxHashMap::default();
    for (index, member) in members.iter().enumerate() {
        let process = &member.summary.facts.process;
        by_pid.entry((&process.hostname, process.pid)).or_default().push(index);
    }
    by_pid.values_mut().for_each(|same| same.sort_by_key(|index| members[*index].first.wall_ns));
    let parent = |member: &Member| {
        let process = &member.summary.facts.process;
        let candidates = by_pid.get(&(process.hostname.as_str(), process.parent_pid))?;
        let before = candidates.iter().rfind(|index| members[**index].first.wall_ns <= member.first.wall_ns);
        before.or(candidates.first()).copied().filter(|_| process.parent_pid != process.pid)
    };
    members.iter().map(parent).collect()
}
