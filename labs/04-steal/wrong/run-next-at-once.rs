// loses: victims
// Takes run-next Gs in the first pass, which their P was about to run, while rings have Gs.
// region: steal_work
if !p.marks.has(Marks::SPINNING) && !self.idle.try_spin(self.limit()) {
    return None;
}
p.marks.set(Marks::SPINNING);
let slots = self.acquired();
for pass in 1..=STEAL_PASSES {
    let mut victims = self.idle.busy_ps(slots.len());
    victims.remove(p.index);
    if victims.is_empty() {
        return None;
    }
    for index in victims.iter_from(p.random.next()) {
        let victim = &slots[index].runq;
        let mut taken = p.runq.steal(victim);
        if taken.is_none() && pass >= 1 {
            taken = steal_front(victim);
        }
        if let Some((g, stolen)) = taken {
            p.count_steal(index, stolen);
            return Some((g, Slice::New));
        }
    }
}
None
