//! The local APIC, in its two forms.
