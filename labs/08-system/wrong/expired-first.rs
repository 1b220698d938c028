// loses: fair
// A G whose slice is over waits at the head, and runs again: the others wait for ever.
// region: put
match why {
    Why::Readied | Why::Yielded => at.push_back(g),
    Why::Expired => at.push_front(g),
}
