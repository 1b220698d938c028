//! `HashMap` and `HashSet`: those of the crate `hashbrown`, as in std, with random keys.
//!
//! The keys of the hash differ from map to map, and from boot to boot unless `seed=` is given: so
//! input cannot be made to collide, and no program relies on an order.
#![forbid(unsafe_code)]
#![expect(deprecated, reason = "core has SipHash by this name only")]

use super::random::random;
use core::fmt;
use core::hash::{BuildHasher, Hash, SipHasher};
use core::ops::{Deref, DerefMut};

/// Makes the hashers of one map: SipHash with keys of its own.
#[derive(Clone, Debug)]
pub struct RandomState([u64; 2]);

impl Default for RandomState {
    fn default() -> Self {
        RandomState([random(), random()])
    }
}

impl BuildHasher for RandomState {
    type Hasher = SipHasher;
    fn build_hasher(&self) -> SipHasher {
        SipHasher::new_with_keys(self.0[0], self.0[1])
    }
}

/// The impls that both have. `$t` are the type parameters, `$value` the one that is not hashed, if
/// there is one; `$item` is what goes in and comes out.
macro_rules! hashed {
    ($name:ident, [$($t:ident),+], $($value:ident)?, $item:ty) => {
        impl<$($t),+> $name<$($t),+> {
            /// Empty; it allocates when something is put in.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            /// Empty, with room for so many.
            #[must_use]
            pub fn with_capacity(capacity: usize) -> Self {
                let hasher = RandomState::default();
                $name(hashbrown::$name::with_capacity_and_hasher(capacity, hasher))
            }
        }

        impl<$($t),+> Default for $name<$($t),+> {
            fn default() -> Self {
                $name(hashbrown::$name::default())
            }
        }

        impl<$($t),+> Deref for $name<$($t),+> {
            type Target = hashbrown::$name<$($t,)+ RandomState>;
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }

        impl<$($t),+> DerefMut for $name<$($t),+> {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0
            }
        }

        impl<K: Eq + Hash $(, $value)?> FromIterator<$item> for $name<$($t),+> {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                $name(items.into_iter().collect())
            }
        }

        impl<K: Eq + Hash $(, $value)?, const N: usize> From<[$item; N]> for $name<$($t),+> {
            fn from(items: [$item; N]) -> Self {
                items.into_iter().collect()
            }
        }

        impl<$($t),+> IntoIterator for $name<$($t),+> {
            type Item = $item;
            type IntoIter = <hashbrown::$name<$($t,)+ RandomState> as IntoIterator>::IntoIter;
            fn into_iter(self) -> Self::IntoIter {
                self.0.into_iter()
            }
        }

        impl<'a, $($t),+> IntoIterator for &'a $name<$($t),+> {
            type Item = <&'a hashbrown::$name<$($t,)+ RandomState> as IntoIterator>::Item;
            type IntoIter = <&'a hashbrown::$name<$($t,)+ RandomState> as IntoIterator>::IntoIter;
            fn into_iter(self) -> Self::IntoIter {
                (&self.0).into_iter()
            }
        }

        impl<$($t: Clone),+> Clone for $name<$($t),+> {
            fn clone(&self) -> Self {
                $name(self.0.clone())
            }
        }

        impl<$($t: fmt::Debug),+> fmt::Debug for $name<$($t),+> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// A map by the hash of its keys: the methods are those of [`hashbrown::HashMap`], to which it
/// dereferences, and of std.
///
/// ```
/// use runnext::prelude::*;
/// let mut words: HashMap<&str, usize> = HashMap::new();
/// for word in "the cat and the dog".split(' ') {
///     *words.entry(word).or_insert(0) += 1;
/// }
/// assert_eq!((words["the"], words.get("bird")), (2, None));
/// ```
pub struct HashMap<K, V>(hashbrown::HashMap<K, V, RandomState>);

/// A set by the hash of its values, as [`HashMap`].
///
/// ```
/// use runnext::prelude::*;
/// let seen: HashSet<u32> = [1, 2, 2, 3].into_iter().collect();
/// assert_eq!((seen.len(), seen.contains(&2)), (3, true));
/// ```
pub struct HashSet<K>(hashbrown::HashSet<K, RandomState>);

hashed!(HashMap, [K, V], V, (K, V));
hashed!(HashSet, [K], , K);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_map_hashes_with_keys_of_its_own() {
        let hash = |map: &HashMap<u32, ()>| map.hasher().hash_one(7);
        assert_ne!(hash(&HashMap::new()), hash(&HashMap::new()));
        let map = HashMap::from([(1, ()), (2, ())]);
        assert_eq!(hash(&map), hash(&map.clone()));
    }

    #[test]
    fn they_are_used_as_those_of_std() {
        let mut map: HashMap<u32, u32> = HashMap::with_capacity(8);
        for n in 0..100 {
            assert_eq!(map.insert(n, n * n), None);
        }
        assert_eq!(map.remove(&99), Some(99 * 99));
        assert_eq!(map.keys().sum::<u32>(), 98 * 99 / 2);
        let mut back: Vec<_> = map.into_iter().collect();
        back.sort_unstable();
        assert_eq!(back[98], (98, 98 * 98));
        let set = HashSet::from([1, 2]);
        assert_eq!(format!("{:?}", set.difference(&HashSet::from([2])).collect::<Vec<_>>()), "[1]");
    }
}
