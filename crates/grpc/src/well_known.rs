//! The types of `google.protobuf` that A2A uses, with their `ProtoJSON`.
//!
//! The types are written by hand because a generated `Value` holds every number as a double. In other implementations, the number
//! 42 of a JSON object becomes 42.0 in a `Struct`, and a reader that expects an integer then refuses it.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{self, Serialize, Serializer};

#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Empty {}

/// A JSON object.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// Any JSON value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// The JSON value `null`. The number is always 0.
    #[prost(int32, tag = "1")]
    Null(i32),
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(message, tag = "5")]
    Struct(Struct),
    #[prost(message, tag = "6")]
    List(ListValue),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// A point in time; in JSON as RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Self {
        Self { kind: Some(kind) }
    }
}

/// The largest number up to which a double holds every whole number.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            None | Some(Kind::Null(_)) => serializer.serialize_unit(),
            #[expect(clippy::cast_possible_truncation, reason = "the number is whole and small enough")]
            Some(Kind::Number(number)) if number.fract() == 0.0 && number.abs() <= MAX_EXACT => {
                serializer.serialize_i64(*number as i64)
            }
            Some(Kind::Number(number)) if number.is_finite() => serializer.serialize_f64(*number),
            Some(Kind::Number(_)) => Err(ser::Error::custom("a number must be finite")),
            Some(Kind::String(text)) => serializer.serialize_str(text),
            Some(Kind::Bool(value)) => serializer.serialize_bool(*value),
            Some(Kind::Struct(object)) => object.serialize(serializer),
            Some(Kind::List(list)) => list.values.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Kind::Null(0).into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Kind::Bool(value).into())
    }

    #[expect(clippy::cast_precision_loss, reason = "the type holds doubles")]
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Kind::Number(number as f64).into())
    }

    #[expect(clippy::cast_precision_loss, reason = "the type holds doubles")]
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Kind::Number(number as f64).into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Kind::Number(number).into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Kind::String(text.to_owned()).into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Kind::String(text).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(Kind::List(ListValue { values }).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = members.next_entry()? {
            fields.insert(name, value);
        }
        Ok(Kind::Struct(Struct { fields }).into())
    }
}

impl Serialize for Struct {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Struct {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(|fields| Self { fields })
    }
}

impl Serialize for Empty {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(std::iter::empty::<(&str, &str)>())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = jiff::Timestamp::new(self.seconds, self.nanos).map_err(ser::Error::custom)?;
        serializer.collect_str(&time)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimestampVisitor;

        impl Visitor<'_> for TimestampVisitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time as RFC 3339 writes it")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                let time: jiff::Timestamp = text.parse().map_err(E::custom)?;
                // The nanoseconds of a protocol buffer timestamp count forward, even before 1970.
                let (seconds, nanos) = (time.as_second(), time.subsec_nanosecond());
                Ok(if nanos < 0 {
                    Timestamp { seconds: seconds - 1, nanos: nanos + 1_000_000_000 }
                } else {
                    Timestamp { seconds, nanos }
                })
            }
        }
        deserializer.deserialize_str(TimestampVisitor)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn a_struct_keeps_its_json() {
        for json in [
            "{}",
            r#"{"a":42,"b":-1.5,"c":1e+300,"d":"x","e":true,"f":null,"g":[1,[],{}],"h":{"i":{"j":9007199254740992}}}"#,
        ] {
            let read: Struct = serde_json::from_str(json).unwrap();
            let sent = Struct::decode(read.encode_to_vec().as_slice()).unwrap();
            assert_eq!(serde_json::to_string(&sent).unwrap(), json);
        }
        let nan = Value::from(Kind::Number(f64::NAN));
        assert!(serde_json::to_string(&nan).is_err());
    }

    #[test]
    fn a_timestamp_is_rfc_3339() {
        for (json, seconds, nanos) in [
            (r#""1970-01-01T00:00:00Z""#, 0, 0),
            (r#""2026-11-19T15:30:00.125Z""#, 1_795_102_200, 125_000_000),
            (r#""1969-12-31T23:59:59.5Z""#, -1, 500_000_000),
        ] {
            let time: Timestamp = serde_json::from_str(json).unwrap();
            assert_eq!(time, Timestamp { seconds, nanos });
            assert_eq!(serde_json::to_string(&time).unwrap(), json);
        }
        let offset: Timestamp = serde_json::from_str(r#""1970-01-01T01:00:00+01:00""#).unwrap();
        assert_eq!(offset, Timestamp::default());
        assert!(serde_json::from_str::<Timestamp>(r#""yesterday""#).is_err());
        assert!(serde_json::to_string(&Timestamp { seconds: i64::MAX, nanos: 0 }).is_err());
    }
}
