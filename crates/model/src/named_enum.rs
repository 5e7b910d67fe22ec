//! Enums whose variants each have one fixed word for the store, logs, metrics or the configuration.

/// Declares an enum from a table of variants and words, with `ALL` and a method that returns the word. A single table keeps the
/// three consistent.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)*
        }
        $(#[$method_meta:meta])*
        fn $method:ident
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            $(#[$method_meta])*
            pub fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

pub(crate) use named_enum;
