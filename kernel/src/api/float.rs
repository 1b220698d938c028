//! `Float`: square roots, powers, logarithms and angles of `f64` and `f32`.
//!
//! The bare target computes without floating-point registers: a G that used them would have to save
//! 512 bytes of state at every switch, and most Gs use none. So an operation on floats is a call of
//! some dozen instructions. These methods, which std has and `core` has not, are those of the crate
//! `libm`.
#![forbid(unsafe_code)]

macro_rules! float {
    ($($(#[$meta:meta])* $name:ident($($other:ident)?) = $f64:ident, $f32:ident;)+) => {
        /// The methods of std's `f64` and `f32` that `core` lacks.
        ///
        /// ```
        /// use runnext::prelude::*;
        /// let side = 2.0_f64.sqrt();
        /// assert!((side * side - 2.0).abs() < 1e-12);
        /// ```
        pub trait Float: Sized {
            $($(#[$meta])* #[must_use] fn $name(self $(, $other: Self)?) -> Self;)+

            /// This to the power of an integer.
            #[must_use]
            fn powi(self, n: i32) -> Self;

            /// Sine and cosine.
            #[must_use]
            fn sin_cos(self) -> (Self, Self);
        }

        impl Float for f64 {
            $(fn $name(self $(, $other: Self)?) -> Self {
                libm::$f64(self $(, $other)?)
            })+

            fn powi(self, n: i32) -> Self {
                libm::pow(self, f64::from(n))
            }

            fn sin_cos(self) -> (Self, Self) {
                libm::sincos(self)
            }
        }

        impl Float for f32 {
            $(fn $name(self $(, $other: Self)?) -> Self {
                libm::$f32(self $(, $other)?)
            })+

            fn powi(self, n: i32) -> Self {
                libm::pow(f64::from(self), f64::from(n)) as f32
            }

            fn sin_cos(self) -> (Self, Self) {
                libm::sincosf(self)
            }
        }
    };
}

float! {
    /// The square root; of a negative number not a number.
    sqrt() = sqrt, sqrtf;
    /// The cube root.
    cbrt() = cbrt, cbrtf;
    /// The next integer below.
    floor() = floor, floorf;
    /// The next integer above.
    ceil() = ceil, ceilf;
    /// The nearest integer, from halves away from zero.
    round() = round, roundf;
    /// The integer part.
    trunc() = trunc, truncf;
    /// e to this power.
    exp() = exp, expf;
    /// 2 to this power.
    exp2() = exp2, exp2f;
    /// The natural logarithm.
    ln() = log, logf;
    /// The logarithm to base 2.
    log2() = log2, log2f;
    /// The logarithm to base 10.
    log10() = log10, log10f;
    /// The sine, of radians.
    sin() = sin, sinf;
    /// The cosine.
    cos() = cos, cosf;
    /// The tangent.
    tan() = tan, tanf;
    /// The angle of that sine.
    asin() = asin, asinf;
    /// The angle of that cosine.
    acos() = acos, acosf;
    /// The angle of that tangent.
    atan() = atan, atanf;
    /// The hyperbolic sine.
    sinh() = sinh, sinhf;
    /// The hyperbolic cosine.
    cosh() = cosh, coshf;
    /// The hyperbolic tangent.
    tanh() = tanh, tanhf;
    /// This to the power of `other`.
    powf(other) = pow, powf;
    /// The length of a vector of these two.
    hypot(other) = hypot, hypotf;
    /// The angle of the point (`other`, this).
    atan2(other) = atan2, atan2f;
}

#[cfg(test)]
mod tests {
    use super::Float;

    #[test]
    fn each_method_is_that_of_std() {
        fn same(name: &str, ours: f64, stds: f64) {
            assert!((ours - stds).abs() <= 1e-12 * stds.abs().max(1.0), "{name}: {ours}, {stds}");
        }
        for x in [0.1_f64, 0.5, 0.9] {
            macro_rules! same {
                ($($name:ident)+) => {
                    $(same(stringify!($name), Float::$name(x), x.$name());)+
                };
            }
            same!(sqrt cbrt floor ceil round trunc exp exp2 ln log2 log10 sin cos tan asin acos atan
                sinh cosh tanh);
            same("powf", Float::powf(x, 2.5), x.powf(2.5));
            same("hypot", Float::hypot(x, 2.5), x.hypot(2.5));
            same("atan2", Float::atan2(x, 2.5), x.atan2(2.5));
            same("powi", Float::powi(x, -3), x.powi(-3));
            same("sin_cos", Float::sin_cos(x).1, x.sin_cos().1);
            assert!((Float::sqrt(x as f32) - (x as f32).sqrt()).abs() < 1e-6);
        }
        assert!(Float::sqrt(-1.0_f64).is_nan());
    }
}
