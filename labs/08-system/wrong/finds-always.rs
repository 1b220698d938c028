// loses: correct
// Takes it for granted that a G is ready: a P also looks when none is.
// region: find
Some(at.take().expect("a G is ready"))
