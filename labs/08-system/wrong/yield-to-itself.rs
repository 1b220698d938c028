// loses: yield
// A G that yields waits at the head: it lets no other run.
// region: put
match why {
    Why::Yielded => at.push_front(g),
    Why::Readied | Why::Expired => at.push_back(g),
}
