//! Defects of the scripts, in builds that can have them: see [`Mutant`].

use crate::mutant::Mutant;

/// With the defect, the second text stands in place of the first in all scripts that have it.
pub(super) const PATCHES: &[(Mutant, &str, &str)] = &[
    (
        Mutant::IdentityIsTheProcess,
        "elseif since ~= '-1' and string.find(former, '[^0]') then",
        "elseif false then",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "elseif since ~= '-1' and string.find(former, '[^0]') then",
        "else",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "return told .. '/' .. former .. ':' .. since",
        "return told .. '/' .. string.match(data, 'master_replid:(%x+)')",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "return identity and not string.find(told, '/', 1, true) and string.sub(identity, 1, #told + 1) == told .. '/'",
        "return false",
    ),
    (
        Mutant::EvictionsOfAnyProcess,
        "string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. ':' .. count",
        "count",
    ),
    (
        Mutant::PromotionNotCompared,
        "if known[1] ~= ARGV[2] or known[2] ~= ARGV[3] or not is_told(string.match(ARGV[3], '^(.*):[^:]*:[^:]*$'), me) then",
        "if known[1] ~= ARGV[2] then",
    ),
    (
        Mutant::VoteOutlivesConfig,
        "redis.call('HDEL', KEYS[1], 'identity', 'accepted', 'vote')",
        "redis.call('HDEL', KEYS[1], 'identity', 'accepted')",
    ),
    (
        Mutant::ReleaseWithoutCompare,
        "if holder == ARGV[1] then",
        "if holder then",
    ),
    (
        Mutant::ReleaseWithoutCompare,
        "if holder == token then",
        "if holder then",
    ),
    (Mutant::OldCounterCounts, "raise('floor', known[4])", ""),
    (
        Mutant::CounterNotChecked,
        "return #text == 19 and not string.find(text, '%D') and text <= '9223372036854773759' and text or nil",
        "return text",
    ),
    (
        Mutant::BallotNotCompared,
        "elseif before ~= '' and ballot < before then",
        "elseif false then",
    ),
    (
        Mutant::OvertakenRunIsStored,
        "elseif before == ballot or granted or chosen then",
        "else",
    ),
    (
        Mutant::ForgottenGrantCounts,
        "owner = count and ballot >= count and redis.pcall('GET', KEYS[2])",
        "owner = redis.pcall('GET', KEYS[2])",
    ),
    (Mutant::PromiseNotCompared, " and ballot >= promised", ""),
];

/// The script with the defect that is switched on, if it is one of scripts.
#[cfg(tower_redlock_simulation)]
pub(super) fn patched(script: String) -> String {
    let patches = PATCHES.iter();
    let patches = patches.filter(|(mutant, ..)| crate::mutant::is(*mutant));
    patches.fold(script, |script, (_, right, wrong)| {
        assert!(script.matches(right).count() < 2, "{right}");
        script.replace(right, wrong)
    })
}
