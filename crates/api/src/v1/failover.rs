//! How another instance takes over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rules;
use crate::schema::validations;
use crate::value::{Size, Span, Written, words};

words! {
    /// What a commit waits for.
    Durability, "durability" {
        /// Until enough standbys have it on disk that any failover keeps it.
        Quorum = "quorum",
        /// For this instance alone.
        Async = "async",
    }
}

words! {
    /// What happens under quorum when no standby is left to confirm a commit.
    StandbyPolicy, "standby policy" {
        /// Commits wait until there is one again.
        Required = "required",
        /// Commits go on, and a condition says that one more loss may lose data.
        Preferred = "preferred",
    }
}

/// How soon, and on what terms, another instance takes over. The defaults are short and safe.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = validations(rules::FAILOVER)))]
pub struct Failover {
    /// How long leadership lasts without renewal; the longest that nobody may write after a primary has
    /// fallen silent. Default 5s, at least 2s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::value::SHORT_SPAN))]
    pub ttl: Option<Written<Span>>,
    /// How often leadership is looked at and renewed. Default 1s, at least 100ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::value::SHORT_SPAN))]
    pub interval: Option<Written<Span>>,
    /// How long before the end of its leadership a primary stops taking writes by itself. Default 500ms, at
    /// least 100ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = crate::value::SHORT_SPAN))]
    pub margin: Option<Written<Span>>,
    /// Under quorum, what happens when no standby is left: `required` refuses writes, `preferred` goes on
    /// and says so. Default `required` from 3 instances up, else `preferred`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<Written<StandbyPolicy>>,
    /// Under async, how many bytes of log a replica may lack and still take over. Default 16Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_lag: Option<Written<Size>>,
    /// How many bytes of log a replica may lack and still serve readers. Default 64Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reader_lag: Option<Written<Size>>,
}
