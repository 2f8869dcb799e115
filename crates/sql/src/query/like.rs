//! `CREATE TABLE … LIKE`: what is taken over from the model.

use crate::ast::{LikeClause, LikeFeature, LikeStrategy};

/// How each part of the model is merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strategies {
    pub constraints: LikeStrategy,
    pub generated: LikeStrategy,
    pub metadata: LikeStrategy,
    pub options: LikeStrategy,
    pub watermarks: LikeStrategy,
}

impl Strategies {
    /// The choices of a clause. Without any: INCLUDING ALL, OVERWRITING OPTIONS. A choice for ALL
    /// holds for what is not chosen by itself.
    pub fn new(like: &LikeClause) -> Self {
        let chosen = |feature: LikeFeature| like.options.iter().find(|o| o.feature == feature).map(|o| o.strategy);
        let all = chosen(LikeFeature::All);
        let of = |feature: LikeFeature, default: LikeStrategy| chosen(feature).or(all).unwrap_or(default);
        Strategies {
            constraints: of(LikeFeature::Constraints, LikeStrategy::Including),
            generated: of(LikeFeature::Generated, LikeStrategy::Including),
            metadata: of(LikeFeature::Metadata, LikeStrategy::Including),
            options: of(LikeFeature::Options, LikeStrategy::Overwriting),
            watermarks: of(LikeFeature::Watermarks, LikeStrategy::Including),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::StatementKind;

    #[track_caller]
    fn check(choices: &str, expect: [LikeStrategy; 3]) {
        let statements = crate::parse_script(&format!("CREATE TABLE a LIKE b {choices}")).expect("parses");
        let StatementKind::CreateTable(table) = &statements[0].kind else { panic!("a table") };
        let s = Strategies::new(table.like.as_ref().expect("LIKE"));
        assert_eq!([s.generated, s.options, s.watermarks], expect, "{choices}");
    }

    #[test]
    fn defaults() {
        use LikeStrategy::{Excluding, Including, Overwriting};
        check("", [Including, Overwriting, Including]);
        check("(EXCLUDING OPTIONS)", [Including, Excluding, Including]);
        check("(EXCLUDING ALL INCLUDING GENERATED)", [Including, Excluding, Excluding]);
        check("(INCLUDING ALL OVERWRITING WATERMARKS)", [Including, Including, Overwriting]);
    }
}
